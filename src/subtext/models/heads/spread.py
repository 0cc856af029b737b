"""Spread by attention: how uncertain an item is, read from its parts and from the whole."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.gru import end_states, padded_states
from subtext.ops.numerics import masked_softmax


class Spread(nn.Module):
    """Uncertainty module (PCME, Chun et al. 2021, section 3.2): one more attention over the parts, and the whole.

    log_std = W A(x) + b + g     A: sum over parts x (N P E) by softmax of w2 tanh(W1 x)

    g is a map of the pooled vector, W_g pooled + b_g, or with `recurrent` the end of a GRU of both directions that
    reads the parts, as published for words.

    parts_width  E       width  D     pooled_width  of the pooled vector; None with `recurrent`
    start        what b starts at: 0 as published, exp(0) = 1 in every dimension beside means of length 1; a lower one
                 lets a short training begin with draws near their mean

    Takes   Encoded with parts, and without `recurrent` with a pooled vector.
    Gives   (N D), unbounded.
    Raises  RequirementError when either is missing, and for an odd width with `recurrent`.
    """

    def __init__(
        self,
        parts_width: int,
        width: int,
        *,
        pooled_width: int | None = None,
        recurrent: bool = False,
        start: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = max(parts_width // 2, 1)
        self.inner = linear(parts_width, hidden, bias=False)
        self.outer = linear(hidden, 1, bias=False)
        self.lift = linear(parts_width, width)
        nn.init.constant_(self.lift.bias, start)
        self.whole: nn.Linear | None = None
        if recurrent:
            if width % 2:
                raise RequirementError(f"a spread read by a GRU of both directions needs an even width; it got {width}")
            self.rnn = nn.GRU(parts_width, width // 2, batch_first=True, bidirectional=True)
        elif pooled_width is not None:
            self.whole = linear(pooled_width, width)
        else:
            raise RequirementError("a spread needs the width of the pooled vector, or recurrent=True; it got neither")
        self.inputs = ("parts",) if recurrent else ("parts", "pooled")

    def forward(self, encoded: Encoded) -> Float[Tensor, "n d"]:
        """The logarithm of every item's standard deviations."""
        missing = [name for name in self.inputs if getattr(encoded, name) is None]
        if missing:
            raise RequirementError(f"a spread needs an encoder with {' and '.join(self.inputs)}; {missing[0]} missing")
        assert encoded.parts is not None
        logits = self.outer(torch.tanh(self.inner(encoded.parts)))[..., 0]
        attention = masked_softmax(logits, encoded.mask)
        found = self.lift(torch.einsum("np,npe->ne", attention, encoded.parts))
        return found + self._whole(encoded)

    def _whole(self, encoded: Encoded) -> Float[Tensor, "n d"]:
        if self.whole is not None:
            return self.whole(encoded.pooled)
        parts, mask = encoded.parts, encoded.mask
        assert parts is not None
        lengths = torch.full((len(parts),), parts.shape[1], device=parts.device)
        if mask is not None:
            lengths = mask.sum(dim=1).clamp_min(1)
        states = padded_states(parts, lengths, self.rnn, learning=self.training)
        return end_states(states, lengths, both_directions=True)
