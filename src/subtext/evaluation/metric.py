"""What a metric is, what it may read, and which metrics there are.

A metric is one frozen dataclass in one file. It declares what it reads, its name and its scale; an evaluation computes
each reading once for a block of scores, and gets its metrics as arguments. To add one, write the class and pass it:

    @dataclass(frozen=True)
    class Margin(Metric):
        name = "margin"
        percent = False

        def __call__(self, comparison):
            ...  # (Q) one value per query, NaN where it has no meaning

    subtext.evaluate(run, metrics=[Recall(1, 5, 10), Margin()])

A class is also measured by every evaluation that names no metrics where `register` was called with it, or where an
installed package names it as an entry point of the group `subtext.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison, Direction
from subtext.errors import RequirementError
from subtext.ops.compiled import semantic_rank
from subtext.ops.compiled.semantic_rank import RankTies
from subtext.ops.rank import Ties, best_of, rank_positives
from subtext.ops.sparse import CandidateLists
from subtext.ops.top_k import gains, graded_relevance

TruthKind = Literal["pairs", "relevance", "labels", "neighbours", "ratings", "space"]
"""What a metric is measured against.

pairs       positives: those of the data set, or others such as ECCV Caption's
relevance   graded relevance of every image and text        labels    object classes of the images
neighbours  neighbours in a semantic graph, one modality    ratings   people's ratings of pairs
space       nothing: it describes the embeddings
"""

ENTRY_POINTS = "subtext.metrics"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What every metric declares, whether it has a value per query or one number for a gallery.

    Attributes:
        reads: Names of the readings that it takes, in order (see `ScoreBlock`).
        truth: What kind of truth it is measured against.
        sort_order: Where its figures stand among those of others; lower comes first.
        pattern: Regular expression of its name in a list of metrics, whose groups are arguments; "" for `name` itself.

    Args:
        against: Which truth of that kind, where there are several: the name of a relevance ("tfidf1") or of a set of
            positives ("eccv"). "" is the only one there is: the pairs of the data set, their labels, their ratings.
            `subtext.evaluate` also takes what is still to be read: "eccv=FOLDER", or the path of ratings or of a graph.
    """

    against: str = ""

    reads: ClassVar[tuple[str, ...]] = ("comparison",)
    truth: ClassVar[TruthKind] = "pairs"
    sort_order: ClassVar[int] = 1000
    pattern: ClassVar[str] = ""

    def __str__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def each(self) -> tuple[Measure, ...]:
        """Metrics of one figure each, where this one stands for several; else itself.

        Returns:
            One metric or more.
        """
        return (self,)

    def with_ties(self, ties: Ties) -> Measure:
        """The metric under the rule for ties of an evaluation.

        Args:
            ties: Where a positive stands among negatives of its own score.

        Returns:
            The metric with this rule; itself where it has no such rule.

        Raises:
            RequirementError: If the metric was made with another rule.
        """
        field = next((field for field in fields(self) if field.name == "ties"), None)
        if field is None or getattr(self, "ties", ties) == ties:
            return self
        if getattr(self, "ties", None) != field.default and field.default is not MISSING:
            raise RequirementError(
                f"the metrics of an evaluation share one rule for ties; {self} has another than the protocol's "
                f"'{ties}'; give Protocol(ties=...) alone"
            )
        changed: dict[str, Any] = {"ties": ties}
        return replace(self, **changed)

    def notes(self, figures: Mapping[str, float], negatives: Mapping[Direction, tuple[int, int]]) -> list[str]:
        """Sentences that a reader of its figures should know.

        Args:
            figures: Name -> number, of all metrics.
            negatives: Direction -> fewest and most negatives of a query.

        Returns:
            The sentences; none by default.
        """
        return []


