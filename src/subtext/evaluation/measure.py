"""The evaluation itself: scores in blocks -> readings -> metrics -> Result.

Metrics are found by walking their classes (`metric`): this module computes what they read, once a block, and knows none
of them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Comparison, Direction, Embeddings, Truth
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import gallery as galleries, scoring
from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metric import (
    Gains,
    GalleryMetric,
    Metric,
    Outcome,
    Request,
    ScoreBlock,
    SemanticRanks,
    mean,
    metric_classes,
    requested,
)
from subtext.evaluation.protocol import ExtraMetrics, Protocol
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.results import Result, notes, stated
from subtext.evaluation.scoring import STORED_BYTES, Embedded, Matrix, Rows, ScoreSource, scored_once
from subtext.models.model import Model
from subtext.ops.rank import Counts, PositiveRanks, rank_positives
from subtext.ops.semantic_rank import KERNEL_CELLS

WORDS = (0, 10, 15, 20, math.inf)
"""Where buckets of text lengths begin and end, in words."""


def evaluate(
    model: Model,
    pairs: Dataset,
    *,
    protocol: Protocol | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
    extra: ExtraMetrics | None = None,
) -> Result:
    """How well a model retrieves texts for these images, and images for these texts.

    Args:
        pairs: One split; every image and every text is a query, and a candidate of the other side.
        protocol: None for the default one.
        progress: Is called with how many images and texts are embedded.
        extra: What is measured beyond the protocol; None for nothing.

    Raises:
        RequirementError: If no image and text of `pairs` belong together, or there are more folds than images.

    Complexity:
        Embedding, and one similarity of every pair in each direction; memory is bounded by the embeddings and blocks of
        64 MB (a score matrix of up to 256 MB is stored instead).
    """
    images, texts = embed_pairs(model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    return evaluate_embeddings(model.similarity, images, texts, pairs, protocol=protocol, extra=extra)


def evaluate_embeddings(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    pairs: Dataset,
    *,
    protocol: Protocol | None = None,
    extra: ExtraMetrics | None = None,
    block_bytes: int = scoring.BLOCK_BYTES,
) -> Result:
    """The same from embeddings of all images and texts of `pairs`, in their order.

    Raises:
        ShapeError: If embeddings and items differ in number.
    """
    if (len(images), len(texts)) != (len(pairs.images), len(pairs.texts)):
        raise ShapeError(
            f"evaluation needs an embedding for each of {len(pairs.images)} images and {len(pairs.texts)} texts; it "
            f"got {len(images)} and {len(texts)}; embed the split that is evaluated"
        )
    protocol, extra = protocol or Protocol(), extra or ExtraMetrics()
    stored = STORED_BYTES if extra.empty else 2 * STORED_BYTES
    source = Embedded(similarity, images, texts, block_bytes, protocol.exact, stored)
    return measured(source, galleries.of_pairs(pairs), protocol, extra)


def evaluate_matrix(
    scores: Float[Tensor, "i t"], pairs: Dataset, *, protocol: Protocol | None = None, extra: ExtraMetrics | None = None
) -> Result:
    """The same from scores of all images with all texts of `pairs`, in their order; larger is better.

    Raises:
        ShapeError: If scores and items differ in number.
    """
    return _of_matrix(scores, galleries.of_pairs(pairs), protocol, extra)


def evaluate_scores(
    scores: Float[Tensor, "i t"],
    image_groups: NDArray[np.int64],
    text_groups: NDArray[np.int64],
    protocol: Protocol | None = None,
) -> Result:
    """The same from a score matrix, larger is better; an image and a text belong together when their groups are equal.

    Raises:
        ShapeError: If groups and scores differ in number.
    """
    return _of_matrix(scores, galleries.of_groups(image_groups, text_groups), protocol, None)


def _of_matrix(
    scores: Float[Tensor, "i t"], gallery: Gallery, protocol: Protocol | None, extra: ExtraMetrics | None
) -> Result:
    shape = (len(gallery.image_ids), len(gallery.text_ids))
    if tuple(scores.shape) != shape:
        raise ShapeError(
            f"scores must be (images, texts) = {shape} as the data is; it got {tuple(scores.shape)}"
            + ("; transpose them" if tuple(scores.shape) == shape[::-1] else "")
        )
    return measured(Matrix(scores), gallery, protocol or Protocol(), extra or ExtraMetrics())


def chance_figures(pairs: Dataset) -> dict[str, float]:
    """What a random order of these images and texts is expected to give, by the name of the figure."""
    match = matching.of_pairs(pairs)
    protocol, figures = Protocol(c_way=()), {}
    metrics = [m for m in requested(Request("pairs", protocol, ExtraMetrics())) if m.reads == ("best_rank",)]
    for direction, candidates in zip(DIRECTIONS, (len(pairs.texts), len(pairs.images)), strict=True):
        positives = np.asarray(match.cells(direction).lengths, dtype=np.int64)
        none = np.zeros_like(positives)
        counts = Counts(none, none, none, positives, candidates - positives, none)
        for metric in metrics:
            if (line := _Values(metric).mean_of([metric.chance(counts)])) is not None:
                figures[f"{direction}/{metric.name}"] = line
    for total, names in totals({f"{d}/{m.name}": m for d in DIRECTIONS for m in metrics}).items():
        figures[total] = sum(figures[name] for name in names)
    return figures


@dataclass
class _Figures:
    """What one fold, or several together, give; names are "<direction>/<figure>".

    Attributes:
        sizes: Images and texts of each fold.
        negatives: Direction -> fewest and most wrong candidates.
        nan: Direction -> scores that are not a number.
        metrics: Name -> the metric that a column of values is of.
        queries: Direction -> (Q) whether an item is a query: whether it has a positive in its fold.
    """

    sizes: list[list[int]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    negatives: dict[Direction, tuple[int, int]] = field(default_factory=dict)
    nan: dict[Direction, int] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    queries: dict[Direction, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass
class _Values:
    """Values of one metric, block after block of queries; `chance` is also one number for all queries."""

    metric: Metric
    values: list[NDArray[np.float64]] = field(default_factory=list)
    chance: list[Any] = field(default_factory=list)
    ceiling: list[Any] = field(default_factory=list)

    def add(self, readings: ScoreBlock) -> None:
        taken = readings.take(self.metric.reads)
        self.values.append(np.atleast_1d(np.asarray(self.metric.of(*taken), dtype=np.float64)))
        self.chance.append(self.metric.chance(*taken))
        self.ceiling.append(self.metric.ceiling(*taken))

    def mean_of(self, blocks: list[Any]) -> float | None:
        """A line of reference in the metric's scale."""
        if blocks[0] is None:
            return None
        if isinstance(blocks[0], np.ndarray):
            return self.metric.scale * mean(np.concatenate(blocks))
        return float(int(self.metric.scale) * blocks[0])


