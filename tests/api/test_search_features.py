"""Models that read features: what can be embedded, indexed and asked, and what is said where it cannot."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import made_data
import numpy as np
import pytest
from command import call

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.data.feature_file import FeatureFile
from subtext.errors import RequirementError
from subtext.training.setup import TrainingProgress

TRAIN = ["--embed-dim", 8, "--word-dim", 8, "--batch-size", 16, "--workers", 0, "-q"]
BOTH = ["--no-append-pooled"]
"""For features of two parts that are not of one width."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made data with pooled and grid features, a run that reads both, and its index."""
    folder = tmp_path_factory.mktemp("features")
    made_data.write(folder)
    with np.load(folder / "features.npz") as found:
        names, pooled = found["names"], found["pooled"]
    grid = pooled[:, None, :6] + np.arange(3, dtype=np.float32)[None, :, None]
    np.savez(folder / "features.npz", names=names, pooled=pooled, grid=grid)
    train(folder, folder / "run", "--epochs", 1, *BOTH)
    call("index", "build", folder / "index", "--run", folder / "run", "--quiet")
    return folder


def train(folder: Path, out: Path, *more: object, code: int = 0) -> None:
    data = ["--data", folder / "pairs.jsonl", "--features", folder / "features.npz", "--out", out]
    call("train", "vse_infinity", *data, *TRAIN, *more, code=code)


def of_one(folder: Path, name: str) -> dict[str, np.ndarray]:
    file = FeatureFile.open(folder / "features.npz")
    return {part: file.take(part, file.rows([name]))[0] for part in ("pooled", "grid")}


def asked(index: Path, image: object, *more: object) -> list[str]:
    return [hit["id"] for hit in json.loads(call("search", index, "--image", image, "--json", *more).stdout)["hits"]]


def test_image_without_features_does_not_block_watch(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "copy")
    index, data = tmp_path / "copy" / "index", tmp_path / "copy" / "pairs.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    call("index", "add", index, "--data", data, "--features", tmp_path / "copy" / "features.npz", "-q")
    new = [rows[0] | {"image": "nowhere.jpg", "captions": ["a dog"]}, rows[1] | {"captions": ["words of another day"]}]
    made_data.write_rows(data, [*new, *rows[2:]])
    watch = ["index", "watch", index, "--max-checks", 1]
    blocked = call(*watch, "--on-error", "raise").stderr
    assert "not updated" in blocked and "needs a row for every item" in blocked
    assert "1 image without features left out, first 'nowhere.jpg'" in call(*watch).stderr
    texts = [hit.captions for hit in open_index(index).search("words of another day", target="texts", top=200)]
    assert ["words of another day"] in texts and ["a dog"] not in texts


