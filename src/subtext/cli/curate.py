"""`subtext curate`."""

from __future__ import annotations

from subtext.api import curate as api
from subtext.cli.command import verb_command

curate = verb_command(
    api.curate,
    examples=[
        "subtext curate pairs.jsonl --run runs/first --out curated",
        "subtext curate pairs.jsonl --run runs/first --out curated --export clean.parquet --mismatch-threshold 0.8",
    ],
    usage="DATA --run RUN --out DIR [OPTIONS]",
    renamed={"--mismatched": "--mismatch-threshold", "--shown": "--page-pairs"},
)