def measured(source: ScoreSource, gallery: Gallery, protocol: Protocol, extra: ExtraMetrics) -> Result:
    """Measure the scores of a gallery under a protocol, in one set of folds or several.

    Complexity:
        A model of pairs scores each pair of the gallery once, however many sets of folds read the scores.
    """
    extra.require(source.shape)
    reads = sum(1 / count for count in (protocol.folds, *protocol.also_folds)) + (extra.ratings is not None)
    source = scored_once(source, reads)
    per_query: dict[str, NDArray[Any]] = {}
    table = _folds(source, gallery, protocol, extra, per_query)
    labels = [""]
    for count in protocol.also_folds:
        columns: dict[str, NDArray[Any]] = {}
        fold_figures = _folds(source, gallery, replace(protocol, folds=count, also_folds=()), extra, columns)
        label = label_of(len(gallery.image_ids), count)
        for name in ("figures", "chance", "ceiling", "metrics"):
            getattr(table, name).update({f"{key}{label}": value for key, value in getattr(fold_figures, name).items()})
        per_query |= {f"{name}{label}": column for name, column in columns.items()}
        table.sizes += fold_figures.sizes
        labels.append(label)
    if extra.lengths is not None:
        _add_lengths(table, per_query, extra.lengths)
    if extra.ratings is not None:
        images, texts, ratings = extra.ratings.images, extra.ratings.texts, extra.ratings.scores.astype(np.float64)
        pair_scores = np.empty(len(ratings), dtype=np.float64)
        for start, stop, scores in source.blocks("image_to_text"):
            inside = (images >= start) & (images < stop)
            pair_scores[inside] = scores.float().numpy()[images[inside] - start, texts[inside]]
        for metric in requested(Request("ratings", protocol, extra)):
            table.figures |= metric.figures(pair_scores, ratings)
    clusters = {str(direction): gallery.clusters(direction) for direction in DIRECTIONS}
    sums = {total: names for label in labels for total, names in totals(table.metrics, label).items()}
    ends = intervals(
        {name: table.metrics[name].scale * column for name, column in per_query.items()},
        {name: clusters[name.split("/")[0]] for name in per_query},
        sums,
        samples=protocol.bootstrap,
        seed=protocol.seed,
    )
    statement = stated(protocol, gallery, table.queries, table.sizes)
    if not extra.empty:
        statement["further"] = extra.stated()
    if extra.lengths is not None:
        sizes = [int(((extra.lengths >= low) & (extra.lengths < high)).sum()) for low, high in pairwise(WORDS)]
        statement["words"] = dict(zip(words(), sizes, strict=True))
    recalls = [name for name, metric in table.metrics.items() if metric.total]
    remarks = [
        note for each in metric_classes() for note in each.notes(Outcome(protocol, table.figures, table.negatives))
    ]
    return Result(
        figures=table.figures,
        intervals=ends,
        chance=table.chance,
        ceiling=table.ceiling,
        protocol=statement,
        per_query=per_query | gallery.names(),
        notes=notes(statement, table.figures, ends, recalls, remarks),
        metrics={metric.name: metric.described for metric in table.metrics.values()},
    )


