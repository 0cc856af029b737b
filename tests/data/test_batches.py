"""What an epoch draws is a function of (seed, epoch, id), and not of the order of rows or of workers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from subtext.data.batches import epoch_batches, item_batch, read_ahead
from subtext.data.dataset import Dataset, Items, fingerprint
from subtext.data.rows import draw_splits
from subtext.errors import DataError

pytestmark = pytest.mark.identity


def pairs(count: int = 40, each: int = 3) -> Dataset:
    images = Items([f"p{n}" for n in range(count)], [None] * count, np.arange(count), np.full(count, "train"))
    texts = Items(
        [f"p{n // each}#{n % each}" for n in range(count * each)],
        [f"text {n}" for n in range(count * each)],
        np.arange(count * each) // each,
        np.full(count * each, "train"),
    )
    links = np.stack([np.arange(count * each) // each, np.arange(count * each)], axis=1)
    return Dataset(images, texts, links, Path())


def named(data: Dataset, batches: list[np.ndarray]) -> list[list[tuple[str, str]]]:
    return [[(data.images.ids[i], data.texts.ids[t]) for i, t in rows] for rows in batches]


@pytest.mark.parametrize("captions", ["all", "one", "together"])
def test_batches_do_not_depend_on_row_order(captions) -> None:
    data = pairs()
    rng = np.random.default_rng(0)
    shuffled = data.subset(rng.permutation(40), rng.permutation(120))
    shuffled = Dataset(shuffled.images, shuffled.texts, shuffled.links[rng.permutation(120)], Path())
    one, other = (
        named(x, epoch_batches(x, batch_size=7, epoch=3, seed=5, captions=captions)) for x in (data, shuffled)
    )
    assert one == other


def test_epoch_covers_all_links_once_and_reshuffles() -> None:
    data = pairs()
    first, second = (epoch_batches(data, batch_size=16, epoch=epoch, seed=0) for epoch in (0, 1))
    assert sorted(map(tuple, np.concatenate(first))) == sorted(map(tuple, data.links))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    assert [len(rows) for rows in first] == [16] * 7 + [8]
    again = epoch_batches(data, batch_size=16, epoch=0, seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], epoch_batches(data, batch_size=16, epoch=0, seed=1)[0])


def test_one_caption_per_image_is_drawn_uniformly() -> None:
    data = pairs(count=200)
    seen: Counter[int] = Counter()
    for epoch in range(30):
        rows = np.concatenate(epoch_batches(data, batch_size=64, epoch=epoch, seed=0, captions="one"))
        assert sorted(rows[:, 0]) == list(range(200))
        assert (rows[:, 1] // 3 == rows[:, 0]).all()
        seen.update((rows[:, 1] % 3).tolist())
    # 6,000 draws of three: 2,000 each, five standard deviations of sqrt(6000 x 2/9) = 36.5.
    assert all(abs(count - 2000) < 183 for count in seen.values())


@pytest.mark.parametrize(
    ("size", "wanted"), [(9, [6, 9, 9, 9, 9]), (5, [6] * 7), (1, [6] * 7), (39, [21, 21]), (42, [42]), (99, [42])]
)
def test_batches_of_images_with_all_texts(size: int, wanted: list[int]) -> None:
    data = pairs(count=14)
    batches = epoch_batches(data, batch_size=size, epoch=0, seed=0, captions="together")
    assert [len(rows) for rows in batches] == wanted
    for rows in batches:
        pictures, counts = np.unique(rows[:, 0], return_counts=True)
        assert (counts == 3).all()
        assert len(pictures) > 1
    assert sorted(map(tuple, np.concatenate(batches))) == sorted(map(tuple, data.links))
    other = epoch_batches(data, batch_size=size, epoch=1, seed=0, captions="together")
    assert not np.array_equal(np.concatenate(batches), np.concatenate(other))


@pytest.mark.parametrize(
    ("count", "size", "wanted"), [(10, 4, [4, 4, 2]), (9, 4, [4, 5]), (1, 4, [1]), (5, 1, [1] * 5)]
)
def test_trailing_batch_of_one_is_merged(count: int, size: int, wanted: list[int]) -> None:
    assert [len(rows) for rows in epoch_batches(pairs(count, 1), batch_size=size, epoch=0, seed=0)] == wanted


def test_empty_data_or_batch_size_raises() -> None:
    empty = pairs().subset(np.arange(0), np.arange(0))
    with pytest.raises(DataError, match="the data set has none"):
        epoch_batches(empty, batch_size=4, epoch=0, seed=0)
    with pytest.raises(DataError, match="at least 1 pair; it got batch_size 0"):
        epoch_batches(pairs(), batch_size=0, epoch=0, seed=0)


def test_batch_holds_selected_items() -> None:
    data = pairs(10)
    chosen = item_batch(data.texts, np.array([5, 2]), data.root)
    assert chosen.values == ["text 5", "text 2"]
    assert chosen.keys.tolist() == [data.texts.keys[5], data.texts.keys[2]]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_reading_ahead_keeps_the_order(workers: int) -> None:
    def read(piece: int) -> int:
        time.sleep(0.001 * (piece % 3))
        return piece * piece

    assert list(read_ahead(range(30), read, workers=workers)) == [n * n for n in range(30)]


@pytest.mark.parametrize("workers", [0, 2])
def test_reader_error_is_raised_in_order(workers: int) -> None:
    def read(piece: int) -> int:
        if piece == 3:
            raise DataError("piece 3 is bad")
        return piece

    found = []
    with pytest.raises(DataError, match="piece 3 is bad"):
        for value in read_ahead(range(9), read, workers=workers):
            found.append(value)
    assert found == [0, 1, 2]


def test_early_exit_stops_prefetch_threads() -> None:
    started: list[int] = []

    def read(piece: int) -> int:
        started.append(piece)
        return piece

    for value in read_ahead(range(1000), read, workers=2):
        if value == 5:
            break
    time.sleep(0.05)
    assert len(started) <= 5 + 2 * 2 + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read")]


def test_splits_do_not_depend_on_other_groups() -> None:
    names = [f"p{n}" for n in range(500)]
    whole = dict(zip(names, draw_splits(names, seed=3), strict=True))
    part = names[100:400][::-1]
    assert [whole[name] for name in part] == list(draw_splits(part, seed=3))


def test_fingerprint_changes_with_content_but_not_folder() -> None:
    data = pairs()
    assert fingerprint(pairs()) == fingerprint(data)
    renamed = Items(["q", *data.images.ids[1:]], data.images.values, data.images.groups, data.images.splits)
    moved = data.images.splits.copy()
    moved[0] = "val"
    split = Items(data.images.ids, data.images.values, data.images.groups, moved)
    said = Items(data.texts.ids, ["other", *data.texts.values[1:]], data.texts.groups, data.texts.splits)
    others = [
        Dataset(renamed, data.texts, data.links, data.root),
        Dataset(split, data.texts, data.links, data.root),
        Dataset(data.images, said, data.links, data.root),
        Dataset(data.images, data.texts, data.links[1:], data.root),
    ]
    assert len({fingerprint(other) for other in [data, *others]}) == 5
    assert fingerprint(Dataset(data.images, data.texts, data.links, Path("/elsewhere"))) == fingerprint(data)
