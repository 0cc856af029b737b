"""`subtext embed`."""

from __future__ import annotations

import click

from subtext.api.job import Work
from subtext.cli.command import PATH, Command, data_options, run_options


def _act(ctx: click.Context) -> None:
    out = ctx.params["out"]
    if out.suffix not in (".npz", ".parquet"):
        raise click.UsageError(f"--out needs a name that ends in .npz or .parquet; it got {out.name}", ctx)
    from subtext.api.embed import embed as carry_out

    click.echo(carry_out(Work.from_options(ctx.params), out))


embed = Command(
    "embed",
    _act,
    {
        "Model": [click.Argument(["run"], type=PATH)],
        "Data": [
            *data_options(),
            click.Option(["--split"], default="all", show_default=True, help="Which split; all for the whole set."),
        ],
        "Output": [
            click.Option(["--out"], type=PATH, required=True, metavar="FILE", help="A .npz or .parquet file to write.")
        ],
        "Run": run_options(),
    },
    help="""Write the vectors of a data set's pictures and texts to FILE.

    npz, not compressed: image_ids, image_vectors, image_groups and the same for text; vectors are (N, D) float32, or
    (N, K, D) for a model of K views. Parquet: one row an item, with modality, id, group and vector. Of a probabilistic
    model vectors are means, and each item's uncertainty, the root mean square of its deviations, stands beside them
    (image_uncertainty, text_uncertainty; a column uncertainty).""",
    examples=[
        "subtext embed runs/first --out vectors.npz",
        "subtext embed runs/first --data other.jsonl --split all --out vectors.parquet",
    ],
    usage="RUN --out FILE [OPTIONS]",
)
