"""`subtext neighbours build` and `subtext neighbours show`."""

from __future__ import annotations

import click

from subtext.api import neighbours as api
from subtext.cli.command import HELP, CommandGroup, example, verb_command


@click.group(
    cls=CommandGroup,
    epilog=example(
        "subtext neighbours build neighbours --data pairs.jsonl --space lsa",
        "subtext neighbours show neighbours --item 17",
    ),
    context_settings={"help_option_names": list(HELP)},
)
def neighbours() -> None:
    """Find the semantic neighbours of each text, or show them."""


neighbours.add_command(
    verb_command(
        api.build_neighbours,
        name="build",
        renamed={
            "--among": "--candidate-split",
            "--same-picture": "--same-image",
            "--sentences": "--max-sentences",
            "--space-epochs": "--doc2vec-epochs",
            "--width": "--dim",
        },
        examples=[
            "subtext neighbours build graphs/lsa --data captions.jsonl --space lsa",
            "subtext neighbours build graphs/d2v --data captions.jsonl --neighbours 50 --min-count 5",
        ],
        usage="OUT --data DATA [OPTIONS]",
    )
)

neighbours.add_command(
    verb_command(
        api.show_neighbours,
        name="show",
        json=True,
        examples=[
            "subtext neighbours show graphs/lsa",
            "subtext neighbours show graphs/lsa --item 1000268201_693b08cb0e.jpg --html near.html",
        ],
        usage="GRAPH [OPTIONS]",
    )
)
