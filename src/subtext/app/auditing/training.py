"""What a run learnt from, as far as it can still be read, and what the audited split is to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from subtext.app.job import Sources
from subtext.checkpoint import Record
from subtext.data.fingerprint import fingerprint
from subtext.data.pairs import Pairs
from subtext.data.readers import read_pairs
from subtext.errors import DataError
from subtext.evaluate.audit import Check


@dataclass(frozen=True)
class Known:
    """The training split, or why there is none to look at.

    itself  whether it is the very split that is audited
    """

    pairs: Pairs | None
    why: str = ""
    itself: bool = False


def training_pairs(record: Record | None, audited: Pairs) -> Known:
    """The pairs that a run learnt from, read again from where they were; pictures are not decoded."""
    if record is None or not record.data.data:
        return Known(None, "the run does not say where its training data is")
    source = record.data
    try:
        reading = read_pairs(
            Path(source.data),
            images=None if source.images is None else Path(source.images),
            seed=source.split_seed,
            bad=source.bad,
            # Where bad rows were skipped, the same have to be skipped again.
            verify=source.bad == "skip" and source.features is None,
            need_pictures=source.features is None,
        )
        pairs = reading.pairs.split(source.train_split)
    except DataError as error:
        return Known(None, f"the training data cannot be read: {error}")
    named = source.fingerprint.partition("-")[0]
    if named and named != fingerprint(pairs):
        return Known(None, f"the training data, {source.data}, is not what the run learnt from: it has changed since")
    if fingerprint(pairs) == fingerprint(audited):
        return Known(pairs, "the audited split is the one that the run learnt from", itself=True)
    return Known(pairs)


def held_out(record: Record | None, split: str, given: Sources) -> Check:
    """Whether the run learnt from the split, or chose by it."""
    did = "The record of the run was read: from which split it learnt, and which one chose its epoch."
    name = "held-out"
    if record is None:
        return Check(name, did, "not applicable", "there is no record")
    other = given.data is not None and given.to_json()["data"] != record.data.data
    if other or given.split_seed not in (None, record.data.split_seed):
        why = "the audited data is not the run's own, or split anew; what they share is looked for below"
        return Check(name, did, "not applicable", why)
    if split in ("all", record.data.train_split):
        holds = "holds" if split == "all" else "is"
        return Check(name, did, "fail", f"split {split} {holds} what the run learnt from")
    if split == record.data.val_split and record.plan.get("select") != "last":
        found = f"not learnt from; but split {split} chose the epoch, so expect less on data that decided nothing"
        return Check(name, did, "pass", found, {"chose_the_epoch": True})
    return Check(name, did, "pass", f"the run learnt from split {record.data.train_split}, not from {split}")
