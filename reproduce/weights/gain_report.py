"""Whether the gain of sample weights over a baseline goes with how uneven scores and weights are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from json import dumps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import rankdata

from reproduce.weights.scores_report import tables_of
from reproduce.weights.statistics import SCORES, unevenness
from subtext.api.load import Work, open_work
from subtext.data.atomic import write_text
from subtext.data.dataset import fingerprint
from subtext.errors import RequirementError, counted
from subtext.evaluation import Protocol, evaluate
from subtext.evaluation.metrics.agreement import spearman
from subtext.models.checkpoint import Record, load_record
from subtext.objectives.weighting import Neighbourhood
from subtext.ops import draw
from subtext.ops.neighbour_scores import Scoring
from subtext.recipes.options import DiscrepancyOptions, NeighbourOptions, WeightOptions
from subtext.report.text_table import Cell, table
from subtext.training.tables import NeighbourScores

FEWEST = 3
"""Pairs of runs that a correlation needs: two always agree, or disagree."""
PAPER = {"diversity": "small", "discrepancy": "large"}
"""Variance of each score that Thomas and Kovashka (2022) found good."""
CONTROLS = ("uniform", "random")
"""Methods whose weights depend on no data; a baseline may have them."""
ALL_ORDERS, SAMPLED_ORDERS = 7, 9_999
"""Up to 7 values every order is tried; for more values 9,999 orders are sampled."""
_PROTOCOL = Protocol(c_way=(), bootstrap=0)

Options = TypeVar("Options", WeightOptions, NeighbourOptions, DiscrepancyOptions)
Correlations = dict[str, dict[str, float] | None] | None
"""Measure of unevenness -> Spearman's rho and p; None where it has no meaning."""


@dataclass(frozen=True)
class Point:
    """A weighted run beside its baseline.

    score       of its weights                       deviation  of the score over the training pairs, in its own space
    effective   effective sample size of the weights over the sample size, mean over batches; 1 for uniform weights
    split       that both are evaluated on
    before, after  sum of six recalls of baseline and run
    apart       other differences between the two trainings
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


@dataclass(frozen=True)
class GainReport:
    """Gains of weighted runs over their baselines.

    points        one per pair of runs
    correlations  score -> Spearman's correlations of the gain; None for too few points
    """

    points: tuple[Point, ...]
    correlations: dict[str, Correlations]

    def to_json(self) -> dict[str, Any]:
        """All points and correlations as plain data."""
        runs = [{**asdict(point), "gain": point.gain} for point in self.points]
        return {"runs": runs, "spearman": self.correlations, "fewest": FEWEST}

    def __str__(self) -> str:
        head = ["run", "baseline", "score", "deviation", "effective, %", "rsum before", "gain, %"]
        rows: list[list[Cell]] = [
            [p.run, p.baseline, p.score, f"{p.deviation:.4f}", f"{100 * p.effective:.1f}", p.before, f"{p.gain:+.1f}"]
            for p in self.points
        ]
        splits = ", ".join(sorted({point.split for point in self.points}))
        notes = [f"evaluated on the split {splits}; a split that selected a run's epoch overstates the run (--split)"]
        notes += [f"note: {p.run} and {p.baseline} also differ in {', '.join(p.apart)}" for p in self.points if p.apart]
        sentences = [_sentence(score, self.points, related) for score, related in self.correlations.items()]
        return "\n".join([table(head, rows), *notes, *sentences])

    __repr__ = __str__


def compare(work: Work, pairs: Sequence[tuple[Path, Path]], *, json: Path | None = None) -> GainReport:
    """Measure every pair of a weighted run and its baseline, and correlate gain with unevenness.

    work   execution, and the split to evaluate on; None for each run's own validation split
    json   file for the report; None for none

    Raises RequirementError for a run that neither DIVERSITY nor DISCREPANCY weighted in its kept epoch, for a baseline
    on other data, and for one with recall 0; what opening, reading and the graph raise.
    """
    sums: dict[tuple[str, str], tuple[float, str]] = {}
    # A pair of runs that is named twice counts once.
    unique = {tuple(run.expanduser().resolve() for run in pair): pair for pair in pairs}
    points = tuple(_point(work, weighted, baseline, sums) for weighted, baseline in unique.values())
    scores = [score for score in SCORES if any(point.score == score for point in points)]
    report = GainReport(
        points, {score: _correlations([point for point in points if point.score == score]) for score in scores}
    )
    if json is not None:
        write_text(json, dumps(report.to_json(), indent=2) + "\n")
    return report


def _point(work: Work, weighted: Path, baseline: Path, sums: dict[tuple[str, str], tuple[float, str]]) -> Point:
    record = load_record(weighted.expanduser())
    score, options = _weights_of(weighted, record)
    neighbours, weights, extra = (_of(kind, options) for kind in (NeighbourOptions, WeightOptions, DiscrepancyOptions))
    if record.best_epoch == 1 and neighbours.first_epoch == "uniform":
        raise RequirementError(
            f"{weighted} needs an epoch with weights: it kept its first, whose weights are uniform; train "
            f"longer, or with {score}:first_epoch=encode"
        )
    split = work.split or record.data.val_split or "val"
    after, before = (_rsum(replace(work, run=run, split=split), sums) for run in (weighted, baseline))
    if after[1] != before[1]:
        raise RequirementError(
            f"a gain needs two runs evaluated on the same pairs; {weighted} and {baseline} have different pairs in the "
            f"split {split}; choose runs on one data set"
        )
    if not before[0]:
        raise RequirementError(
            f"a gain in per cent needs a baseline above 0; the sum of recalls of {baseline} on the split {split} is 0; "
            "train it again"
        )
    opened = open_work(replace(work, run=weighted, split=record.data.train_split)).by_mean("weights gain")
    memory = NeighbourScores(
        Path(neighbours.graph),
        neighbours=neighbours.neighbours,
        scoring=Scoring(
            extra.second_order if score == "discrepancy" else "none", options.get("diagonal", True), extra.average
        ),
        views=neighbours.views,
        samples=neighbours.samples,
    ).open(opened.pairs, device=torch.device("cpu"))
    weighting = Neighbourhood(
        weights.total_weight,
        sign=weights.sign,
        combine=weights.combine,
        placement=weights.total_placement,
        batch=weights.reference_batch,
    )
    batch = int(record.plan["batch_size"])
    deviation, effective = unevenness(tables_of(memory, opened, work), weighting, score, batch=batch)
    apart = tuple(_apart(record, load_record(baseline.expanduser()), score))
    return Point(str(weighted), str(baseline), score, deviation, effective, split, before[0], after[0], apart)


def _apart(run: Record, baseline: Record, score: str) -> Iterator[str]:
    """Differences between two trainings beside the weights."""
    for name in ("model", "seed"):
        if getattr(run, name) != getattr(baseline, name):
            yield f"{name} ({getattr(run, name)}, {getattr(baseline, name)})"
    if run.data.fingerprint != baseline.data.fingerprint:
        yield "the training pairs"
    files = [(r.data.images, r.data.features, r.data.text_features) for r in (run, baseline)]
    if files[0] != files[1]:
        yield "the files of images or features"
    for left, right in ((run.arguments, baseline.arguments), (run.plan, baseline.plan)):
        for name in sorted(left.keys() | right.keys()):
            # Weighted runs drop a smaller last batch.
            if left.get(name) != right.get(name) and name != "drop_last":
                yield f"{name} ({left.get(name)}, {right.get(name)})"
    methods = [[m for m in record.methods if m[0] not in (score, *CONTROLS)] for record in (run, baseline)]
    if methods[0] != methods[1]:
        names = (", ".join(name for name, _ in chosen) or "none" for chosen in methods)
        yield f"other methods ({'; '.join(names)})"


def _weights_of(run: Path, record: Record) -> tuple[str, Mapping[str, Any]]:
    """The score that weighted a run, with the method's options."""
    for name, options in record.methods:
        if name in SCORES:
            return name, options
    used = ", ".join(name for name, _ in record.methods) or "none"
    raise RequirementError(
        f"{run} needs to be trained with diversity or discrepancy; its methods: {used}; name "
        "the weighted run first, RUN=BASELINE"
    )


