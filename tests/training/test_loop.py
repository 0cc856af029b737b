"""A training from end to end: it learns, keeps the right epoch, says what it does, and stops at bad numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import small_training
import torch

from subtext.core import Comparison
from subtext.data.dataset import Dataset
from subtext.errors import TrainingError
from subtext.models.checkpoint import fingerprint, load_record, load_run
from subtext.objectives.objective import Objective, Term
from subtext.training.checks import validate_plan
from subtext.training.optimiser import WeightAverage
from subtext.training.plan import Phase, Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import TrainingProgress

QUICK = RunConfig(device="cpu", workers=0)
LONG = Plan(epochs=12, batch_size=16, lr=2e-2, schedule="cosine")


def _log(run: Path, event: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if line["event"] == event]


def test_loss_falls_and_recall_rises(tmp_path: Path) -> None:
    data = small_training.pairs()
    fitted = small_training.run(tmp_path / "run", plan=LONG, val=data)
    epochs = _log(tmp_path / "run", "epoch")
    assert len(epochs) == 12
    assert epochs[-1]["loss"] < 0.7 * epochs[0]["loss"]
    assert epochs[-1]["figures"]["rsum"] > epochs[0]["figures"]["rsum"] + 50
    assert fitted.record.status == "finished"
    assert fitted.record.best["rsum"] == max(line["figures"]["rsum"] for line in epochs)
    assert epochs[fitted.record.best_epoch - 1]["figures"] == fitted.record.best
    assert not fitted.model.training


def test_best_epoch_weights_are_kept(tmp_path: Path) -> None:
    """Trained again for as many epochs as the best one counts, with the last kept, it is the same weights."""
    plan = Plan(epochs=5, batch_size=16, lr=0.3, optimiser="sgd")
    fitted = small_training.run(tmp_path / "run", plan=plan, dropout=0.0)
    best = fitted.record.best_epoch
    assert best is not None
    again = small_training.run(tmp_path / "again", plan=replace(plan, epochs=best, select="last"), dropout=0.0)
    assert fingerprint(again.model.state_dict()) == fingerprint(fitted.model.state_dict())
    assert fingerprint(load_run(tmp_path / "run")[1]) == fingerprint(fitted.model.state_dict())


def test_record_and_card_are_written(tmp_path: Path) -> None:
    fitted = small_training.run(tmp_path / "run")
    record = load_record(tmp_path / "run")
    assert record == fitted.record
    assert record.plan["lr"] == 1e-2
    assert record.versions["torch"] == torch.__version__
    assert (record.epochs, record.steps) == (3, 15)
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"Sum of all recalls: {record.best['rsum']:.1f}." in card
    assert "| lr | 0.01 |" in card


def test_weights_depend_on_seed_alone(tmp_path: Path) -> None:
    runs = [
        small_training.run(tmp_path / name, options=replace(QUICK, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    prints = [fingerprint(run.model.state_dict()) for run in runs]
    assert prints[0] == prints[1] != prints[2]


def test_weights_do_not_depend_on_workers_or_global_rng(tmp_path: Path) -> None:
    one = small_training.run(tmp_path / "one", noise=0.2)
    torch.manual_seed(77)
    before = torch.random.get_rng_state()
    two = small_training.run(tmp_path / "two", noise=0.2, options=replace(QUICK, workers=3))
    assert fingerprint(one.model.state_dict()) == fingerprint(two.model.state_dict())
    small_training.setup()
    torch.random.set_rng_state(before)
    drawn = torch.rand(3)
    made = small_training.setup()
    torch.random.set_rng_state(before)
    from subtext.models.checkpoint import Record
    from subtext.training.loop import fit

    fit(made, small_training.pairs(), None, tmp_path / "three", record=Record("small"), run=QUICK)
    assert torch.equal(torch.rand(3), drawn)


def test_last_epoch_is_kept_without_validation(tmp_path: Path) -> None:
    notes: list[str] = []
    fitted = small_training.run(tmp_path / "run", val=None, report=lambda report: notes.append(report.note or ""))
    assert any("the last epoch's weights are kept" in note for note in notes)
    assert fitted.record.plan["select"] == "last"
    assert fitted.record.best == {}
    assert fitted.record.best_epoch == 3
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_smallest_validation_loss_can_select(tmp_path: Path) -> None:
    plan = Plan(epochs=5, batch_size=16, lr=0.5, optimiser="sgd", select="loss")
    fitted = small_training.run(tmp_path / "run", plan=plan)
    losses = [line["figures"]["loss"] for line in _log(tmp_path / "run", "epoch")]
    assert len(set(losses)) > 1
    assert fitted.record.best["loss"] == min(losses)


def test_early_stopping_after_patience(tmp_path: Path) -> None:
    plan = Plan(epochs=30, batch_size=16, lr=1e-12, patience=2)
    fitted = small_training.run(tmp_path / "run", plan=plan, dropout=0.0)
    assert fitted.record.status == "finished"
    assert fitted.record.epochs == 3
    assert any("stopped early after epoch 3" in note for note in fitted.notes)


def test_plateau_lowers_lr(tmp_path: Path) -> None:
    plan = Plan(epochs=5, batch_size=16, lr=1e-12, schedule="plateau", plateau_patience=1, lr_factor=0.5)
    small_training.run(tmp_path / "run", plan=plan, dropout=0.0)
    rates = [line["lr"] for line in _log(tmp_path / "run", "epoch")]
    assert rates == pytest.approx([1e-12, 1e-12, 1e-12, 5e-13, 5e-13])


def test_phases_train_heads_first(tmp_path: Path) -> None:
    plan = Plan(epochs=2, batch_size=16, lr=1e-2, select="last")
    heads = (Phase(2, "heads"),)
    start = small_training.setup().model.state_dict()
    fitted = small_training.run(tmp_path / "run", plan=plan, phases=heads, noise=0.1)
    end = fitted.model.state_dict()
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert not any(name.startswith("image.encoder.body") for name in moved)
    assert {"image.head.project.weight", "text.encoder.words.weight", "similarity.log_scale"} <= moved
    assert all(weight.requires_grad for weight in fitted.model.parameters())


def test_averaged_weights_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[WeightAverage] = []
    plain = WeightAverage.__init__

    def watched(self: WeightAverage, *given: object) -> None:
        plain(self, *given)
        held.append(self)

    monkeypatch.setattr(WeightAverage, "__init__", watched)
    plan = Plan(epochs=3, batch_size=16, lr=1e-2, weight_average="ema", ema_decay=0.9, select="last")
    fitted = small_training.run(tmp_path / "run", plan=plan)
    for name, value in held[0].tensors.items():
        assert torch.equal(fitted.model.state_dict()[name], value), name
    raw = small_training.run(tmp_path / "raw", plan=replace(plan, weight_average="none")).model.state_dict()
    assert not torch.equal(raw["image.head.project.weight"], held[0].tensors["image.head.project.weight"])


def test_accumulation_equals_larger_batch_for_pairwise_loss(tmp_path: Path) -> None:
    """With a term that looks at each pair's own score, two batches of 8 are one of 16."""

    class Pull:
        def __call__(self, comparison: Comparison) -> torch.Tensor:
            return -comparison.scores.diagonal()

    def trained(out: Path, plan: Plan) -> dict[str, torch.Tensor]:
        from subtext.models.checkpoint import Record
        from subtext.training.loop import fit

        made = replace(
            small_training.setup(plan, dropout=0.0), objective=Objective({"pull": Term(Pull(), "image_to_text")})
        )
        return fit(made, small_training.pairs(32), None, out, record=Record("small"), run=QUICK).model.state_dict()

    plan = Plan(epochs=1, batch_size=16, lr=0.01, optimiser="sgd", max_grad_norm=0.0)
    one = trained(tmp_path / "one", plan)
    two = trained(tmp_path / "two", replace(plan, batch_size=8, accumulation_steps=2))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("chunk", [0, 4])
