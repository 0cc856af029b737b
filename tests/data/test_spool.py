"""Items in a file are those that lists would have, and little of each is held."""

from __future__ import annotations

import io
import json
import random
import tarfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from subtext.data import folders, object_store, spool
from subtext.data.dataset import Dataset, RowIssue, alike, summarise
from subtext.data.folders import Folders, Names, families, iter_files, survey
from subtext.data.read import read
from subtext.data.spool import Column, KeySet, RowFinder, Splits, Spool
from subtext.data.unchanged import Unchanged


def for_index() -> Unchanged:
    return Unchanged((), Path(), count=0, verify_files=False)


def test_records_come_back_as_they_were_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_PENDING", 5000)
    monkeypatch.setattr(spool, "_RECENT", 16)
    records: Spool[Any] = Spool(tuple)
    wanted: list[Any] = [(f"name {n} \udcff", b"x" * (n * 7 % 3000), {"year": n}, None) for n in range(500)]
    for record in wanted:
        records.append(record)
    for row in range(0, 500, 3):
        wanted[row] = ("another", row) if row % 2 else ("no JSON", {row})
        records[row] = wanted[row]
    assert list(records) == wanted and records[-1] == wanted[-1]
    with pytest.raises(IndexError):
        records[500]
    rows = random.Random(0).choices(range(500), k=2000)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(records.__getitem__, rows)) == [wanted[row] for row in rows]


def test_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_hash", lambda key: hash(key) % 7 << 32)
    names, table = [f"n{number}" for number in range(300)], RowFinder()
    for row, name in enumerate(names):
        assert table.find(name, lambda row, name=name: names[row] == name) is None
        table.add(name, row)
    found = [table.find(name, lambda row, name=name: names[row] == name) for name in names]
    assert found == list(range(300)) and len(table) == 300


def test_keys_of_a_set_are_those_that_were_added() -> None:
    keys = KeySet()
    for number in range(3000):
        assert f"n{number}" not in keys
        keys.add(f"n{number}")
    assert all(f"n{number}" in keys for number in range(3000)) and "n3000" not in keys


def test_splits_are_an_array_of_texts() -> None:
    codes = np.random.default_rng(0).integers(0, 3, 50, dtype=np.uint8)
    texts = np.array(["", "train", "val"])[codes]
    splits, rows = Splits(["", "train", "val"], codes), np.arange(0, 50, 3)
    assert splits.tolist() == list(splits) == texts.tolist() and splits[7] == texts[7]
    assert splits[rows].tolist() == texts[rows].tolist() and np.unique(splits).tolist() == np.unique(texts).tolist()
    np.testing.assert_array_equal(splits == "val", texts == "val")
    np.testing.assert_array_equal(splits != "no split", texts != "no split")


def test_starts_far_behind_the_first_of_a_block_are_kept() -> None:
    starts = spool._Starts()
    for number in range(200):
        starts.append(100 * number)
    starts[3], starts[70], starts[71] = 2**40, 2**33, 25_000
    assert [starts[row] for row in (2, 3, 70, 71, 72)] == [200, 2**40, 2**33, 25_000, 7200]


def test_columns_in_a_file_are_lists() -> None:
    records: Spool[Any] = Spool(tuple)
    for number in range(10_000):
        records.append((f"n{number}", number))
    names = Column(records, lambda record: record[0])
    odd = names.take(np.arange(1, 10_000, 2))
    assert names[2:4] == ["n2", "n3"] and odd[-1] == "n9999" and odd.take(np.array([2, 0]))[:] == ["n5", "n1"]
    assert copy(odd) == list(odd), "another process gets a list"
    assert odd.changed({1: "other"})[:3] == ["n1", "other", "n5"] and list(odd)[:2] == ["n1", "n3"]


def rows_of(draws: random.Random, files: list[str]) -> list[dict[str, Any]]:
    """Rows with everything that one row may have to do with another."""
    has = {name: draws.random() < 0.4 for name in ("group", "split", "text_id", "id")}
    rows = list[dict[str, Any]]()
    for _ in range(draws.randint(1, 25)):
        row: dict[str, Any] = {"image": draws.choice(files), "year": draws.choice([1, 2, None])}
        texts = draws.choice([[], ["one"], ["two"], ["a third text"], ["one", "five"]])
        row |= {"captions": texts} if texts else {}
        row |= {"group": f"g{draws.randint(0, 4)}"} if has["group"] else {}
        row |= {"split": draws.choice(["train", "val", "dev"])} if has["split"] else {}
        row |= {"text_id": f"t{draws.randint(0, 20)}"} if has["text_id"] and len(texts) == 1 else {}
        row |= {"id": f"i{draws.randint(0, 9)}"} if has["id"] else {}
        rows.append(row)
    return rows


