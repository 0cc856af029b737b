"""What a run learnt from, as far as it can still be read, and what the audited split is to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from subtext.api.external import read_split
from subtext.api.load import Sources
from subtext.data.dataset import Dataset
from subtext.data.fingerprint import fingerprint
from subtext.data.read import read_pairs
from subtext.errors import DataError
from subtext.evaluation.audit import Check
from subtext.models.checkpoint import Record


@dataclass(frozen=True)
class Known:
    """The training split, or why there is none to look at.

    itself  whether it is the very split that is audited
    """

    pairs: Dataset | None
    why: str = ""
    itself: bool = False


def training_pairs(record: Record, audited: Dataset) -> Known:
    """The pairs that a run learnt from, read again from where they were; pictures are not decoded."""
    if not record.data.data:
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
            need_images=source.features is None,
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


def named_pairs(sources: Sources, train_split: str | None, audited: Dataset) -> Known:
    """The split of the audited data that a model without a record is said to have learnt from.

    Raises DataError when the data has no such split.
    """
    if train_split is None:
        return Known(None, "nobody says what it learnt from; a split of this data can be named (--train-split)")
    pairs = read_split(sources, train_split)[0]
    if fingerprint(pairs) == fingerprint(audited):
        return Known(pairs, "the audited split is the one that it is said to have learnt from", itself=True)
    return Known(pairs)


def held_out_by_name(kind: str, split: str, train_split: str | None) -> Check:
    """The same of what has no record: by what whoever asks says of it."""
    if train_split is None:
        why = f"a {kind} has no record of what it learnt from, and nobody says (--train-split)"
        return Check("held-out", "Nothing.", "not applicable", why)
    did = "Whoever asked was believed about the split that it learnt from (--train-split)."
    if split in ("all", train_split) or train_split == "all":
        return Check("held-out", did, "fail", f"split {split} shares pairs with what was learnt from, as is said")
    found = f"learnt from split {train_split}, as is said, not from {split}; which split chose its epoch is not known"
    return Check("held-out", did, "pass", found)


def held_out(record: Record, split: str, given: Sources) -> Check:
    """Whether a run learnt from the split, or chose by it."""
    did = "The record of the run was read: from which split it learnt, and which one chose its epoch."
    name = "held-out"
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
