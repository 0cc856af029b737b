"""Figures of what systems score: lists of two that recall cannot tell apart, and ASP over the N most relevant.

ASP over the N most relevant candidates, for several N, between its two lines (Li et al. 2022, figure 3).

The first candidates of each query: is a partner among them, and their relevance (Li et al. 2022, figure 1c).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.of_dataset import chosen, lead
from reproduce.figures.systems import System, about, facts_of, relevance_of, systems_of, texts_of, thumbnail_of
from subtext.core import DIRECTIONS, Direction
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.evaluation.metrics.asp import among_first
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.scoring import Source
from subtext.ops.semantic_rank import KERNEL_CELLS, RankTies, agreement, ranks
from subtext.ops.top_k import gains
from subtext.report.page import Found, Search, Section
from subtext.report.plots import Chart, Curve, charts


@dataclass(frozen=True)
class TopResults:
    """What a system finds for the queries of one direction.

    hits  (Q K) recall at each k, 0 or 1; NaN for a query without a partner       worth  (Q) mean relevance of the first
    """

    hits: Float[np.ndarray, "q k"]
    worth: Float[np.ndarray, "q"]


def top_results(
    source: Source,
    graded: Graded,
    match: Match,
    direction: Direction,
    *,
    ks: Sequence[int] = (1, 5, 10),
    top: int = 100,
) -> TopResults:
    """Recall at each k and the mean relevance of the first `top` candidates, or of all where there are fewer.

    Ties count against the system: partners behind all of their score, and the least relevant first.
    Cost   two reads of the scores.
    """
    counts = source.counts(match, stable=False)[DIRECTIONS.index(direction)]
    shown = min(top, source.shape[1 if direction == "image_to_text" else 0])
    worth = [
        gains(scores, torch.from_numpy(graded.block(direction, start, stop)), shown).mean(axis=1)
        for start, stop, scores in source.blocks(direction)
    ]
    return TopResults(np.stack([Recall(k).of(counts) for k in ks], axis=1), np.concatenate(worth))


def queries_of_equal_recall(first: TopResults, second: TopResults) -> Int[np.ndarray, "n"]:
    """Queries that two systems answer equally well for recall: found at 1 by both, or at the same k by both.

    Those for which both find a partner first, where there are some; else all of equal recall at every k.
    """
    same = (first.hits == second.hits).all(axis=1)
    found = same & (first.hits[:, 0] == 1)
    return np.flatnonzero(found if found.any() else same)


@dataclass(frozen=True)
class List:
    """The first candidates of one query, best first: rows, scores and relevance, (N) each."""

    candidates: NDArray[np.int64]
    scores: NDArray[np.float64]
    relevance: NDArray[np.float64]


def top_list(source: Source, graded: Graded, direction: Direction, query: int, top: int) -> List:
    """The list of one query; among equal scores the least relevant stands first, as `top_results` counts.

    Raises RequirementError for a query that there is not.
    """
    scores = _row(source, direction, query)
    values = np.where(np.isnan(scores), -np.inf, scores)
    relevance = graded.block(direction, query, query + 1)[0].astype(np.float64)
    order = np.lexsort((relevance, -values))[:top]
    return List(order.astype(np.int64), scores[order], relevance[order])


def _row(source: Source, direction: Direction, query: int) -> NDArray[np.float64]:
    for start, stop, scores in source.blocks(direction):
        if start <= query < stop:
            row: Tensor = scores[query - start]
            return row.double().numpy()
    raise RequirementError(
        f"there are {source.shape} pictures and texts; {direction} has no query {query}; name another"
    )


def asp_curve(
    source: Source, graded: Graded, direction: Direction, tops: Sequence[int], *, ties: RankTies = "ordinal"
) -> Float[np.ndarray, "q k"]:
    """ASP of every query over its N most relevant candidates, which are ranked anew among themselves; a column an N.

    Shares of 1; NaN where no N are meant (see `metrics.asp.ASP`).
    Cost   a sort of each row of relevance and of scores, and a pass for each N.
    """
    compiled = source.shape[0] * source.shape[1] >= KERNEL_CELLS
    pieces = []
    for start, stop, scores in source.blocks(direction):
        semantic = ranks(graded.block(direction, start, stop), ties, kernel=compiled)
        matrix = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()
        pieces.append(agreement(matrix, semantic, ties, top=tuple(tops), kernel=compiled))
    return np.concatenate(pieces)


def asp_lines(
    graded: Graded, direction: Direction, tops: Sequence[int], *, ties: RankTies = "ordinal"
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Means over the queries of what a random order is expected to give for each N, and of what the best order is.

    Cost   a sort of each row.
    """
    compiled = graded.values.size >= KERNEL_CELLS
    both = [among_first(ranks(block, "min", kernel=compiled), tops, ties) for _, _, block in graded.blocks(direction)]
    chance, best = (mean_of(np.concatenate(line).T) for line in zip(*both, strict=True))
    return chance, best


