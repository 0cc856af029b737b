"""ECCV 2020, Table 2: the structure-preserving loss beside the paper's own, on COCO."""

from __future__ import annotations

from reproduce.systems import eccv2020 as systems
from reproduce.tables.specification import PublishedTable, Row, both_ways

TABLE = PublishedTable(
    title="Choice among c, structure-preserving loss with true and with estimated neighbours",
    paper=f"{systems.PAPER}, Table 2",
    columns=both_ways(("coco",)),
    rows=(
        Row("ours_trip", "OURS (TRIP)", systems.OURS_TRIPLET, (0.4790, 0.4611)),
        Row("struc_gt_text", "STRUC (GT, Text)", systems.STRUC_TRUE, (0.4817, 0.4867), baseline="ours_trip"),
        Row("struc_nn_text", "STRUC (NN_Ω, Text)", systems.STRUC_TEXTS, (0.4635, 0.4594), baseline="ours_trip"),
        Row("struc_nn_img", "STRUC (NN_Ω, Img)", systems.STRUC_PICTURES, (0.4752, 0.4604), baseline="ours_trip"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=("The paper prints this table turned: its columns are our rows.", *systems.NOTES),
)
