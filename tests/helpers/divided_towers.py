"""One of several processes that divide a tower, or the one that has all of it; for tests/training/test_sharding.py.

Writes the run of each plan, and what this process held of the tower while it was trained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import small_training
import torch
from torch.distributed.tensor import DTensor

from subtext.models.checkpoint import put_tensors
from subtext.training import loop
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes

BASE = {"epochs": 3, "batch_size": 16, "lr": 1e-2, "max_grad_norm": 0.05}
PLANS = {
    "adamw": Plan(**BASE, optimiser="adamw", weight_decay=0.1),
    "averaged": Plan(**BASE, optimiser="sgd", weight_average="ema", ema_decay=0.9),
    "chunks": Plan(**BASE, grad_cache_chunk=4, accumulation_steps=2),
    "frozen": Plan(**BASE, freeze_epochs=-1),
    "loss": Plan(**BASE, weight_average="swa", select="loss"),
    "not divided": Plan(**BASE, select="loss"),
}


def main() -> None:
    """Trains by every plan; then stops one half-way, which another number of processes may go on with."""
    torch.set_num_threads(1)
    out, several = Path(sys.argv[1]), Processes("cpu").count > 1
    held: dict[str, int] = {}

    class Watching(loop.Trainer):
        def run(self, *given: object, **named: object) -> object:
            result = super().run(*given, **named)
            for kind, tensors in (("weights", self.working.parameters()), ("state", _state(self.state.optimiser))):
                for value in tensors:
                    whole = isinstance(value, DTensor)
                    key = f"{kind} {'divided' if whole else 'whole'}"
                    held[key] = held.get(key, 0) + (value.to_local() if whole else value).numel()
            return result

    if several:
        loop.Trainer = Watching
    for name, plan in PLANS.items():
        options = RunConfig(
            device="cpu",
            workers=0,
            shard_weights=several and name != "not divided",
            save_every_epochs=2,
            cache=out / "cache",
        )
        fitted = small_training.run(out / name, plan=plan, options=options, made=small_training.setup_with_layers)
        if Processes("cpu").first:
            put_tensors(out / f"{name}.safetensors", fitted.model.state_dict())
    stop = small_training.Interrupt(7)
    options = RunConfig(device="cpu", workers=0, shard_weights=several, checkpoint_every=2)
    made, first = small_training.setup_with_layers, Processes("cpu").first
    small_training.run(out / "half", plan=PLANS["averaged"], options=options, made=made, report=stop if first else None)
    if first:
        (out / "held.json").write_text(json.dumps(held))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _state(optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimiser.state.values() for value in state.values() if value.ndim]


if __name__ == "__main__":
    main()