def _folds(
    source: ScoreSource, gallery: Gallery, protocol: Protocol, extra: ExtraMetrics, per_query: dict[str, NDArray[Any]]
) -> _Figures:
    """Means over the folds; the values of every query are put into `per_query`."""
    folds: list[_Figures] = []
    queries = {direction: np.zeros(len(gallery.ids(direction)), dtype=np.bool_) for direction in DIRECTIONS}
    for image_rows, text_rows, match in gallery.folds(protocol.folds):
        part = source.part(image_rows, text_rows)
        fold_extra = extra if protocol.folds == 1 else extra.part(image_rows, text_rows)
        folds.append(_fold(part, gallery, (image_rows, text_rows), match, protocol, fold_extra, per_query))
        for direction, rows in zip(DIRECTIONS, (image_rows, text_rows), strict=True):
            queries[direction][rows] = folds[-1].queries[direction]
    table = _Figures(sizes=[size for fold in folds for size in fold.sizes], queries=queries)
    table.figures = _averaged([fold.figures for fold in folds])
    for name in [name for name in per_query if name not in table.figures]:
        del per_query[name]
    table.metrics = {name: metric for name, metric in folds[0].metrics.items() if name in per_query}
    table.chance = {n: v for n, v in _averaged([fold.chance for fold in folds]).items() if n in table.figures}
    table.ceiling = {n: v for n, v in _averaged([fold.ceiling for fold in folds]).items() if v < 100}
    for total, names in totals(table.metrics).items():
        for figures in (table.figures, table.chance):
            if all(name in figures for name in names):
                figures[total] = sum(figures[name] for name in names)
    for direction in DIRECTIONS:
        table.nan[direction] = sum(fold.nan[direction] for fold in folds)
        table.figures[f"{direction}/nan_scores"] = float(table.nan[direction])
        fewest, most = zip(*(fold.negatives[direction] for fold in folds), strict=True)
        table.negatives[direction] = (min(fewest), max(most))
    return table


def totals(metrics: Mapping[str, Metric], label: str = "") -> dict[str, list[str]]:
    """Name of a total ("rsum") -> names of the figures that it adds up: those of the pairs, in both directions."""
    totals_by_name: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        if metric.total and name.split("/")[1] == f"{metric.name}{label}":
            totals_by_name.setdefault(f"{metric.total}{label}", []).append(name)
    return totals_by_name


