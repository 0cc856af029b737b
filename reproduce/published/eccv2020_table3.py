"""ECCV 2020, Table 3: how much of the semantic neighbourhood the joint space preserves."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import Column, PublishedTable

TABLE = PublishedTable(
    title="Share of the 200 nearest texts of the test set that stay neighbours in the joint space",
    paper=f"{systems.PAPER}, Table 3",
    columns=tuple(
        Column(data, figure)
        for data in ("goodnews", "politics")
        for figure in ("image_preservation", "text_preservation")
    ),
    rows=(
        systems.row("trip_np_sym", "TRIP+NP+SYM", systems.TRIPLET, ".1183 .1294 .1135 .1311"),
        systems.row("ours_trip", "OURS (TRIP)", systems.OURS_TRIPLET, ".1327 .1426 .1319 .1483", "trip_np_sym"),
        systems.row("ang_np_sym", "ANG+NP+SYM", systems.ANGULAR, ".1032 .1131 .1199 .1544"),
        systems.row("ours", "OURS (ANG)", systems.OURS, ".1270 .1376 .1386 .1703", "ang_np_sym"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=("Chance is 200 / (test items - 1), so galleries of other sizes cannot be compared.", *systems.NOTES),
)
