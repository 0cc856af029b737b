"""Notes: sentences that a reader of the figures should know, none of them when all is plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subtext.core import DIRECTIONS, Direction
from subtext.errors import counted
from subtext.evaluation.bootstrap import FEWEST

SIDES: dict[Direction, tuple[str, str]] = {
    "image_to_text": ("picture", "text"),
    "text_to_image": ("text", "picture"),
}
"""Who asks, and who answers."""


def notes(
    protocol: Mapping[str, Any],
    figures: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    pools: Mapping[Direction, tuple[int, int]],
) -> tuple[str, ...]:
    """What the figures leave out, why an interval is missing, and scores that are equal or no numbers.

    protocol  as it is stated with the figures
    pools     direction -> wrong candidates of the query that has fewest of them, and of the one that has most
    """
    found: list[str] = []
    for direction, (asking, _) in SIDES.items():
        if missing := protocol["left_out"][direction]:
            found.append(f"without a partner: {counted(missing, asking)}, among the candidates but not asking")
    for c in protocol["c_way"]:
        found += [_choice(c, direction, pools[direction]) for direction in DIRECTIONS if pools[direction][0] < c - 1]
    if protocol["bootstrap"]:
        found += _intervals(protocol["intervals"]["clusters"], figures, intervals)
    if ties := max(figures[f"{direction}/tie_share"] for direction in DIRECTIONS):
        found.append(f"ties: in up to {ties:.1f} % of queries a wrong candidate has the partner's score")
    if invalid := int(max(figures[f"{direction}/nan_scores"] for direction in DIRECTIONS)):
        found.append(f"not a number: {counted(invalid, 'score')}, ranked behind all others; the model is broken")
    return tuple(found)


def _choice(c: int, direction: Direction, pool: tuple[int, int]) -> str:
    """Why a c-way choice is left out, or left to some of the queries."""
    asking, answering = SIDES[direction]
    choice, needed = f"{c}-way choice of {asking}s among {answering}s", counted(c - 1, f"wrong {answering}")
    if pool[1] < c - 1:
        return f"{choice} is left out: it needs {needed}, and there are at most {pool[1]:,}"
    return f"{choice} leaves out queries with fewer than {needed}"


def _intervals(
    clusters: Mapping[str, int], figures: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Why intervals are missing."""
    few = [direction for direction in DIRECTIONS if clusters[direction] < FEWEST]
    found: list[str] = []
    if few:
        where = "" if len(few) == len(DIRECTIONS) else f" {_spelt(few[0])}"
        found.append(
            f"no 95 % intervals{where}: pictures are resampled, which needs {FEWEST} of them; the queries are of "
            f"{min(clusters[direction] for direction in few)}"
        )
    certain = [
        name.replace("_", " ").replace("/", " ")
        for name in figures
        if "/recall@" in name and name not in intervals and name.split("/")[0] not in few
    ]
    if certain:
        found.append(f"no 95 % interval of {', '.join(certain)}: all queries agree, so resampling shows no spread")
    return found


def _spelt(direction: Direction) -> str:
    return direction.replace("_", " ")
