"""What a cell of a published table holds: figures by name, and how they are measured and called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What a cell holds.

    label    in the head of a column         measure  which measurement gives it
    queries  whether there is a value a query, so that rows can be compared query by query
    """

    label: str
    measure: str
    queries: bool = True


WAYS = ("image_to_text", "text_to_image")
ASP = "asp(tfidf1)"
"""As an evaluation names it: by the relevance that Li et al. 2022 computed."""
RANKINGS = {
    "pmrp": "PMRP",
    **{f"recall@{k}": f"R@{k}" for k in (1, 5, 10)},
    ASP: "ASP",
    "r_precision": "R-P",
}
"""Figures of whole rankings, as an evaluation names them -> as the papers do."""
SPACE = (
    "alignment", "text/alignment", "image/uniformity", "image/uniformity_variance", "text/uniformity",
    "text/uniformity_variance",
)  # fmt: skip
LENGTHS = ("0-9", "10-14", "15-19", "20-")
"""Words of a text, as an evaluation names its buckets."""
FIGURES = {
    "image_to_text": Figure("I→T", "choice"),
    "text_to_image": Figure("T→I", "choice"),
    "both": Figure("I→T, T→I", "choice", queries=False),
    "image_preservation": Figure("I", "preservation"),
    "text_preservation": Figure("T", "preservation"),
    **{
        f"{way}/{name}{size}": Figure(f"{arrow} {label}{size.upper()}", "rankings")
        for size in ("", "(1k)")
        for way, arrow in zip(WAYS, ("I→T", "T→I"), strict=True)
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
        f"{score}_{what}": Figure(f"{what} of {score}", "scores", queries=False)
        for score in ("diversity", "discrepancy")
        for what in ("mean", "deviation", "product")
    },
}
"""Choice: share of c-way choices that are right. Preservation: of neighbours kept. Rankings: of whole galleries, or of
folds of 1,000 pictures. Space: distances in the joint space. Lengths: recall of a thousand drawn texts by their length,
and how many these are. Scores: of the training pairs."""
