"""`subtext table`: the rows of a published table, trained here and put beside what was printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reproduce.tables.specification import DATA_SETS, Published, tables
from subtext.api.load import Sources
from subtext.cli.command import PATH, Command, device_option, quiet_option, workers_option
from subtext.recipes.catalogue import unknown


def _act(ctx: click.Context) -> None:
    given = ctx.params
    if given["listed"]:
        click.echo(listing())
        return
    if given["name"] is None or given["out"] is None:
        raise click.UsageError("name a table and a folder: subtext table NAME --out DIR; --list shows the tables", ctx)
    if given["name"] not in tables():
        raise click.UsageError(unknown("table", given["name"], tables()), ctx)
    asked = _asked(ctx, tables()[given["name"]])
    from reproduce.tables.make import make, plan

    if given["planned"]:
        click.echo(plan(asked))
        return
    made = make(asked)
    click.echo(made.text)
    if made.stopped:
        ctx.exit(130)
    if made.failed:
        ctx.exit(1)


def listing() -> str:
    """Every table with its rows and data sets."""
    lines = []
    for name, table in tables().items():
        data = ", ".join(f"{key} ({DATA_SETS[key].name}, {DATA_SETS[key].c}-way)" for key in table.data)
        lines += [f"{name}  {table.paper}: {table.title}", f"  data: {data}"]
        lines.append(f"  rows: {', '.join(row.key for row in table.rows if row.trained)}")
    return "\n".join(lines)


def _asked(ctx: click.Context, table: Published) -> Any:
    from reproduce.tables.request import Asked

    given = ctx.params
    changes = _pairs(ctx, "--set", given["changes"])
    if given["epochs"] is not None:
        changes["epochs"] = str(given["epochs"])
    same = ("seeds", "trials", "subset", "sweep", "split", "val_split", "space", "neighbours", "min_count", "c", "out")
    return Asked(
        name=given["name"],
        table=table,
        rows=table.chosen([key.strip() for key in given["rows"].split(",") if key.strip()]),
        data=_sources(ctx, table),
        changes={name.replace("-", "_"): value for name, value in changes.items()},
        graphs={key: Path(value) for key, value in _pairs(ctx, "--graph", given["graph"]).items()},
        device=given["device"],
        workers=given["workers"],
        quiet=given["quiet"],
        **{name: given[name] for name in same},
    )


def _sources(ctx: click.Context, table: Published) -> dict[str, Sources]:
    """The data sets by key, each with its pictures and features."""
    given = ctx.params
    found: dict[str, Path] = {}
    for text in given["data"]:
        key, equals, place = text.partition("=")
        if equals and not Path(text).exists():
            found[key] = Path(place)
        elif inside := {key: Path(text) / key for key in table.data if (Path(text) / key).exists()}:
            found |= inside
        else:
            found[_called(Path(text))] = Path(text)
    more: dict[str, dict[str, str]] = {}
    for option in ("images", "features", "text_features"):
        flag = f"--{option.replace('_', '-')}"
        more[option] = _pairs(ctx, flag, given[option], alone=next(iter(found)) if len(found) == 1 else None)
        for key in more[option]:
            if key not in found:
                raise click.UsageError(f"{flag} {key}=...: {unknown('data set given', key, found)}", ctx)

    given_files = [("--data", key, str(path)) for key, path in found.items()]
    given_files += [(f"--{name.replace('_', '-')}", key, place) for name in more for key, place in more[name].items()]
    for flag, key, place in given_files:
        if not Path(place).expanduser().exists():
            raise click.UsageError(f"{flag} {key}={place} needs a file or folder that is there; there is none", ctx)

    def of(option: str, key: str) -> Path | None:
        return Path(more[option][key]) if key in more[option] else None

    return {
        key: Sources(
            data=path,
            images=of("images", key),
            features=of("features", key),
            text_features=of("text_features", key),
            split_seed=given["split_seed"],
            on_error=given["on_error"],
        )
        for key, path in found.items()
    }


def _called(path: Path) -> str:
    """What a data set that has no name given is called: as its folder, or its file."""
    name = path.resolve().stem if path.is_file() else path.resolve().name
    return name.lower().replace(" ", "_")


def _pairs(ctx: click.Context, flag: str, texts: Sequence[str], *, alone: str | None = None) -> dict[str, str]:
    """`key=value` texts; a text without a key goes to `alone`."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals and alone is None:
            raise click.UsageError(f"{flag} needs the form NAME=VALUE; it got '{text}'", ctx)
        found[key.strip() if equals else str(alone)] = value.strip() if equals else text
    return found


