"""NeurIPS 2022 (DAA), Table 3: recall and ASP on Flickr30K."""

from __future__ import annotations

from reproduce.systems import daa2022 as systems
from reproduce.tables.figure_names import ASP
from reproduce.tables.specification import PublishedTable, ranked

TABLE = PublishedTable(
    title="Flickr30K: recall, and the order of the complete ranking",
    paper=f"{systems.PAPER}, Table 3",
    columns=ranked("flickr30k", ("recall@1", ASP)),
    rows=systems.rows(
        {
            "saf": (0.738, 0.490, 0.567, 0.500),
            "saf_daa": (0.739, 0.650, 0.569, 0.584),
            "sgr": (0.737, 0.546, 0.558, 0.551),
            "sgr_daa": (0.738, 0.655, 0.566, 0.590),
            "sgraf": (0.771, 0.494, 0.585, 0.506),
            "sgraf_daa": (0.780, 0.658, 0.599, 0.592),
        }
    ),
    plan=systems.FLICKR30K_PLAN,
    pixels=systems.PIXELS,
    notes=(systems.MEAN_OF_TWO, *systems.NOTES),
)
