"""`subtext.runs`: the runs in some folders, with their recipes and best results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.options import Metavar, Section, verb

if TYPE_CHECKING:
    import pandas as pd

DEPTH = 2
"""Levels of folders below a given one that are searched."""
FIGURES = ("image_to_text/recall@10", "text_to_image/recall@10", "rsum")


@dataclass(frozen=True, repr=False)
class RunList:
    """Runs as plain data, in the order of their paths.

    folders  the folders that were searched
    entries  one mapping per run: run, recipe, data, status, epochs, best_epoch, best, seconds, seed, disk_bytes; of a
             damaged one its status and problem
    """

    folders: tuple[Path, ...]
    entries: tuple[dict[str, Any], ...]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.entries)

    def to_json(self) -> list[dict[str, Any]]:
        """The entries."""
        return list(self.entries)

    def to_frame(self) -> pd.DataFrame:
        """One row per run; validation results in columns of their own. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([{**entry, **entry.get("best", {})} for entry in self.entries]).drop(
            columns="best", errors="ignore"
        )

    def __str__(self) -> str:
        from subtext.report.text_table import table

        if not self.entries:
            return f"no runs in {', '.join(map(str, self.folders))}; `subtext train --out RUN` makes one"
        return table(_HEAD, self._rows())

    def __repr__(self) -> str:
        return f"RunList({len(self.entries)} in {', '.join(map(str, self.folders))})"

    def _repr_html_(self) -> str:
        from html import escape

        def cells(tag: str, values: Iterable[Any]) -> str:
            row = (
                "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value) for value in values
            )
            return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in row) + "</tr>"

        return f"<table>{cells('th', _HEAD)}{''.join(cells('td', row) for row in self._rows())}</table>"

    def _rows(self) -> list[list[Any]]:
        from subtext.report.text_table import duration, size

        rows: list[list[Any]] = []
        for entry in self.entries:
            used = size(entry["disk_bytes"])
            if entry["status"] == "damaged":
                rows.append([entry["run"], None, None, "damaged", None, None, None, None, None, used])
                continue
            best = [entry["best"].get(name) for name in FIGURES]
            data = PurePath(entry["data"]).name or None
            time = duration(entry["seconds"])
            rows.append([entry["run"], entry["recipe"], data, entry["status"], entry["epochs"], *best, time, used])
        return rows


_HEAD = ["run", "recipe", "data", "status", "epochs", "i2t r@10", "t2i r@10", "rsum", "time", "disk"]


@verb
def runs(
    folders: Annotated[
        tuple[str | Path, ...] | list[str], "Folders to search.", Section("Folders"), Metavar("[FOLDER ...]")
    ] = (),
) -> RunList:
    """List trained runs: recipe, data, best results, epochs, status, disk use.

    Searches each FOLDER and two levels below it; by default the current one.

    Raises CheckpointError for a folder that does not exist.
    """
    searched = tuple(Path(folder) for folder in folders) or (Path(),)
    return RunList(searched, tuple(_entry(path) for path in _runs(searched)))


def _runs(folders: Iterable[Path]) -> Iterator[Path]:
    """Folders with a record, by name, each once; what is inside a run is not searched."""
    from subtext.errors import CheckpointError

    listed: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise CheckpointError(f"runs are searched for in folders; {folder} is none; name one that exists")
        for run in _below(folder, DEPTH):
            if run.resolve() not in listed:
                listed.add(run.resolve())
                yield run


def _below(folder: Path, levels: int) -> Iterator[Path]:
    from subtext.models.checkpoint import RECORD

    if (folder / RECORD).is_file():
        yield folder
    elif levels:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            try:
                yield from _below(inner, levels - 1)
            except PermissionError:
                # A folder that this user cannot read holds no runs of theirs.
                continue


def _entry(run: Path) -> dict[str, Any]:
    from subtext.errors import CheckpointError
    from subtext.models.checkpoint import load_record

    used = sum(map(_size, run.rglob("*")))
    try:
        record = load_record(run)
    except CheckpointError as error:
        return {"run": str(run), "status": "damaged", "problem": str(error), "disk_bytes": used}
    return {
        "run": str(run),
        "recipe": " + ".join([record.model, *(name for name, _ in record.methods)]),
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
    """Bytes of a file; 0 for a folder, or for a file that a training has removed meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
