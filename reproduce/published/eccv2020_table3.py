"""ECCV 2020, Table 3: how much of the semantic neighbourhood the joint space keeps."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import Column, PublishedTable, Row

TABLE = PublishedTable(
    title="Share of the 200 nearest texts of the test set that stay neighbours in the joint space",
    paper=f"{systems.PAPER}, Table 3",
    columns=tuple(
        Column(data, figure)
        for data in ("goodnews", "politics")
        for figure in ("image_preservation", "text_preservation")
    ),
    rows=(
        Row("trip_np_sym", "TRIP+NP+SYM", systems.TRIPLET, (0.1183, 0.1294, 0.1135, 0.1311)),
        Row("ours_trip", "OURS (TRIP)", systems.OURS_TRIPLET, (0.1327, 0.1426, 0.1319, 0.1483), baseline="trip_np_sym"),
        Row("ang_np_sym", "ANG+NP+SYM", systems.ANGULAR, (0.1032, 0.1131, 0.1199, 0.1544)),
        Row("ours", "OURS (ANG)", systems.OURS, (0.1270, 0.1376, 0.1386, 0.1703), baseline="ang_np_sym"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=("Chance is 200 / (test items - 1), so figures of galleries of other sizes do not compare.", *systems.NOTES),
)
