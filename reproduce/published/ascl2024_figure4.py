"""ICME 2024 (AsCL), Figure 4: alignment and uniformity on COCO, of 5,000 images."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.figure_names import SPACE
from reproduce.tables.specification import Column, PublishedTable, Row

TABLE = PublishedTable(
    title="COCO: alignment (lower is closer) and uniformity (higher is more spread)",
    paper=f"{systems.PAPER}, Figure 4",
    columns=tuple(Column("coco", name) for name in SPACE),
    rows=(
        Row("ascl", "AsCL", systems.ASCL, (None, None, None, None, 1.393, 0.032)),
        Row("without_both", "w/o P&N", systems.WITHOUT_BOTH, (None, None, None, None, 1.391, 0.039), baseline="ascl"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=(
        "The paper draws bars; its text (III-D) has four numbers, the mean distance of different texts and its "
        "variance. It states without numbers that pairs become closer and that images behave as texts do.",
        "Distances are of unit vectors: the mean of an image's regions, and of a text's words, before fusion. The "
        "paper does not state its vectors; after fusion an item has a different vector for every partner.",
        *systems.NOTES,
    ),
)