def content(data: Dataset) -> list[object]:
    columns = [
        (list(it.ids), list(it.values), it.groups.tolist(), it.splits.tolist()) for it in (data.images, data.texts)
    ]
    metadata = [{name: list(column) for name, column in it.metadata.items()} for it in (data.images, data.texts)]
    return [columns, metadata, data.links.tolist(), data.own_splits, summarise(data.problems)]


def test_listing_in_a_file_has_what_one_in_memory_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FEW", 1)
    files = [f"{'ab'[number % 2]}/{number}.png" for number in range(8)]
    for number, name in enumerate(files):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (number, 5, 5)).save(tmp_path / name)
    names = [*files, "missing.png", "./a/0.png", "b/../a/2.png", "A/4.png"]
    for seed in range(60):
        rows = rows_of(random.Random(seed), names)
        wanted = read(rows, images=tmp_path, on_error="skip")
        assert content(read(rows, images=tmp_path, on_error="skip", unchanged=for_index())) == content(wanted), seed


def test_many_problems_of_a_kind_are_counted() -> None:
    problems = [RowIssue(f"line {n}", f"has no text {n}", name=str(n), fatal=False) for n in range(9)]
    assert summarise(alike(problems)) == summarise(problems) and len(alike([*problems, *problems])) == 3
    assert "17 like it" in summarise(alike([*alike(problems), *problems]))[0]


def test_names_of_a_large_folder_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    plain = sorted({f"{draws.choice('äb€c')}{draws.randint(0, 999)}.{'ab'[n % 2]}" for n in range(300)})
    monkeypatch.setattr(folders, "_PACKED", 16)
    packed = Names()
    for name in draws.sample(plain, len(plain)):
        packed.add(name)
    assert list(packed) == plain
    wanted = ["a.b/d.png", "a.png", "a.xmp", "a/c.png", "b.png", "k.png", "k.xmp", "k.r/e.png"]
    for name in wanted:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(iter_files(tmp_path)) == wanted
    found = list(families(tmp_path, survey(tmp_path)))
    assert ["a.png", "a.xmp"] in found and ["k.png", "k.xmp"] in found, "an image and its sidecar are together"


def test_folders_that_do_not_fit_are_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MOST_HELD", 5)
    for name in ("a", "b", "c", "large"):
        (tmp_path / name).mkdir()
        for number in range(9 if name == "large" else 2):
            (tmp_path / name / str(number)).touch()
    held = Folders(lambda entry: entry.is_dir())
    assert held.of(f"{tmp_path}/a") == {"0": False, "1": False} and held.of(f"{tmp_path}/none") == {}
    assert held.of(f"{tmp_path}/large") is None and held.of(f"{tmp_path}/b") and held.of(f"{tmp_path}/c")
    assert held.of(f"{tmp_path}/a") is None, "it was listed before: the paths jump"


def listing_of(folder: Path, number: int, form: str) -> tuple[Path, Path | None]:
    """A data set of so many images, and the folder of its images."""
    names = [f"{image // 100}/{image:08d}.jpg" for image in range(number)]
    texts = [f"the {image}th picture of many" for image in range(number)]
    if form == "tar":
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for image, text in enumerate(texts):
                for suffix, content in (("jpg", b"no image"), ("txt", text.encode())):
                    member = tarfile.TarInfo(f"{image:08d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        return folder / f"{number}.tar", None
    images = folder / str(number)
    for name in names:
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).touch()
    rows = [
        json.dumps({"image": name, "id": name[-12:], "caption": text}) for name, text in zip(names, texts, strict=True)
    ]
    table, listed = folder / f"{number}.jsonl", folder / f"{number}.json"
    table.write_text("\n".join(rows))
    listed.write_text(f"[{','.join(rows)}]")
    return {"lines": table, "list": listed}.get(form, images), images


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "list", "folder", "tar"])
def test_listing_holds_less_than_100_bytes_an_item(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is held of a few is held of so few that both sizes have more.
    for module, name, few in (
        (folders, "_MOST_HELD", 200), (folders, "_PACKED", 64), (object_store, "BLOCK", 64), (spool, "_ARRAYS", 8),
        (spool, "_RECENT", 64), (spool, "_PENDING", 4096), (spool, "FEW", 64),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, few)
    held = list[int]()
    for number in (1_500, 300, 1_500):  # The first imports what the others need.
        path, images = listing_of(tmp_path, number, form)
        tracemalloc.start()
        try:
            data = read(path, images=images, unchanged=for_index(), embedded=False)
            assert len(data.images) == number
            held.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    items = 1_200 * (1 if form == "folder" else 2)
    assert (held[2] - held[1]) / items < 100
