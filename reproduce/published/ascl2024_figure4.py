"""ICME 2024 (AsCL), Figure 4: how near partners are and how far apart all others, on COCO of 5,000 pictures."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.figure_names import SPACE
from reproduce.tables.specification import Column, PublishedTable, Row

TABLE = PublishedTable(
    title="COCO: alignment (lower is nearer), and uniformity (higher is further apart)",
    paper=f"{systems.PAPER}, Figure 4",
    columns=tuple(Column("coco", name) for name in SPACE),
    rows=(
        Row("ascl", "AsCL", systems.ASCL, (None, None, None, None, 1.393, 0.032)),
        Row("without_both", "w/o P&N", systems.WITHOUT_BOTH, (None, None, None, None, 1.391, 0.039), baseline="ascl"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=(
        "The paper draws bars; its text (III-D) has four numbers alone, the mean distance of different texts and its "
        "variance. That partners come nearer, and that pictures behave as texts do, it says without numbers.",
        "Distances are of unit vectors: the mean of a picture's regions, and of a text's words, before they are fused. "
        "The paper does not say which vectors it took; after fusion an item has another vector for every partner.",
        *systems.NOTES,
    ),
)
