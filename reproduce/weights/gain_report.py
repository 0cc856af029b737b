"""`python -m reproduce.weights gain`: whether the gain of weights goes with how uneven scores and weights are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.weights.scores_report import score_tables
from reproduce.weights.statistics import SCORES, unevenness
from subtext.api.options import BatchSize, Device, Json, Quiet, Workers
from subtext.data import atomic
from subtext.errors import ArgumentError, RequirementError
from subtext.evaluation.metrics.agreement import spearman
from subtext.models.checkpoint import Record
from subtext.objectives.weighting import Neighbourhood
from subtext.ops import draw
from subtext.recipes.neighbour_scores import NeighbourScores
from subtext.report.text_table import Cell, table
from subtext.settings import Metavar, OptionGroup, command
from subtext.text_helpers import counted

FEWEST = 3
"""Pairs of runs that a correlation needs: two always agree, or disagree."""
PAPER = {"diversity": "small", "discrepancy": "large"}
"""Variance of each score that Thomas and Kovashka (2022) found good."""
CONTROLS = ("uniform", "random")
"""Methods whose weights depend on no data; a baseline may have them."""
ALL_ORDERS, SAMPLED_ORDERS = 7, 9_999
"""Up to 7 values every order is tried; for more values 9,999 orders are sampled."""
_RUNS = OptionGroup("Runs")

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


@command
def gain(
    pairs: Annotated[tuple[str, ...], "Folders of a weighted run and its baseline.", _RUNS, Metavar("RUN=BASELINE")],
    *,
    split: Annotated[str | None, "Split to evaluate on. Default: each run's validation split.", _RUNS] = None,
    json: Json = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> GainReport:
    """Report whether the gain of DIVERSITY or DISCREPANCY goes with the spread of its scores and weights.

    For every weighted run and its baseline: the score's standard deviation over the training pairs and the effective
    sample size of the weights, both in the run's own space and with its own options; the gain of its sum of six recalls
    over the baseline in per cent; and other differences between the two trainings. From three pairs of a method on also
    Spearman's correlation, with its p-value.

    Raises ArgumentError for a text that is not RUN=BASELINE; RequirementError for a run that neither DIVERSITY nor
    DISCREPANCY weighted in its selected epoch, for a baseline on other data, and for one with recall 0; what opening,
    reading and the graph raise.
    """
    running: dict[str, Any] = {"device": device, "batch_size": batch_size, "workers": workers}
    options = {**running, "quiet": quiet}
    results: dict[tuple[Path, str], st.Result] = {}

    def result_of(run: Path, split: str) -> st.Result:
        key = run.expanduser().resolve(), split
        if key not in results:
            results[key] = st.evaluate(
                run, split=split, protocol=st.Protocol(bootstrap=0), config=st.ComputeConfig(**running), quiet=quiet
            )
        return results[key]

    def point_of(weighted: Path, baseline: Path) -> Point:
        run = st.open_run(weighted)
        score, scores, weighting = _weights_of(run)
        chosen = split or run.record.data.val_split or "val"
        after, before = (result_of(folder, chosen) for folder in (weighted, baseline))
        if after.protocol["data"] != before.protocol["data"]:
            raise RequirementError(
                f"a gain needs two runs evaluated on the same pairs; {weighted} and {baseline} have different pairs in "
                f"the split {chosen}; choose runs on one data set"
            )
        if not before.figures["rsum"]:
            raise RequirementError(
                f"a gain in per cent needs a baseline above 0; the sum of recalls of {baseline} on the split {chosen} "
                "is 0; train it again"
            )
        embedded = st.embed(weighted, split=run.record.data.train_split, **options)
        batch = int(run.record.plan["batch_size"])
        deviation, effective = unevenness(score_tables(scores, embedded), weighting, score, batch=batch)
        recalls = float(before.figures["rsum"]), float(after.figures["rsum"])
        apart = tuple(_apart(run.record, st.open_run(baseline).record, score))
        return Point(str(weighted), str(baseline), score, deviation, effective, chosen, *recalls, apart)

    folders = [_pair_of_runs(text) for text in pairs]
    # A pair of runs that is named twice counts once.
    unique = {tuple(run.expanduser().resolve() for run in pair): pair for pair in folders}
    points = tuple(itertools.starmap(point_of, unique.values()))
    by_score = {score: [point for point in points if point.score == score] for score in SCORES}
    report = GainReport(points, {score: _correlations(some) for score, some in by_score.items() if some})
    if json is not None and str(json) != "-":
        atomic.write_text(Path(json), dumps(report.to_json(), indent=2) + "\n")
    return report


def _pair_of_runs(text: str) -> tuple[Path, Path]:
    """The two sides of the first = that has a run on either side, so paths may contain = themselves.

    Raises ArgumentError where there is none.
    """

    def is_run(folder: Path) -> bool:
        return (folder.expanduser() / "run.json").is_file()

    for index in (index for index, letter in enumerate(text) if letter == "="):
        sides = Path(text[:index]), Path(text[index + 1 :])
        if all(map(is_run, sides)):
            return sides
    run, equals, baseline = text.partition("=")
    bad = [side for side in (run, baseline) if equals and not is_run(Path(side))]
    reason = f"; {' and '.join(bad)} {'is' if len(bad) == 1 else 'are'} no run" if bad else ""
    raise ArgumentError(f"'{text}' needs two folders of runs with = between them, as runs/diverse=runs/plain{reason}")


def _weights_of(run: st.Run) -> tuple[str, NeighbourScores, Neighbourhood]:
    """The score that weighted a run, how it was computed, and the weighting."""
    methods = [name for name, _ in run.record.methods]
    score = next((name for name in methods if name in SCORES), None)
    if score is None:
        raise RequirementError(
            f"{run.path} needs to be trained with diversity or discrepancy; its methods: {', '.join(methods) or 'none'}"
            "; name the weighted run first, RUN=BASELINE"
        )
    setup = run.setup()
    scores = next(memory for memory in setup.banks if isinstance(memory, NeighbourScores))
    if run.record.best_epoch == 1 and scores.first == "uniform":
        raise RequirementError(
            f"{run.path} needs an epoch with weights: it kept its first, whose weights are uniform; train "
            f"longer, or with {score}:first_epoch=encode"
        )
    weightings = (getattr(part, "weighting", None) for part in setup.objective.parts.values())
    weighting = next(part for part in weightings if isinstance(part, Neighbourhood))
    # Of all pairs, from the embeddings of one pass.
    scores = replace(scores, bank="training", every=True, storage="float32", current=False)
    return score, scores, weighting


def _apart(run: Record, baseline: Record, score: str) -> Iterator[str]:
    """Differences between two trainings beside the weights."""
    for name in ("model", "seed"):
        if getattr(run, name) != getattr(baseline, name):
            yield f"{name} ({getattr(run, name)}, {getattr(baseline, name)})"
    if run.fingerprint != baseline.fingerprint:
        yield "the training pairs"
    files = [(r.data.images, r.data.features, r.data.text_features) for r in (run, baseline)]
    if files[0] != files[1]:
        yield "the files of images or features"
    for first, second in ((run.arguments, baseline.arguments), (run.plan, baseline.plan)):
        for name in sorted(first.keys() | second.keys()):
            # Weighted runs drop a smaller last batch.
            if first.get(name) != second.get(name) and name != "drop_last":
                yield f"{name} ({first.get(name)}, {second.get(name)})"
    methods = [[m for m in record.methods if m[0] not in (score, *CONTROLS)] for record in (run, baseline)]
    if methods[0] != methods[1]:
        names = (", ".join(name for name, _ in chosen) or "none" for chosen in methods)
        yield f"other methods ({'; '.join(names)})"


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


def _p_value(first: Float[np.ndarray, "n"], second: Float[np.ndarray, "n"], *, seed: int = 0) -> float:
    """Two-sided p-value of Spearman's correlation: the share of orders that correlate at least as strongly.

    Over all orders of up to seven values, else over 9,999 sampled ones and the observed one. Values are numbers.

    >>> _p_value(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))  # two of six orders
    0.3333333333333333
    """
    count = len(second)
    if count <= ALL_ORDERS:
        orders = np.array(list(itertools.permutations(range(count))))
    else:
        sampled = (
            draw.permutation(count, seed=seed, epoch=n, purpose="chance of ranks") for n in range(SAMPLED_ORDERS)
        )
        orders = np.stack([np.arange(count), *sampled])
    ranks = [rankdata(side) - (count + 1) / 2 for side in (first, second)]
    correlations = np.abs(ranks[1][orders] @ ranks[0]) / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    # The first order is the observed one.
    return float(np.mean(correlations >= correlations[0] - 1e-12))
