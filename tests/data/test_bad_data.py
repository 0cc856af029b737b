"""Bad data, as a table: what is given, and what the message says. Nothing here may end as another kind of error."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from subtext.curation.check import CheckReport, check_dataset as check
from subtext.data import arrays
from subtext.data.arrays import open_npz
from subtext.data.dataset import summarise
from subtext.data.external_outputs import read_table
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.inputs import InputBatch
from subtext.data.read import read
from subtext.errors import DataError
from subtext.ops import draw

GOOD = {"image": "a.png", "text": "a dog"}


def photo(path: Path, colour: str = "red") -> None:
    Image.new("RGB", (6, 5), colour).save(path)


def write(folder: Path, *rows: object, name: str = "data.jsonl") -> Path:
    """Rows as JSON, or as bytes where they are given so."""
    path = folder / name
    coded = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(coded) + b"\n")
    return path


# What the second line of a file holds, and what is said about it. The first line is good.
ROWS: list[tuple[str, object, str]] = [
    ("no JSON", b'{"image": ', r"line 2: is no JSON"),
    ("not UTF-8", b'{"image": "a.png", "text": "caf\xe9"}', r"line 2: is not valid UTF-8"),
    ("half a surrogate", b'{"image": "a.png", "text": "\\ud83d"}', r"line 2: the text is not valid UTF-8"),
    ("no object", [1, 2], r"line 2: needs a JSON object .* it is a list"),
    ("deep nesting", b"[" * 100_000, r"line 2: is no JSON"),
    ("a number of 5,000 digits", b'{"image": "a.png", "text": "x", "id": %s}' % (b"9" * 5000), r"line 2: is no JSON"),
    ("cut off", b'{"image": "a.png", "te', r"line 2: is no JSON"),
    ("a long line of rubbish", b"x" * 1_000_000, r"line 2: is no JSON"),
    ("null", None, r"line 2: needs a JSON object .* it is nothing"),
    ("no picture", {"image": "", "text": "x"}, r"line 2: has no image"),
    ("one empty text", {"image": "a.png", "captions": ["x", ""]}, r"line 2: text 2 of 2 is empty"),
    (
        "text is no string",
        {"image": "a.png", "text": {"en": "x"}},
        r"line 2: the text needs to be a string; it is an object",
    ),
    ("a whole number", {"image": "a.png", "text": 7}, r"line 2: the text needs to be a string; it is the number 7"),
    ("a number", {"image": "a.png", "captions": [1.5]}, r"line 2: the text needs to be a string; it is the number 1.5"),
    ("no picture but NaN", b'{"image": NaN, "text": "x"}', r"line 2: has no image"),
    ("missing picture", {"image": "gone.png", "text": "x"}, r"line 2: image 'gone.png' is not in"),
    ("an address", {"image": "http://x.org/a.png", "text": "x"}, r"line 2: 'image' is the address http://x.org/a.png;"),
    (
        "another address",
        {"image": "S3://x//a.png", "text": "x"},
        r"line 2: 'image' is the address S3://x//a.png; a name",
    ),
    (
        "a picture in the path",
        {"image": "data:image/png;base64,AA", "text": "x"},
        r"line 2: 'image' is the address data:",
    ),
    ("an absolute path", {"image": "/nowhere/z.png", "text": "x"}, r"line 2: image '/nowhere/z.png' is not in"),
    ("a path with a zero", {"image": "a\0.png", "text": "x"}, r"line 2: the id .* control characters"),
    ("a very long path", {"image": "a" * 5000, "text": "x"}, r"line 2: image .* is not in"),
    ("a folder", {"image": "..", "text": "x"}, r"line 2: image '..' is not in"),
    ("a number for a picture", {"image": 3, "text": "x"}, r"line 2: 'image' needs a path"),
    ("a picture list", {"image": ["a.png"], "text": "x"}, r"line 2: 'image' needs a path.* it is a list"),
    (
        "half a surrogate aside",
        b'{"image": "a.png", "text": "x", "labels": "\\ud83d"}',
        r"line 2: has a column that is not",
    ),
    ("a split that is a list", {"image": "b.png", "text": "x", "split": ["train"]}, r"line 2: 'split' needs a string"),
    (
        "names that do not count",
        {"image": "b.png", "captions": ["x", "y"], "text_ids": ["1"]},
        r"needs one name per text",
    ),
]


@pytest.mark.parametrize(("row", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_bad_row_is_skipped_or_raises(tmp_path: Path, row: object, message: str) -> None:
    for name in ("a.png", "b.png"):
        photo(tmp_path / name)
    path = write(tmp_path, GOOD, row, {"image": "b.png", "text": "a cat"})
    with pytest.raises(DataError, match=message):
        read(path)
    reading = read(path, on_error="skip")
    assert {"a dog", "a cat"} <= set(reading.texts.values)
    assert [problem.where for problem in reading.problems] == ["line 2"]
    report = check(path)
    assert not report.usable
    assert check(path, on_error="skip").usable


# Rows that contradict one another.
CLASHES: list[tuple[str, list[dict], str]] = [
    (
        "one id, two pictures",
        [{**GOOD, "id": 1}, {"image": "b.png", "text": "x", "id": 1}],
        r"line 2: id '1' names ano",
    ),
    (
        "two ids and paths that cross",
        [{**GOOD, "id": 1}, {"image": "b.png", "text": "x", "id": 2}, {**GOOD, "id": 2}],
        r"line 3: id '2' names another image \(line 2\)",
    ),
    (
        "one picture, two splits",
        [{**GOOD, "split": "train"}, {**GOOD, "split": "val"}],
        r"line 2: image 'a.png' is in split 'val' here and in 'train' \(line 1\)",
    ),
    (
        "one group, two splits",
        [{**GOOD, "split": "train", "group": 5}, {"image": "b.png", "text": "x", "split": "test", "group": 5}],
        r"line 2: group '5' is in split 'test' here and in 'train' \(line 1\)",
    ),
    (
        "one picture, two groups",
        [{**GOOD, "group": 5}, {**GOOD, "group": 6}],
        r"line 2: image 'a.png' is in group '6' here and in '5' \(line 1\)",
    ),
    (
        "a row without a split",
        [{**GOOD, "split": "train"}, {"image": "b.png", "text": "x"}],
        r"line 2: has no split, and other rows have one",
    ),
    (
        "one text id, two texts",
        [{**GOOD, "text_id": "t"}, {"image": "b.png", "text": "x", "text_id": "t"}],
        r"line 2: text id 't' names another text \(line 1\)",
    ),
    (
        "a picture without a file",
        [{**GOOD, "id": "p"}, {"id": "q", "text": "x"}],
        r"line 2: image 'q' has no file, and others have one",
    ),
]


@pytest.mark.parametrize(("rows", "message"), [row[1:] for row in CLASHES], ids=[row[0] for row in CLASHES])
def test_contradictory_rows_are_skipped_or_raise(tmp_path: Path, rows: list[dict], message: str) -> None:
    for name in ("a.png", "b.png"):
        photo(tmp_path / name)
    path = write(tmp_path, *rows)
    with pytest.raises(DataError, match=message):
        read(path)
    pairs = read(path, on_error="skip")
    assert len(pairs.links) == len(rows) - 1
    assert set(pairs.links[:, 0]) == set(range(len(pairs.images))), "no picture is left without a text"


def as_folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def whole_files(folder: Path) -> dict[str, tuple[Callable[[], object], str]]:
    def table(data: bytes, name: str) -> Callable[[], Path]:
        def make() -> Path:
            (folder / name).write_bytes(data)
            return folder / name

        return make

    return {
        "missing": (lambda: folder / "gone.jsonl", r"gone.jsonl does not exist"),
        "empty": (table(b"", "a.jsonl"), r"the file is empty"),
        "blank": (table(b"\n\n", "a.jsonl"), r"needs at least one image; it has none"),
        "unknown ending": (table(b"x", "a.docx"), r"with the suffix .jsonl.* it got a.docx"),
        "wrong columns": (
            table(b'{"fotto": "a.png", "words": "x"}\n', "a.jsonl"),
            r"a.jsonl needs an image column .* and a text column .* its columns are 'fotto', 'words'; name yours",
        ),
        "wrong CSV columns": (table(b"image,words\na.png,x\n", "a.csv"), r"needs a text column .* 'image', 'words'"),
        "CSV without rows": (table(b"image,text\n", "a.csv"), r"it has none"),
        "CSV with an empty line first": (table(b"\n\nimage,words\na.png,x\n", "a.csv"), r"'image', 'words'"),
        "CSV with a quote left open": (
            table(b'image,text\na.png,"x\nb.png,y\n', "a.csv"),
            r"line 2: is no CSV: unexpected end of data",
        ),
        "CSV with a word after a quote": (table(b'image,text\na.png,"x" y\n', "a.csv"), r"line 2: is no CSV: .* twice"),
        "CSV with a list as Python writes it": (
            table(b"image,captions\na.png,\"['x', 'y']\"\n", "a.csv"),
            r"line 2: 'captions' is a list in Python's notation; write it as JSON",
        ),
        "CSV with a comma too many": (table(b"image,text\na.png,x,y\n", "a.csv"), r"line 2: needs 2 cells.* it has 3"),
        "CSV not UTF-8": (table("image,text\na.png,é\n".encode() + b"b.png,caf\xe9\n", "a.csv"), r"line 3: is not v"),
        "UTF-16": (table("image,text\n".encode("utf-16"), "a.csv"), r"it is UTF-16; save it again as UTF-8"),
        "no Parquet": (table(b"PAR1 nothing", "a.parquet"), r"needs to be a Parquet file"),
        "no tar": (
            table(b"\1" * 600, "a.tar"),
            r"a.tar: is cut off or damaged after 0 samples: [^\n]*; download it again$",
        ),
        "JSON over several lines": (table(b'{\n"image": "a.png"}', "a.json"), r"it is one long object"),
        "COCO's own form": (
            table(b'{"images": [{"file_name": "a.png"}], "annotations": []}', "a.json"),
            r"needs 'sentences' .* it has none; use that file",
        ),
        "Karpathy cut off": (
            table(b'{"images": [{"sentences": [', "a.json"),
            r"needs to be a JSON object with 'images'",
        ),
        "a name that no disk can have": (lambda: folder / ("x" * 5000), r"cannot be read: File name too long"),
        "a folder in place of a file": (
            lambda: as_folder(folder, "a.jsonl"),
            r"needs images, one table or a known data set",
        ),
        "no list": (table(b"[1, 2", "a.json"), r"needs to be a JSON list"),
        "an empty Karpathy file": (
            table(b'{"images": [], "sentences": 0}', "a.json"),
            r"images in 'images'; it has none",
        ),
        "an empty folder": (
            lambda: folder,
            r"a known data set; it contains nothing; looked for metadata.csv",
        ),
    }


@pytest.mark.parametrize("name", list(whole_files(Path())))
def test_unreadable_files_raise(tmp_path: Path, name: str) -> None:
    make, message = whole_files(tmp_path)[name]
    path = make()
    assert isinstance(path, Path)
    with pytest.raises(DataError, match=message):
        read(path)
    report = check(path)
    assert not report.usable
    assert report.problems


def test_missing_images_folder_raises(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    with pytest.raises(DataError, match="the image folder needs to exist"):
        read(write(tmp_path, GOOD), images=tmp_path / "photos")


def test_precomp_with_missing_or_odd_captions_raises(tmp_path: Path) -> None:
    np.save(tmp_path / "train_ims.npy", np.ones((4, 3, 2), np.float32))
    with pytest.raises(DataError, match=r"train_ims.npy needs its captions beside it"):
        read(tmp_path)
    (tmp_path / "train_caps.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match=r"as many lines for each of 4 images; it has 3"):
        read(tmp_path)


def test_mteb_without_images_raises(tmp_path: Path) -> None:
    write(tmp_path, {"_id": "a", "text": "x"}, name="corpus.jsonl")
    write(tmp_path, {"_id": "b", "text": "x"}, name="queries.jsonl")
    write(tmp_path, {"query-id": "b", "corpus-id": "a", "score": 1}, name="qrels.jsonl")
    with pytest.raises(DataError, match="it has images in neither"):
        read(tmp_path)


def test_verify_finds_unreadable_images(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:2000])
    (tmp_path / "none.jpg").write_bytes(b"<html>not found</html>")
    (tmp_path / "zero.jpg").write_bytes(b"")
    bad = [{"image": name, "text": "x"} for name in ("cut.png", "none.jpg", "zero.jpg")]
    path = write(tmp_path, GOOD, *bad)
    assert len(read(path).images) == 4, "looking is not decoding"
    heard: list[tuple[int, int]] = []
    reading = read(path, verify=True, on_error="skip", progress=lambda done, of: heard.append((done, of)))
    assert reading.images.ids == ["a.png"]
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [problem.where for problem in reading.problems] == ["line 2", "line 3", "line 4"]
    sentences = " ".join(problem.what for problem in reading.problems)
    assert "cut.png cannot be decoded" in sentences
    assert "none.jpg is no image" in sentences
    assert "zero.jpg is empty (0 bytes)" in sentences
    with pytest.raises(DataError, match="has 3 problems: line 2"):
        read(path, verify=True)


def test_text_is_kept_while_one_image_is_readable(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    rows = [{"image": name, "text": "a dog", "group": 1} for name in ("gone.png", "a.png")]
    pairs = read(write(tmp_path, *rows), on_error="skip")
    assert pairs.images.ids == ["a.png"]
    assert pairs.links.tolist() == [[0, 0]]


def test_single_row_is_indexable_but_not_trainable(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    path = write(tmp_path, GOOD)
    pairs = read(path)
    assert len(pairs.links) == 1
    missing = ({"train", "val", "test"} - set(pairs.counts())).pop()
    with pytest.raises(DataError, match=f"split '{missing}' needs at least one pair; this data set has"):
        pairs.split(missing)
    report = check(path)
    assert report.indexable and not report.trainable and not report.evaluable
    assert "at least two groups in the split 'train'" in report.reasons["train"]
    assert "to have wrong answers" in report.reasons["evaluate"]


def test_readiness_report_of_splits(tmp_path: Path) -> None:
    splits = {"train": 3, "val": 1, "test": 2}
    rows = [{"id": f"{split}{n}", "text": "x", "split": split} for split, count in splits.items() for n in range(count)]

    def found(*chosen: str, named: Collection[str] = tuple(splits)) -> CheckReport:
        names = [str(row["id"]) for row in rows if row["split"] in named]
        file = features(tmp_path, names=np.array(names), pooled=np.ones((len(names), 3), np.float32))
        return check(write(tmp_path, *(row for row in rows if row["split"] in chosen)), features=file)

    whole = found("train", "val", "test")
    assert whole.trainable and whole.evaluable and whole.evaluable_splits == ["test", "train"] and not whole.reasons
    assert json.loads(json.dumps(whole.to_json()))["trainable"] is True
    alone = found("train")
    assert not alone.trainable and alone.evaluable
    assert "needs a split 'val' for validation; there is 'train' (3 groups)" in alone.reasons["train"]
    test = found("test")
    assert not test.trainable and test.evaluable and "there is 'test' (2 groups)" in test.reasons["train"]
    one = found("val")
    assert one.indexable and not one.trainable and not one.evaluable
    partly = found("train", "val", "test", named=("train", "val"))
    assert partly.trainable and partly.evaluable_splits == ["train"]
    assert not partly.features[0].complete and "2 of 6 have none" in partly.features[0].message
    assert found("train", "val", named=("test",)).reasons["train"] == "the features cover no complete split"


def test_names_without_features_are_not_trainable(tmp_path: Path) -> None:
    path = write(tmp_path, *({"id": f"p{n}", "text": "x", "split": split} for n, split in enumerate(("train", "val"))))
    assert "known by name only; give the features" in check(path).reasons["train"]


def test_problems_of_one_kind_are_summarised(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    gone = [{"image": f"gone{n}.png", "text": "x"} for n in range(20)]
    path = write(tmp_path, GOOD, *gone)
    with pytest.raises(
        DataError, match=r"has 20 problems: line 2 and 19 like it \(line 3, line 4, \.\.\.\): image 'gone0"
    ):
        read(path)
    report = check(path)
    assert len(report.problems) == 20
    assert [problem.name for problem in report.problems if problem.name] == [f"'gone{n}.png'" for n in range(20)]
    assert len(summarise(report.problems)) == 1


@pytest.mark.parametrize(("name", "content"), [("data.jsonl", b"{}\n" * 3), ("data.json", b"[{}, {}]")])
def test_rows_without_columns_are_one_problem(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    wanted = (
        rf"{name} needs an image column .* and a text column .*; its columns are none; name yours: --columns image=COL"
    )
    for on_error in ("raise", "skip"):
        with pytest.raises(DataError, match=wanted):
            read(tmp_path / name, on_error=on_error)
    assert any("its columns are none" in str(problem) for problem in check(tmp_path / name).problems)


@pytest.mark.parametrize("verify", [True, False])
def test_wrong_image_folder_is_one_problem(tmp_path: Path, verify: bool) -> None:
    path = write(tmp_path, *({"image": f"gone{n}.png", "text": "x"} for n in range(20)))
    with pytest.raises(DataError, match=r"none of the 20 exists; the first path was /.*gone0.png; name their"):
        read(path, verify=verify)
    assert len(check(path, verify=verify).problems) == 1


def test_any_language_and_long_texts_are_usable(tmp_path: Path) -> None:
    texts = ["🐶🐶", "犬が走る", "собака бежит", "كلب يجري", "word " * 10_000, "?!"]
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f"p{n},{text}\n" for n, text in enumerate(texts)), "utf-8")
    names = np.array([f"p{n}" for n in range(len(texts))])
    report = check(tmp_path / "a.csv", features=features(tmp_path, names=names, pooled=np.ones((len(texts), 2))))
    assert report.usable
    assert report.words["max"] == 10_000
    assert report.words["min"] == 0
    assert {"ja", "ru", "ar"} <= set(report.languages)
    assert any("1 of 6 have no word" in problem.what for problem in report.problems)


def test_check_counts_duplicates_and_leaks(tmp_path: Path) -> None:
    for name, colour in (("a.png", "red"), ("b.png", "red"), ("c.png", "blue")):
        photo(tmp_path / name, colour)
    rows = [
        {"image": "a.png", "captions": ["a dog on grass", "a dog"], "split": "train", "language": "en"},
        {"image": "b.png", "captions": ["a dog on grass", "a dog"], "split": "val", "language": "en"},
        {"image": "c.png", "captions": ["a cat"], "split": "val", "language": ["de"]},
    ]
    report = check(write(tmp_path, *rows))
    assert (report.images, report.texts, report.pairs, report.groups) == (3, 5, 5, 3)
    assert report.words == {"min": 2.0, "median": 2.0, "max": 4.0}
    assert report.languages == {"en": 4, "de": 1}
    assert not report.guessed
    assert (report.duplicate_texts, report.duplicate_images) == (2, 1)
    assert report.duplicate_image_examples == [["a.png", "b.png"]]
    assert report.splits["val"] == {"images": 2, "texts": 3, "pairs": 3}
    assert len(report.leaks) == 2, "the picture, and the text of three words"
    assert json.loads(json.dumps(report.to_json()))["usable"] is True


def features(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "f.npz", **arrays)
    return folder / "f.npz"


def batch(*ids: str) -> InputBatch:
    return InputBatch([None] * len(ids), list(ids), np.arange(len(ids)), draw.keys(list(ids)), Path())


NAMES = np.array(["a.png", "b.png"])
FEATURES: list[tuple[str, dict[str, np.ndarray], str]] = [
    ("no names", {"pooled": np.ones((2, 3))}, "needs 'names', one a row"),
    ("other members", {"x": np.ones(2)}, "needs members named names, .*, image_vectors; it holds x"),
    ("no numbers", {"names": NAMES}, "needs an array 'pooled'"),
    ("names twice", {"names": np.array(["a", "a"]), "pooled": np.ones((2, 3))}, "1 come more than once, first 'a'"),
    ("another count", {"names": NAMES, "pooled": np.ones((3, 3))}, "one row a name, 2; it got 3"),
    ("one axis too many", {"names": NAMES, "pooled": np.ones((2, 3, 4))}, r"needs 2 axes .* shape \(2, 3, 4\)"),
    ("strings", {"names": NAMES, "pooled": np.array([["x"], ["y"]])}, "needs 2 axes of real numbers"),
    (
        "objects",
        {"names": np.array(["a", None], dtype=object), "pooled": np.ones((2, 3))},
        "as strings, not as objects",
    ),
]


@pytest.mark.parametrize(("arrays", "message"), [row[1:] for row in FEATURES], ids=[row[0] for row in FEATURES])
def test_invalid_feature_files_raise(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    path = features(tmp_path, **arrays)
    with pytest.raises(DataError, match=message):
        FeatureFile.open(path)


def test_unmatched_feature_names_raise(tmp_path: Path) -> None:
    file = FeatureFile.open(features(tmp_path, names=NAMES, pooled=np.ones((2, 3), np.float32)))
    with pytest.raises(DataError, match=r"4 of 5 have none, first 'c', 'd', 'e'; it names 'a.png', 'b.png'"):
        file.rows(["c", "d", "e", "f", "a.png"])


def test_non_finite_or_wrong_width_features_raise(tmp_path: Path) -> None:
    pooled = np.ones((2, 3), np.float16)
    pooled[1, 2] = np.nan
    file = FeatureFile.open(features(tmp_path, names=NAMES, pooled=pooled))
    assert FeatureInput("image", file)(batch("a.png"))["pooled"].shape == (1, 3)
    with pytest.raises(DataError, match=r"'pooled' of 'b.png' has NaN"):
        FeatureInput("image", file)(batch("a.png", "b.png"))
    with pytest.raises(DataError, match=r"'pooled' of 'b.png' has NaN"):
        file.shape()
    with pytest.raises(DataError, match=r"needs 'pooled' features of width 8; .* has 3"):
        FeatureInput("image", pooled=8).with_file(file)
    with pytest.raises(DataError, match=r"needs 'grid' features of width 8; .* has none"):
        FeatureInput("image", grid=8).with_file(file)


def test_features_without_file_or_of_wrong_shape_raise() -> None:
    input_spec = FeatureInput("image", pooled=3)
    with pytest.raises(DataError, match=r"it got the name 'a.png' and has no file to look it up in; .* \(features"):
        input_spec(batch("a.png"))
    arrays = InputBatch([np.ones(4)], ["x"], np.arange(1), np.arange(1), Path())
    with pytest.raises(DataError, match=r"needs an array \(3\) for each item, .*; it got an array \(4,\) of float64"):
        input_spec(arrays)


@pytest.mark.parametrize("name", ["x.npz", "x.npy", "x.txt"])
def test_corrupt_feature_files_raise(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is not there"):
        FeatureFile.open(tmp_path / name)
    (tmp_path / name).write_bytes(b"rubbish" * 9)
    with pytest.raises(DataError, match=r"reading it failed|features need an .npz"):
        FeatureFile.open(tmp_path / name)


@pytest.mark.parametrize(
    ("size", "written", "message"),
    [
        (10**9, 10**9, "inflate to 1,000,000,000, more than 100 times"),
        (10**9, 10**8, "declares 1,000,000,000 bytes of numbers in 100,000,"),
        (10**15, 10**8, "declares 1,000,000,000,000,000 bytes of numbers"),
    ],
)
def test_npz_bomb_raises_from_its_header(tmp_path: Path, size: int, written: int, message: str) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("pooled.npy", "w") as member:
        np.lib.format.write_array_header_2_0(
            member, {"descr": "|i1", "fortran_order": False, "shape": (size // 1000, 1000)}
        )
        for _ in range(written // 10**8):
            member.write(bytes(10**8))
    with pytest.raises(DataError, match=message):
        open_npz(path, ("pooled",))


@pytest.mark.parametrize("form", ["zeros", "one text"])
@pytest.mark.parametrize("kind", ["data set", "vectors"])
def test_parquet_bomb_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, kind: str) -> None:
    monkeypatch.setattr(arrays, "MOST_INFLATED", 2**20)
    numbers = range(2000)
    bomb = pa.array(np.zeros((2000, 500)).tolist()) if form == "zeros" else pa.array(["x" * 10_000] * 2000)
    table = pa.table({"id": list(map(str, numbers)), "image": list(map(str, numbers)), "vector": bomb, "caption": bomb})
    path = tmp_path / "bomb.parquet"
    # Without the schema of Arrow a repeated text is read as often as it stands.
    pq.write_table(table, path, compression="gzip", use_dictionary=form == "one text", store_schema=False)
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match=r"bytes that inflate to [\d,]+ or more, over 100 times as many; write it"):
        read(path) if kind == "data set" else read_table(path, ("id", "vector"))


@pytest.mark.parametrize("member", ["features", "boxes"])
def test_hdf5_bomb_raises(tmp_path: Path, member: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file["ids"] = ["a"]
        file["features"] = np.zeros((1, 2, 3))
        del file[member if member in file else "ids"]
        file.create_dataset(member, shape=(1, 10**6, 10**6), dtype="f4", chunks=(1, 1000, 1000), compression="gzip")
    with pytest.raises(DataError, match="0 bytes that inflate to 4,000,000,000,000 or more"):
        FeatureFile.open(tmp_path / "bomb.h5")


def test_npy_without_names_raises(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    with pytest.raises(
        DataError, match=r"needs 'ids' in it, or in x.ids.txt \(one a line\) or x.ids.json; rows are joined"
    ):
        FeatureFile.open(tmp_path / "x.npy")
