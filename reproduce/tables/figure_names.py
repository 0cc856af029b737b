"""The figures of the cells of published tables: their names, labels and measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The figure of a cell.

    label    in the head of a column         measure  the measurement that gives it
    queries  whether it has a value per query, so that rows can be compared query by query
    """

    label: str
    measure: str
    queries: bool = True


DIRECTIONS = ("image_to_text", "text_to_image")
ASP = "asp(tfidf1)"
"""ASP by the relevance that Li et al. 2022 computed, as an evaluation names it."""
RANKINGS = {
    "pmrp": "PMRP",
    **{f"recall@{k}": f"R@{k}" for k in (1, 5, 10)},
    ASP: "ASP",
    "r_precision": "R-P",
}
"""Figures of complete rankings: name in an evaluation -> name in the papers."""
SPACE = (
    "alignment", "text/alignment", "image/uniformity", "image/uniformity_variance", "text/uniformity",
    "text/uniformity_variance",
)  # fmt: skip
LENGTHS = ("0-9", "10-14", "15-19", "20-")
"""Lengths of texts in words, as an evaluation names its buckets."""
FIGURES = {
    "image_to_text": Figure("I→T", "question"),
    "text_to_image": Figure("T→I", "question"),
    "both": Figure("I→T, T→I", "question", queries=False),
    "image_preservation": Figure("I", "preservation"),
    "text_preservation": Figure("T", "preservation"),
    **{
        f"{direction}/{name}{size}": Figure(f"{arrow} {label}{size.upper()}", "rankings")
        for size in ("", "(1k)")
        for direction, arrow in zip(DIRECTIONS, ("I→T", "T→I"), strict=True)
        for name, label in RANKINGS.items()
    },
    **{f"rsum{size}": Figure(f"RSUM{size.upper()}", "rankings", queries=False) for size in ("", "(1k)")},
    **{name: Figure(name.replace("/", " ").replace("_", " "), "space", queries=False) for name in SPACE},
    **{f"texts(words {size})": Figure(f"texts of {size} words", "lengths", queries=False) for size in LENGTHS},
    **{
        f"text_to_image/recall@{k}(words {size})": Figure(f"T→I R@{k}, {size} words", "lengths")
        for k in (1, 5, 10)
        for size in LENGTHS
    },
    **{
        f"{score}_{statistic}": Figure(f"{statistic} of {score}", "scores", queries=False)
        for score in ("diversity", "discrepancy")
        for statistic in ("mean", "deviation", "product")
    },
}
"""Question: accuracy of c-way choices, each pair a question of its own. Preservation: share of semantic
neighbours that are nearest in the joint space.
Rankings: of complete galleries, or of folds of 1,000 images. Space: distances in the joint space. Lengths: recall of a
thousand sampled texts by their length, and the number of texts of each length. Scores: of the training pairs."""
