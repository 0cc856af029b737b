"""Runs joined to an ensemble: the record that they share, and the model built again from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from subtext.errors import CheckpointError, RecipeError

if TYPE_CHECKING:
    from pathlib import Path

    from subtext.data.build_context import BuildContext
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model

HOST = "ensemble"
"""What the record of an ensemble names as its host; no recipe has this name."""


def record_of(runs: Sequence[Path], records: Sequence[Record]) -> Record:
    """The record of the ensemble of these runs: each member's recipe, and what they have in common.

    Raises RecipeError for runs that learnt from other pairs than the first, and for a member that is an ensemble.
    """
    from subtext import __version__
    from subtext.models.checkpoint import Record, library_versions

    first = records[0]
    for run, record in zip(runs, records, strict=True):
        if record.host == HOST:
            raise RecipeError(f"an ensemble needs runs of recipes; {run} is an ensemble itself; name its runs instead")
        if record.data.fingerprint != first.data.fingerprint:
            raise RecipeError(
                f"an ensemble needs runs that learnt from the same pairs; {run} learnt from others than {runs[0]}: "
                "what is new to one may be known to the other; train both on the same split"
            )
    members = [
        {
            "run": str(run.expanduser().resolve()),
            "host": record.host,
            "arguments": record.arguments,
            "methods": [list(method) for method in record.methods],
            "plan": record.plan,
            "seed": record.seed,
            "epoch": record.best_epoch,
        }
        for run, record in zip(runs, records, strict=True)
    ]
    return Record(
        host=HOST,
        arguments={"members": members},
        plan={"select": first.plan.get("select", "rsum")},
        data=first.data,
        seed=first.seed,
        status="finished" if all(record.status == "finished" for record in records) else "stopped",
        epochs=max(record.epochs for record in records),
        steps=sum(record.steps for record in records),
        seconds=sum(record.seconds for record in records),
        version=__version__,
        versions=library_versions(),
    )


def rebuilt(record: Record, context: BuildContext) -> Model:
    """The ensemble of a record, as it is before its weights are filled in.

    Raises CheckpointError for a record without members; what building the members raises.
    """
    from subtext.models.ensemble import MEMBERS, ensemble
    from subtext.recipes.build import build

    try:
        told: list[dict[str, Any]] = [dict(member) for member in record.arguments["members"]]
        recipes = [
            (
                str(each["host"]),
                dict(each["arguments"]),
                [(str(name), dict(options)) for name, options in each["methods"]],
                dict(each["plan"]),
            )
            for each in told
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise CheckpointError(
            f"the record of an ensemble needs its members' recipes; {problem!r}; join the runs again"
        ) from problem
    return ensemble(
        [
            build(
                host, arguments, methods=methods, plan=plan, context=replace(context, member=f"{MEMBERS}/{place}")
            ).model
            for place, (host, arguments, methods, plan) in enumerate(recipes)
        ]
    )
