"""Arithmetic in half precision stays near to float32's: on a processor here, on a GPU where there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import small_training
import torch

from subtext.core import Epoch
from subtext.data.inputs import Draw
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.step import Stepper, StepReader

ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


def _step(device: str, precision: str, chunk: int) -> tuple[float, torch.Tensor]:
    """The loss of one batch, and all gradients in a row."""
    made = small_training.setup(Plan(batch_size=16, precision=precision, grad_cache_chunk=chunk), dropout=0.0)
    model, data, processes = made.model.to(device).train(), small_training.pairs(), Processes(device)
    reading = StepReader(model, data, Draw(0, 0))(data.links[:16]).to(processes.device)
    stepper = Stepper(model, made.objective, made.plan, processes)
    loss, _ = stepper(reading, Epoch(number=0, seed=0), name="step 0")
    grads = torch.cat([weight.grad.reshape(-1).float() for weight in model.parameters() if weight.grad is not None])
    return float(loss), grads.cpu() / stepper.scaler.get_scale()


@pytest.mark.parametrize("chunk", [0, 5])
@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "bf16"),
        pytest.param("cuda", "float32", marks=ON_A_GPU),
        pytest.param("cuda", "bf16", marks=ON_A_GPU),
        pytest.param("cuda", "fp16", marks=ON_A_GPU),
    ],
)
def test_bfloat16_step_is_close_to_float32(device: str, precision: str, chunk: int) -> None:
    loss, grads = _step("cpu", "float32", 0)
    half_loss, half_grads = _step(device, precision, chunk)
    assert half_loss == pytest.approx(loss, rel=0.02)
    assert torch.nn.functional.cosine_similarity(half_grads, grads, dim=0) > 0.99
    assert float(half_grads.norm()) == pytest.approx(float(grads.norm()), rel=0.05)


@pytest.mark.parametrize("precision", [pytest.param(kind, marks=ON_A_GPU) for kind in ("float32", "bf16", "fp16")])
def test_gpu_training_resumes(tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    plan = Plan(epochs=6, batch_size=16, lr=2e-2, weight_average="ema", ema_decay=0.8, precision=precision)
    options = RunConfig(device="cuda", workers=2, resume=True)
    data = small_training.pairs()
    assert (
        small_training.run(
            tmp_path / "run", plan=plan, options=options, val=data, report=small_training.Interrupt(7)
        ).record.epochs
        == 1
    )
    end = small_training.run(tmp_path / "run", plan=plan, options=options, val=data)
    assert any("going on from step 8" in note for note in end.notes)
    start = small_training.run(tmp_path / "short", plan=replace(plan, epochs=1), options=options, val=data)
    assert end.record.best["rsum"] > start.record.best["rsum"] + 50
