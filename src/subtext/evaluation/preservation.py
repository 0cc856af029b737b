"""How much of the semantic neighbourhoods the joint space preserves, within each modality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subtext.core import Comparison, Embeddings, Truth
from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metric import Readings, Request, readings_of, requested
from subtext.evaluation.protocol import ExtraMetrics, Protocol
from subtext.evaluation.results import Result
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.neighbours.truth import truth

FIGURES = ("image/neighbours_kept", "text/neighbours_kept")
_ROWS = 256
"""Queries compared at a time."""

TruthOf = Callable[[int, int], Truth]


def with_preservation(
    result: Result,
    similarity: nn.Module,
    items: tuple[Embeddings, Embeddings],
    pairs: Dataset,
    graph: Graph,
    *,
    protocol: Protocol | None = None,
) -> Result:
    """The result, with the share of each item's semantic neighbours that are nearest in the joint space too.

    Thomas and Kovashka 2020, section 4.3, for images and for texts: of the E neighbours that the graph has for a text
    among `pairs`, how many are among its E nearest there. An image has the neighbours of its first text, as images. An
    item itself does not count, nor do texts of the same image where the graph leaves them out.

    items     embeddings of all images and all texts of `pairs`
    protocol  its resampling and seed are those of the intervals; None for the default one
    Figures are in per cent.

    Raises DataError when the graph was built for other data, or has no neighbours among these texts.
    Cost   N^2 cosines of each modality, and the sorting of each row.
    """
    cut = graph.within(pairs.texts)
    if not cut.counts.any():
        raise DataError(
            f"this graph has no neighbours among the {len(pairs.texts):,} texts that are evaluated; build one whose "
            "texts are those (subtext neighbours build GRAPH --data DATA --split NAME --candidate-split NAME)"
        )
    protocol = protocol or Protocol()
    metrics = requested(Request("neighbours", protocol, ExtraMetrics()))
    owners = pictures_of_texts(pairs)
    sides: list[tuple[str, Embeddings, TruthOf, NDArray[np.int64]]] = [
        ("image", items[0], _of_images(cut, pairs, owners), np.arange(len(pairs.images), dtype=np.int64)),
        ("text", items[1], _of_texts(cut, pairs), owners),
    ]
    figures, values, chance, scaled, clusters = {}, {}, {}, {}, {}
    for side, embeddings, truth_of, owner in sides:
        blocks: list[list[tuple[NDArray[np.float64], Any]]] = [[] for _ in metrics]
        for readings in _readings(similarity, embeddings, truth_of):
            for metric, column in zip(metrics, blocks, strict=True):
                taken = readings.take(metric.reads)
                column.append((metric.of(*taken), metric.chance(*taken)))
        for metric, column in zip(metrics, blocks, strict=True):
            name = f"{side}/{metric.name}"
            values[name] = np.concatenate([values for values, _ in column])
            scaled[name], clusters[name] = metric.scale * values[name], owner
            figures[name] = metric.scale * float(np.nanmean(values[name]))
            if column[0][1] is not None:
                chance[name] = metric.scale * float(np.nanmean(np.concatenate([line for _, line in column])))
    ends = intervals(scaled, clusters, {}, samples=protocol.bootstrap, seed=protocol.seed)
    mean = float(cut.counts[cut.counts > 0].mean())
    about = {"fingerprint": graph.fingerprint, "space": dict(graph.space), "neighbours": round(mean, 2)}
    return replace(
        result,
        figures=result.figures | figures,
        intervals=result.intervals | ends,
        chance=result.chance | chance,
        per_query=result.per_query | values,
        protocol=result.protocol | {"graph": about},
        metrics=result.metrics | {metric.name: metric.described for metric in metrics},
    )


def _readings(similarity: nn.Module, items: Embeddings, truth_of: TruthOf) -> Iterator[Readings]:
    """Of items compared with all items of their modality, block by block."""
    cosine = getattr(similarity, "cosine", similarity)
    for start in range(0, len(items), _ROWS):
        truth = truth_of(start, min(start + _ROWS, len(items)))
        with torch.inference_mode():
            scores = cosine(items[start : start + _ROWS], items)
        yield readings_of(Comparison(scores, truth), stable=True)


def _of_texts(graph: Graph, pairs: Dataset) -> TruthOf:
    groups = torch.from_numpy(pairs.texts.groups)
    dropped = graph.settings.get("same_picture", "drop") == "drop"

    def truth_of(start: int, stop: int) -> Truth:
        matches = truth(graph, start, stop)
        assert matches.ignored is not None
        if not dropped:
            return matches
        same = groups[start:stop, None] == groups
        return Truth(matches.match, (matches.ignored | same) & ~matches.match)

    return truth_of


def _of_images(graph: Graph, pairs: Dataset, owners: NDArray[np.int64]) -> TruthOf:
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def truth_of(start: int, stop: int) -> Truth:
        match = np.zeros((stop - start, len(first)), dtype=np.bool_)
        for row, text in enumerate(first[start:stop]):
            neighbours = np.asarray(graph.neighbours[text]) if text >= 0 else np.empty(0, dtype=np.int64)
            pictures = owners[neighbours[neighbours >= 0]]
            match[row, pictures[pictures >= 0]] = True
        is_self = np.arange(start, stop)[:, None] == np.arange(len(first))
        return Truth(torch.from_numpy(match & ~is_self), torch.from_numpy(is_self))

    return truth_of
