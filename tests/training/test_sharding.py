"""Towers that are divided over two processes train to the weights of one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import small_training
import torch
from divided_towers import PLANS
from find_parts import HELPERS
from gloo import started

from subtext.errors import TrainingError
from subtext.models.checkpoint import load_record, read_tensors
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.sharding import require_divisible

pytestmark = pytest.mark.identity


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What one process and what two processes left."""
    program = HELPERS / "divided_towers.py"
    return {count: started(program, tmp_path_factory.mktemp(f"divided{count}"), count) for count in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_divided_tower_trains_to_single_process_weights(folders: dict[int, Path], name: str) -> None:
    for file in (f"{name}.safetensors", f"{name}/model.safetensors", f"{name}/epochs/2/model.safetensors"):
        one, two = (read_tensors(folders[count] / file) for count in (1, 2))
        assert one.keys() == two.keys()
        for key, value in one.items():
            torch.testing.assert_close(two[key], value, rtol=1e-4, atol=1e-5, msg=f"{file}: {key}".__add__)
    records = [load_record(folders[count] / name) for count in (1, 2)]
    assert records[0].best == pytest.approx(records[1].best)


@pytest.mark.slow
def test_process_holds_its_share_of_weights_and_state(folders: dict[int, Path]) -> None:
    held = json.loads((folders[2] / "held.json").read_text())
    layers = sum(value.numel() for value in small_training.Layers().body.parameters())
    # The first of two processes has 8 of 15 rows.
    assert held["weights divided"] == len(PLANS) * layers * 8 // 15
    assert held["state divided"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_other_number_of_processes_goes_on(folders: dict[int, Path], tmp_path: Path, count: int) -> None:
    """Checkpoints hold whole tensors, so the training of two goes on as one, and that of one as before."""
    run = tmp_path / "half"
    shutil.copytree(folders[count] / "half", run)
    options = RunConfig(device="cpu", workers=0, resume=True)
    assert load_record(run).status == "stopped"
    small_training.run(run, plan=PLANS["averaged"], options=options, made=small_training.setup_with_layers)
    one = read_tensors(folders[1] / "averaged.safetensors")
    for key, value in read_tensors(run / "model.safetensors").items():
        torch.testing.assert_close(value, one[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("plan", "layers", "count", "needed"),
    [
        (Plan(), True, 1, "shard_weights needs two processes or more"),
        (Plan(), False, 2, "no tower of this model has layers"),
        (Plan(optimiser="adamp"), True, 2, "use adamw"),
        (Plan(epochs=3, freeze_epochs=1), True, 2, "in all epochs or in none"),
    ],
)
def test_what_cannot_be_divided_is_refused(plan: Plan, layers: bool, count: int, needed: str) -> None:
    processes = Processes("cpu")
    processes.count = count
    made = small_training.setup_with_layers if layers else small_training.setup
    with pytest.raises(TrainingError, match=needed):
        require_divisible(made(plan), processes)


def test_layers_that_share_weights_are_refused() -> None:
    made, processes = small_training.setup_with_layers(), Processes("cpu")
    processes.count = 2
    made.model.image.encoder.body[1] = made.model.image.encoder.body[0]
    with pytest.raises(TrainingError, match="share no weights"):
        require_divisible(made, processes)
