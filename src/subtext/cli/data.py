"""`subtext data check`, `prepare`, `dedup`, `join`, `loosen` and `found`."""

from __future__ import annotations

from typing import Any

import click

from subtext.api.load import Sources
from subtext.cli.command import PATH, Command, example, quiet_option
from subtext.cli.data_noise import FOUND


@click.group(epilog=example("subtext data check pairs.jsonl"), context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Look at a data set before training, or make another one of it."""


def _act(ctx: click.Context) -> None:
    from subtext.api.check import check_data

    values = ctx.params
    text, usable = check_data(
        Sources.from_options(values), verify=values["verify"], as_json=values["as_json"], quiet=values["quiet"]
    )
    click.echo(text)
    if not usable:
        ctx.exit(1)


def _sources() -> list[click.Parameter]:
    """DATA, and how it is read."""
    return [
        click.Argument(["data"], type=PATH),
        click.Option(["--images"], type=PATH, help="Folder that picture paths start from; DATA's own if absent."),
        click.Option(["--split-seed"], default=0, show_default=True, help="Seed of splits that are drawn."),
        click.Option(
            ["--bad"],
            type=click.Choice(["refuse", "skip"]),
            default="refuse",
            show_default=True,
            help="What to do with rows that cannot be used.",
        ),
    ]


def _read_from(given: dict[str, Any]) -> Sources:
    return Sources(given["data"], given["images"], split_seed=given["split_seed"], bad=given["bad"])


def _out() -> click.Option:
    return click.Option(["--out"], type=PATH, required=True, metavar="FILE", help="New .jsonl or .parquet file.")


def _join(ctx: click.Context) -> None:
    from subtext.api.join import join

    values = ctx.params
    click.echo(join(values["cells"], values["regions"], values["out"], quiet=values["quiet"]))


def _prepare(ctx: click.Context) -> None:
    from subtext.api.prepare import prepare

    given = ctx.params
    chosen = {name: given[name] for name in ("sentences", "longer_than", "resplit")}
    if not any(chosen.values()):
        raise click.UsageError("nothing to do; name --sentences, --longer-than or --resplit", ctx)
    click.echo(prepare(_read_from(given), given["out"], **chosen))


def _dedup(ctx: click.Context) -> None:
    from subtext.api.prepare import dedup

    given = ctx.params
    chosen = {name: given[name] for name in ("threshold", "words", "quiet")}
    click.echo(dedup(_read_from(given), given["out"], **chosen))


def _loosen(ctx: click.Context) -> None:
    from subtext.api.prepare import Looseness, loosen

    given = ctx.params
    asked = Looseness(given["kind"], given["share"], given["ranks"], given["graph"], given["split"], given["seed"])
    click.echo(loosen(_read_from(given), given["out"], given["labels"], asked))


def _ranks(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    first, dash, last = value.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise click.BadParameter(f"needs FIRST-LAST, such as 1-20; it got {value}", ctx, parameter)
    return int(first), int(last)


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
                click.Option(
                    ["--features"], type=PATH, help="Picture features (docs/datasets.md): do they cover DATA?"
                ),
                click.Option(["--text-features"], type=PATH, help="Text features, likewise: do they cover DATA?"),
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

data.add_command(
    Command(
        "prepare",
        _prepare,
        {
            "Data": _sources(),
            "Prepare": [
                _out(),
                click.Option(["--sentences"], type=click.IntRange(1), help="Keep the first so many of each text."),
                click.Option(
                    ["--longer-than"], type=click.IntRange(1), help="Leave out texts of so many characters or fewer."
                ),
                click.Option(["--resplit"], is_flag=True, help="Draw 80-10-10 in place of DATA's splits."),
            ],
        },
        help="""Write DATA as a file of pairs, with its texts cut or left out, or its splits drawn anew.

        Lengths are those before cutting. Paths of pictures stay as they are: name their folder with --images.""",
        examples=["subtext data prepare politics --longer-than 500 --sentences 2 --out politics2.jsonl"],
        usage="DATA --out FILE [OPTIONS]",
    )
)

data.add_command(
    Command(
        "dedup",
        _dedup,
        {
            "Data": _sources(),
            "Copies": [
                _out(),
                click.Option(
                    ["--threshold"],
                    type=click.FloatRange(0, 1, min_open=True),
                    default=0.8,
                    show_default=True,
                    help="Jaccard similarity from which a text is a copy.",
                ),
                click.Option(
                    ["--words"], type=click.IntRange(1), default=3, show_default=True, help="Words of a compared run."
                ),
                quiet_option(),
            ],
        },
        help="""Write DATA without texts that are nearly copies of another picture's (MinHash), and their pictures.

        Of copies in several splits, test's stays, then val's. Needs datasketch: pip install 'subtext[dedup]'.""",
        examples=["subtext data dedup politics2.jsonl --images politics --out politics3.jsonl"],
        usage="DATA --out FILE [OPTIONS]",
    )
)

data.add_command(
    Command(
        "join",
        _join,
        {
            "Features": [
                click.Argument(["cells"], type=PATH),
                click.Argument(["regions"], type=PATH),
                click.Option(["--out"], type=PATH, required=True, metavar="FILE", help="New .npz file."),
            ],
            "Output": [quiet_option()],
        },
        help="""Write cells and regions of the same pictures as one file of features, for `train dsran --cells N`.

        CELLS has as many parts of every picture, such as the grid of a backbone, REGIONS any number. Both are files of
        features as --features takes them, joined by the names of REGIONS. The narrower ones are filled up with zeros;
        pooled vectors and boxes are left behind.""",
        examples=["subtext data join resnet_grid.npz butd.npz --out both.npz"],
        usage="CELLS REGIONS --out FILE [OPTIONS]",
    )
)

data.add_command(
    Command(
        "loosen",
        _loosen,
        {
            "Data": _sources(),
            "Looseness": [
                _out(),
                click.Option(["--labels"], type=PATH, required=True, metavar="FILE", help="Which pairs; JSON, new."),
                click.Option(
                    ["--share"],
                    type=click.FloatRange(0, 1, min_open=True),
                    default=0.2,
                    show_default=True,
                    help="Of the pairs of each split.",
                ),
                click.Option(
                    ["--kind"],
                    type=click.Choice(["neighbour", "mismatch", "mixed"]),
                    default="neighbour",
                    show_default=True,
                    help="Whose text a pair gets: a semantic neighbour's, anyone's, or half of each.",
                ),
                click.Option(["--graph"], type=PATH, help="Of `subtext neighbours build`: who is a neighbour."),
                click.Option(
                    ["--ranks"],
                    default="1-20",
                    show_default=True,
                    callback=_ranks,
                    metavar="FIRST-LAST",
                    help="How near: among a text's nearest.",
                ),
                click.Option(
                    ["--split"], multiple=True, default=("train",), show_default=True, help="Which; may be repeated."
                ),
                click.Option(["--seed"], type=int, default=0, show_default=True, help="Of the draw."),
            ],
        },
        help="""Write DATA with a known share of its pairs made loose, to see who finds them.

        Texts change places within a split, so none is lost. The labels go to a file that nothing which trains reads;
        the pairs' own file does not tell.""",
        examples=[
            "subtext data loosen captions.jsonl --graph graphs/lsa --out loose.jsonl --labels labels.json",
            "subtext data loosen captions.jsonl --kind mismatch --share 0.5 --out noisy.jsonl --labels labels.json",
        ],
        usage="DATA --out FILE --labels FILE [OPTIONS]",
    )
)

data.add_command(FOUND)
