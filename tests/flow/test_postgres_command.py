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

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.errors import IndexError_
from subtext.search import Index, Query, build
from subtext.search.stores.postgres.database import Database


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


def test_it_answers_as_the_folder_does(place: tuple[str, Path], runs: Path) -> None:
    mine, theirs = open_index(place[0]), open_index(runs / "index")
    assert len(mine) == 12
    asked: list[Query] = [
        Query("a pink square"),
        Query("a pink square", target="texts", top=30),
        Query(image=place[1] / "blue.png", explain=True),
        Query("red", image=place[1] / "blue.png", like=["cyan"], not_like=["pink"], not_text="black"),
        Query("a green square", where=["split = train", "place < 5"]),
        Query("a green square", lexical=True, hubness="csls", diversity=0.3),
    ]
    for query in asked:
        got, wanted = (engine.answer(query) for engine in (mine, theirs))
        assert [(hit.id, hit.score, hit.captions, hit.why) for hit in got.hits] == [
            (hit.id, hit.score, hit.captions, hit.why) for hit in wanted.hits
        ], query
        assert got.unit == wanted.unit and got.hits


def test_it_grows_follows_its_data_and_shrinks(place: tuple[str, Path]) -> None:
    address, data = place
    assert "0 items embedded, 36 unchanged" in call("index", "add", address, "--data", data, "-q").stdout
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    rows[0]["captions"], rows[1]["place"] = ["a red square", "rouge"], 99
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]), encoding="utf-8")
    told = call("index", "update", address, "-q").stdout
    assert "1 item embedded" in told and "deleted" in told
    assert len(ids(address)) == 11 and ids(address, "--where", "place = 99") == ["green"]
    assert "1 image and 2 texts deleted" in call("index", "delete", address, "red").stdout
    assert "3 left out, as they were deleted before" in call("index", "update", address, "-q").stdout
    assert "3 items embedded" in call("index", "add", address, "--data", data, "--restore-deleted", "-q").stdout
    assert "the first is 'rde'; nothing was deleted" in call("index", "delete", address, "red", "rde", code=1).stderr
    assert "1 image" in call("index", "delete", address, "--where", "place > 9", "--where", "split = test", "-y").stdout
    assert "checked 1 time" in call("index", "watch", address, "--max-checks", 1, "-q").stdout
    assert "rows of deleted items are overwritten" in call("index", "compact", address).stdout
    assert ": whole" in call("index", "verify", address).stdout


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


def test_another_model_is_refused(place: tuple[str, Path], runs: Path) -> None:
    with pytest.raises(IndexError_, match=r"index=library needs the model that made it"):
        Index.open(place[0], load(runs / "other"))
    more = ["--data", place[1], "--run", runs / "other"]
    assert "needs the model that made it" in call("index", "add", place[0], *more, code=1).stderr
    assert "needs the model that made it" in call("search", place[0], "x", "--run", runs / "other", code=1).stderr


def test_a_build_that_is_cut_off_goes_on(
    server: Server, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    plain = build.embed_items

    def failing(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        if len(embedded) == 3:
            raise KeyboardInterrupt
        embedded.append(len(items))
        return plain(model, branch, items, *rest, **more)

    monkeypatch.setattr(build, "CHUNK", 4)
    monkeypatch.setattr(build, "embed_items", failing)
    address = server.address("cut")
    words = ["build", address, "--run", runs / "run", "--data", runs / "data", "--quiet"]
    assert "interrupted" in call("index", *words, code=130).stderr
    assert Database(address).counts == {"images": 12, "texts": 0}
    assert "12 of 36 items" in call("index", "info", address).stdout
    monkeypatch.setattr(build, "embed_items", plain)
    assert "12 images and 24 texts" in call("index", *words).stdout
    assert "there is a schema 'cut' in that database already" in call("index", *words, code=1).stderr
    assert Database(address).problems() == []


def test_a_build_that_fails_leaves_nothing(server: Server, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    for name in drawn.COLOURS:
        (tmp_path / "data" / f"{name}.png").write_bytes(b"no picture")
    address = server.address("failed")
    words = ["build", address, "--run", runs / "run", "--data", tmp_path / "data", "--quiet"]
    assert call("index", *words, code=1).stderr
    assert "needs to be an index that" in call("index", "info", address, code=1).stderr


def test_vectors_that_were_made_before_are_imported(server: Server, runs: Path, tmp_path: Path) -> None:
    vectors, address = tmp_path / "vectors.npz", server.address("imported")
    call("embed", runs / "run", "--data", runs / "data", "--split", "all", "--out", vectors, "-q")
    words = ["import", address, vectors, "--run", runs / "run", "--data", runs / "data"]
    assert "vectors of 12 images and 24 texts put in" in call("index", *words).stdout
    built, made = (open_index(index).search("a pink square", top=20) for index in (runs / "index", address))
    assert [(hit.id, hit.captions, hit.metadata) for hit in made] == [
        (hit.id, hit.captions, hit.metadata) for hit in built
    ]
    assert call("index", *words).stdout and Database(address).counts == {"images": 12, "texts": 24}
    words = ["import", address, vectors, "--run", runs / "other", "--data", runs / "data"]
    assert "of the model that made it" in call("index", *words, code=1).stderr


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
    told = call("index", "move", address, "--run", runs / "other", "-q").stdout
    assert "11 images and 22 texts now have vectors of" in told and "s3cret" not in told
    assert before.store.moved
    with pytest.raises(IndexError_, match="was moved to another model meanwhile; open it again"):
        before.search("a pink square")
    after, wanted = open_index(address), {hit.id for hit in open_index(runs / "index").search("a square", top=50)}
    assert after.store.manifest.run == str((runs / "other").resolve()) and not after.store.moved
    assert {hit.id for hit in after.search("a square", top=50)} == wanted - {"red"}
    assert Database(address).problems() == []
    assert "3 left out, as they were deleted before" in call("index", "update", address, "-q").stdout
    again = call("index", "move", address, "--run", runs / "other", "-q", code=1).stderr
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
    words = ["move", address, "--run", runs / "other", "-q"]
    assert "was changed while its items were embedded; run the command again" in call("index", *words, code=1).stderr
    assert len(embedded) == 36 and open_index(address).search("a pink square")
    assert "11 images and 22 texts now have vectors" in call("index", *words).stdout
    assert len(embedded) == 36, "what was embedded stays"
    assert "blue" not in ids(address) and Database(address).problems() == []
