"""ECCV 2020, Table 1: c-way choice on four data sets."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, both_ways

TABLE = PublishedTable(
    title="Choice among c, within-modality losses and their baselines",
    paper=f"{systems.PAPER}, Table 1",
    columns=both_ways(("politics", "goodnews", "conccap", "coco")),
    rows=(
        systems.row("ang_np_sym", "ANG+NP+SYM", systems.ANGULAR, ".6270 .6216 .8704 .8728 .7687 .7695 .6976 .6964"),
        systems.row(
            "ours_img_nns",
            "OURS (Img NNs)",
            systems.OURS_BY_PICTURES,
            ".6370 .6378 .8840 .8852 .7636 .7666 .6819 .6876",
            "ang_np_sym",
        ),
        systems.row("ours", "OURS", systems.OURS, ".6467 .6492 .8849 .8865 .7760 .7835 .6900 .6885", "ang_np_sym"),
        systems.row("pvse", "PVSE", systems.PVSE, ".6246 .6199 .8724 .8709 .7746 .7809 .6878 .6892"),
        systems.row(
            "pvse_ours", "PVSE+Ours", systems.PVSE_OURS, ".6264 .6314 .8867 .8864 .7865 .7924 .6932 .6925", "pvse"
        ),
        systems.row("trip_np_sym", "TRIP+NP+SYM", systems.TRIPLET, ".4742 .4801 .7203 .7216 .5413 .5332 .4957 .4746"),
        systems.row(
            "ours_trip",
            "OURS (TRIP)",
            systems.OURS_TRIPLET,
            ".4940 .4877 .7390 .7378 .5386 .5394 .4790 .4611",
            "trip_np_sym",
        ),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=systems.NOTES,
)
