"""What is measured of a trained model: the figures of a table's cells, and the values a query behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from reproduce.tables.config import TableConfig
from reproduce.tables.figure_names import RANKINGS, SPACE
from reproduce.tables.material import Loaded, graph_of_scored, one_text_each, require
from reproduce.tables.specification import Shared
from subtext.core import DIRECTIONS, Comparison, Embeddings
from subtext.data.dataset import fingerprint
from subtext.data.text import word_counts
from subtext.errors import RequirementError, counted
from subtext.evaluation import Protocol, embed_pairs, evaluate
from subtext.evaluation.gallery import of_pairs
from subtext.evaluation.measure import words
from subtext.evaluation.metrics.preservation import Preservation
from subtext.evaluation.protocol import ExtraMetrics
from subtext.evaluation.relevance import plausible
from subtext.evaluation.relevance.graded import graded
from subtext.evaluation.space import space
from subtext.models.model import Model
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw
from subtext.ops.neighbour_scores import AS_PRINTED, Scores, neighbour_scores, pooled_scores

_ROWS = 1024
"""Queries compared at a time."""
FOLD = 1000
"""Pictures of a fold of the papers' smaller test of COCO."""
RECALLS = (1, 5, 10)
"""The k of recall, which RSUM adds up, as shares of 1."""
TEXTS = 1000
"""Texts that recall by length is of, as in AsCL's figure 5."""
LABELS = "labels"
"""The column that PMRP reads."""
DRAWS = 1000
"""Neighbours of neighbours that a discrepancy with several views is the mean of, as in the paper."""


@dataclass(frozen=True)
class Measured:
    """Figures by name, with the values a query and the picture of each query where there are such."""

    figures: Mapping[str, float]
    queries: Mapping[str, NDArray[np.float64]]
    clusters: Mapping[str, NDArray[np.int64]]
    data: str


def measure(name: str, model: Model, key: str, config: TableConfig, loaded: Loaded) -> Measured:
    """One measurement: "choice" with its c, "rankings", "space" or "lengths", or "preservation" or "scores" with what
    marks the graph.

    Raises RequirementError when the data set is too small for it.
    """
    if name.startswith("choice"):
        return _choice(int(name.removeprefix("choice")), model, config, loaded)
    if name == "rankings":
        return _rankings(model, config, loaded)
    if name == "space":
        return _space(model, config, loaded)
    if name == "lengths":
        return _lengths(model, config, loaded)
    return (_preservation if name.startswith("preservation") else _scores)(model, key, config, loaded)


def _choice(c: int, model: Model, config: TableConfig, loaded: Loaded) -> Measured:
    pairs = loaded.scored
    result = evaluate(
        model, pairs, protocol=Protocol(recall=(1,), c_way=(c,), bootstrap=0), batch_size=256, workers=config.workers
    )
    values: dict[str, NDArray[np.float64]] = {
        way: result.per_query[f"{way}/{c}_way@1"] for way in DIRECTIONS if f"{way}/{c}_way@1" in result.per_query
    }
    if len(values) < len(DIRECTIONS):
        raise RequirementError(
            f"a choice among {c} needs {counted(c - 1, 'wrong candidate')} a query; the split '{config.split}' has "
            f"{counted(len(pairs.images), 'picture')} and {counted(len(pairs.texts), 'text')}; score a larger split"
        )
    figures = {way: float(np.nanmean(column)) for way, column in values.items()}
    figures["both"] = sum(figures.values()) / len(figures)
    gallery = of_pairs(pairs)
    clusters = {str(way): gallery.clusters(way) for way in DIRECTIONS}
    return Measured(figures, values, clusters, fingerprint(pairs))


def _rankings(model: Model, config: TableConfig, loaded: Loaded) -> Measured:
    """Figures of whole rankings; NaN where there are no labels, or the pictures make no folds of 1,000."""
    pairs = loaded.scored
    count, left = divmod(len(pairs.images), FOLD)
    labels = plausible.of_pairs(pairs) if LABELS in pairs.images.metadata else None
    result = evaluate(
        model,
        pairs,
        protocol=Protocol(recall=RECALLS, c_way=(), bootstrap=0, also_folds=(count,) if count > 1 and not left else ()),
        batch_size=256,
        workers=config.workers,
        extra=ExtraMetrics(relevances=(graded(pairs),), r_precision=True, labels=labels),
    )
    names = [f"{way}/{name}{size}" for way in DIRECTIONS for name in RANKINGS for size in ("", "(1k)")]
    values = {name: result.per_query[name] for name in names if name in result.per_query}
    figures = {name: float(np.nanmean(values[name])) if name in values else np.nan for name in names}
    if count == 1 and not left:
        figures |= {name: figures[name.removesuffix("(1k)")] for name in names if name.endswith("(1k)")}
    figures |= {
        f"rsum{size}": sum(figures[f"{way}/recall@{k}{size}"] for way in DIRECTIONS for k in RECALLS)
        for size in ("", "(1k)")
    }
    gallery = of_pairs(pairs)
    sides = {str(way): gallery.clusters(way) for way in DIRECTIONS}
    return Measured(figures, values, {name: sides[name.split("/")[0]] for name in values}, fingerprint(pairs))


