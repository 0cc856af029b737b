"""ECCV 2020, Table 2: the structure-preserving loss beside that of the paper, on COCO."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, both_ways

TABLE = PublishedTable(
    title="Choice among c, structure-preserving loss with true and with estimated neighbours",
    paper=f"{systems.PAPER}, Table 2",
    columns=both_ways(("coco",)),
    rows=(
        systems.row("ours_trip", "OURS (TRIP)", systems.OURS_TRIPLET, ".4790 .4611"),
        systems.row("struc_gt_text", "STRUC (GT, Text)", systems.STRUC_TRUE, ".4817 .4867", "ours_trip"),
        systems.row("struc_nn_text", "STRUC (NN_Ω, Text)", systems.STRUC_TEXTS, ".4635 .4594", "ours_trip"),
        systems.row("struc_nn_img", "STRUC (NN_Ω, Img)", systems.STRUC_PICTURES, ".4752 .4604", "ours_trip"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=("The paper prints this table transposed: its columns are our rows.", *systems.NOTES),
)
