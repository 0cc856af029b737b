"""The folder of a training: what has to stand in it, what is written into it, and what is left at the end.

While it trains, a run has checkpoints and perhaps cached outputs of its frozen encoders. Once its record says
"finished" neither is wanted again and both are removed; that record is written last, so a kill before it leaves the
checkpoints to go on from, and a kill after it leaves at worst some files that the next --resume removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from subtext.data.atomic import write_text, written_to
from subtext.errors import CheckpointError
from subtext.models.checkpoint import ASSETS, RECORD, Record, load_record, save_assets, save_record, save_run
from subtext.models.model import Model
from subtext.report.model_card import model_card
from subtext.training.finite import NOT_FINITE
from subtext.training.snapshot import FOLDER, clean

CACHE, CARD, EPOCHS = "cache", "README.md", "epochs"

SHOWN = 5
"""How many differences from the training that is to go on a sentence has room for."""


def begun(out: Path, record: Record, *, resume: bool, unsaid: Sequence[Mapping[str, object]] = ()) -> Record | None:
    """The record of the training that is to go on in a folder; None where one begins.

    unsaid  what holds for options that an older record lacks: `Record.differences`

    Raises CheckpointError when the folder holds something and `resume` is False, holds things but no training, or
    holds the training of another record.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir():
        raise CheckpointError(f"--out needs a folder; {out} is a file; name another")
    if not resume:
        raise CheckpointError(
            f"--out needs a new or an empty folder; {out} holds something; name another, or go on with --resume"
        )
    if not (out / RECORD).is_file():
        if any(path.name != CACHE and not path.name.startswith(".") for path in out.iterdir()):
            raise CheckpointError(f"--resume needs a run or an empty folder; {out} holds other things and no {RECORD}")
        return None
    found = load_record(out)
    if differences := found.differences(record, unsaid):
        more = f", and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise CheckpointError(
            f"--resume needs the training that {out} began; this one differs in {', '.join(differences[:SHOWN])}{more} "
            "(there -> here); give the same options, or train in a new folder"
        )
    return found


def enter(out: Path, record: Record, model: Model) -> None:
    """Make the folder ready to be trained in."""
    with written_to(out):
        out.mkdir(parents=True, exist_ok=True)
    clean(out)
    (out / NOT_FINITE).unlink(missing_ok=True)
    # The record comes first: a folder without one is not known as a run by the next --resume.
    save_record(out, record)
    if not (out / ASSETS).is_dir():
        save_assets(out, model)


def describe(out: Path, record: Record) -> None:
    """Write the card, then the record, which says what is to be believed."""
    write_text(out / CARD, model_card(record))
    save_record(out, record)


def keep_epoch(out: Path, model: Model, record: Record, *, epoch: int, figures: Mapping[str, float]) -> None:
    """Write OUT/epochs/EPOCH: a run that every command opens, with the weights of now and their validation figures."""
    place = out / EPOCHS / str(epoch)
    with written_to(place):
        place.mkdir(parents=True, exist_ok=True)
    save_run(place, model, replace(record, status="finished", epochs=epoch, best=dict(figures), best_epoch=epoch))


def tidy(out: Path) -> None:
    """Remove what a finished training has no more use for."""
    clean(out)
    for name in (FOLDER, CACHE):
        shutil.rmtree(out / name, ignore_errors=True)
