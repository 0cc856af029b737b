"""`subtext compare`: two evaluations, or two sides of several, as a table with intervals and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.core import DIRECTIONS
from subtext.data.atomic import write_text
from subtext.data.output import require_file
from subtext.errors import counted
from subtext.evaluation.compare import Contrast, Difference, Measured, compare, read_measured
from subtext.report.text_table import Cell, table


@dataclass(frozen=True)
class Asked:
    """Files of both sides, which figures, and how often is resampled.

    json_out  a file for the JSON; None for none
    """

    first: tuple[Path, ...]
    second: tuple[Path, ...]
    figures: tuple[str, ...] = ()
    samples: int = 2000
    seed: int = 0
    json_out: Path | None = None


@dataclass(frozen=True)
class Compared:
    """Both sides and what comparing them found."""

    first: tuple[Measured, ...]
    second: tuple[Measured, ...]
    contrast: Contrast

    def to_json(self) -> dict[str, Any]:
        """The contrast, below which files it is of."""
        sides = {"first": self.first, "second": self.second}
        files = {name: [_subject(run) for run in side] for name, side in sides.items()}
        return {**files, **self.contrast.to_json()}

    def json_text(self) -> str:
        """The same as indented JSON."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False)

    def text(self) -> str:
        """For people: who is compared, a table, a verdict and the notes."""
        return "\n".join(
            [
                f"A: {_side(self.first)}",
                f"B: {_side(self.second)}",
                _gallery(self.first[0]),
                *_tables(self.contrast),
                _verdict(self),
                *(f"note: {note}" for note in self.contrast.notes),
            ]
        )


def carry_out(asked: Asked) -> Compared:
    """Read the files, compare them, and write the JSON if it is asked for.

    Raises what reading and comparing raise; OutputError when the JSON cannot be written, before the work begins.
    """
    if asked.json_out is not None:
        require_file(asked.json_out)
    first, second = (tuple(read_measured(path.expanduser()) for path in side) for side in (asked.first, asked.second))
    contrast = compare(first, second, figures=asked.figures, samples=asked.samples, seed=asked.seed)
    found = Compared(first, second, contrast)
    if asked.json_out is not None:
        write_text(asked.json_out, found.json_text() + "\n")
    return found


def _subject(run: Measured) -> dict[str, Any]:
    return {"file": str(run.path), "seed": run.seed, "model": run.about.get("model")}


def _side(runs: Sequence[Measured]) -> str:
    names = ", ".join(str(run.path) for run in runs)
    host = runs[0].training["host"] or runs[0].training["pretrained"] or ""
    methods = "".join(f" + {method[0]}" for method in runs[0].training["methods"] or ())
    seeds = [str(run.seed) for run in runs if run.seed is not None]
    told = f", seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" if seeds else ""
    what = f"{host}{methods}, " if host else ""
    return f"{what}{counted(len(runs), 'run')}{told} ({names})"


def _gallery(run: Measured) -> str:
    protocol = run.protocol
    gallery = protocol.get("gallery", {})
    counts = f"{counted(gallery.get('images', 0), 'image')}, {counted(gallery.get('texts', 0), 'text')}"
    split = f"split {protocol['split']}: " if protocol.get("split") else ""
    return f"{split}{counts}; ties {protocol.get('ties')}; numbers in per cent, ranks from 1"


def _tables(contrast: Contrast) -> list[str]:
    head = ["A", "B", "A - B", "95 %", "p queries", "p runs", "better"]
    found = []
    for direction in DIRECTIONS:
        lines = [line for line in contrast.lines if line.name.startswith(f"{direction}/")]
        if lines:
            rows = [_row(line.name.split("/", 1)[1].replace("_", " "), line) for line in lines]
            found.append(table([direction.replace("_", " "), *head], rows))
    for line in contrast.lines:
        if line.name == "rsum":
            found.append(
                f"rsum {line.first:.1f} and {line.second:.1f}: {line.difference:+.1f} (its six parts are tested)"
            )
    return found


def _row(label: str, line: Difference) -> list[Cell]:
    between = None if math.isnan(line.low) else f"{line.low:+.1f} to {line.high:+.1f}"
    better = {"first": "A", "second": "B"}.get(line.better)
    row: list[Cell] = [label, _mean(line.first_runs), _mean(line.second_runs), f"{line.difference:+.1f}", between]
    return [*row, _p(line.p_queries), _p(line.p_runs), better]


def _mean(runs: Sequence[float]) -> str:
    """The mean, and the standard deviation where there are several."""
    mean = sum(runs) / len(runs)
    if len(runs) < 2:
        return f"{mean:.1f}"
    return f"{mean:.1f} ± {math.sqrt(sum((run - mean) ** 2 for run in runs) / (len(runs) - 1)):.1f}"


def _p(value: float) -> str | None:
    return None if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _verdict(found: Compared) -> str:
    """One sentence, which claims no more than the tests can carry."""
    tested = [line for line in found.contrast.lines if line.tested]
    if not tested:
        return "no figure could be tested: a test needs 10 pictures"
    ahead = {side: [line for line in tested if line.better == side] for side in ("first", "second")}
    told = [
        f"{label} is better in {len(ahead[side])} of {counted(len(tested), 'figure')}"
        for side, label in (("first", "A"), ("second", "B"))
        if ahead[side]
    ]
    if not told:
        return "no figure tells the two apart on these queries"
    alone = min(len(found.first), len(found.second)) < 2
    what = "these trained models, on queries like these" if alone else "on queries like these, with these trainings"
    return f"{' and '.join(told)} ({what})"