def test_non_finite_loss_raises_with_batch_ids(tmp_path: Path, chunk: int) -> None:
    class Spoilt(small_training.Traits):
        def __call__(self, batch: object, draw: object = None) -> dict[str, torch.Tensor]:
            tensors = super().__call__(batch, draw)
            if draw is not None and draw.epoch == 1:
                tensors["pooled"] = tensors["pooled"].where(
                    torch.tensor([[name == "train007"] for name in batch.ids]).logical_not(), float("nan")
                )
            return tensors

    from subtext.models.checkpoint import Record
    from subtext.training.loop import fit

    plan = Plan(epochs=3, batch_size=16, lr=1e-2, caption_sampling="one", grad_cache_chunk=chunk)
    made = small_training.setup(plan)
    made.model.image.input_spec = Spoilt()
    with pytest.raises(TrainingError, match=r"lower lr, or look at its pairs \(all of them: .*nan\.json\): ") as caught:
        fit(
            made,
            small_training.pairs(),
            small_training.pairs(12, "val"),
            tmp_path / "run",
            record=Record("small"),
            run=QUICK,
        )
    assert "epoch 2" in str(caught.value)
    assert len(re.findall(r"train\d+ / traint\d+", str(caught.value))) == 10
    listed = json.loads((tmp_path / "run" / "nan.json").read_text())
    assert listed["epoch"] == 2 and f"batch {listed['batch']} of epoch 2" in str(caught.value)
    assert f"and {len(listed['pairs']) - 10} more" in str(caught.value)
    assert [pair["text"] in ("traint14", "traint15") for pair in listed["pairs"] if pair["image"] == "train007"] == [
        True
    ]
    assert load_record(tmp_path / "run").status == "stopped"
    last = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert json.loads((last / "state.json").read_text())["epoch"] == 1
    for name, value in load_run(tmp_path / "run")[1].items():
        assert torch.isfinite(value).all(), name


