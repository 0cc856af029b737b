"""The evaluation itself: scores in blocks -> readings -> metrics -> Result.

`evaluate_gallery` is the whole of it: it computes what metrics read, once a block, and knows none of them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Comparison, Direction, Embeddings, Truth
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import scoring
from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.gallery import Gallery, gallery_of, gallery_of_groups
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metric import (
    Gains,
    GalleryMetric,
    Measure,
    Metric,
    ScoreBlock,
    SemanticRanks,
    figure_of,
    mean,
)
from subtext.evaluation.metrics import metrics_of
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.result import Result, notes, stated
from subtext.evaluation.scoring import STORED_BYTES, Embedded, Matrix, ScoreSource, scored_once
from subtext.models.model import Model
from subtext.ops.compiled.semantic_rank import KERNEL_CELLS, RankTies
from subtext.ops.rank import Counts, PositiveRanks, rank_positives

WORDS = (0, 10, 15, 20, math.inf)
"""Where buckets of text lengths begin and end, in words."""

Metrics = Sequence[Measure | str] | None
"""Metrics as objects or by name; None for recall, ranks, ties, and what is registered."""
Columns = dict[str, tuple[Metric, NDArray[np.float64]]]
"""Name of a figure with its direction -> its metric, and (Q) values of all queries of the gallery."""
Tables = dict[str, dict[str, float]]
"""For "figures", "chance" and "ceiling": name with its direction -> number."""


def evaluate_model(
    model: Model,
    pairs: Dataset,
    *,
    metrics: Metrics = None,
    protocol: Protocol | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Measure how well a model retrieves texts for these images, and images for these texts.

    Args:
        model: Its embeddings and its similarity are measured.
        pairs: One split; every image and every text is a query, and a candidate of the other side.
        metrics: What is measured; None for recall at 1, 5 and 10, ranks and ties.
        protocol: How; None for the default one.
        batch_size: Items read and embedded together.
        workers: Threads that read ahead; 0 to read when needed.
        progress: Called with how many images and texts are embedded.

    Returns:
        Figures with intervals and notes.

    Raises:
        RequirementError: If no image and text of `pairs` belong together, or there are more folds than images.

    Complexity:
        Embedding, and one similarity of every pair in each direction; memory is bounded by the embeddings and blocks of
        64 MB (a score matrix of up to 256 MB is stored instead).
    """
    images, texts = embed_pairs(model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    return evaluate_embeddings(model.similarity, images, texts, pairs, metrics=metrics, protocol=protocol)


def evaluate_embeddings(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    pairs: Dataset | Gallery,
    *,
    metrics: Metrics = None,
    protocol: Protocol | None = None,
    block_bytes: int = scoring.BLOCK_BYTES,
) -> Result:
    """Measure embeddings of all images and texts.

    Args:
        similarity: Images and texts -> scores.
        images: (I) in the order of `pairs`.
        texts: (T) likewise.
        pairs: A data set, or a gallery where metrics need more than its pairs.
        metrics: As in `evaluate_model`.
        protocol: As in `evaluate_model`.
        block_bytes: Memory that a block of scores may take while it is made.

    Returns:
        Figures with intervals and notes.

    Raises:
        ShapeError: If embeddings and items differ in number.
    """
    gallery = pairs if isinstance(pairs, Gallery) else gallery_of(pairs)
    if (len(images), len(texts)) != gallery.shape:
        raise ShapeError(
            f"evaluation needs an embedding for each of {gallery.shape[0]} images and {gallery.shape[1]} texts; it "
            f"got {len(images)} and {len(texts)}; embed the split that is evaluated"
        )
    protocol, chosen = protocol or Protocol(), metrics_of(metrics)
    # What reads whole blocks reads the scores once more.
    stored = STORED_BYTES if all(_counts_alone(metric) for metric in chosen) else 2 * STORED_BYTES
    source = Embedded(similarity, images, texts, block_bytes, protocol.exact, stored)
    return evaluate_gallery(source, gallery, metrics=chosen, protocol=protocol)


def evaluate_matrix(
    scores: Float[Tensor, "i t"],
    pairs: Dataset | Gallery,
    *,
    metrics: Metrics = None,
    protocol: Protocol | None = None,
) -> Result:
    """Measure scores of all images with all texts.

    Args:
        scores: (I T) in the order of `pairs`; larger is better.
        pairs: A data set, or a gallery where metrics need more than its pairs.
        metrics: As in `evaluate_model`.
        protocol: As in `evaluate_model`.

    Returns:
        Figures with intervals and notes.

    Raises:
        ShapeError: If scores and items differ in number.
    """
    gallery = pairs if isinstance(pairs, Gallery) else gallery_of(pairs)
    if tuple(scores.shape) != gallery.shape:
        raise ShapeError(
            f"scores must be (images, texts) = {gallery.shape} as the data is; it got {tuple(scores.shape)}"
            + ("; transpose them" if tuple(scores.shape) == gallery.shape[::-1] else "")
        )
    return evaluate_gallery(Matrix(scores), gallery, metrics=metrics, protocol=protocol)


def evaluate_scores(
    scores: Float[Tensor, "i t"],
    image_groups: NDArray[np.int64],
    text_groups: NDArray[np.int64],
    *,
    metrics: Metrics = None,
    protocol: Protocol | None = None,
) -> Result:
    """Measure a bare score matrix; an image and a text belong together when their groups are equal.

    Args:
        scores: (I T); larger is better.
        image_groups: (I) int64.
        text_groups: (T) int64.
        metrics: As in `evaluate_model`.
        protocol: As in `evaluate_model`.

    Returns:
        Figures with intervals and notes.

    Raises:
        ShapeError: If groups and scores differ in number.
    """
    return evaluate_matrix(scores, gallery_of_groups(image_groups, text_groups), metrics=metrics, protocol=protocol)


def chance_figures(pairs: Dataset) -> dict[str, float]:
    """What a random order of these images and texts is expected to give.

    Args:
        pairs: One split.

    Returns:
        Name of a figure, with its direction -> expected value.
    """
    match = matching.of_pairs(pairs)
    figures = {}
    metrics = [metric for metric in metrics_of(None) if isinstance(metric, Metric) and metric.reads == ("best_rank",)]
    for direction, candidates in zip(DIRECTIONS, (len(pairs.texts), len(pairs.images)), strict=True):
        positives = np.asarray(match.cells(direction).lengths, dtype=np.int64)
        none = np.zeros_like(positives)
        counts = Counts(none, none, none, positives, candidates - positives, none)
        for metric in metrics:
            if (line := _line(metric, [metric.chance(counts)])) is not None:
                figures[f"{direction}/{metric.name}"] = line
    for total, names in totals({f"{d}/{m.name}": m for d in DIRECTIONS for m in metrics}).items():
        figures[total] = sum(figures[name] for name in names)
    return figures


def evaluate_gallery(
    source: ScoreSource, gallery: Gallery, *, metrics: Metrics = None, protocol: Protocol | None = None
) -> Result:
    """Measure the scores of a gallery under a protocol, in one set of folds or several.

    Args:
        source: Scores of all images and texts of the gallery.
        gallery: What belongs together, and the truths that metrics name.
        metrics: As in `evaluate_model`.
        protocol: As in `evaluate_model`.

    Returns:
        Figures with intervals and notes.

    Raises:
        RequirementError: For a metric whose truth the gallery does not have, and for two metrics of one name.

    Complexity:
        A model of pairs scores each pair of the gallery once, however many sets of folds read the scores.
    """
    protocol = protocol or Protocol()
    chosen = [metric.with_ties(protocol.ties) for metric in metrics_of(metrics)]
    _require_truths(chosen, gallery)
    counts = protocol.fold_counts(len(gallery.image_ids))
    rated = [metric for metric in chosen if metric.truth == "ratings"]
    source = scored_once(source, sum(1 / count for count in counts) + bool(rated))
    columns: Columns = {}
    tables: Tables = {"figures": {}, "chance": {}, "ceiling": {}}
    sizes: list[list[int]] = []
    pool: dict[Direction, NDArray[np.int64]] = {}
    labels = ["", *(label_of(len(gallery.image_ids), count) for count in counts[1:])]
    for count, label in zip(counts, labels, strict=True):
        of_folds, of_queries, of_pool, of_sizes = evaluate_folds(source, gallery, chosen, protocol, count)
        columns |= {f"{name}{label}": column for name, column in of_queries.items()}
        for kind, table in of_folds.items():
            tables[kind] |= {f"{name}{label}": value for name, value in table.items()}
        pool = pool or of_pool
        sizes += of_sizes
    if gallery.lengths is not None:
        _add_lengths(tables["figures"], columns, gallery.lengths)
    if rated:
        tables["figures"] |= _of_ratings(source, gallery, rated)
    clusters = {str(direction): gallery.clusters(direction) for direction in DIRECTIONS}
    by_name = {name: metric for name, (metric, _) in columns.items()}
    ends = intervals(
        {name: metric.scale * values for name, (metric, values) in columns.items()},
        {name: clusters[name.split("/")[0]] for name in columns},
        {total: names for label in labels for total, names in totals(by_name, label).items()},
        samples=protocol.bootstrap,
        seed=protocol.seed,
    )
    queries = {direction: positives > 0 for direction, (positives, _) in pool.items()}
    negatives = {
        direction: (int(wrong.min()), int(wrong.max())) if len(wrong := pool[direction][1][rows]) else (0, 0)
        for direction, rows in queries.items()
    }
    statement = stated(protocol, gallery, chosen, queries, counts, sizes)
    if gallery.lengths is not None:
        in_bucket = [int(((gallery.lengths >= low) & (gallery.lengths < high)).sum()) for low, high in pairwise(WORDS)]
        statement["words"] = dict(zip(words(), in_bucket, strict=True))
    remarks = dict.fromkeys(note for metric in chosen for note in metric.notes(tables["figures"], negatives))
    recalls = [name for name, metric in by_name.items() if metric.total]
    return Result(
        figures=tables["figures"],
        intervals=ends,
        chance=tables["chance"],
        ceiling=tables["ceiling"],
        protocol=statement,
        per_query={name: values for name, (_, values) in columns.items()} | gallery.names(),
        notes=notes(statement, tables["figures"], ends, recalls, list(remarks)),
        metrics={metric.name: metric.described for metric in by_name.values()},
    )


def evaluate_folds(
    source: ScoreSource, gallery: Gallery, metrics: Sequence[Measure], protocol: Protocol, count: int
) -> tuple[Tables, Columns, dict[Direction, NDArray[np.int64]], list[list[int]]]:
    """Means over folds, and the values of every query.

    Args:
        source: Scores of all images and texts of the gallery.
        gallery: What belongs together.
        metrics: One for each figure, in the order of a table.
        protocol: How it is measured.
        count: Number of folds.

    Returns:
        Tables of means over the folds; the columns behind those that are means over queries; direction -> (2 Q)
        positives and negatives of each item of the gallery; and images and texts of each fold.
    """
    folds: list[Tables] = []
    pool = {direction: np.zeros((2, len(gallery.ids(direction))), dtype=np.int64) for direction in DIRECTIONS}
    sizes: list[list[int]] = []
    columns: Columns = {}
    for images, texts, part in gallery.folds(count):
        tables, of_fold = _evaluate_fold(source.part(images, texts), part, metrics, protocol)
        folds.append(tables)
        sizes.append([len(images), len(texts)])
        for direction, rows, candidates in zip(DIRECTIONS, (images, texts), (texts, images), strict=True):
            positives = part.positive_counts(direction)
            pool[direction][:, rows] = positives, len(candidates) - positives
        for name, (metric, values) in of_fold.items():
            rows = images if name.startswith("image_to_text") else texts
            blank = np.full(gallery.shape[0] if rows is images else gallery.shape[1], np.nan)
            columns.setdefault(name, (metric, blank))[1][rows] = values
    figures = _averaged([fold["figures"] for fold in folds])
    chance = {n: v for n, v in _averaged([fold["chance"] for fold in folds]).items() if n in figures}
    ceiling = {n: v for n, v in _averaged([fold["ceiling"] for fold in folds]).items() if v < 100}
    columns = {name: column for name, column in columns.items() if name in figures}
    for total, names in totals({name: metric for name, (metric, _) in columns.items()}).items():
        for table in (figures, chance):
            if all(name in table for name in names):
                table[total] = sum(table[name] for name in names)
    for direction in DIRECTIONS:
        # A count over all folds, and no mean.
        name = f"{direction}/nan_scores"
        figures[name] = float(sum(fold["figures"][name] for fold in folds))
    return {"figures": figures, "chance": chance, "ceiling": ceiling}, columns, pool, sizes


def totals(metrics: Mapping[str, Metric], label: str = "") -> dict[str, list[str]]:
    """Which figures are added up: those of the pairs, in both directions.

    Args:
        metrics: Name of a figure, with its direction -> its metric.
        label: Ends the names of an extra set of folds.

    Returns:
        Name of a total ("rsum") -> names of its figures.
    """
    totals_by_name: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        if metric.total and name.split("/")[1] == f"{metric.name}{label}":
            totals_by_name.setdefault(f"{metric.total}{label}", []).append(name)
    return totals_by_name


def _evaluate_fold(
    source: ScoreSource, part: Gallery, metrics: Sequence[Measure], protocol: Protocol
) -> tuple[Tables, Columns]:
    """One fold, in one read of its scores for each direction.

    Complexity:
        A sort of each row for positives, and three for each relevance, where these are measured.
    """
    of_counts = [metric for metric in metrics if _counts_alone(metric)]
    of_gallery = [metric for metric in metrics if isinstance(metric, GalleryMetric) and metric.truth == "pairs"]
    of_pairs = [m for m in metrics if m.truth == "pairs" and m not in of_counts and m not in of_gallery]
    of_relevance = [metric for metric in metrics if metric.truth == "relevance"]
    of_labels = [metric for metric in metrics if metric.truth == "labels" and part.labels is not None]
    # Metrics by the positives that they are measured against; "" are the pairs.
    truths = {
        name: part.truths[name] if name else part.match for name in sorted({m.against: 0 for m in of_pairs}, key=bool)
    }
    ranked = [
        name
        for name in truths
        if any({"positive_ranks", "best_rank"} & {*metric.reads} for metric in of_pairs if metric.against == name)
    ]
    kernel = source.shape[0] * source.shape[1] >= KERNEL_CELLS
    stable = protocol.ties == "stable"
    tables: Tables = {"figures": {}, "chance": {}, "ceiling": {}}
    columns: Columns = {}
    for direction, counts in zip(DIRECTIONS, source.counts(part.match, stable=stable), strict=True):
        keys = part.keys[direction]
        # For each metric: values, chance and ceiling, block after block of queries.
        taken: dict[Metric, list[tuple[Any, Any, Any]]] = {}
        _take(taken, of_counts, ScoreBlock({"best_rank": counts, "query_keys": keys}))
        sums: list[Any] = [0.0] * len(of_gallery)
        for start, stop, scores in source.blocks(direction) if of_pairs or of_gallery or of_relevance else ():
            for name in dict.fromkeys(metric.against for metric in of_relevance):
                chosen = [metric for metric in of_relevance if metric.against == name]
                block = part.relevances[name].block(direction, start, stop)
                _take(taken, chosen, _relevance_readings(scores, name, block, chosen, protocol, kernel))
            cells = [truths[name].cells(direction)[start:stop] for name in ranked]
            ranks = dict(zip(ranked, rank_positives(scores, cells, stable=stable) if ranked else [], strict=True))
            for name, truth in truths.items():
                of_block = partial(truth.truth, direction, start, stop)
                readings = _block_readings(scores, of_block, ranks.get(name), keys[start:stop])
                _take(taken, [metric for metric in of_pairs if metric.against == name], readings)
            if of_gallery:
                of_block = partial(part.match.truth, direction, start, stop)
                readings = _block_readings(scores, of_block, None, keys[start:stop])
                sums = [t + m.of(*readings.take(m.reads)) for t, m in zip(sums, of_gallery, strict=True)]
        if of_labels:
            taken |= _of_labels(source, part, of_labels, direction, stable=stable)
        figures: dict[str, float] = {}
        for metric, blocks in taken.items():
            label = f"({metric.against})" if metric.against else ""
            values = np.concatenate(
                [np.atleast_1d(np.asarray(of_block, dtype=np.float64)) for of_block, _, _ in blocks]
            )
            if values.shape != (count := (len(keys),)):
                raise ShapeError(
                    f"the metric '{figure_of(metric)}' needs values {count}, one per query; it got {values.shape}"
                )
            name = f"{direction}/{figure_of(metric)}"
            figures |= {f"{key}{label}": value for key, value in metric.figures(values).items()}
            for kind, lines in (("chance", [c for _, c, _ in blocks]), ("ceiling", [c for _, _, c in blocks])):
                if (line := _line(metric, lines)) is not None:
                    tables[kind][name] = line
            columns[name] = (metric, values)
        for of_whole, total in zip(of_gallery, sums, strict=True):
            figures |= of_whole.figures(total)
        tables["figures"] |= {f"{direction}/{name}": value for name, value in figures.items()}
        tables["figures"][f"{direction}/nan_scores"] = float(counts.invalid.sum())
    return tables, columns


def _counts_alone(metric: Measure) -> bool:
    """Whether a metric needs no more than the ranks of the best positives, which one read of the scores gives."""
    of_pairs = metric.truth == "pairs" and not metric.against
    return isinstance(metric, Metric) and of_pairs and {*metric.reads} <= {"best_rank", "query_keys"}


def _require_truths(metrics: Sequence[Measure], gallery: Gallery) -> None:
    """Raise RequirementError for two metrics of one name, and for one whose truth the gallery does not have."""
    by_name: dict[str, Measure] = {}
    for metric in metrics:
        other = by_name.setdefault(figure_of(metric), metric)
        if other is not metric:
            raise RequirementError(
                f"a metric needs a name of its own; '{figure_of(metric)}' is that of {other} and of {metric}; rename "
                "one, or leave one out"
            )
        have: Iterable[str] = {
            "pairs": ("", *gallery.truths),
            "relevance": gallery.relevances,
            "labels": () if gallery.labels is None else ("",),
            "ratings": () if gallery.ratings is None else ("",),
        }.get(metric.truth, ())
        if metric.against not in have:
            needs = {
                "pairs": "other positives of that name",
                "relevance": "graded relevance by name, such as ASP('tfidf1')",
                "labels": "labels of the images",
                "ratings": "people's ratings of pairs",
                "neighbours": "a graph, and a model",
                "space": "embeddings",
            }
            got = f"'{metric.against}'; there are {', '.join(filter(None, have))}" if metric.against else "none"
            raise RequirementError(f"{metric} needs {needs[metric.truth]}; it got {got}; or leave the metric out")


def _take(taken: dict[Metric, list[tuple[Any, Any, Any]]], metrics: Iterable[Any], readings: ScoreBlock) -> None:
    """Add what a block gives for each metric."""
    for metric in metrics:
        read = readings.take(metric.reads)
        taken.setdefault(metric, []).append((metric.of(*read), metric.chance(*read), metric.ceiling(*read)))


def _line(metric: Metric, blocks: list[Any]) -> float | None:
    """A line of reference in the metric's scale, from its blocks of queries or one number for all of them."""
    if blocks[0] is None:
        return None
    if isinstance(blocks[0], np.ndarray):
        return metric.scale * mean(np.concatenate(blocks))
    return float(int(metric.scale) * blocks[0])


def _of_labels(
    source: ScoreSource, part: Gallery, metrics: Sequence[Any], direction: Direction, *, stable: bool
) -> dict[Metric, list[tuple[Any, Any, Any]]]:
    """What metrics of labels give: items without labels are neither queries nor candidates."""
    labels = part.labels
    assert labels is not None
    plausible = {zeta: labels.match(zeta) for metric in metrics for zeta in metric.zeta}
    cells = [match.cells(direction) for match in plausible.values()]
    taken: dict[Metric, list[tuple[Any, Any, Any]]] = {}
    for start, stop, scores in source.part(labels.image_rows, labels.text_rows).blocks(direction):
        ranks = rank_positives(scores, [cell[start:stop] for cell in cells], stable=stable)
        _take(taken, metrics, ScoreBlock({"label_ranks": dict(zip(plausible, ranks, strict=True))}))
    rows = labels.image_rows if direction == "image_to_text" else labels.text_rows
    for metric, blocks in taken.items():
        values = np.full(len(part.ids(direction)), np.nan)
        values[rows] = np.concatenate([of_block for of_block, _, _ in blocks])
        # One block of all queries for the values; lines of reference are means over those with labels.
        taken[metric] = [(values, *_joined(blocks))]
    return taken


def _joined(blocks: list[tuple[Any, Any, Any]]) -> tuple[Any, Any]:
    lines = [[chance for _, chance, _ in blocks], [ceiling for _, _, ceiling in blocks]]
    chance, ceiling = (np.concatenate(line) if isinstance(line[0], np.ndarray) else line[0] for line in lines)
    return chance, ceiling


def _of_ratings(source: ScoreSource, gallery: Gallery, metrics: Iterable[Any]) -> dict[str, float]:
    """Figures of the scores of rated pairs beside people's ratings."""
    assert gallery.ratings is not None
    images, texts = gallery.ratings.images, gallery.ratings.texts
    pair_scores = np.empty(len(images), dtype=np.float64)
    for start, stop, scores in source.blocks("image_to_text"):
        inside = (images >= start) & (images < stop)
        pair_scores[inside] = scores.float().numpy()[images[inside] - start, texts[inside]]
    figures: dict[str, float] = {}
    for metric in metrics:
        figures |= metric.figures(pair_scores, gallery.ratings.scores.astype(np.float64))
    return figures


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
    scores: Tensor, name: str, block: NDArray[Any], metrics: Sequence[Any], protocol: Protocol, kernel: bool
) -> ScoreBlock:
    """Of one block of scores and of relevance; a relevance below 0 counts as 0 in gains."""
    # PyTorch shares no memory with a matrix that a file holds read-only.
    relevance = torch.from_numpy(block if block.flags.writeable else block.copy())
    depth = max((metric.k for metric in metrics if {"gains", "gains_exponential"} & {*metric.reads}), default=0)

    def comparison() -> Comparison:
        return Comparison(scores, Truth(torch.zeros(scores.shape, dtype=torch.bool), relevance=relevance, scale=name))

    def exponential_gains() -> Gains:
        return Gains.of(scores, torch.exp2(relevance.clamp_min(0).double()) - 1, depth, protocol.ties)

    rules: tuple[RankTies, ...] = get_args(RankTies)
    return ScoreBlock(
        {"scores": scores},
        {
            "comparison": comparison,
            "gains": lambda: Gains.of(scores, relevance.clamp_min(0), depth, protocol.ties),
            "gains_exponential": exponential_gains,
            **{
                f"semantic_ranks_{rule}": partial(SemanticRanks.of, scores, block, rule, kernel=kernel)
                for rule in rules
            },
        },
    )


def _add_lengths(figures: dict[str, float], columns: Columns, lengths: NDArray[np.int64]) -> None:
    """The figures of the texts of each length."""
    by_length = {n: c for n, c in columns.items() if c[0].by_length and n == f"text_to_image/{c[0].name}"}
    for (low, high), label in zip(pairwise(WORDS), words(), strict=True):
        inside = (lengths >= low) & (lengths < high)
        for name, (metric, values) in by_length.items():
            column = np.where(inside, values, np.nan)
            if not np.isnan(column).all():
                figures[f"{name}({label})"] = metric.scale * mean(column)
                columns[f"{name}({label})"] = (metric, column)


def words() -> list[str]:
    """Names of the buckets of text lengths.

    Returns:
        One name for each bucket of `WORDS`.

    Example:
        >>> words()
        ['words 0-9', 'words 10-14', 'words 15-19', 'words 20-']
    """
    return [f"words {low}-{'' if math.isinf(high) else int(high) - 1}" for low, high in pairwise(WORDS)]


def label_of(images: int, folds: int) -> str:
    """How names of figures end that are of an extra set of folds: "(1k)" where each has 1,000 images.

    Args:
        images: Images of the gallery.
        folds: Number of folds.

    Returns:
        The ending.

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
