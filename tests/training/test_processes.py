"""Two gloo processes that share a batch give one process's gradients, and train to its weights."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import made_data
import psutil
import pytest
import torch
from find_parts import HELPERS
from gloo import free_port, started
from two_processes import KINDS

from subtext.errors import CheckpointError, TrainingError
from subtext.models.checkpoint import load_record, read_tensors
from subtext.training.processes import Processes, part
from subtext.training.run_folder import opened_folder

pytestmark = pytest.mark.identity

PROGRAM = HELPERS / "two_processes.py"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What one process and what two processes left."""
    return {count: started(PROGRAM, tmp_path_factory.mktemp(f"processes{count}"), count) for count in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "chunk"), KINDS)
def test_two_processes_give_single_process_gradients(folders: dict[int, Path], kind: str, chunk: int) -> None:
    one = read_tensors(folders[1] / f"{kind}0.safetensors")
    two = read_tensors(folders[2] / f"{kind}{chunk}.safetensors")
    assert one.keys() == two.keys()
    assert len(one) > 8
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=1e-9, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.slow
def test_two_processes_train_to_single_process_weights(folders: dict[int, Path]) -> None:
    one, two = (read_tensors(folders[count] / "trained.safetensors") for count in (1, 2))
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert load_record(folders[2] / "run").status == "finished"
    assert len((folders[2] / "run" / "log.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(("count", "length"), [(2, 15), (3, 16), (4, 4), (1, 9)])
def test_shares_partition_the_batch(count: int, length: int) -> None:
    covered: list[int] = []
    for rank in range(count):
        covered += range(length)[part(length, rank, count)]
    assert covered == list(range(length))


@pytest.mark.slow
def test_accelerate_launch_trains_to_single_process_weights(tmp_path: Path) -> None:
    """The command line as a user starts it; one process speaks for both."""
    data, features = made_data.write(tmp_path)
    words = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--seed", 3]
    words += ["--batch-size", 16, "--epochs", 2, "--workers", 0, "--device", "cpu"]
    launch = ["-m", "accelerate.commands.launch", "--num_processes", 2, "--num_machines", 1, "--cpu"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", free_port()]
    for out, start in (("one", []), ("two", launch)):
        command = [sys.executable, *start, "-m", "subtext", *words, "--out", tmp_path / out]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("finished after 2 epochs") == 1
        assert done.stderr.count("epoch 2 of 2") == 1
    one, two = (read_tensors(tmp_path / out / "model.safetensors") for out in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    records = [load_record(tmp_path / out) for out in ("one", "two")]
    assert records[0].steps == records[1].steps
    assert records[0].best == pytest.approx(records[1].best)


@pytest.mark.slow
def test_torchrun_goes_on_after_a_lost_process(tmp_path: Path) -> None:
    """One of two processes is killed and both end; the same command then gives the run of one process."""
    data, features = made_data.write(tmp_path)
    words = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--seed", 3]
    words += ["--batch-size", 16, "--epochs", 40, "--workers", 0, "--device", "cpu", "--resume"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    one, two = tmp_path / "one", tmp_path / "two"
    command = [*map(str, [sys.executable, "-m", "subtext", *words, "--out", one])]
    subprocess.run(command, env=env, capture_output=True, check=True)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "subtext", *words]
    command = [*map(str, [sys.executable, *launch, "--out", two])]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        agent = psutil.Process(running.pid)
        while running.poll() is None and not list((two / "checkpoints").glob("step-*-epoch")):
            time.sleep(0.01)
        max(agent.children(), key=lambda child: child.create_time()).kill()
        told = running.communicate()[1]
    assert running.returncode and "Traceback" not in told.partition("failed (exitcode")[0]
    again = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "note: going on from step" in again.stderr and again.stdout.count("finished after 40 epochs") == 1
    for name, value in read_tensors(one / "model.safetensors").items():
        torch.testing.assert_close(read_tensors(two / "model.safetensors")[name], value, rtol=2e-3, atol=2e-4)


def test_process_that_does_not_see_the_folder_of_the_first_says_so(tmp_path: Path) -> None:
    second = SimpleNamespace(first=False, rank=1, count=2, broadcast=lambda values: values)
    (tmp_path / "run").mkdir()
    needed = r"process 2 of 2 .* on a disk that all machines share"
    with pytest.raises(CheckpointError, match=needed), opened_folder(tmp_path / "run", cast(Processes, second)):
        pass


@pytest.mark.parametrize("message", ["[gloo/transport/tcp/pair.cc:553] Connection closed by peer", "NCCL error"])
def test_lost_process_is_told_in_a_sentence(message: str) -> None:
    several = Processes("cpu")
    several.rank, several.count = 1, 2
    with pytest.raises(TrainingError, match=r"process 2 of 2 lost another one.* with resume: "), several.together():
        raise RuntimeError(message)
    with pytest.raises(RuntimeError, match="shapes"), several.together():
        raise RuntimeError("shapes do not fit")
