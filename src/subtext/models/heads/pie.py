"""PIE-Net head: K views of an item, each the global vector plus an attention over its parts."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.numerics import masked_mean, masked_softmax, unit


class Views(NamedTuple):
    """Vectors and residuals (N K D), attention (N P K)."""

    vectors: Float[Tensor, "n k d"]
    residuals: Float[Tensor, "n k d"]
    attention: Float[Tensor, "n p k"]


class Pie(nn.Module):
    """PIE-Net head (Song and Soleymani 2019, section 3.2): K diverse vectors of an item with several meanings.

    A = softmax over parts of W2 tanh(W1 x)     x: parts (N P E), A: (N P K)
    r_k = dropout(sigmoid(W A_k^T x + b))       e_k = layer_norm(g + r_k), then e_k / |e_k|

    parts_width   E       width  D     views  K
    pooled_width  width of the encoder's pooled vector; g is dropout(W_g pooled + b_g), or dropout(pooled) where
                  `project` is False
    base          "parts": g is instead the mean over the parts of relu(p / |p|), p = W_g x + b_g, as PCME-bert has it
                  (Li et al. 2022, code); W_g then reads parts. The authors' mean runs over padding as well
    dropout       on g and on r
    W1 and W2 have no bias and E // 2 rows between them. Everything starts Xavier-uniform, biases at zero; the paper's
    code omits that for W_g (card A1.5e).

    Takes   Encoded with parts and a pooled vector.
    Gives   Embeddings, vectors and residuals (N K D).
    Raises  RequirementError when either is missing, or D is not the pooled width without a projection.
    An item with a single part has K equal views: take one.
    """

    def __init__(
        self,
        parts_width: int,
        pooled_width: int,
        width: int,
        *,
        views: int = 1,
        project: bool = True,
        dropout: float = 0.0,
        base: Literal["pooled", "parts"] = "pooled",
    ) -> None:
        super().__init__()
        if views < 1:
            raise RequirementError(f"a PIE-Net head needs at least one view; it got {views}")
        if not project and pooled_width != width:
            raise RequirementError(
                f"PIE-Net without projection needs a pooled vector of the joint width {width}; it got {pooled_width}"
            )
        hidden = max(parts_width // 2, 1)
        self.inner = linear(parts_width, hidden, bias=False)
        self.outer = linear(hidden, views, bias=False)
        self.lift = linear(parts_width, width)
        self.norm = nn.LayerNorm(width)
        self.whole = base
        self.inputs = ("parts", "pooled") if base == "pooled" else ("parts",)
        self.project = linear(pooled_width, width) if project else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """K vectors per item, and their residuals."""
        pooled = encoded.pooled
        if encoded.parts is None or (pooled is None and self.whole == "pooled"):
            missing = "parts" if encoded.parts is None else "a pooled vector"
            raise RequirementError(f"a PIE-Net head needs an encoder with parts and a pooled vector; {missing} missing")
        if self.whole == "parts":
            base = masked_mean(torch.relu(unit(self.project(encoded.parts))), encoded.mask)
        else:
            base = self.project(pooled)
        views = self.views(self.dropout(base), encoded.parts, encoded.mask)
        return Embeddings(vectors=views.vectors, ids=ids, residuals=views.residuals)

    def views(
        self, base: Float[Tensor, "n d"], parts: Float[Tensor, "n p e"], mask: Bool[Tensor, "n p"] | None
    ) -> Views:
        """The views of a global vector in the joint space."""
        logits = self.outer(torch.tanh(self.inner(parts)))
        logits = logits.transpose(1, 2)
        shown = None if mask is None else mask[:, None, :].expand_as(logits)
        attention = masked_softmax(logits, shown).transpose(1, 2)
        residuals = self.dropout(torch.sigmoid(self.lift(attention.transpose(1, 2) @ parts)))
        return Views(unit(self.norm(base[:, None] + residuals)), residuals, attention)
