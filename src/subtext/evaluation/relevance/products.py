"""Products: a relevance by words, ready to be multiplied out for a whole gallery or for one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.evaluation.relevance.own import leave_out
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
