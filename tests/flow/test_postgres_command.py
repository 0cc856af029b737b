"""The commands on an index in PostgreSQL, by its address: the same verbs and answers as on a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import database
import drawn
import pytest
from command import call
from database import Server, started

from subtext.api.search import open_index
from subtext.errors import IndexError_
from subtext.search import build
from subtext.search.stores.postgres import Database


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = drawn.runs(tmp_path_factory.mktemp("runs"), "run", "other")
    call("index", "build", folder / "index", "--run", folder / "run", "--data", folder / "data", "--quiet")
    return folder


@pytest.fixture
def place(server: Server, runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a copy of the data, and that copy."""
    shutil.copytree(runs / "data", tmp_path / "data")
    address = server.address("library")
    told = call("index", "build", address, "--run", runs / "run", "--data", tmp_path / "data", "--quiet").stdout
    assert "12 images and 24 texts, vectors of 16" in told and "s3cret" not in told
    yield address, tmp_path / "data"
    Database(address).remove()


def ids(address: str, *more: object) -> list[str]:
    answer = json.loads(call("search", address, "a square", "--json", "--top", 50, *more).stdout)
    assert "s3cret" not in json.dumps(answer) and answer["index"].startswith("postgresql://postgres@")
    return [hit["id"] for hit in answer["hits"]]


def test_it_tells_what_it_holds(place: tuple[str, Path]) -> None:
    told = call("index", "info", place[0]).stdout
    for wanted in ("images: no; texts: no", "language, place, split", "pgvector", "PostgreSQL", "library"):
        assert wanted in told
    found = json.loads(call("index", "info", place[0], "--json").stdout)
    assert found["counts"] == {"images": 12, "texts": 24} and found["advice"] == [] and found["bytes"] > 0
    assert found["jobs"][0]["finished"] is not None
    assert "s3cret" not in told + json.dumps(found)


def test_damage_is_told(place: tuple[str, Path]) -> None:
    with Database(place[0]).writing("test") as writer:
        writer.connection.execute("DELETE FROM items WHERE id = 'pink' AND side = 0")
    answer = call("index", "verify", place[0], code=1).stdout
    assert "items: has 11 of 12 images" in answer and "s3cret" not in answer
    assert json.loads(call("index", "verify", place[0], "--json", code=1).stdout)["whole"] is False


def test_what_a_database_does_by_itself_is_said(place: tuple[str, Path], runs: Path, tmp_path: Path) -> None:
    assert "pg_dump --format=custom" in call("index", "backup", place[0], tmp_path / "copy", code=1).stderr
    assert "pg_restore" in call("index", "restore", runs / "index", place[0], code=1).stderr
    assert "layout 2 already" in call("index", "upgrade", place[0]).stdout
    assert "nothing was changed" in call("index", "upgrade", runs / "index").stdout
    told = call("index", "info", place[0].replace("library", "nowhere"), code=1).stderr
    assert "needs to be an index that `subtext index build` made" in told and database.PASSWORD not in told


def test_it_is_moved_to_another_model_while_it_serves(place: tuple[str, Path], runs: Path) -> None:
    address = place[0]
    call("index", "delete", address, "red")
    before = open_index(address)
    told = call("index", "move", address, "--run", runs / "other", "-q", "--even-if-worse", "--even-if-worse").stdout
    assert "11 images and 22 texts now have vectors of" in told and "s3cret" not in told
    assert before.store.moved
    with pytest.raises(IndexError_, match="was moved to another model meanwhile; open it again"):
        before.search("a pink square")
    after, wanted = open_index(address), {hit.id for hit in open_index(runs / "index").search("a square", top=50)}
    assert after.store.manifest.run == str((runs / "other").resolve()) and not after.store.moved
    assert {hit.id for hit in after.search("a square", top=50)} == wanted - {"red"}
    assert Database(address).problems() == []
    assert "3 left out, as they were deleted before" in call("index", "update", address, "-q").stdout
    again = call(
        "index", "move", address, "--run", runs / "other", "-q", "--even-if-worse", "--even-if-worse", code=1
    ).stderr
    assert "has the vectors of this model already" in again and "s3cret" not in again


def test_a_move_goes_on_and_is_not_made_over_what_others_did(
    place: tuple[str, Path], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, plain = place[0], build.embed_items
    embedded: list[str] = []

    def noted(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        embedded.extend(items.ids)  # type: ignore[attr-defined]
        if len(embedded) == 36:
            call("index", "delete", address, "blue")
        return plain(model, branch, items, *rest, **more)

    monkeypatch.setattr(build, "embed_items", noted)
    words = ["move", address, "--run", runs / "other", "-q", "--even-if-worse", "--even-if-worse"]
    assert "was changed while its items were embedded; run the command again" in call("index", *words, code=1).stderr
    assert len(embedded) == 36 and open_index(address).search("a pink square")
    assert "11 images and 22 texts now have vectors" in call("index", *words).stdout
    assert len(embedded) == 36, "what was embedded stays"
    assert "blue" not in ids(address) and Database(address).problems() == []
