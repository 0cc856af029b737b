"""Isotonic regression: the rising function that comes nearest to what was seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.errors import ShapeError


@dataclass(frozen=True)
class Rising:
    """A function that never falls: the value ys[i] at xs[i], straight between them, level beyond the ends.

    xs, ys  (K) both rising
    """

    xs: Float[np.ndarray, "k"]
    ys: Float[np.ndarray, "k"]

    def __call__(self, values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """(N) the function's values."""
        found: NDArray[np.float64] = np.interp(values, self.xs, self.ys)
        return found


def rising(
    values: Float[np.ndarray, "n"], seen: Float[np.ndarray, "n"], weights: Float[np.ndarray, "n"] | None = None
) -> Rising:
    """The rising f with the least sum_i w_i (f(x_i) - y_i)^2, by pooling adjacent violators (Ayer and others 1955).

    values   x, finite; equal ones are one, with the mean of what was seen
    seen     y, such as 0 and 1: f is then the share of ones at x, as Zadrozny and Elkan (2002) use it
    weights  above 0; None for 1 each

    Between two levels f is a straight line. Raises ShapeError where there is nothing, or something that is no number.
    Cost a sort, and time linear in N.

    >>> found = rising(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> found(np.array([0.0, 2.5, 3.5, 9.0])).tolist()
    [0.0, 0.5, 0.75, 1.0]
    """
    if not len(values) or not (np.isfinite(values).all() and np.isfinite(seen).all()):
        raise ShapeError(f"rising needs one number or more, all finite; it got {len(values)}; leave the others out")
    given = np.ones(len(values)) if weights is None else weights
    xs, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, given)
    total = np.bincount(place, given * seen)
    levels: list[float] = []
    masses: list[float] = []
    ends: list[int] = []
    for end, (own, weight) in enumerate(zip((total / mass).tolist(), mass.tolist(), strict=True)):
        level = own
        while levels and levels[-1] >= level:
            other, its = levels.pop(), masses.pop()
            ends.pop()
            level = (other * its + level * weight) / (its + weight)
            weight += its
        levels.append(level)
        masses.append(weight)
        ends.append(end)
    starts = [0, *(end + 1 for end in ends[:-1])]
    # A level is held from its first value to its last; one value alone is one point.
    points = [(x, level) for s, e, level in zip(starts, ends, levels, strict=True) for x in dict.fromkeys((s, e))]
    return Rising(xs[[x for x, _ in points]].astype(np.float64), np.array([level for _, level in points]))
