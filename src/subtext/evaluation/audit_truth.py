"""Whether figures come from content and order: shuffled truth, ties, scores that are no numbers, captions by place."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.dataset import Dataset
from subtext.evaluation.audit import Check, Outcome
from subtext.evaluation.audit_scores import Stability
from subtext.evaluation.gallery import of_pairs as gallery_of
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.metrics.summary import chance_recall
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.result import Result
from subtext.ops import draw
from subtext.ops.rank import Ties, both_directions

_SHUFFLES = 100
"""Shuffled matrices that say how far recall strays from chance."""
_FAR = 5.0
"""Standard deviations from what is expected, from which a figure is no accident."""
_KS = (1, 10)
_TIES = 1.0
"""Per cent of queries that may be tied: so much, at most, a recall then depends on the rule for ties."""
_LEAST = 30
"""Pictures with several captions below which their places are not compared."""
_LIFT, _TIMES = 10.0, 1.5
"""Points and times by which one place is ahead of the others, before it is suspicious."""


def shuffled_truth(base: Stability, *, ties: Ties = "pessimistic") -> Check:
    """Recall where each picture stands in another one's place, beside chance.

    Contents move and names stay: what a model reads off names, numbers or places would still be right.
    """
    sample = base.sample
    order = base.order(len(sample.images), "shuffled truth")
    images = sample.image_embeddings(sample.images, numbers=sample.images, contents=sample.images[order])
    scores = sample.scores(images, sample.text_embeddings(sample.texts))
    match = matching.of_pairs(sample.chosen)
    found, chance = _recalls(scores, match, ties)
    strayed = _strayed(base, match, ties)
    told, above, below = [], [], []
    figures: dict[str, float] = {}
    for name, value in found.items():
        room = 100 * _FAR * max(strayed[name], math.sqrt(chance[name] * (1 - chance[name]) / _queries(name, match)))
        low, high = max(0.0, 100 * chance[name] - room), min(100.0, 100 * chance[name] + room)
        told.append(f"{_label(name)} {100 * value:.1f} (chance {100 * chance[name]:.1f}, up to {high:.1f})")
        figures |= {name: 100 * value, f"{name}/chance": 100 * chance[name], f"{name}/low": low, f"{name}/high": high}
        above += [name] if 100 * value > high else []
        below += [name] if 100 * value < low else []
    remark = "; below chance, because ties count against the model" if below else ""
    outcome: Outcome = "fail" if above else "pass"
    if all(figures[f"{name}/high"] >= 100 for name in found):
        outcome, remark = "not applicable", "; with so few pictures any recall could be chance"
    did = (
        "Every picture of the sample was put in the place of another, with its name, number and partners; recall was "
        f"counted as always. It may be above chance by {_FAR:g} standard deviations of {_SHUFFLES} shuffles."
    )
    return Check("truth", did, outcome, f"{', '.join(told)}{remark}", figures)


def ties(result: Result) -> Check:
    """How many queries have a wrong candidate with the very score of their partner."""
    shares = {d: result.figures[f"{d}/tie_share"] for d in DIRECTIONS}
    told = ", ".join(f"{_spelt(d)} {share:.2f} % of queries" for d, share in shares.items())
    did = f"Queries were counted where a wrong candidate has exactly the partner's score; {_TIES:g} % may."
    outcome: Outcome = "fail" if max(shares.values()) > _TIES else "pass"
    why = "; figures depend on the rule for ties (here the partner stands behind all of its score)"
    return Check(
        "ties",
        did,
        outcome,
        told + (why if outcome == "fail" else ""),
        {f"{d}/tie_share": s for d, s in shares.items()},
    )


def finite(
    result: Result, images: Embeddings | None, texts: Embeddings | None, scores: Float[Tensor, "i t"] | None
) -> Check:
    """Whether all vectors and scores are numbers.

    images, texts  vectors; None where there are none        scores  of a sample, or all; None where there are none
    """
    vectors = {
        name: int((~items.vectors.isfinite()).any(-1).any(-1).sum())
        for name, items in (("pictures", images), ("texts", texts))
        if items is not None
    }
    figures = {**vectors, "nan_scores": int(max(result.figures[f"{d}/nan_scores"] for d in DIRECTIONS))}
    if scores is not None:
        figures["infinite_scores"] = int(torch.isinf(scores).sum())
    seen = ["vectors of all pictures and texts"] if vectors else []
    seen += ["all scores", *(["the scores at hand for infinity"] if scores is not None else [])]
    did = f"These were looked at: {', '.join(seen)}."
    told = {"pictures": "vectors of pictures", "texts": "vectors of texts", "nan_scores": "scores that are no number"}
    found = ", ".join(f"{told.get(name, 'infinite scores')} {count:,}" for name, count in figures.items())
    return Check("finite", did, "fail" if any(figures.values()) else "pass", found, figures)


def caption_places(result: Result, pairs: Dataset) -> Check:
    """Recall@1 of texts by their place among the texts of their picture: one that was seen with it would stand out."""
    did = (
        "Recall@1 of texts asking for pictures was told apart by the place of the text among those of its picture. A "
        f"place may not be ahead of the others by {_FAR:g} standard errors, {_LIFT:g} points and {_TIMES:g} times."
    )
    owners = gallery_of(pairs).owners
    hits = 100 * result.per_query["text_to_image/recall@1"]
    places = _places(owners)
    known = (owners >= 0) & ~np.isnan(hits)
    several = np.bincount(owners[known], minlength=len(pairs.images)) > 1
    if several.sum() < _LEAST:
        found = f"only {int(several.sum())} pictures have several texts; {_LEAST} are needed"
        return Check("captions", did, "not applicable", found)
    chosen = known & several[owners]
    told, suspicious = [], []
    figures: dict[str, float] = {}
    for place in range(int(places[chosen].max()) + 1):
        mine, others, error = _apart(hits, owners, chosen, places == place)
        if math.isnan(mine):
            continue
        told.append(f"{place + 1}: {mine:.1f}")
        figures[f"recall@1 of text {place + 1}"] = mine
        if mine - others > max(_LIFT, _FAR * error) and mine > _TIMES * others:
            suspicious.append(f"text {place + 1} finds its picture in {mine:.1f} %, the others in {others:.1f} %")
    if not suspicious:
        return Check("captions", did, "pass", f"recall@1 by place: {', '.join(told)}", figures)
    why = "its picture's features may have been made with it; or texts at that place are of another kind, as titles are"
    return Check("captions", did, "fail", f"{'; '.join(suspicious)}: {why}", figures)


def _recalls(scores: Tensor, match: Match, ties: Ties) -> tuple[dict[str, float], dict[str, float]]:
    """Recall and chance, shares, by "<direction>/recall@<k>"."""
    counts = both_directions(scores, match.image_to_text, match.text_to_image, stable=ties == "stable")
    found, chance = {}, {}
    for direction, each in zip(DIRECTIONS, counts, strict=True):
        for k in _KS:
            found[f"{direction}/recall@{k}"] = float(np.nanmean(Recall(k, ties).of(each)))
            chance[f"{direction}/recall@{k}"] = float(np.nanmean(chance_recall(each, k)))
    return found, chance


def _strayed(base: Stability, match: Match, ties: Ties) -> dict[str, float]:
    """Standard deviation of recall over shuffles of scores as they are: hubs, which many find, make it larger."""
    found: dict[str, list[float]] = {}
    for turn in range(_SHUFFLES):
        order = draw.permutation(len(base.scores), seed=base.seed, epoch=turn, purpose="audit chance")
        for name, value in _recalls(base.scores[torch.from_numpy(order)], match, ties)[0].items():
            found.setdefault(name, []).append(value)
    return {name: float(np.std(values)) for name, values in found.items()}


def _queries(name: str, match: Match) -> int:
    direction: Direction = "image_to_text" if name.startswith("image") else "text_to_image"
    return max(1, int((match.cells(direction).lengths > 0).sum()))


def _places(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """(T) how many texts of the same picture stand before each."""
    order = np.argsort(owners, kind="stable")
    begins = np.flatnonzero(np.diff(owners[order], prepend=-2))
    lengths = np.diff(np.append(begins, len(owners)))
    places = np.empty(len(owners), dtype=np.int64)
    places[order] = np.arange(len(owners)) - np.repeat(begins, lengths)
    return places


def _apart(
    hits: NDArray[np.float64], owners: NDArray[np.int64], chosen: NDArray[np.bool_], here: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Mean at a place, mean of the other texts of the same pictures, and the standard error of their difference."""
    count = int(owners.max()) + 1
    sums = [np.bincount(owners[rows], hits[rows], minlength=count) for rows in (chosen & here, chosen & ~here)]
    sizes = [np.bincount(owners[rows], minlength=count) for rows in (chosen & here, chosen & ~here)]
    both = (sizes[0] > 0) & (sizes[1] > 0)
    if both.sum() < _LEAST:
        return math.nan, math.nan, math.nan
    mine, others = sums[0][both] / sizes[0][both], sums[1][both] / sizes[1][both]
    error = float(np.std(mine - others, ddof=1)) / math.sqrt(int(both.sum()))
    return float(mine.mean()), float(others.mean()), error


def _label(name: str) -> str:
    return name.replace("_", " ").replace("/", " ")


def _spelt(direction: Direction) -> str:
    return direction.replace("_", " ")
