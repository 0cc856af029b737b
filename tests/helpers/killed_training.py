"""A program that trains and is killed, again and again, until it is let through to the end.

python tests/helpers/killed_training.py OUT --kills 6 --seed 1 --workers 2

Every attempt is a child of this process, forked after the imports. Half of them are killed at a drawn moment after
their n-th batch, the others kill themselves as they flush something to the disk for the n-th time, in the midst of
writing. Prints how many were killed, and what the last one noted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
import traceback
from pathlib import Path

import small_training
import torch
from dying_process import die_at_flush
from torch import nn

from subtext.training.plan import Plan, RunConfig
from subtext.training.setup import TrainingProgress

PLAN = Plan(
    epochs=3,
    batch_size=16,
    lr=1e-2,
    schedule="plateau",
    plateau_patience=0,
    accumulation_steps=2,
    weight_average="ema",
    amsgrad=True,
    freeze_epochs=-1,
)


def train(out: Path, workers: int) -> list[str]:
    """Begin or go on; gives what was noted."""
    notes: list[str] = []

    def hear(report: TrainingProgress) -> None:
        if report.note:
            notes.append(report.note)

    options = RunConfig(device="cpu", workers=workers, resume=True, checkpoint_every=3, keep_checkpoints=1, log_every=1)
    small_training.run(out, plan=PLAN, options=options, noise=0.1, report=hear)
    return notes


SLOW = 0.02
"""Seconds that a batch takes longer, so that a moment within it can be drawn."""


def attempt(out: Path, workers: int, *, flushes: int | None) -> tuple[int, int]:
    """Fork a training: its process id, and a pipe with a byte for each batch that it begins."""
    batches, begun = os.pipe()
    child = os.fork()
    if child:
        os.close(begun)
        return child, batches
    code = 1
    try:
        if flushes is not None:
            die_at_flush(flushes)
        small_training.Body.forward = _late(small_training.Body.forward, begun)  # type: ignore[method-assign]
        train(out, workers)
        code = 0
    finally:
        # The child must not go on into its parent's program, whatever happened.
        if code:
            traceback.print_exc()
        os._exit(code)


def _late(plain: object, begun: int) -> object:
    def forward(self: nn.Module, inputs: object) -> object:
        os.write(begun, b".")
        time.sleep(SLOW)
        return plain(self, inputs)  # type: ignore[operator]

    return forward


def main() -> None:
    """Kill, go on, and at last finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    draws = random.Random(asked.seed)
    killed = 0
    for turn in range(asked.kills):
        flushes = draws.randint(1, 24) if turn % 2 else None
        child, batches = attempt(asked.out, asked.workers, flushes=flushes)
        if flushes is None:
            left = draws.randint(1, 6)
            while left and os.read(batches, 1):
                left -= 1
            time.sleep(draws.uniform(0, SLOW))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(batches)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.waitstatus_to_exitcode(status):
            raise SystemExit(f"attempt {turn} failed")
    print(json.dumps({"killed": killed, "notes": train(asked.out, asked.workers)}))


if __name__ == "__main__":
    main()
