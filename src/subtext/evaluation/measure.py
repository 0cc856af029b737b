"""From blocks of scores to values a query: order by relevance, all positives, plausible ones, hubs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Direction
from subtext.evaluation.metrics import asp as reference
from subtext.evaluation.metrics.asp import ASP
from subtext.evaluation.metrics.average_precision import AveragePrecision
from subtext.evaluation.metrics.hubness import skewness, unfound
from subtext.evaluation.metrics.ndcg import NDCG
from subtext.evaluation.metrics.r_precision import RPrecision
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.metrics.semantic_gain import SemanticGain
from subtext.evaluation.metrics.summary import chance_recall
from subtext.evaluation.protocol import ZETA, Further
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.scoring import Source
from subtext.ops.positive_ranks import PositiveRanks, rank_positives
from subtext.ops.rank import Ties
from subtext.ops.semantic_rank import KERNEL_CELLS, ranks
from subtext.ops.top_k import gains, occurrences

Values = dict[str, NDArray[np.float64]]


@dataclass
class Found:
    """What was measured of one direction of one fold, by name.

    values   (Q) of each query        chance, ceiling  (Q) what a random order, and the best, is expected to give
    numbers  figures that no query has a value of
    """

    values: Values = field(default_factory=dict)
    chance: Values = field(default_factory=dict)
    ceiling: Values = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    def add(self, pieces: Iterable[Found]) -> None:
        """Take in blocks of queries, one after the other."""
        pieces = list(pieces)
        for part in fields(Found)[:3]:
            mine: Values = getattr(self, part.name)
            for name in getattr(pieces[0], part.name):
                mine[name] = np.concatenate([getattr(piece, part.name)[name] for piece in pieces])


def measure(
    source: Source, asked: Further, match: Match, *, recall: tuple[int, ...], ties: Ties
) -> dict[Direction, Found]:
    """What `asked` names, of one fold.

    match         the fold's own truth          recall, ties  as in the protocol

    Cost   one read of the scores a direction; a sort of each row for positives, and three for each relevance.
    """
    truths = {**({"": match} if asked.precision else {}), **{f"({name})": one for name, one in asked.truths.items()}}
    found = {direction: Found() for direction in DIRECTIONS}
    for direction in DIRECTIONS:
        here = found[direction]
        stands: list[list[PositiveRanks]] = []
        pieces: list[Found] = []
        often: NDArray[np.float64] | float = 0.0
        for start, stop, scores in source.blocks(direction):
            if truths:
                cells = [one.cells(direction)[start:stop] for one in truths.values()]
                stands.append(rank_positives(scores, cells, stable=ties == "stable"))
            if asked.hubness:
                often = often + occurrences(scores, asked.hubness)
            piece = Found()
            for graded in asked.relevances:
                compiled = source.shape[0] * source.shape[1] >= KERNEL_CELLS
                _graded(piece, scores, (graded, graded.block(direction, start, stop)), asked, ties, kernel=compiled)
            pieces.append(piece)
        here.add(pieces)
        for place, name in enumerate(truths):
            _precise(here, name, PositiveRanks.cat([each[place] for each in stands]), recall if name else (), ties)
        if isinstance(often, np.ndarray):
            here.numbers |= {f"hubness@{asked.hubness}": skewness(often), f"unfound@{asked.hubness}": unfound(often)}
    if asked.labels is not None:
        _plausible(found, source, asked, ties)
    return found


def _graded(
    found: Found, scores: Tensor, by: tuple[Graded, NDArray[Any]], asked: Further, ties: Ties, *, kernel: bool
) -> None:
    """Values of some queries under one relevance: its values for them are the second of `by`."""
    graded, block = by
    label = f"({graded.name})"
    matrix = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()
    semantic = ranks(block, asked.asp_ties, kernel=kernel)
    for top in (0, *asked.top):
        name = f"asp@{top}{label}" if top else f"asp{label}"
        found.values[name] = ASP(asked.asp_ties, top).of(matrix, semantic, kernel=kernel)
    best = semantic if asked.asp_ties == "min" else ranks(block, "min", kernel=kernel)
    found.chance[f"asp{label}"] = reference.chance(best, asked.asp_ties)
    found.ceiling[f"asp{label}"] = reference.ceiling(best, asked.asp_ties)
    most = max((*asked.gain, *asked.ndcg), default=0)
    if not most:
        return
    block = np.maximum(block, 0)
    relevance = torch.from_numpy(block)
    got, ideal = gains(scores, relevance, most, ties), gains(relevance, relevance, most)
    random = np.broadcast_to(block.mean(axis=1, dtype=np.float64)[:, None], got.shape).copy()
    random[:, block.shape[1] :] = 0
    for metric, name in [(SemanticGain(k), f"gain@{k}{label}") for k in asked.gain] + [
        (NDCG(k), f"ndcg@{k}{label}") for k in asked.ndcg
    ]:
        found.values[name], found.chance[name] = metric.of(got, ideal), metric.of(random, ideal)


def _precise(found: Found, name: str, stands: PositiveRanks, recall: tuple[int, ...], ties: Ties) -> None:
    """Precision (and recall) under one reading of what is right."""
    counts = stands.best()
    for k in recall:
        found.values[f"recall@{k}{name}"] = Recall(k, ties).of(counts)
        found.chance[f"recall@{k}{name}"] = chance_recall(counts, k)
    found.values[f"r_precision{name}"] = RPrecision(ties).of(stands)
    found.chance[f"r_precision{name}"] = _share(stands)
    found.values[f"map@r{name}"] = AveragePrecision("r", ties).of(stands)


def _plausible(found: dict[Direction, Found], source: Source, asked: Further, ties: Ties) -> None:
    """PMRP among the labelled pictures and their texts: neither asks nor answers what has no labels."""
    labels = asked.labels
    assert labels is not None
    part = source.part(labels.image_rows, labels.text_rows)
    matches = [labels.match(zeta) for zeta in ZETA]
    for direction, rows in zip(DIRECTIONS, (labels.image_rows, labels.text_rows), strict=True):
        here, queries = found[direction], source.shape[0 if direction == "image_to_text" else 1]
        stands: list[list[PositiveRanks]] = []
        for start, stop, scores in part.blocks(direction):
            cells = [match.cells(direction)[start:stop] for match in matches]
            stands.append(rank_positives(scores, cells, stable=ties == "stable"))
        each = [PositiveRanks.cat([block[place] for block in stands]) for place in range(len(ZETA))]
        for name, columns in (
            ("pmrp", [RPrecision(ties).of(one) for one in each]),
            ("pm_recall@1", [Recall(1, ties).of(one.best()) for one in each]),
        ):
            here.values[name] = _placed(np.mean(columns, axis=0), rows, queries)
        here.chance["pmrp"] = _placed(np.mean([_share(one) for one in each], axis=0), rows, queries)


def _share(stands: PositiveRanks) -> NDArray[np.float64]:
    """(Q) share of the candidates that are positives: the R-Precision of a random order."""
    candidates = np.maximum(stands.positives + stands.negatives, 1)
    return np.where(stands.positives > 0, stands.positives / candidates, np.nan)


def _placed(values: NDArray[np.float64], rows: NDArray[np.int64], queries: int) -> NDArray[np.float64]:
    whole = np.full(queries, np.nan)
    whole[rows] = values
    return whole
