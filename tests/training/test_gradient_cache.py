"""Gradient caching gives the plain gradient, whatever the chunk."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from torch import nn

from subtext.core import Epoch
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.errors import TrainingError
from subtext.training.checks import batch_norms, validate_plan
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.setup import Setup
from subtext.training.step import Stepper, StepReader

pytestmark = pytest.mark.identity


def _gradients(
    made: Setup, chunk: int, *, seed: int = 0, rows: int = 14, together: bool = False, data: Dataset | None = None
) -> tuple[float, dict[str, torch.Tensor]]:
    model = made.model.double().train()
    model.zero_grad()
    plan = Plan(batch_size=rows, grad_cache_chunk=chunk)
    data = data or small_training.pairs()
    reading = StepReader(model, data, Draw(seed, 0), together=together)(data.links[:rows])
    reading.images["pooled"] = reading.images["pooled"].double()
    stepper = Stepper(model, made.objective, plan, Processes("cpu"))
    loss, _ = stepper(reading, Epoch(number=0, seed=seed), name="step 0")
    return float(loss), {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None
    }


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 7, 13])
def test_chunked_gradient_equals_plain_gradient(chunk: int, together: bool) -> None:
    made = small_training.setup(dropout=0.0)
    plain_loss, plain = _gradients(made, 0, together=together)
    loss, cached = _gradients(made, chunk, together=together)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    assert plain.keys() == cached.keys() == dict(made.model.named_parameters()).keys()
    for name, grad in plain.items():
        torch.testing.assert_close(cached[name], grad, rtol=1e-9, atol=1e-12, msg=name)


def test_dropout_is_equal_in_both_passes() -> None:
    """The finite difference of the loss, dropout held by its seed, is the gradient that caching gives."""
    made = small_training.setup(dropout=0.3)
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


def test_dropout_depends_on_seed_epoch_and_step() -> None:
    made = small_training.setup(dropout=0.3)
    assert _gradients(made, 5)[0] == _gradients(made, 5)[0]
    assert _gradients(made, 5)[0] != _gradients(made, 5, seed=1)[0]


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_of_unequal_part_lengths_give_plain_gradient(chunk: int) -> None:
    """Texts whose states are the parts: a chunk's longest text may be shorter than the batch's."""
    made = small_training.setup_with_parts()
    assert len({len(words.split()) for words in small_training.pairs().texts.values}) > 1
    plain_loss, plain = _gradients(made, 0)
    loss, cached = _gradients(made, chunk)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    for name, grad in plain.items():
        torch.testing.assert_close(cached[name], grad, rtol=1e-9, atol=1e-12, msg=name)


def _pictures_share_texts() -> Dataset:
    """Two pictures a group, and one text for both."""
    data = small_training.pairs(14, captions=1)
    groups = np.arange(14) // 2
    links = np.stack([np.arange(14), groups], axis=1)
    return replace(
        data, images=replace(data.images, groups=groups), texts=replace(data.texts, groups=np.arange(14)), links=links
    )


@pytest.mark.parametrize("chunk", [2, 3, 5])
@pytest.mark.parametrize(
    "data", [small_training.pairs(4, captions=5), _pictures_share_texts()], ids=["texts", "pictures"]
)
def test_chunk_size_bounds_items_of_each_side(chunk: int, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small_training.setup(dropout=0.0)
    _, plain = _gradients(made, 0, together=True, data=data, rows=20)
    seen: dict[str, list[int]] = {"image": [], "text": []}
    for side, lengths in seen.items():
        encoder = getattr(made.model, side).encoder
        encoder.register_forward_pre_hook(lambda _, given, lengths=lengths: lengths.append(len(given[0]["ids"])))
    _, cached = _gradients(made, chunk, together=True, data=data, rows=20)
    items = {"image": len(data.images), "text": len(np.unique(data.links[:, 1]))}
    for side, lengths in seen.items():
        assert max(lengths) <= chunk
        assert sum(lengths) == 2 * items[side]
    for name, grad in plain.items():
        torch.testing.assert_close(cached[name], grad, rtol=1e-9, atol=1e-12, msg=name)


def test_training_batch_norm_with_chunks_raises(tmp_path: Path) -> None:
    plan = Plan(epochs=1, batch_size=16, grad_cache_chunk=4)
    with pytest.raises(TrainingError, match=r"items that do not depend on each other.*image\.head\.norm.*mlp=False"):
        small_training.run(tmp_path / "run", plan=plan, made=small_training.setup_with_pooling)
    assert not (tmp_path / "run").exists()
    small_training.run(tmp_path / "run", plan=plan, made=partial(small_training.setup_with_pooling, perceptron=False))


def test_frozen_batch_norm_is_allowed_with_chunks() -> None:
    """In a body that never learns; and one that thaws later counts from the beginning."""
    made = small_training.setup()
    made.model.image.encoder.body.append(nn.BatchNorm1d(16, affine=False))
    assert batch_norms(made) == ["image.encoder.body.3"]
    assert batch_norms(replace(made, plan=replace(made.plan, freeze_epochs=2))) == ["image.encoder.body.3"]
    assert batch_norms(replace(made, plan=replace(made.plan, freeze_epochs=-1))) == []
    assert made.model.training and all(weight.requires_grad for weight in made.model.parameters())


def test_batch_norm_across_processes_gives_note() -> None:
    processes = Processes("cpu")
    made = small_training.setup_with_pooling()
    assert validate_plan(made, small_training.pairs(), processes) == []
    processes.count = 2
    (note,) = validate_plan(made, small_training.pairs(), processes)
    assert note.startswith("batch norms (image.head.norm) see the share of the batch that each of the 2 processes has")
    assert validate_plan(small_training.setup(), small_training.pairs(), processes) == []
