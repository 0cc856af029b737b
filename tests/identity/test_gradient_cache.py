"""Gradient caching gives the plain gradient, whatever the chunk."""

from __future__ import annotations

import pytest
import small
import torch

from subtext.core import Epoch
from subtext.data.inputs import Draw
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.reading import Reader
from subtext.training.setup import Setup
from subtext.training.step import Stepper


def _gradients(
    made: Setup, chunk: int, *, seed: int = 0, rows: int = 14, together: bool = False
) -> tuple[float, dict[str, torch.Tensor]]:
    model = made.model.double().train()
    model.zero_grad()
    plan = Plan(batch_size=rows, cache_chunk=chunk)
    data = small.pairs()
    reading = Reader(model, data, Draw(seed, 0), together=together)(data.links[:rows])
    reading.images["pooled"] = reading.images["pooled"].double()
    stepper = Stepper(model, made.objective, plan, Processes("cpu"))
    loss, _ = stepper(reading, Epoch(number=0, seed=seed), name="step 0")
    return float(loss), {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None
    }


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 7, 13])
def test_chunks_give_the_plain_gradient(chunk: int, together: bool) -> None:
    made = small.setup(dropout=0.0)
    plain_loss, plain = _gradients(made, 0, together=together)
    loss, cached = _gradients(made, chunk, together=together)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    assert plain.keys() == cached.keys() == dict(made.model.named_parameters()).keys()
    for name, grad in plain.items():
        torch.testing.assert_close(cached[name], grad, rtol=1e-9, atol=1e-12, msg=name)


def test_dropout_is_the_same_in_both_passes() -> None:
    """The finite difference of the loss, dropout held by its seed, is the gradient that caching gives."""
    made = small.setup(dropout=0.3)
    loss, grads = _gradients(made, 5)
    weight = made.model.image.encoder.body[0].weight
    direction = torch.randn_like(weight)
    step = 1e-6
    with torch.no_grad():
        weight += step * direction
    above, _ = _gradients(made, 5)
    with torch.no_grad():
        weight -= 2 * step * direction
    below, _ = _gradients(made, 5)
    slope = float((grads["image.encoder.body.0.weight"] * direction).sum())
    assert slope == pytest.approx((above - below) / (2 * step), rel=1e-5)
    assert loss == pytest.approx((above + below) / 2, rel=1e-6)


def test_dropout_is_a_function_of_seed_epoch_and_step() -> None:
    made = small.setup(dropout=0.3)
    assert _gradients(made, 5)[0] == _gradients(made, 5)[0]
    assert _gradients(made, 5)[0] != _gradients(made, 5, seed=1)[0]


@pytest.mark.parametrize("chunk", [1, 4])
def test_parts_of_unequal_length_are_padded_and_cut_again(chunk: int) -> None:
    """Texts whose states are the parts: a chunk's longest text may be shorter than the batch's."""
    made = small.setup_with_parts()
    assert len({len(words.split()) for words in small.pairs().texts.values}) > 1
    plain_loss, plain = _gradients(made, 0)
    loss, cached = _gradients(made, chunk)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    for name, grad in plain.items():
        torch.testing.assert_close(cached[name], grad, rtol=1e-9, atol=1e-12, msg=name)
