"""An index that lives, by the command line: built, added to, updated, deleted from, moved, imported, kept safe."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import coloured_images
import numpy as np
import pytest
from command import call
from PIL import Image

from subtext.api.index import build as api_build
from subtext.api.index.build import build_index, move_index, update_index, watch_index
from subtext.api.index.maintain import backup_index, recorded_sources, restore_index
from subtext.api.load import load
from subtext.api.search import open_index
from subtext.data.config import DataConfig
from subtext.data.image_files import inside
from subtext.errors import DataError, RequirementError
from subtext.retrieval import build as index_build
from subtext.retrieval.condition import matching, parse
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.verification import verify


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other", "views")


@pytest.fixture
def place(runs: Path, tmp_path: Path) -> Path:
    """A copy of the data, and its index."""
    shutil.copytree(runs / "data", tmp_path / "data")
    build(tmp_path, runs)
    return tmp_path


def build(place: Path, runs: Path, *more: object) -> str:
    words = ["build", place / "index", "--run", runs / "run", "--data", place / "data", "--quiet", *more]
    return call("index", *words).stdout


def rows(place: Path) -> list[dict[str, object]]:
    lines = (place / "data" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def write(place: Path, found: list[dict[str, object]], *, name: str = "data") -> Path:
    (place / name).mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in found)
    (place / name / "metadata.jsonl").write_text(text, encoding="utf-8")
    return place / name


def further(place: Path, *names: str) -> Path:
    """A second data set, of other colours."""
    found = []
    for number, name in enumerate(names):
        write(place, [], name="more")
        Image.new("RGB", (40, 40), (number * 9 + 5, 77, 200)).save(place / "more" / f"{name}.png")
        found.append({"file_name": f"{name}.png", "id": name, "captions": [f"a {name} square"], "place": 50 + number})
    return write(place, found, name="more")


def ids(place: Path, *more: object) -> list[str]:
    answer = call("search", place / "index", "a square", "--json", "--top", 50, *more).stdout
    return [hit["id"] for hit in json.loads(answer)["hits"]]


def info(place: Path) -> dict[str, object]:
    return json.loads(call("index", "info", place / "index", "--json").stdout)


def test_add_embeds_only_new_or_changed_items(place: Path, runs: Path) -> None:
    data = further(place, "teal", "ochre")
    told = call("index", "add", place / "index", "--data", data, "-q").stdout
    assert "4 items embedded, 0 unchanged" in told
    assert "0 items embedded, 4 unchanged" in call("index", "add", place / "index", "--data", data, "-q").stdout
    Image.new("RGB", (40, 40), (1, 2, 3)).save(data / "teal.png")
    told = call("index", "add", place / "index", "--data", data, "-q").stdout
    assert "1 item embedded, 3 unchanged" in told
    found = open_index(place / "index").search(image=data / "teal.png", top=1)[0]
    assert (found.id, found.path) == ("teal", str((data / "teal.png").resolve()))
    assert found.captions == ["a teal square"] and found.metadata["place"] == 50
    assert len(ids(place)) == 14 and verify(place / "index") == []


def test_add_rejects_other_files_with_same_ids(runs: Path, tmp_path: Path) -> None:
    for folder, colour in (("c", 10), ("d", 200)):
        (tmp_path / folder).mkdir()
        for number in range(3):
            picture = Image.new("RGB", (40, 40), (colour, number, 7))
            picture.save(tmp_path / folder / f"IMG_{number}.png")
    index, c, d = tmp_path / "index", tmp_path / "c", tmp_path / "d"
    build_index(index, c, run=runs / "run", quiet=True)
    told = call("index", "add", index, d, "-q", code=1).stderr
    assert f"3 images of {d} would replace another, first 'IMG_0.png': {c / 'IMG_0.png'} by {d / 'IMG_0.png'};" in told
    assert "index the folder above both, or give the files other ids (a column `id`)" in told
    assert "0 items embedded, 3 unchanged" in call("index", "update", index, "-q").stdout, "the other is no data set"
    picture.save(c / "IMG_0.png")
    assert "1 item embedded, 2 unchanged" in call("index", "add", index, c, "-q").stdout, "a file may change"
    table = tmp_path / "newer.jsonl"
    table.write_text(
        "".join(json.dumps({"image": f"c/IMG_{n}.png", "id": f"IMG_{n}.png", "year": n}) + "\n" for n in range(3))
    )
    told = call("index", "add", index, table, "--columns", "image=image,id=id", "-q").stdout
    assert "0 items embedded, 0 unchanged, 3 with other metadata" in told, "a newer table of the same files"
    copy = shutil.copytree(c, tmp_path / "copy")
    assert "0 items embedded" in call("index", "add", index, copy, "-q").stdout, "copies are no other files"


def test_update_with_damaged_journal_goes_on_and_deletes_nothing(place: Path) -> None:
    index, more = place / "index", further(place, "teal", "ochre")
    call("index", "add", index, "--data", more, "-q")
    further(place, "teal")
    (more / "ochre.png").unlink()
    with closing(sqlite3.connect(index / "store-1" / "items.sqlite")) as connection, connection:
        connection.execute("UPDATE jobs SET source = substr(source, 1, 40) WHERE number = 1")
    assert len(ids(place)) == 14, "a search needs no journal"
    told = call("index", "update", index, "-q")
    assert "the record of job 1 is damaged" in told.stderr + told.stdout
    assert "deleted" not in told.stdout and len(ids(place)) == 14, "what the record named is not known"
    assert "1 record changed or damaged: 1" in call("index", "verify", index, code=1).stdout


def test_update_from_one_dataset_keeps_items_of_others(place: Path, runs: Path) -> None:
    index, more = place / "index", further(place, "teal", "ochre")
    call("index", "add", index, more, "-q")
    call("index", "update", index, "-q", "--on-error", "skip")
    further(place, "teal")
    (more / "ochre.png").unlink()
    begun = len(info(place)["jobs"])  # type: ignore[arg-type]
    assert "2 deleted" in call("index", "update", index, "--data", more, "-q").stdout
    assert set(ids(place)) == {*coloured_images.COLOURS, "teal"} and verify(index) == []
    read = [job["source"]["data"] for job in info(place)["jobs"][begun:]]  # type: ignore[index]
    assert sorted(read) == [str(place / "data"), str(more)], "each is read once"
    other = shutil.copytree(more, place / "other")
    for words in (["update"], ["update", "--keep-missing"], ["move", "--run", runs / "other", "--even-if-worse"]):
        told = call("index", words[0], index, *words[1:], "--data", other, "-q", code=1).stderr
        assert f"needs one of its data sets, {place / 'data'}, {more}; it got another, {other};" in told
        assert "add that (subtext index add), or leave --data out" in told
    more.rename(place / "elsewhere")
    told = call("index", "update", index, "-q", code=1).stderr
    assert f"{more} is not there; put it back, or a link to where it is now" in told
    assert len(ids(place)) == 13


def test_update_remembers_new_location_of_data(place: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(index: Path) -> list[str]:
        return [str(sources.data) for sources, _ in recorded_sources(Folder(index))]

    index, old, new = place / "index", place / "data", shutil.copytree(place / "data", place / "new")
    build_index(place / "both", old, run=runs / "run", quiet=True)
    update_index(place / "both", data=new, keep_missing=True, quiet=True)
    assert recorded(place / "both") == [str(old), str(new)], "items of both stay"
    given = further(place, "teal").rename(index / "added")  # As a server keeps its uploads.
    call("index", "add", index, given, "-q")
    shutil.rmtree(old)
    for words in (["update"], ["move", "--run", runs / "other", "--even-if-worse"]):
        told = call("index", words[0], index, *words[1:], "-q", code=1).stderr
        assert f"{old} is not there; if it was moved, name its new place (--data)" in told
    Image.new("RGB", (40, 40), (1, 2, 3)).save(new / "red.png")
    with monkeypatch.context() as patch:
        patch.setattr(index_build, "embed_items", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            update_index(index, data=new, quiet=True)
    assert recorded(index) == [str(old), str(given)], "an update that is cut off takes nothing over"
    told = call("index", "update", index, "--data", new, "-q").stdout
    assert "1 item embedded, 26 unchanged, 11 with other metadata" in told and "deleted" not in told
    assert recorded(index) == [str(new), str(given)] and info(place)["data"]["data"] == str(new)  # type: ignore[index]
    assert "0 items embedded, 38 unchanged" in call("index", "update", index, "-q").stdout
    told = call("index", "move", index, "--run", runs / "other", "--even-if-worse", "-q").stdout
    assert "13 images and 25 texts now have vectors" in told
    assert recorded(index) == [str(new), str(given)] and verify(index) == []


def test_update_explains_data_option(place: Path) -> None:
    told = " ".join(call("index", "update", place / "index", place / "data", code=2).stderr.split())
    assert "a data set is named by --data" in told
    for command in ("update", "watch", "move"):
        assert "Default: that of the index." in " ".join(call("index", command, "--help").stdout.split())


def test_update_follows_data(place: Path) -> None:
    found = rows(place)
    found[0]["captions"] = ["a red square", "rouge"]
    found[1]["place"] = 99
    write(place, [row for row in found if row["id"] != "cyan"])
    told = call("index", "update", place / "index", "-q").stdout
    # "ein Quadrat, red" became "rouge": one text is embedded; the place is metadata of the picture and of its texts.
    assert "1 item embedded" in told and "deleted" in told
    hits = {hit.id: hit for hit in open_index(place / "index").search("a square", top=50)}
    assert set(hits) == set(coloured_images.COLOURS) - {"cyan"}
    assert hits["red"].captions == ["a red square", "rouge"] and hits["green"].metadata["place"] == 99
    assert info(place)["counts"] == {"images": 11, "texts": 22} and verify(place / "index") == []
    write(place, [*rows(place), found[-1]])
    assert "3 items embedded" in call("index", "update", place / "index", "-q").stdout
    write(place, rows(place)[1:])
    assert "deleted" not in call("index", "update", place / "index", "-q", "--keep-missing").stdout
    assert len(ids(place)) == 12


def test_deleted_items_stay_deleted(place: Path) -> None:
    told = call("index", "delete", place / "index", "red", "blue").stdout
    assert "2 images and 4 texts deleted; `subtext index compact` removes their vectors" in told
    assert not {"red", "blue"} & set(ids(place))
    assert "6 left out, as they were deleted before" in call("index", "update", place / "index", "-q").stdout
    assert len(ids(place)) == 10
    told = call("index", "add", place / "index", "--data", place / "data", "--restore-deleted", "-q").stdout
    assert "6 items embedded" in told and len(ids(place)) == 12
    told = call("index", "delete", place / "index", "--where", "split = test", "--where", "place > 10", "--yes").stdout
    assert "1 image and 2 texts" in told
    listed = place / "ids.txt"
    listed.write_text("pink\n\n")
    assert "1 image and 2 texts" in call("index", "delete", place / "index", "--ids-from", listed).stdout
    assert "becam" in call("index", "compact", place / "index").stdout
    assert verify(place / "index") == []


def test_deletion_without_valid_ids_raises(place: Path) -> None:
    assert "needs ids, a file of them" in call("index", "delete", place / "index", code=1).stderr
    answer = call("index", "delete", place / "index", "red", "rde", code=1).stderr
    assert "1 of 2 are not, the first is 'rde'; nothing was deleted" in answer and len(ids(place)) == 12
    assert "cannot be read" in call("index", "delete", place / "index", "--ids-from", place / "no.txt", code=1).stderr


def test_search_is_filtered(place: Path) -> None:
    assert set(ids(place, "--where", "split = test")) == {"pink", "cyan"}
    assert set(ids(place, "--where", "place < 3", "--where", "text contains blue")) == {"blue"}
    texts = ids(place, "--where", "language = de", "--target", "texts")
    assert len(texts) == 12
    assert (
        "none has 'colour'; there are" in call("search", place / "index", "a", "--where", "colour = 1", code=1).stderr
    )
    found = call("search", place / "index", "a", "--where", "place > 1000").stdout
    assert "nothing meets these conditions" in found


def test_interrupted_build_resumes(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    embedded: list[int] = []
    plain = index_build.embed_items

    def failing(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        if len(embedded) == 3:
            raise KeyboardInterrupt
        embedded.append(len(items))  # type: ignore[arg-type]
        return plain(model, branch, items, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(index_build, "CHUNK", 4)
    monkeypatch.setattr(index_build, "embed_items", failing)
    words = ["build", tmp_path / "index", "--run", runs / "run", "--data", tmp_path / "data", "--quiet"]
    assert "interrupted" in call("index", *words, code=130).stderr
    assert Folder(tmp_path / "index").counts == {"images": 12, "texts": 0} and embedded == [4, 4, 4]
    assert "12 of 36 items" in call("index", "info", tmp_path / "index").stdout
    note = "the index is not complete: build has done 12 of 36 items; if it is not running, run the same command again"
    assert note in call("search", tmp_path / "index", "red").stderr
    other = ["build", tmp_path / "index", "--run", runs / "run", "--quiet", "--split", "val"]
    assert "an interrupted build of other data" in call("index", *other, code=1).stderr
    embedded.clear()
    monkeypatch.setattr(index_build, "embed_items", plain)
    assert "12 images and 24 texts" in call("index", *words).stdout
    assert "not complete" not in call("search", tmp_path / "index", "red").stderr
    assert info(tmp_path)["jobs"][0]["finished"] is not None and len(info(tmp_path)["jobs"]) == 1  # type: ignore[index]
    assert "holds an index" in call("index", *words, code=1).stderr
    assert "no interrupted add can be resumed here" in call("index", "add", tmp_path / "index", code=1).stderr


def test_interrupted_add_resumes_without_data_option(place: Path) -> None:
    data = further(place, "teal", "ochre")
    with Folder(place / "index").writing("add") as writer:
        sources = DataConfig(data=data, images=None)
        writer.begin("add", source={**sources.to_json(), "split": "all"}, total=4)
    assert "4 items embedded" in call("index", "add", place / "index", "-q").stdout


def test_failed_build_leaves_no_index(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    for name in coloured_images.COLOURS:
        (tmp_path / "data" / f"{name}.png").write_bytes(b"no picture")
    words = ["build", tmp_path / "index", "--run", runs / "run", "--data", tmp_path / "data", "--quiet"]
    assert call("index", *words, code=1).stderr
    assert not (tmp_path / "index").exists()


def test_index_moves_to_another_model(place: Path, runs: Path) -> None:
    call("index", "delete", place / "index", "red")
    old = open_index(place / "index")
    told = call("index", "move", place / "index", "--run", runs / "views", "-q", "--even-if-worse").stdout
    assert "11 images and 22 texts now have vectors of" in told
    assert old.store.was_replaced and len(old.search("a square", top=50)) == 11
    new = open_index(place / "index")
    assert new.store.manifest.run == str(runs / "views") and new.store.manifest.views == {"images": 3, "texts": 3}
    model = load(runs / "views")
    wanted = model.similarity.cosine(
        model.embed_images([place / "data" / "blue.png"]), model.embed_texts(["a blue square"])
    )
    found = {hit.id: hit.score for hit in new.search("a blue square", top=50, signals=("pixels",))}
    assert found["blue"] == pytest.approx(float(wanted), abs=1e-5) and set(found) == set(coloured_images.COLOURS) - {
        "red"
    }
    assert (
        "has the vectors of this model already"
        in call("index", "move", place / "index", "--run", runs / "views", "--even-if-worse", code=1).stderr
    )
    assert "removed store-1, of an earlier model" in call("index", "compact", place / "index").stdout
    told = call("index", "update", place / "index", "-q").stdout
    assert "3 left out, as they were deleted before" in told, "the new store knows what was deleted from the old one"
    assert verify(place / "index") == []
    assert (
        "another"
        in call("index", "add", place / "index", "--data", place / "data", "--run", runs / "run", code=1).stderr
    )


def test_move_restarts_after_concurrent_changes(place: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[str] = []
    plain = index_build.embed_items

    def noted(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        embedded.extend(items.ids)  # type: ignore[attr-defined]
        return plain(model, branch, items, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(index_build, "embed_items", noted)
    swapped = Folder.replace_with

    def late(*words: object, **more: object) -> object:
        monkeypatch.setattr(Folder, "replace_with", swapped)
        call("index", "delete", place / "index", "blue")
        return swapped(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Folder, "replace_with", late)
    words = ["move", place / "index", "--run", runs / "other", "-q", "--even-if-worse"]
    assert "was changed while its items were embedded; run the command again" in call("index", *words, code=1).stderr
    assert len(embedded) == 36 and len(ids(place)) == 11
    assert "11 images and 22 texts now have vectors" in call("index", *words).stdout
    assert len(embedded) == 36 and "blue" not in ids(place) and verify(place / "index") == []


def test_deletion_during_move_is_final(place: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(place)
    (place / "more").mkdir()
    for row in found[:1]:
        (place / "data" / row["file_name"]).rename(place / "more" / row["file_name"])
    write(place, found[1:])
    (place / "more" / "metadata.jsonl").write_text(json.dumps(found[0]) + "\n")
    call("index", "add", place / "index", "--data", place / "more", "-q")
    plain, opened = api_build.open_source, []

    def late(work: object) -> object:
        opened.append(work)
        if len(opened) == 2:
            call("index", "delete", place / "index", "blue", "red")
        return plain(work)  # type: ignore[arg-type]

    monkeypatch.setattr(api_build, "open_source", late)
    words = ["move", place / "index", "--run", runs / "other", "-q", "--even-if-worse"]
    assert "was changed while its items were embedded; run the command again" in call("index", *words, code=1).stderr
    assert len(opened) == 2 and verify(place / "index") == [], (
        "one was embedded before, the other one is not afterwards"
    )
    assert "10 images and 20 texts now have vectors" in call("index", *words).stdout


def test_images_inside_tar_shard_are_indexed(place: Path, runs: Path) -> None:
    data = place / "tarred"
    data.mkdir()
    with tarfile.open(data / "shard.tar", "w") as tar:
        for name in ("red", "blue"):
            tar.add(place / "data" / f"{name}.png", f"{name}.png")
    with tarfile.open(data / "shard.tar") as tar:
        parts = {m.name[:-4]: inside("shard.tar", m.offset_data, m.size) for m in tar.getmembers()}
    lines = [json.dumps({"image": part, "id": name, "caption": name}) for name, part in parts.items()]
    (data / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    words = [place / "tarred_index", "--run", runs / "run", "--data", data / "pairs.jsonl", "-q"]
    assert "2 images" in call("index", "build", *words).stdout
    index = open_index(place / "tarred_index")
    assert [hit.id for hit in index.search(image=place / "data" / "blue.png", top=1)] == ["blue"]
    assert "4 unchanged" in call("index", "update", place / "tarred_index", "-q").stdout


def test_move_keeps_missing_items_unless_dropped(place: Path, runs: Path) -> None:
    found = rows(place)
    write(place, found[1:])
    answer = call("index", "move", place / "index", "--run", runs / "other", "-q", "--even-if-worse", code=1).stderr
    assert "3 items of" in answer and "--drop-missing" in answer
    assert len(ids(place)) == 12, "the old vectors serve on"
    words = ["move", place / "index", "--run", runs / "other", "-q", "--even-if-worse", "--drop-missing"]
    told = call("index", *words).stdout
    assert "11 images and 22 texts" in told and len(ids(place)) == 11


@pytest.mark.parametrize("form", ["npz", "parquet"])
@pytest.mark.parametrize("host", ["run", "views"])
def test_exported_vectors_are_imported(place: Path, runs: Path, form: str, host: str) -> None:
    vectors = place / f"vectors.{form}"
    call("embed", runs / host, "--data", place / "data", "--split", "all", "--out", vectors, "-q")
    words = ["import", place / "new", vectors, "--run", runs / host, "--data", place / "data"]
    assert "12 images and 24 texts put in" in call("index", *words).stdout
    call("index", "build", place / "built", "--run", runs / host, "--data", place / "data", "-q")
    built, made = (open_index(place / name).search("a pink square", top=20) for name in ("built", "new"))
    assert [(hit.id, hit.captions, hit.path, hit.metadata) for hit in made] == [
        (hit.id, hit.captions, hit.path, hit.metadata) for hit in built
    ]
    np.testing.assert_allclose([hit.score for hit in made], [hit.score for hit in built], atol=1e-6)
    generation = Folder(place / "new").manifest.generation
    call("index", *words)
    assert Folder(place / "new").manifest.generation == generation + 2, "a job is noted; no item changes"
    assert verify(place / "new") == []


def test_vectors_without_model_are_imported(place: Path, runs: Path) -> None:
    names = np.array(["a", "b", "c"])
    np.savez(place / "v.npz", image_ids=names, image_vectors=np.eye(3, 4, dtype=np.float32), image_groups=np.arange(3),
             text_ids=names, text_vectors=np.eye(3, 4, dtype=np.float32), text_groups=np.arange(3))  # fmt: skip
    call("index", "import", place / "plain", place / "v.npz")
    with Folder(place / "plain").reading() as view:
        found = view.nearest("texts", np.eye(4, dtype=np.float32)[None, 1:2], top=1)
        (item,) = view.items("texts", found[0].keys)
    assert item.id == "b" and item.metadata == {"images": ["b"]}
    assert "names none" in call("search", place / "plain", "words", code=1).stderr
    assert "of the model that made it" in call("index", "import", place / "index", place / "v.npz", code=1).stderr
    np.savez(place / "twice.npz", image_ids=np.array(["a", "a"]), image_vectors=np.eye(2, 4, dtype=np.float32))
    for name, bad, told in (
        ("complex", 1j * np.eye(2, 4), "are complex128"),
        ("large", 3e38 * np.eye(2, 4), "'a' has a "),
    ):
        np.savez(place / f"{name}.npz", image_ids=np.array(["a", "b"]), image_vectors=bad)
        assert told in call("index", "import", place / "x", place / f"{name}.npz", code=1).stderr
    assert "are there twice" in call("index", "import", place / "x", place / "twice.npz", code=1).stderr
    np.savez(place / "none.npz", names=names)
    assert "needs members named image_ids" in call("index", "import", place / "x", place / "none.npz", code=1).stderr
    assert "is not there" in call("index", "import", place / "x", place / "gone.npz", code=1).stderr
    (place / "v.pkl").write_bytes(b"x")
    assert "an .npz or a .parquet" in call("index", "import", place / "x", place / "v.pkl", code=1).stderr
    data = ["--data", place / "data"]
    assert "3 of 3 images are not in it" in call("index", "import", place / "x", place / "v.npz", *data, code=1).stderr


def test_imported_items_without_field_match_not_equal(place: Path) -> None:
    names = ["a", "b", "c"]
    np.savez(place / "v.npz", image_ids=np.array(names), image_vectors=np.eye(3, 4, dtype=np.float32))
    folder = place / "fields"
    folder.mkdir()
    about: list[dict[str, object]] = [{"place": "Paris", "year": 1990}, {"place": "Wien", "year": 1991}, {}]
    rows = [
        {"id": name, "image": f"{name}.png", "caption": name, **more} for name, more in zip(names, about, strict=True)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (50 * number, 0, 0)).save(folder / f"{name}.png")
    call("index", "import", place / "plain", place / "v.npz", "--data", folder / "data.jsonl")
    with Folder(place / "plain").reading() as view:

        def found(condition: str) -> list[str]:
            return [item.id for item in view.items("images", matching(view, "images", [parse(condition)]))]

        assert found("place != Paris") == ["b", "c"] and found("year != 1990") == ["b", "c"]
        assert (
            found("place = Paris") == ["a"] and found("place != None") == names and found("place in null, None") == []
        )
        (last,) = view.items("images", matching(view, "images", [parse("id = c")]))
        assert not last.metadata


def test_control_characters_are_removed_from_terminal_output(place: Path, runs: Path) -> None:
    names, evil = ["a", "b"], "\x1b]0;owned\x07\x9b2J\u202egpj\u2066\r\nno line"
    rows = [{"id": name, "text_id": name, "image": f"{name}.png", "caption": f"{name} {evil}"} for name in names]
    (place / "evil.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in names:
        Image.new("RGB", (8, 8)).save(place / f"{name}.png")
    call("index", "build", place / "plain", "--run", runs / "run", "--data", place / "evil.jsonl", "-q")
    printed = call("search", place / "plain", "--like", "a")
    assert (
        "b \\u001b]0;owned\\u0007\\u009b2J\\u202egpj\\u2066" in printed.stdout and len(printed.stdout.splitlines()) == 2
    )
    as_json = call("search", place / "plain", "--like", "a", "--json").stdout
    assert json.loads(as_json)["hits"][0]["captions"] == [f"b {evil}"]
    refused = call("search", place / "plain", "--like", evil, code=1).stderr
    for output in (printed.stdout, as_json, refused):
        assert not set(output) & {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\u2066"}


def test_backup_is_restored(place: Path) -> None:
    assert "checked file by file" in call("index", "backup", place / "index", place / "copy").stdout
    call("index", "delete", place / "index", "red")
    assert "restored from" in call("index", "restore", place / "copy", place / "back").stdout
    assert len(open_index(place / "back").search("a", top=50)) == 12
    assert "holds an index" in call("index", "backup", place / "index", place / "copy", code=1).stderr


@pytest.mark.parametrize("address", ["s3://bucket/copy", "lance://copy", "postgresql://host/archive?index=copy"])
def test_backup_to_address_raises(place: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    before = set(place.iterdir())
    for words in (("backup", place / "index", address), ("restore", address, "back")):
        told = call("index", *words, code=1).stderr
        assert f"needs to be a folder on this machine; it got an address of {address.partition(':')[0]}://" in told
    for wrong in (lambda: backup_index(place / "index", address), lambda: restore_index(address, "back")):
        with pytest.raises(RequirementError, match="needs to be a folder on this machine"):
            wrong()
    assert set(place.iterdir()) == before


def test_verify_reports_damage(place: Path) -> None:
    assert call("index", "verify", place / "index").stdout == f"{place / 'index'}: intact\n"
    file = next((place / "index").rglob("vectors.npy"))
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 4
    file.write_bytes(raw)
    answer = call("index", "verify", place / "index", code=1).stdout
    assert "1 problem" in answer and "vectors.npy: changed or damaged" in answer
    found = json.loads(call("index", "verify", place / "index", "--json", code=1).stdout)
    assert found["intact"] is False and len(found["problems"]) == 1
    assert "is not there" in call("index", "verify", place / "nowhere", code=1).stderr


def test_watch_follows_data(place: Path) -> None:
    found = rows(place)
    steps: list[float] = []

    def change(seconds: float) -> None:
        steps.append(seconds)
        if len(steps) == 1:
            write(place, found[:9])
        elif len(steps) == 2:
            (place / "data" / "metadata.jsonl").write_text("{", encoding="utf-8")
        else:
            write(place, found[:10])

    assert watch_index(place / "index", interval=2.5, max_checks=4, quiet=True, wait=change) == 4
    assert steps == [2.5] * 3 and len(ids(place)) == 10
    (place / "data" / "metadata.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(DataError):
        update_index(place / "index", quiet=True)
    assert len(ids(place)) == 10 and verify(place / "index") == []
    write(place, found)
    assert "checked 1 time" in call("index", "watch", place / "index", "--max-checks", 1, "-q").stdout
    assert len(ids(place)) == 12


def test_watch_advises_compaction_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(place)
    monkeypatch.setattr("subtext.api.index.maintain.DEAD", 0.0)
    left = iter((10, 9, 8))
    watch_index(place / "index", max_checks=4, wait=lambda _: write(place, found[: next(left)]))
    said = capsys.readouterr().err
    assert said.count("deleted") > 3 and said.count("is worth while") == 1
    assert len(ids(place)) == 8


def test_watch_continues_with_model_of_moved_index(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    first = shutil.copytree(runs / "run", tmp_path / "first")
    build_index(tmp_path / "index", run=first, data=tmp_path / "data", quiet=True)
    found = rows(tmp_path)

    def change(seconds: float) -> None:
        move_index(tmp_path / "index", run=runs / "other", even_if_worse=True, quiet=True)
        shutil.rmtree(first)
        write(tmp_path, found[:9])

    assert watch_index(tmp_path / "index", max_checks=2, quiet=True, wait=change) == 2
    assert len(ids(tmp_path)) == 9


def test_info_reports_fields_and_advice(place: Path) -> None:
    call("index", "delete", place / "index", "red", "blue", "green", "pink")
    told = call("index", "info", place / "index").stdout
    assert "language, place, split" in told and "images: 4; texts: 8" in told
    assert "compact" in told and "4 vectors of deleted images still on the disk" in told
    found = info(place)
    assert found["counts"] == {"images": 8, "texts": 16} and found["deleted"] == {"images": 4, "texts": 8}
    call("index", "compact", place / "index")
    assert info(place)["advice"] == []


def test_vectors_of_sixteen_bits_are_chosen_once(runs: Path, tmp_path: Path) -> None:
    """Nothing converts an index; what is imported from it, or built from its data, may have others."""
    shutil.copytree(runs / "data", tmp_path / "data")
    assert "in float16" in build(tmp_path, runs, "--vectors", "float16")
    assert info(tmp_path)["numbers"] == "float16" and ids(tmp_path)
    embed = [runs / "run", "--data", tmp_path / "data", "--split", "all", "--out", tmp_path / "vectors.npz"]
    call("embed", *embed, "-q")
    words = ["import", tmp_path / "index", tmp_path / "vectors.npz", "--run", runs / "run"]
    told = call("index", *words, "--numbers", "float32", code=1).output
    assert "has vectors of float16, which stay as they are; it got float32; build or import into a new index" in told
    call("index", *words)
    found = ids(tmp_path)
    words[1] = tmp_path / "half"
    call("index", *words, "--numbers", "float16", "--data", tmp_path / "data")
    with Folder(tmp_path / "half").reading() as mine, Folder(tmp_path / "index").reading() as theirs:
        assert mine.manifest.numbers == "float16"
        names = [item.id for item in mine.items("images", mine.keys("images"))]
        np.testing.assert_array_equal(mine.vectors_of("images", names), theirs.vectors_of("images", names))
    assert verify(tmp_path / "half") == verify(tmp_path / "index") == [] and found
    assert "is not one of" in call("index", *words, "--numbers", "int8", code=2).output
    told = call("index", "compact", tmp_path / "index", "--recall", "0.9").output
    assert "images and texts: searched exactly, with a recall of 1, as they have at most 200,000 vectors" in told
    assert "searched exactly" not in call("index", "compact", tmp_path / "index").output
    told = call("index", "compact", tmp_path / "index", "--recall", "2", code=2).output
    assert "recall" in told and "0.1" in told
