"""A server opens the index that took the place of the one that it had open, and mixes nothing of both."""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import database
import pytest
import served_index

from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import SIDES, Change
from subtext.retrieval.stores.registry import create_store
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


@pytest.mark.parametrize("kind", ["postgresql", "lance"])
def test_server_forgets_answers_of_an_index_that_was_replaced(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many changes, of the same model: in a database the schema is renamed, or built anew."""
    monkeypatch.setattr(state, "CHECK_SECONDS", 0.2)
    asked = "/search?q=a+blue+square&top=5"
    with ExitStack() as stack:
        server = stack.enter_context(database.started()) if kind == "postgresql" else None
        address = server.address if server is not None else lambda name: f"lance://{place / 'lance' / name}"
        for name in ("library", "other"):
            _copy(Folder(place / name), address(name))

        def swap(one: str, other: str) -> None:
            if server is None:
                (place / "lance" / one).rename(place / "lance" / f"old {one}")
                (place / "lance" / other).rename(place / "lance" / one)
            else:
                statement = f'ALTER SCHEMA {one} RENAME TO "old {one}"; ALTER SCHEMA {other} RENAME TO {one}'
                server.run("psql", "--quiet", "--dbname=postgres", f"--command={statement}")

        with served_index.client(address("library")) as client:
            first = [hit["id"] for hit in client.get(asked).json()["hits"]]
            assert len(first) == 5 and not first[0].startswith("other-")
            swap("library", "other")
            for prefix in ("other-", ""):
                until = time.monotonic() + 5
                while (answer := client.get(asked)).status_code == 503:
                    assert time.monotonic() < until
                    time.sleep(0.05)
                ids = [hit["id"] for hit in answer.json()["hits"]]
                assert len(ids) == 5 and all(name.startswith("other-") == bool(prefix) for name in ids), prefix
                assert client.get(f"/item?id={ids[0]}").status_code == 200
                if prefix and server is not None:
                    server.run("psql", "--quiet", "--dbname=postgres", "--command=DROP SCHEMA library CASCADE")
                    _copy(Folder(place / "library"), address("library"))
                elif prefix:
                    shutil.rmtree(place / "lance" / "library")
                    _copy(Folder(place / "library"), address("library"))


def _copy(folder: Folder, address: str) -> None:
    """An index of the same model and items in another store, with an identity of its own and one change a side."""
    identity = secrets.token_hex(16)
    store = create_store(address, replace(folder.manifest, identity=identity, generation=0))
    with folder.reading() as view, store.writing("add") as writer:
        for side in SIDES:
            keys = view.keys(side)
            rows = sorted(view.rows(side, keys=keys.tolist(), links=True), key=lambda row: row.key)
            links = (
                [(item.metadata["images"][0], item.id) for item in view.items("texts", keys)] if side == "texts" else []
            )
            writer.put(Change(side, [row.entry() for row in rows], view.vectors(side, keys), links=links))