@dataclass(frozen=True, kw_only=True)
class Metric(Measure):
    """Comparison -> (Q) one value per query, NaN where it is undefined.

    Attributes:
        percent: Whether the mean is reported in per cent.
        digits: Of its figures in tables, behind the point, 0 or more; JSON has all.
        lower_is_better: Whether smaller values are better.
        compared: Whether `compare` tests it by default.
        total: Name of the sum of the means of both directions; "" for none.
        by_length: Whether it is also reported for the texts of each length.
    """

    percent: ClassVar[bool] = True
    digits: ClassVar[int] = 1
    lower_is_better: ClassVar[bool] = False
    compared: ClassVar[bool] = True
    total: ClassVar[str] = ""
    by_length: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name of its figure.

        Raises:
            NotImplementedError: If a subclass has no name.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a name")

    @property
    def scale(self) -> float:
        """Factor of the mean of its values."""
        return 100.0 if self.percent else 1.0

    @property
    def described(self) -> dict[str, bool | int]:
        """The description that is saved with its values."""
        return {name: getattr(self, name) for name in ("percent", "digits", "lower_is_better", "compared")}

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Q queries and C candidates; ignored cells are left out.

        Returns:
            (Q) float64; NaN where it is undefined.

        Raises:
            NotImplementedError: If a subclass defines neither `__call__` nor `of`.
        """
        if self.reads == Measure.reads:
            raise NotImplementedError(f"{type(self).__name__} needs __call__, or `reads` and `of`")
        readings = readings_of(comparison, stable=getattr(self, "ties", "") == "stable")
        return torch.from_numpy(self.of(*readings.take(self.reads)))

    def of(self, *readings: Any) -> NDArray[np.float64]:
        """The same, from prepared inputs.

        Args:
            *readings: Those that `reads` names, in its order.

        Returns:
            (Q) float64, NaN where it is undefined.
        """
        return torch.as_tensor(self(*readings)).double().numpy()

    def chance(self, *readings: Any) -> NDArray[np.float64] | Fraction | float | None:
        """The expected value of a random order, for each query or all; None if unknown.

        Args:
            *readings: Those that `reads` names, in its order.

        Returns:
            (Q) float64, or one number for all queries; None if unknown.
        """
        return None

    def ceiling(self, *readings: Any) -> NDArray[np.float64] | None:
        """The expected value of the best order, if it can be below 1.

        Args:
            *readings: Those that `reads` names, in its order.

        Returns:
            (Q) float64; None where it is 1 or unknown.
        """
        return None

    def figures(self, values: NDArray[np.float64]) -> dict[str, float]:
        """Its figures, in their scale, from the values of all queries.

        Args:
            values: (Q) values of all queries.

        Returns:
            Name -> number.
        """
        return {self.name: self.scale * mean(values)}


@dataclass(frozen=True, kw_only=True)
class GalleryMetric(Measure):
    """A metric without a value per query: figures of a gallery from readings that are summed over all queries."""

    def of(self, *readings: Any) -> NDArray[np.float64]:
        """What a block of queries adds.

        Args:
            *readings: Those that `reads` names, in its order, of the block.

        Returns:
            What is summed over blocks.

        Raises:
            NotImplementedError: If a subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} needs `of`")

    def figures(self, *readings: Any) -> dict[str, float]:
        """Its figures from the sum over all blocks.

        Args:
            *readings: The sum of what `of` returned.

        Returns:
            Name -> number.

        Raises:
            NotImplementedError: If a subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} needs `figures`")


@dataclass(frozen=True)
class SemanticRanks:
    """A block of scores beside the ranks of its relevance, for one rule of ties.

    Attributes:
        scores: (Q C).
        by_relevance: (Q C) ranks under `ties`.
        best: Where ties share the best of them.
        kernel: Whether compiled code counts.
    """

    scores: NDArray[Any]
    by_relevance: NDArray[np.unsignedinteger]
    best: NDArray[np.unsignedinteger]
    kernel: bool | None = None

    @staticmethod
    def of(
        scores: Tensor, relevance: NDArray[np.floating], ties: RankTies, *, kernel: bool | None = None
    ) -> SemanticRanks:
        """The ranks of one block.

        Args:
            scores: (Q C).
            relevance: (Q C) float.
            ties: Ranks of equal values.
            kernel: Whether compiled code counts; None decides by size.

        Returns:
            Scores beside the ranks of the relevance.
        """
        scores = scores.detach().cpu()
        matrix = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()
        by_relevance = semantic_rank.ranks(relevance, ties, kernel=kernel)
        best = by_relevance if ties == "min" else semantic_rank.ranks(relevance, "min", kernel=kernel)
        return SemanticRanks(matrix, by_relevance, best, kernel)


@dataclass(frozen=True)
class Gains:
    """Relevance at the first k places: by score, by relevance itself, and its mean at every place; (Q k) each.

    Attributes:
        by_score: (Q k) float64, ordered by score.
        by_relevance: (Q k) float64, ordered by relevance.
        mean: (Q k) float64, the mean relevance of the query's candidates.
    """

    by_score: NDArray[np.float64]
    by_relevance: NDArray[np.float64]
    mean: NDArray[np.float64]

    @staticmethod
    def of(scores: Tensor, relevance: Tensor, k: int, ties: Ties) -> Gains:
        """The gains of a block of scores; places that there are no candidates for have 0.

        Args:
            scores: (Q C).
            relevance: (Q C), 0 or more.
            k: Number of places, 1 or more.
            ties: Where candidates of equal scores stand.

        Returns:
            Gains at min(k, C) places.
        """
        got, ideal = gains(scores, relevance, k, ties), gains(relevance, relevance, k)
        average = np.broadcast_to(relevance.numpy().mean(axis=1, dtype=np.float64)[:, None], got.shape).copy()
        average[:, relevance.shape[1] :] = 0
        return Gains(got, ideal, average)

    def shuffled(self) -> Gains:
        """What a random order is expected to give.

        Returns:
            The gains with the mean relevance at every place.
        """
        return replace(self, by_score=self.mean)


class GainMetric(Metric):
    """A metric of the relevance at the first k places; a subclass is a dataclass with `k` and `ties`.

    Attributes:
        k: Number of first places, 1 or more.
        ties: Where candidates of equal scores stand.
        label: Its name before the k.

    Raises:
        RequirementError: For a k below 1.
    """

    k: int
    ties: Ties

    reads = ("gains",)
    truth = "relevance"
    label: ClassVar[str]

    @property
    def name(self) -> str:
        """With its k."""
        return f"{self.label}@{self.k}"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise RequirementError(f"{type(self).__name__} needs k of 1 or more; it got {self.k}")

    def worth(self, relevance: Tensor) -> Tensor:
        """What a candidate of this relevance counts.

        Args:
            relevance: (Q C), 0 or more.

        Returns:
            (Q C), 0 or more.
        """
        return relevance

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Q queries and C candidates; ignored cells are left out.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        relevance, scores = graded_relevance(comparison, type(self).__name__, least=0.0), comparison.scores
        if comparison.truth.ignored is not None:
            relevance = relevance.masked_fill(comparison.truth.ignored, 0.0)
            scores = scores.masked_fill(comparison.truth.ignored, -torch.inf)
        return torch.from_numpy(self.of(Gains.of(scores, self.worth(relevance), self.k, self.ties)))

    def chance(self, *readings: Any) -> NDArray[np.float64]:
        """Where every place has the mean relevance.

        Args:
            *readings: `Gains` of the queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        return self.of(*(gains.shuffled() for gains in readings))


