"""Near copies are found whatever the order, against a plain loop over all couples; groups and splits are minded."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from subtext.data.dataset import Dataset, Items
from subtext.data.prepare import (
    _shingles,
    cut_sentences,
    first_sentences,
    keep_texts,
    near_copies,
    only_longer,
    resplit_groups,
)
from subtext.errors import DataError

pytestmark = pytest.mark.contract

LONG = "we use cookies to make this site work and to show what you may like to read next so please say yes"


def jaccard(left: set[str], right: set[str]) -> float:
    return len(left & right) / len(left | right)


def made(values: list[str], splits: list[str] | None = None, groups: list[int] | None = None) -> Dataset:
    count = len(values)
    of = np.array(groups if groups is not None else range(count), dtype=np.int64)
    named = np.array(splits or ["train"] * count)
    images = Items([f"p{n}" for n in range(count)], [f"p{n}.jpg" for n in range(count)], of, named)
    texts = Items([f"p{n}#0" for n in range(count)], list(values), of, named)
    return Dataset(images, texts, np.stack([np.arange(count)] * 2, axis=1), Path())


def varied(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    words = LONG.split()
    values = []
    for _ in range(count):
        changed = list(words)
        for place in rng.choice(len(words), size=rng.integers(0, 3), replace=False):
            changed[place] = f"w{rng.integers(1000)}"
        values.append(" ".join(changed))
    return values


@pytest.mark.parametrize("seed", range(3))
def test_retained_texts_are_distinct_and_removed_ones_copies(seed: int) -> None:
    values = varied(30, seed)
    found = near_copies(made(values), threshold=0.6)
    kept = np.flatnonzero(found.retained)
    for one, other in combinations(kept, 2):
        assert jaccard(_shingles(values[one], 3), _shingles(values[other], 3)) < 0.6
    for row in np.flatnonzero(~found.retained):
        assert found.retained[found.copy_of[row]]
        assert found.overlap[row] == jaccard(_shingles(values[row], 3), _shingles(values[found.copy_of[row]], 3)) >= 0.6


def test_near_copies_do_not_depend_on_row_order() -> None:
    pairs = made(varied(30, 7))
    rows = np.random.default_rng(1).permutation(30)
    one = {pairs.texts.ids[row] for row in np.flatnonzero(near_copies(pairs, threshold=0.6).retained)}
    other = pairs.subset(rows, rows)
    assert {other.texts.ids[row] for row in np.flatnonzero(near_copies(other, threshold=0.6).retained)} == one
    assert 0 < len(one) < 30


def test_near_copies_retain_text_of_test_split() -> None:
    pairs = made([LONG, LONG, LONG + " now", "other words"], ["train", "test", "val", "train"])
    found = near_copies(pairs)
    assert found.copy_of.tolist() == [1, -1, 1, -1]
    left = keep_texts(pairs, found.retained)
    assert left.images.ids == ["p1", "p3"] and left.links.tolist() == [[0, 0], [1, 1]]


def test_texts_of_one_group_are_no_near_copies() -> None:
    assert near_copies(made([LONG, LONG], groups=[0, 0])).retained.all()


def test_short_and_wordless_texts_are_compared_whole() -> None:
    assert near_copies(made(["a dog", "a dog", "a cat", "!!", "!!", "??"])).retained.sum() == 4


def test_invalid_threshold_or_missing_words_raise() -> None:
    with pytest.raises(DataError, match="a threshold above 0 and at most 1; got 0"):
        near_copies(made(["a"]), threshold=0)
    pairs = made(["a", "b"])
    with pytest.raises(DataError, match="'p1#0' is known by features alone"):
        near_copies(replace(pairs, texts=replace(pairs.texts, values=["a", None])))


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [
        ("One. Two! Three?", 2, "One. Two!"),
        (
            "The U.S. President met Mr. Lee on Jan. 5. They spoke. It ended.",
            1,
            "The U.S. President met Mr. Lee on Jan. 5.",
        ),
        ("It rose 3.5 percent... and fell. Then it rose.", 1, "It rose 3.5 percent... and fell."),
        ('"Why?" he asked. "Because."', 1, '"Why?"'),
        ("天气好。我们走吧。再见。", 2, "天气好。我们走吧。"),
        ("no end", 3, "no end"),
        ("  J. R. Doe came.\nHe left. ", 1, "J. R. Doe came."),
    ],
)
def test_first_sentences_cuts_at_sentence_ends(text: str, count: int, first: str) -> None:
    assert first_sentences(text, count) == first


def test_length_filter_sentence_cut_and_resplit() -> None:
    pairs = made(["One. Two. Three.", "Short.", "Four! Five! Six!"] + [f"Text {n}. More. Still." for n in range(30)])
    longer = only_longer(pairs, 6)
    assert longer.images.ids == ["p0", *(f"p{n}" for n in range(2, 33))]
    assert cut_sentences(longer, 2).texts.values[:2] == ["One. Two.", "Four! Five!"]
    with pytest.raises(DataError, match="of 33 texts none would remain"):
        only_longer(pairs, 600)
    drawn = resplit_groups(longer, seed=0)
    assert set(drawn.counts()) == {"train", "val", "test"}
    assert (drawn.images.splits[drawn.links[:, 0]] == drawn.texts.splits[drawn.links[:, 1]]).all()
    assert (drawn.images.splits == resplit_groups(longer, seed=0).images.splits).all()
    assert (drawn.images.splits != resplit_groups(longer, seed=1).images.splits).any()
