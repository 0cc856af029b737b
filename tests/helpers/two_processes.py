"""One of several processes that share every batch; started by tests/training/test_processes.py.

Writes what it ended with: the gradients of one batch, or the weights after a whole training.
"""

from __future__ import annotations

import sys
from pathlib import Path

import small_training
import torch
import word_graph

from subtext.core import Epoch
from subtext.data.inputs import Draw
from subtext.models.checkpoint import put_tensors
from subtext.recipes.methods.asymmetry import asymmetry
from subtext.recipes.methods.neighbourhoods.sampling import NeighbourReader, RandomTextSampler, Sampler
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.step import Stepper, StepReader

ROWS = 15
KINDS = (
    ("penalty", 0), ("penalty", 4), ("parts", 0), ("together", 0), ("together", 4),
    ("neighbours", 0), ("neighbours", 4), ("texts' neighbours", 0), ("made texts", 0), ("made texts", 4),
    ("neighbours and random texts", 0), ("neighbours and random texts", 4),
)  # fmt: skip
TRAIN = Plan(epochs=2, batch_size=16, lr=1e-2, schedule="cosine", patience=5)


def gradients(kind: str, chunk: int) -> dict[str, torch.Tensor]:
    """Of a batch of an odd number of pairs, summed over processes; the loss with them."""
    processes = Processes("cpu")
    made = small_training.setup_with_parts() if kind == "parts" else small_training.setup_with_penalty()
    data = small_training.pairs()
    if "neighbours" in kind:
        form = "reference" if "random" in kind else "angular"
        image = 0.0 if kind.startswith("texts") else 0.3
        made = word_graph.setup(Path("unread"), dropout=0.0, negatives="both", form=form, image_weight=image)
        (sampled,) = made.extras
        by_side = {side: Sampler(data, word_graph.graph(data).neighbours) for side in sampled.sides}
        random_texts = RandomTextSampler(data) if sampled.random_texts else None
        extras = [NeighbourReader(by_side, "both", "", random_texts=random_texts)]
    else:
        if kind == "made texts":
            made = asymmetry(small_training.setup_with_parts(), negatives="shuffle")
        extras = [extra.open(data) for extra in made.extras]
    model = made.model.double().train()
    plan = Plan(batch_size=ROWS, grad_cache_chunk=chunk)
    reader = StepReader(
        model,
        data,
        Draw(0, 0),
        together=kind == "together",
        processes=processes.count,
        rank=processes.rank,
        extras=extras,
    )
    reading = reader(data.links[:ROWS])
    reading.images["pooled"] = reading.images["pooled"].double()
    for extra in reading.extras:
        for side, tensors in extra.items.values():
            if side == "image":
                tensors["pooled"] = tensors["pooled"].double()
    stepper = Stepper(model, made.objective, plan, processes)
    loss, parts = stepper(reading, Epoch(number=0, seed=0), name="step 0")
    weights = list(model.parameters())
    told = processes.sum_gradients(weights, torch.cat([loss[None], parts]))
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {**found, "numbers": told}


def main() -> None:
    """Gradients of every kind, then a training; the first process writes them."""
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    several = Processes("cpu").count > 1
    for kind, chunk in KINDS:
        # One process shows what several ought to give; it needs no chunks.
        if chunk and not several:
            continue
        found = gradients(kind, chunk)
        if Processes("cpu").first:
            put_tensors(out / f"{kind}{chunk}.safetensors", found)
    fitted = small_training.run(out / "run", plan=TRAIN, options=RunConfig(device="cpu", workers=0), dropout=0.0)
    if Processes("cpu").first:
        put_tensors(out / "trained.safetensors", fitted.model.state_dict())
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
