"""ICME 2024 (AsCL), Figure 3: RSUM by the generated texts; the paper draws bars and prints no numbers."""

from __future__ import annotations

from reproduce.systems import ascl2024 as systems
from reproduce.tables.specification import Column, PublishedTable, Row

_NAMES = {
    "shuffle_embedding": "noise: Shuffle, of word vectors (not in the paper)",
    **{name: f"noise: {name.capitalize()}" for name in ("shuffle", "dropout", "gaussian", "cutoff", "mixture")},
    "long": "positives: long (Asymmetry II)",
    "short": "positives: short (Asymmetry III)",
    "mixed": "positives: both",
}
"""`mixture` and `mixed` are one system, AsCL itself, which is in both panels."""

TABLE = PublishedTable(
    title="COCO and Flickr30K: the sum of six recalls, by noise and by added positives",
    paper=f"{systems.PAPER}, Figure 3",
    columns=tuple(Column(data, "rsum") for data in ("coco", "flickr30k")),
    rows=tuple(
        Row(key, _NAMES[key], system, (None, None)) for key, system in {**systems.NOISES, **systems.POSITIVES}.items()
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    notes=(
        "According to the text, short beats long, and mixture beats every single noise.",
        *systems.NOTES,
    ),
)