@pytest.mark.parametrize("image", ["photo007.jpg", "elsewhere/photo007.jpg"])
def test_image_features_are_found_by_file_name(place: Path, image: str) -> None:
    answer = json.loads(call("search", place / "index", "--image", image, "--json").stdout)
    assert answer["hits"][0]["id"] == "photo007.jpg" and answer["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert answer["query"]["features_of"] == "photo007.jpg"


def test_path_takes_precedence_over_file_name(place: Path, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "f.npz",
        names=np.array(["a.jpg", "in/a.jpg"]),
        pooled=np.eye(2, 16, dtype=np.float32),
        grid=np.ones((2, 3, 6), np.float32),
    )
    engine = open_index(place / "index", features=tmp_path / "f.npz")
    assert engine.feature_name(place / "in" / "a.jpg") == "in/a.jpg"
    assert engine.feature_name(Path("/nowhere/a.jpg")) == "a.jpg"
    assert engine.feature_name("b.jpg") is None and engine.feature_name(b"picture") is None


def test_feature_file_of_one_image_is_a_query(place: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", **of_one(place, "photo011.jpg"))
    assert asked(place / "index", tmp_path / "new.npz", "--top", 1) == ["photo011.jpg"]
    np.savez(tmp_path / "row.npz", **{part: array[None] for part, array in of_one(place, "photo011.jpg").items()})
    assert asked(place / "index", tmp_path / "row.npz", "--top", 1) == ["photo011.jpg"]
    engine = open_index(place / "index")
    assert engine.search(image=of_one(place, "photo011.jpg"), top=1)[0].id == "photo011.jpg"


def test_pooled_vector_is_a_query_for_pooled_model(place: Path, tmp_path: Path) -> None:
    with np.load(place / "features.npz") as found:
        np.savez(tmp_path / "features.npz", names=found["names"], pooled=found["pooled"])
    shutil.copy(place / "pairs.jsonl", tmp_path)
    train(tmp_path, tmp_path / "run", "--epochs", 1)
    call("index", "build", tmp_path / "index", "--run", tmp_path / "run", "--quiet")
    vector = of_one(place, "photo003.jpg")["pooled"]
    for array in (vector, vector[None]):
        np.save(tmp_path / "one.npy", array)
        assert asked(tmp_path / "index", tmp_path / "one.npy")[0] == "photo003.jpg"
    assert len(load(tmp_path / "run").embed_images(np.ones((2, 16), np.float32))) == 2


def pooled_alone(folder: Path) -> Path:
    np.save(folder / "x.npy", np.ones(16, np.float32))
    return folder / "x.npy"


def other_width(folder: Path) -> Path:
    np.savez(folder / "x.npz", pooled=np.ones(9), grid=np.ones((3, 6)))
    return folder / "x.npz"


def many(folder: Path) -> Path:
    np.savez(folder / "x.npz", pooled=np.ones((4, 16)), grid=np.ones((4, 3, 6)))
    return folder / "x.npz"


def no_features(folder: Path) -> Path:
    np.savez(folder / "x.npz", other=np.ones(16))
    return folder / "x.npz"


def rubbish(folder: Path) -> Path:
    (folder / "x.npy").write_bytes(b"GIF89a")
    return folder / "x.npy"


def gone(folder: Path) -> Path:
    return folder / "x.npz"


def a_picture(folder: Path) -> Path:
    return folder / "holiday.jpg"


NEEDS = "it needs {'pooled': an array (16), 'grid': an array (regions, 6)} for each item"
REFUSED: list[tuple[Callable[[Path], Path], str]] = [
    (pooled_alone, f"{NEEDS}, or its name in a file; it got an array (16,) of float32"),
    (other_width, "it got {'pooled': an array (9,) of float64, 'grid': an array (3, 6) of float64}"),
    (many, "it got {'pooled': an array (4, 16) of float64"),
    (no_features, "needs members named pooled, grid; it holds other"),
    (rubbish, "x.npy needs to be an npy of plain numbers"),
    (gone, "x.npz does not exist"),
    (a_picture, "holiday.jpg does not exist, and "),
]


@pytest.mark.parametrize(("make", "told"), REFUSED, ids=[make.__name__ for make, _ in REFUSED])
def test_invalid_feature_queries_raise(place: Path, tmp_path: Path, make: Callable[[Path], Path], told: str) -> None:
    answer = call("search", place / "index", "--image", make(tmp_path), code=1)
    assert told in answer.stderr and answer.stderr.count("\n") == 1


def test_image_bytes_without_features_raise(place: Path) -> None:
    with pytest.raises(RequirementError, match=r"not images: it needs an image that .*features\.npz names, or .*bytes"):
        open_index(place / "index").search(image=b"\xff\xd8")


COMMANDS = [
    ["embed", "RUN", "--out", "OUT/vectors.npz", "-q"],
    ["index", "build", "OUT/index", "--run", "RUN", "-q"],
    ["evaluate", "RUN", "-q"],
    ["search", "INDEX", "--image", "photo001.jpg"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
def test_unsuitable_features_raise_in_every_command(place: Path, tmp_path: Path, words: list[str]) -> None:
    places = {"RUN": place / "run", "INDEX": place / "index"}
    line = [places.get(word, word.replace("OUT", str(tmp_path))) for word in words]
    grid = np.ones((2, 3, 6), np.float32)
    np.savez(tmp_path / "wide.npz", names=np.array(["a", "b"]), pooled=np.ones((2, 99)), grid=grid)
    wide = call(*line, "--features", tmp_path / "wide.npz", code=1).stderr
    assert "needs 'pooled' features of width 16; " in wide and "wide.npz has 99" in wide
    np.savez(tmp_path / "half.npz", names=np.array(["a", "b"]), pooled=np.ones((2, 16)))
    half = call(*line, "--features", tmp_path / "half.npz", code=1).stderr
    assert "needs 'grid' features of width 6; " in half and "half.npz has none" in half
    np.savez(tmp_path / "few.npz", names=np.array(["photo000.jpg", "b"]), pooled=np.ones((2, 16)), grid=grid)
    few = call(*line, "--features", tmp_path / "few.npz", code=1).stderr
    assert "few.npz" in few and "photo0" in few
    for told in (wide, half, few):
        assert told.startswith("error: ") and told.count("\n") == 1
    assert not (tmp_path / "index").exists() and not (tmp_path / "vectors.npz").exists()


def test_missing_features_raise_before_any_work(place: Path, tmp_path: Path) -> None:
    with np.load(place / "features.npz") as found:
        kept = found["names"] != "photo058.jpg"
        np.savez(tmp_path / "f.npz", **{name: found[name][kept] for name in ("names", "pooled", "grid")})
    answer = call("index", "build", tmp_path / "i", "--run", place / "run", "--features", tmp_path / "f.npz", code=1)
    assert "1 of 60 have none, first 'photo058.jpg'" in answer.stderr
    assert answer.stderr.startswith("error: "), "no progress is shown before it"


def test_index_remembers_its_features_file(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "features.npz", tmp_path / "copy.npz")
    call("index", "build", tmp_path / "index", "--run", place / "run", "--features", tmp_path / "copy.npz", "-q")
    engine = open_index(tmp_path / "index")
    assert engine.model.image.input_spec.file.path == tmp_path / "copy.npz"  # type: ignore[attr-defined]
    assert str(tmp_path / "copy.npz") in call("index", "info", tmp_path / "index").stdout
    (tmp_path / "copy.npz").unlink()
    assert asked(tmp_path / "index", "photo001.jpg", "--features", place / "features.npz")[0] == "photo001.jpg"


def test_further_trained_run_raises(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after its first epoch, indexed as it was, and trained to the end: queries of now would mislead."""

    @contextmanager
    def interrupting(*, quiet: bool = False) -> Iterator[Callable[[TrainingProgress], None]]:
        def hear(report: TrainingProgress) -> None:
            if report.ended is not None:
                os.kill(os.getpid(), signal.SIGTERM)

        yield hear

    with monkeypatch.context() as patch:
        patch.setattr("subtext.api.train.training_meter", interrupting)
        train(place, tmp_path / "run", *BOTH, "--epochs", 2, "--lr", 0.01, code=130)
    call("index", "build", tmp_path / "index", "--run", tmp_path / "run", "-q")
    assert len(asked(tmp_path / "index", "photo001.jpg")) == 10
    train(place, tmp_path / "run", *BOTH, "--epochs", 2, "--lr", 0.01, "--resume")
    told = call("search", tmp_path / "index", "a dog", code=1).stderr
    assert "or that run trained further; use that model, build the index again with this model" in told
