"""ICME 2024 (AsCL), Table I: recall on COCO, of 5,000 images, and on Flickr30K."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.specification import PublishedTable, Row, System, ranked

_RECALLS = ("recall@1", "recall@5", "recall@10")


def _row(key: str, name: str, system: System | None, percent: str) -> Row:
    return Row(key, name, system, tuple(round(float(value) / 100, 4) for value in percent.split()))


TABLE = PublishedTable(
    title="COCO and Flickr30K: recall",
    paper=f"{systems.PAPER}, Table I",
    columns=(*ranked("coco", _RECALLS), *ranked("flickr30k", _RECALLS)),
    rows=(
        _row("vse", "VSE++", systems.VSEPP, "41.3 71.1 81.2 30.3 59.4 72.4 52.9 80.5 87.2 39.6 70.1 79.5"),
        _row("scan", "SCAN", systems.SCAN, "50.4 82.2 90.0 38.6 69.3 80.4 67.4 90.3 95.8 48.6 77.7 85.2"),
        _row("imram", "IMRAM", systems.IMRAM, "53.7 83.2 91.0 39.6 69.1 79.8 74.1 93.0 96.6 53.9 79.4 87.2"),
        _row("dime", "DIME", None, "59.3 85.4 91.9 43.1 73.0 83.1 81.0 95.9 98.4 63.6 88.1 93.0"),
        _row("dsran", "DSRAN", systems.DSRAN, "57.9 85.3 92.0 41.7 72.7 82.8 80.5 95.5 97.9 59.2 86.0 91.9"),
        _row("tags_dc", "TAGS-DC", None, "67.8 89.6 94.2 53.3 80.0 88.0 90.6 98.8 99.1 77.3 94.3 97.3"),
        _row("uniter_dg", "UNITER+DG", None, "51.4 78.7 87.0 39.1 68.0 78.3 78.2 93.0 95.9 66.4 88.2 92.2"),
        _row("soho", "SOHO", None, "66.4 88.2 93.8 50.6 78.0 86.7 86.5 98.1 99.3 72.5 92.7 96.1"),
        _row("vista", "ViSTA", None, "68.9 90.1 95.4 52.6 79.6 87.6 89.5 98.4 99.6 75.8 94.2 96.9"),
        _row("cots", "COTS", None, "69.0 90.4 94.9 52.4 79.0 86.9 90.6 98.7 99.7 76.5 93.9 96.6"),
        _row("lightningdot", "LightningDoT", None, "64.6 87.6 93.5 50.3 78.7 87.5 86.5 97.5 98.9 72.6 93.1 96.1"),
        _row("lexlip", "LexLIP", None, "70.2 90.7 95.2 53.2 79.1 86.7 91.4 99.2 99.7 78.4 94.6 97.1"),
        _row("ascl", "AsCL", systems.ASCL, "94.8 99.4 99.8 66.7 87.3 92.3 99.1 99.8 100 83.0 95.4 97.6"),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=(systems.AS_PRINTED, *systems.NOTES),
)
