"""Stopping and going on where much is remembered or drawn: the end is the same to the bit, whoever reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import small_training

from subtext.models.checkpoint import fingerprint
from subtext.training.plan import Phase, Plan, RunConfig
from subtext.training.setup import TrainResult


@dataclass(frozen=True)
class Case:
    """A plan, what is trained by it, and what its notes have to say (so that the case is what it is called)."""

    plan: Plan
    made: object
    told: str = ""
    pictures: bool = False


QUICK = Plan(epochs=3, batch_size=12, lr=1e-2)
CASES = {
    "averaged, together, accumulated, pooled": Case(
        replace(
            QUICK,
            caption_sampling="together",
            accumulation_steps=3,
            weight_average="ema",
            ema_decay=0.9,
            max_grad_norm=0.5,
        ),
        small_training.setup_with_pooling,
    ),
    "phases and a late unfreezing": Case(
        replace(QUICK, epochs=4, freeze_epochs=2, optimiser="adamw", weight_decay=0.1),
        partial(small_training.setup, phases=(Phase(1, "heads"), Phase(1, "all", factor=0.5), Phase(1, "all"))),
    ),
    "pixels and words drawn anew": Case(
        replace(QUICK, weight_average="swa"), small_training.setup_with_pixels, pictures=True
    ),
    "pixels in chunks": Case(replace(QUICK, grad_cache_chunk=5), small_training.setup_with_pixels, pictures=True),
    "chunks of pictures with all texts": Case(
        replace(QUICK, caption_sampling="together", grad_cache_chunk=5, accumulation_steps=2),
        partial(small_training.setup_with_pooling, perceptron=False),
    ),
    "plateau and early stopping": Case(
        replace(
            QUICK, epochs=20, schedule="plateau", plateau_patience=0, lr_factor=0.1, patience=3, optimiser="sgd", lr=2
        ),
        small_training.setup,
        told="stopped early after epoch",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_twice_stopped_run_gives_equal_weights_with_other_workers(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads in the loop and is never stopped; the other reads in two threads, and is stopped twice."""
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    case = CASES[name]
    data = {"train": small_training.pairs(24), "val": small_training.pairs(8, "val")}
    if case.pictures:
        data = {split: small_training.with_pictures(pairs, tmp_path) for split, pairs in data.items()}

    def fitted(out: str, workers: int, report: object = None) -> TrainResult:
        options = RunConfig(device="cpu", workers=workers, resume=True, log_every=1)
        return small_training.run(
            tmp_path / out, plan=case.plan, made=case.made, options=options, report=report, **data
        )

    whole = fitted("whole", 0)
    for step in (1, 5):
        assert fitted("parts", 2, small_training.Interrupt(step)).record.status == "stopped"
    end = fitted("parts", 2)
    assert end.record.status == "finished"
    assert case.told in "".join(end.notes)
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("whole", "parts")]
    assert weights[0] == weights[1]
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert end.record.best == whole.record.best
    assert (end.record.epochs, end.record.steps) == (whole.record.epochs, whole.record.steps)
