"""ECCV 2020, the Flickr30K figures in the text of section 4.3."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, both_ways

TABLE = PublishedTable(
    title="Choice among c, PVSE with and without the within-modality losses on literal captions",
    paper=f"{systems.PAPER}, section 4.3",
    columns=both_ways(("flickr30k",)),
    rows=(
        systems.row("pvse", "PVSE", systems.PVSE, ".5539 .5405"),
        systems.row("pvse_ours", "PVSE+Ours", systems.PVSE_OURS, ".5559 .5419", "pvse"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=("The paper does not state c for Flickr30K; it is 100 here, as for COCO.", *systems.NOTES),
)
