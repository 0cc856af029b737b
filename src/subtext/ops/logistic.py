"""Logistic regression on a few numbers: what Platt's scaling of scores is, with one number or with several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from subtext.errors import ShapeError

ROUNDS = 50
_ENOUGH = 1e-9


@dataclass(frozen=True)
class Logistic:
    """log(p / (1 - p)) = <weights, x> + bias.

    weights  (F), one a number     bias  natural logarithm of the odds where x is 0
    """

    weights: Float[np.ndarray, "f"]
    bias: float

    def log_odds(self, numbers: Float[np.ndarray, "n f"]) -> Float[np.ndarray, "n"]:
        """(N) log(p / (1 - p))."""
        found: NDArray[np.float64] = numbers @ self.weights + self.bias
        return found

    def __call__(self, numbers: Float[np.ndarray, "n f"]) -> Float[np.ndarray, "n"]:
        """(N) probabilities."""
        return sigmoid(self.log_odds(numbers))


def logistic(
    numbers: Float[np.ndarray, "n f"],
    truth: Bool[np.ndarray, "n"],
    weights: Float[np.ndarray, "n"] | None = None,
    *,
    penalty: float = 1e-3,
) -> Logistic:
    """The most likely Logistic (Platt 1999 for one number), by Newton's method.

    weights  of the rows, above 0; None for 1 each
    penalty  on the squares of the weights of numbers that were standardised: it holds them where the classes do not
             overlap, and is not felt else. In units of one row

    Raises ShapeError unless both outcomes are there. Cost time N F^2 a round, a dozen rounds.

    >>> two = logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([True, False, True, True]))
    >>> bool(two(np.array([[0.0]]))[0] < two(np.array([[1.0]]))[0])
    True
    """
    if truth.all() or not truth.any():
        raise ShapeError(
            f"logistic needs rows of both outcomes; of {len(truth)} {int(truth.sum())} are true; give more"
        )
    rows = np.ones(len(truth)) if weights is None else weights
    mean = np.average(numbers, axis=0, weights=rows)
    spread = np.sqrt(np.average((numbers - mean) ** 2, axis=0, weights=rows))
    spread = np.where(spread > 0, spread, 1.0)
    design = np.concatenate([(numbers - mean) / spread, np.ones((len(numbers), 1))], axis=1).astype(np.float64)
    held = np.diag([*[penalty] * numbers.shape[1], 0.0])
    found = np.zeros(design.shape[1])
    found[-1] = np.log(np.average(truth, weights=rows) / np.average(~truth, weights=rows))
    for _ in range(ROUNDS):
        likely = sigmoid(design @ found)
        slope = design.T @ (rows * (truth - likely)) - held @ found
        curve = (design * (rows * np.maximum(likely * (1 - likely), 1e-9))[:, None]).T @ design + held
        step = np.linalg.solve(curve, slope)
        # Far from the best a whole step may lead away: it is cut to what the quadratic can be trusted for.
        found = found + step / max(1.0, float(np.abs(step).max()))
        if float(np.abs(step).max()) < _ENOUGH:
            break
    scaled = found[:-1] / spread
    return Logistic(scaled, float(found[-1] - scaled @ mean))


def sigmoid(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """(N) 1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(values))
    found: NDArray[np.float64] = np.where(values >= 0, 1.0, small) / (1 + small)
    return found
