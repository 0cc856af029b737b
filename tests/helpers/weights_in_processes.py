"""One of several processes that train with neighbourhood weights, for tests of methods in several processes.

Every process writes what it remembers at the end, and the first one the weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import small_training
import torch
import word_graph

from subtext.models.checkpoint import put_tensors
from subtext.recipes.methods.combined import combined
from subtext.recipes.neighbour_scores import NeighbourBank, NeighbourScores
from subtext.recipes.options import NeighbourOptions, WeightOptions
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes


def main() -> None:
    """Train with every caption, so that a picture comes twice in some batches."""
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    opened: list[NeighbourBank] = []
    plain = NeighbourScores.open

    def watched(asked: NeighbourScores, pairs: object, *, device: torch.device) -> NeighbourBank:
        opened.append(plain(asked, pairs, device=device))
        return opened[-1]

    NeighbourScores.open = watched
    plan = Plan(epochs=3, batch_size=16, lr=1e-2, select="last")
    data = small_training.pairs()
    graph = out / f"graph{Processes('cpu').rank}"
    word_graph.save(data, graph)

    def made(given: Plan | None) -> object:
        return combined(
            small_training.setup(plan, dropout=0.0),
            neighbours=NeighbourOptions(graph=str(graph)),
            weights=WeightOptions(combine="absdiff"),
        )

    fitted = small_training.run(out / "run", made=made, train=data, options=RunConfig(device="cpu", workers=0))
    put_tensors(out / f"memory{Processes('cpu').rank}.safetensors", opened[0].tensors())
    if Processes("cpu").first:
        put_tensors(out / "trained.safetensors", fitted.model.state_dict())
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
