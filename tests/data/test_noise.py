"""Planted looseness: how much, where, and of what kind is what was asked for, and nobody who trains can know it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import grimp
import numpy as np
import pytest

from subtext.data.dataset import Dataset, Items, fingerprint
from subtext.data.noise import TextNeighbours, plant, read_labels, write_labels
from subtext.data.read import read as read_dataset
from subtext.data.write import write_dataset
from subtext.errors import DataError

pytestmark = pytest.mark.contract

BLIND = (
    "training",
    "recipes",
    "models",
    "graphs",
    "objectives",
    "curation",
    "evaluation",
    "retrieval",
    "ops",
    "core",
    "api.train",
    "api.neighbours",
    "api.evaluate",
)


def made(count: int = 60, *, each: int = 2, val: int = 6) -> Dataset:
    """Pictures with `each` texts; the last `val` pictures are the split val."""
    splits = np.array(["train"] * (count - val) + ["val"] * val)
    groups = np.arange(count, dtype=np.int64)
    images = Items([f"p{n}" for n in range(count)], [f"p{n}.jpg" for n in range(count)], groups, splits)
    ids = [f"p{n}#{k}" for n in range(count) for k in range(each)]
    texts = Items(ids, [f"words of {name}" for name in ids], np.repeat(groups, each), np.repeat(splits, each))
    links = np.stack([np.repeat(groups, each), np.arange(count * each)], axis=1)
    return Dataset(images, texts, links, Path())


def near(pairs: Dataset, width: int = 20, *, first: int = 1, last: int = 20) -> TextNeighbours:
    """Neighbours on a line of made places; texts of one picture are none, nor those of another split."""
    places = np.random.default_rng(3).normal(size=len(pairs.texts))
    apart = np.abs(places[:, None] - places[None, :])
    apart[pairs.texts.groups[:, None] == pairs.texts.groups[None, :]] = np.inf
    apart[pairs.texts.splits[:, None] != pairs.texts.splits[None, :]] = np.inf
    rows = np.argsort(apart, axis=1, kind="stable")[:, :width]
    distances = np.take_along_axis(apart, rows, axis=1)
    return TextNeighbours(np.where(np.isfinite(distances), rows, -1), distances, first, last)


def shuffled(pairs: Dataset, seed: int) -> tuple[Dataset, np.ndarray]:
    """The same data with other rows and other numbers of groups; and which row each text had."""
    rng = np.random.default_rng(seed)
    images, texts = rng.permutation(len(pairs.images)), rng.permutation(len(pairs.texts))
    other = pairs.subset(images, texts)
    new = rng.permutation(len(pairs.images))
    return (
        replace(
            other,
            images=replace(other.images, groups=new[other.images.groups]),
            texts=replace(other.texts, groups=new[other.texts.groups]),
        ),
        texts,
    )


@pytest.mark.parametrize("kind", ["neighbour", "mismatch"])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_requested_share_is_corrupted_without_losing_texts(kind: str, share: float) -> None:
    pairs = made()
    planted = plant(pairs, {kind: share}, neighbours=near(pairs), seed=1)
    loose = planted.kinds != ""
    assert abs(loose.sum() - share * 108) <= 1
    assert set(planted.kinds[loose]) == {kind}
    assert sorted(map(str, planted.dataset.texts.values)) == sorted(map(str, pairs.texts.values))
    changed = np.array([a != b for a, b in zip(planted.dataset.texts.values, pairs.texts.values, strict=True)])
    assert (changed == loose).all()
    groups = pairs.texts.groups
    assert (groups[planted.source[loose]] != groups[loose]).all()
    assert (planted.dataset.texts.splits[loose] == "train").all()
    assert planted.dataset.texts.ids == pairs.texts.ids and (planted.dataset.links == pairs.links).all()


def test_neighbour_noise_stays_within_ranks_and_records_distance() -> None:
    pairs = made()
    band = near(pairs, first=5, last=8)
    planted = plant(pairs, {"neighbour": 0.3}, neighbours=band, seed=2)
    for row in np.flatnonzero(planted.kinds != ""):
        other = planted.source[row]
        assert planted.source[other] == row
        ranks = [
            list(band.rows[a]).index(b) + 1 for a, b in ((row, other), (other, row)) if b in set(band.rows[a].tolist())
        ]
        assert any(5 <= rank <= 8 for rank in ranks)
        a = row if other in set(band.rows[row].tolist()) else other
        at = list(band.rows[a]).index(other if a == row else row)
        assert planted.distances[row] == pytest.approx(band.distances[a, at])
    assert np.isnan(planted.distances[planted.kinds == ""]).all()


def test_noise_kinds_share_no_pair() -> None:
    pairs = made()
    planted = plant(pairs, {"neighbour": 0.2, "mismatch": 0.3}, neighbours=near(pairs))
    counts = {kind: int((planted.kinds == kind).sum()) for kind in ("neighbour", "mismatch")}
    assert counts == {"neighbour": 22, "mismatch": 32}


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_does_not_depend_on_row_order(seed: int) -> None:
    pairs = made()
    graph = near(pairs)
    one = plant(pairs, {"neighbour": 0.2, "mismatch": 0.2}, neighbours=graph, seed=seed)
    other_pairs, old = shuffled(pairs, seed)
    new = np.full(len(old) + 1, -1)
    new[old] = np.arange(len(old))
    moved = TextNeighbours(new[graph.rows[old]], graph.distances[old], 1, 20)
    other = plant(other_pairs, {"neighbour": 0.2, "mismatch": 0.2}, neighbours=moved, seed=seed)
    told = [
        dict(zip(each.dataset.texts.ids, zip(each.dataset.texts.values, each.kinds, strict=True), strict=True))
        for each in (one, other)
    ]
    assert told[0] == told[1]


def test_seeds_corrupt_different_pairs() -> None:
    pairs = made()
    first, second = (plant(pairs, {"mismatch": 0.3}, seed=seed).kinds for seed in (0, 1))
    assert (first != second).any()
    assert (first == plant(pairs, {"mismatch": 0.3}, seed=0).kinds).all()


def test_hub_texts_are_not_oversampled_as_noise() -> None:
    """A hub that sixty texts have among their nearest would be in nearly every draw if partners were drawn evenly."""
    pairs = made(200, each=1, val=0)
    rows = np.stack([(np.arange(200) + 1) % 200, (np.arange(200) - 1) % 200, np.zeros(200, dtype=np.int64)], axis=1)
    rows[0, 2] = 100
    graph = TextNeighbours(rows, np.ones(rows.shape), 1, 3)
    hits = [plant(pairs, {"neighbour": 0.2}, neighbours=graph, seed=seed).kinds[0] != "" for seed in range(60)]
    assert np.mean(hits) < 0.5


def test_noise_stays_in_requested_splits() -> None:
    pairs = made(val=20)
    for splits in (("train",), ("val",), ("train", "val")):
        planted = plant(pairs, {"mismatch": 0.5}, splits=splits)
        loose = planted.kinds != ""
        assert set(map(str, pairs.texts.splits[loose])) == set(splits)
        assert (pairs.texts.splits[planted.source] == pairs.texts.splits).all()


def test_equal_texts_are_never_mismatched() -> None:
    pairs = made(40, each=1, val=0)
    values = ["the same words"] * 10 + list(pairs.texts.values[10:])
    pairs = replace(pairs, texts=replace(pairs.texts, values=values))
    planted = plant(pairs, {"mismatch": 1.0})
    assert all(a != b for a, b in zip(planted.dataset.texts.values, values, strict=True))


def test_invalid_noise_settings_raise() -> None:
    pairs = made()
    with pytest.raises(DataError, match="rates of 'neighbour' and 'mismatch' above 0, at most 1 in total"):
        plant(pairs, {"neighbour": 0.6, "mismatch": 0.6}, neighbours=near(pairs))
    with pytest.raises(DataError, match="needs a graph"):
        plant(pairs, {"neighbour": 0.5})
    with pytest.raises(DataError, match="108 pairs cannot get a neighbour's text: within ranks 1 to 1"):
        plant(pairs, {"neighbour": 1.0}, neighbours=near(pairs, first=1, last=1))
    with pytest.raises(DataError, match="corrupting the split 'test' needs texts"):
        plant(pairs, {"mismatch": 0.5}, splits=("test",))
    alone = replace(pairs, texts=replace(pairs.texts, values=["the same words"] * 120))
    with pytest.raises(DataError, match="too many are the same"):
        plant(alone, {"mismatch": 0.5})
    whole = replace(pairs, texts=replace(pairs.texts, groups=np.zeros(120, dtype=np.int64)))
    with pytest.raises(DataError, match="no group of more than half"):
        plant(whole, {"mismatch": 0.5})


def test_noise_labels_round_trip(tmp_path: Path) -> None:
    pairs = made()
    planted = plant(pairs, {"neighbour": 0.2, "mismatch": 0.1}, neighbours=near(pairs))
    write_labels(planted, tmp_path / "labels.json", {"seed": 0})
    labels = read_labels(tmp_path / "labels.json")
    assert (labels.of(planted.dataset) == planted.kinds).all()
    assert len(labels.distances) == (planted.kinds == "neighbour").sum()
    labels.require(planted.dataset)
    with pytest.raises(DataError, match="the labels need the data set that they were written with"):
        labels.require(pairs)
    with pytest.raises(DataError, match="and none of these 12"):
        labels.of(planted.dataset.split("val"))


def test_invalid_noise_labels_raise(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    with pytest.raises(DataError, match="does not exist"):
        read_labels(path)
    for text, wrong in (("{}", "has no labels"), ("x", "is damaged"), ("[1]", "has no labels")):
        path.write_text(text)
        with pytest.raises(DataError, match=wrong):
            read_labels(path)
    path.write_text(json.dumps({"kind": "subtext noise labels", "format": 2}))
    with pytest.raises(DataError, match=r"was made by an earlier Subtext, .* with `subtext data corrupt`"):
        read_labels(path)


def test_corrupted_file_does_not_reveal_noise(tmp_path: Path) -> None:
    """Ids stay with the place and not with the words, so no column of the file says where words came from."""
    planted = plant(made(), {"mismatch": 0.3})
    write_dataset(planted.dataset, tmp_path / "loose.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "loose.jsonl").read_text().splitlines()]
    assert {name for row in rows for name in row} == {"id", "image", "captions", "text_ids", "split"}
    assert all(name.split("#")[0] == row["id"] for row in rows for name in row["text_ids"])
    read = read_dataset(tmp_path / "loose.jsonl", need_images=False)
    assert fingerprint(read) == fingerprint(planted.dataset)


def test_training_and_weighting_never_import_labels() -> None:
    graph = grimp.build_graph("subtext", cache_dir=None, exclude_type_checking_imports=True)
    labels = "subtext.data.noise"
    assert graph.find_modules_that_directly_import(labels), "nobody reads labels: the test would hold of anything"
    for room in BLIND:
        for module in {f"subtext.{room}", *graph.find_descendants(f"subtext.{room}")}:
            assert not graph.chain_exists(importer=module, imported=labels), module
