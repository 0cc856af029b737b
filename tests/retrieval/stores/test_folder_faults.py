"""Whatever cuts a change off: nothing acknowledged is lost, nothing half done is seen, and what is damaged is named."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import stored_items

from subtext.api.index.maintain import delete_from_index, index_info
from subtext.errors import OutputError, SearchIndexError
from subtext.retrieval.condition import matching
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.folder import LOCK, MANIFEST, Folder, FolderWriter, backup, translated, writer_lock
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.verification import verify

QUERIES = stored_items.vectors(range(1000, 1003), 1)


def test_copy_removes_remains_of_dead_local_processes_only(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead, host = int(ended.stdout), socket.gethostname()
    about = {"mine": (dead, host), "far": (dead, f"not-{host}"), "held": (os.getpid(), host)}
    for name, (process, place) in about.items():
        hidden = tmp_path / f".writing-{process}-{name}-copy"
        hidden.mkdir()
        (hidden / "items.sqlite").write_bytes(b"half")
        (hidden / LOCK).write_text(json.dumps({"verb": "backup", "process": process, "host": place, "since": "now"}))
    for name, process in (("empty", dead), ("begun", os.getpid())):
        (tmp_path / f".writing-{process}-{name}-copy").mkdir()
    (tmp_path / f".writing-{dead}-empty-other").mkdir()
    with writer_lock(tmp_path / f".writing-{os.getpid()}-held-copy", "backup"):
        backup(folder, tmp_path / "copy")
    left = sorted(file.name.split("-", 2)[2] for file in tmp_path.glob(".writing-*"))
    assert left == ["begun-copy", "empty-other", "far-copy", "held-copy"]


def limited(size: int, act: Callable[[], None]) -> None:
    """Do it in a process that may write no file beyond that size, as on a full disk."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return
    code = 1
    try:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        act()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def test_full_disk_raises_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "index"
    folder = stored_items.made(path)
    folder.close()
    wanted = stored_items.nearest(folder, QUERIES)
    folder.close()
    many, long = range(100, 4000), "word " * 40_000

    def vectors() -> None:
        with Folder(path).writing("add") as writer, pytest.raises(OutputError, match="no free space"):
            writer.put(stored_items.images(many))

    def words() -> None:
        entry = IndexEntry("long", b"x", text=long)
        # Closing the writer writes the log back, for which there is no space either.
        with pytest.raises(OutputError, match="needs to be written"), Folder(path).writing("add") as writer:
            writer.put(Change("texts", [entry], stored_items.vectors(range(1), 1)))

    largest = max(file.stat().st_size for file in path.rglob("*") if file.is_file())
    limited(largest, vectors)
    limited(largest + 8192, words)
    assert verify(path) == [] and folder.counts == {"images": 40, "texts": 60}
    assert stored_items.nearest(folder, QUERIES) == wanted
    with folder.writing("add") as writer:
        assert not list(folder.store.glob(".writing-*"))
        writer.put(stored_items.images(range(100, 140)))
    assert folder.counts["images"] == 80 and verify(path) == []


