"""A server opens the index that took the place of the one that it had open, and mixes nothing of both."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import served_index

from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change
from subtext.server import state


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`library` of twelve squares; and `other`, with half of them under other names."""
    served_index.made(tmp_path, "library", "other")
    other = Folder(tmp_path / "other")
    with other.reading() as view:
        keys = view.keys("images")
        rows, vectors = view.rows("images", keys=keys.tolist()), view.vectors("images", keys)
    rows.sort(key=lambda row: row.key)
    with other.writing("update") as writer:
        writer.delete("images", [row.id for row in rows])
        from dataclasses import replace

        entries = [replace(row.entry(), id=f"other-{row.id}") for row in rows[:6]]
        writer.put(Change("images", entries, vectors[:6]))
    other.close()
    return tmp_path


@pytest.mark.parametrize("link", [False, True])
def test_server_opens_replaced_index_within_its_seconds(
    place: Path, link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "CHECK_SECONDS", 0.3)
    live = place / "live"
    if link:
        live.symlink_to(place / "library")
    else:
        (place / "library").rename(live)
    asked = "/search?q=a+blue+square&top=5"
    with served_index.client(live, log="index") as client:
        first = [hit["id"] for hit in client.get(asked).json()["hits"]]
        assert len(first) == 5 and client.get(f"/thumbnail?id={first[0]}").status_code == 200
        if link:
            (place / "new").symlink_to(place / "other")
            (place / "new").replace(live)
        else:
            live.rename(place / "old")
            (place / "other").rename(live)
        swapped, seen = time.monotonic(), set[str]()
        while time.monotonic() < swapped + 10:
            answer = client.get(asked)
            if answer.status_code == 200:
                ids = [hit["id"] for hit in answer.json()["hits"]]
                assert all(name.startswith("other-") for name in ids), "never remembered answers, and no mixture"
                seen.update(ids)
                break
            assert answer.status_code == 503
        assert time.monotonic() < swapped + 5 and len(seen) == 5
        for name in seen:
            assert client.get(f"/item?id={name}").status_code == 200
            assert client.get(f"/thumbnail?id={name}").status_code == 200
        assert client.get(f"/item?id={first[0]}").status_code == 404
        assert client.get("/libraries").json()["libraries"][0]["image_count"] == 6


def test_server_opens_restored_copy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has the same identity and may have the same number of changes: what is remembered is not of it."""
    monkeypatch.setattr(state, "CHECK_SECONDS", 0.0)
    live, copy, asked = place / "library", place / "copy", "/search?q=a+blue+square&top=3"
    shutil.copytree(live, copy)
    with served_index.client(live) as client:
        before = [hit["id"] for hit in client.get(asked).json()["hits"]]
        for path, gone in ((live, before[1]), (copy, before[0])):
            with Folder(path).writing("delete") as writer:
                writer.delete("images", [gone])
        assert [hit["id"] for hit in client.get(asked).json()["hits"]][:2] == [before[0], before[2]]
        live.rename(place / "old")
        copy.rename(live)
        assert [hit["id"] for hit in client.get(asked).json()["hits"]][:2] == before[1:]
        assert client.get(f"/item?id={before[0]}").status_code == 404
