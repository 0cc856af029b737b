"""Soft ranks: the plain way, the compiled one and a loop give the same numbers and gradients."""

from __future__ import annotations

import math

import pytest
import torch

from subtext.ops.compiled import soft_rank as soft_rank_kernel, soft_rank_triton
from subtext.ops.compiled.soft_rank import plain_sums, soft_above, soft_rank

pytestmark = pytest.mark.identity

ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


def lists(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, spread: float = 0.1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype) * spread


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_soft_rank_equals_plain_loop(temperature):
    scores, counted = lists(3, 5), torch.rand(3, 5, generator=torch.Generator().manual_seed(1)) < 0.7
    wanted = [
        [
            1
            + sum(
                1 / (1 + math.exp((own - other) / temperature)) for j, other in enumerate(row) if inside[j] and j != i
            )
            for i, own in enumerate(row)
        ]
        for row, inside in zip(scores.tolist(), counted.tolist(), strict=True)
    ]
    torch.testing.assert_close(soft_rank(scores, temperature, counted=counted), torch.tensor(wanted).double())


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 0.02])
def test_gradient_matches_finite_differences(kernel, temperature):
    levels, values = lists(2, 4).requires_grad_(), lists(2, 6, seed=1).requires_grad_()
    counted = torch.tensor([[True] * 6, [True, False] * 3])

    def above(levels, values):
        return soft_above(levels, values, temperature, counted=counted, kernel=kernel)

    assert torch.autograd.gradcheck(above, (levels, values), eps=1e-7, atol=1e-6)
    assert torch.autograd.gradcheck(lambda scores: soft_rank(scores, temperature), (values,), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("slope", [False, True])
@pytest.mark.parametrize(
    ("dtype", "shape", "temperature", "accuracy"),
    [
        (torch.float64, (3, 40, 30), 0.01, 1e-12),
        (torch.float32, (3, 40, 30), 0.001, 1e-6),
        (torch.float32, (2, 200, 300), 0.05, 1e-6),
        (torch.float32, (2, 300, 200), 0.01, 1e-6),
    ],
)
def test_compiled_sums_equal_plain_sums(slope, dtype, shape, temperature, accuracy):
    """In float64 pair by pair; in float32 of short rows pair by pair, of long ones on a grid."""
    rows, many, count = shape
    values, levels = lists(rows, many, dtype=dtype), lists(rows, count, seed=1, dtype=dtype)
    weights = lists(rows, many, seed=2, dtype=dtype, spread=1)
    plain = plain_sums(values.double(), weights.double(), levels.double(), temperature, slope=slope)
    given = (values.numpy(), weights.numpy(), levels.numpy())
    for threads in (1, 2):
        found = torch.from_numpy(soft_rank_kernel.sums(*given, temperature, slope=slope, threads=threads))
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), plain, atol=accuracy * math.sqrt(many), rtol=accuracy)


def test_long_list_of_equal_scores_shares_middle_rank():
    ranks = soft_rank(torch.zeros(1, 1100), 0.01)
    assert ranks.unique().tolist() == pytest.approx([(1 + 1100) / 2], rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kernel", [False, True])
def test_nan_score_propagates(bad, kernel):
    scores = lists(2, 3, dtype=torch.float32)
    scores[0, 1] = bad
    found = soft_above(scores, scores, 0.1, kernel=kernel)
    assert found[0].isnan().any() and found[1].isfinite().all()


def test_backward_pass_stores_at_most_score_size():
    scores, kept = lists(8, 32).requires_grad_(), []

    def keep(value):
        kept.append(value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        soft_rank(scores, 0.1)
    assert kept and max(value.numel() for value in kept) <= scores.numel()


@pytest.mark.parametrize("shape", [pytest.param(shape, marks=ON_A_GPU) for shape in [(3, 40, 30), (5, 700, 129)]])
def test_gpu_sums_equal_plain_sums(shape):
    if not soft_rank_triton.AVAILABLE:
        pytest.skip("this PyTorch comes without Triton")
    rows, many, count = shape
    values, levels = (
        lists(rows, many, dtype=torch.float32).cuda(),
        lists(rows, count, seed=1, dtype=torch.float32).cuda(),
    )
    weights = lists(rows, many, seed=2, dtype=torch.float32, spread=1).cuda()
    for slope in (False, True):
        found = soft_rank_triton.sums(values, weights, levels, 0.01, slope=slope)
        plain = plain_sums(values.double(), weights.double(), levels.double(), 0.01, slope=slope)
        torch.testing.assert_close(found.double(), plain, atol=1e-4, rtol=1e-4)
    scores = values.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(soft_rank(each, 0.01).square().sum(), scores)[0].double()
        for each in (scores, scores.double())
    ]
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-3)
