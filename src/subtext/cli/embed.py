"""`subtext embed`."""

from __future__ import annotations

from subtext.api import embed as api
from subtext.cli.command import verb_command

embed = verb_command(
    api.embed,
    examples=[
        "subtext embed runs/first --out vectors.npz",
        "subtext embed runs/first --data other.jsonl --split all --out vectors.parquet",
    ],
    required=["out"],
    usage="RUN --out FILE [OPTIONS]",
)
