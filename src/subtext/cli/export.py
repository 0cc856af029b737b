"""`subtext export`."""

from __future__ import annotations

import click

from subtext.cli.command import PATH, Command, quiet_option


def _act(ctx: click.Context) -> None:
    values = ctx.params
    if (values["hf"] is None) == (values["onnx"] is None):
        raise click.UsageError("give either --hf DIR or --onnx DIR", ctx)
    if values["hf"] is not None:
        from subtext.export.hub import export as to_hub

        click.echo(to_hub(values["run"], values["hf"]))
        return
    from subtext.export.onnx import export as to_onnx

    click.echo(to_onnx(values["run"], values["onnx"], quiet=values["quiet"]))


export = Command(
    "export",
    _act,
    {
        "Model": [click.Argument(["run"], type=PATH)],
        "Output": [
            click.Option(["--hf"], type=PATH, metavar="DIR", help="A folder as the Hub keeps models."),
            click.Option(["--onnx"], type=PATH, metavar="DIR", help="image.onnx, text.onnx, and how to feed them."),
        ],
        "Run": [quiet_option()],
    },
    help="""Write RUN for other libraries, and compare what was written with the model before saying done.

    --hf: a fine-tuned CLIP or SigLIP becomes a folder that transformers opens without Subtext; any other model one
    that subtext.load opens. --onnx: a graph a side, for any number of items (extra: onnx).""",
    examples=["subtext export runs/first --hf first-hf", "subtext export runs/first --onnx first-onnx"],
    usage="RUN --hf DIR | --onnx DIR",
)
