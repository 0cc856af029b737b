"""Checkpoints of a training that goes on: folders that are whole or not there at all.

    RUN/checkpoints/step-00001200/   after that step; "step-00001200-epoch" once the epoch that it ended is measured
        NAME.safetensors   one file per kind of tensor (weights, optimiser, average, kept)
        state.json         counters and everything else that is no tensor
        manifest.json      size and hash of each of the files above

A folder is filled under a hidden name and renamed once all of it is on the disk. What is read back is checked against
the manifest; a folder that is incomplete or damaged is passed over for the one before it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from subtext.data.atomic import HIDDEN, write_folder
from subtext.errors import CheckpointError
from subtext.models.checkpoint import put_tensors, read_tensors

FOLDER, STATE, MANIFEST = "checkpoints", "state.json", "manifest.json"
_PREFIX, _ENDED = "step-", "-epoch"


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: tensors by kind and name, and the plain rest."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write_snapshot(run: Path, snapshot: Snapshot, *, keep: int) -> None:
    """Write a checkpoint, then remove all but it and the `keep - 1` before it.

    Later ones are removed too: the training went on from before them because they were damaged.

    Raises OutputError when the disk is full; the checkpoints that were there stay.
    """

    def fill(folder: Path) -> None:
        for kind, tensors in snapshot.tensors.items():
            put_tensors(folder / f"{kind}.safetensors", tensors)
        (folder / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
        sizes = {file.name: _description(file) for file in sorted(folder.iterdir())}
        (folder / MANIFEST).write_text(json.dumps(sizes, indent=2), encoding="utf-8")

    # An epoch's end has a name of its own: writing it must not remove the checkpoint of the epoch's last step.
    ended = _ENDED if snapshot.state["offset"] == 0 else ""
    new = run / FOLDER / f"{_PREFIX}{snapshot.step:08d}{ended}"
    write_folder(new, fill)
    folders = _folders(run)
    folder = folders.index(new) + 1
    for old in [*folders[: max(folder - keep, 0)], *folders[folder:]]:
        shutil.rmtree(old, ignore_errors=True)


def newest_snapshot(run: Path) -> tuple[Snapshot | None, list[str]]:
    """The newest checkpoint that is whole, or None; and a sentence for each newer one that is not."""
    notes: list[str] = []
    for folder in reversed(_folders(run)):
        problem = _problem(folder)
        if problem is None:
            return _read(folder), notes
        notes.append(f"checkpoint {folder.name} is not used: {problem}")
    return None, notes


def clean(run: Path) -> None:
    """Remove what a writer that was killed left behind."""
    for parent in (run, run / FOLDER):
        for leftover in parent.glob(f"{HIDDEN}*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _folders(run: Path) -> list[Path]:
    return sorted(folder for folder in (run / FOLDER).glob(f"{_PREFIX}*") if folder.is_dir())


def _problem(folder: Path) -> str | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        for name, description in manifest.items():
            if _description(folder / name) != description:
                return f"{name} is not what was written"
    except (OSError, ValueError, AttributeError) as problem:
        return f"it is incomplete ({problem})"
    return None if STATE in manifest else f"its manifest has no {STATE}"


def _read(folder: Path) -> Snapshot:
    try:
        step = int(folder.name.removeprefix(_PREFIX).removesuffix(_ENDED))
    except ValueError as problem:
        raise CheckpointError(f"{folder} needs a name like {_PREFIX}00000010; rename or remove it") from problem
    return Snapshot(
        step=step,
        tensors={file.stem: read_tensors(file) for file in sorted(folder.glob("*.safetensors"))},
        state=json.loads((folder / STATE).read_text(encoding="utf-8")),
    )


def _description(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16))
    return {"size": file.stat().st_size, "blake2b": digest.hexdigest()}