def test_second_writer_raises_with_lock_holder(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    with folder.writing("add"):
        told = rf"one writer at a time; `subtext index add` \(process {os.getpid()} on .*\) since 2.*; wait until"
        with pytest.raises(SearchIndexError, match=told), Folder(folder.path).writing("delete"):
            pass
        assert folder.counts["images"] == 40
    with folder.writing("delete"):
        pass


def test_disk_without_locks_names_the_other_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks of files a writer is refused; where SQLite has none either, readers are."""
    folder = stored_items.made(tmp_path / "index")

    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    advice = "keep the index on a local disk, or .*: in PostgreSQL .* or LanceDB"
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", none)
        told = rf"needs a disk with locks, .* has none \(No locks available\); {advice}"
        with pytest.raises(OutputError, match=told), folder.writing("add"):
            pass
    with closing(sqlite3.connect(folder.tables)) as other:
        folder.close()
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")  # SQLite says "database is locked" of a disk without locks, too.
        monkeypatch.setattr("subtext.retrieval.stores.folder.PATIENCE", 0.01)
        with pytest.raises(IndexLockedError, match=f"items.sqlite needs a lock: .* or the disk has no locks.*{advice}"):
            Folder(folder.path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = stored_items.made(tmp_path_factory.mktemp("whole") / "index", exact_up_to=50)
    with folder.writing("compact") as writer:
        writer.compact()
        writer.delete("images", ["p5"])
    folder.close()
    yield folder.path


def flipped(file: Path, place: int, bit: int = 0) -> None:
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1 << bit
    file.write_bytes(raw)


@pytest.mark.parametrize("name", ["vectors.npy", "keys.npy", "offsets.npy", "centroids.npy"])
@pytest.mark.parametrize("place", [3, -1])
def test_changed_byte_of_array_is_detected(whole: Path, tmp_path: Path, name: str, place: int) -> None:
    path = tmp_path / "index"
    shutil.copytree(whole, path)
    assert verify(path) == []
    file = sorted(path.rglob(name))[0]
    flipped(file, place)
    assert [each.where for each in verify(path) if "checksum" in each.what] == [file.relative_to(path).as_posix()]
    file.write_bytes(file.read_bytes()[:-8])
    assert any(each.where.endswith(name) for each in verify(path))
    file.unlink()
    assert any("is missing" in each.what and each.where.endswith(name) for each in verify(path))


def told_by(path: Path) -> object:
    """All that an index gives."""
    folder = Folder(path)
    with folder.reading() as view:
        items = [view.items(side, matching(view, side, [])) for side in ("images", "texts")]
        near = [view.nearest(side, QUERIES, top=9) for side in ("images", "texts")]
        words = [view.search_text(f"word{number}", top=3) for number in range(60)]
        fields = [view.fields("images"), view.fields("texts")]
        facets = view.tables.connection.execute("SELECT * FROM facets ORDER BY 1, 2, 3, 4").fetchall()
    folder.close()
    return items, [[each.keys.tolist() for each in some] for some in near], words, fields, facets


def test_changed_byte_of_tables_is_detected_or_harmless(whole: Path, tmp_path: Path) -> None:
    wanted, size = told_by(whole), (whole / "store-1" / "items.sqlite").stat().st_size
    missed = 0
    for turn, place in enumerate(np.random.default_rng(0).integers(0, size, 60).tolist()):
        path = tmp_path / str(turn)
        shutil.copytree(whole, path)
        flipped(path / "store-1" / "items.sqlite", place, turn % 8)
        problems = verify(path)
        missed += bool(problems)
        assert problems or told_by(path) == wanted, place
        shutil.rmtree(path)
    assert missed > 10


def flipped_value(value: object) -> object:
    """The value with another bit in its last byte or letter."""
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1)
    assert isinstance(value, int | float)
    return value ^ 1 if isinstance(value, int) else value * 1.5


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with rows in each of its tables."""
    folder = stored_items.made(tmp_path_factory.mktemp("filled") / "index", words=400, exact_up_to=50)
    with pytest.MonkeyPatch.context() as patch, folder.writing("compact") as writer:
        writer.finish(writer.begin("add", source={"data": "/data"}, total=3))
        writer.compact()
        patch.setattr(FolderWriter, "_remove_traces", lambda self: None)
        writer.delete("images", ["p5"])
    folder.close()
    assert verify(folder.path) == []
    return folder.path


COLUMNS = [
    *[("state", name) for name in ("name", "value")],
    *[
        ("items", name)
        for name in ["key", "side", "id", "folded_id", "path", "text", "metadata", "content", "stamp", "digest"]
    ],
    *[("links", name) for name in ("image", "text")],
    *[("facets", name) for name in ("side", "name", "value", "written", "key")],
    *[("segments", name) for name in ("name", "side", "number", "row_count", "lists", "checksums")],
    *[("lists", name) for name in ("name", "side", "probes", "recalls", "checksums")],
    *[("tombstones", name) for name in ("key", "side")],
    ("forgotten", "hash"),
    *[("traces", name) for name in ("hash", "names")],
    *[("jobs", name) for name in ["number", "verb", "source", "started", "finished", "done", "total"]],
    *[("image_words", name) for name in ("word", "key", "times", "length")],
    *[("words_data", name) for name in ("id", "block")],
    *[("words_idx", name) for name in ("segid", "term", "pgno")],
    *[("words_content", name) for name in ("id", "c0")],
    *[("words_docsize", name) for name in ("id", "sz")],
    *[("words_config", name) for name in ("k", "v")],
]


def test_every_table_and_column_is_in_the_list(filled: Path) -> None:
    with closing(sqlite3.connect(filled / "store-1" / "items.sqlite")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            (table, name)
            for table in tables
            if table != "words"  # It shows the rows of the tables behind it.
            for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
        }
    assert columns == set(COLUMNS)


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_flipped_bit_in_each_column_is_detected(filled: Path, tmp_path: Path, table: str, column: str) -> None:
    path = tmp_path / "index"
    shutil.copytree(filled, path)
    with closing(sqlite3.connect(path / "store-1" / "items.sqlite")) as connection:
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        rows = [
            row
            for row in connection.execute(f"SELECT {', '.join(names)} FROM {table}")
            if row[names.index(column)] not in (None, b"", "")
        ]
        if not rows and column == "stamp":
            pytest.skip("no item here has a file")
        assert rows
        row = rows[len(rows) // 2]
        where = " AND ".join(f"{name} IS ?" for name in names)
        changed = flipped_value(row[names.index(column)])
        statement = f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {where}"
        assert connection.execute(statement, (changed, *row)).rowcount == 1
        connection.commit()
    assert verify(path), (table, column, row)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE items SET text = 'another' WHERE key = 50", "1 item changed or damaged: texts/'t9'"),
        ("DELETE FROM items WHERE key = 41", "texts"),
        ("DELETE FROM facets WHERE key = 3", "facets changed or damaged"),
        ("DELETE FROM links WHERE text = 't3'", "links changed or damaged"),
        ("DELETE FROM words WHERE rowid = 50", "the words of 1 text differ"),
        ("DELETE FROM tombstones", "vectors of images belong to no item"),
        (
            "UPDATE OR REPLACE forgotten SET hash = zeroblob(16)",
            "the list of deleted items changed or damaged",
        ),
        ("DELETE FROM forgotten", "the list of deleted items changed or damaged"),
        ("INSERT INTO forgotten VALUES (zeroblob(16))", "the list of deleted items changed or damaged"),
        ("UPDATE segments SET number = number + 1", "segments changed or damaged"),
        ("UPDATE state SET value = value + 1 WHERE name = 'key'", "state changed or damaged"),
        ("UPDATE state SET value = 1 WHERE name = 'generation'", "the last ones were lost"),
        ("DELETE FROM segments WHERE side = 1", "texts have no vectors"),
        ("DROP TABLE words", "no such table: words"),
    ],
)
def test_inconsistent_files_are_detected(whole: Path, tmp_path: Path, statement: str, what: str) -> None:
    path = tmp_path / "index"
    shutil.copytree(whole, path)
    connection = sqlite3.connect(path / "store-1" / "items.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    assert any(what in each.what for each in verify(path)), verify(path)


@pytest.mark.parametrize("damage", ["source = substr(source, 1, 9)", "source = '[]'", "total = 'x'", "started = NULL"])
def test_damaged_journal_closes_no_index(filled: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index"
    shutil.copytree(filled, path)
    with closing(sqlite3.connect(path / "store-1" / "items.sqlite")) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        schema = "CREATE TABLE jobs_ (number INTEGER PRIMARY KEY, verb, source, started, finished, done, total)"
        connection.execute(schema)
        connection.execute("INSERT INTO jobs_ SELECT * FROM jobs")
        connection.execute("DROP TABLE jobs")
        connection.execute("ALTER TABLE jobs_ RENAME TO jobs")
        connection.execute(f"UPDATE jobs SET {damage}")
    folder = Folder(path)
    assert len(stored_items.nearest(folder, QUERIES)[0]) == 5
    with folder.writing("delete") as writer:
        writer.delete("images", ["p6"])
    assert "damaged record" in str(index_info(path))
    told = {problem.where: problem.what for problem in verify(path)}
    assert told == {
        "jobs": "1 record changed or damaged: 1", "items.sqlite": "the journal changed or damaged"
    }, told  # fmt: skip


@pytest.mark.parametrize("metadata", ["", "[1]", "[" * 200_000, "7"])
def test_invalid_metadata_json_raises(tmp_path: Path, metadata: str) -> None:
    path = tmp_path / "index"
    folder = stored_items.made(path)
    connection = sqlite3.connect(path / "store-1" / "items.sqlite")
    connection.execute("UPDATE items SET metadata = ? WHERE key = 5", (metadata,))
    connection.commit()
    connection.close()
    with folder.reading() as view, pytest.raises(SearchIndexError, match="'p4' needs an object of JSON in the index"):
        view.items("images", [5])
    assert "1 item changed or damaged: images/'p4'" in "".join(each.what for each in verify(path))


def test_damaged_manifest_raises(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(whole, path)
    text = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(text.replace("/runs/first", "/runs/other"))
    assert "needs its own checksum" in verify(path)[0].what
    (path / MANIFEST).write_text(text)
    assert verify(path) == []
    (path / "store-1" / "items.sqlite").unlink()
    assert "is not there" in verify(path)[0].what
    with pytest.raises(SearchIndexError, match="needs to hold the items of the index"):
        Folder(path)


def test_tables_missing_acknowledged_changes_are_refused(whole: Path, tmp_path: Path) -> None:
    path, copy = tmp_path / "index", tmp_path / "copy"
    shutil.copytree(whole, path)
    reader = Folder(path)  # So that the log is not brought into the tables at the end of the change.
    with reader.reading(), Folder(path).writing("delete") as writer:
        writer.delete("texts", ["t1"])
        shutil.copytree(path, copy, ignore=lambda _, names: {name for name in names if "sqlite-" in name})
    assert "t1" not in stored_items.ids(reader, "texts")
    lost = "has 4 changes, of 5 acknowledged: the last ones were lost, and deleted items may be back; restore a backup"
    for act in (Folder, index_info, lambda place: delete_from_index(place, ("t2",), texts=True)):
        with pytest.raises(SearchIndexError, match=lost):
            act(copy)
    assert [problem.what for problem in verify(copy)] == [lost.removesuffix("; restore a backup")]


def test_read_only_folder_is_readable(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    shutil.copytree(whole, path)
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert told_by(path) == told_by(whole) and verify(path) == []
    assert not list(path.rglob("*-wal")) and not list(path.rglob("*-shm"))


def test_read_only_folder_is_readable_beside_empty_wal(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    shutil.copytree(whole, path)
    (tables,) = path.rglob("items.sqlite")
    log = tables.with_name("items.sqlite-wal")
    log.touch()
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with Folder(path).reading():
        assert not list(path.rglob("*-shm"))
    assert told_by(path) == told_by(whole) and log.exists()


def test_read_only_folder_includes_changes_in_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, copy = stored_items.made(tmp_path / "index"), tmp_path / "copy"
    with folder.reading(), folder.writing("add") as writer:
        writer.put(stored_items.images(range(40, 41)))
        shutil.copytree(folder.path, copy, ignore=shutil.ignore_patterns("*-shm"))
    assert [path.stat().st_size > 0 for path in copy.rglob("*-wal")] == [True]
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    assert "p40" in stored_items.ids(Folder(copy)) and verify(copy) == []
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert not list((tmp_path / "private").iterdir()), "the copy of the items is removed at once"


@pytest.mark.parametrize("file", ["vectors.npy", None])
def test_error_of_the_disk_while_reading_names_a_file(whole: Path, file: str | None) -> None:
    folder = Folder(whole)
    name = f"{file or whole.name} cannot be used: Input/output error; see to the disk"
    with pytest.raises(SearchIndexError, match=name), folder.reading() as view:
        raise OSError(errno.EIO, "Input/output error", None if file is None else str(view.held.here / file))


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("SQLITE_IOERR_READ", SearchIndexError, "x cannot be read: disk I/O error; see to the disk"),
        ("SQLITE_IOERR_WRITE", OutputError, "x needs to be written, and cannot be: disk I/O error; what stood there"),
        ("SQLITE_BUSY", IndexLockedError, "x needs a lock: another process holds it, or the disk has no locks"),
        ("SQLITE_CANTOPEN", SearchIndexError, "x cannot be opened: No such file or directory; close other files"),
    ],
)
def test_errors_of_sqlite_say_what_to_do(code: str, kind: type[Exception], told: str) -> None:
    problem = sqlite3.OperationalError("disk I/O error")
    problem.sqlite_errorcode = getattr(sqlite3, code)
    with pytest.raises(kind, match=told), translated(Path("x")):
        raise problem
