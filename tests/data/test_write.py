"""A data set that is written and read is the same data set."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from subtext.data.dataset import Dataset, Judgements, fingerprint
from subtext.data.read import read as read_dataset
from subtext.data.write import write_dataset
from subtext.errors import DataError

pytestmark = pytest.mark.identity

ROWS = [
    {"id": "a", "image": "a.png", "captions": ["a dog", "ein Hund"], "split": "train", "language": ["en", "de"]},
    {"id": "b", "image": "b.png", "captions": ["猫 🐈\nnew line"], "split": "train", "labels": ["cat"], "group": "g"},
    {"id": "c", "image": "c.png", "captions": ["猫 🐈\nnew line", "a cat"], "split": "train", "group": "g"},
    {"id": "d", "image": "d.png", "captions": ["a bird"], "split": "test"},
    {"id": "a", "image": "a.png", "captions": ["un chien"], "split": "train", "language": "fr"},
]


def read(path: Path) -> Dataset:
    return read_dataset(path, need_images=False)


def source(folder: Path, rows: list[dict] = ROWS) -> Dataset:
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(folder / "in.jsonl")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_written_dataset_reads_back_equal(tmp_path: Path, ending: str) -> None:
    pairs = source(tmp_path)
    write_dataset(pairs, tmp_path / f"out.{ending}")
    again = read(tmp_path / f"out.{ending}")
    assert fingerprint(again) == fingerprint(pairs)
    assert again.images.values == pairs.images.values
    assert again.texts.metadata["language"] == pairs.texts.metadata["language"] == ["en", "de", None, None, None, "fr"]
    assert again.images.metadata["labels"] == pairs.images.metadata["labels"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_images_without_text_keep_position(tmp_path: Path, ending: str) -> None:
    lone = [{"id": name, "image": f"{name}.png", "split": "test", "labels": ["x"]} for name in ("m", "z")]
    pairs = source(tmp_path, [ROWS[0], lone[0], *ROWS[1:], lone[1]])
    write_dataset(pairs, tmp_path / f"out.{ending}")
    again = read(tmp_path / f"out.{ending}")
    assert again.images.ids == ["a", "m", "b", "c", "d", "z"] and fingerprint(again) == fingerprint(pairs)
    assert again.images.metadata["labels"] == pairs.images.metadata["labels"]


def test_written_subset_reads_back_equal(tmp_path: Path) -> None:
    pairs = source(tmp_path).subset(np.array([0, 2, 3]), np.array([1, 2, 4, 5]))
    write_dataset(pairs, tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl").texts.ids == pairs.texts.ids


def test_texts_known_by_features_keep_ids(tmp_path: Path) -> None:
    pairs = source(tmp_path, [{"id": "a", "text_ids": ["a#0", "a#1"]}, {"id": "b", "text_ids": ["b#0"]}])
    write_dataset(pairs, tmp_path / "out.jsonl")
    again = read(tmp_path / "out.jsonl")
    assert again.texts.ids == pairs.texts.ids and again.texts.values == [None] * 3


def test_bytes_need_parquet(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (2, 2)).save(out, "PNG")
    rows = [{"id": "a", "image": out.getvalue(), "text": "a dog", "day": date(2020, 1, 2)}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    pairs = read_dataset(tmp_path / "in.parquet")
    write_dataset(pairs, tmp_path / "out.parquet")
    assert fingerprint(read_dataset(tmp_path / "out.parquet", verify=True)) == fingerprint(pairs)
    with pytest.raises(DataError, match="JSON lines cannot hold bytes that the rows have"):
        write_dataset(pairs, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_unwritable_dataset_raises(tmp_path: Path) -> None:
    pairs = source(tmp_path)
    with pytest.raises(DataError, match=r"ends in \.jsonl or \.parquet; it got out\.csv"):
        write_dataset(pairs, tmp_path / "out.csv")
    with pytest.raises(DataError, match="1 image without a partner"):
        write_dataset(replace(pairs, links=pairs.links[pairs.links[:, 0] != 2]), tmp_path / "out.jsonl")
    graded = Judgements(np.array([0]), np.array([0]), np.array([2], dtype=np.float32))
    with pytest.raises(DataError, match="graded judgements cannot be written"):
        write_dataset(replace(pairs, judgements=graded), tmp_path / "out.jsonl")
