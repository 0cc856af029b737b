"""Parts that compute what the model's parts do, in operations that ONNX knows: no packing, no choice by value."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.models.encoders.recurrent import Recurrent
from subtext.models.heads.gaussian import Gaussian
from subtext.models.heads.gpo import Gpo, PlaceWeights
from subtext.models.heads.gpo import _sinusoids as sinusoids
from subtext.models.model import Branch
from subtext.ops.numerics import masked_softmax, unit


class Exportable(nn.Module):
    """A branch from its tensors, in the order of `names`, to vectors (N K D)."""

    def __init__(self, branch: Branch, names: list[str]) -> None:
        super().__init__()
        encoder, head = copy.deepcopy(branch.encoder), copy.deepcopy(branch.head)
        self.encoder: nn.Module = MaskedRecurrent(encoder) if isinstance(encoder, Recurrent) else encoder
        head = head.mean if isinstance(head, Gaussian) else head
        self.head: nn.Module = MaskedGpo(head) if isinstance(head, Gpo) else head
        self.names = names

    def forward(self, *tensors: Tensor) -> Tensor:
        """The vectors of a batch."""
        inputs = dict(zip(self.names, tensors, strict=True))
        items = tensors[0].shape[0]
        found: Embeddings = self.head(self.encoder(inputs), torch.arange(items))
        return found.vectors


class MaskedRecurrent(nn.Module):
    """`Recurrent` without packed sequences: the backward half reads each text turned round by its own length."""

    def __init__(self, encoder: Recurrent) -> None:
        super().__init__()
        self.inner = encoder

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States or embeddings of words, and pooled vectors."""
        inner, mask = self.inner, inputs["mask"]
        words = inner.words(inputs["tokens"])
        lengths = mask.sum(dim=1).clamp_min(1)
        states, final = run(inner.rnn, words, lengths)
        pooled = _last(states, lengths) if inner.legacy_last else final
        return Encoded(parts=words if inner.gives == "words" else states, mask=mask, pooled=pooled)


class MaskedGpo(nn.Module):
    """`Gpo` without packed sequences, and with the perceptron run over absent parts too, whose outcome is dropped."""

    def __init__(self, head: Gpo) -> None:
        super().__init__()
        self.inner = head

    def forward(self, encoded: Encoded, ids: Tensor) -> Embeddings:
        """One vector an item."""
        head, parts = self.inner, encoded.parts
        assert parts is not None
        items, longest = parts.shape[:2]
        mask = encoded.mask
        lifted = head.project(parts)
        if head.inner is not None:
            inside = head.norm(head.inner(parts).flatten(0, 1)).unflatten(0, (items, longest))
            lifted = lifted + head.outer(torch.relu(inside))
        if mask is None:
            mask = torch.ones(items, longest, dtype=torch.bool)
        lengths = mask.sum(dim=1)
        # Absent parts sort last whatever the others are; then they are set to zero, by place.
        lowest = torch.finfo(lifted.dtype).min
        ordered = lifted.masked_fill(~mask[:, :, None], lowest).sort(dim=1, descending=True).values
        present = torch.arange(longest)[None, :] < lengths[:, None]
        ordered = torch.where(present[:, :, None], ordered, torch.zeros_like(ordered))
        weights = _places(head.places, lengths, longest)
        pooled = (weights[:, :, None] * ordered).sum(dim=1)
        return Embeddings(vectors=unit(pooled)[:, None], ids=ids)


def run(rnn: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(N P H) states of every word in the top layer, zero beyond a text's end, and (N H) final ones."""
    place = torch.arange(words.shape[1])[None, :]
    present = place < lengths[:, None]
    turned = torch.where(present, lengths[:, None] - 1 - place, place)
    rows = torch.arange(words.shape[0])[:, None]
    states, final = words, words[:, 0]
    for layer in range(rnn.num_layers):
        ahead = _direction(rnn, states, layer, "")
        if not rnn.bidirectional:
            states, final = ahead, _last(ahead, lengths)
            continue
        back = _direction(rnn, states[rows, turned], layer, "_reverse")
        final = torch.cat([_last(ahead, lengths), _last(back, lengths)], dim=1)
        states = torch.cat([ahead, back[rows, turned]], dim=2)
    return states * present[:, :, None].to(states.dtype), final


def _direction(rnn: nn.GRU, words: Tensor, layer: int, suffix: str) -> Tensor:
    """One layer in one direction, by the operator that becomes ONNX's own."""
    incoming, hidden, incoming_bias, hidden_bias = (
        _zrn(getattr(rnn, f"{name}_l{layer}{suffix}")) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    found: Tensor = torch.ops.subtext.gru(
        words.transpose(0, 1), incoming, hidden, torch.cat([incoming_bias, hidden_bias]), rnn.hidden_size
    )
    return found.transpose(0, 1)


def _zrn(rows: Tensor) -> Tensor:
    """Gates in ONNX's order (update, reset, new) from PyTorch's (reset, update, new), and back."""
    reset, update, new = rows.chunk(3)
    return torch.cat([update, reset, new])


def _gru(words: Tensor, incoming: Tensor, hidden: Tensor, bias: Tensor, width: int) -> Tensor:
    weights = [_zrn(rows) for rows in (incoming, hidden, *bias.chunk(2))]
    start = words.new_zeros(1, words.shape[1], width)
    found: Tensor = torch.gru(words, start, weights, True, 1, 0.0, False, False, False)[0]
    return found


def _gru_shape(words: Tensor, incoming: Tensor, hidden: Tensor, bias: Tensor, width: int) -> Tensor:
    return words.new_empty(words.shape[0], words.shape[1], width)


# An operator of its own: PyTorch's exporter cuts its GRU into steps, as many as the example has words.
_OPERATOR = torch.library.custom_op(
    "subtext::gru",
    _gru,
    mutates_args=(),
    schema="(Tensor words, Tensor incoming, Tensor hidden, Tensor bias, int width) -> Tensor",
)
_OPERATOR.register_fake(_gru_shape)


def translations() -> dict[Any, Callable[..., Any]]:
    """What the exporter is to write for the operator above."""
    from onnxscript import opset18

    op: Any = opset18

    def gru(words: Any, incoming: Any, hidden: Any, bias: Any, width: int) -> Any:
        first = op.Constant(value_ints=[0])
        rows = (op.Unsqueeze(value, first) for value in (incoming, hidden, bias))
        states, _ = op.GRU(words, *rows, hidden_size=width, linear_before_reset=1)
        return op.Squeeze(states, op.Constant(value_ints=[1]))

    return {torch.ops.subtext.gru.default: gru}


def _last(states: Tensor, lengths: Tensor) -> Tensor:
    return states[torch.arange(states.shape[0]), lengths - 1]


def _places(places: PlaceWeights, lengths: Tensor, longest: int) -> Tensor:
    """`PlaceWeights`, once an item instead of once a length."""
    angles = sinusoids(longest, places.width).to(places.linear.weight)
    # Copies, not one view of many: an export of a view fixes its length.
    states, _ = run(places.gru, angles[None].repeat(lengths.shape[0], 1, 1), lengths.clamp_min(1))
    ahead, back = states.chunk(2, dim=2)
    logits = places.linear((ahead + back) / 2).squeeze(2) / places.temperature
    return masked_softmax(logits, torch.arange(longest)[None, :] < lengths[:, None])
