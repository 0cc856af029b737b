"""NeurIPS 2022 (DAA), Table 1: recall, PMRP and ASP on COCO, of 1,000 and of 5,000 images."""

from __future__ import annotations

from reproduce.systems import daa2022 as systems
from reproduce.tables.figure_names import ASP
from reproduce.tables.specification import PublishedTable, ranked

TABLE = PublishedTable(
    title="COCO: plausible matches, recall, and the order of the complete ranking",
    paper=f"{systems.PAPER}, Table 1",
    columns=(*ranked("coco", ("pmrp", "recall@1", ASP), "(1k)"), *ranked("coco", ("pmrp", "recall@1", ASP))),
    rows=systems.rows(
        {
            "vse": (None, 0.646, None, None, 0.520, None, None, 0.413, None, None, 0.303, None),
            "pvse1": (0.403, 0.667, None, 0.418, 0.535, None, 0.293, 0.417, None, 0.301, 0.306, None),
            "pvse2": (0.428, 0.692, None, 0.436, 0.552, None, 0.318, 0.452, None, 0.320, 0.324, None),
            "pcme": (0.450, 0.688, 0.547, 0.460, 0.546, 0.553, 0.341, 0.442, 0.545, 0.344, 0.319, 0.550),
            "pcme_bert": (0.443, 0.692, 0.544, 0.453, 0.562, 0.544, 0.330, 0.456, 0.542, 0.334, 0.332, 0.542),
            "pcme_bert_daa": (0.459, 0.712, 0.584, 0.467, 0.578, 0.572, 0.346, 0.482, 0.583, 0.349, 0.351, 0.570),
            "saf": (0.462, 0.771, 0.547, 0.473, 0.621, 0.548, 0.347, 0.551, 0.545, 0.353, 0.405, 0.545),
            "saf_daa": (0.471, 0.780, 0.672, 0.487, 0.628, 0.616, 0.357, 0.562, 0.670, 0.366, 0.405, 0.614),
            "sgr": (0.440, 0.772, 0.539, 0.460, 0.619, 0.546, 0.327, 0.558, 0.537, 0.342, 0.401, 0.544),
            "sgr_daa": (0.464, 0.780, 0.685, 0.486, 0.626, 0.628, 0.353, 0.565, 0.684, 0.369, 0.408, 0.626),
            "sgraf": (0.471, 0.794, 0.545, 0.480, 0.639, 0.550, 0.355, 0.590, 0.543, 0.359, 0.426, 0.548),
            "sgraf_daa": (0.481, 0.802, 0.683, 0.496, 0.650, 0.627, 0.366, 0.600, 0.682, 0.375, 0.435, 0.625),
        }
    ),
    plan=systems.PAIRWISE_PLAN,
    pixels=systems.PIXELS,
    notes=(systems.MEAN_OF_TWO, *systems.NOTES),
)
