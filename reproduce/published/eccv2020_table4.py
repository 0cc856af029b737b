"""ECCV 2020, Table 4: the within-modality losses one by one."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, Row, both_ways

TABLE = PublishedTable(
    title="Choice among c, without the loss on texts or the loss on pictures",
    paper=f"{systems.PAPER}, Table 4",
    columns=both_ways(("goodnews", "politics")),
    rows=(
        Row("ours", "OURS (ANG)", systems.OURS, (0.8849, 0.8865, 0.6467, 0.6492)),
        Row(
            "without_text",
            "OURS (ANG) without L_text",
            systems.OURS_WITHOUT_TEXT,
            (0.8786, 0.8813, 0.6387, 0.6467),
            baseline="ours",
        ),
        Row(
            "without_img",
            "OURS (ANG) without L_img",
            systems.OURS_WITHOUT_IMAGE,
            (0.8782, 0.8817, 0.6390, 0.6413),
            baseline="ours",
        ),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=systems.NOTES,
)