def _count(name: str, default: int | None, text: str, least: int = 1) -> click.Option:
    shown = default is not None
    return click.Option([name], type=click.IntRange(least), default=default, show_default=shown, help=text)


def _several(names: list[str], metavar: str, text: str) -> click.Option:
    return click.Option(names, multiple=True, metavar=metavar, help=text)


def _text(name: str, default: str, text: str) -> click.Option:
    return click.Option([name], default=default, show_default=bool(default), help=text)


table = Command(
    "table",
    _act,
    {
        "Table": [
            click.Argument(["name"], required=False),
            click.Option(["--list", "listed"], is_flag=True, help="Tables, their rows and data sets."),
            click.Option(["--out"], type=PATH, metavar="DIR", help="Folder for runs, shared graphs and the table."),
            _text("--rows", "", "Keys of rows with commas between them. Default: all."),
            click.Option(["--plan", "planned"], is_flag=True, help="Say which trainings there are; train nothing."),
        ],
        "Data": [
            _several(
                ["--data"],
                "NAME=DATA",
                "A data set; repeatable. NAME as --list has it, or your own: then it has columns of that name. A "
                "folder without NAME is looked through for data sets of those names.",
            ),
            _several(["--images"], "NAME=DIR", "Folder that picture paths start from."),
            _several(["--features"], "NAME=FILE", "Precomputed picture features, in place of ResNet-50."),
            _several(["--text-features"], "NAME=FILE", "Precomputed text features."),
            _text("--split", "test", "Split that is scored."),
            _text(
                "--val-split", "val", "Split that selects the epoch; the scored one: a tenth of training does instead."
            ),
            click.Option(["--split-seed"], type=int, help="Seed of the 80-10-10 split of data without splits."),
            click.Option(
                ["--on-error"], type=click.Choice(["raise", "skip"]), help="What to do with rows that cannot be used."
            ),
        ],
        "Protocol": [
            _count("--seeds", 3, "Trainings of each row."),
            _count("--trials", 1, "Learning rates that each row may try, chosen by validation."),
            _count("--subset", None, "Training pictures, drawn once for all rows. Default: all.", 2),
            _count(
                "--sweep", 1000, "COMBINED-VAL on own data: pictures on which β : γ is chosen of nine; 0: 3 : 1.", 0
            ),
            _count("--epochs", None, "Passes over the training pairs. Default: the table's."),
            _several(["--set", "changes"], "OPTION=VALUE", "Change an option of every row's host or training."),
            _count("--c", 20, "Candidates of a choice on a data set that is not the paper's.", 2),
        ],
        "Neighbours": [
            _text("--space", "doc2vec", "doc2vec, lsa, sentence:NAME, text-features:FILE."),
            _count("--neighbours", 200, "Neighbours of each text."),
            _count("--min-count", 20, "doc2vec: rarer words are left out."),
            _several(["--graph"], "NAME=DIR", "A graph of the training texts that is there already, with its space."),
        ],
        "Run": [device_option(), workers_option(), quiet_option()],
    },
    help="""Train the rows of a published table under one protocol, and print our numbers beside the paper's.

    Each cell has the mean and spread over seeds, the paper's number, and a paired test against the row's baseline. A
    data set that is not given, or a method that there is not, is named in the cell: nothing stands in for it. The same
    command goes on where it was stopped, and trains nothing twice.""",
    examples=[
        "subtext table --list",
        "subtext table cvprw2022_table3 --data politics=politics3.jsonl --images politics=politics --out tables --plan",
        "subtext table cvprw2022_table2 --data mine=pairs.jsonl --rows pvse,diversity --epochs 5 --out tables",
    ],
    usage="NAME --out DIR [--data NAME=DATA ...] [OPTIONS]",
)
