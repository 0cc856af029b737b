"""What a split was to the run that is asked about it."""

from __future__ import annotations

from subtext.api.load import Opened, Sources
from subtext.models.checkpoint import Record
from subtext.recipes.load import ENSEMBLE


def split_role(opened: Opened, given: Sources) -> tuple[str, str]:
    """What the split was to the run: "training", "selection", "held out" or "unknown"; and a warning where one is due.

    Only the run's own file is known: of another one nobody can say whether it holds the same pictures.
    """
    record, split = opened.record, opened.split
    if record is None or (given.data is not None and given.to_json()["data"] != record.data.data):
        return "unknown", ""
    if given.split_seed not in (None, record.data.split_seed):
        return "unknown", (
            f"--split-seed {given.split_seed} is not the run's, {record.data.split_seed}: where the data has no splits "
            "of its own, this one holds pictures that the run learnt from"
        )
    if split in ("all", record.data.train_split):
        holds = "holds" if split == "all" else "is"
        return "training", f"split {split} {holds} what the run learnt from: these figures say nothing about new data"
    if split == record.data.val_split and (guided := _guided(record)):
        return "selection", f"split {split} {guided}: expect a little less on data that decided nothing (--split NAME)"
    return "held out", ""


def _guided(record: Record) -> str:
    """What the validation split decided in a training; empty when it was only looked at."""
    if record.plan.get("select") != "last":
        if record.model == ENSEMBLE:
            return "selected the epochs of its members"
        return f"selected the epoch, {record.best_epoch} of {record.epochs}"
    stops = bool(record.plan.get("patience")) or record.plan.get("schedule") == "plateau"
    return "decided how long the run learnt, and how fast" if stops else ""
