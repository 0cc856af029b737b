"""An index folder: what is put in comes back, changes, and goes; what is foreign or in the way is told."""

from __future__ import annotations

import gc
import json
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stored_items

from subtext.api.index.maintain import restore_index
from subtext.errors import SearchIndexError
from subtext.retrieval.condition import matching
from subtext.retrieval.stores.folder import Folder, SqliteTables, backup, read_manifest
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.traces import trace_name
from subtext.retrieval.verification import verify
from subtext.version import FORMAT

EARLIER = r"was made by an earlier Subtext, which cannot be opened; build it again with `subtext index build`"
QUERIES = stored_items.vectors(range(1000, 1004), 1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return stored_items.made(tmp_path / "index")


def test_added_items_are_read_back(folder: Folder) -> None:
    again = Folder(folder.path)
    assert again.counts == {"images": 40, "texts": 60}
    assert (again.manifest.width, again.manifest.scale, again.manifest.format) == (stored_items.WIDTH, 14.0, FORMAT)
    with again.reading() as view:
        keys = view.keys_of("images", ["p3", "p39", "nobody"])
        third, last = view.items("images", [keys["p3"], keys["p39"]])
        np.testing.assert_array_equal(
            view.vectors("images", np.array([keys["p3"]])), stored_items.vectors(range(3, 4), stored_items.VIEWS)
        )
        (words,) = view.items("texts", [view.keys_of("texts", ["t43"])["t43"]])
        assert isinstance(view.sides["images"].segments[0].vectors, np.memmap)
    assert set(keys) == {"p3", "p39"}
    assert third.captions == [stored_items.text(3).text, stored_items.text(43).text] and last.captions == [
        stored_items.text(39).text
    ]
    assert third.path == "3.png" and third.metadata == dict(stored_items.picture(3).metadata)
    assert words.captions == [stored_items.text(43).text] and words.metadata == {"images": ["p3"], "language": "en"}
    assert verify(folder.path) == []


@pytest.mark.parametrize("views", [1, 3])
def test_nearest_equal_plain_loop(folder: Folder, views: int) -> None:
    queries = stored_items.vectors(range(2000, 2003), views)
    assert stored_items.nearest(folder, queries, top=7) == stored_items.plain(queries, list(range(40)), top=7)
    wanted = stored_items.plain(queries, list(range(60)), views=1, prefix="t")
    assert stored_items.nearest(folder, queries, side="texts") == wanted
    assert [len(found) for found in stored_items.nearest(folder, queries, top=99)] == [40] * 3


def test_changes_are_visible_and_compaction_keeps_answers(folder: Folder) -> None:
    with folder.writing("add") as writer:
        for start in range(40, 100, 10):
            writer.put(stored_items.images(range(start, start + 10)))
        writer.delete("images", [f"p{number}" for number in range(0, 100, 3)])
        moved = Change(
            "images", [replace(stored_items.picture(4), content=b"new")], stored_items.vectors(range(1000, 1001), 2)
        )
        writer.put(moved)
    live = [number for number in range(100) if number % 3 and number != 4]
    wanted = stored_items.plain(QUERIES, [*live, 1000], top=9)
    wanted = [["p4" if name == "p1000" else name for name in found] for found in wanted]
    assert stored_items.nearest(folder, QUERIES, top=9) == wanted
    with folder.writing("compact") as writer:
        assert "vectors of 0 deleted" not in writer.compact()[0]
        assert writer.compact()[0].startswith("0 segments became 0"), "a second one finds nothing to do"
    assert stored_items.nearest(folder, QUERIES, top=9) == wanted
    with folder.reading() as view:
        assert len(view.sides["images"].segments) == 1 and view.counts["images"] == len(live) + 1
    assert verify(folder.path) == []
    assert len([place for place in folder.store.iterdir() if place.is_dir()]) == 2


def test_reader_keeps_snapshot_during_writes(folder: Folder) -> None:
    reader = Folder(folder.path)
    with reader.reading() as view:
        before = [item.id for item in view.items("images", matching(view, "images", []))]

        def write() -> None:
            with folder.writing("delete") as writer:
                writer.delete("images", ["p1", "p2"])
                writer.compact()
            folder.close()

        other = threading.Thread(target=write)
        other.start()
        other.join()
        found = view.nearest("images", QUERIES, top=40)
        assert sorted(item.id for item in view.items("images", found[0].keys)) == sorted(before)
    assert stored_items.ids(reader) == set(before) - {"p1", "p2"}
    assert len(stored_items.nearest(reader, QUERIES, top=40)[0]) == 38


def test_tables_that_nobody_closes_are_closed_when_they_are_collected(folder: Folder) -> None:
    tables = SqliteTables(folder.tables)
    connection = tables.connection
    del tables
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_deletion_removes_texts_and_thumbnails(folder: Folder) -> None:
    cached, kept = (folder.path / "cache" / "thumbnails" / f"{trace_name('images', n)}.webp" for n in ("p7", "p70"))
    cached.parent.mkdir(parents=True)
    for file in (cached, kept):
        file.write_bytes(b"picture")
    log = folder.path / "logs" / "requests.jsonl"
    log.parent.mkdir()
    lines = [json.dumps({"found": names}) + "\n" for names in (["p7"], ["p70", "p71"], ["p1", "7.png"])]
    log.write_text("".join(lines))
    with folder.writing("delete") as writer:
        assert writer.delete("images", ["p7", "nobody"]) == {"images": 1, "texts": 2}
    assert not cached.exists() and kept.exists()
    assert log.read_text() == lines[1]
    with folder.reading() as view:
        assert view.search_text("word7", top=5) == view.search_text("word47", top=5) == []
        assert view.keys_of("texts", ["t7", "t47"]) == {}
    with folder.writing("compact") as writer:
        writer.compact()
    folder.close()
    secrets = [b"word7", b"word47", b"7.png", stored_items.vectors(range(7, 8), 2).tobytes()[:16]]
    for file in folder.store.rglob("*"):
        raw = file.read_bytes() if file.is_file() else b""
        for name in (b"37.png", b"27.png", b"17.png"):
            raw = raw.replace(name, b"")
        assert not [secret for secret in secrets if secret in raw]
    assert verify(folder.path) == []


def test_texts_shared_by_images_survive_deletion(folder: Folder) -> None:
    with folder.writing("add") as writer:
        writer.put(Change("texts", links=[("p8", "t7")]))
        assert writer.delete("images", ["p7"]) == {"images": 1, "texts": 1}
        assert writer.delete("images", ["p9"], keep_texts=True) == {"images": 1, "texts": 0}
    with folder.reading() as view:
        assert set(view.keys_of("texts", ["t7", "t47", "t9"])) == {"t7", "t9"}
        (item,) = view.items("texts", [view.keys_of("texts", ["t7"])["t7"]])
        assert item.metadata["images"] == ["p8"]


def test_metadata_changes_without_new_vectors(folder: Folder) -> None:
    with folder.writing("update") as writer:
        key = writer.rows_of("images", ["p2"])["p2"].key
        writer.put(Change("images", amended=[replace(stored_items.picture(2), metadata={"place": "Rom"})]))
        assert writer.rows_of("images", ["p2"])["p2"].key == key
        generation = writer.manifest.generation
        writer.put(stored_items.texts(range(0)))
        assert writer.manifest.generation == generation, "nothing to do is no change"
    with folder.reading() as view:
        assert view.items("images", [key])[0].metadata == {"place": "Rom"}
    assert verify(folder.path) == []


def test_invalid_items_raise_and_change_nothing(folder: Folder) -> None:
    bad = stored_items.vectors(range(50, 52), 2)
    bad[1, 0, 0] = np.nan
    twice = Change(
        "images", [stored_items.picture(50), stored_items.picture(50)], stored_items.vectors(range(50, 52), 2)
    )
    with folder.writing("add") as writer:
        with pytest.raises(SearchIndexError, match="1 vector of images is not: 'p51'"):
            writer.put(Change("images", [stored_items.picture(50), stored_items.picture(51)], bad))
        with pytest.raises(
            SearchIndexError, match=r"images of 2 x 8, and one an item; it got vectors of shape \(1, 1, 8\)"
        ):
            writer.put(Change("images", [stored_items.picture(50)], stored_items.vectors(range(50, 51), 1)))
        with pytest.raises(SearchIndexError, match="an id once on each side; it got 'p50' twice"):
            writer.put(twice)
    assert folder.counts["images"] == 40 and verify(folder.path) == []


def test_large_change_respects_sqlite_parameter_limit(folder: Folder) -> None:
    entries = [IndexEntry(f"t{number}", b"d") for number in range(9000)]
    vectors = np.ones((len(entries), 1, stored_items.WIDTH), dtype=np.float32)
    with folder.writing("delete") as writer:
        writer.put(Change("texts", deleted=["t7", "t50"], remember=True))
    with folder.writing("add") as writer:
        assert writer.tables.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 8500) >= 8500
        writer.put(Change("texts", entries, vectors))
    with folder.reading() as view:
        assert view.counts["texts"] == 9000 and view.records("deleted") == []


