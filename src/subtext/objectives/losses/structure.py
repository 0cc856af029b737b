"""Structure-preserving margin (Wang, Li and Lazebnik 2016): by distances, over the worst violations of each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.ops.numerics import precise

SMALLEST = 1e-4
"""Added under the root of a distance, as in the authors' code: its gradient stays finite at zero."""


@dataclass(frozen=True)
class Structure:
    """Margin between distances, averaged over the largest violations (Wang, Li and Lazebnik 2016, equations 1 to 3).

    d_qc = sqrt(2 - 2 s_qc + 1e-4),   v_qpn = [margin + d_qp - d_qn]+,   [x]+ = max(0, x)
        each      value_q = mean over positives p of the mean of the `hardest` largest v_qpn
        farthest  the same with the farthest positive: the full neighbourhood is nearer than any negative
    The paper's objective is 1.5 times `each` on text_to_image, plus `each` on image_to_text, plus 0.05 times
    `farthest` on text_neighbours, all with mean reduction.

    Args:
        margin: A distance, 0 or more; 0.05 in the code.
        hardest: Number of negatives, 1 or more, 10 in the code; all where there are fewer.
        positives: "each" or "farthest", see above.

    Raises:
        RequirementError: If margin is below 0, hardest is below 1, or the kind of positives is unknown.

    Complexity:
        A partial sort of each positive's row: time and memory |P| C over all positives.

    Example:
        >>> from subtext.core import Truth
        >>> pair = Comparison(torch.tensor([[1.0, 0.5, 1.0]]), Truth(torch.tensor([[True, False, False]])))
        >>> round(Structure(margin=0.1, hardest=1)(pair).item(), 4)  # 0.1 + 0.01 - 0.01
        0.1
    """

    margin: float = 0.05
    hardest: int = 10
    positives: Literal["each", "farthest"] = "each"

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise RequirementError(f"Structure needs a margin of 0 or more, in distances; it got {self.margin}")
        if self.hardest < 1:
            raise RequirementError(f"Structure needs 1 negative or more; it got hardest={self.hardest}")
        require_choice(self, "positives")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Whose scores are cosines; ignored cells are neither positive nor negative.

        Returns:
            (Q) >= 0; 0 without positives or without negatives. The gradient reaches positives and those negatives.
        """
        distances = ((2 - 2 * precise(comparison.scores)).clamp_min(0) + SMALLEST).sqrt()
        match, negative = comparison.truth.match, comparison.truth.negative
        if self.positives == "farthest":
            farthest = distances.masked_fill(~match, -torch.inf).amax(dim=1)
            query = match.any(dim=1).nonzero()[:, 0]
            positive = farthest[query]
        else:
            query, column = match.nonzero(as_tuple=True)
            positive = distances[query, column]
        broken = (self.margin + positive[:, None] - distances[query]).relu().masked_fill(~negative[query], 0)
        worst = broken.topk(min(self.hardest, broken.shape[1]), dim=1).values.sum(dim=1)
        values = worst / negative[query].sum(dim=1).clamp(1, self.hardest)
        counts = torch.bincount(query, minlength=len(distances)).clamp_min(1)
        return values.new_zeros(len(distances)).index_add(0, query, values) / counts
