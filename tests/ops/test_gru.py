"""The fast recurrent unit is torch's own: states, and the gradient of every weight and word."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from subtext.models.encoders.words import Recurrent
from subtext.ops.gru import packed_states

pytestmark = pytest.mark.identity

LENGTHS = torch.tensor([5, 5, 3, 1, 4])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [True, False])
def test_states_and_gradients_equal_torch_gru(both: bool, layers: int) -> None:
    torch.manual_seed(0)
    rnn = nn.GRU(3, 4, layers, batch_first=True, bidirectional=both).double()
    found = []
    for fast in (True, False):
        rnn.zero_grad()
        words = torch.randn(5, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
        packed = pack_padded_sequence(words, LENGTHS, batch_first=True, enforce_sorted=False)
        states = packed_states(packed.data, packed.batch_sizes.tolist(), rnn) if fast else rnn(packed)[0].data
        (states * torch.linspace(-1, 2, states.numel(), dtype=torch.float64).view_as(states)).sum().backward()
        assert words.grad is not None
        found.append([states.detach(), words.grad, *(weight.grad.clone() for weight in rnn.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_gradients_match_finite_differences() -> None:
    rnn = nn.GRU(2, 3, batch_first=True, bidirectional=True).double()

    def states(words: Tensor) -> Tensor:
        return packed_states(words, [3, 2, 2, 1], rnn)

    assert torch.autograd.gradcheck(states, (torch.randn(8, 2, dtype=torch.float64, requires_grad=True),))


def test_training_and_evaluation_agree() -> None:
    encoder = Recurrent(20, 8, 5)
    tokens = torch.randint(4, 20, (4, 7))
    inputs = {"tokens": tokens, "mask": torch.arange(7) < torch.tensor([[7], [2], [5], [1]])}
    learning, resting = encoder.train()(inputs), encoder.eval()(inputs)
    torch.testing.assert_close(learning.pooled, resting.pooled, atol=1e-6, rtol=0)
    torch.testing.assert_close(learning.parts, resting.parts, atol=1e-6, rtol=0)
