"""`subtext search`."""

from __future__ import annotations

from subtext.api import search as api
from subtext.cli.command import verb_command

search = verb_command(
    api.search,
    examples=[
        'subtext search library "a dog that waits for its owner"',
        "subtext search library --image photo.jpg --target texts --top 5",
        'subtext search library "the same at night" --image photo.jpg --image-weight 0.7',
        'subtext search library --like 1936-041 --not-text "a dog" --diversity 0.3',
        'subtext search library "empty street" --min-probability 0.2 --explain --json',
        'subtext search library "a dog that waits" --rerank runs/expensive --candidates 200',
        "subtext search library \"empty street\" --where 'year < 1950' --where 'place in Paris, Wien'",
    ],
    usage='INDEX "QUERY" | --image FILE | --like ID [OPTIONS]',
    json=True,
    renamed={
        "--by-words": "--lexical",
        "--for": "--target",
        "--hubs": "--hubness",
        "--unlike": "--not-like",
        "--unlike-weight": "--not-like-weight",
        "--why": "--explain",
        "--without": "--not-text",
    },
)