def mean_of(values: Float[np.ndarray, "k q"]) -> Float[np.ndarray, "k"]:
    """Mean of each row over the queries that have a value; NaN for a row without any."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


FIRST = 100
"""Candidates that figure 1c shows."""
SOME = (5, 10, 50)
"""N of figure 3 beside twentieths of the gallery."""


def two_lists(config: FigureConfig) -> Figure:
    """Figure 1c: what two systems find first for a query that recall calls equal, with its relevance."""
    systems, pairs, split = systems_of(config)
    graded, match = relevance_of(config, pairs), matching.of_pairs(pairs)
    top, direction = config.count or FIRST, config.direction
    found = [top_results(system.source, graded, match, direction, top=top) for system in systems]
    equal = queries_of_equal_recall(*found)
    query = chosen(config, pairs.images if direction == "image_to_text" else pairs.texts, equal)
    lists = [top_list(system.source, graded, direction, query, top) for system in systems]
    own = match.cells(direction)[query : query + 1].expand()[1]
    numbers = {
        **about(config, pairs, split),
        "direction": direction,
        "query": _asking(pairs, direction, query),
        "equal_recall": bool((equal == query).any()),
        "queries_of_equal_recall": len(equal),
        "queries": len(found[0].worth),
        "top": top,
        "systems": [
            _told(system, one, listed, (equal, query), own, _answering(pairs, direction))
            for system, one, listed in zip(systems, found, lists, strict=True)
        ],
    }
    return Figure(
        lead=lead(pairs, split),
        summary=_compared(systems, found, equal, query, min(top, len(lists[0].candidates))),
        numbers=numbers,
        facts=[*facts_of(config, pairs, split, systems), ("query drawn by seed", str(config.seed))],
        sections=[_section(config, systems, lists, own, pairs, query)],
    )


def asp_by_n(config: FigureConfig) -> Figure:
    """Figure 3: ASP over the N most relevant candidates, with chance and the best order."""
    systems, pairs, split = systems_of(config)
    graded = relevance_of(config, pairs)
    panels: list[Chart] = []
    numbers: dict[str, Any] = {**about(config, pairs, split), "ties": config.asp_ties}
    told: dict[str, dict[str, Any]] = {system.name: {"path": str(system.path)} for system in systems}
    for direction in DIRECTIONS:
        tops = tops_of(graded, direction, config.tops)
        lines = [100 * line for line in asp_lines(graded, direction, tops, ties=config.asp_ties)]
        drawn = []
        for system in systems:
            values = asp_curve(system.source, graded, direction, tops, ties=config.asp_ties)
            means = 100 * mean_of(values.T)
            drawn.append(Curve(system.name, list(zip(tops, means.tolist(), strict=True))))
            told[system.name][direction] = plain(means)
        drawn += [
            Curve(name, list(zip(tops, line.tolist(), strict=True)), reference=True)
            for name, line in zip(("best order", "chance"), (lines[1], lines[0]), strict=True)
        ]
        panels.append(Chart(spelt(direction), "N most relevant candidates", f"ASP({config.relevance}), %", drawn))
        numbers[direction] = {"tops": list(tops), "chance": plain(lines[0]), "best_order": plain(lines[1])}
    whole = ", ".join(
        f"{name} {spelt(direction)} {told[name][direction][-1]:.1f}" for name in told for direction in DIRECTIONS
    )
    return Figure(
        lead=lead(pairs, split),
        summary=f"ASP over the largest N: {whole}; a random order has about 50.",
        numbers={**numbers, "systems": [{"name": name, **values} for name, values in told.items()]},
        facts=[*facts_of(config, pairs, split, systems), ("ties", config.asp_ties)],
        drawing=charts(panels),
    )


def tops_of(graded: Graded, direction: Direction, given: tuple[int, ...]) -> tuple[int, ...]:
    """The N that are measured: those given, as far as there are so many candidates; else twentieths of them and a few.

    The last one is always all candidates.
    """
    candidates = graded.shape[1 if direction == "image_to_text" else 0]
    steps = given or (*SOME, *(candidates * place // 20 for place in range(1, 20)))
    return (*sorted({top for top in steps if 0 < top < candidates}), candidates)


def plain(values: np.ndarray) -> list[float | None]:
    """As JSON can hold them: a number that there is not is null."""
    return [None if np.isnan(value) else float(value) for value in values]


def spelt(direction: Direction) -> str:
    """A direction in words."""
    return direction.replace("_", " ")


def _compared(systems: list[System], found: list[TopResults], equal: np.ndarray, query: int, top: int) -> str:
    """How relevant the lists are: those shown, and those of all queries of equal recall."""
    shown = " and ".join(f"{one.worth[query]:.3f} ({s.name})" for s, one in zip(systems, found, strict=True))
    summary = f"Mean relevance of the first {top}: {shown}"
    if not len(equal):
        return f"{summary}; no query has equal recall in both."
    means = " and ".join(f"{one.worth[equal].mean():.3f} ({s.name})" for s, one in zip(systems, found, strict=True))
    better = 100 * float((found[1].worth[equal] > found[0].worth[equal]).mean())
    return (
        f"{summary}; over {len(equal):,} queries of equal recall {means}, and in {better:.0f} % of these "
        f"{systems[1].name} is the more relevant."
    )


def _told(
    system: System, found: TopResults, listed: List, at: tuple[np.ndarray, int], own: np.ndarray, names: list[str]
) -> dict[str, Any]:
    equal, query = at
    rows = zip(listed.candidates.tolist(), listed.scores.tolist(), listed.relevance.tolist(), strict=True)
    return {
        "name": system.name,
        "path": str(system.path),
        "mean_relevance": float(found.worth[query]),
        "mean_relevance_of_equal": float(found.worth[equal].mean()) if len(equal) else None,
        "found": [
            {
                "id": names[row],
                "score": score if np.isfinite(score) else None,
                "relevance": relevance,
                "right": bool((own == row).any()),
            }
            for row, score, relevance in rows
        ],
    }


def _section(
    config: FigureConfig, systems: list[System], lists: list[List], own: np.ndarray, pairs: Dataset, query: int
) -> Section:
    texts = texts_of(pairs)
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def card(row: int, relevance: float) -> Found:
        right = bool((own == row).any())
        if config.direction == "image_to_text":
            return Found(texts[row], relevance, "", right=right)
        title = texts[first[row]] if first[row] >= 0 else pairs.images.ids[row]
        return Found(title, relevance, thumbnail_of(pairs, row), right=right)

    asking = _asking(pairs, config.direction, query)
    picture = thumbnail_of(pairs, query) if config.direction == "image_to_text" else None
    searches = []
    for system, listed in zip(systems, lists, strict=True):
        rows = zip(listed.candidates.tolist(), listed.relevance.tolist(), strict=True)
        cards = [card(row, relevance) for row, relevance in rows]
        searches.append(Search(asking["text"] or asking["id"], cards, system.name, picture))
    told = "Best first by score; the number is the relevance to the query. Marked is what belongs to it."
    return Section("Side by side", told, searches, len(searches))


def _asking(pairs: Dataset, direction: Direction, query: int) -> dict[str, str]:
    if direction == "image_to_text":
        return {"id": pairs.images.ids[query], "text": ""}
    return {"id": pairs.texts.ids[query], "text": texts_of(pairs)[query]}


def _answering(pairs: Dataset, direction: Direction) -> list[str]:
    return pairs.texts.ids if direction == "image_to_text" else pairs.images.ids
