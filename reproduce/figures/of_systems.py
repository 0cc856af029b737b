"""Figures of what systems score: lists of two that recall cannot tell apart, and ASP over the N most relevant."""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduce.figures.asp_curve import asp_curve, asp_lines, mean_of
from reproduce.figures.of_data import chosen, lead
from reproduce.figures.request import Asked, Drawn
from reproduce.figures.systems import System, about, facts_of, picture_of, relevance_of, systems_of, texts_of
from reproduce.figures.top_k import Firsts, List, alike, first_of, firsts
from subtext.core import DIRECTIONS, Direction
from subtext.data.dataset import Dataset
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.report.page import Found, Search, Section
from subtext.report.plots import Chart, Curve, charts

FIRST = 100
"""Candidates that figure 1c shows."""
SOME = (5, 10, 50)
"""N of figure 3 beside twentieths of the gallery."""


def two_lists(asked: Asked) -> Drawn:
    """Figure 1c: what two systems find first for a query that recall calls equal, with its relevance."""
    systems, pairs, split = systems_of(asked)
    graded, match = relevance_of(asked, pairs), matching.of_pairs(pairs)
    top, direction = asked.count or FIRST, asked.direction
    found = [firsts(system.source, graded, match, direction, top=top) for system in systems]
    equal = alike(*found)
    query = chosen(asked, pairs.images if direction == "image_to_text" else pairs.texts, equal)
    lists = [first_of(system.source, graded, direction, query, top) for system in systems]
    own = match.cells(direction)[query : query + 1].expand()[1]
    numbers = {
        **about(asked, pairs, split),
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
    return Drawn(
        lead=lead(pairs, split),
        said=_compared(systems, found, equal, query, min(top, len(lists[0].candidates))),
        numbers=numbers,
        facts=[*facts_of(asked, pairs, split, systems), ("query drawn by seed", str(asked.seed))],
        sections=[_section(asked, systems, lists, own, pairs, query)],
    )


def over_tops(asked: Asked) -> Drawn:
    """Figure 3: ASP over the N most relevant candidates, with chance and the best order."""
    systems, pairs, split = systems_of(asked)
    graded = relevance_of(asked, pairs)
    panels: list[Chart] = []
    numbers: dict[str, Any] = {**about(asked, pairs, split), "ties": asked.asp_ties}
    told: dict[str, dict[str, Any]] = {system.name: {"path": str(system.path)} for system in systems}
    for direction in DIRECTIONS:
        tops = tops_of(graded, direction, asked.tops)
        lines = [100 * line for line in asp_lines(graded, direction, tops, ties=asked.asp_ties)]
        drawn = []
        for system in systems:
            values = asp_curve(system.source, graded, direction, tops, ties=asked.asp_ties)
            means = 100 * mean_of(values.T)
            drawn.append(Curve(system.name, list(zip(tops, means.tolist(), strict=True))))
            told[system.name][direction] = plain(means)
        drawn += [
            Curve(name, list(zip(tops, line.tolist(), strict=True)), reference=True)
            for name, line in zip(("best order", "chance"), (lines[1], lines[0]), strict=True)
        ]
        panels.append(Chart(spelt(direction), "N most relevant candidates", f"ASP({asked.relevance}), %", drawn))
        numbers[direction] = {"tops": list(tops), "chance": plain(lines[0]), "best_order": plain(lines[1])}
    whole = ", ".join(
        f"{name} {spelt(direction)} {told[name][direction][-1]:.1f}" for name in told for direction in DIRECTIONS
    )
    return Drawn(
        lead=lead(pairs, split),
        said=f"ASP over the largest N: {whole}; a random order has about 50.",
        numbers={**numbers, "systems": [{"name": name, **values} for name, values in told.items()]},
        facts=[*facts_of(asked, pairs, split, systems), ("ties", asked.asp_ties)],
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


def _compared(systems: list[System], found: list[Firsts], equal: np.ndarray, query: int, top: int) -> str:
    """How relevant the lists are: those shown, and those of all queries of equal recall."""
    shown = " and ".join(f"{one.worth[query]:.3f} ({s.name})" for s, one in zip(systems, found, strict=True))
    said = f"Mean relevance of the first {top}: {shown}"
    if not len(equal):
        return f"{said}; no query has equal recall in both."
    means = " and ".join(f"{one.worth[equal].mean():.3f} ({s.name})" for s, one in zip(systems, found, strict=True))
    better = 100 * float((found[1].worth[equal] > found[0].worth[equal]).mean())
    return (
        f"{said}; over {len(equal):,} queries of equal recall {means}, and in {better:.0f} % of these "
        f"{systems[1].name} is the more relevant."
    )


def _told(
    system: System, found: Firsts, listed: List, at: tuple[np.ndarray, int], own: np.ndarray, names: list[str]
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
    asked: Asked, systems: list[System], lists: list[List], own: np.ndarray, pairs: Dataset, query: int
) -> Section:
    texts = texts_of(pairs)
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def card(row: int, relevance: float) -> Found:
        right = bool((own == row).any())
        if asked.direction == "image_to_text":
            return Found(texts[row], relevance, "", right=right)
        title = texts[first[row]] if first[row] >= 0 else pairs.images.ids[row]
        return Found(title, relevance, picture_of(pairs, row), right=right)

    asking = _asking(pairs, asked.direction, query)
    picture = picture_of(pairs, query) if asked.direction == "image_to_text" else None
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
