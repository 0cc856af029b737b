"""Own: leaving a text out where it would be compared with itself."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from subtext.errors import ShapeError


def leave_out(
    values: Float[np.ndarray, "g c"],
    groups: Int[np.ndarray, "r"],
    own: Int[np.ndarray, "r"],
    itself: Float[np.ndarray, "r"],
    *,
    least: float = 0.0,
) -> None:
    """Take each reference out of its group's mean at the candidate that it is, in place; a mean of none is 0.

    groups  (R) the group of each reference        own  (R) the candidate that it is, -1 for none
    itself  (R) what it counts against itself
    least   what no value is below: rounding may leave a hair less where two texts share nothing

    Raises ShapeError when `own` does not name a candidate a reference.
    """
    width = values.shape[1]
    if len(own) != len(groups) or bool(((own < -1) | (own >= width)).any()):
        raise ShapeError(
            f"own needs a candidate in [0, {width}), or -1, for each of {len(groups)} references; it got {len(own)} "
            f"from {own.min(initial=0)} to {own.max(initial=0)}"
        )
    sizes = np.bincount(groups, minlength=values.shape[0])
    kept = own >= 0
    cells, places = np.unique(groups[kept] * np.int64(width) + own[kept], return_inverse=True)
    rows, columns = np.divmod(cells, width)
    left = sizes[rows] - np.bincount(places, minlength=len(cells))
    sums = values[rows, columns].astype(np.float64) * sizes[rows]
    sums -= np.bincount(places, itself[kept], minlength=len(cells))
    values[rows, columns] = np.where(left > 0, np.maximum(sums / np.maximum(left, 1), least), 0)
