"""Every format gives the same pairs: what a row names is what the columns hold."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from subtext.data.dataset import Dataset, fingerprint
from subtext.data.features import FeatureFile
from subtext.data.image_files import open_image
from subtext.data.read import read
from subtext.data.write import write_dataset, write_rows
from subtext.errors import DataError


def png(shade: int = 0, size: tuple[int, int] = (4, 3)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (shade % 256, 40, 90)).save(out, "PNG")
    return out.getvalue()


def pictures(folder: Path, count: int) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number}.png" for number in range(count)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(png(number))
    return names


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def named(pairs: Dataset) -> list[tuple[str, str]]:
    return [(pairs.images.ids[image], str(pairs.texts.values[text])) for image, text in pairs.links]


WANTED = [("0.png", "a dog"), ("0.png", "ein Hund"), ("1.png", "猫 🐈"), ("1.png", "a cat")]
ROWS = [
    {"image": "0.png", "captions": ["a dog", "ein Hund"], "split": "train", "labels": "dog"},
    {"image": "1.png", "captions": ["猫 🐈", "a cat"], "split": "val", "labels": "cat"},
]


def test_jsonl_rows(tmp_path: Path) -> None:
    pictures(tmp_path, 2)
    pairs = read(lines(tmp_path / "data.jsonl", ROWS))
    assert named(pairs) == WANTED
    assert pairs.counts() == {"train": 1, "val": 1}
    assert pairs.texts.ids == ["0.png#0", "0.png#1", "1.png#0", "1.png#1"]
    assert pairs.images.metadata == {"labels": ["dog", "cat"]}
    assert list(pairs.texts.splits) == ["train", "train", "val", "val"]


def test_csv_with_one_row_per_text_and_quoted_newlines(tmp_path: Path) -> None:
    pictures(tmp_path, 2)
    with (tmp_path / "data.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption", "split"])
        writer.writerows(
            [["0.png", "a dog,\nrunning", "train"], ["1.png", "a cat", "dev"], ["0.png", "ein Hund", "train"]]
        )
    pairs = read(tmp_path / "data.csv")
    assert named(pairs) == [("0.png", "a dog,\nrunning"), ("1.png", "a cat"), ("0.png", "ein Hund")]
    assert pairs.counts() == {"train": 1, "val": 1}


def test_csv_cell_with_a_json_list(tmp_path: Path) -> None:
    pictures(tmp_path, 1)
    (tmp_path / "data.csv").write_text('image,captions\n0.png,"[""a dog"", ""ein Hund""]"\n')
    assert [text for _, text in named(read(tmp_path / "data.csv"))] == ["a dog", "ein Hund"]


def test_parquet_with_hub_image_struct(tmp_path: Path) -> None:
    rows = [
        {"image": {"bytes": png(n), "path": f"{n}.png"}, **{k: v for k, v in row.items() if k != "image"}}
        for n, row in enumerate(ROWS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    pairs = read(tmp_path / "data.parquet", verify=True)
    assert named(pairs) == WANTED
    assert open_image(pairs.images.values[1], pairs.root).getpixel((0, 0)) == (1, 40, 90)


def test_parquet_bytes_are_identified_by_content(tmp_path: Path) -> None:
    rows = [{"image": png(1), "text": "a"}, {"image": png(2), "text": "b"}, {"image": png(1), "text": "c"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    pairs = read(tmp_path / "data.parquet")
    assert pairs.links.tolist() == [[0, 0], [1, 1], [0, 2]]


def test_parquet_shards_named_after_splits(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for split, shade in (("train", 1), ("validation", 2)):
        table = pa.Table.from_pylist([{"image": png(shade), "text": split}])
        pq.write_table(table, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    assert read(tmp_path).counts() == {"train": 1, "val": 1}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_image_folder_with_splits_as_folders(tmp_path: Path, form: str) -> None:
    for split in ("train", "validation"):
        names = pictures(tmp_path / split, 2)
        rows = [{"file_name": name, "text": f"{split} {name}"} for name in names]
        if form == "jsonl":
            lines(tmp_path / split / "metadata.jsonl", rows)
        else:
            (tmp_path / split / "metadata.csv").write_text(
                "file_name,text\n" + "".join(f"{r['file_name']},{r['text']}\n" for r in rows)
            )
    pairs = read(tmp_path, verify=True)
    assert pairs.counts() == {"train": 2, "val": 2}
    assert pairs.images.ids == ["train/0.png", "train/1.png", "validation/0.png", "validation/1.png"]


def test_image_folder_with_one_metadata_and_split_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        pictures(tmp_path / split, 1)
    lines(tmp_path / "metadata.jsonl", [{"file_name": f"{s}/0.png", "text": s} for s in ("train", "test")])
    assert read(tmp_path).counts() == {"test": 1, "train": 1}


def shard(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def samples(*keys: int) -> list[tuple[str, bytes]]:
    return [
        (f"{key:03d}.{ending}", data)
        for key in keys
        for ending, data in (("jpg", png(key)), ("txt", f"text {key}\n".encode()), ("json", b'{"url": "u%d"}' % key))
    ]


@pytest.mark.parametrize("pattern", ["", "{train,val}-{0..1}.tar", "*-?.tar"])
def test_webdataset_shards(tmp_path: Path, pattern: str) -> None:
    shard(tmp_path / "train-0.tar", samples(0, 1))
    shard(tmp_path / "train-1.tar", samples(2))
    shard(tmp_path / "val-0.tar", samples(3))
    pairs = read(tmp_path / pattern, verify=True)
    assert named(pairs) == [(f"{n:03d}", f"text {n}") for n in range(4)]
    assert list(pairs.images.splits) == ["train", "train", "train", "val"]
    assert pairs.images.metadata["url"] == ["u0", "u1", "u2", "u3"]
    assert all(isinstance(value, str) for value in pairs.images.values), "pictures stay inside of the tar"
    assert [open_image(v, pairs.root).getpixel((0, 0))[0] for v in pairs.images.values] == [0, 1, 2, 3]


def test_webdataset_compressed_with_repeated_keys(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar.gz", samples(0), "w:gz")
    shard(tmp_path / "b.tar", [*samples(0)[:1], ("000.json", b'{"captions": ["one", "two"]}')])
    pairs = read(tmp_path, verify=True)
    assert named(pairs) == [("a.tar.gz/000", "text 0"), ("b.tar/000", "one"), ("b.tar/000", "two")]


def test_webdataset_truncated(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    shard(path, samples(0, 1, 2))
    path.write_bytes(path.read_bytes()[:5000])
    reading = read(path, on_error="skip")
    assert len(reading.images) == 1
    assert "cut off" in str(reading.problems[0])


def karpathy(folder: Path, filepath: bool) -> Path:
    entries = [
        {
            **({"filepath": "val2014"} if filepath else {}),
            "filename": f"{n}.png",
            "cocoid": 100 + n,
            "split": split,
            "sentences": [{"raw": f"text {n} {k}", "sentid": 10 * n + k, "tokens": []} for k in range(2)],
        }
        for n, split in enumerate(["train", "restval", "val", "test"])
    ]
    path = folder / "dataset_coco.json"
    path.write_text(json.dumps({"dataset": "coco", "images": entries}))
    return path


@pytest.mark.parametrize("filepath", [True, False])
def test_karpathy_json(tmp_path: Path, filepath: bool) -> None:
    pictures(tmp_path / "val2014" if filepath else tmp_path, 4)
    pairs = read(karpathy(tmp_path, filepath))
    assert pairs.counts() == {"test": 1, "train": 2, "val": 1}
    assert pairs.images.ids == ["100", "101", "102", "103"]
    assert pairs.texts.ids == ["0", "1", "10", "11", "20", "21", "30", "31"]


def test_karpathy_with_images_in_one_folder(tmp_path: Path) -> None:
    pictures(tmp_path / "flat", 4)
    assert read(karpathy(tmp_path, True), images=tmp_path / "flat").images.values[0] == "0.png"


@pytest.mark.parametrize("repeated", [True, False])
def test_precomp_joins_its_own_arrays(tmp_path: Path, repeated: bool) -> None:
    wanted = {}
    for prefix, count in (("train", 3), ("dev", 2)):
        array = np.random.default_rng(count).normal(size=(count, 4, 6)).astype(np.float32)
        np.save(tmp_path / f"{prefix}_ims.npy", array.repeat(5, axis=0) if repeated else array)
        (tmp_path / f"{prefix}_caps.txt").write_text("".join(f"{prefix} {n}\n" for n in range(5 * count)))
        wanted |= {f"{prefix}/{n}": row for n, row in enumerate(array)}
    reading = read(tmp_path)
    pairs, features = reading, reading.features
    assert pairs.counts() == {"train": 3, "val": 2}
    assert pairs.links[:, 0].tolist() == [n // 5 for n in range(25)]
    assert features is not None
    taken = features.take("grid", features.rows(pairs.images.ids))
    np.testing.assert_array_equal(taken, [wanted[name] for name in pairs.images.ids])
    np.testing.assert_array_equal(FeatureFile.open(tmp_path).take("grid", np.array([4])), [wanted["dev/1"]])


@pytest.mark.parametrize("image_side", ["corpus", "queries"])
def test_mteb_with_graded_judgements(tmp_path: Path, image_side: str) -> None:
    pictures(tmp_path, 3)
    photos = [{"_id": f"i{n}", "image": f"{n}.png", "modality": "image"} for n in range(3)]
    texts = [{"_id": f"t{n}", "text": f"text {n}"} for n in range(3)]
    lines(tmp_path / "corpus.jsonl", photos if image_side == "corpus" else texts)
    lines(tmp_path / "queries.jsonl", texts if image_side == "corpus" else photos)
    (tmp_path / "qrels").mkdir()
    judged = [("t0", "i0", 2), ("t0", "i1", 1), ("t1", "i1", 0), ("t1", "i2", 3)]
    rows = [(t, i, s) if image_side == "corpus" else (i, t, s) for t, i, s in judged]
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{a}\t{b}\t{s}\n" for a, b, s in rows)
    )
    pairs = read(tmp_path)
    assert named(pairs) == [("i0", "text 0"), ("i1", "text 0"), ("i2", "text 1")]
    assert pairs.counts() == {"test": 3}
    assert pairs.images.groups[0] == pairs.images.groups[1] != pairs.images.groups[2]
    graded = pairs.judgements
    assert graded is not None
    found = [
        (pairs.texts.ids[t], pairs.images.ids[i], s)
        for t, i, s in zip(graded.texts, graded.images, graded.scores, strict=True)
    ]
    assert found == judged
    assert "t2" in pairs.texts.ids, "what nobody judged is a distractor"


def test_mteb_as_parquet_in_folders(tmp_path: Path) -> None:
    tables = {
        "corpus": [{"id": f"i{n}", "modality": "image", "image": {"bytes": png(n), "path": None}} for n in range(2)],
        "query": [{"id": f"t{n}", "modality": "text", "text": f"text {n}"} for n in range(2)],
        "qrels": [{"query-id": f"t{n}", "corpus-id": f"i{n}", "score": 1} for n in range(2)],
    }
    for name, rows in tables.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name / "test-00000-of-00001.parquet")
    pairs = read(tmp_path, verify=True)
    assert named(pairs) == [("i0", "text 0"), ("i1", "text 1")]
    assert pairs.counts() == {"test": 2}


def test_text_of_several_images_by_group(tmp_path: Path) -> None:
    pictures(tmp_path, 4)
    rows = [
        {"image": "0.png", "text": "a dog", "group": 7},
        {"image": "1.png", "text": "a dog", "group": 7},
        {"image": "2.png", "text": "a dog"},
        {"image": "3.png", "text": "ein Hund", "group": 7},
    ]
    pairs = read(lines(tmp_path / "a.jsonl", rows))
    assert pairs.links.tolist() == [[0, 0], [1, 0], [2, 1], [3, 2]]
    assert pairs.images.groups[[0, 1, 3]].tolist() == [pairs.texts.groups[0]] * 3
    assert pairs.images.groups[2] != pairs.images.groups[0]


def test_image_spelt_in_two_ways_and_given_ids(tmp_path: Path) -> None:
    pictures(tmp_path, 1)
    rows = [{"image": "0.png", "text": "a", "id": "x"}, {"image": "./0.png", "text": "b", "id": "y"}]
    pairs = read(lines(tmp_path / "a.jsonl", rows))
    assert pairs.images.ids == ["x"]
    assert pairs.texts.ids == ["x#0", "x#1"]


def test_items_known_by_features_alone(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "text_id": f"t{n}", "labels": "art"} for n in range(4)]
    pairs = read(lines(tmp_path / "a.jsonl", rows))
    assert pairs.images.values == [None] * 4
    assert pairs.texts.ids == ["t0", "t1", "t2", "t3"]
    assert pairs.texts.values == [None] * 4


def test_language_of_each_text(tmp_path: Path) -> None:
    pictures(tmp_path, 1)
    row = {"image": "0.png", "captions": ["a dog", "ein Hund"], "language": ["en", "de"]}
    assert read(lines(tmp_path / "a.jsonl", [row])).texts.metadata["language"] == ["en", "de"]


def test_images_folder_is_found(tmp_path: Path) -> None:
    pictures(tmp_path / "images", 1)
    pictures(tmp_path / "other", 1)
    path = lines(tmp_path / "a.jsonl", [{"image": "0.png", "text": "a"}])
    assert read(path).root == tmp_path / "images"
    assert read(path, images=tmp_path / "other").root == tmp_path / "other"


def test_splits_are_80_10_10_and_seeded(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "text": f"text {n}"} for n in range(2000)]
    path = lines(tmp_path / "a.jsonl", rows)
    counts = read(path).counts()
    # Four standard deviations of a binomial count: 4 sqrt(2000 x 0.1 x 0.9) = 54.
    assert abs(counts["val"] - 200) < 54
    assert abs(counts["test"] - 200) < 54
    assert fingerprint(read(path)) == fingerprint(read(path))
    assert fingerprint(read(path, split_seed=1)) != fingerprint(read(path))


def test_added_rows_move_no_image_to_another_split(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "text": f"text {n}"} for n in range(200)]
    before = read(lines(tmp_path / "a.jsonl", rows)).images
    extra = [{"id": f"q{n}", "text": "new"} for n in range(50)]
    after = read(lines(tmp_path / "b.jsonl", extra[:25] + rows[::-1] + extra[25:])).images
    moved = dict(zip(after.ids, after.splits, strict=True))
    assert all(moved[name] == split for name, split in zip(before.ids, before.splits, strict=True))


def test_three_images_give_three_splits(tmp_path: Path) -> None:
    for seed in range(20):
        path = lines(tmp_path / "a.jsonl", [{"id": f"p{seed}{n}", "text": "a"} for n in range(3)])
        assert sorted(read(path, split_seed=seed).counts()) == ["test", "train", "val"]


def test_group_stays_in_one_random_split(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "text": f"t{n}", "group": n // 4} for n in range(400)]
    images = read(lines(tmp_path / "a.jsonl", rows)).images
    assert all(len(set(images.splits[images.groups == group])) == 1 for group in set(images.groups))


def test_alternative_split_names(tmp_path: Path) -> None:
    rows = [
        {"id": f"p{n}", "text": "a", "split": s} for n, s in enumerate(["Training", "validation", "fold-3", "extra"])
    ]
    pairs = read(lines(tmp_path / "a.jsonl", rows), merge_split={"extra": "train"})
    assert list(pairs.images.splits) == ["train", "val", "fold-3", "train"]


def test_bom_line_endings_and_suffix_case_are_accepted(tmp_path: Path) -> None:
    """A mark before UTF-8, carriage returns, empty lines, an ending in capitals."""
    pictures(tmp_path, 2)
    rows = [json.dumps(row, ensure_ascii=False).encode() for row in ROWS]
    (tmp_path / "a.JSONL").write_bytes(b"\xef\xbb\xbf" + b"\r\n\r\n".join(rows) + b"\r\n \r\n")
    assert named(read(tmp_path / "a.JSONL")) == WANTED
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf\r\n\r\n  [\r\n" + b",\r\n".join(rows) + b"\r\n]")
    assert named(read(tmp_path / "b.json")) == WANTED
    (tmp_path / "c.CSV").write_bytes(b'\xef\xbb\xbf\r\nimage,text\r\n0.png,"a\r\nb"\r\n\r\n1.png,c\r\n')
    assert named(read(tmp_path / "c.CSV")) == [("0.png", "a\r\nb"), ("1.png", "c")]


def test_csv_cells_are_read_unchanged(tmp_path: Path) -> None:
    pictures(tmp_path, 6)
    cells = ["1", "1.0", "007", "nan", "[1, 2]", "[sic] a dog"]
    (tmp_path / "a.csv").write_text("image,captions\n" + "".join(f'{n}.png,"{cell}"\n' for n, cell in enumerate(cells)))
    assert [text for _, text in named(read(tmp_path / "a.csv"))] == cells


def test_ids_match_as_numbers_or_strings(tmp_path: Path) -> None:
    """What pandas made 1.0 of is 1 elsewhere."""
    pictures(tmp_path, 1)
    lines(tmp_path / "corpus.jsonl", [{"_id": 1, "image": "0.png"}])
    lines(tmp_path / "queries.jsonl", [{"_id": 2.0, "text": "x"}])
    lines(tmp_path / "qrels.jsonl", [{"query-id": "2", "corpus-id": 1.0}])
    assert named(read(tmp_path)) == [("1", "x")]


def test_relative_absolute_and_decomposed_paths(tmp_path: Path) -> None:
    """Above the folder, absolute, and an accent that the disk spells as two characters."""
    pictures(tmp_path, 2)
    (tmp_path / "inner").mkdir()
    apart, joined = unicodedata.normalize("NFD", "é.png"), unicodedata.normalize("NFC", "é.png")
    (tmp_path / "inner" / apart).write_bytes(png(7))
    rows = [{"image": path, "text": "x"} for path in ("../0.png", str(tmp_path / "1.png"), joined)]
    pairs = read(lines(tmp_path / "inner" / "a.jsonl", rows), verify=True)
    shades = [open_image(value, pairs.root).getpixel((0, 0))[0] for value in pairs.images.values]
    assert shades == [0, 1, 7]
    assert pairs.images.ids[2] == joined, "its name is what the file says"


def test_suffix_case_is_ignored(tmp_path: Path) -> None:
    """Tables from Windows say A.PNG of a.png; a file that has the very name comes first."""
    pictures(tmp_path, 2)
    (tmp_path / "1.PNG").write_bytes(png(7))
    rows = [{"image": path, "text": "x"} for path in ("0.PNG", "1.PNG", "1.png", "2.PNG")]
    with pytest.raises(DataError, match=r"image '2\.PNG' is not in"):
        read(lines(tmp_path / "a.jsonl", rows))
    pairs = read(lines(tmp_path / "a.jsonl", rows[:3]), verify=True)
    assert [open_image(value, pairs.root).getpixel((0, 0))[0] for value in pairs.images.values] == [0, 7, 1]


def test_invalid_utf8_skips_its_row(tmp_path: Path) -> None:
    pictures(tmp_path, 3)
    data = pa.py_buffer(b"xcaf\xe9y")
    texts = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 5, 6], np.int32)), data])
    table = pa.Table.from_arrays([pa.array([f"{n}.png" for n in range(3)]), texts], names=["image", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    reading = read(tmp_path / "a.parquet", on_error="skip")
    assert named(reading) == [("0.png", "x"), ("2.png", "y")]
    assert [str(problem) for problem in reading.problems] == ["row 2: is not valid UTF-8; write it as UTF-8"]


def test_numeric_texts_raise_with_rows(tmp_path: Path) -> None:
    pictures(tmp_path, 2)
    pq.write_table(pa.table({"image": ["0.png", "1.png"], "text": [1.0, 2.5]}), tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match=r"row 1: the text needs to be a string; it is the number 1.0; row 2: the text needs"
    ):
        read(tmp_path / "a.parquet")


def test_webdataset_with_odd_members(tmp_path: Path) -> None:
    """A mark before the text, links, absolute names, a name that is no UTF-8, a picture or a text alone."""
    link = tarfile.TarInfo("link.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = [("/top/a.png", png(1)), ("/top/a.txt", b"\xef\xbb\xbfx\r\n"), ("b.png", png(2)), ("c.txt", b"c")]
    members += [("\udce9.png", png(3)), ("\udce9.txt", b"e"), ("f.png", png(4)), ("f.json", b'{"caption": NaN}')]
    members += [("g.png", png(5)), ("g.json", b"{")]
    shard(tmp_path / "a.tar", members)
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        tar.addfile(link)
    reading = read(tmp_path / "a.tar", on_error="skip", verify=True)
    assert named(reading) == [("/top/a", "x")]
    told = [str(problem) for problem in reading.problems]
    for sentence in (
        "a.tar sample b: has no text",
        "a.tar sample c: has no image",
        "a.tar sample ?: 'id' is not valid",
    ):
        assert any(one.startswith(sentence) for one in told), sentence
    assert any(one.startswith("a.tar sample g: its .json is no JSON") for one in told)
    assert sum("sample f: has no text" in one for one in told) == 1
    assert "\udce9" not in "".join(told), "what is told can be printed"


def test_karpathy_with_odd_entries(tmp_path: Path) -> None:
    pictures(tmp_path, 1)
    good = {"filename": "0.png", "sentences": [{"raw": "x"}]}
    odd: list[object] = [
        3,
        {"filename": "1.png"},
        {**good, "sentences": ["x"]},
        {**good, "sentences": [{"raw": 3}]},
        {"filename": "y" * 5000, "filepath": "z", "sentences": [{"raw": "x"}]},
    ]
    data = json.dumps({"images": [good, *odd]}).encode()
    (tmp_path / "dataset.json").write_bytes(b"\xef\xbb\xbf" + data)
    reading = read(tmp_path / "dataset.json", on_error="skip")
    assert named(reading) == [("0.png", "x")]
    assert sorted(problem.where for problem in reading.problems) == [f"image {n}" for n in range(2, 7)]
    assert sum("in 'sentences' a list of objects" in problem.what for problem in reading.problems) == 3


def test_judgements_with_odd_rows(tmp_path: Path) -> None:
    pictures(tmp_path, 2)
    lines(tmp_path / "corpus.jsonl", [{"_id": f"i{n}", "image": f"{n}.png"} for n in range(2)])
    lines(
        tmp_path / "queries.jsonl", [{"_id": "t0", "text": "x"}, {"_id": "t1", "text": 5}, {"_id": ["t2"], "text": "z"}]
    )
    qrels = [("t0", "i0", 1), ("t1", "i1", 1), ("t9", "i1", 1), ("t0", "i1", "high")]
    lines(tmp_path / "qrels.jsonl", [{"query-id": t, "corpus-id": i, "score": score} for t, i, score in qrels])
    reading = read(tmp_path, on_error="skip")
    assert named(reading) == [("i0", "x")]
    told = [str(problem) for problem in reading.problems]
    assert "queries.jsonl line 3: '_id' needs a string or a whole number; it is a list" in told
    assert "qrels.jsonl line 2: the text 't1' needs to be a string; it is the number 5" in told
    assert "qrels.jsonl line 3: judges 't9', which is neither in corpus nor in queries" in told
    assert any(one.startswith("qrels.jsonl line 4: needs 'query-id'") for one in told)
    (tmp_path / "qrels.jsonl").unlink()
    (tmp_path / "qrels.tsv").write_text("t0\t0\ti0\t1\nt1\t0\ti1\t1\n")
    with pytest.raises(
        DataError, match=r"needs the columns 'query-id', 'corpus-id' and 'score'; .* has 't0', '0', 'i0'"
    ):
        read(tmp_path)


def test_precomp_array_without_rows_raises(tmp_path: Path) -> None:
    np.save(tmp_path / "train_ims.npy", np.float32(3))
    (tmp_path / "train_caps.txt").write_text("x\n")
    with pytest.raises(DataError, match="needs a row of numbers per image"):
        read(tmp_path)


@pytest.mark.slow
def test_sixty_thousand_pairs_read_quickly(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"id": f"p{n}", "captions": [f"a {n}", f"b {n}"]} for n in range(30_000)])
    # In a process of its own, where no signature is checked; about half a second of work.
    told = subprocess.run([sys.executable, "-c", _TIMED, str(path)], capture_output=True, text=True, check=True)
    pairs, seconds = told.stdout.split()
    assert int(pairs) == 60_000
    assert float(seconds) < 4


_TIMED = """
import sys, time
from pathlib import Path
from subtext.data.read import read
start = time.process_time()
print(len(read(Path(sys.argv[1])).links), time.process_time() - start)
"""


@pytest.mark.data
def test_real_datasets() -> None:
    if "SUBTEXT_DATA" not in os.environ:
        pytest.skip("SUBTEXT_DATA is not set")
    root = Path(os.environ["SUBTEXT_DATA"])
    flickr = read(root / "flickr8k" / "captions.jsonl")
    assert flickr.counts() == {"train": 6000, "val": 1000}
    features = FeatureFile.open(root / "flickr8k" / "mobilenet_pooled.npz")
    assert sorted(features.rows(flickr.images.ids).tolist()) == list(range(7000))
    assert len(read(root / "tiny_coco", verify=True).links) == 500
    assert len(read(root / "cc12m_sample", verify=True).links) == 32


def test_csv_numbers_are_comparable(tmp_path: Path) -> None:
    rows = ["a.jpg,1,1999,007,12.50,c. 1990", "b.jpg,2,-3,1e5,,nan"]
    (tmp_path / "pairs.csv").write_text("filename,caption,year,code,price,note\n" + "\n".join(rows) + "\n")
    dataset = read(tmp_path / "pairs.csv", need_images=False)
    assert dataset.images.ids == ["a.jpg", "b.jpg"] and dataset.texts.values == ["1", "2"]
    assert dataset.images.metadata == {
        "year": [1999, -3], "code": ["007", "1e5"], "price": [12.5, None], "note": ["c. 1990", "nan"],
    }  # fmt: skip


def test_mixed_csv_column_is_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("image,filename,caption,size\na.jpg,A 1.tif,one,12\nb.jpg,B 2.tif,two,n/a\n")
    dataset = read(tmp_path / "pairs.csv", need_images=False)
    assert dataset.images.metadata == {"filename": ["A 1.tif", "B 2.tif"], "size": ["12", "n/a"]}
    write_dataset(dataset, tmp_path / "pairs.parquet")
    assert read(tmp_path / "pairs.parquet", need_images=False).images.metadata == dataset.images.metadata


def test_mixed_parquet_column_raises(tmp_path: Path) -> None:
    rows = [{"image": "a.jpg", "caption": "one", "size": 12}, {"image": "b.jpg", "caption": "two", "size": "n/a"}]
    write_rows(rows, tmp_path / "pairs.jsonl")
    with pytest.raises(DataError, match="Parquet needs values of one type in a column"):
        write_rows(rows, tmp_path / "pairs.parquet")
