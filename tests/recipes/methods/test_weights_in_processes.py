"""Two processes remember the same as each other, to the bit, and train to one process's weights."""

from __future__ import annotations

import pytest
import torch
from find_parts import HELPERS
from gloo import started

from subtext.core import Embeddings
from subtext.models.checkpoint import fingerprint, read_tensors
from subtext.training.processes import Processes, part

pytestmark = pytest.mark.identity

PROGRAM = HELPERS / "weights_in_processes.py"


@pytest.mark.slow
def test_two_processes_learn_as_one_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    one, two = (started(PROGRAM, tmp_path_factory.mktemp(f"weights{count}"), count) for count in (1, 2))
    first, second = (read_tensors(two / f"memory{rank}.safetensors") for rank in (0, 1))
    assert fingerprint(first) == fingerprint(second)
    whole = read_tensors(one / "bank0.safetensors")
    assert whole.keys() == first.keys() and "table/discrepancy/image" in whole
    for name, value in whole.items():
        torch.testing.assert_close(first[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")
    trained, both = (read_tensors(folder / "trained.safetensors") for folder in (one, two))
    for name, value in trained.items():
        torch.testing.assert_close(both[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(("count", "length"), [(2, 15), (3, 16), (4, 4), (1, 9)])
def test_all_processes_see_batch_in_one_order(count: int, length: int) -> None:
    processes = Processes("cpu")
    for rank in range(count):
        processes.rank, processes.count = rank, count
        own = part(length, rank, count)
        mine = [*range(length)[own], *(row for row in range(length) if row not in range(length)[own])]
        items = Embeddings(torch.tensor(mine)[:, None, None].float(), torch.tensor(mine))
        assert processes.in_order(items, len(range(length)[own])).ids.tolist() == list(range(length))
