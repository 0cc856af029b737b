"""Figures of systems: top lists of two that have equal recall, and ASP over the N most relevant candidates.

Figure 1c of Li et al. 2022 shows the top candidates of a query with their relevance; figure 3 shows ASP for several N,
between a random order and the best one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

import subtext as st
from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.of_dataset import chosen_row, lead
from reproduce.figures.systems import (
    about,
    evaluate,
    facts_of,
    pairs_of,
    relevance_of,
    scores_of,
    texts_of,
    thumbnail_of,
)
from subtext.core import DIRECTIONS, Comparison, Direction
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.report.page import PageHit, PageSearch, PageSection
from subtext.report.plots import Chart, Curve, charts

ROWS = 256
"""Queries that are ranked at a time."""
TOP = 100
"""Candidates that figure 1c shows."""
SMALL_TOPS = (5, 10, 50)
"""N of figure 3 beside twentieths of the gallery."""


@dataclass(frozen=True)
class TopResults:
    """The top candidates of the queries of one direction.

    hits  (Q K) recall at each k, 0 or 1; NaN for a query without a positive       relevance  (Q) their mean relevance
    """

    hits: Float[np.ndarray, "q k"]
    relevance: Float[np.ndarray, "q"]


def top_results(
    scores: Float[Tensor, "i t"],
    graded: Graded,
    match: Match,
    direction: Direction,
    *,
    ks: Sequence[int] = (1, 5, 10),
    top: int = 100,
) -> TopResults:
    """Recall at each k and the mean relevance of the first `top` candidates, or of all where there are fewer.

    Ties are broken against the system: positives behind all of their score, and the least relevant first.
    Cost   a sort of each row of scores.
    """
    queries = scores if direction == "image_to_text" else scores.T
    hits, relevance = [], []
    for start in range(0, len(queries), ROWS):
        block = queries[start : start + ROWS]
        comparison = Comparison(block, match.truth(direction, start, start + len(block)))
        hits.append(np.stack([Recall(k)(comparison).numpy() for k in ks], axis=1))
        graded_block = graded.block(direction, start, start + len(block)).astype(np.float64)
        order = np.lexsort((graded_block, -block.double().nan_to_num(nan=-np.inf).numpy()), axis=1)[:, :top]
        relevance.append(np.take_along_axis(graded_block, order, axis=1).mean(axis=1))
    return TopResults(np.concatenate(hits), np.concatenate(relevance))


def queries_of_equal_recall(first: TopResults, second: TopResults) -> Int[np.ndarray, "n"]:
    """Queries with equal recall at every k in both systems: those with recall 1 at k = 1 where there are some."""
    same = (first.hits == second.hits).all(axis=1)
    at_first = same & (first.hits[:, 0] == 1)
    return np.flatnonzero(at_first if at_first.any() else same)


@dataclass(frozen=True)
class TopList:
    """The top candidates of one query, best first: rows, scores and relevance, (N) of each."""

    candidates: NDArray[np.int64]
    scores: NDArray[np.float64]
    relevance: NDArray[np.float64]


def top_list(scores: Float[Tensor, "i t"], graded: Graded, direction: Direction, query: int, top: int) -> TopList:
    """The list of one query; among equal scores the least relevant is first, as in `top_results`."""
    row = (scores[query] if direction == "image_to_text" else scores[:, query]).double().numpy()
    relevance = graded.block(direction, query, query + 1)[0].astype(np.float64)
    order = np.lexsort((relevance, -np.where(np.isnan(row), -np.inf, row)))[:top]
    return TopList(order.astype(np.int64), row[order], relevance[order])


def two_lists(config: FigureConfig) -> Figure:
    """Figure 1c: the top results of two systems for a query with equal recall, and their relevance."""
    pairs, split = pairs_of(config)
    graded, match = relevance_of(config, pairs), matching.of_pairs(pairs)
    top, direction = config.count or TOP, config.direction
    scores = {name: scores_of(config, name, path, pairs) for name, path in config.systems}
    results = {name: top_results(scores[name], graded, match, direction, top=top) for name in scores}
    equal = queries_of_equal_recall(*results.values())
    query = chosen_row(config, pairs.images if direction == "image_to_text" else pairs.texts, equal)
    lists = {name: top_list(scores[name], graded, direction, query, top) for name in scores}
    positives = match.cells(direction)[query : query + 1].expand()[1]
    numbers = {
        **about(config, pairs, split),
        "direction": direction,
        "query": _query_json(pairs, direction, query),
        "equal_recall": bool((equal == query).any()),
        "queries_of_equal_recall": len(equal),
        "queries": len(next(iter(results.values())).relevance),
        "top": top,
        "systems": [
            {
                "name": name,
                "path": str(path),
                "mean_relevance": float(results[name].relevance[query]),
                "mean_relevance_of_equal": float(results[name].relevance[equal].mean()) if len(equal) else None,
                "found": _list_json(lists[name], positives, _candidate_ids(pairs, direction)),
            }
            for name, path in config.systems
        ],
    }
    return Figure(
        lead=lead(pairs, split),
        summary=_summary(results, equal, query, min(top, len(next(iter(lists.values())).candidates))),
        numbers=numbers,
        facts=[*facts_of(config, pairs, split), ("query drawn by seed", str(config.seed))],
        sections=[_section(config, lists, positives, pairs, query)],
    )


def asp_by_n(config: FigureConfig) -> Figure:
    """Figure 3: ASP over the N most relevant candidates, with chance and the best order."""
    pairs, split = pairs_of(config)
    tops = {
        direction: tops_of(len(candidates), config.tops)
        for direction, candidates in zip(DIRECTIONS, (pairs.texts, pairs.images), strict=True)
    }
    requested = tuple(sorted({top for direction in DIRECTIONS for top in tops[direction][:-1]}))
    results = {name: evaluate(config, path, pairs, asp_top=requested) for name, path in config.systems}
    numbers: dict[str, Any] = {**about(config, pairs, split), "ties": config.asp_ties}
    systems: dict[str, dict[str, Any]] = {name: {"name": name, "path": str(path)} for name, path in config.systems}
    panels = []
    for direction in DIRECTIONS:
        # The last N is all candidates.
        figures = [*(f"{direction}/asp@{top}({config.relevance})" for top in tops[direction][:-1])]
        figures.append(f"{direction}/asp({config.relevance})")
        for name, result in results.items():
            systems[name][direction] = [result.figures.get(figure) for figure in figures]
        reference = next(iter(results.values()))
        chance = [reference.chance.get(figure) for figure in figures]
        best = [
            reference.ceiling.get(figure, None if level is None else 100.0)
            for figure, level in zip(figures, chance, strict=True)
        ]
        lines = {name: (systems[name][direction], False) for name in systems}
        lines |= {"best order": (best, True), "chance": (chance, True)}
        curves = [
            Curve(
                name,
                [(top, np.nan if level is None else level) for top, level in zip(tops[direction], levels, strict=True)],
                reference=reference_line,
            )
            for name, (levels, reference_line) in lines.items()
        ]
        panels.append(Chart(spelt(direction), "N most relevant candidates", f"ASP({config.relevance}), %", curves))
        numbers[direction] = {"tops": list(tops[direction]), "chance": chance, "best_order": best}
    largest = ", ".join(
        f"{name} {spelt(direction)} {systems[name][direction][-1]:.1f}" for name in systems for direction in DIRECTIONS
    )
    return Figure(
        lead=lead(pairs, split),
        summary=f"ASP over the largest N: {largest}; a random order has about 50.",
        numbers={**numbers, "systems": list(systems.values())},
        facts=[*facts_of(config, pairs, split), ("ties", config.asp_ties)],
        drawing=charts(panels),
    )


def tops_of(candidates: int, requested: tuple[int, ...]) -> tuple[int, ...]:
    """The N that are measured: the requested ones below the number of candidates; by default twentieths and a few.

    The last one is always all candidates.
    """
    steps = requested or (*SMALL_TOPS, *(candidates * twentieth // 20 for twentieth in range(1, 20)))
    return (*sorted({top for top in steps if 0 < top < candidates}), candidates)


def spelt(direction: Direction) -> str:
    """A direction in words."""
    return direction.replace("_", " ")


def _summary(results: dict[str, TopResults], equal: np.ndarray, query: int, top: int) -> str:
    """The relevance of the lists: of those that are shown, and of all queries of equal recall."""
    lists = " and ".join(f"{result.relevance[query]:.3f} ({name})" for name, result in results.items())
    summary = f"Mean relevance of the first {top}: {lists}"
    if not len(equal):
        return f"{summary}; no query has equal recall in both."
    means = " and ".join(f"{result.relevance[equal].mean():.3f} ({name})" for name, result in results.items())
    first, second = (result.relevance[equal] for result in results.values())
    better = 100 * float((second > first).mean())
    return (
        f"{summary}; over {len(equal):,} queries of equal recall {means}, and in {better:.0f} % of these "
        f"{list(results)[1]} is the more relevant."
    )


def _list_json(listed: TopList, positives: np.ndarray, ids: Sequence[str]) -> list[dict[str, Any]]:
    rows = zip(listed.candidates.tolist(), listed.scores.tolist(), listed.relevance.tolist(), strict=True)
    return [
        {
            "id": ids[row],
            "score": score if np.isfinite(score) else None,
            "relevance": relevance,
            "right": bool((positives == row).any()),
        }
        for row, score, relevance in rows
    ]


def _section(
    config: FigureConfig, lists: dict[str, TopList], positives: np.ndarray, pairs: st.Dataset, query: int
) -> PageSection:
    texts = texts_of(pairs)
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def card(row: int, relevance: float) -> PageHit:
        right = bool((positives == row).any())
        if config.direction == "image_to_text":
            return PageHit(texts[row], relevance, "", right=right)
        title = texts[first[row]] if first[row] >= 0 else pairs.images.ids[row]
        return PageHit(title, relevance, thumbnail_of(pairs, row), right=right)

    asking = _query_json(pairs, config.direction, query)
    image = thumbnail_of(pairs, query) if config.direction == "image_to_text" else None
    searches = []
    for name, listed in lists.items():
        cards = [card(*entry) for entry in zip(listed.candidates.tolist(), listed.relevance.tolist(), strict=True)]
        searches.append(PageSearch(asking["text"] or asking["id"], cards, name, image))
    text = "Best first by score; the number is the relevance to the query. Marked is what belongs to it."
    return PageSection("Side by side", text, searches, len(searches))


def _query_json(pairs: st.Dataset, direction: Direction, query: int) -> dict[str, str]:
    if direction == "image_to_text":
        return {"id": pairs.images.ids[query], "text": ""}
    return {"id": pairs.texts.ids[query], "text": texts_of(pairs)[query]}


def _candidate_ids(pairs: st.Dataset, direction: Direction) -> Sequence[str]:
    return pairs.texts.ids if direction == "image_to_text" else pairs.images.ids
