"""Commands and servers on an index by its address, in PostgreSQL or LanceDB: the verbs and answers of a folder."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coloured_images
import httpx
import pytest
import served_index
from command import call
from fastapi.testclient import TestClient

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.errors import SearchIndexError
from subtext.retrieval import build
from subtext.retrieval.index import Index, Query
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.traces import trace_name
from subtext.retrieval.verification import damage
from subtext.server import state
from subtext.server.application import build as application
from subtext.server.settings import Settings

STORES = ("postgresql", "lance")
"""Stores that these tests run on, unless the option --store says otherwise."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other")
    data = ["--data", folder / "data", "--text-encoder", "none", "--quiet"]
    call("index", "build", folder / "library", "--run", folder / "run", *data)
    return folder


@pytest.fixture
def place(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a copy of the data, and that copy."""
    shutil.copytree(runs / "data", tmp_path / "data")
    address = address_of("library")
    data = ["--data", tmp_path / "data", "--text-encoder", "none", "--quiet"]
    told = call("index", "build", address, "--run", runs / "run", *data).stdout
    assert "12 images and 24 texts, vectors of 16" in told and "s3cret" not in told
    yield address, tmp_path / "data"
    open_store(address).remove()


@pytest.fixture
def address(address_of: Callable[[str], str], runs: Path) -> Iterator[str]:
    words = ["--run", runs / "run", "--data", runs / "data", "--text-encoder", "none", "--quiet"]
    call("index", "build", address_of("library"), *words)
    yield address_of("library")
    open_store(address_of("library")).remove()


def ids(address: str, *more: object) -> list[str]:
    answer = json.loads(call("search", address, "a square", "--json", "--top", 50, *more).stdout)
    assert "s3cret" not in json.dumps(answer)
    return [hit["id"] for hit in answer["hits"]]


def asking(address: str, **changes: object) -> TestClient:
    values = {**vars(served_index.settings(**changes)), "indexes": (address,)}
    return TestClient(application(Settings(**values)), base_url="http://localhost")


def test_store_search_equals_folder_search(place: tuple[str, Path], runs: Path) -> None:
    # Bit for bit: the arrays of a text side may differ from the model in the last one.
    mine, theirs = (open_index(each).with_model() for each in (place[0], runs / "library"))
    assert len(mine) == 12
    asked: list[Query] = [
        Query(text="a pink square"),
        Query(text="a pink square", top=12, explain=True),
        Query(text="a pink square", signals=("pixels",)),
        Query(text="a pink square", target="texts", top=30),
        Query(image=place[1] / "blue.png", explain=True),
        Query(text="red", image=place[1] / "blue.png", like=["cyan"], not_like=["pink"], not_text="black"),
        Query(text="a green square", where=["split = train", "place < 5"]),
        Query(text="a green square", hubness="csls", diversity=0.3),
        Query(text="a green square", where=["place < 5"]),
    ]
    for query in asked:
        got, wanted = (engine.answer(query) for engine in (mine, theirs))
        if wanted.unit == "evidence":  # Sums of BM25 may differ in the last digits.
            assert got.approximate and {hit.id: round(hit.score, 4) for hit in got} == {
                hit.id: pytest.approx(hit.score, abs=2e-4) for hit in wanted
            }
            continue
        assert [(hit.id, hit.score, hit.captions, hit.reasons) for hit in got.hits] == [
            (hit.id, hit.score, hit.captions, hit.reasons) for hit in wanted.hits
        ], query
        assert got.unit == wanted.unit and got.hits


def test_store_index_is_added_to_updated_and_deleted_from(place: tuple[str, Path]) -> None:
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
    assert "deleted" in call("index", "compact", address).stdout
    assert ": intact" in call("index", "verify", address).stdout


def test_another_model_raises(place: tuple[str, Path], runs: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"library needs the model that made it"):
        Index.open(place[0], load(runs / "other"))
    more = ["--data", place[1], "--run", runs / "other"]
    assert "needs the model that made it" in call("index", "add", place[0], *more, code=1).stderr
    assert "needs the model that made it" in call("search", place[0], "x", "--run", runs / "other", code=1).stderr


def require_moves(address: str) -> None:
    if type(open_store(address)).create_replacement is Store.create_replacement:
        pytest.skip("this store cannot change models")


def test_index_moves_to_another_model_while_open(place: tuple[str, Path], runs: Path) -> None:
    address = place[0]
    require_moves(address)
    call("index", "delete", address, "red")
    before = open_index(address)
    told = call("index", "move", address, "--run", runs / "other", "-q", "--even-if-worse").stdout
    assert "11 images and 22 texts now have vectors of" in told and "s3cret" not in told
    assert before.store.was_replaced
    with pytest.raises(SearchIndexError, match=r"moved to another model.*open it again"):
        before.search("a pink square")
    after, wanted = open_index(address), {hit.id for hit in open_index(runs / "library").search("a square", top=50)}
    assert after.store.manifest.run == str((runs / "other").resolve()) and not after.store.was_replaced
    assert {hit.id for hit in after.search("a square", top=50)} == wanted - {"red"}
    assert damage(open_store(address)) == []
    assert "3 left out, as they were deleted before" in call("index", "update", address, "-q").stdout
    again = call("index", "move", address, "--run", runs / "other", "-q", "--even-if-worse", code=1).stderr
    assert "has the vectors of this model already" in again and "s3cret" not in again
    few = call("index", "move", address, "--run", runs / "run", "-q", code=1).stderr
    assert "neither was trained on" in few, "a move without evidence is refused"
    back = call("index", "move", address, "--run", runs / "run", "-q", "--even-if-worse").stdout
    assert "11 images and 22 texts now have vectors of" in back
    assert "deleted" in call("index", "compact", address).stdout and damage(open_store(address)) == []


def test_move_resumes_and_restarts_after_concurrent_changes(
    place: tuple[str, Path], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, plain = place[0], build.embed_items
    require_moves(address)
    embedded: list[str] = []

    def noted(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        embedded.extend(items.ids)  # type: ignore[attr-defined]
        if len(embedded) == 36:
            call("index", "delete", address, "blue")
        return plain(model, branch, items, *rest, **more)

    monkeypatch.setattr(build, "embed_items", noted)
    words = ["move", address, "--run", runs / "other", "-q", "--even-if-worse"]
    assert "was changed while its items were embedded; run the command again" in call("index", *words, code=1).stderr
    assert len(embedded) == 36 and open_index(address).search("a pink square")
    monkeypatch.setattr(build, "embed_items", plain)
    call("index", "add", address, "--data", runs / "data", "--restore-deleted", "-q")
    monkeypatch.setattr(build, "embed_items", noted)
    assert "12 images and 24 texts now have vectors" in call("index", *words).stdout
    assert len(embedded) == 39, "what was embedded stays, and what was deleted and restored meanwhile is embedded again"
    assert "blue" in ids(address) and damage(open_store(address)) == []


def test_server_reopens_moved_index(address: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_moves(address)
    # However long the move takes, the server first hears of it by a search that fails.
    monkeypatch.setattr(state, "CHECK_SECONDS", 1e9)
    with asking(address) as found:
        before = found.get(served_index.ASKED[0]).json()
        call("index", "move", address, "--run", runs / "other", "-q", "--even-if-worse")
        first = found.get(served_index.ASKED[0])
        assert first.status_code == 503 and int(first.headers["retry-after"]) > 0
        monkeypatch.setattr(state, "CHECK_SECONDS", 0.0)
        until = time.monotonic() + 20
        while found.get(served_index.ASKED[0]).status_code != 200:
            assert time.monotonic() < until
        after = found.get(served_index.ASKED[0]).json()
        assert [hit["score"] for hit in after["hits"]] != [hit["score"] for hit in before["hits"]]


def test_interrupted_build_resumes(
    address_of: Callable[[str], str], runs: Path, monkeypatch: pytest.MonkeyPatch
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
    address = address_of("cut")
    words = ["build", address, "--run", runs / "run", "--data", runs / "data", "--quiet"]
    assert "interrupted" in call("index", *words, code=130).stderr
    assert open_store(address).counts == {"images": 12, "texts": 0}
    assert "12 of 36 items" in call("index", "info", address).stdout
    monkeypatch.setattr(build, "embed_items", plain)
    assert "12 images and 24 texts" in call("index", *words).stdout
    assert "name another" in call("index", *words, code=1).stderr
    assert damage(open_store(address)) == []


def test_failed_build_leaves_no_index(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    for name in coloured_images.COLOURS:
        (tmp_path / "data" / f"{name}.png").write_bytes(b"no picture")
    address = address_of("failed")
    words = ["build", address, "--run", runs / "run", "--data", tmp_path / "data", "--quiet"]
    assert call("index", *words, code=1).stderr
    assert "needs to be an index that" in call("index", "info", address, code=1).stderr


def test_exported_vectors_are_imported(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> None:
    vectors, address = tmp_path / "vectors.npz", address_of("imported")
    call("embed", runs / "run", "--data", runs / "data", "--split", "all", "--out", vectors, "-q")
    words = ["import", address, vectors, "--run", runs / "run", "--data", runs / "data"]
    assert "vectors of 12 images and 24 texts put in" in call("index", *words).stdout
    built, made = (open_index(index).search("a pink square", top=20) for index in (runs / "library", address))
    assert [(hit.id, hit.captions, hit.metadata) for hit in made] == [
        (hit.id, hit.captions, hit.metadata) for hit in built
    ]
    assert call("index", *words).stdout and open_store(address).counts == {"images": 12, "texts": 24}
    words = ["import", address, vectors, "--run", runs / "other", "--data", runs / "data"]
    assert "name the model that made them (--run or --model)" in call("index", *words, code=1).stderr


def answered(response: httpx.Response) -> dict[str, Any]:
    """Each value of an answer, by its place in it; but for whether hits may have been missed, which stores differ in.

    All items of so small an index are candidates, so that hits and scores are those of a folder.
    """

    def flat(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict | list) or not value:
            return {place: repr(value) if value in ([], {}) else value}  # `approx` takes no empty list.
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {at: leaf for name, part in parts for at, leaf in flat(part, f"{place}/{name}").items()}

    values = flat(response.json(), "")
    values.pop("/approximate", None)
    return {"status": response.status_code, **values}


def test_server_answers_as_server_of_folder(address: str, runs: Path) -> None:
    with asking(address, log="") as mine, served_index.client(runs / "library", log="") as theirs:
        name = theirs.get("/items?top=1&target=texts").json()["items"][0]["id"]
        for asked in [*served_index.ASKED, f"/item?target=texts&id={name}"]:
            # The stores round the scores of words differently.
            assert answered(mine.get(asked)) == pytest.approx(answered(theirs.get(asked)), abs=1e-6), asked
        picture = {"content": served_index.picture(), "headers": {"content-type": "image/png"}}
        for asked in ("/search?target=images&top=4", "/search?q=red&top=4"):
            got, wanted = (answered(server.post(asked, **picture)) for server in (mine, theirs))
            assert got == pytest.approx(wanted, abs=1e-6), asked
        score = {"q": "a red square", "ids": ["red", "cyan"]}
        assert mine.post("/score", json=score).json() == theirs.post("/score", json=score).json()
        assert mine.get("/thumbnail?id=red&size=96").content == theirs.get("/thumbnail?id=red&size=96").content
        assert mine.get("/thumbnail?id=nobody").status_code == 404
        about = mine.get("/libraries").json()["libraries"][0]
        assert (about["name"], about["image_count"], about["text_count"]) == ("library", 12, 24)
        assert 'subtext_items{library="library",side="images"} 12.0' in mine.get("/metrics").text
        assert mine.get("/readyz").json()["status"] == "ready"
        every = "".join(
            mine.get(asked).text for asked in (*served_index.ASKED, "/libraries", "/metrics", "/openapi.json")
        )
        assert "s3cret" not in every and "://" not in every.replace("http://", "") and str(runs) not in every
        answer = mine.post("/add", json={"items": [served_index.item("teal")]}, headers=served_index.WRITES)
        assert answer.status_code == 403 and "--storage-dir" in answer.json()["error"]


def test_added_items_are_stored_and_deleted_ones_removed(address: str, runs: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    place = keep / "library"
    with asking(address, storage_dir=str(keep)) as found:
        item = served_index.item("teal", None, "a teal square", "Quadrat", place=77)
        added = found.post("/add", json={"items": [item]}, headers=served_index.WRITES)
        assert added.status_code == 201 and added.json()["image_count"] == 1
        assert found.post("/add", json={"items": [item]}, headers=served_index.WRITES).status_code == 409
        assert found.post("/add", json={"items": [item]}).status_code == 401
        (hit,) = found.get("/search?q=a+teal+square&where=place+=+77").json()["hits"]
        assert hit["id"] == "teal" and len(list((place / "added").glob("*.png"))) == 1
        assert found.get("/thumbnail?id=teal&size=96").status_code == 200
        assert found.get("/item?id=teal").status_code == 200 and found.get("/item?id=red").status_code == 200
        assert "s3cret" not in "".join(file.read_text() for file in (place / "logs").glob("*"))
        assert "0 items embedded" in call("index", "update", address, "--keep-missing", "-q").stdout
        assert found.get("/thumbnail?id=teal&size=96").status_code == 200
        gone = found.post("/delete", json={"ids": ["teal"]}, headers=served_index.WRITES)
        assert gone.status_code == 200 and (gone.json()["image_count"], gone.json()["text_count"]) == (1, 2)
        assert found.get("/item?id=teal").status_code == 404 and found.get("/thumbnail?id=teal").status_code == 404
        left = [file.name for file in place.rglob("*") if file.name.startswith(trace_name("images", "teal"))]
        assert left == [] and not (place / "added" / "metadata.jsonl").read_text()
        lines = "".join(file.read_text() for file in (place / "logs").glob("*"))
        assert '"red"' in lines and '"item": "teal"' not in lines
        assert found.post("/delete", json={"ids": ["nobody"]}, headers=served_index.WRITES).status_code == 404
        assert found.post("/delete", json={"ids": ["red"]}).status_code == 401
    assert damage(open_store(address)) == []


def test_thumbnails_of_items_deleted_elsewhere_are_removed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "CHECK_SECONDS", 0.0)
    with asking(address, storage_dir=str(tmp_path)) as found:
        assert found.get("/thumbnail?id=pink&size=96").status_code == 200
        files = list((tmp_path / "library" / "cache").rglob("*.webp"))
        assert len(files) == 1
        call("index", "delete", address, "pink")
        assert found.get("/item?id=pink").status_code == 404 and not files[0].exists()
