"""`subtext.list_runs` lists the runs in some folders; `subtext.ensemble_runs` averages several in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.load import ModelSource, Run, open_run, save_pretrained
from subtext.api.options import AnyPath
from subtext.errors import ArgumentError, CheckpointError, RecipeError, Setting
from subtext.report.text_table import TableReport, duration, table
from subtext.settings import Metavar, OptionGroup, command
from subtext.text_helpers import counted, size

if TYPE_CHECKING:
    import pandas


DEPTH = 2
"""Levels of folders below a given one that are searched."""
_HEAD = ["run", "recipe", "data", "status", "epochs", "i2t r@10", "t2i r@10", "rsum", "time", "disk"]
FIGURES = ("image_to_text/recall@10", "text_to_image/recall@10", "rsum")


@dataclass(frozen=True, repr=False)
class RunList(TableReport):
    """Runs as plain data, in the order of their paths.

    Attributes:
        entries: One mapping per run: run, recipe, data, status, epochs, best_epoch, best, seconds, seed, disk_bytes;
            for a damaged run: status and problem; with `verify` also checksum: "right", or "none" in runs without
            weights.
        folders: The folders that were searched.
        verified: Whether the tensors were read.
    """

    folders: tuple[Path, ...]
    entries: tuple[dict[str, Any], ...]
    verified: bool = False

    @property
    def intact(self) -> bool:
        """Whether no run is damaged, or they were not verified."""
        return not (self.verified and any(entry["status"] == "damaged" for entry in self.entries))

    def to_frame(self) -> pandas.DataFrame:
        """One row per run; validation results in columns of their own. Needs pandas.

        Returns:
            One row per entry; the figures of `best` in columns of their own.
        """
        from subtext.data.dataset import frame

        entries = [{**entry, **entry.get("best", {})} for entry in self.entries]
        return frame(entries).drop(columns="best", errors="ignore")

    def _lines(self) -> list[str]:
        if not self.entries:
            return [f"no runs in {', '.join(map(str, self.folders))}; `subtext train --out RUN` makes one"]
        rows: list[list[Any]] = []
        for entry in self.entries:
            used = size(entry["disk_bytes"])
            if entry["status"] == "damaged":
                rows.append([entry["run"], None, None, "damaged", None, None, None, None, None, used])
                continue
            best = [entry["best"].get(name) for name in FIGURES]
            data = PurePath(entry["data"]).name or "in memory"
            time = duration(entry["seconds"])
            rows.append([entry["run"], entry["recipe"], data, entry["status"], entry["epochs"], *best, time, used])
        if not self.verified:
            return [table(_HEAD, rows)]
        problems = [entry["problem"] for entry in self.entries if entry["status"] == "damaged"]
        unchecked = sum(entry.get("checksum") == "none" for entry in self.entries)
        counts = f"{len(problems)} damaged, {unchecked} without weights"
        return [table(_HEAD, rows), *problems, f"{counted(len(rows), 'run')} verified: {counts}"]

    def __repr__(self) -> str:
        return f"RunList({len(self.entries)} in {', '.join(map(str, self.folders))})"


@command
def list_runs(
    folders: Annotated[
        tuple[str | Path, ...] | Sequence[str | Path],
        "Folders to search.",
        OptionGroup("Folders"),
        Metavar("[FOLDER ...]"),
    ] = (),
    *,
    verify: Annotated[
        bool, "Read all tensors and compare their checksums. Exit code 1 if a run is damaged.", OptionGroup("Folders")
    ] = False,
) -> RunList:
    """List trained runs: recipe, data, best results, epochs, status, disk use.

    Searches each FOLDER and two levels below it; by default the current one.

    Args:
        folders: Folders to search; empty for the current one.
        verify: Read all tensors and compare their checksums, which takes as long as reading the files.

    Returns:
        The runs, in the order of their paths.

    Raises:
        CheckpointError: If a folder does not exist.
    """
    searched = tuple(Path(folder) for folder in folders) or (Path(),)
    unique: dict[Path, Path] = {}
    for folder in searched:
        if not folder.is_dir():
            raise CheckpointError(f"runs are searched for in folders; {folder} is none; name one that exists")
        for run in _below(folder, DEPTH):
            unique.setdefault(run.resolve(), run)
    return RunList(searched, tuple(_entry(run, verify) for run in unique.values()), verify)


def _below(folder: Path, levels: int) -> Iterator[Path]:
    """Folders with a record, by name; what is inside a run is not searched."""
    from subtext.models.checkpoint import RECORD

    if (folder / RECORD).is_file():
        yield folder
    elif levels:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            # A folder that this user cannot read holds no runs of theirs.
            with suppress(PermissionError):
                yield from _below(inner, levels - 1)


def _entry(run: Path, verify: bool) -> dict[str, Any]:
    from subtext.models.checkpoint import FROZEN, TABLES, WEIGHTS, load_record, read_tensors

    used = 0
    for path in run.rglob("*"):
        with suppress(OSError):  # A training may have removed the file meanwhile.
            used += path.stat().st_size if path.is_file() else 0
    try:
        record = load_record(run)
        files = [run / WEIGHTS, run / FROZEN, *sorted((run / TABLES).glob("*.safetensors"))]
        files = [path for path in files if path.is_file()]
        for path in files if verify else ():
            read_tensors(path)
    except CheckpointError as error:
        return {"run": str(run), "status": "damaged", "problem": str(error), "disk_bytes": used}
    return {
        "run": str(run),
        "recipe": " + ".join([record.model, *(name for name, _ in record.methods)]),
        "data": "" if record.data.data is None else str(record.data.data),
        **{name: getattr(record, name) for name in ("status", "epochs", "best_epoch", "best", "seconds", "seed")},
        "disk_bytes": used,
        **({"checksum": "right" if files else "none"} if verify else {}),
    }


@command
def ensemble_runs(
    runs: Annotated[
        tuple[AnyPath, ...] | Sequence[AnyPath], "Runs to join.", OptionGroup("Runs"), Metavar("RUN RUN ...")
    ],
    *,
    model: Annotated[
        AnyPath | None,
        "A pretrained dual encoder as one more member: starter, a hub name or a folder.",
        OptionGroup("Runs"),
        Metavar("NAME_OR_FOLDER"),
    ] = None,
    out: Annotated[str | Path, "Folder of the ensemble; new, or empty.", OptionGroup("Output"), Metavar("RUN")],
) -> Run:
    """Combine several runs into one run, an ensemble, whose score of a pair is the mean of their scores.

    The published SGRAF averages a run of `sgraf --reasoning saf` and one of `sgraf --reasoning sgr`. The ensemble is a
    run: use it in evaluate, audit, search --rerank, score, curate and distil. It contains copies of all weights. The
    runs must be trained on the same pairs and read the same images or features. Dual encoders may differ in how they
    read texts, as a bag of words and MiniLM do, and in embed_dim; other models may not.

    Args:
        runs: Folders of the runs to join, two or more; one or more beside `model`.
        model: A pretrained dual encoder as one more member, untrained: "starter", a hub name or a folder.
        out: Folder of the ensemble; new, or empty.

    Returns:
        The ensemble, as a run.

    Raises:
        ArgumentError: For fewer than two runs, or one run twice.
        RecipeError: For runs that cannot be combined.
        CheckpointError: If `out` is not empty or a run cannot be loaded.
    """
    from subtext.models.checkpoint import require_new_folder
    from subtext.models.ensemble import build_ensemble
    from subtext.recipes.build import ensemble_record

    if len(runs) + (model is not None) < 2 or not runs:
        raise ArgumentError(
            "an ensemble needs two runs or more; name another, or ", Setting("model", "starter"), " beside one"
        )
    source = None if model is None else ModelSource.of(None, model)
    folders = [Path(run).expanduser().resolve() for run in runs]
    if twice := next((run for run, path in zip(runs, folders, strict=True) if folders.count(path) > 1), None):
        raise ArgumentError(f"an ensemble needs different runs; {Path(twice)} is there twice; name another")
    folder = Path(out).expanduser()
    require_new_folder(folder, "an ensemble")
    members = [open_run(run) for run in runs]
    records = [run.record for run in members]
    models = [run.model for run in members]
    record = ensemble_record([run.path for run in members], records)
    if source is not None:
        models.append(source.open()[0])
        pretrained = {
            "run": "",
            "model": "clip",
            "arguments": {"model": source.recorded()["name"]},
            "methods": [],
            "plan": {"freeze_epochs": -1},
            "seed": 0,
            "epoch": None,
        }
        record = replace(record, arguments={"members": [*record.arguments["members"], pretrained]})
    joined = build_ensemble(models)
    dimensions = [member.arguments.get("embed_dim") for member in records]
    if not joined.indexable and len(set(dimensions)) > 1:
        raise RecipeError(
            f"an ensemble of models of pairs needs one embed_dim; these have {', '.join(map(str, dimensions))}; train "
            "them with the same embed_dim"
        )
    save_pretrained(joined, record, folder)
    use = (
        "its vectors decide the score: it can fill an index" if joined.indexable else "it scores pairs, as its members"
    )
    names = f"{counted(len(members), 'run')} ({', '.join(member.model for member in records)})"
    names += "" if source is None else f" and {source.label}"
    summary = f"{folder}: the mean of {names}; {use}\nnext:\n  subtext evaluate {folder}"
    return Run(joined, record, folder, summary=summary)
