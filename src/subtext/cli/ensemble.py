"""`subtext ensemble`."""

from __future__ import annotations

from subtext.api.ensemble import ensemble as verb
from subtext.cli.command import verb_command

ensemble = verb_command(
    verb,
    examples=[
        "subtext ensemble runs/saf runs/sgr --out runs/sgraf",
        "subtext evaluate runs/fast --rerank runs/sgraf --candidates 100",
    ],
    usage="RUN RUN ... --out RUN",
)