def _fold(
    source: ScoreSource,
    gallery: Gallery,
    rows: tuple[Rows, Rows],
    match: Match,
    protocol: Protocol,
    extra: ExtraMetrics,
    per_query: dict[str, NDArray[Any]],
) -> _Figures:
    """One fold, in one read of its scores for each direction.

    Complexity:
        A sort of each row for positives, and three for each relevance, where these are measured.
    """
    fold = _Figures([[len(rows[0]), len(rows[1])]])
    metrics = requested(Request("pairs", protocol, extra))
    of_counts = [metric for metric in metrics if set(metric.reads) <= {"best_rank", "query_keys"}]
    of_gallery = [metric for metric in metrics if isinstance(metric, GalleryMetric)]
    of_pairs = [metric for metric in metrics if metric not in of_counts and metric not in of_gallery]
    of_named = requested(Request("named", protocol, extra)) if extra.truths else []
    of_relevance = requested(Request("relevance", protocol, extra)) if extra.relevances else []
    of_labels = requested(Request("labels", protocol, extra)) if extra.labels is not None else []
    if extra.labels is not None:
        labelled = source.part(extra.labels.image_rows, extra.labels.text_rows)
        plausible = {zeta: extra.labels.match(zeta) for metric in of_labels for zeta in metric.zeta}
    truths = {"": (match, of_pairs)} if of_pairs else {}
    truths |= {f"({name})": (other, of_named) for name, other in extra.truths.items()}
    ranked = [
        label for label, (_, each) in truths.items() if any({"positive_ranks", "best_rank"} & {*m.reads} for m in each)
    ]
    depth = max((metric.k for metric in of_relevance if "gains" in metric.reads), default=0)
    kernel = source.shape[0] * source.shape[1] >= KERNEL_CELLS
    stable = protocol.ties == "stable"
    for direction, queries, counts in zip(DIRECTIONS, rows, source.counts(match, stable=stable), strict=True):
        keys = gallery.keys[direction][queries]
        columns: dict[str, _Values] = {}
        _add(columns, of_counts, "", ScoreBlock({"best_rank": counts, "query_keys": keys}))
        sums: list[Any] = [0.0] * len(of_gallery)
        for start, stop, scores in source.blocks(direction) if truths or of_gallery or of_relevance else ():
            for graded in extra.relevances:
                block = graded.block(direction, start, stop)
                readings = _relevance_readings(scores, graded.name, block, depth, protocol, extra, kernel)
                _add(columns, of_relevance, f"({graded.name})", readings)
            cells = [truths[label][0].cells(direction)[start:stop] for label in ranked]
            ranks = dict(zip(ranked, rank_positives(scores, cells, stable=stable) if ranked else [], strict=True))
            for label, (truth, each) in truths.items():
                of_block = partial(truth.truth, direction, start, stop)
                _add(columns, each, label, _block_readings(scores, of_block, ranks.get(label), keys[start:stop]))
            readings = _block_readings(scores, partial(match.truth, direction, start, stop), None, keys[start:stop])
            sums = [total + m.of(*readings.take(m.reads)) for total, m in zip(sums, of_gallery, strict=True)]
        if extra.labels is not None:
            # Items without labels are neither queries nor candidates.
            of_labelled: dict[str, _Values] = {}
            cells = [plausible_match.cells(direction) for plausible_match in plausible.values()]
            for start, stop, scores in labelled.blocks(direction):
                label_ranks = rank_positives(scores, [cell[start:stop] for cell in cells], stable=stable)
                readings = ScoreBlock({"label_ranks": dict(zip(plausible, label_ranks, strict=True))})
                _add(of_labelled, of_labels, "", readings)
            placed = np.full(len(queries), np.nan)
            labelled_rows = extra.labels.image_rows if direction == "image_to_text" else extra.labels.text_rows
            for name, column in of_labelled.items():
                placed[labelled_rows] = np.concatenate(column.values)
                columns[name] = replace(column, values=[placed.copy()])
        figures: dict[str, float] = {}
        for name, column in columns.items():
            label = name.removeprefix(column.metric.name)
            values = np.concatenate(column.values)
            if values.shape != (count := (len(queries),)):
                raise ShapeError(f"the metric '{name}' needs values {count}, one per query; it got {values.shape}")
            figures |= {f"{key}{label}": value for key, value in column.metric.figures(values).items()}
            for table, blocks in ((fold.chance, column.chance), (fold.ceiling, column.ceiling)):
                if (line := column.mean_of(blocks)) is not None:
                    table[f"{direction}/{name}"] = line
            fold.metrics[f"{direction}/{name}"] = column.metric
            blank = np.full(len(gallery.ids(direction)), np.nan)
            per_query.setdefault(f"{direction}/{name}", blank)[queries] = values
        for metric, total in zip(of_gallery, sums, strict=True):
            figures |= metric.figures(total)
        fold.figures |= {f"{direction}/{name}": value for name, value in figures.items()}
        negatives = counts.negatives[counts.positives > 0]
        fold.negatives[direction] = (int(negatives.min()), int(negatives.max())) if len(negatives) else (0, 0)
        fold.nan[direction] = int(counts.invalid.sum())
        fold.queries[direction] = counts.positives > 0
    return fold


