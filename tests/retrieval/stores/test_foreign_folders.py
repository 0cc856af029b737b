"""An index from anywhere: no name and no link in it makes a command read, change or remove what lies outside of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import stored_items
from command import call

from subtext.errors import SearchIndexError
from subtext.retrieval.stores.folder import PENDING, Folder, backup
from subtext.retrieval.verification import verify
from subtext.server.images import storage_of


@pytest.fixture
def index(tmp_path: Path) -> Path:
    stored_items.made(tmp_path / "victim").close()
    stored_items.made(tmp_path / "index", exact_up_to=50).close()
    folder = Folder(tmp_path / "index")
    with folder.writing("compact") as writer:
        writer.compact()
    folder.close()
    return tmp_path / "index"


def content(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def told(act: Callable[[], object]) -> None:
    with pytest.raises(
        SearchIndexError, match=r"needs files and folders of its own; .* leads elsewhere, or is a symbolic"
    ):
        act()


def changed(index: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(index / "store-1" / "items.sqlite")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("table", ["segments", "lists"])
@pytest.mark.parametrize("name", ["../../victim/store-1/000001.images", "{victim}/store-1", ".", "a/../b"])
def test_segment_outside_index_raises(index: Path, table: str, name: str) -> None:
    victim = index.parent / "victim"
    before = content(victim)
    ((old,),) = sqlite3.connect(index / "store-1" / "items.sqlite").execute(f"SELECT name FROM {table} WHERE side = 0")
    changed(index, f"UPDATE {table} SET name = ? WHERE name = ?", name.format(victim=victim), old)
    told(lambda: Folder(index))
    assert "leads elsewhere" in call("index", "compact", index, code=1).stderr
    assert any("leads elsewhere" in problem.what for problem in verify(index))
    assert "leads elsewhere" in call("index", "verify", index, code=1).stdout
    assert content(victim) == before


def test_file_outside_segment_is_not_copied(index: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    changed(index, "UPDATE segments SET checksums = ?", json.dumps({"../../../secret": "0" * 32}))
    told(lambda: backup(Folder(index), tmp_path / "copy"))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["index", "secret", "victim"]


@pytest.mark.parametrize("name", ["store-1", "store-1/items.sqlite", "store-1/items.sqlite-wal", "store-2"])
def test_symlinked_store_raises(index: Path, name: str) -> None:
    before = content(index.parent / "victim")
    if (index / name).exists():
        (index / name).rename(index.parent / "old")
    target = {"store-2": "store-1", "store-1/items.sqlite-wal": "store-1/items.sqlite"}.get(name, name)
    (index / name).symlink_to(index.parent / "victim" / target)
    told(lambda: Folder(index).bytes)
    assert "leads elsewhere" in call("index", "compact", index, code=1).stderr
    assert content(index.parent / "victim") == before and verify(index)


@pytest.mark.parametrize("name", ["logs", "cache", "cache/thumbnails", "added", "lock"])
def test_writer_rejects_symlinks(index: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if name == "lock":
        (index / "lock").unlink()
        elsewhere.write_text("mine")
    else:
        elsewhere.mkdir()
        (elsewhere / "a.jsonl").write_text('"p7"\n')
    (index / name).parent.mkdir(exist_ok=True)
    (index / name).symlink_to(elsewhere)
    assert "leads elsewhere" in call("index", "delete", index, "p7", code=1).stderr
    assert content(tmp_path / "elsewhere") == ({} if name == "lock" else {str(elsewhere / "a.jsonl"): b'"p7"\n'})
    assert name != "lock" or elsewhere.read_text() == "mine"
    assert Folder(index).counts["images"] == 40, "it can be read"
    assert any("leads elsewhere" in problem.what for problem in verify(index))
    if name != "lock":
        told(lambda: storage_of(Folder(index), None))


def test_manifest_must_name_store_inside_index(index: Path) -> None:
    own = Folder(index).manifest
    for name in ("", ".", "..", "../victim/store-1", "cache", "store-1/../store-1", "store-"):
        (index / "manifest.json").write_text(replace(stored_items.manifest(), store=name).to_json())
        with pytest.raises(SearchIndexError, match="needs 'store' to be a folder inside it, store-NUMBER"):
            Folder(index)
    (index / "manifest.json").write_text(own.to_json())
    other = replace(stored_items.manifest(), fingerprint="e" * 32)
    Folder(index).create_replacement(other)
    (index / "store-2" / PENDING).write_text(other.to_json())
    with pytest.raises(SearchIndexError, match=r"pending\.json needs to name its own folder; it names store-1"):
        Folder(index).create_replacement(other)
