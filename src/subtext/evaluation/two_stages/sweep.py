"""Sweep of the number of candidates: what each number costs and loses against scoring every pair; table and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from subtext.core import DIRECTIONS, Direction
from subtext.evaluation.evaluate import evaluate_gallery, label_of
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.metric import Measure
from subtext.evaluation.metrics import BestRank, Recall
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.result import Result
from subtext.evaluation.scoring import Matrix
from subtext.evaluation.two_stages.scores import TwoStage
from subtext.report.plots import Chart, Curve, charts
from subtext.report.text_table import Cell, table

LOSS = 0.2
"""Points of R@1 that a plan may lose against scoring every pair, in each direction, to be called enough.

Where a protocol has no R@1, the recall of its fewest places is meant.
"""


def sweep(
    plan: TwoStage,
    every: Matrix,
    counts: Sequence[int],
    gallery: Gallery,
    metrics: Sequence[Measure],
    protocol: Protocol,
) -> dict[str, Any]:
    """What each number of candidates loses against scoring every pair, and the smallest that loses little enough.

    Args:
        plan: Both stages.
        every: The second model's scores of all pairs.
        counts: Numbers of candidates, ascending.
        gallery: What is evaluated.
        metrics: Those of the evaluation, whose recall of the pairs is swept; recall at 1 where there is none.
        protocol: How it is measured.

    Returns:
        What a result keeps of it, as plain data: "sweep" with a row for each number, "exhaustive", "allowed", "enough"
        and "enough_of".
    """
    recalls = [metric for metric in metrics if isinstance(metric, Recall) and not metric.against] or [Recall(1)]
    swept = [*recalls, BestRank()]
    exhaustive = evaluate_gallery(every, gallery, metrics=swept, protocol=protocol)
    k = min(number for metric in recalls for number in metric.k)
    rows = []
    for count in counts:
        cut = replace(plan, candidates=count)
        result = evaluate_gallery(cut, gallery, metrics=swept, protocol=protocol)
        names = {str(direction): f"{direction}/recall@{k}" for direction in DIRECTIONS}
        lost = {direction: exhaustive.figures[name] - result.figures[name] for direction, name in names.items()}
        rows.append({**costs(cut, result, gallery, protocol), "lost": lost})

    def enough(directions: Sequence[Direction]) -> int | None:
        fits = (row["candidates"] for row in rows if max(row["lost"][direction] for direction in directions) <= LOSS)
        return next(fits, None)

    return {
        "sweep": rows,
        "exhaustive": _recalls(exhaustive),
        "allowed": {"recall": k, "points": LOSS},
        "enough": enough(DIRECTIONS),
        "enough_of": {str(direction): enough([direction]) for direction in DIRECTIONS},
    }


def costs(plan: TwoStage, result: Result, gallery: Gallery, protocol: Protocol) -> dict[str, Any]:
    """What a number of candidates costs, and what it misses.

    Args:
        plan: Both stages.
        result: The figures of this number, with the mean rank.
        gallery: What was evaluated.
        protocol: How it was measured.

    Returns:
        Plain data: candidates, pairs that the second model scored and their share, what was missed, and recall.
    """
    first, *others = protocol.fold_counts(len(gallery.image_ids))
    labels = {label_of(len(gallery.image_ids), count): count for count in others}
    more_folds = {label: _cost(plan, result, gallery, count, label) for label, count in labels.items()}
    return {
        "candidates": plan.candidates,
        **_cost(plan, result, gallery, first, ""),
        **({"also_folds": more_folds} if more_folds else {}),
        **_recalls(result),
    }


def _cost(plan: TwoStage, result: Result, gallery: Gallery, folds: int, label: str) -> dict[str, Any]:
    """Of one set of folds: pairs that the second model scores, their share of all pairs in folds, and what was missed.

    A pair that both directions list is counted once in "together".
    """
    parts = [plan.part(images, texts) for images, texts in gallery.fold_rows(folds)]
    every = sum(part.shape[0] * part.shape[1] for part in parts)
    pairs = {str(direction): sum(part.lists.of(direction).size for part in parts) for direction in DIRECTIONS}
    pairs["together"] = sum(len(part.lists.pairs()) for part in parts)
    ranks = {str(direction): result.per_query[f"{direction}/{BestRank.name}{label}"] for direction in DIRECTIONS}
    return {
        "folds": folds,
        "pairs": pairs,
        "share_of_pairs": {name: count / every for name, count in pairs.items()},
        "missed": {
            name: 100 * float((rank > plan.candidates).sum() / (~np.isnan(rank)).sum()) for name, rank in ranks.items()
        },
    }


def _ks(stages: Mapping[str, Any]) -> list[int]:
    """The k of recall@k that a sweep measured, without extra sets of folds."""
    names = (name.partition("@")[2] for name in stages["exhaustive"] if name.startswith("image_to_text/recall@"))
    return [int(k) for k in names if k.isdecimal()]


def _recalls(result: Result) -> dict[str, float]:
    return {name: value for name, value in result.figures.items() if "/recall@" in name or name == "rsum"}


def sweep_text(stages: Mapping[str, Any]) -> list[str]:
    """The sweep as a table, and how many candidates are enough.

    Args:
        stages: As `sweep` returns them.

    Returns:
        A table and a sentence.
    """
    directions = {"image_to_text": "images", "text_to_image": "texts"}
    allowed = stages["allowed"]
    k = allowed["recall"]
    shown = sorted({k, max(_ks(stages))})
    head = ["candidates", "pairs scored, %"]
    for query in directions.values():
        first, *others = (f"R@{cut}" for cut in shown)
        head += [f"{query}: {first}", *others, "missed, %", f"R@{k} lost"]
    rows: list[list[Cell]] = []
    for row in stages["sweep"]:
        line: list[Cell] = [str(row["candidates"]), f"{100 * row['share_of_pairs']['together']:.2f}"]
        for direction in directions:
            recalls = [row[f"{direction}/recall@{k}"] for k in shown]
            line += [*recalls, f"{row['missed'][direction]:.1f}", f"{row['lost'][direction]:+.2f}"]
        rows.append(line)
    every: list[Cell] = ["every pair", "100"]
    for direction in directions:
        every += [*(stages["exhaustive"][f"{direction}/recall@{k}"] for k in shown), "", ""]
    enough = stages["enough"]
    verdict = "none of these numbers is enough" if enough is None else f"{enough} candidates are enough"
    images, texts = (stages["enough_of"][direction] or "none" for direction in directions)
    return [
        table(head, [*rows, every]),
        f"{verdict}: at most {allowed['points']:g} points of R@{k} lost in each direction "
        f"(image queries: {images}, text queries: {texts})",
    ]


def plot_sweep(result: Result) -> str:
    """Plot recall of each direction over the share of pairs that the second model scores.

    Lines end where every pair is scored; a grey line marks that recall.

    Args:
        result: Of several numbers of candidates.

    Returns:
        An SVG document.
    """
    stages = result.about["two_stage"]
    first = stages["allowed"]["recall"]
    panels = []
    for direction, title in (("image_to_text", "images as queries"), ("text_to_image", "texts as queries")):
        lines = []
        costs = [100 * row["share_of_pairs"][direction] for row in stages["sweep"]]
        for k in _ks(stages):
            name, every = f"{direction}/recall@{k}", stages["exhaustive"][f"{direction}/recall@{k}"]
            points = [(cost, row[name]) for cost, row in zip(costs, stages["sweep"], strict=True)]
            # A list that holds every candidate is the end of the line already.
            last_point = [] if points[-1][0] >= 100 else [(100.0, every)]
            lines.append(Curve(f"R@{k}", [*points, *last_point]))
        best = stages["exhaustive"][f"{direction}/recall@{first}"]
        lines.append(Curve(f"R@{first} of every pair", [(costs[0], best), (100.0, best)], reference=True))
        panels.append(Chart(title, "pairs that the second model scores, %", "recall, %", lines, log_x=True))
    return charts(panels)
