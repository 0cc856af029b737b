"""`subtext data check`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.app.cli.command import PATH, example


@click.group()
def data() -> None:
    """Look at a data set before training."""


@data.command(
    epilog=example(
        "subtext data check captions.jsonl",
        "subtext data check captions.csv --images photos --verify",
        "subtext data check shards/ --json > report.json",
    )
)
@click.argument("data", type=PATH)
@click.option("--images", type=PATH, help="Folder that picture paths start from; the file's own folder if not given.")
@click.option("--features", type=PATH, help="Picture features, npz with names: checked against the pictures.")
@click.option("--text-features", type=PATH, help="Text features, npz with names: checked against the texts.")
@click.option("--verify", is_flag=True, help="Decode every picture, rather than look whether its file is there.")
@click.option("--split-seed", default=0, show_default=True, help="Seed of the 80-10-10 split of data without splits.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def check(
    data: Path,
    images: Path | None,
    features: Path | None,
    text_features: Path | None,
    verify: bool,
    split_seed: int,
    as_json: bool,
) -> None:
    """Say what is in DATA and what is wrong with it, row by row.

    DATA is a JSON-lines, CSV or Parquet file, a folder with metadata.csv or metadata.jsonl, WebDataset tars, a Karpathy
    JSON, a SCAN "precomp" folder, or a folder with corpus, queries and qrels. Exit code 1 when it cannot be used.
    """
    from subtext.app.checking import check_data

    report = check_data(
        data, images=images, features=features, text_features=text_features, verify=verify, split_seed=split_seed
    )
    click.echo(report.to_json() if as_json else report.text())
    if not report.usable:
        raise click.exceptions.Exit(1)
