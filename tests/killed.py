"""A program that trains and is killed, again and again, until it is let through to the end.

python tests/killed.py OUT --kills 6 --seed 1 --workers 2

Every attempt is a child of this process, forked after the imports. Half of them are killed at a drawn moment, the
others kill themselves as they flush something to the disk for the n-th time, in the midst of writing. Prints how many
were killed, and what the last one noted.
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

import small
import torch
from dying import die_at_flush
from torch import nn

from subtext.training.plan import Plan
from subtext.training.setup import Report, RunOptions

PLAN = Plan(
    epochs=3,
    batch_size=16,
    lr=1e-2,
    schedule="plateau",
    plateau_patience=0,
    accumulation_steps=2,
    weight_average="ema",
    amsgrad=True,
)


def train(out: Path, workers: int) -> list[str]:
    """Begin or go on; gives what was noted."""
    notes: list[str] = []

    def hear(report: Report) -> None:
        if report.note:
            notes.append(report.note)

    options = RunOptions(
        device="cpu", workers=workers, resume=True, checkpoint_every=3, keep_checkpoints=1, log_every=1
    )
    small.run(out, plan=PLAN, options=options, noise=0.1, report=hear)
    return notes


def attempt(out: Path, workers: int, *, flushes: int | None, slow: float) -> int:
    """Fork a training; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if flushes is not None:
            die_at_flush(flushes)
        small.Body.forward = _late(small.Body.forward, slow)  # type: ignore[method-assign]
        train(out, workers)
        code = 0
    finally:
        # The child must not go on into its parent's program, whatever happened.
        if code:
            traceback.print_exc()
        os._exit(code)


def _late(plain: object, seconds: float) -> object:
    def forward(self: nn.Module, inputs: object) -> object:
        time.sleep(seconds)
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
        flushes = draws.randint(1, 60) if turn % 2 else None
        child = attempt(asked.out, asked.workers, flushes=flushes, slow=0.02)
        if flushes is None:
            time.sleep(draws.uniform(0.05, 0.6))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.waitstatus_to_exitcode(status):
            raise SystemExit(f"attempt {turn} failed")
    print(json.dumps({"killed": killed, "notes": train(asked.out, asked.workers)}))


if __name__ == "__main__":
    main()
