"""`subtext.compare`: two systems, one or several trainings each, query by query on the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from subtext.api.options import Flag, Metavar, Range, Section, verb

if TYPE_CHECKING:
    from subtext.evaluation import Result
    from subtext.evaluation.compare import Compared


@verb
def compare(
    first: str | Path | Result | Sequence[str | Path | Result],
    second: str | Path | Result | Sequence[str | Path | Result],
    *,
    metric: Annotated[
        tuple[str, ...],
        "Such as recall@10; repeat for more. Fewer metrics, chosen in advance, make stronger tests. Default: all "
        "means but ranks.",
        Metavar("NAME"),
        Section("Figures"),
    ] = (),
    resamples: Annotated[int, "Resamples of intervals and p-values.", Range(100), Section("Resampling")] = 2000,
    seed: Annotated[int, "Seed of the resampling.", Section("Resampling")] = 0,
    json: Annotated[
        str | Path | None,
        "Write the comparison as JSON; - for standard output.",
        Flag("--json"),
        Metavar("FILE"),
        Section("Output"),
    ] = None,
) -> Compared:
    """Test whether one system is better than another, from results of `subtext evaluate` on the same queries.

    Each JSON file needs its values per query beside it: evaluate with --json A.json --per-query A.npz. Differences come
    with an interval that resamples images and runs together, and with two p-values, corrected for the number of
    figures: over queries (these trained models) and over runs (the methods; needs several seeds a side).

    first, second  a result, its file, or several of one training with different seeds

    Raises DataError and RequirementError for files that cannot be read or compared; OutputError when the JSON cannot be
    written, before the work begins.
    """
    from subtext.data.atomic import require_file, write_text
    from subtext.evaluation import Result
    from subtext.evaluation.compare import Compared, measured_of, read_measured
    from subtext.evaluation.compare import compare as contrast

    if json is not None:
        require_file(Path(json))
    sides = []
    for side in (first, second):
        several = [side] if isinstance(side, str | Path | Result) else side
        sides.append(
            tuple(
                measured_of(result) if isinstance(result, Result) else read_measured(Path(result).expanduser())
                for result in several
            )
        )
    left_runs, right_runs = sides
    compared = Compared(left_runs, right_runs, contrast(*sides, figures=tuple(metric), samples=resamples, seed=seed))
    if json is not None:
        write_text(Path(json), compared.json_text() + "\n")
    return compared
