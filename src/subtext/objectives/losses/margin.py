"""Margin loss: distances of positives below a boundary and of negatives above it, each by a margin."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.numerics import precise

_NEAREST = 1e-8
"""Least squared distance: that of a vector to itself has no gradient."""


@dataclass(frozen=True)
class Margin:
    """Margin loss (Wu et al. 2017, section 4): keeps positives within a distance and negatives beyond it.

    value_q = sum_{p in P_q} [d_qp - boundary + margin]+ + sum_{n in N_q} [boundary - d_qn + margin]+
    with d = sqrt(2 - 2 s). Made for few negatives per query, sampled by `DistanceSampling` (mining).

    The authors' code divides by the number of terms above 0 in the batch. Here the mean over queries is taken: the same
    direction, with smaller steps as fewer terms are active.

    The authors learn a boundary for every class, starting at 1.2. Here a class is one pair, seen once per epoch, and
    losses own no parameters: the boundary is fixed.

    Args:
        margin: A distance, 0 or more; 0.2 in their code.
        boundary: A distance, above 0; 1.2 in their code.

    Raises:
        RequirementError: If margin is below 0, or boundary is not above 0.

    Complexity:
        Time and memory Q C.

    Example:
        >>> import torch
        >>> from subtext.core import Truth
        >>> distances = torch.tensor([[1.1, 1.0]])  # a positive and a negative, 0.1 and 0.4 beyond their bounds
        >>> whole = Comparison(1 - distances**2 / 2, Truth(torch.tensor([[True, False]])))
        >>> round(Margin()(whole).item(), 4)
        0.5
    """

    margin: float = 0.2
    boundary: float = 1.2

    def __post_init__(self) -> None:
        if not (self.margin >= 0 and self.boundary > 0):
            raise RequirementError(
                "Margin needs a margin of 0 or more and a boundary above 0, both distances; it got "
                f"{self.margin} and {self.boundary}"
            )

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Of plain cosines; ignored cells are left out.

        Returns:
            (Q) >= 0. The gradient reaches the pairs whose term is above 0.
        """
        truth = comparison.truth
        distances = (2 - 2 * precise(comparison.scores)).clamp_min(_NEAREST).sqrt()
        hard = (distances - self.boundary + self.margin).relu().masked_fill(~truth.match, 0)
        far = (self.boundary - distances + self.margin).relu().masked_fill(~truth.negative, 0)
        return (hard + far).sum(dim=1)
