"""Two systems, one or several trainings each, compared query by query on the same queries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS
from subtext.errors import RequirementError
from subtext.evaluation.compare_files import APART, Measured
from subtext.evaluation.compare_sides import notes, require_alike, require_one_training
from subtext.evaluation.paired import holm, paired
from subtext.evaluation.values import unit
from subtext.ops import draw

SURE = 0.05
"""Corrected p-value below which a difference counts."""
_UNASKED = ("tie_share", "rank")
"""Endings of values that no test is made of unless asked for: one is no quality, and ranks are ruled by the worst."""
_MOST = 20_000
"""Ways of dealing runs to two sides that are all tried; of more, so many are drawn."""


@dataclass(frozen=True)
class Difference:
    """One figure of both sides, in its unit (per cent, or ranks).

    first, second      means over the runs          first_runs, second_runs  one number a run
    difference         first minus second
    low, high          its 95 % interval, pictures and runs drawn together; NaN where there is none
    p_queries          if nothing but chance told these models apart on queries like these; corrected by Holm
    p_runs             if runs of both sides were draws from one method; corrected by Holm; NaN below two a side
    raw_p_queries, raw_p_runs   before correction
    better             "first", "second", or "" where it is not sure: p_queries below 0.05 and 0 outside the interval
    """

    name: str
    first: float
    second: float
    first_runs: tuple[float, ...]
    second_runs: tuple[float, ...]
    difference: float
    low: float = math.nan
    high: float = math.nan
    p_queries: float = math.nan
    p_runs: float = math.nan
    raw_p_queries: float = math.nan
    raw_p_runs: float = math.nan
    better: str = ""

    @property
    def tested(self) -> bool:
        """Whether there are values a query behind it."""
        return not math.isnan(self.raw_p_queries)


@dataclass(frozen=True)
class Contrast:
    """What comparing two sides found.

    lines      a figure each         same_seeds  whether runs were paired by their seeds
    protocol   both sides'           notes       sentences that a reader should know
    """

    lines: tuple[Difference, ...]
    same_seeds: bool
    protocol: dict[str, Any]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that there is not is null."""
        rows = [{name: _finite(value) for name, value in asdict(line).items()} for line in self.lines]
        return {"lines": rows, "same_seeds": self.same_seeds, "notes": list(self.notes), "protocol": self.protocol}


def compare(
    first: Sequence[Measured],
    second: Sequence[Measured],
    *,
    figures: Sequence[str] = (),
    samples: int = 2000,
    seed: int = 0,
) -> Contrast:
    """Compare the runs of one side with those of another.

    figures  names without the direction, as in "recall@10"; none for all means but tie_share and ranks
    samples  of the interval and of the p-values       seed  what they are drawn with

    Raises RequirementError when two runs were not measured alike, a side is no one training in several seeds, or a
    figure has no values.
    Cost   samples x pictures x figures.
    """
    require_alike([*first, *second])
    for side in (first, second):
        require_one_training(side)
    names = _names([*first, *second], figures)
    seeds = [[run.seed for run in side] for side in (first, second)]
    same = None not in seeds[0] and len(set(seeds[0])) == len(seeds[0]) and set(seeds[0]) == set(seeds[1])
    if same:
        first, second = (sorted(side, key=lambda run: run.seed or 0) for side in (first, second))
    lines = [_difference(name, first, second, same, (samples, seed)) for name in names]
    lines = _corrected(lines)
    if not figures and all("rsum" in run.figures for run in (*first, *second)):
        lines.append(_sides("rsum", *([run.figures["rsum"] for run in side] for side in (first, second))))
    return Contrast(tuple(lines), same, dict(first[0].protocol), notes(first, second, len(names)))


