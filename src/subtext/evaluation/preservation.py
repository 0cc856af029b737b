"""How much of the semantic neighbourhoods the joint space keeps, within each modality, beside a Result's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Comparison, Embeddings, Truth
from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metrics.preservation import Preservation
from subtext.evaluation.protocol import Protocol
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

    Thomas and Kovashka 2020, section 4.3, for pictures and for texts: of the E neighbours that the graph knows of a
    text among `pairs`, how many are among its E nearest there. A picture has the neighbours of its first text, as
    pictures. An item itself, and texts of the same picture where the graph leaves them out, do not count.

    items     embeddings of all pictures and all texts of `pairs`
    protocol  its resampling and seed are those of the intervals; None for the default one
    Figures are in per cent.

    Raises DataError when the graph was built for other data, or knows no neighbours among these texts.
    Cost   N^2 cosines of each modality, and the sorting of each row.
    """
    cut = graph.within(pairs.texts)
    if not cut.counts.any():
        raise DataError(
            f"this graph knows no neighbours among the {len(pairs.texts):,} texts that are evaluated; build one whose "
            "texts are those (subtext neighbours build GRAPH --data DATA --split NAME --among NAME)"
        )
    owners = pictures_of_texts(pairs)
    truths = (_of_pictures(cut, pairs, owners), _of_texts(cut, pairs))
    values: dict[str, NDArray[np.float64]] = {}
    chance: dict[str, float] = {}
    for name, of, truth_of in zip(FIGURES, items, truths, strict=True):
        pieces = list(_kept(similarity, of, truth_of))
        values[name] = torch.cat([kept for kept, _ in pieces]).numpy()
        chance[name] = 100 * float(np.nanmean(torch.cat([by_chance for _, by_chance in pieces]).numpy()))
    clusters = dict(zip(FIGURES, (np.arange(len(pairs.images), dtype=np.int64), owners), strict=True))
    asked = protocol or Protocol()
    shares = {name: 100 * column for name, column in values.items()}
    found = intervals(shares, clusters, {}, samples=asked.bootstrap, seed=asked.seed)
    mean = float(cut.counts[cut.counts > 0].mean())
    return replace(
        result,
        figures=result.figures | {name: 100 * float(np.nanmean(column)) for name, column in values.items()},
        intervals=result.intervals | found,
        chance=result.chance | chance,
        per_query=result.per_query | values,
        protocol=result.protocol
        | {"graph": {"fingerprint": graph.fingerprint, "space": dict(graph.space), "neighbours": round(mean, 2)}},
    )


def _kept(similarity: nn.Module, items: Embeddings, truth_of: TruthOf) -> Iterator[tuple[Tensor, Tensor]]:
    """(Q) share kept and (Q) what chance would keep, of some queries after the others; NaN without neighbours."""
    cosine = getattr(similarity, "cosine", similarity)
    for start in range(0, len(items), _ROWS):
        right = truth_of(start, min(start + _ROWS, len(items)))
        with torch.inference_mode():
            scores = cosine(items[start : start + _ROWS], items)
        count = right.match.sum(dim=1).double()
        candidates = (right.match | right.negative).sum(dim=1)
        yield (
            Preservation()(Comparison(scores, right)),
            torch.where(count > 0, count / candidates, torch.nan),
        )


def _of_texts(graph: Graph, pairs: Dataset) -> TruthOf:
    groups = torch.from_numpy(pairs.texts.groups)
    dropped = graph.settings.get("same_picture", "drop") == "drop"

    def truth_of(start: int, stop: int) -> Truth:
        found = truth(graph, start, stop)
        assert found.ignored is not None
        if not dropped:
            return found
        same = groups[start:stop, None] == groups
        return Truth(found.match, (found.ignored | same) & ~found.match)

    return truth_of


def _of_pictures(graph: Graph, pairs: Dataset, owners: NDArray[np.int64]) -> TruthOf:
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def truth_of(start: int, stop: int) -> Truth:
        match = np.zeros((stop - start, len(first)), dtype=np.bool_)
        for row, text in enumerate(first[start:stop]):
            near = np.asarray(graph.neighbours[text]) if text >= 0 else np.empty(0, dtype=np.int64)
            pictures = owners[near[near >= 0]]
            match[row, pictures[pictures >= 0]] = True
        own = np.arange(start, stop)[:, None] == np.arange(len(first))
        return Truth(torch.from_numpy(match & ~own), torch.from_numpy(own))

    return truth_of
