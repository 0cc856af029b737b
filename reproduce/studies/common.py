"""What the scripts of this folder share: the selection split, a graph, the command line and its cost, a table's row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = [f"{way}/recall@{k}" for way in ("text_to_image", "image_to_text") for k in (1, 5, 10)]
HEAD = (
    "| row | seeds | text to image R@1 / 5 / 10 | image to text R@1 / 5 / 10 | rsum | seconds (processor) | MB |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds on the clock and of processor time, and the most memory that it held."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def selection(captions: Path, made: Path, *, held_out: int, first: int | None = None) -> Path:
    """The captions with the last `held_out` train pictures in a split of their own, "select".

    first  keep the first so many of the other train pictures; None for all
    """
    rows = [json.loads(line) for line in captions.read_text(encoding="utf-8").splitlines()]
    train = [row for row in rows if row["split"] == "train"]
    learnt, held = train[:-held_out][:first], train[-held_out:]
    kept = [*learnt, *({**row, "split": "select"} for row in held), *(row for row in rows if row["split"] != "train")]
    # Two calls at once may not see each other's half of it.
    new = made.with_name(f".{made.name}.{os.getpid()}")
    new.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return new.replace(made)


def subtext(arguments: list[str]) -> Cost:
    """Run the command line as a user does, and tell what it took; ends the script when it fails."""
    started = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "subtext", *arguments])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"this failed: subtext {' '.join(arguments)}")
    # Linux counts the peak in kilobytes, macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def neighbours(source: Path, graph: Path, space: str, *, split: str = "train") -> Path:
    """The graph of a split, 200 neighbours a text in this space, built once."""
    if not graph.is_dir():
        subtext(["neighbours", "build", str(graph), "--data", str(source), "--space", space, "--split", split])
    return graph


def measured(
    run: Path, train: list[str], *, split: str | None, data: Path | None = None, further: Sequence[str] = ()
) -> dict[str, Any]:
    """Train into a folder and score a split once, or read what that gave before.

    split    None for the figures of the selection set that chose the epoch
    data     whose split; None for the data that was learnt from
    further  what else the evaluation is told; its JSON is RUN-SPLIT.json, beside the run
    """
    found = run.with_name(f"{run.name}.json")
    if not found.is_file():
        cost = subtext(["train", *train, "--out", str(run), "--resume"])
        figures: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))["best"]
        if split is not None:
            scored = run.with_name(f"{run.name}-{split}.json")
            other = [] if data is None else ["--data", str(data)]
            subtext(["evaluate", str(run), "--split", split, "--json", str(scored), *other, *further])
            figures = json.loads(scored.read_text(encoding="utf-8"))
        kept = {key: figures[key] for key in (*NAMES, "rsum", "intervals", "chance") if key in figures}
        found.write_text(json.dumps({**kept, **vars(cost)}, indent=2) + "\n", encoding="utf-8")
    return dict(json.loads(found.read_text(encoding="utf-8")))


def line(name: str, results: list[dict[str, Any]]) -> str:
    """A row under HEAD: means over seeds, and ranges of what is compared."""

    def mean(key: str) -> float:
        return sum(result[key] for result in results) / len(results)

    def spread(key: str) -> str:
        values = [result[key] for result in results]
        return f"[{min(values):.1f}-{max(values):.1f}]"

    ways = [" / ".join(f"{mean(key):.1f}" for key in keys) for keys in (NAMES[:3], NAMES[3:])]
    cells = [f"{way} {spread(key)}" for way, key in zip(ways, (NAMES[2], NAMES[5]), strict=True)]
    total = f"{mean('rsum'):.1f} {spread('rsum')}"
    took = f"{mean('seconds'):.0f} ({mean('processor_seconds'):.0f})"
    peak = max(result["peak_mb"] for result in results)
    return f"| {name} | {len(results)} | {cells[0]} | {cells[1]} | {total} | {took} | {peak:.0f} |"
