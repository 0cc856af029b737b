"""ICME 2024 (AsCL), Table II: ablation of the method, on COCO (5,000 images) and on Flickr30K."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.specification import PublishedTable, Row, System, ranked

_RECALLS = ("recall@1", "recall@5")


def _row(key: str, name: str, system: System, percent: str) -> Row:
    printed = tuple(round(float(value) / 100, 4) for value in percent.split())
    return Row(key, name, system, printed, baseline="" if key == "ascl" else "ascl")


TABLE = PublishedTable(
    title="COCO and Flickr30K: generated texts, cross attention, and the loss",
    paper=f"{systems.PAPER}, Table II",
    columns=(*ranked("coco", _RECALLS), *ranked("flickr30k", _RECALLS)),
    rows=(
        _row("ascl", "AsCL", systems.ASCL, "94.8 99.4 66.7 87.3 99.1 99.8 83.0 95.4"),
        _row("without_pos", "w/o Pos.", systems.WITHOUT_POSITIVES, "93.1 99.1 65.1 86.0 99.0 99.7 79.6 92.7"),
        _row("without_neg", "w/o Neg.", systems.WITHOUT_NEGATIVES, "94.8 99.3 61.2 83.3 98.8 99.6 77.2 91.9"),
        _row("without_both", "w/o P&N", systems.WITHOUT_BOTH, "93.1 98.8 59.1 81.6 98.8 99.4 76.4 91.5"),
        _row("without_mf", "w/o MF", systems.WITHOUT_FUSION, "39.7 71.2 31.0 58.7 77.5 95.9 47.0 71.3"),
        _row("triplet", "w triplet loss", systems.TRIPLET, "89.4 99.8 58.6 79.8 98.3 99.2 73.3 87.9"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=systems.NOTES,
)
