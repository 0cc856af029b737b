"""`subtext runs`: what was trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from subtext.errors import CheckpointError
from subtext.models.checkpoint import RECORD, Record, load_record
from subtext.report.text_table import Cell, duration, size, table

DEPTH = 2
"""Levels of folders below a given one in which runs are looked for."""

FIGURES = ("image_to_text/recall@10", "text_to_image/recall@10", "rsum")


def list_runs(folders: Sequence[Path], *, as_json: bool = False) -> str:
    """A table of the runs in these folders and below, or the same as JSON.

    Raises CheckpointError for a folder that is not there.
    """
    found = [_describe(path) for path in _runs(folders)]
    if as_json:
        return json.dumps(found, indent=2, ensure_ascii=False)
    if not found:
        return f"no runs in {', '.join(map(str, folders))}; `subtext train --out RUN` makes one"
    head = ["run", "recipe", "data", "status", "epochs", "i2t r@10", "t2i r@10", "rsum", "time", "disk"]
    return table(head, [_row(run) for run in found])


def _runs(folders: Iterable[Path]) -> Iterator[Path]:
    """Folders with a record, by name, each once; what stands inside a run is not looked at."""
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise CheckpointError(f"runs are looked for in folders; {folder} is none; name one that is there")
        for run in _below(folder, DEPTH):
            if run.resolve() not in seen:
                seen.add(run.resolve())
                yield run


def _below(folder: Path, levels: int) -> Iterator[Path]:
    if (folder / RECORD).is_file():
        yield folder
    elif levels:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            try:
                yield from _below(inner, levels - 1)
            except PermissionError:
                # A folder that is closed to this user holds no runs of theirs.
                continue


def _describe(run: Path) -> dict[str, Any]:
    used = sum(map(_size, run.rglob("*")))
    try:
        record = load_record(run)
    except CheckpointError as error:
        return {"run": str(run), "status": "damaged", "problem": str(error), "disk_bytes": used}
    return {
        "run": str(run),
        "recipe": _recipe(record),
        "data": record.data.data,
        "status": record.status,
        "epochs": record.epochs,
        "best_epoch": record.best_epoch,
        "best": record.best,
        "seconds": record.seconds,
        "seed": record.seed,
        "disk_bytes": used,
    }


def _size(path: Path) -> int:
    """Bytes of a file; none for a folder, or for what a training has removed meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _recipe(record: Record) -> str:
    return " + ".join([record.host, *[name for name, _ in record.methods]])


def _row(run: dict[str, Any]) -> list[Cell]:
    if run["status"] == "damaged":
        return [run["run"], None, None, "damaged", None, None, None, None, None, size(run["disk_bytes"])]
    return [
        run["run"],
        run["recipe"],
        PurePath(run["data"]).name or None,
        run["status"],
        run["epochs"],
        *[run["best"].get(name) for name in FIGURES],
        duration(run["seconds"]),
        size(run["disk_bytes"]),
    ]
