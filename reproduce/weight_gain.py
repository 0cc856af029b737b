"""`subtext weights gain`: whether what weights gain over a baseline goes with how uneven they are."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from reproduce.weight_report import tables_of
from reproduce.weight_statistics import SCORES, unevenness
from subtext.api.load import Work, open_work
from subtext.data.fingerprint import fingerprint
from subtext.errors import RequirementError, counted
from subtext.evaluation import Protocol, evaluate
from subtext.evaluation.metrics.agreement import mean_ranks, spearman
from subtext.models.checkpoint import Record, load_record
from subtext.objectives.weighting.neighbourhood import Neighbourhood
from subtext.ops import draw
from subtext.ops.neighbour_scores import Scoring
from subtext.recipes.neighbour_weights import DiscrepancyOptions, NeighbourOptions, WeightOptions
from subtext.report.text_table import Cell, table
from subtext.training.weight_tables import NeighbourScores

FEWEST = 3
"""Pairs of runs that a correlation is told of: two always agree, or disagree."""
PAPER = {"diversity": "small", "discrepancy": "large"}
"""What variance of each score Thomas and Kovashka (2022) found good."""
CONTROLS = ("uniform", "random")
"""Methods of a baseline that weigh, too, by nothing that was seen."""
_ALL_ORDERS, _SAMPLED_ORDERS = 7, 9_999
"""Up to so many values all orders are tried; else so many are sampled."""
_PROTOCOL = Protocol(c_way=(), bootstrap=0)

Options = TypeVar("Options", WeightOptions, NeighbourOptions, DiscrepancyOptions)


@dataclass(frozen=True)
class Point:
    """A weighted run beside its baseline.

    score       that its weights are made from       deviation  of the score over its training pairs, in its own space
    effective   sample size of the weights over the sample size, mean over batches; 1 for uniform weights
    split       what both are measured on
    before, after  the sum of six recalls of baseline and run
    apart       what the two trainings differ in beside the weights
    """

    run: str
    baseline: str
    score: str
    deviation: float
    effective: float
    split: str
    before: float
    after: float
    apart: tuple[str, ...]

    @property
    def gain(self) -> float:
        """Per cent of the baseline's."""
        return 100 * (self.after - self.before) / self.before


def gain(work: Work, pairs: Sequence[tuple[Path, Path]], *, in_json: bool = False) -> str:
    """Measure every pair of a weighted run and its baseline, and tell how gain and unevenness go together.

    work   how each is carried out; its split, or each run's own validation split, is what they are measured on

    Raises RequirementError for a run that neither DIVERSITY nor DISCREPANCY weighted, or not in the epoch that it kept,
    for a baseline that remembers other data, and for one that finds nothing; what opening, reading and the graph raise.
    """
    worth: dict[tuple[str, str], tuple[float, str]] = {}
    # Once each: a pair that is named twice says no more than one.
    once = {tuple(side.expanduser().resolve() for side in pair): pair for pair in pairs}
    points = [_point(work, weighted, baseline, worth) for weighted, baseline in once.values()]
    seen = [score for score in SCORES if any(point.score == score for point in points)]
    related = {score: _related([point for point in points if point.score == score]) for score in seen}
    if in_json:
        told = [{**asdict(point), "gain": point.gain} for point in points]
        return json.dumps({"runs": told, "spearman": related, "fewest": FEWEST}, indent=2)
    head = ["run", "baseline", "score", "deviation", "effective, %", "rsum before", "gain, %"]
    rows: list[list[Cell]] = [
        [p.run, p.baseline, p.score, f"{p.deviation:.4f}", f"{100 * p.effective:.1f}", p.before, f"{p.gain:+.1f}"]
        for p in points
    ]
    splits = ", ".join(sorted({point.split for point in points}))
    notes = [f"measured on the split {splits}; a split that chose a run's epoch flatters it (--split)"]
    notes += [f"note: {p.run} and {p.baseline} also differ in {', '.join(p.apart)}" for p in points if p.apart]
    return "\n".join([table(head, rows), *notes, *(_sentence(score, points, related[score]) for score in seen)])


def _point(work: Work, weighted: Path, baseline: Path, worth: dict[tuple[str, str], tuple[float, str]]) -> Point:
    record = load_record(weighted.expanduser())
    score, options = _weights_of(weighted, record)
    near, common, further = (
        _of(NeighbourOptions, options),
        _of(WeightOptions, options),
        _of(DiscrepancyOptions, options),
    )
    if record.best_epoch == 1 and near.first_epoch == "uniform":
        raise RequirementError(
            f"{weighted} needs an epoch with weights: the one that it kept is its first, which is uniform; train "
            f"longer, or with {score}:first_epoch=encode"
        )
    split = work.split or record.data.val_split or "val"
    after, before = (_worth(replace(work, run=run, split=split), worth) for run in (weighted, baseline))
    if after[1] != before[1]:
        raise RequirementError(
            f"a gain needs two runs measured on the same pairs; {weighted} and {baseline} remember different ones on "
            f"the split {split}; pair runs of one data set"
        )
    if not before[0]:
        raise RequirementError(
            f"a gain in per cent needs a baseline above 0; {baseline} finds nothing on the split {split}: its sum of "
            "recalls is 0; train it anew"
        )
    opened = open_work(replace(work, run=weighted, split=record.data.train_split)).by_mean("weights gain")
    memory = NeighbourScores(
        Path(near.graph),
        neighbours=near.neighbours,
        scoring=Scoring(
            further.second_order if score == "discrepancy" else "none", options.get("diagonal", True), further.average
        ),
        views=near.views,
        samples=near.samples,
    ).open(opened.pairs, device=torch.device("cpu"))
    weighting = Neighbourhood(
        common.total_weight,
        sign=common.sign,
        combine=common.combine,
        placement=common.total_placement,
        batch=common.reference_batch,
    )
    batch = int(record.plan["batch_size"])
    deviation, effective = unevenness(tables_of(memory, opened, work), weighting, score, batch=batch)
    apart = tuple(_apart(record, load_record(baseline.expanduser()), score))
    return Point(str(weighted), str(baseline), score, deviation, effective, split, before[0], after[0], apart)


