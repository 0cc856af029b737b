"""A gated recurrent unit over packed texts whose backward pass is fast on a processor.

torch's own adds a whole weight gradient at every word; here gates are kept, and each weight gets its gradient by one
product over all words. Same equations and parameters as `torch.nn.GRU` (Cho et al. 2014, with the reset gate after the
product).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def padded_states(
    words: Float[Tensor, "n p e"], lengths: Int[Tensor, "n"], rnn: nn.GRU, *, learning: bool
) -> Float[Tensor, "n p h"]:
    """States of every word of padded texts; zero beyond a text's end. Padding is never read.

    Args:
        words: (N P E) word vectors.
        lengths: (N) words of each text, 1 or more.
        rnn: Whose weights are used.
        learning: Whether gradients will be needed, which are fast by `packed_states` alone.

    Returns:
        (N P H), with H the sum over both directions.

    Complexity:
        Words of all texts times H (E + H) per layer.
    """
    if learning and words.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        # Packed words stand longest text first, and position by position.
        longest = int(lengths.max())
        order = lengths.argsort(descending=True, stable=True)
        positions = torch.arange(longest, device=lengths.device)[:, None]
        present = lengths[order] > positions
        rows = (order * longest + positions)[present]
        states = packed_states(words.flatten(0, 1).index_select(0, rows), present.sum(dim=1).tolist(), rnn)
        padded = states.new_zeros(words.shape[0] * words.shape[1], states.shape[1])
        return padded.index_copy(0, rows, states).view(*words.shape[:2], -1)
    packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=words.shape[1])[0]


def end_states(
    states: Float[Tensor, "n p h"], lengths: Int[Tensor, "n"], *, both_directions: bool
) -> Float[Tensor, "n h"]:
    """The state after each text's last word, and of a backward half the one after its first word.

    Args:
        states: (N P H) of every word.
        lengths: (N) words of each text, 1 or more.
        both_directions: Whether the second half of H was read backwards.

    Returns:
        (N H).
    """
    last = states[torch.arange(len(states), device=states.device), lengths - 1]
    if not both_directions:
        return last
    width = states.shape[2] // 2
    return torch.cat([last[:, :width], states[:, 0, width:]], dim=1)


def packed_states(words: Float[Tensor, "t e"], sizes: Sequence[int], rnn: nn.GRU) -> Float[Tensor, "t h"]:
    """States of the top layer for packed words, both directions side by side.

    Args:
        words: (T E) every text's first word, longest text first, then every text's second word, and so on:
            `PackedSequence.data`.
        sizes: How many texts have a first word, a second, and so on: `PackedSequence.batch_sizes`.
        rnn: Whose weights are used; its dropout between layers is not.

    Returns:
        (T H), with H the sum over both directions.

    Complexity:
        T H (E + H) per layer.
    """
    for layer in range(rnn.num_layers):
        sides = []
        for suffix in ("", "_reverse") if rnn.bidirectional else ("",):
            named = (
                getattr(rnn, f"{part}_l{layer}{suffix}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            sides.append(_GruDirection.apply(words, *named, tuple(sizes), bool(suffix)))
        words = torch.cat(sides, dim=1)
    return words


class _GruDirection(torch.autograd.Function):
    """One layer, read one way.

    With x the words, h the state before and h' the state after::

        r, z = sigmoid(W x + b + U h + c)    n = tanh(W x + b + r (U h + c))    h' = n + z (h - n)
    """

    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
        from_word: Tensor,
        from_state: Tensor,
        word_bias: Tensor,
        state_bias: Tensor,
        sizes: tuple[int, ...],
        backwards: bool,
    ) -> Tensor:
        width = from_state.shape[1]
        # The rows of each position in the texts, in the order of reading.
        steps = [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        steps = steps[::-1] if backwards else steps
        inputs = torch.addmm(word_bias, words, from_word.T)
        gates = words.new_empty(len(words), 2 * width)
        news, hidden, states = (words.new_empty(len(words), width) for _ in range(3))
        before = words.new_zeros(len(words), width)
        previous = slice(0, 0)
        turned = from_state.T
        for step in steps:
            count = min(step.stop - step.start, previous.stop - previous.start)
            before[step.start : step.start + count] = states[previous.start : previous.start + count]
            recurrent = torch.addmm(state_bias, before[step], turned)
            torch.add(inputs[step, : 2 * width], recurrent[:, : 2 * width], out=gates[step]).sigmoid_()
            hidden[step] = recurrent[:, 2 * width :]
            torch.addcmul(inputs[step, 2 * width :], gates[step, :width], hidden[step], out=news[step]).tanh_()
            torch.lerp(news[step], before[step], gates[step, width:], out=states[step])
            previous = step
        ctx.save_for_backward(words, from_word, from_state, gates, news, hidden, before)
        ctx.steps = steps
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        words, from_word, from_state, gates, news, hidden, before = ctx.saved_tensors
        width = from_state.shape[1]
        reset, update = gates[:, :width], gates[:, width:]
        # What a state's gradient is multiplied by on its way to each gate, for all words at once.
        to_new = (1 - update) * (1 - news * news)
        to_reset = hidden * reset * (1 - reset)
        to_update = (before - news) * update * (1 - update)
        # Columns: new (from the word), reset, update, new (from the state).
        flow = words.new_empty(len(words), 4 * width)
        carried: Tensor | None = None
        for step in reversed(ctx.steps):
            state = gradients[0][step]
            if carried is not None:
                count = min(len(state), len(carried))
                state = torch.cat([state[:count] + carried[:count], state[count:]])
            new = torch.mul(state, to_new[step], out=flow[step, :width])
            torch.mul(new, to_reset[step], out=flow[step, width : 2 * width])
            torch.mul(state, to_update[step], out=flow[step, 2 * width : 3 * width])
            torch.mul(new, reset[step], out=flow[step, 3 * width :])
            carried = torch.addmm(state * update[step], flow[step, width:], from_state)
        word_flow, state_flow = torch.cat([flow[:, width : 3 * width], flow[:, :width]], dim=1), flow[:, width:]
        biases = word_flow.sum(dim=0), state_flow.sum(dim=0)
        return word_flow @ from_word, word_flow.T @ words, state_flow.T @ before, *biases, None, None
