"""`subtext data`: check a data set, make another one of it, plant and detect noise."""

from __future__ import annotations

import click

from subtext.api import check as check_api
from subtext.api import detect_noise as detect_noise_api
from subtext.api import prepare as prepare_api
from subtext.cli.command import HELP, CommandGroup, example, verb_command

RENAMED = {"found": "detect-noise", "loosen": "corrupt"}
"""Old command -> its name now."""


class Data(CommandGroup):
    """The group, which also knows the old names of its commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; an old name works with a note on standard error."""
        if cmd_name in RENAMED:
            old, cmd_name = cmd_name, RENAMED[cmd_name]
            click.echo(f"note: data {old} is now data {cmd_name}; the old name goes away in the next release", err=True)
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Data, epilog=example("subtext data check pairs.jsonl"), context_settings={"help_option_names": list(HELP)}
)
def data() -> None:
    """Check a data set before training, or make another one of it."""


data.add_command(
    verb_command(
        check_api.check,
        json=True,
        succeeded=lambda report: report.usable,
        examples=[
            "subtext data check captions.jsonl",
            "subtext data check captions.csv --images photos --verify",
            "subtext data check shards --json > report.json",
        ],
        usage="DATA [OPTIONS]",
    )
)

data.add_command(
    verb_command(
        prepare_api.prepare,
        required=["out"],
        renamed={"--sentences": "--max-sentences"},
        examples=["subtext data prepare politics --longer-than 500 --max-sentences 2 --out politics2.jsonl"],
        usage="DATA --out FILE [OPTIONS]",
    )
)

data.add_command(
    verb_command(
        prepare_api.dedup,
        required=["out"],
        renamed={"--words": "--shingle-size"},
        examples=["subtext data dedup politics2.jsonl --images politics --out politics3.jsonl"],
        usage="DATA --out FILE [OPTIONS]",
    )
)

data.add_command(
    verb_command(
        prepare_api.join,
        examples=["subtext data join resnet_grid.npz butd.npz --out both.npz"],
        usage="CELLS REGIONS --out FILE [OPTIONS]",
    )
)

data.add_command(
    verb_command(
        prepare_api.corrupt,
        required=["out", "labels"],
        renamed={"--kind": "--noise-type", "--ranks": "--neighbour-ranks", "--share": "--noise-rate"},
        examples=[
            "subtext data corrupt captions.jsonl --graph graphs/lsa --out noisy.jsonl --labels labels.json",
            "subtext data corrupt captions.jsonl --noise-type mismatch --noise-rate 0.5 --out noisy.jsonl "
            "--labels labels.json",
        ],
        usage="DATA --out FILE --labels FILE [OPTIONS]",
    )
)

data.add_command(
    verb_command(
        detect_noise_api.detect_noise,
        name="detect-noise",
        json=True,
        required=["labels"],
        examples=["subtext data detect-noise runs/noisy --labels labels.json --graph graphs/noisy"],
        usage="RUN --labels FILE [OPTIONS]",
    )
)
