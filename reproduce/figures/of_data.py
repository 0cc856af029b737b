"""Figures of a data set alone: one picture's texts by relevance, and pairs above each threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproduce.figures.request import Asked, Drawn
from reproduce.figures.systems import about, facts_of, pairs_of, picture_of, relevance_of, texts_of
from reproduce.figures.thresholds import Above, above
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, counted
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.ops import draw
from subtext.report.page import Found, Search, Section
from subtext.report.plots import Chart, Curve, charts

SHOWN = 10
"""Texts of the picture in figure 1a."""
STEPS = 20
MARK = 0.3
"""The paper's threshold, as a share of what the relevance may reach."""


def one_picture(asked: Asked) -> Drawn:
    """Figure 1a: the texts of all pictures in order of their relevance to one of them, its own marked."""
    pairs, split = pairs_of(asked)
    row = chosen(asked, pairs.images, np.unique(pairs.links[:, 0]))
    graded = relevance_of(asked, pairs)
    values = graded.block("image_to_text", row, row + 1)[0]
    order = np.argsort(-values, kind="stable")[: asked.count or SHOWN]
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
    said = (
        f"{strangers} of the {len(listed)} texts that are most relevant to {name} are those of other pictures; it has "
        f"{counted(len(own), 'text')} of its own."
    )
    told = "Marked are its own texts. The number is the relevance."
    picture = picture_of(pairs, row)
    return Drawn(
        lead=lead(pairs, split),
        said=said,
        numbers={**about(asked, pairs, split), "picture": name, "own": len(own), "listed": listed},
        facts=facts_of(asked, pairs, split),
        sections=[Section(f"In order of {asked.relevance}", told, [Search(name, cards, "", picture)])],
    )


def many_thresholds(asked: Asked) -> Drawn:
    """Figure 1b: how many pairs are above each threshold, and how many of them belong together."""
    pairs, split = pairs_of(asked)
    graded = relevance_of(asked, pairs)
    levels, mark = steps_of(graded, asked.thresholds)
    found = above(graded, matching.of_pairs(pairs), [*levels, mark])
    place = int(np.searchsorted(found.thresholds, np.float32(mark)))
    chart = Chart(
        f"Pairs above a threshold of {asked.relevance}",
        "threshold",
        "pairs",
        [
            Curve("pairs of a picture and a text", _points(found, found.pairs.tolist())),
            Curve("of these, pairs that belong together", _points(found, found.own.tolist()), reference=True),
        ],
        log_y=True,
    )
    pictures = max(found.pictures, 1)
    said = (
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
    return Drawn(
        lead=lead(pairs, split),
        said=said,
        numbers={**about(asked, pairs, split), **numbers},
        facts=facts_of(asked, pairs, split),
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


def chosen(asked: Asked, items: Items, among: Sequence[int] | np.ndarray) -> int:
    """The row of the item that is asked for; else one drawn from `among`.

    Raises DataError when no item has that name, or there is none to draw from.
    """
    if asked.item is not None:
        if asked.item not in items.ids:
            raise DataError(
                f"{asked.name} needs --item to name one of {len(items):,}; '{asked.item}' is none of them; they are "
                f"called as {', '.join(items.ids[:3])} are"
            )
        return items.ids.index(asked.item)
    if not len(among):
        raise DataError(f"{asked.name} needs an item to draw; there is none in this split; name one (--item)")
    rows = np.asarray(among, dtype=np.int64)
    return int(rows[draw.uniform(items.keys[rows], seed=asked.seed, epoch=0, purpose="figure item")[:, 0].argmin()])


def lead(pairs: Dataset, split: str) -> str:
    """What a figure is of."""
    return f"{counted(len(pairs.images), 'picture')} and {counted(len(pairs.texts), 'text')}, split {split}."


def _points(found: Above, counts: Sequence[int]) -> list[tuple[float, float]]:
    return [(float(level), float(count)) for level, count in zip(found.thresholds, counts, strict=True)]
