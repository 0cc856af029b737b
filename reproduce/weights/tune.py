"""`python -m reproduce.weights tune MODEL`: beta and gamma of `combined`, chosen by validation on a small subset.

Every model recipe is a command with the options of `subtext train`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.tables.material import SUBSET, sample_images
from reproduce.tables.specification import RATIOS, Ratio
from reproduce.tables.trainings import best_ratio
from subtext.api.train import flat_arguments
from subtext.cli.train import Models, is_first, training_command
from subtext.data import atomic
from subtext.errors import DataError, RecipeError
from subtext.graphs.graph import Graph
from subtext.models.checkpoint import Record
from subtext.recipes.catalogue import methods as known_methods, models, read_method, read_options
from subtext.report.progress import say
from subtext.report.text_table import Cell, table
from subtext.text_helpers import counted

METHOD = "combined"
WITHOUT = ("resume", "dry_run")
"""Options of `subtext train` that make no sense here: the command resumes by itself."""
EXAMPLE = "python -m reproduce.weights tune {} --data pairs.jsonl --with combined:graph=g --out sweep"


@dataclass(frozen=True)
class Tuned:
    """What is printed in the end, and whether somebody stopped it before."""

    text: str
    stopped: bool = False


def choose_ratio(model: str, arguments: Mapping[str, Any], *, subset: int, file: Path | None = None) -> Tuned:
    """Train the nine ratios of the paper on one subset under one protocol; the best on validation.

    arguments  of `subtext.train`, flat, with `combined` among `methods`; `out` gets a run for each ratio
    subset     training images, sampled by the seed; all where there are no more
    file       gets the result as JSON

    Finished runs are read, and begun ones resumed. Raises RecipeError for a training without `combined`, or one whose
    weights read no beta and gamma, DataError where the subset is too small for the neighbours, and what reading,
    building and training raise.
    """
    text = _method(arguments)
    if file is not None:
        atomic.require_file(file)
    seed, quiet, out = int(arguments.get("seed", 0)), bool(arguments.get("quiet")), Path(arguments["out"])
    names, reads_images = ("images", "split_seed", "on_error"), arguments.get("features") is None
    sources = {name: arguments[name] for name in names if arguments.get(name) is not None}
    dataset = st.read(arguments["data"], verify=reads_images, need_images=reads_images, **sources)
    complete = dataset.split(arguments.get("train_split", "train"))
    train = sample_images(complete, subset, SUBSET, seed=seed)[0]
    shared = {**arguments, "train_data": train, "val_data": dataset.split(arguments.get("val_split", "val"))}
    # The outputs of frozen encoders are the same for all.
    shared["cache"] = arguments.get("cache") or out / "cache"
    # Everything that can be refused is, before the first of nine trainings.
    given = [read_method(method) for method in arguments["methods"]]
    methods = [(name, read_options("option", known_methods()[name].options, values)) for name, values in given]
    neighbours = _require_neighbours(dict(methods)[METHOD], train)

    def training(ratio: Ratio) -> dict[str, Any]:
        weights = {"beta": float(ratio[0]), "gamma": float(ratio[1])}
        weighted = [(name, {**options, **weights} if name == METHOD else options) for name, options in methods]
        return {**shared, "methods": weighted, "out": _folder(out, ratio), "resume": True}

    st.train(model, **flat_arguments(model, {**training(RATIOS[0]), "quiet": True, "dry_run": True}))
    records: list[Record] = []
    for number, ratio in enumerate(RATIOS, start=1):
        say(f"ratio {number} of {len(RATIOS)}: {_name(ratio)}", quiet=quiet)
        run = st.train(model, **flat_arguments(model, training(ratio)))
        if run.record.status == "stopped":
            return Tuned(f"stopped in {run.path}; the same command resumes", stopped=True)
        records.append(run.record)
    beta, gamma = best_ratio(records)
    value = "loss" if records[0].plan["select"] == "loss" else "rsum"
    rows = [
        {
            "beta": ratio[0],
            "gamma": ratio[1],
            value: record.best.get(value),
            "epoch": record.best_epoch,
            "run": str(_folder(out, ratio)),
        }
        for ratio, record in zip(RATIOS, records, strict=True)
    ]
    chosen = f"{text}{',' if ':' in text else ':'}beta={beta:g},gamma={gamma:g}"
    result: dict[str, Any] = {
        "host": model,
        "split": arguments.get("val_split", "val"),
        "selection": value,
        "ratios": rows,
        "chosen": {"beta": beta, "gamma": gamma, "with": chosen},
        "subset": {
            "pictures": len(train.images),
            "of": len(complete.images),
            "pairs": len(train.links),
            "seed": seed,
            "neighbours": neighbours,
        },
    }
    if file is not None:
        atomic.write_text(file, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return Tuned(_summary(result))


def _method(arguments: Mapping[str, Any]) -> str:
    """The method as it was typed, ready for a beta and a gamma."""
    methods: Sequence[str] = arguments.get("methods", ())
    combined = [text for text in methods if text.partition(":")[0] == METHOD]
    if len(combined) != 1:
        got = "more than one" if combined else ", ".join(text.partition(":")[0] for text in methods) or "none"
        raise RecipeError(
            f"weights tune chooses beta and gamma of combined: it needs one --with combined:graph=GRAPH; it got {got}"
        )
    if arguments.get("val_split", "val") in (None, "none"):
        raise RecipeError("weights tune chooses by validation; it got --val-split none; name a split")
    options = {part.partition("=")[0].strip() for part in combined[0].partition(":")[2].split(",")}
    if both := sorted({"beta", "gamma"} & options):
        raise RecipeError(f"weights tune chooses beta and gamma; {' and '.join(both)} cannot be given; leave it out")
    return combined[0].rstrip(",")


def _require_neighbours(options: Mapping[str, Any], train: st.Dataset) -> dict[str, float]:
    """How many neighbours texts of the subset have in it, and were requested; what cannot be weighted is refused."""
    if options["mode"] != "val":
        raise RecipeError(f"weights tune needs mode=val; mode={options['mode']} reads no beta and gamma; leave it out")
    if not options["sign"]:
        raise RecipeError("weights tune needs a sign other than 0, with which all weights are alike; leave it out")
    if not options["graph"]:
        raise RecipeError(
            f"{METHOD} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    graph = Graph.load(Path(options["graph"]).expanduser())
    requested, texts = int(options["neighbours"]) or graph.width, len(train.texts)
    if requested > graph.width:
        raise DataError(f"neighbours={requested} needs a graph of as many; {options['graph']} has {graph.width} a text")
    if texts <= requested:
        raise DataError(
            f"scores of {requested} neighbours need a subset of more than {requested} texts; it has {texts:,}; sample "
            "more images (--subset), or use fewer neighbours (neighbours=N)"
        )
    mean = float((graph.restrict_to(train.texts).neighbours[:, :requested] >= 0).sum()) / texts
    if not mean:
        raise DataError(
            "weights need neighbours within the subset; of its texts none has one; sample more images (--subset)"
        )
    return {"in the subset": round(mean, 2), "asked": requested}


def _folder(out: Path, ratio: Ratio) -> Path:
    return out / f"beta{ratio[0]:g}-gamma{ratio[1]:g}"


def _summary(result: Mapping[str, Any]) -> str:
    value, subset, chosen = result["selection"], result["subset"], result["chosen"]
    rows: list[list[Cell]] = [
        [_name((row["beta"], row["gamma"])), f"{row[value]:.4f}", row["epoch"]] for row in result["ratios"]
    ]
    equal = len({row[value] for row in result["ratios"]}) == 1
    neighbours = subset["neighbours"]
    return "\n".join(
        [
            table(["beta:gamma", value, "epoch"], rows),
            f"{value} on the split {result['split']}, after training on {subset['pictures']:,} of "
            f"{counted(subset['of'], 'image')} (seed {subset['seed']}); a text has {neighbours['in the subset']:g} of "
            f"its {neighbours['asked']:g} neighbours there",
            *(["all are equal: this says nothing; in a first epoch all pairs weigh alike"] if equal else []),
            f"best, and the first of equals: {_name((chosen['beta'], chosen['gamma']))}; use it with",
            f"  --with {shlex.quote(chosen['with'])}",
        ]
    )


def _name(ratio: Ratio) -> str:
    return f"{ratio[0]:g}:{ratio[1]:g}"


class TunedModels(Models):
    """The group whose commands are the model recipes; one has to be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words as they are: no model is recommended."""
        return click.Group.parse_args(self, ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a model."""
        return _command(cmd_name) if cmd_name in models() else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The models with their summaries."""
        click.Group.format_commands(self, ctx, formatter)


@click.group(
    cls=TunedModels,
    options_metavar="",
    subcommand_metavar="MODEL --data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"\b\nExample:\n  {EXAMPLE.format('pvse')}",
)
def tune() -> None:
    """Choose beta and gamma of the method combined (COMBINED-VAL) by validation, on a small subset."""


def _command(model: str) -> click.Command:
    recipe = models()[model]
    sweep = [
        click.Option(
            ["--subset"],
            type=click.IntRange(2),
            default=1000,
            show_default=True,
            help="Training images, sampled once by the seed; all where there are no more.",
        ),
        click.Option(
            ["--json", "file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the result as JSON, too.",
        ),
    ]

    def act(ctx: click.Context, arguments: dict[str, Any]) -> None:
        tuned = choose_ratio(model, arguments, subset=ctx.params["subset"], file=ctx.params["file"])
        if is_first():
            click.echo(tuned.text)
        if tuned.stopped:
            ctx.exit(130)

    command = training_command(
        recipe,
        act,
        without=WITHOUT,
        more=sweep,
        help=f"""Train the nine ratios of the paper for {model}, and report which does best on validation.

        1:1, 1:2, 2:1, 1:3, 3:1, 1:4, 4:1, 1:5 and 5:1, each on the same subset with the same options and seed, judged
        by what selects the epoch (--select); of equals the first. Options are those of `subtext train {model}`; the
        last line is the one to train with.""",
        examples=[EXAMPLE.format(model)],
        usage="--data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    )
    command.short_help = recipe.summary
    for option in command.params:
        if isinstance(option, click.Option) and option.name == "out":
            option.help, option.metavar = "Folder with a run for each ratio; the same command resumes.", "DIR"
    return command
