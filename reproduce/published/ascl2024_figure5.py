"""ICME 2024 (AsCL), Figure 5: recall of texts by their length; the paper draws bars and prints no numbers."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.figure_names import LENGTHS
from reproduce.tables.specification import Column, PublishedTable, Row

COLUMNS = (
    *(f"texts(words {size})" for size in LENGTHS),
    *(f"text_to_image/recall@{k}(words {size})" for k in (1, 5, 10) for size in LENGTHS),
)

TABLE = PublishedTable(
    title="COCO and Flickr30K: recall of text queries by their length in words",
    paper=f"{systems.PAPER}, Figure 5a and 5b",
    columns=tuple(Column(data, name) for data in ("coco", "flickr30k") for name in COLUMNS),
    rows=tuple(
        Row(key, name, system, (None,) * (2 * len(COLUMNS)), baseline="" if key == "ascl" else "ascl")
        for key, name, system in (
            ("ascl", "AsCL", systems.ASCL),
            ("without_pos", "w/o Pos", systems.WITHOUT_POSITIVES),
            ("without_neg", "w/o Neg", systems.WITHOUT_NEGATIVES),
            ("without_both", "w/o P&N", systems.WITHOUT_BOTH),
        )
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=(
        "A thousand texts, the same for every row and seed, are the queries, and all images the candidates. The first "
        "columns have the number of texts of each length. `subtext evaluate RUN --by-length` measures all texts.",
        *systems.NOTES,
    ),
)
