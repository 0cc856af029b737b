"""Metrics: Comparison -> one value per query. An evaluation takes them as objects, or by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from subtext.errors import RequirementError
from subtext.evaluation.metric import Measure, figure_of, registered, registered_classes
from subtext.evaluation.metrics.agreement import HumanAgreement
from subtext.evaluation.metrics.alignment_uniformity import AlignmentUniformity
from subtext.evaluation.metrics.asp import ASP
from subtext.evaluation.metrics.average_precision import AveragePrecision
from subtext.evaluation.metrics.best_rank import BestRank, ReciprocalRank
from subtext.evaluation.metrics.c_way import CWay, CWayBest, CWayRank, SampledCWay
from subtext.evaluation.metrics.graded_gain import NDCG, SemanticGain
from subtext.evaluation.metrics.hubness import Hubness
from subtext.evaluation.metrics.pmrp import PMRP, PMRecall
from subtext.evaluation.metrics.preservation import Preservation
from subtext.evaluation.metrics.r_precision import RPrecision
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.metrics.ties import TieShare

__all__ = [
    "ASP",
    "NDCG",
    "PMRP",
    "AlignmentUniformity",
    "AveragePrecision",
    "BestRank",
    "CWay",
    "CWayBest",
    "CWayRank",
    "Hubness",
    "HumanAgreement",
    "PMRecall",
    "Preservation",
    "RPrecision",
    "Recall",
    "ReciprocalRank",
    "SampledCWay",
    "SemanticGain",
    "TieShare",
    "default_metrics",
    "metric_named",
    "metrics_of",
]

_CLASSES: tuple[type[Measure], ...] = tuple(
    value for name in __all__ if isinstance(value := globals().get(name), type) and issubclass(value, Measure)
)
_EXAMPLES = "recall@10, mean_rank, 20-way, r_precision, hubness@10, asp:tfidf1, ndcg@10:tfidf1, recall@1:eccv=FOLDER"


def default_metrics() -> tuple[Measure, ...]:
    """What an evaluation measures that names no metrics.

    Returns:
        Recall at 1, 5 and 10, the mean, median and reciprocal rank, the share of ties, and registered metrics of pairs.
    """
    return (Recall(1, 5, 10), BestRank(), ReciprocalRank(), TieShare(), *registered("pairs"))


def metric_named(text: str) -> Measure:
    """The metric of a name, such as that of its figure.

    Args:
        text: "NAME" or "NAME:AGAINST", where NAME is written as in a result ("recall@10", "20_way@1"; a hyphen stands
            for an underscore) and AGAINST names a relevance, a set of positives, or a file: "asp:tfidf1",
            "recall@10:eccv=FOLDER", "human:ratings.csv", "neighbours_kept:GRAPH".

    Returns:
        The metric.

    Raises:
        RequirementError: If no metric has this name.

    Example:
        >>> metric_named("recall@10") == Recall(10), metric_named("asp:tfidf1") == ASP("tfidf1"), metric_named("20-way")
        (True, True, CWay(against='', c=20, at=1, ties='pessimistic', again=False))
    """
    written, _, against = text.partition(":")
    name = written.strip().replace("-", "_")
    classes = (*_CLASSES, *registered_classes())
    for metric in classes:
        if metric.pattern and (match := re.fullmatch(metric.pattern, name)):
            values: dict[str, Any] = {key: _read(value) for key, value in match.groupdict().items() if value}
            return metric(**values, against=against)
        if not metric.pattern and getattr(metric, "name", None) == name:
            return metric(against=against)
    known = [figure_of(metric()) for metric in classes]
    close = " or ".join(get_close_matches(name, known, n=2))
    raise RequirementError(f"there is no metric '{text}'{f'; did you mean {close}?' if close else ''}; {_EXAMPLES}")


def _read(value: str) -> int | str | bool:
    return int(value) if value.isdecimal() else True if value.endswith("_") else value


def metrics_of(metrics: Sequence[Measure | str] | Measure | str | None) -> list[Measure]:
    """Metrics as objects, one for each figure, in the order of a table.

    Args:
        metrics: Objects and names, or one alone; None for `default_metrics`.

    Returns:
        The metrics, by `sort_order`.

    Raises:
        RequirementError: For an unknown name or something else.
    """
    chosen: list[Measure] = []
    metrics = [metrics] if isinstance(metrics, str | Measure) else metrics
    for item in default_metrics() if metrics is None else metrics:
        metric = metric_named(item) if isinstance(item, str) else item
        if not isinstance(metric, Measure):
            raise RequirementError(
                f"metrics needs metrics such as Recall(1, 5, 10), or their names such as 'recall@10'; it got {item!r}"
            )
        chosen += metric.each()
    if not chosen:
        raise RequirementError("an evaluation needs a metric; it got none; leave metrics out for recall and ranks")
    return sorted(chosen, key=lambda metric: metric.sort_order)
