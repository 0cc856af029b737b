"""The counted places give what sorting gives, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from subtext.core import Encoded
from subtext.models.heads import gpo
from subtext.models.heads.gpo import Gpo
from subtext.ops.compiled.ordered_sum import ordered_sum

pytestmark = pytest.mark.identity


def _by_sorting(parts: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
    rows = []
    for item, length in enumerate(lengths.tolist()):
        ordered = parts[item, :length].sort(dim=0, descending=True, stable=True).values
        rows.append((weights[item, :length, None] * ordered).sum(dim=0))
    return torch.stack(rows)


@pytest.mark.parametrize("ties", [False, True])
def test_ordered_sum_equals_sum_of_sorted_values(ties: bool) -> None:
    parts = torch.randn(7, 9, 16)
    if ties:
        parts = (parts * 2).round() / 2
    lengths = torch.tensor([9, 1, 4, 0, 7, 9, 2])
    weights = torch.rand(7, 9)
    found = []
    for function in (ordered_sum, _by_sorting):
        x, w = parts.clone().requires_grad_(), weights.clone().requires_grad_()
        out = function(x, lengths, w)
        (out * torch.arange(16.0)).sum().backward()
        found.append((out.detach(), x.grad, w.grad))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("holes", [False, True])
def test_head_gives_equal_gradients_with_ordered_sum(monkeypatch: pytest.MonkeyPatch, holes: bool) -> None:
    head = Gpo(12, 8).train()
    parts, mask = torch.randn(6, 5, 12), torch.arange(5) < torch.tensor([[5], [3], [1], [4], [5], [2]])
    if holes:
        mask = mask.flip(1)
        mask[0, 2] = mask[3, 3] = False
    found = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(gpo, "COUNTED_CELLS", least)
        head.zero_grad()
        made = head(Encoded(parts=parts, mask=mask), torch.arange(6)).vectors
        (made * torch.arange(8.0)).sum().backward()
        found.append([made.detach(), *[weight.grad.clone() for weight in head.parameters()]])
    for mine, theirs in zip(*found, strict=True):
        # What is near zero is a difference of larger numbers, and as uncertain as they are.
        torch.testing.assert_close(mine, theirs, rtol=0, atol=5e-6 * float(theirs.abs().max()))
