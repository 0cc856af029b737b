"""Products: a relevance by words, ready to be multiplied out for a whole gallery or for one batch.

Own: leaving a text out where it would be compared with itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops.group_products import Terms, group_products


@dataclass(frozen=True)
class Products:
    """Mean relevance of each candidate to the references of each group, not yet computed.

    terms   the sparse rows; references are weighed so that their sum over a group is the mean
    itself  (R) float64, what a reference counts against its own text
    own     (R) int64, the candidate that each reference is, -1 for none: that cell leaves the reference out, so that no
            text is compared with itself; None compares all with all, as the published figures do

    A cell without references is 0.
    """

    terms: Terms
    itself: Float[np.ndarray, "r"]
    own: Int[np.ndarray, "r"] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """G and C."""
        return (self.terms.count, len(self.terms.candidates))

    def all(self, out: Float[np.ndarray, "g c"] | None = None) -> Float[np.ndarray, "g c"]:
        """Every group against every candidate, into `out` (float16 or float32) where it is given.

        Raises ShapeError when `own` does not name a candidate a reference, or `out` has another shape.
        """
        values = group_products(self.terms, out=out)
        if self.own is not None:
            leave_out(values, self.terms.groups, self.own, self.itself)
        return values

    def block(self, groups: NDArray[np.int64], candidates: NDArray[np.int64]) -> Float[np.ndarray, "g c"]:
        """The chosen groups against the chosen candidates, float32; a batch of training costs a millisecond or two.

        Raises ShapeError where `own` is given: only the whole matrix leaves texts out.
        """
        if self.own is not None:
            raise ShapeError("a block needs all references of its groups; it got some to leave out; ask for all cells")
        return group_products(self.terms.take(groups, candidates), kernel=False)


def leave_out(
    values: Float[np.ndarray, "g c"],
    groups: Int[np.ndarray, "r"],
    self_columns: Int[np.ndarray, "r"],
    itself: Float[np.ndarray, "r"],
    *,
    least: float = 0.0,
) -> None:
    """Take each reference out of its group's mean at the candidate that it is, in place; a mean of none is 0.

    groups  (R) the group of each reference        own  (R) the candidate that it is, -1 for none
    itself  (R) what it counts against itself
    least   what no value is below: rounding may leave a hair less where two texts share nothing

    Raises ShapeError when `self_columns` does not name a candidate a reference.
    """
    width = values.shape[1]
    if len(self_columns) != len(groups) or bool(((self_columns < -1) | (self_columns >= width)).any()):
        raise ShapeError(
            f"self_columns needs a candidate in [0, {width}), or -1, for each of {len(groups)} references; "
            f"it got {len(self_columns)} from {self_columns.min(initial=0)} to {self_columns.max(initial=0)}"
        )
    sizes = np.bincount(groups, minlength=values.shape[0])
    has_self = self_columns >= 0
    cells, cell_ids = np.unique(groups[has_self] * np.int64(width) + self_columns[has_self], return_inverse=True)
    rows, columns = np.divmod(cells, width)
    remaining = sizes[rows] - np.bincount(cell_ids, minlength=len(cells))
    sums = values[rows, columns].astype(np.float64) * sizes[rows]
    sums -= np.bincount(cell_ids, itself[has_self], minlength=len(cells))
    values[rows, columns] = np.where(remaining > 0, np.maximum(sums / np.maximum(remaining, 1), least), 0)
