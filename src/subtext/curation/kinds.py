"""Whether a pair is literal, loose or mismatched, as probabilities, from how its alignment lies beside made pairs.

What a mismatch looks like is known: pictures with texts drawn by chance. What a loose pair looks like, too: pictures
with the texts of neighbours. Only how many of either there are is not; that is read from the low end of what is seen
(the two-groups model: Efron 2008; reading a share where the other group hardly lies: Storey 2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Kind = Literal["literal", "loose", "mismatched"]
KINDS: tuple[Kind, Kind, Kind] = ("literal", "loose", "mismatched")
LOW = 0.2
"""Share of the made pairs that are nearest to literal ones in whose low part shares are read."""
BINS = 10
ROUNDS = 10


@dataclass(frozen=True)
class Kinds:
    """Of each pair its probabilities, and of all the shares.

    literal, loose, mismatched  (L), which add up to 1
    shares                      of the loose and the mismatched among all pairs, as they were estimated
    """

    literal: Float[np.ndarray, "l"]
    loose: Float[np.ndarray, "l"]
    mismatched: Float[np.ndarray, "l"]
    shares: dict[str, float]

    @property
    def likeliest(self) -> list[Kind]:
        """(L) the kind of the greatest probability."""
        table = np.stack([self.literal, self.loose, self.mismatched])
        return [KINDS[row] for row in table.argmax(axis=0)]


def kinds_of(
    observed: Float[np.ndarray, "l"],
    chance: Float[np.ndarray, "c"],
    neighbour_scores: Float[np.ndarray, "n"] | None = None,
) -> Kinds:
    """Probabilities of the pairs from their alignments.

    observed    of the pairs themselves; larger is better
    chance  of pictures with texts that were drawn by chance
    neighbour_scores    of pictures with texts of neighbours; None calls nothing loose

    P(mismatched | a) = share * f_chance(a) / f_seen(a), the ratio by isotonic regression, and alike for the loose, to
    whom falls what the mismatched leave. Shares are those under which chance and near pairs together give the low end
    of what is seen, as if no literal pair lay there: where some do, the share of the loose comes out too large.

    >>> seen, chance = np.array([0.0] * 10 + [9.0] * 90), np.array([0.0] * 100)
    >>> found = kinds_of(seen, chance)
    >>> round(found.shares["mismatched"], 6), round(float(found.mismatched[0]), 6), float(found.mismatched[-1])
    (0.1, 1.0, 0.0)
    """
    if neighbour_scores is None or not len(neighbour_scores):
        (wrong,) = _shares(observed, [chance])
        mismatched = np.minimum(1.0, wrong * _ratio(observed, chance))
        return Kinds(1 - mismatched, np.zeros(len(observed)), mismatched, {"loose": 0.0, "mismatched": wrong})
    chosen, taken = _shares(observed, [chance, neighbour_scores])
    # A mismatched text's neighbours are mismatched, too: as large a part of the near is chance as of the seen.
    wrong = min(1.0, chosen / max(1 - taken, 1e-12))
    by_chance = _ratio(observed, chance)
    mismatched = np.minimum(1.0, wrong * by_chance)
    loose = np.clip(taken * (_ratio(observed, neighbour_scores) - wrong * by_chance), 0.0, 1 - mismatched)
    return Kinds(1 - mismatched - loose, loose, mismatched, {"loose": taken * (1 - wrong), "mismatched": wrong})


def _shares(observed: NDArray[np.float64], mixtures: list[NDArray[np.float64]]) -> list[float]:
    """How many of the seen are like each of the made, by least squares over bins of their low end, none below 0."""
    limit = float(np.quantile(mixtures[-1], LOW))
    low = np.concatenate([mixture[mixture <= limit] for mixture in mixtures])
    edges = np.unique(np.quantile(low, np.linspace(0, 1, BINS + 1)[1:]))
    target = _in_bins(observed, edges)
    parts = np.stack([_in_bins(mixture, edges) for mixture in mixtures], axis=1)
    # A bin counts by how sure it is: by the inverse of what is expected there.
    expected = np.maximum(target, 1 / len(observed))
    shares = np.zeros(len(mixtures))
    for _ in range(ROUNDS):
        shares = _not_negative(parts, target, 1 / expected)
        expected = np.maximum(parts @ shares, 1 / len(observed))
    return [float(mixture) for mixture in np.abs(shares) / max(1.0, float(shares.sum()))]


def _in_bins(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of the values up to the first edge, from there to the second, and so on; the rest is left out."""
    bins = np.searchsorted(edges, values, side="left")
    shares: NDArray[np.float64] = np.bincount(bins, minlength=len(edges) + 1)[: len(edges)] / len(values)
    return shares


def _not_negative(
    parts: NDArray[np.float64], target: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted least squares of one or two parts, none below 0."""
    best, least = np.zeros(parts.shape[1]), np.inf
    for chosen in ([0], [1], [0, 1]) if parts.shape[1] > 1 else ([0],):
        some = parts[:, chosen] * np.sqrt(weights)[:, None]
        solved = np.linalg.lstsq(some, target * np.sqrt(weights), rcond=None)[0]
        apart = float(np.square(some @ solved - target * np.sqrt(weights)).sum())
        if (solved >= 0).all() and apart < least:
            best, least = np.zeros(parts.shape[1]), apart
            best[chosen] = solved
    return best


def _ratio(observed: NDArray[np.float64], mixture: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L) how much denser the made pairs are than the seen at each of the seen, never rising with the alignment."""
    from sklearn.isotonic import IsotonicRegression

    values = np.concatenate([observed, mixture])
    truth = np.concatenate([np.zeros(len(observed)), np.ones(len(mixture))])
    # Both count alike as a whole, so that the odds are the ratio of the densities.
    weights = np.concatenate(
        [np.full(len(observed), 1 / max(1, len(observed))), np.full(len(mixture), 1 / max(1, len(mixture)))]
    )
    model = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(values, truth, sample_weight=weights)
    likely = model.predict(observed)
    ratios: NDArray[np.float64] = likely / np.maximum(1 - likely, 1e-12)
    return ratios
