"""Two gloo processes that share a batch give one process's gradients, and train to its weights."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from two_processes import KINDS

from subtext.checkpoint import load_record, read_tensors
from subtext.training.processes import Processes

PROGRAM = Path(__file__).parents[1] / "two_processes.py"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What one process and what two processes left."""
    return {count: _started(tmp_path_factory.mktemp(f"processes{count}"), count) for count in (1, 2)}


def _started(out: Path, count: int) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(count):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parent)}
        if count > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "ACCELERATE_USE_CPU": "true"}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(PROGRAM), str(out)]
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    told = [process.communicate(timeout=180)[0] for process in running]
    assert [process.returncode for process in running] == [0] * count, "\n".join(told)
    return out


@pytest.mark.parametrize(("kind", "chunk"), KINDS)
def test_two_processes_give_one_processes_gradients(folders: dict[int, Path], kind: str, chunk: int) -> None:
    one = read_tensors(folders[1] / f"{kind}0.safetensors")
    two = read_tensors(folders[2] / f"{kind}{chunk}.safetensors")
    assert one.keys() == two.keys()
    assert len(one) > 8
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=1e-9, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_two_processes_train_to_one_processes_weights(folders: dict[int, Path]) -> None:
    one, two = (read_tensors(folders[count] / "trained.safetensors") for count in (1, 2))
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert load_record(folders[2] / "run").status == "finished"
    assert len((folders[2] / "run" / "log.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(("count", "length"), [(2, 15), (3, 16), (4, 4), (1, 9)])
def test_shares_cover_the_batch_once(count: int, length: int) -> None:
    processes = Processes("cpu")
    covered: list[int] = []
    for rank in range(count):
        processes.rank, processes.count = rank, count
        covered += range(length)[processes.share(length)]
    assert covered == list(range(length))
