"""`subtext score`."""

from __future__ import annotations

from subtext.api import score as api
from subtext.cli.command import verb_command

score = verb_command(
    api.score,
    examples=["subtext score claims.jsonl --run runs/first --index library --json"],
    usage="PAIRS --run RUN [OPTIONS]",
    json=True,
)
