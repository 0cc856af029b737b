"""What the cosine of a pair says of its being right, where as many pairs are right as are put together by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.ops import draw
from subtext.ops.isotonic import Rising, rising
from subtext.ops.reliability import reliability


def pair_curve(
    pairs: Dataset, images: NDArray[np.float32], texts: NDArray[np.float32], *, seed: int = 0
) -> dict[str, Any]:
    """A pair's cosine as the probability that it is right, where as many pairs are right as are put together by chance.

    images, texts  (I K D) and (T L D) vectors of the pairs' items

    A chance pair is a picture and the text of another group, in a drawn order. Gives steps "xs" and "ys" that were
    fitted on one half of the groups, and "calibration_error", "brier" and "pairs" of the other.
    """
    links = pairs.links
    groups = pairs.images.groups[links[:, 0]]
    first = first_half(groups, seed)
    likely: dict[str, Any] = {}
    order = np.argsort(draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: chance")[:, 0], kind="stable")
    for name, half in (("fit", first), ("measure", ~first)):
        rows = order[half[order]]
        apart = int(np.unique(groups[rows], return_counts=True)[1].max(initial=1))
        pictures, right = links[rows, 0], links[rows, 1]
        wrong = np.roll(right, apart)
        scores = np.concatenate(
            [cosines_of_pairs(images[pictures], texts[right]), cosines_of_pairs(images[pictures], texts[wrong])]
        )
        likely[name] = scores, np.arange(2 * len(rows)) < len(rows)
    scores, truth = likely["fit"]
    curve = held_off(rising(scores, truth.astype(np.float64)), int(truth.sum()))
    scores, truth = likely["measure"]
    told = curve(scores)
    return {
        "xs": curve.xs.tolist(),
        "ys": curve.ys.tolist(),
        "calibration_error": reliability(told, truth).error,
        "brier": float(np.mean((told - truth) ** 2)),
        "pairs": len(truth) // 2,
    }


def cosines_of_pairs(images: NDArray[np.float32], texts: NDArray[np.float32]) -> NDArray[np.float64]:
    """(N) scores of pictures with texts, row by row, of the views that fit best."""
    found: NDArray[np.float64] = np.einsum("nkd,nld->nkl", images, texts).max(axis=(1, 2)).astype(np.float64)
    return found


def first_half(groups: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """(N) whether each belongs to the half that is fitted on; those of a group go together."""
    return draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: half")[:, 0] < 0.5


def held_off(curve: Rising, count: int) -> Rising:
    """Away from 0 and 1: nothing is sure of which only so many were seen."""
    least = 1 / (count + 2)
    return Rising(curve.xs, np.clip(curve.ys, least, 1 - least))