def _of(kind: type[Options], options: Mapping[str, Any]) -> Options:
    """The options of one kind; options that an older record lacks have their defaults."""
    return kind(**{option.name: options[option.name] for option in fields(kind) if option.name in options})


def _rsum(work: Work, sums: dict[tuple[str, str], tuple[float, str]]) -> tuple[float, str]:
    """The sum of recalls of a run on a split, and the fingerprint of the pairs; measured once."""
    assert work.run is not None and work.split is not None
    key = str(work.run.expanduser().resolve()), work.split
    if key not in sums:
        opened = open_work(work)
        result = evaluate(
            opened.model, opened.pairs, protocol=_PROTOCOL, batch_size=work.batch_size, workers=work.workers
        )
        sums[key] = float(result.figures["rsum"]), fingerprint(opened.pairs)
    return sums[key]


def _correlations(points: Sequence[Point]) -> Correlations:
    """Spearman's correlation of the gain with each measure of unevenness, with its p-value; None for too few points."""
    if len(points) < FEWEST:
        return None
    gains = np.array([point.gain for point in points])
    correlations: dict[str, dict[str, float] | None] = {}
    for name in ("deviation", "effective"):
        values = np.array([getattr(point, name) for point in points])
        value = spearman(values, gains)
        correlations[name] = None if math.isnan(value) else {"rho": value, "p": _p_value(values, gains)}
    return correlations


def _sentence(score: str, points: Sequence[Point], related: Correlations) -> str:
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
    """Two-sided p-value of Spearman's correlation: the share of orders that correlate at least as strongly.

    Over all orders of up to seven values, else over 9,999 sampled ones and the observed one. Values are numbers.

    >>> _p_value(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))  # two of six orders
    0.3333333333333333
    """
    count = len(right)
    if count <= ALL_ORDERS:
        orders = np.array(list(itertools.permutations(range(count))))
    else:
        sampled = (
            draw.permutation(count, seed=seed, epoch=n, purpose="chance of ranks") for n in range(SAMPLED_ORDERS)
        )
        orders = np.stack([np.arange(count), *sampled])
    ranks = [rankdata(side) - (count + 1) / 2 for side in (left, right)]
    correlations = np.abs(ranks[1][orders] @ ranks[0]) / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    # The first order is the observed one.
    return float(np.mean(correlations >= correlations[0] - 1e-12))
