"""Two processes remember the same as each other, to the bit, and train to one process's weights."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from subtext.checkpoint import fingerprint, read_tensors
from subtext.core import Embeddings
from subtext.training.processes import Processes

PROGRAM = Path(__file__).parents[1] / "weights_in_processes.py"


def _started(out: Path, count: int) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
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


def test_two_processes_remember_and_learn_what_one_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    one, two = (_started(tmp_path_factory.mktemp(f"weights{count}"), count) for count in (1, 2))
    first, second = (read_tensors(two / f"memory{rank}.safetensors") for rank in (0, 1))
    assert fingerprint(first) == fingerprint(second)
    whole = read_tensors(one / "memory0.safetensors")
    assert whole.keys() == first.keys() and "table/discrepancy/image" in whole
    for name, value in whole.items():
        torch.testing.assert_close(first[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")
    trained, both = (read_tensors(folder / "trained.safetensors") for folder in (one, two))
    for name, value in trained.items():
        torch.testing.assert_close(both[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(("count", "length"), [(2, 15), (3, 16), (4, 4), (1, 9)])
def test_all_processes_see_a_batch_in_one_order(count: int, length: int) -> None:
    processes = Processes("cpu")
    for rank in range(count):
        processes.rank, processes.count = rank, count
        own = processes.share(length)
        mine = [*range(length)[own], *(row for row in range(length) if row not in range(length)[own])]
        items = Embeddings(torch.tensor(mine)[:, None, None].float(), torch.tensor(mine))
        assert processes.in_order(items, len(range(length)[own])).ids.tolist() == list(range(length))