class ScoreBlock:
    """What metrics read of one block of scores; each reading is computed once, when the first metric takes it.

    comparison      the Comparison itself               scores           (Q C)
    best_rank       `ops.rank.Counts`: the rank of the best positive, and how many candidates there are
    query_keys      (Q) keys of the queries, for draws
    positive_ranks  `ops.rank.PositiveRanks`: the ranks of all positives
    label_ranks     zeta -> the same of images whose labels differ in at most zeta places
    gains           `Gains`: relevance at the first places; gains_exponential: of 2^relevance - 1
    semantic_ranks_ordinal, semantic_ranks_min, semantic_ranks_average
                    `SemanticRanks`: scores beside the ranks of a relevance, by the rule for its ties

    Args:
        computed: Name -> reading that is there.
        computed_by: Name -> what computes the reading when a metric takes it.
    """

    def __init__(self, computed: Mapping[str, Any], computed_by: Mapping[str, Callable[[], Any]] | None = None) -> None:
        self.computed = dict(computed)
        self.computed_by = computed_by or {}

    def take(self, names: Iterable[str]) -> list[Any]:
        """The readings of these names.

        Args:
            names: Names of readings.

        Returns:
            The readings, in this order.

        Raises:
            RequirementError: For one that this truth does not have.
        """
        for name in names:
            if name not in self.computed:
                if name not in self.computed_by:
                    have = ", ".join([*self.computed, *self.computed_by])
                    raise RequirementError(f"a metric reads '{name}', which there is not here; there are {have}")
                self.computed[name] = self.computed_by[name]()
        return [self.computed[name] for name in names]