def _add(columns: dict[str, _Values], metrics: Iterable[Metric], label: str, readings: ScoreBlock) -> None:
    for metric in metrics:
        column = columns.setdefault(f"{metric.name}{label}", _Values(metric))
        if column.metric is not metric:
            raise RequirementError(
                f"a metric needs a name of its own; '{metric.name}' is that of {type(column.metric).__qualname__} and "
                f"of {type(metric).__qualname__}; rename one, or leave out what is there twice"
            )
        column.add(readings)


def _block_readings(
    scores: Tensor, truth: Callable[[], Truth], ranks: PositiveRanks | None, keys: NDArray[np.int64]
) -> ScoreBlock:
    """Of one block of scores under one truth."""
    computed_by: dict[str, Callable[[], Any]] = {"comparison": lambda: Comparison(scores, truth())}
    computed: dict[str, Any] = {"scores": scores, "query_keys": keys}
    if ranks is None:
        return ScoreBlock(computed, computed_by)
    return ScoreBlock(computed | {"positive_ranks": ranks}, computed_by | {"best_rank": ranks.best})


def _relevance_readings(
    scores: Tensor, name: str, block: NDArray[Any], depth: int, protocol: Protocol, extra: ExtraMetrics, kernel: bool
) -> ScoreBlock:
    """Of one block of scores and of relevance; a relevance below 0 counts as 0 in gains, `depth` places deep."""
    # PyTorch shares no memory with a matrix that a file holds read-only.
    relevance = torch.from_numpy(block if block.flags.writeable else block.copy())

    def comparison() -> Comparison:
        return Comparison(scores, Truth(torch.zeros(scores.shape, dtype=torch.bool), relevance=relevance, scale=name))

    return ScoreBlock(
        {"scores": scores},
        {
            "comparison": comparison,
            "semantic_ranks": lambda: SemanticRanks.of(scores, block, extra.asp_ties, kernel=kernel),
            "gains": lambda: Gains.of(scores, relevance.clamp_min(0), depth, protocol.ties),
        },
    )


def _add_lengths(table: _Figures, per_query: dict[str, NDArray[Any]], lengths: NDArray[np.int64]) -> None:
    """The figures of the texts of each length."""
    measured = {n: m for n, m in table.metrics.items() if m.by_length and n == f"text_to_image/{m.name}"}
    for (low, high), label in zip(pairwise(WORDS), words(), strict=True):
        inside = (lengths >= low) & (lengths < high)
        for name, metric in measured.items():
            column = np.where(inside, per_query[name], np.nan)
            if not np.isnan(column).all():
                table.figures[f"{name}({label})"] = metric.scale * mean(column)
                table.metrics[f"{name}({label})"] = metric
                per_query[f"{name}({label})"] = column


def words() -> list[str]:
    """Names of the buckets of text lengths.

    Example:
        >>> words()
        ['words 0-9', 'words 10-14', 'words 15-19', 'words 20-']
    """
    return [f"words {low}-{'' if math.isinf(high) else int(high) - 1}" for low, high in pairwise(WORDS)]


def label_of(images: int, folds: int) -> str:
    """How names of figures end that are of a further set of folds: "(1k)" where each has 1,000 images.

    Example:
        >>> label_of(5000, 5), label_of(30, 3), label_of(30, 1)
        ('(1k)', '(3 folds)', '(whole)')
    """
    size, remainder = divmod(images, folds)
    if remainder == 0 and size % 1000 == 0:
        return f"({size // 1000}k)"
    return "(whole)" if folds == 1 else f"({folds} folds)"


def _averaged(tables: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the folds; one that a fold has no value of is left out."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    means = {name: float(np.mean([table[name] for table in tables])) for name in names}
    return {name: value for name, value in means.items() if not math.isnan(value)}
