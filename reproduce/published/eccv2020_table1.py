"""ECCV 2020, Table 1: c-way choice on four data sets."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, Row, both_ways

TABLE = PublishedTable(
    title="Choice among c, within-modality losses and their baselines",
    paper=f"{systems.PAPER}, Table 1",
    columns=both_ways(("politics", "goodnews", "conccap", "coco")),
    rows=(
        Row(
            "ang_np_sym",
            "ANG+NP+SYM",
            systems.ANGULAR,
            (0.6270, 0.6216, 0.8704, 0.8728, 0.7687, 0.7695, 0.6976, 0.6964),
        ),
        Row(
            "ours_img_nns",
            "OURS (Img NNs)",
            systems.OURS_BY_PICTURES,
            (0.6370, 0.6378, 0.8840, 0.8852, 0.7636, 0.7666, 0.6819, 0.6876),
            baseline="ang_np_sym",
        ),
        Row(
            "ours",
            "OURS",
            systems.OURS,
            (0.6467, 0.6492, 0.8849, 0.8865, 0.7760, 0.7835, 0.6900, 0.6885),
            baseline="ang_np_sym",
        ),
        Row("pvse", "PVSE", systems.PVSE, (0.6246, 0.6199, 0.8724, 0.8709, 0.7746, 0.7809, 0.6878, 0.6892)),
        Row(
            "pvse_ours",
            "PVSE+Ours",
            systems.PVSE_OURS,
            (0.6264, 0.6314, 0.8867, 0.8864, 0.7865, 0.7924, 0.6932, 0.6925),
            baseline="pvse",
        ),
        Row(
            "trip_np_sym",
            "TRIP+NP+SYM",
            systems.TRIPLET,
            (0.4742, 0.4801, 0.7203, 0.7216, 0.5413, 0.5332, 0.4957, 0.4746),
        ),
        Row(
            "ours_trip",
            "OURS (TRIP)",
            systems.OURS_TRIPLET,
            (0.4940, 0.4877, 0.7390, 0.7378, 0.5386, 0.5394, 0.4790, 0.4611),
            baseline="trip_np_sym",
        ),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=systems.NOTES,
)