def over_runs(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> float:
    """How often runs dealt to two sides at random differ in their means as much as these do.

    All ways of dealing are tried, or 20,000 drawn ones of more. NaN below two runs a side: one run says nothing of how
    runs of its kind differ.

    >>> over_runs([3.0, 4.0], [1.0, 2.0])
    0.3333333333333333
    """
    if min(len(first), len(second)) < 2:
        return math.nan
    every = np.array([*first, *second], dtype=np.float64)
    size, count = len(first), math.comb(len(every), len(first))
    if count <= _MOST:
        dealt = np.array(list(itertools.combinations(range(len(every)), size)))
    else:
        orders = (draw.permutation(len(every), seed=seed, epoch=n, purpose="dealt runs") for n in range(1, _MOST))
        dealt = np.stack([np.arange(size), *(order[:size] for order in orders)])
    sums = every[dealt].sum(axis=1)
    gaps = np.abs(sums / size - (every.sum() - sums) / (len(every) - size))
    seen = abs(float(np.mean(first)) - float(np.mean(second)))
    return float((gaps >= seen - 1e-9 * np.abs(every).max()).mean())


def lower_is_better(name: str) -> bool:
    """Whether a figure counts what should be few."""
    return name.partition("(")[0].endswith(_UNASKED)


def _difference(
    name: str, first: Sequence[Measured], second: Sequence[Measured], same: bool, drawn: tuple[int, int]
) -> Difference:
    direction = name.split("/")[0]
    column = "id" if direction == "image_to_text" else "picture"
    owners = np.asarray(first[0].queries[f"{direction}/{column}"])
    # A text without a picture of its own is a cluster of its own.
    owners = np.where(owners == "", np.char.add("\0", first[0].queries[f"{direction}/id"]), owners)
    clusters = np.unique(owners, return_inverse=True)[1].reshape(-1).astype(np.int64)
    values = [_values(name, side) for side in (first, second)]
    runs = [[float(np.nanmean(row)) for row in side] for side in values]
    samples, seed = drawn
    test = paired(values[0], values[1], clusters, samples=samples, seed=seed, same_seeds=same)
    return replace(
        _sides(name, *runs),
        difference=test.difference,
        low=test.low,
        high=test.high,
        raw_p_queries=test.p_value,
        raw_p_runs=over_runs(*runs, seed=seed),
    )


def _sides(name: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    means = float(np.mean(first)), float(np.mean(second))
    return Difference(name, *means, tuple(first), tuple(second), means[0] - means[1])


def _values(name: str, side: Sequence[Measured]) -> NDArray[np.float64]:
    return unit(name) * np.stack([np.asarray(run.queries[name], dtype=np.float64) for run in side])


def _corrected(lines: Sequence[Difference]) -> list[Difference]:
    queries, runs = holm([line.raw_p_queries for line in lines]), holm([line.raw_p_runs for line in lines])
    found = []
    for line, p_queries, p_runs in zip(lines, queries, runs, strict=True):
        sure = p_queries < SURE and (line.low > 0 or line.high < 0)
        ahead = "first" if (line.difference > 0) != lower_is_better(line.name) else "second"
        found.append(replace(line, p_queries=p_queries, p_runs=p_runs, better=ahead if sure else ""))
    return found


def _names(runs: Sequence[Measured], figures: Sequence[str]) -> list[str]:
    """The figures that all runs have values for."""
    known = [name for name in runs[0].queries if name.split("/")[-1] not in APART]
    known = [name for name in known if all(name in run.queries for run in runs)]
    if not figures:
        return [name for name in known if not lower_is_better(name)]
    asked = [f"{direction}/{figure}" for direction in DIRECTIONS for figure in dict.fromkeys(figures)]
    found = [name for name in known if name in asked]
    lacking = [figure for figure in figures if not any(name.split("/", 1)[1] == figure for name in found)]
    if lacking:
        have = ", ".join(dict.fromkeys(name.split("/", 1)[1] for name in known))
        raise RequirementError(
            f"compare needs values a query of {', '.join(lacking)}; these runs have {have}; name these"
        )
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
