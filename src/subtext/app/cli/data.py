"""`subtext data check`."""

from __future__ import annotations

import click

from subtext.app.cli.command import PATH, Command, quiet_option
from subtext.app.job import Sources


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Look at a data set before training."""


def _act(ctx: click.Context) -> None:
    from subtext.app.checking import check_data

    values = ctx.params
    text, usable = check_data(
        Sources.from_options(values), verify=values["verify"], as_json=values["as_json"], quiet=values["quiet"]
    )
    click.echo(text)
    if not usable:
        ctx.exit(1)


data.add_command(
    Command(
        "check",
        _act,
        {
            "Data": [
                click.Argument(["data"], type=PATH),
                click.Option(
                    ["--images"], type=PATH, help="Folder that picture paths start from; DATA's own if absent."
                ),
                click.Option(["--features"], type=PATH, help="Picture features, npz with names: do they cover DATA?"),
                click.Option(["--text-features"], type=PATH, help="Text features, npz with names: do they cover DATA?"),
                click.Option(
                    ["--split-seed"], default=0, show_default=True, help="Seed of the split of data without splits."
                ),
            ],
            "Check": [
                click.Option(["--verify"], is_flag=True, help="Decode every picture, too."),
                click.Option(
                    ["--bad"],
                    type=click.Choice(["refuse", "skip"]),
                    default="refuse",
                    show_default=True,
                    help="Whether bad rows make it unusable, or would be left out.",
                ),
                click.Option(["--json", "as_json"], is_flag=True, help="The report as JSON."),
                quiet_option(),
            ],
        },
        help="""Say what is in DATA, what is wrong with it, and what it is good for: training, evaluation, or neither.

        Exit code 1 when it is good for neither.

        DATA is a JSON-lines, CSV or Parquet file, a folder with metadata.csv or metadata.jsonl, WebDataset tars, a
        Karpathy JSON, a SCAN "precomp" folder, or a folder with corpus, queries and qrels.""",
        examples=[
            "subtext data check captions.jsonl",
            "subtext data check captions.csv --images photos --verify",
            "subtext data check shards --json > report.json",
        ],
        usage="DATA [OPTIONS]",
    )
)
