"""`subtext evaluate`: figures with intervals beside chance, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subtext.app.figures import SHOWN, figures_table
from subtext.app.job import Work
from subtext.app.opened import open_work
from subtext.app.progress import meter
from subtext.checkpoint import write_text
from subtext.data.atomic import write_file
from subtext.evaluate import Protocol, Result
from subtext.evaluate import evaluate as measure


def evaluate(work: Work, protocol: Mapping[str, Any], json_out: str | None, per_query: Path | None) -> tuple[str, str]:
    """Evaluate as the work says; gives a table for people and the JSON.

    protocol   fields of `subtext.evaluate.Protocol`
    json_out   file for the JSON, "-" for none of it on disk; per_query  npz for one value a query

    Raises what opening, reading and evaluating raise.
    """
    asked = Protocol(**protocol)
    opened = open_work(work)
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        result = measure(
            opened.model, pairs, protocol=asked, batch_size=work.batch_size, workers=work.workers, progress=told
        )
    found = _json(result, work, opened.split)
    text = json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False)
    if json_out not in (None, "-"):
        write_text(Path(json_out), text + "\n")
    if per_query is not None:
        write_file(per_query, lambda place: _write_arrays(place, result))
    return _text(result, opened.split, asked), text


def _json(result: Result, work: Work, split: str) -> dict[str, Any]:
    found = result.to_json()
    found["model"] = {"run": str(work.run.resolve())} if work.run is not None else {"pretrained": work.model}
    found["split"] = split
    return found


def _text(result: Result, split: str, asked: Protocol) -> str:
    gallery = result.protocol["gallery"]
    folds = f", {asked.folds} folds" if asked.folds > 1 else ""
    head = f"split {split}: {gallery['pictures']:,} pictures, {gallery['texts']:,} texts{folds}; ties {asked.ties}"
    ways = [f"{c}_way{what}" for c in asked.c_way for what in ("@1", "@3", "_mean_rank")]
    names = [name for name in SHOWN if "recall" not in name]
    recalls = [f"recall@{k}" for k in asked.recall]
    lines = [head, figures_table(result.figures, result.chance, result.intervals, names=[*recalls, *names])]
    if ways:
        lines.append(figures_table(result.figures, result.chance, result.intervals, names=ways, summed=False))
    ties = max(result.figures[f"{direction}/tie_share"] for direction in ("image_to_text", "text_to_image"))
    if ties > 0:
        lines.append(f"ties: in up to {ties:.1f} % of queries a wrong candidate has the partner's score")
    return "\n".join(lines)


def _write_arrays(place: Path, result: Result) -> None:
    columns: dict[str, Any] = dict(result.per_query)
    with place.open("wb") as file:
        np.savez(file, allow_pickle=False, **columns)