def _apart(run: Record, baseline: Record, score: str) -> Iterator[str]:
    """What two trainings differ in beside the weights: a word for each."""
    for name in ("model", "seed"):
        if getattr(run, name) != getattr(baseline, name):
            yield f"{name} ({getattr(run, name)}, {getattr(baseline, name)})"
    if run.data.fingerprint != baseline.data.fingerprint:
        yield "the pairs that they learnt from"
    files = [(one.data.images, one.data.features, one.data.text_features) for one in (run, baseline)]
    if files[0] != files[1]:
        yield "the files of pictures or features"
    for left, right in ((run.arguments, baseline.arguments), (run.plan, baseline.plan)):
        for name in sorted(left.keys() | right.keys()):
            # A last batch that is smaller is left out for the sake of the weights.
            if left.get(name) != right.get(name) and name != "drop_last":
                yield f"{name} ({left.get(name)}, {right.get(name)})"
    others = [[each for each in record.methods if each[0] not in (score, *CONTROLS)] for record in (run, baseline)]
    if others[0] != others[1]:
        names = (", ".join(name for name, _ in each) or "none" for each in others)
        yield f"other methods ({'; '.join(names)})"


def _weights_of(run: Path, record: Record) -> tuple[str, Mapping[str, Any]]:
    """Which of the two scores weighted a run, with the method's options."""
    for name, options in record.methods:
        if name in SCORES:
            return name, options
    used = ", ".join(name for name, _ in record.methods) or "none"
    raise RequirementError(
        f"{run} needs to be trained with diversity or discrepancy, whose scores are told of; its methods: {used}; name "
        "the weighted run first, RUN=BASELINE"
    )


def _of(kind: type[Options], options: Mapping[str, Any]) -> Options:
    """The options of one kind; what an older record lacks has its default."""
    return kind(**{each.name: options[each.name] for each in fields(kind) if each.name in options})


def _worth(work: Work, known: dict[tuple[str, str], tuple[float, str]]) -> tuple[float, str]:
    """The sum of recalls of a run on a split, and of which pairs it is; measured once."""
    assert work.run is not None and work.split is not None
    key = str(work.run.expanduser().resolve()), work.split
    if key not in known:
        opened = open_work(work)
        result = evaluate(
            opened.model, opened.pairs, protocol=_PROTOCOL, batch_size=work.batch_size, workers=work.workers
        )
        known[key] = float(result.figures["rsum"]), fingerprint(opened.pairs)
    return known[key]


def _related(points: Sequence[Point]) -> dict[str, dict[str, float] | None] | None:
    """Spearman's correlation of the gain with either measure of unevenness, and how often chance has as much; None for
    too few, or all alike.
    """
    if len(points) < FEWEST:
        return None
    gains = np.array([point.gain for point in points])
    found: dict[str, dict[str, float] | None] = {}
    for name in ("deviation", "effective"):
        values = np.array([getattr(point, name) for point in points])
        value = spearman(values, gains)
        found[name] = None if math.isnan(value) else {"rho": value, "p": _p_value(values, gains)}
    return found


def _sentence(score: str, points: Sequence[Point], related: Mapping[str, Mapping[str, float] | None] | None) -> str:
    count = sum(point.score == score for point in points)
    if related is None:
        return f"{score}: {counted(count, 'pair')} of runs; a correlation needs {FEWEST} or more"
    deviation, effective = (
        "none" if value is None else f"{value['rho']:+.2f} (p {value['p']:.2g})" for value in related.values()
    )
    return (
        f"{score}: Spearman of the gain with the deviation {deviation}, where the paper finds {PAPER[score]} variance "
        f"good; with the effective sample size {effective}; over {count} pairs of runs"
    )


def _p_value(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "n"], *, seed: int = 0) -> float:
    """Two-sided p-value of Spearman's correlation: how often a random order correlates at least as strongly.

    Over all orders of up to seven values, else over 9,999 sampled ones and the observed one. Values are numbers.

    >>> _p_value(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))  # two of six orders
    0.3333333333333333
    """
    count = len(right)
    if count <= _ALL_ORDERS:
        orders = np.array(list(itertools.permutations(range(count))))
    else:
        sampled = (
            draw.permutation(count, seed=seed, epoch=n, purpose="chance of ranks") for n in range(_SAMPLED_ORDERS)
        )
        orders = np.stack([np.arange(count), *sampled])
    ranks = [mean_ranks(side) - (count + 1) / 2 for side in (left, right)]
    correlations = np.abs(ranks[1][orders] @ ranks[0]) / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    # The first order is the observed one.
    return float(np.mean(correlations >= correlations[0] - 1e-12))