def test_reports_are_in_step_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    heard: list[TrainingProgress] = []
    small_training.run(tmp_path / "run", report=heard.append)
    steps = [report.step for report in heard]
    assert steps == sorted(steps)
    assert heard[-1].step == heard[-1].steps == 15
    assert heard[-1].epoch == heard[-1].epochs == 3
    assert heard[-1].seconds_left == 0
    assert "rsum" in heard[-1].figures
    assert all(report.loss > 0 for report in heard if report.step)


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    small_training.run(tmp_path / "run", options=replace(QUICK, tensorboard=True, log_every=1))
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


@pytest.mark.parametrize(
    ("plan", "options", "named"),
    [
        (Plan(precision="fp16"), QUICK, "precision fp16 needs a GPU"),
        (Plan(), replace(QUICK, device="gpu7"), "device needs auto, cpu, cuda or mps; it got 'gpu7'"),
        (Plan(batch_size=1), QUICK, "needs batches of 2 pairs or more"),
    ],
)
def test_untrainable_plans_raise(tmp_path: Path, plan: Plan, options: RunConfig, named: str) -> None:
    with pytest.raises(TrainingError, match=named):
        small_training.run(tmp_path / "run", plan=plan, options=options)


def _in_groups(sizes: list[int]) -> Dataset:
    """Training pairs whose pictures hang together in groups of these sizes."""
    train = small_training.pairs(sum(sizes))
    groups = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    images, texts = (replace(items, groups=groups[items.groups]) for items in (train.images, train.texts))
    return replace(train, images=images, texts=texts)


def test_pairs_of_one_group_raise() -> None:
    with pytest.raises(TrainingError, match="all 12 pairs are of one"):
        validate_plan(small_training.setup(), _in_groups([6]), Processes("cpu"))


def test_large_group_gives_note() -> None:
    (note,) = validate_plan(small_training.setup(), _in_groups([30, 30, 40]), Processes("cpu"))
    assert note.startswith("40% of the pairs hang together in one group")
    assert validate_plan(small_training.setup(), _in_groups([10] * 10), Processes("cpu")) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_missing_gpu_raises(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="there is none; use device=cpu"):
        small_training.run(tmp_path / "run", options=replace(QUICK, device="cuda"))


@pytest.mark.parametrize("name", ["workers", "keep_checkpoints", "save_every_epochs", "log_every", "checkpoint_every"])
def test_invalid_options_raise(name: str) -> None:
    with pytest.raises(TrainingError, match=rf"{name} needs [01] or more; it got -1"):
        RunConfig(**{name: -1})


@pytest.mark.parametrize("average", ["none", "ema"])
def test_saved_epochs_are_runs(tmp_path: Path, average: Literal["none", "ema"]) -> None:
    plan = Plan(epochs=4, weight_average=average)
    kept = replace(QUICK, save_every_epochs=1)
    whole = small_training.run(tmp_path / "whole", plan=plan, options=kept)
    best = whole.record.best_epoch
    assert best is not None
    records = {epoch: load_run(tmp_path / "whole" / "epochs" / str(epoch)) for epoch in (1, 2, 3, 4)}
    assert fingerprint(records[best][1]) == fingerprint(load_run(tmp_path / "whole")[1])
    assert len({fingerprint(tensors) for _, tensors in records.values()}) == 4
    assert [record.epochs for record, _ in records.values()] == [1, 2, 3, 4]
    assert records[best][0].best == whole.record.best
    small_training.run(tmp_path / "run", plan=plan, options=kept, report=small_training.Interrupt(7))
    small_training.run(tmp_path / "run", plan=plan, options=replace(kept, resume=True))
    for epoch, (_, tensors) in records.items():
        assert fingerprint(load_run(tmp_path / "run" / "epochs" / str(epoch))[1]) == fingerprint(tensors)


def test_every_nth_epoch_is_saved(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", plan=Plan(epochs=4), options=replace(QUICK, save_every_epochs=2))
    assert sorted(path.name for path in (tmp_path / "run" / "epochs").iterdir()) == ["2", "4"]
    small_training.run(tmp_path / "none", plan=Plan(epochs=4))
    assert not (tmp_path / "none" / "epochs").exists()