def test_copy_is_a_working_index(folder: Folder, tmp_path: Path) -> None:
    wanted = stored_items.nearest(folder, QUERIES)
    made = backup(folder, tmp_path / "copy")
    with folder.writing("delete") as writer:
        writer.delete("images", ["p1"])
    assert stored_items.nearest(made, QUERIES) == wanted and made.counts["images"] == 40
    restore_index(tmp_path / "copy", tmp_path / "back")
    back = Folder(tmp_path / "back")
    assert stored_items.nearest(back, QUERIES) == wanted and verify(tmp_path / "back") == []
    with pytest.raises(SearchIndexError, match=r"new or empty folder; .*back holds an index"):
        restore_index(tmp_path / "copy", tmp_path / "back")
    file = next((tmp_path / "copy").rglob("vectors.npy"))
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    with pytest.raises(
        SearchIndexError, match=r"is damaged and cannot be restored; .*vectors\.npy: changed or damaged"
    ):
        restore_index(tmp_path / "copy", tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_copy_survives_concurrent_compaction(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = stored_items.nearest(folder, QUERIES, top=20)
    plain, turns = shutil.copyfile, list[int]()

    def slow(source: Path, target: Path) -> object:
        turns.append(1)
        if len(turns) == 2:
            with folder.writing("compact") as writer:
                writer.put(stored_items.texts(range(60, 61)))
                writer.compact()
        return plain(source, target)

    monkeypatch.setattr(shutil, "copyfile", slow)
    made = backup(Folder(folder.path), tmp_path / "copy")
    assert stored_items.nearest(made, QUERIES, top=20) == wanted and verify(tmp_path / "copy") == []


def test_replacement_store_is_built_and_swapped(folder: Folder) -> None:
    other = replace(stored_items.manifest(), fingerprint="e" * 32, width=4, views={"images": 1, "texts": 1})
    new = folder.create_replacement(other)
    vectors = stored_items.vectors(range(5), 1)[:, :, :4].copy()
    with new.writing("move") as writer:
        writer.put(Change("images", [stored_items.picture(number) for number in range(5)], vectors))
        with pytest.raises(SearchIndexError, match="one writer at a time; `subtext index move`"), folder.writing("add"):
            pass
    assert folder.counts["images"] == 40 and not folder.was_replaced
    assert folder.create_replacement(other).counts["images"] == 5, "one that was cut off goes on"
    swapped = folder.replace_with(new, since=folder.manifest.revision)
    assert swapped.manifest.fingerprint == "e" * 32 and swapped.counts == {"images": 5, "texts": 0}
    assert folder.was_replaced and len(stored_items.nearest(folder, QUERIES)[0]) == 5, "whoever has it open goes on"
    with pytest.raises(SearchIndexError, match="was moved to another model meanwhile"), folder.writing("add"):
        pass
    assert verify(folder.path) == []


def test_non_empty_folder_raises_and_is_unchanged(folder: Folder) -> None:
    folder.close()
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(
        SearchIndexError, match=r"new or empty folder; .*index holds an index, which `subtext index update`"
    ):
        Folder.create(folder.path, stored_items.manifest())
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_empty_index_returns_nothing(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "index", stored_items.manifest())
    assert stored_items.nearest(folder, QUERIES) == [[]] * 4 and verify(folder.path) == []
    with folder.writing("compact") as writer:
        assert writer.compact()[0].startswith("0 segments became 0")


def test_folder_without_index_raises(tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match="it is not there"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(SearchIndexError, match=r"it has no manifest\.json"):
        read_manifest(tmp_path)
    for text, told in (
        ("{", "needs to be JSON"),
        ("[]", "is not the manifest of a Subtext index"),
        ('{"kind": "another"}', "is not the manifest of a Subtext index"),
        ('{"kind": "subtext index", "format": 99}', EARLIER),
        ('{"kind": "subtext index"}', EARLIER),
        ('{"kind": "subtext index", "format": 1}', "needs 'fingerprint'; it has None"),
        (stored_items.manifest().to_json().replace('"width": 8', '"width": 9'), "needs its own checksum"),
        (stored_items.manifest().to_json().replace('"texts": 1', '"text": 1'), "needs 'views' of images and texts"),
        (stored_items.manifest().to_json().replace("store-1", "../x"), "needs 'store' to be a folder inside it"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(SearchIndexError, match=told):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SearchIndexError, match="it is not text"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "statement", ["UPDATE state SET value = 2 WHERE name = 'format'", "DELETE FROM state WHERE name = 'format'"]
)
def test_state_of_other_format_raises(folder: Folder, statement: str) -> None:
    with closing(sqlite3.connect(folder.tables)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(SearchIndexError, match=EARLIER):
        Folder(folder.path)
    with pytest.raises(SearchIndexError, match=EARLIER), folder.writing("add"):
        pass


def test_entry_keeps_values_beyond_json(folder: Folder) -> None:
    import datetime

    odd = {"n": np.int64(3), "f": np.float32(0.5), "day": datetime.date(2020, 1, 2), "big": 2**70, "nan": float("nan")}
    with folder.writing("add") as writer:
        writer.put(Change("texts", [IndexEntry("odd", b"x", metadata=odd)], stored_items.vectors(range(1), 1)))
    with folder.reading() as view:
        (item,) = view.items("texts", [view.keys_of("texts", ["odd"])["odd"]])
    assert item.metadata | {"nan": 0} == {"images": [], "n": 3, "f": 0.5, "day": "2020-01-02", "big": 2**70, "nan": 0}
    assert verify(folder.path) == []
