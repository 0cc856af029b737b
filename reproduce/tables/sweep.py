"""Rows whose ratio a sweep chooses on the user's own data, and how far trainings are."""

from __future__ import annotations

from dataclasses import replace

from reproduce.tables.request import Asked
from reproduce.tables.specification import RATIOS, UNSWEPT, Ratio, Row
from reproduce.tables.trainings import Training, training
from reproduce.weight_tuning import best_ratio
from subtext.models.checkpoint import load_record


def is_swept(row: Row, data: str) -> bool:
    """Whether a row's ratio on a data set is for a sweep to choose: the paper has none for it."""
    return row.system is not None and row.system.on(data).swept


def at(row: Row, data: str, ratio: Ratio) -> Row:
    """The row with a ratio for a data set that the paper has none for; any other row as it is."""
    return replace(row, system=row.system.on(data).at(ratio)) if row.system and is_swept(row, data) else row


def sweep_of(asked: Asked, row: Row, data: str) -> tuple[Asked, list[Training]]:
    """The trainings among which a row's ratio is chosen, in the order of RATIOS, and what is asked of them.

    They are those of a table on fewer pictures: with seed 0, the table's rate and a graph of their own texts.
    """
    few = asked.sweep if asked.subset is None else min(asked.sweep, asked.subset)
    small = replace(asked, subset=few)
    return small, [training(small, at(row, data, ratio), data, seed=0) for ratio in RATIOS]


def known(asked: Asked, row: Row, data: str) -> Row | None:
    """The row with the ratio that its sweep chose; as it is where nothing is swept, None before the sweep's end."""
    if not is_swept(row, data):
        return row
    if not asked.sweep:
        return at(row, data, UNSWEPT)
    runs = sweep_of(asked, row, data)[1]
    if any(status(run) != "finished" for run in runs):
        return None
    return at(row, data, best_ratio([load_record(run.folder) for run in runs]))


def status(run: Training) -> str:
    """How far a training is: "finished", "begun" or "not begun"."""
    if not (run.folder / "run.json").is_file():
        return "not begun"
    return "finished" if load_record(run.folder).status == "finished" else "begun"
