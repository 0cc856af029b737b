"""Angular loss: a bound on the angle at the negative of a triplet, instead of a distance between scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.objectives.scene import embeddings_of
from subtext.ops.numerics import masked_logsumexp, precise, product


@dataclass(frozen=True)
class Angular:
    """Angular loss (Wang et al. 2017; Thomas and Kovashka 2020, eq. 2): pushes negatives away from a pair's midpoint.

    f_n = 4t (a + p) n - 2 (1 + t) a p,   t = tan^2(degrees)
        smooth  value = log(1 + sum_n exp(f_n))                        (their code; the N-pair form of Wang et al.)
        hinge   value = sum_n [f_n + 2 - 6t]+ = sum_n [|a - p|^2 - 4t |n - (a + p) / 2|^2]+      (their eq. 2)
    for a query a, its positive p and its negatives n, all of unit length; several positives are averaged. At 45 degrees
    the hinge is [f - 4]+: only negatives inside the ball with diameter [a, p] count.

    The class serves every term of that paper by its comparison: image_to_text, text_to_image for the symmetric term,
    image_neighbours and text_neighbours within a modality. Negatives are those of the truth. The paper's code compares
    an item and its neighbour with the other items of the batch; neighbours of other items are ignored.

    With K views, a and p are the best pair of views, and a negative is its view nearest to a + p. The paper does not
    define K > 1; for K = 1 this is the plain formula. The distance-based triplet loss of the paper,
    [|a - p|^2 - |a - n|^2 + m]+, is twice `Triplet` with margin m / 2.

    Args:
        degrees: The angle, in (0, 90); 45 in their code, 36 to 55 with Wang et al.
        form: "smooth" or "hinge", see above.
        repeated: Smooth: whether each of M negatives counts M times, as in their code, which repeats pairs for all M^2
            rows of negatives. That adds log M to the logarithm of the sum; nothing is repeated here.
        include_positive: Smooth: whether the positive is one more negative, as in the symmetric and image terms of
            their code, whose index fails to exclude it. Its f is 4t + (2t - 2) a p, at 45 degrees the constant 4.

    Raises:
        RequirementError: If the angle or form is unknown, the hinge gets a switch that it does not read, or the
            comparison has no embeddings.

    Complexity:
        Time M C K D, memory M C K over all M positives, where repeating would take (C^2)^2.

    Example:
        >>> from subtext.core import Embeddings, Truth
        >>> a = Embeddings(torch.tensor([[[1.0, 0.0, 0.0]]]), torch.arange(1))
        >>> others = Embeddings(torch.tensor([[[0.0, 1.0, 0.0]], [[0.6, 0.8, 0.0]]]), torch.arange(2))
        >>> pair = Comparison(torch.tensor([[0.0, 0.6]]), Truth(torch.tensor([[True, False]])), a, others)
        >>> round(Angular(form="hinge")(pair).item(), 4)  # 4 * 1.4 - 4
        1.6
    """

    degrees: float = 45.0
    form: Literal["smooth", "hinge"] = "smooth"
    repeated: bool = False
    include_positive: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.degrees < 90:
            raise RequirementError(f"Angular needs degrees between 0 and 90; it got {self.degrees}")
        require_choice(self, "form")
        if self.form == "hinge" and (self.repeated or self.include_positive):
            raise RequirementError(
                "Angular needs form 'smooth' for repeated negatives or the positive among them; it got 'hinge'; leave "
                "repeated and include_positive out"
            )

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: With the embeddings on both sides, of unit length; scores, and so temperatures, are not read.

        Returns:
            (Q) >= 0; 0 without positives or without negatives (with `include_positive` log(1 + e^f) of the positive).
            The gradient reaches the views named above.
        """
        anchors, negatives = (precise(items.vectors) for items in embeddings_of(comparison, "Angular"))
        query, candidate = comparison.truth.match.nonzero(as_tuple=True)
        # Of several views a positive counts by its best pair.
        first, second = anchors[query], negatives[candidate]
        best = product(first.detach(), second.detach()).flatten(1).argmax(dim=1)
        rows = torch.arange(len(query), device=query.device)
        first, second = first[rows, best // second.shape[1]], second[rows, best % second.shape[1]]
        middle, fit = first + second, (first * second).sum(dim=1)
        negative = comparison.truth.negative[query]
        t = math.tan(math.radians(self.degrees)) ** 2
        neighbours = (
            product(middle, negatives.flatten(0, 1)).view(len(middle), len(negatives), negatives.shape[1]).amax(dim=2)
        )
        angles = 4 * t * neighbours - (2 * (1 + t) * fit)[:, None]
        if self.form == "hinge":
            values = (angles + (2 - 6 * t)).relu().masked_fill(~negative, 0).sum(dim=1)
        else:
            total, members = masked_logsumexp(angles, negative), negative.sum(dim=1)
            if self.include_positive:
                total, members = torch.logaddexp(total, 4 * t + (2 * t - 2) * fit), members + 1
            times = members.clamp_min(1).to(total.dtype).log() if self.repeated else 0
            values = softplus(total + times)
        counts = torch.bincount(query, minlength=len(anchors)).clamp_min(1)
        return values.new_zeros(len(anchors)).index_add(0, query, values) / counts
