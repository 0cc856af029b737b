"""Products: a relevance by words, ready to be multiplied out for a whole gallery or for one batch."""

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
    sizes   (G) int64, references of each group
    itself  (R) float64, what a reference counts against its own text
    own     (R) int64, the candidate that each reference is, -1 for none: that cell leaves the reference out, so that no
            text is compared with itself; None compares all with all, as the published figures do

    A cell without references is 0.

    Raises ShapeError when `own` does not name a candidate a reference.
    """

    terms: Terms
    sizes: Int[np.ndarray, "g"]
    itself: Float[np.ndarray, "r"]
    own: Int[np.ndarray, "r"] | None = None

    def __post_init__(self) -> None:
        candidates = len(self.terms.candidates)
        if self.own is not None and (
            len(self.own) != len(self.itself) or bool(((self.own < -1) | (self.own >= candidates)).any())
        ):
            raise ShapeError(
                f"own needs a candidate in [0, {candidates}), or -1, for each of {len(self.itself)} references; it got "
                f"{len(self.own)} from {self.own.min(initial=0)} to {self.own.max(initial=0)}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """G and C."""
        return (self.terms.count, len(self.terms.candidates))

    def all(self, out: Float[np.ndarray, "g c"] | None = None) -> Float[np.ndarray, "g c"]:
        """Every group against every candidate, into `out` (float16 or float32) where it is given."""
        values = group_products(self.terms, out=out)
        if self.own is not None:
            _leave_out(values, self.terms.groups, self.own, self.itself, self.sizes)
        return values

    def block(self, groups: NDArray[np.int64], candidates: NDArray[np.int64]) -> Float[np.ndarray, "g c"]:
        """The chosen groups against the chosen candidates, float32; a batch of training costs a millisecond or two.

        Raises ShapeError where `own` is given: only the whole matrix leaves texts out.
        """
        if self.own is not None:
            raise ShapeError("a block needs all references of its groups; it got some to leave out; ask for all cells")
        return group_products(self.terms.take(groups, candidates), kernel=False)


def _leave_out(
    values: NDArray[np.floating],
    groups: NDArray[np.int64],
    own: NDArray[np.int64],
    itself: NDArray[np.float64],
    sizes: NDArray[np.int64],
) -> None:
    """Take each reference out of the mean at its own text, in place."""
    kept = own >= 0
    cells, places = np.unique(groups[kept] * np.int64(values.shape[1]) + own[kept], return_inverse=True)
    rows, columns = np.divmod(cells, values.shape[1])
    total, left = sizes[rows], sizes[rows] - np.bincount(places)
    sums = values[rows, columns].astype(np.float64) * total - np.bincount(places, itself[kept])
    # Rounding may leave a hair below the nothing that two texts without a common word have.
    values[rows, columns] = np.where(left > 0, np.maximum(sums, 0) / np.maximum(left, 1), 0)
