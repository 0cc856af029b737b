"""Figures of a data set: one image's texts by relevance, and the number of pairs above each threshold.

They are figures 1a and 1b of Li et al. 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext as st
from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.systems import about, facts_of, pairs_of, relevance_of, texts_of, thumbnail_of
from subtext.errors import DataError
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.ops import draw
from subtext.report.page import PageHit, PageSearch, PageSection
from subtext.report.plots import Chart, Curve, charts
from subtext.text_helpers import counted


@dataclass(frozen=True)
class CountsAbove:
    """Counts over all images and texts of a gallery.

    thresholds  (K) rising
    pairs       (K) int64, pairs whose relevance is greater than each threshold
    positives   (K) int64, of those, pairs that belong together
    images      number of images
    """

    thresholds: NDArray[np.float32]
    pairs: NDArray[np.int64]
    positives: NDArray[np.int64]
    images: int

    def curve(self, counts: NDArray[np.int64]) -> list[tuple[float, float]]:
        """Counts over the thresholds, for a chart."""
        return [(float(level), float(count)) for level, count in zip(self.thresholds, counts, strict=True)]


def count_above(graded: Graded, match: Match, thresholds: Sequence[float]) -> CountsAbove:
    """Count pairs above each threshold, in float32 as the relevance is stored.

    Cost   one read of the relevance, and a search among the thresholds for each pair.

    >>> from subtext.evaluation.relevance.match import of_groups
    >>> graded = Graded("made", np.array([[1.0, 0.4], [0.0, 0.4]], dtype=np.float32))
    >>> counts = count_above(graded, of_groups(np.array([0, 1]), np.array([0, 1])), (0.0, 0.5))
    >>> counts.pairs.tolist(), counts.positives.tolist()
    ([3, 1], [2, 1])
    """
    levels = np.unique(np.asarray(thresholds, dtype=np.float32))
    pairs, positives = np.zeros((2, len(levels)), dtype=np.int64)
    for start, stop, block in graded.blocks("image_to_text"):
        pairs += _counts(block.ravel(), levels)
        rows, columns = match.image_to_text[start:stop].expand()
        positives += _counts(block[rows, columns], levels)
    return CountsAbove(levels, pairs, positives, graded.shape[0])


def _counts(values: NDArray[np.floating], levels: NDArray[np.float32]) -> NDArray[np.int64]:
    """(K) the number of values greater than each level."""
    passed = np.bincount(np.searchsorted(levels, values, side="left"), minlength=len(levels) + 1)
    counts: NDArray[np.int64] = passed[:0:-1].cumsum()[::-1]
    return counts


SHOWN = 10
"""Texts of the image in figure 1a."""
STEPS = 20
MARK = 0.3
"""The paper's threshold, as a share of the largest possible relevance."""


def texts_of_one_image(config: FigureConfig) -> Figure:
    """Figure 1a: the texts of all images in order of their relevance to one image, its own texts marked."""
    pairs, split = pairs_of(config)
    row = chosen_row(config, pairs.images, np.unique(pairs.links[:, 0]))
    values = relevance_of(config, pairs).block("image_to_text", row, row + 1)[0]
    order = np.argsort(-values, kind="stable")[: config.count or SHOWN]
    positives = matching.of_pairs(pairs).image_to_text[row : row + 1].expand()[1]
    texts, ids = texts_of(pairs), pairs.texts.ids
    listed: list[dict[str, Any]] = [
        {"id": ids[i], "text": texts[i], "relevance": float(values[i]), "own": bool((positives == i).any())}
        for i in order.tolist()
    ]
    cards = [PageHit(entry["text"], entry["relevance"], "", right=entry["own"]) for entry in listed]
    name = pairs.images.ids[row]
    negatives = sum(not entry["own"] for entry in listed)
    summary = (
        f"{negatives} of the {len(listed)} texts that are most relevant to {name} are those of other images; it has "
        f"{counted(len(positives), 'text')} of its own."
    )
    search = PageSearch(name, cards, "", thumbnail_of(pairs, row))
    text = "Marked are its own texts. The number is the relevance."
    return Figure(
        lead=lead(pairs, split),
        summary=summary,
        numbers={**about(config, pairs, split), "picture": name, "own": len(positives), "listed": listed},
        facts=facts_of(config, pairs, split),
        sections=[PageSection(f"In order of {config.relevance}", text, [search])],
    )


def pairs_above_thresholds(config: FigureConfig) -> Figure:
    """Figure 1b: the number of pairs above each threshold, and the number of these that belong together."""
    pairs, split = pairs_of(config)
    graded = relevance_of(config, pairs)
    levels, mark = steps_of(graded, config.thresholds)
    counts = count_above(graded, matching.of_pairs(pairs), [*levels, mark])
    chart = Chart(
        f"Pairs above a threshold of {config.relevance}",
        "threshold",
        "pairs",
        [
            Curve("pairs of an image and a text", counts.curve(counts.pairs)),
            Curve("of these, pairs that belong together", counts.curve(counts.positives), reference=True),
        ],
        log_y=True,
    )
    index, images = int(np.searchsorted(counts.thresholds, np.float32(mark))), max(counts.images, 1)
    summary = (
        f"{counts.pairs[index]:,} of {graded.values.size:,} pairs are above {mark:g}: "
        f"{counts.pairs[index] / images:.2f} texts per image, {counts.positives[index] / images:.2f} of them its own."
    )
    numbers = {
        "thresholds": [round(float(level), 6) for level in counts.thresholds],
        "pairs": counts.pairs.tolist(),
        "own": counts.positives.tolist(),
        "all": int(graded.values.size),
        "threshold": mark,
        "texts_a_picture": float(counts.pairs[index] / images),
    }
    return Figure(
        lead=lead(pairs, split),
        summary=summary,
        numbers={**about(config, pairs, split), **numbers},
        facts=facts_of(config, pairs, split),
        drawing=charts([chart]),
    )


def steps_of(graded: Graded, requested: Sequence[float]) -> tuple[list[float], float]:
    """The requested thresholds, or even steps, and the threshold of the summary.

    A relevance of at most 1 has steps up to 1, one of at most 10 (CIDEr-D) up to 10.
    """
    most = max(float(block.max()) for _, _, block in graded.blocks("image_to_text"))
    span = 1.0 if most <= 1.001 else 10.0 if most <= 10.001 else most
    if requested:
        return list(requested), min(requested, key=lambda level: abs(level - MARK * span))
    return [span * step / STEPS for step in range(STEPS)], MARK * span


def chosen_row(config: FigureConfig, items: Any, candidates: Sequence[int] | np.ndarray) -> int:
    """The row of the configured item; by default one that is sampled from the candidates.

    items  the images or the texts of the pairs

    Raises DataError when no item has that id, or there is no candidate.
    """
    if config.item is not None:
        if config.item not in items.ids:
            raise DataError(
                f"{config.name} needs --item to name one of {len(items):,}; '{config.item}' is none of them; examples: "
                f"{', '.join(items.ids[:3])}"
            )
        return int(items.ids.index(config.item))
    if not len(candidates):
        raise DataError(f"{config.name} needs an item to draw; there is none in this split; name one (--item)")
    rows = np.asarray(candidates, dtype=np.int64)
    return int(rows[draw.uniform(items.keys[rows], seed=config.seed, epoch=0, purpose="figure item")[:, 0].argmin()])


def lead(pairs: st.Dataset, split: str) -> str:
    """The size of the data and its split, in a sentence."""
    return f"{counted(len(pairs.images), 'image')} and {counted(len(pairs.texts), 'text')}, split {split}."
