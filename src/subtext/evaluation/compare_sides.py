"""What has to hold of two sides that are compared, and what is said beside the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from subtext.errors import RequirementError, counted
from subtext.evaluation.compare_files import Measured, differences

_ROLES = {
    "training": "measured on what a run learnt from: this says nothing about new data",
    "selection": "measured on the split that selected a run's epoch: compare on data that decided nothing",
}


def require_alike(runs: Sequence[Measured]) -> None:
    """Raise RequirementError, with all that differs, unless every run was measured as the first was."""
    for run in runs[1:]:
        if found := differences(runs[0], run):
            raise RequirementError(
                f"compare needs figures that were measured alike; {runs[0].path} and {run.path} differ in "
                f"{'; '.join(found[:5])}{f' and {len(found) - 5} more' if len(found) > 5 else ''}; evaluate both with "
                "the same options on the same data"
            )


def require_one_training(side: Sequence[Measured]) -> None:
    """Raise RequirementError unless the runs of a side are one training with different seeds."""
    for place, run in enumerate(side):
        for other in side[:place]:
            if run.path == other.path or (run.fingerprint and run.fingerprint == other.fingerprint):
                raise RequirementError(
                    f"a side needs different runs; {other.path} and {run.path} are one and the same model, which "
                    "would count as two seeds; name it once"
                )
        if run.training != side[0].training:
            what = [name for name, value in run.training.items() if value != side[0].training[name]]
            raise RequirementError(
                f"a side needs runs of one training with different seeds; {side[0].path} and {run.path} differ in "
                f"{', '.join(what)}; put them on different sides, with 'vs' between"
            )


def notes(first: Sequence[Measured], second: Sequence[Measured], tests: int) -> tuple[str, ...]:
    """What a reader of a comparison should know; `tests` is how many figures are tested."""
    fewest, most = sorted([len(first), len(second)])
    queries = "p queries: other queries like these, the same trained models; intervals draw pictures and runs together"
    found = [f"{queries}; p is corrected for {counted(tests, 'figure')} (Holm)"]
    if fewest == 1:
        found.append(
            "one run on a side: this tells two trained models apart and does not speak for a method, whose runs differ "
            "by their seeds; train each side with several seeds and give all their files"
        )
    else:
        dealt = math.comb(fewest + most, fewest)
        least = (2 if fewest == most else 1) / dealt
        found.append(
            f"p runs: whether trainings with other seeds would differ so, which is what speaks for a method; with "
            f"{fewest} and {most} runs it cannot be below {least:.2g} before correction"
        )
        narrow = 100 * (1 - math.sqrt((fewest - 1) / fewest))
        found.append(f"drawn from {fewest} runs, the runs' share of an interval is too narrow by about {narrow:.0f} %")
    roles = {str(run.about.get("split_role", "unknown")) for run in (*first, *second)}
    for role, warning in _ROLES.items():
        if role in roles:
            found.append(warning)
    versions = {str(run.protocol.get("versions")) for run in (*first, *second)}
    if len(versions) > 1:
        found.append("measured with different versions of the libraries; the files say which")
    if not first[0].protocol.get("data"):
        found.append("the files do not say which data they are of; that the truth is the same is taken on trust")
    return tuple(found)
