"""Deletion reaches every store of an index: those of earlier models, those half built, and engines that are open."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import stored_items

from subtext.errors import SearchIndexError
from subtext.retrieval.stores import folder as folder_module
from subtext.retrieval.stores.errors import IndexMovedError
from subtext.retrieval.stores.folder import PENDING, Folder
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.verification import verify

STEPS = {
    "delete": 1,
    "move delete": 1,
    "begin delete": 2,
    "begin delete finish": 1,
    "delete begin": 2,
    "move begin delete": 2,
    "begin other delete": 1,
    "begin other begin delete": 2,
    "begin delete other delete": 1,
    "begin compact delete": 2,
}
"""What is done to an index -> how many stores it has after a compaction: one that an unfinished move builds stays."""
CAPTION_TEXT = "Quincunx of Zanzibar"
SECRET = Change(
    "images", [IndexEntry("secret", b"s", path="secret.png")], stored_items.vectors(range(500, 501), stored_items.VIEWS)
)
SECRET_TEXT = Change(
    "texts",
    [IndexEntry("secret/0", b"s", text=CAPTION_TEXT)],
    stored_items.vectors(range(500, 501), 1),
    links=[("secret", "secret/0")],
)


def with_secret(path: Path) -> Folder:
    """An index of 40 pictures, and one more, 'secret', with a caption of words that no other has."""
    folder = stored_items.made(path)
    with folder.writing("add") as writer:
        writer.put(SECRET)
        writer.put(SECRET_TEXT)
    folder.close()
    return folder


def begun(folder: Folder, letter: str) -> Folder:
    """A store of another model beside an index, with all of its items that are not in it yet; not put in use."""
    with folder.reading() as view:
        ids = {item.id for item in view.items("images", view.keys("images"))}
    new = folder.create_replacement(replace(stored_items.manifest(), fingerprint=letter * 32))
    with new.writing("move") as writer:
        writer.put(stored_items.images(range(40)))
        writer.put(stored_items.texts(range(60)))
        if "secret" in ids:
            writer.put(SECRET)
            writer.put(SECRET_TEXT)
    return new


def deleting_secret(path: Path) -> None:
    """The picture 'secret' is deleted, with its caption."""
    with Folder(path).writing("delete") as writer:
        writer.delete("images", ["secret"])


def perform(path: Path, step: str) -> None:
    folder = Folder(path)
    if step == "delete":
        deleting_secret(path)
    elif step == "compact":
        compact(path)
    elif step == "begin":
        begun(folder, "e").close()
    elif step == "finish":
        folder.replace_with(begun(folder, "e"), since=folder.manifest.revision).close()
    else:
        folder.replace_with(begun(folder, "d" if step == "other" else "c"), since=folder.manifest.revision)
    folder.close()


def compact(path: Path) -> list[str]:
    folder = Folder(path)
    with folder.writing("compact") as writer:
        lines = writer.compact()
    folder.close()
    return lines


def found(path: Path, secrets: list[bytes]) -> list[tuple[str, bytes]]:
    raws = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return [(name, secret) for name, raw in raws.items() for secret in secrets if secret.lower() in raw.lower()]


PLAIN = [b"quincunx", b"zanzibar", b"secret"]
CAPTION = [CAPTION_TEXT.encode(), b"secret"]


@pytest.mark.parametrize("steps", STEPS)
def test_deleted_bytes_are_in_no_store(tmp_path: Path, steps: str) -> None:
    path = tmp_path / "index"
    with_secret(path)
    assert found(path, CAPTION), "this finds what is there"
    for step in steps.split():
        perform(path, step)
        assert step == "delete" or "delete" not in steps.split() or verify(path) == []
    assert not found(path, CAPTION) and verify(path) == []
    assert stored_items.ids(Folder(path)) == {f"p{number}" for number in range(40)}
    compact(path)
    vectors = [row.tobytes() for row in stored_items.vectors(range(500, 501), 1)]
    assert not found(path, [*PLAIN, *vectors]) and verify(path) == []
    assert len(list(path.glob("store-*"))) == STEPS[steps]


def test_index_open_during_move_sees_deletions(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with_secret(path)
    old = Folder(path)
    assert "secret" in stored_items.ids(old)
    perform(path, "move")
    assert old.was_replaced and "secret" in stored_items.ids(old)
    deleting_secret(path)
    assert "secret" not in stored_items.ids(old)
    with old.reading() as view:
        assert view.search_text("quincunx", top=3) == []
        assert len(view.nearest("images", stored_items.vectors(range(1), 1), top=99)[0].keys) == 40
    compact(path)
    with pytest.raises(IndexMovedError, match="was removed, or moved to another model and compacted; open it again"):
        stored_items.ids(old)


def test_verify_checks_every_store(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with_secret(path)
    perform(path, "move")
    perform(path, "begin")
    copies = {store.name: (store / "items.sqlite").read_bytes() for store in (path / "store-1", path / "store-3")}
    deleting_secret(path)
    assert verify(path) == []
    for name, raw in copies.items():
        # Copied back from elsewhere.
        (path / name / "items.sqlite").write_bytes(raw)
    told = {problem.where: problem.what for problem in verify(path) if "deleted" in problem.what}
    assert told == dict.fromkeys(
        ("store-1/items.sqlite", "store-3/items.sqlite"),
        "still holds 2 deleted items; `subtext index compact` removes them",
    )
    (path / "store-3" / PENDING).write_text("{")
    assert any("pending.json needs to be JSON" in problem.what for problem in verify(path))
    assert "removed store-3, of an unfinished move, as it was damaged" in compact(path)
    assert verify(path) == [] and not found(path, PLAIN)


def test_damaged_old_store_does_not_block_deletion(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with_secret(path)
    perform(path, "move")
    (path / "store-1" / "items.sqlite").write_bytes(b"no tables" * 1000)
    assert any("damaged" in problem.what for problem in verify(path))
    deleting_secret(path)
    assert not (path / "store-1").exists() and verify(path) == []


def test_locked_store_is_cleaned_by_next_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    with_secret(path)
    perform(path, "move")
    monkeypatch.setattr(folder_module, "PATIENCE", 0)
    holder = sqlite3.connect(path / "store-1" / "items.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SearchIndexError, match="database is locked"):
        deleting_secret(path)
    holder.execute("ROLLBACK")
    holder.close()
    assert found(path / "store-1", CAPTION)
    with Folder(path).writing("add"):
        pass
    assert not found(path, CAPTION) and (path / "store-1").exists()


def test_next_writer_removes_remains_of_killed_ones(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with_secret(path)
    left = [path / "added" / ".new-17.jsonl", path / "added" / ".writing-17-x-metadata.jsonl", path / ".writing-17-x"]
    left += [path / "logs" / ".writing-17-x-serve.jsonl", path / "store-1" / ".writing-17-x-calibration.json"]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_text(CAPTION_TEXT)
    deleting_secret(path)
    assert not found(path, CAPTION) and not any(file.exists() for file in left)