def readings_of(comparison: Comparison, *, stable: bool = False) -> ScoreBlock:
    """The readings of a Comparison; tied candidates are also counted by column if `stable`.

    Args:
        comparison: Q queries and C candidates.
        stable: Also count tied candidates by column.

    Returns:
        The readings, each computed when it is first taken.
    """
    truth = comparison.truth

    def lists(mask: Tensor | None) -> Any:
        return None if mask is None else CandidateLists.of_mask(mask)

    def positive_ranks() -> Any:
        return rank_positives(comparison.scores, [lists(truth.match)], lists(truth.ignored), stable=stable)[0]

    queries = len(comparison.scores)
    keys = torch.arange(queries) if comparison.queries is None else comparison.queries.ids.cpu()
    return ScoreBlock(
        {"comparison": comparison, "scores": comparison.scores, "query_keys": keys.numpy()},
        {
            "best_rank": lambda: best_of(comparison.scores, lists(truth.match), lists(truth.ignored), stable=stable),
            "positive_ranks": positive_ranks,
        },
    )


Kind = TypeVar("Kind", bound=type[Measure])
_REGISTERED: list[type[Measure]] = []


def register(metric: Kind) -> Kind:
    """Add a metric to every evaluation that names no metrics; usable as a decorator.

    Args:
        metric: A subclass of `Metric` with a `name` and a `__call__` from a Comparison (Q C) to values (Q). It replaces
            one that was registered from the same module under the same name, such as by a notebook cell that runs
            again.

    Returns:
        The class itself.

    Raises:
        RequirementError: For anything else.
    """
    if not (isinstance(metric, type) and issubclass(metric, Measure)):
        raise RequirementError(f"register needs a subclass of Metric or GalleryMetric; it got {metric!r}")
    if issubclass(metric, Metric) and metric.name is Metric.name:
        raise RequirementError(f"a metric needs a name; {metric.__qualname__} has none; write name = 'rank_gap' in it")
    names = (metric.__module__, metric.__qualname__)
    _REGISTERED[:] = [other for other in _REGISTERED if (other.__module__, other.__qualname__) != names]
    _REGISTERED.append(metric)
    return metric


register_metric = register


def registered_classes() -> list[type[Measure]]:
    """The classes of metrics of other packages.

    Returns:
        Those that installed packages name, and those that were registered, by module and name.

    Raises:
        RequirementError: If an entry point names something else.
    """
    return sorted({*_installed(), *_REGISTERED}, key=lambda each: (each.sort_order, each.__module__, each.__qualname__))


def registered(truth: TruthKind, against: str = "") -> list[Measure]:
    """The metrics of other packages that are measured against a truth.

    Args:
        truth: Its kind.
        against: Its name, where there are several of this kind.

    Returns:
        One metric of each class, with its defaults.
    """
    return [each(against=against) for each in registered_classes() if each.truth == truth]


@cache
def _installed() -> tuple[type[Measure], ...]:
    classes = []
    for entry in entry_points(group=ENTRY_POINTS):
        value = entry.load()
        if not (isinstance(value, type) and issubclass(value, Measure)):
            raise RequirementError(f"the entry point {entry.name} of {ENTRY_POINTS} needs to name a class of metrics")
        classes.append(value)
    return tuple(classes)


def figure_of(metric: Measure) -> str:
    """The name of a metric's figure, with what it is measured against.

    Args:
        metric: One metric.

    Returns:
        "recall@5", "asp(tfidf1)"; the class of a metric that has no name of its own.
    """
    name = getattr(metric, "name", type(metric).__name__)
    return f"{name}({metric.against})" if metric.against else str(name)


def mean(values: Float[np.ndarray, "q"]) -> float:
    """Mean of the values that are numbers.

    Args:
        values: (Q).

    Returns:
        The mean; NaN when there is none.
    """
    valid = values[~np.isnan(values)]
    return float(valid.mean()) if len(valid) else math.nan
