"""What every head promises: unit vectors, no say of neighbours or padding, gradients, and sentences when misused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.heads.gaussian import Gaussian, PooledSpread, Spread
from subtext.models.heads.gpo import Gpo
from subtext.models.heads.graph import GraphAttention
from subtext.models.heads.mean import Adapter, Mean, Passthrough
from subtext.models.heads.parts import FusedMean, Parts, Pie, SelfAttention

pytestmark = pytest.mark.contract

HEADS: dict[str, Callable[[], nn.Module]] = {
    "mean of pooled": lambda: Mean(6, 8),
    "mean of parts": lambda: Mean(6, 8, source="parts", residual=True, dropout=0.5),
    "pie, one view": lambda: Pie(6, 6, 8),
    "pie, three views": lambda: Pie(6, 6, 8, views=3, dropout=0.5),
    "pooling": lambda: Gpo(6, 8),
    "pooling of regions": lambda: Gpo(6, 8, perceptron=True),
    "passthrough": Passthrough,
    "adapter": lambda: Adapter(6, 4, dropout=0.5),
    "parts": lambda: Parts(6, 8),
    "parts of two directions": lambda: Parts(6, 3, project=False, halves=True),
    "self-attended": lambda: SelfAttention(Parts(6, 8), 8, normalise=True),
    "self-attended without norms": lambda: SelfAttention(Parts(6, 8), 8, dropout=0.0),
    "fused": lambda: FusedMean(Parts(6, 8, normalise=False, vector="pooled", pooled_width=6), 8, "gated"),
    "fused by nothing": lambda: FusedMean(Parts(6, 8, normalise=False), 8, "none"),
    "pie of what parts have in common": lambda: Pie(6, 6, 8, base="parts"),
    "gaussian": lambda: Gaussian(Pie(6, 6, 8), Spread(6, 8, pooled_width=6), 8, draws=3),
    "gaussian of words": lambda: Gaussian(Pie(6, 6, 8), Spread(6, 8, recurrent=True), 8),
    "gaussian by pooling": lambda: Gaussian(Gpo(6, 8), PooledSpread(6, 8, layers=1, perceptron=True), 8),
    "graph": lambda: GraphAttention(6, 8, dropout=0.0),
    "graph of words": lambda: GraphAttention(6, 8, joint=0),
    "one graph": lambda: GraphAttention(6, 8, joint=1),
    "parts beside a pooled vector": lambda: Parts(6, 8, vector="pooled", pooled_width=6),
}


@pytest.fixture(params=list(HEADS))
def head(request: pytest.FixtureRequest) -> nn.Module:
    return HEADS[request.param]()


def encoded(items: int = 5, parts: int = 4) -> Encoded:
    lengths = torch.tensor([parts, 1, 3, 2, parts])[:items]
    mask = torch.arange(parts) < lengths[:, None]
    return Encoded(torch.randn(items, parts, 6), mask, torch.randn(items, 6))


def cut(whole: Encoded, rows: slice, length: int) -> Encoded:
    assert whole.parts is not None and whole.mask is not None and whole.pooled is not None
    return Encoded(whole.parts[rows, :length], whole.mask[rows, :length], whole.pooled[rows])


def test_vectors_have_unit_length_and_keep_ids(head: nn.Module) -> None:
    found = head(encoded(), torch.arange(5) * 3)
    torch.testing.assert_close(found.vectors.norm(dim=2), torch.ones(found.vectors.shape[:2]))
    assert found.ids.tolist() == [0, 3, 6, 9, 12]


def test_vector_does_not_depend_on_batch_or_padding(head: nn.Module) -> None:
    head.eval()
    whole = encoded()
    among = head(whole, torch.arange(5)).vectors
    for row, length in enumerate([4, 1, 3, 2, 4]):
        alone = head(cut(whole, slice(row, row + 1), length), torch.arange(1)).vectors
        torch.testing.assert_close(alone[0], among[row], atol=1e-6, rtol=0)


def test_masked_parts_do_not_affect_vectors(head: nn.Module) -> None:
    whole = encoded()
    assert whole.parts is not None and whole.mask is not None
    changed = Encoded(whole.parts.masked_fill(~whole.mask[:, :, None], 7.0), whole.mask, whole.pooled)
    torch.manual_seed(3)
    first = head(whole, torch.arange(5)).vectors
    torch.manual_seed(3)
    second = head(changed, torch.arange(5)).vectors
    torch.testing.assert_close(first, second)


def test_every_parameter_gets_gradient(head: nn.Module) -> None:
    whole = encoded()
    assert whole.pooled is not None and whole.parts is not None
    leaves = whole.parts.requires_grad_(), whole.pooled.requires_grad_()
    found = head(Encoded(leaves[0], whole.mask, leaves[1]), torch.arange(5))
    more = [value for value in (found.parts, found.log_std) if value is not None]
    given = torch.cat([found.vectors, *more], dim=1)
    (given * torch.randn(given.shape)).sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_float32_and_float64_agree(head: nn.Module) -> None:
    head.eval()
    whole = encoded()
    single = head(whole, torch.arange(5)).vectors
    assert whole.parts is not None and whole.pooled is not None
    double = head.double()(Encoded(whole.parts.double(), whole.mask, whole.pooled.double()), torch.arange(5)).vectors
    torch.testing.assert_close(single.double(), double, atol=1e-5, rtol=0)


def test_batch_of_one_single_part_item_trains(head: nn.Module) -> None:
    one = Encoded(torch.randn(1, 1, 6), torch.ones(1, 1, dtype=torch.bool), torch.randn(1, 6))
    assert torch.isfinite(head(one, torch.arange(1)).vectors).all()


def test_item_without_parts_has_finite_vector(head: nn.Module) -> None:
    none = Encoded(torch.randn(2, 3, 6), torch.tensor([[True, True, False], [False, False, False]]), torch.randn(2, 6))
    assert torch.isfinite(head(none, torch.arange(2)).vectors).all()


def test_views_differ_and_residuals_are_returned() -> None:
    found = Pie(6, 6, 8, views=3)(encoded(), torch.arange(5))
    assert found.residuals is not None and found.residuals.shape == (5, 3, 8)
    assert (found.residuals > 0).all() and (found.residuals < 1).all()
    assert not torch.allclose(found.vectors[0, 0], found.vectors[0, 1])


def test_parts_have_unit_length_and_keep_mask() -> None:
    whole = encoded()
    found = Parts(6, 3, project=False, halves=True)(whole, torch.arange(5))
    assert whole.parts is not None
    averaged = (whole.parts[:, :, :3] + whole.parts[:, :, 3:]) / 2
    torch.testing.assert_close(found.parts, torch.nn.functional.normalize(averaged, dim=2))
    assert found.mask is whole.mask


def test_vectors_keep_length_without_normalise() -> None:
    found = Mean(6, 8, normalise=False)(encoded(), torch.arange(5))
    assert not torch.allclose(found.vectors.norm(dim=2), torch.ones(5, 1))


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (lambda: Mean(6, 8, project=False), None, "widths equal or project"),
        (lambda: Mean(6, 8), "parts", "source='parts'"),
        (lambda: Mean(6, 8, source="parts"), "pooled", "source='pooled'"),
        (lambda: Pie(6, 6, 8, views=0), None, "at least one view"),
        (lambda: Pie(6, 6, 8, project=False), None, "joint width 8; it got 6"),
        (lambda: Pie(6, 6, 8), "pooled", "parts missing"),
        (lambda: Gpo(6, 8), "pooled", "gives parts"),
        (Passthrough, "parts", "pooled vector"),
        (lambda: Parts(6, 8), "pooled", "gives parts"),
        (lambda: SelfAttention(Parts(6, 8), 8, normalise=True, regions=36), "parts", "36 regions per image; it got 3"),
        (lambda: Parts(6, 8, project=False), None, "needs width 6, that of the encoder; it got 8"),
        (lambda: Parts(6, 4, project=False, halves=True), None, "needs width 3, that of the encoder; it got 4"),
        (lambda: Parts(6, 8, vector="pooled"), None, "vector='pooled' needs an encoder with a pooled vector"),
        (lambda: GraphAttention(6, 8, joint=3), None, "0, 1 or 2 joint graphs .* it got 3 and 0"),
        (lambda: GraphAttention(6, 8), "pooled", "gives parts"),
        (lambda: GraphAttention(6, 8, cells=3), "parts", "3 cells and then regions per image; it got 3 parts"),
        (lambda: Spread(6, 8), None, "width of the pooled vector, or recurrent=True; it got neither"),
        (lambda: Spread(6, 7, recurrent=True), None, "an even width; it got 7"),
        (lambda: Gaussian(Pie(6, 6, 8), Spread(6, 8, pooled_width=6), 8, draws=-1), None, "draws of 0 or more; it got"),
        (
            lambda: Gaussian(Passthrough(), Spread(6, 6, pooled_width=6), 6),
            "pooled",
            "a spread needs an encoder that gives parts",
        ),
        (lambda: Gaussian(Passthrough(), PooledSpread(6, 6), 6), "pooled", "an encoder that gives parts"),
        (lambda: Parts(6, 8, vector="pooled", pooled_width=6), "parts", "a pooled vector; it gave parts alone"),
    ],
)
def test_missing_input_of_head_raises(make: Callable[[], nn.Module], given: str | None, said: str) -> None:
    with pytest.raises(RequirementError, match=said):
        head = make()
        only = Encoded(parts=torch.randn(2, 3, 6)) if given == "parts" else Encoded(pooled=torch.randn(2, 6))
        head(only, torch.arange(2))
