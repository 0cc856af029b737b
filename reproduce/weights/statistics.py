"""Statistics of the neighbourhood scores of a data set, and of the weights that result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import DataError
from subtext.evaluation.metrics.agreement import spearman
from subtext.objectives.weighting import Neighbourhood
from subtext.ops import draw

BINS = 30
SCORES, MODALITIES = ("diversity", "discrepancy"), ("image", "text")


@dataclass(frozen=True)
class Spread:
    """One score of one modality over a data set.

    known      pairs that have it            mean, deviation  over them; the population's deviation
    low, high  ends of the histogram         counts           (BINS) pairs per bin
    """

    known: int
    mean: float
    deviation: float
    low: float
    high: float
    counts: list[int]


@dataclass(frozen=True)
class Weights:
    """Scores and weights of a data set.

    pairs        number with all scores
    spreads      "diversity/image" and so on
    correlation  modality -> Spearman's between the two scores; "both" over the pairs of both (the paper: .052)
    effective    weighting -> effective sample size of its weights over the sample size, (sum w)^2 / (n sum w^2), mean
                 over batches; 1 for uniform weights
    """

    pairs: int
    spreads: dict[str, Spread]
    correlation: dict[str, float]
    effective: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def explain(
    table: Mapping[str, Tensor],
    weighting: Neighbourhood,
    *,
    combined: Mapping[str, Neighbourhood] | None = None,
    batch: int = 32,
    seed: int = 0,
) -> Weights:
    """Describe the score tables of an epoch, and the weights of each score and of both combined, in random batches.

    weighting  total, sign, combination and placement of the weights of each score; its beta and gamma are not read
    combined   name -> a weighting with beta and gamma, or with statistics

    Raises DataError where fewer than two pairs have all scores.
    """
    values = {name: table[name].double() for score in SCORES for m in MODALITIES if (name := f"{score}/{m}")}
    known = ~torch.stack(list(values.values())).isnan().any(dim=0)
    if int(known.sum()) < 2:
        raise DataError(f"explaining weights needs two pairs with neighbours or more; it got {int(known.sum())}")
    complete = {name: value[known] for name, value in values.items()}
    order = draw.permutation(int(known.sum()), seed=seed, epoch=0, purpose="weights")
    weightings = {score: single_score(weighting, score) for score in SCORES} | dict(combined or {})
    return Weights(
        pairs=int(known.sum()),
        spreads={name: spread(value) for name, value in values.items()},
        correlation={
            m: spearman(complete[f"diversity/{m}"].numpy(), complete[f"discrepancy/{m}"].numpy()) for m in MODALITIES
        }
        | {"both": spearman(*(torch.cat([complete[f"{score}/{m}"] for m in MODALITIES]).numpy() for score in SCORES))},
        effective={name: effective(*_signed(table, known, w), w, order, batch) for name, w in weightings.items()},
    )


def mean_weights(
    table: Mapping[str, Tensor],
    weighting: Neighbourhood,
    *,
    batch: int = 32,
    repeats: int = 50,
    seed: int = 0,
) -> Float[Tensor, "n"]:
    """(N) the weight of every pair, mean over random partitions of the data set into batches.

    weighting  with beta and gamma, or statistics; `single_score` gives that of one score

    A weight is relative to its batch, so that of one batch means little. NaN for a pair without a score.
    """
    values = {name: table[name].double() for score in SCORES for m in MODALITIES if (name := f"{score}/{m}")}
    read = [score for score in SCORES if getattr(weighting, score)]
    known = ~torch.stack([values[f"{score}/{m}"] for score in read for m in MODALITIES]).isnan().any(dim=0)
    rows = torch.nonzero(known)[:, 0]
    image, text = (torch.full((len(known),), torch.nan, dtype=torch.float64) for _ in MODALITIES)
    image[rows], text[rows] = _signed(table, known, weighting)
    total, size = torch.zeros(len(known), dtype=torch.float64), min(batch, len(rows))
    for repeat in range(repeats):
        order = rows[torch.from_numpy(draw.permutation(len(rows), seed=seed, epoch=repeat, purpose="weights"))]
        # The last batch is filled from the front, so every batch is complete; the repeated pairs count once.
        for start in range(0, len(order), size or 1):
            chosen = torch.cat([order[start:], order])[:size]
            fresh = min(size, len(order) - start)
            total[chosen[:fresh]] += weighting.weights(image[chosen], text[chosen])[:fresh]
    means = torch.full_like(total, torch.nan)
    means[rows] = total[rows] / repeats
    return means


def unevenness(
    table: Mapping[str, Tensor], weighting: Neighbourhood, score: str, *, batch: int = 32, seed: int = 0
) -> tuple[float, float]:
    """A score's standard deviation, mean of both modalities, and the effective sample size of its weights.

    Raises DataError where fewer than two pairs have the score.
    """
    values = {name: table[name].double() for m in MODALITIES if (name := f"{score}/{m}")}
    known = ~torch.stack(list(values.values())).isnan().any(dim=0)
    if int(known.sum()) < 2:
        raise DataError(
            f"a deviation of {score} needs two pairs with neighbours or more; it got {int(known.sum())}; build a graph "
            "of more texts"
        )
    single = single_score(weighting, score)
    order = draw.permutation(int(known.sum()), seed=seed, epoch=0, purpose="weights")
    deviation = float(np.mean([spread(value).deviation for value in values.values()]))
    return deviation, effective(*_signed(table, known, single), single, order, batch)


def spread(values: Float[Tensor, "n"]) -> Spread:
    """Mean, deviation and histogram of the values that are not NaN."""
    known = values[~values.isnan()].double().numpy()
    if not len(known):
        return Spread(0, float("nan"), float("nan"), 0.0, 0.0, [0] * BINS)
    counts, edges = np.histogram(known, bins=BINS)
    return Spread(
        len(known), float(known.mean()), float(known.std()), float(edges[0]), float(edges[-1]), counts.tolist()
    )


def effective(
    image: Float[Tensor, "n"],
    text: Float[Tensor, "n"],
    weighting: Neighbourhood,
    order: NDArray[np.int64],
    batch: int,
) -> float:
    """Effective sample size of the weights over the sample size, mean over complete batches (at least one).

    image, text  u of each modality: signed scores, as in `Neighbourhood`
    """
    size = min(batch, len(order))
    shares = []
    for start in range(0, len(order) - size + 1, size):
        rows = torch.from_numpy(order[start : start + size])
        weights = weighting.weights(image[rows], text[rows])
        shares.append(float(weights.sum() ** 2 / (size * weights.square().sum())))
    return float(np.mean(shares))


def single_score(weighting: Neighbourhood, score: str) -> Neighbourhood:
    """The weighting with one of the scores."""
    return replace(
        weighting, diversity=float(score == "diversity"), discrepancy=float(score == "discrepancy"), statistics="none"
    )


def _signed(table: Mapping[str, Tensor], known: Bool[Tensor, "n"], weighting: Neighbourhood) -> tuple[Tensor, Tensor]:
    """(K) u of images and of texts for the pairs with all scores; statistics are of all pairs with the score."""

    def of(modality: str) -> Tensor:
        total = torch.zeros(int(known.sum()), dtype=torch.float64)
        for score, coefficient in (("diversity", weighting.diversity), ("discrepancy", weighting.discrepancy)):
            if not coefficient:
                continue
            if weighting.statistics != "none":
                scope = modality if weighting.statistics == "each" else "both"
                coefficient = coefficient * float(table[f"moments/{score}/{scope}"].double().prod())
            total += weighting.sign * coefficient * table[f"{score}/{modality}"].double()[known]
        return total

    return of("image"), of("text")