def _space(model: Model, config: TableConfig, loaded: Loaded) -> Measured:
    pairs = loaded.scored
    found = space(*embed_pairs(model, pairs, batch_size=256, workers=config.workers), pairs)
    return Measured({name: found.get(name, np.nan) for name in SPACE}, {}, {}, fingerprint(pairs))


def _lengths(model: Model, config: TableConfig, loaded: Loaded) -> Measured:
    """Recall of drawn texts against all pictures, by how many words they have; NaN where none has so many."""
    pairs = loaded.scored
    drawn = draw.permutation(len(pairs.texts), seed=0, epoch=0, purpose="texts by length")
    lengths = word_counts(pairs.texts.values)
    # Those that are not drawn are of no length, and so in no bucket.
    lengths[drawn[TEXTS:]] = -1
    result = evaluate(
        model,
        pairs,
        protocol=Protocol(recall=RECALLS, c_way=(), bootstrap=0),
        batch_size=256,
        workers=config.workers,
        extra=ExtraMetrics(lengths=lengths),
    )
    owners = of_pairs(pairs).clusters("text_to_image")
    figures = {f"texts({label})": float(count) for label, count in result.protocol["words"].items()}
    values: dict[str, NDArray[np.float64]] = {}
    clusters: dict[str, NDArray[np.int64]] = {}
    for name in (f"text_to_image/recall@{k}({label})" for label in words() for k in RECALLS):
        column = result.per_query.get(name, np.full(len(lengths), np.nan))
        there = ~np.isnan(column)
        figures[name] = float(column[there].mean()) if there.any() else np.nan
        if there.any():
            values[name], clusters[name] = column[there], owners[there]
    return Measured(figures, values, clusters, fingerprint(pairs))


def _preservation(model: Model, key: str, config: TableConfig, loaded: Loaded) -> Measured:
    pairs = one_text_each(loaded.scored)
    graph = graph_of_scored(config, key, pairs, loaded)
    sides = dict(zip(("image", "text"), embed_pairs(model, pairs, batch_size=256, workers=config.workers), strict=True))
    values = {f"{side}_preservation": _kept(model, items, graph) for side, items in sides.items()}
    figures = {name: float(np.nanmean(column)) for name, column in values.items()}
    rows = np.arange(len(graph), dtype=np.int64)
    return Measured(figures, values, dict.fromkeys(values, rows), fingerprint(pairs))


def _kept(model: Model, items: Embeddings, graph: Graph) -> NDArray[np.float64]:
    """(N) share of each item's neighbours in the graph that are its nearest in the joint space."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(items), _ROWS):
            rows = torch.arange(start, min(start + _ROWS, len(items)))
            scores = model.similarity(items[rows], items)
            found.append(Preservation()(Comparison(scores, graph.truth(start, start + len(rows)))))
    return np.asarray(torch.cat(found).numpy(), dtype=np.float64)


def _scores(model: Model, key: str, config: TableConfig, loaded: Loaded) -> Measured:
    """Mean, deviation and their product of both scores over the training pairs, both modalities together."""
    train = loaded.material.train
    require(config, key, Shared.TEXT_GRAPH, loaded)
    graph = Graph.load(config.graph(key, Shared.TEXT_GRAPH)).within(train.texts)
    images, texts = embed_pairs(model, train, batch_size=256, workers=config.workers)
    pictures = pictures_of_texts(train)
    alone = pictures < 0
    banks = [images.vectors[torch.from_numpy(np.where(alone, 0, pictures))], texts.vectors]
    both = [_of_bank(bank.float(), graph, train.texts.keys) for bank in banks]
    figures: dict[str, float] = {}
    for place, name in enumerate(Scores._fields):
        values = torch.cat([both[0][place][torch.from_numpy(~alone)], both[1][place]]).double()
        values = values[~values.isnan()]
        mean, deviation = float(values.mean()), float(values.std(correction=0))
        figures |= {f"{name}_mean": mean, f"{name}_deviation": deviation, f"{name}_product": mean * deviation}
    return Measured(figures, {}, {}, fingerprint(train))


def _of_bank(bank: torch.Tensor, graph: Graph, keys: NDArray[np.int64]) -> Scores:
    neighbours = torch.from_numpy(np.array(graph.neighbours))
    if bank.shape[1] == 1:
        return neighbour_scores(bank[:, 0].contiguous(), neighbours)
    return pooled_scores(bank, neighbours, AS_PRINTED, keys=keys, samples=DRAWS, seed=0, epoch=0)
