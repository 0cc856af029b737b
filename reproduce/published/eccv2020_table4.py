"""ECCV 2020, Table 4: the within-modality losses one by one."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, both_ways

TABLE = PublishedTable(
    title="Choice among c, without the loss on texts or the loss on images",
    paper=f"{systems.PAPER}, Table 4",
    columns=both_ways(("goodnews", "politics")),
    rows=(
        systems.row("ours", "OURS (ANG)", systems.OURS, ".8849 .8865 .6467 .6492"),
        systems.row(
            "without_text", "OURS (ANG) without L_text", systems.OURS_WITHOUT_TEXT, ".8786 .8813 .6387 .6467", "ours"
        ),
        systems.row(
            "without_img", "OURS (ANG) without L_img", systems.OURS_WITHOUT_IMAGE, ".8782 .8817 .6390 .6413", "ours"
        ),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=systems.NOTES,
)
