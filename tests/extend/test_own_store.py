"""A store from outside the package is one file and an entry point: build, search, add, delete and verify run on it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import coloured_images
import pytest
import stored_items
from command import call

from subtext.errors import RequirementError
from subtext.retrieval.stores import registry
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.store import Store, View, Writer
from subtext.retrieval.verification import damage


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("memory", "memory_store:Memory", "subtext.stores")
    monkeypatch.setattr(registry, "entry_points", lambda group, name="": [point] if name in ("", "memory") else [])


def test_store_interface_has_fifteen_methods() -> None:
    assert sum(len(part.__abstractmethods__) for part in (Store, View, Writer)) == 15


def test_commands_on_own_store_equal_folder(tmp_path: Path) -> None:
    runs = coloured_images.runs(tmp_path, "run")
    given = ["--run", runs / "run", "--data", runs / "data", "--quiet"]
    answers = []
    for index in ("memory://library", str(tmp_path / "library")):
        call("index", "build", index, *given)
        assert ": intact" in call("index", "verify", index).stdout
        assert "1 image and 2 texts deleted" in call("index", "delete", index, "red").stdout
        assert "3 left out" in call("index", "update", index, "-q").stdout
        found = call("search", index, "a blue square", "--where", "place < 8", "--top", 5).stdout
        call("index", "add", index, "--data", runs / "data", "--restore-deleted", "--quiet")
        assert "images            12" in call("index", "info", index).stdout
        answers.append((found, call("search", index, "a red square", "--top", 9).stdout))
    assert answers[0] == answers[1]


def test_items_and_hits_of_own_store_equal_folder(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index", words=40)
    own = registry.create_store("memory://made", stored_items.manifest())
    with own.writing("build") as writer:
        writer.put(stored_items.images(range(40)))
        writer.put(stored_items.texts(range(40)))
    with own.reading() as mine, folder.reading() as theirs:
        stored_items.assert_same_items(mine, theirs)
    assert isinstance(folder, Folder) and damage(own) == []


def test_unknown_scheme_raises() -> None:
    with pytest.raises(RequirementError, match="of ftp://; installed are gs, lance, memory, postgres"):
        registry.open_store("ftp://somewhere/library")
