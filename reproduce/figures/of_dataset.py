"""Figures of a data set alone: one picture's texts by relevance, and pairs above each threshold.

How many pairs of a picture and a text are above each threshold of a relevance (Li et al. 2022, figure 1b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.systems import about, facts_of, pairs_of, relevance_of, texts_of, thumbnail_of
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, counted
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.ops import draw
from subtext.report.page import Found, Search, Section
from subtext.report.plots import Chart, Curve, charts


@dataclass(frozen=True)
class CountsAbove:
    """Counts over all pictures and texts of a gallery.

    thresholds  (K) rising
    pairs       (K) int64, pairs whose relevance is greater than each of them
    own         (K) int64, of those, pairs that belong together
    pictures    how many there are
    """

    thresholds: NDArray[np.float32]
    pairs: NDArray[np.int64]
    own: NDArray[np.int64]
    pictures: int


def count_above(graded: Graded, match: Match, thresholds: Sequence[float]) -> CountsAbove:
    """Count pairs above each threshold, in float32 as the relevance is kept.

    Cost   one read of the relevance, and a search among the thresholds for each pair.

    >>> from subtext.evaluation.relevance.match import of_groups
    >>> graded = Graded("made", np.array([[1.0, 0.4], [0.0, 0.4]], dtype=np.float32))
    >>> found = count_above(graded, of_groups(np.array([0, 1]), np.array([0, 1])), (0.0, 0.5))
    >>> found.pairs.tolist(), found.own.tolist()
    ([3, 1], [2, 1])
    """
    levels = np.unique(np.asarray(thresholds, dtype=np.float32))
    pairs, own = np.zeros((2, len(levels)), dtype=np.int64)
    for start, stop, block in graded.blocks("image_to_text"):
        pairs += _counts(block.ravel(), levels)
        rows, columns = match.image_to_text[start:stop].expand()
        own += _counts(block[rows, columns], levels)
    return CountsAbove(levels, pairs, own, graded.shape[0])


def _counts(values: NDArray[np.floating], levels: NDArray[np.float32]) -> NDArray[np.int64]:
    """(K) how many values are greater than each level."""
    passed = np.bincount(np.searchsorted(levels, values, side="left"), minlength=len(levels) + 1)
    found: NDArray[np.int64] = passed[:0:-1].cumsum()[::-1]
    return found


SHOWN = 10
"""Texts of the picture in figure 1a."""
STEPS = 20
MARK = 0.3
"""The paper's threshold, as a share of what the relevance may reach."""


def texts_of_one_image(config: FigureConfig) -> Figure:
    """Figure 1a: the texts of all pictures in order of their relevance to one of them, its own marked."""
    pairs, split = pairs_of(config)
    row = chosen(config, pairs.images, np.unique(pairs.links[:, 0]))
    graded = relevance_of(config, pairs)
    values = graded.block("image_to_text", row, row + 1)[0]
    order = np.argsort(-values, kind="stable")[: config.count or SHOWN]
    own = matching.of_pairs(pairs).image_to_text[row : row + 1].expand()[1]
    texts = texts_of(pairs)
    listed = [
        {
            "id": pairs.texts.ids[text],
            "text": texts[text],
            "relevance": float(values[text]),
            "own": bool((own == text).any()),
        }
        for text in order.tolist()
    ]
    cards = [Found(each["text"], each["relevance"], "", right=each["own"]) for each in listed]
    name = pairs.images.ids[row]
    strangers = sum(not each["own"] for each in listed)
    summary = (
        f"{strangers} of the {len(listed)} texts that are most relevant to {name} are those of other pictures; it has "
        f"{counted(len(own), 'text')} of its own."
    )
    told = "Marked are its own texts. The number is the relevance."
    picture = thumbnail_of(pairs, row)
    return Figure(
        lead=lead(pairs, split),
        summary=summary,
        numbers={**about(config, pairs, split), "picture": name, "own": len(own), "listed": listed},
        facts=facts_of(config, pairs, split),
        sections=[Section(f"In order of {config.relevance}", told, [Search(name, cards, "", picture)])],
    )


def pairs_above_thresholds(config: FigureConfig) -> Figure:
    """Figure 1b: how many pairs are above each threshold, and how many of them belong together."""
    pairs, split = pairs_of(config)
    graded = relevance_of(config, pairs)
    levels, mark = steps_of(graded, config.thresholds)
    found = count_above(graded, matching.of_pairs(pairs), [*levels, mark])
    place = int(np.searchsorted(found.thresholds, np.float32(mark)))
    chart = Chart(
        f"Pairs above a threshold of {config.relevance}",
        "threshold",
        "pairs",
        [
            Curve("pairs of a picture and a text", _points(found, found.pairs.tolist())),
            Curve("of these, pairs that belong together", _points(found, found.own.tolist()), reference=True),
        ],
        log_y=True,
    )
    pictures = max(found.pictures, 1)
    summary = (
        f"{found.pairs[place]:,} of {graded.values.size:,} pairs are above {mark:g}: "
        f"{found.pairs[place] / pictures:.2f} texts a picture, {found.own[place] / pictures:.2f} of them its own."
    )
    numbers = {
        "thresholds": [round(float(level), 6) for level in found.thresholds],
        "pairs": found.pairs.tolist(),
        "own": found.own.tolist(),
        "all": int(graded.values.size),
        "threshold": mark,
        "texts_a_picture": float(found.pairs[place] / pictures),
    }
    return Figure(
        lead=lead(pairs, split),
        summary=summary,
        numbers={**about(config, pairs, split), **numbers},
        facts=facts_of(config, pairs, split),
        drawing=charts([chart]),
    )


def steps_of(graded: Graded, given: Sequence[float]) -> tuple[list[float], float]:
    """Thresholds in even steps, unless some are given, and the one that the sentence tells of.

    A relevance that stays below 1 is taken to end there, one below 10 (CIDEr-D) there.
    """
    most = max(float(block.max()) for _, _, block in graded.blocks("image_to_text"))
    span = 1.0 if most <= 1.001 else 10.0 if most <= 10.001 else most
    if given:
        return list(given), min(given, key=lambda level: abs(level - MARK * span))
    return [span * place / STEPS for place in range(STEPS)], MARK * span


def chosen(config: FigureConfig, items: Items, among: Sequence[int] | np.ndarray) -> int:
    """The row of the item that is config for; else one drawn from `among`.

    Raises DataError when no item has that name, or there is none to draw from.
    """
    if config.item is not None:
        if config.item not in items.ids:
            raise DataError(
                f"{config.name} needs --item to name one of {len(items):,}; '{config.item}' is none of them; they are "
                f"called as {', '.join(items.ids[:3])} are"
            )
        return items.ids.index(config.item)
    if not len(among):
        raise DataError(f"{config.name} needs an item to draw; there is none in this split; name one (--item)")
    rows = np.asarray(among, dtype=np.int64)
    return int(rows[draw.uniform(items.keys[rows], seed=config.seed, epoch=0, purpose="figure item")[:, 0].argmin()])


def lead(pairs: Dataset, split: str) -> str:
    """What a figure is of."""
    return f"{counted(len(pairs.images), 'picture')} and {counted(len(pairs.texts), 'text')}, split {split}."


def _points(found: CountsAbove, counts: Sequence[int]) -> list[tuple[float, float]]:
    return [(float(level), float(count)) for level, count in zip(found.thresholds, counts, strict=True)]
