"""`subtext weights tune`: beta and gamma of `combined`, chosen by validation after trainings on a small subset."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reproduce.tables.material import SUBSET, sample_images
from reproduce.tables.specification import RATIOS, Ratio
from reproduce.tables.trainings import best_ratio
from subtext.api.train import Job, TrainingData, build_setup, initial_record, read_training_data
from subtext.data.atomic import require_file, write_text
from subtext.errors import DataError, RecipeError, counted
from subtext.models.checkpoint import Record
from subtext.neighbours.graph import Graph
from subtext.recipes.catalogue import methods, read_options
from subtext.report.progress import say, training_meter
from subtext.report.text_table import Cell, table
from subtext.training.fit import fit
from subtext.training.setup import RunOptions

METHOD = "combined"


@dataclass(frozen=True)
class Tuned:
    """What is said in the end, and whether somebody stopped it before."""

    text: str
    stopped: bool = False


def tune(job: Job, *, subset: int, spelt: Sequence[str], file: Path | None = None) -> Tuned:
    """Train the nine ratios of the paper on one subset under one protocol, and say which does best on validation.

    job     a training with `combined`; its folder gets a run for each ratio, and what the runs share
    subset  training pictures, drawn by the run's seed; all where there are no more
    spelt   the methods as they were typed          file  gets the same as JSON

    What is finished is opened, what was begun goes on. Raises RecipeError for a training without `combined`, or one
    whose weights read no beta and gamma, DataError where the subset is too small for the neighbours, and what reading,
    building and training raise.
    """
    chosen = ((name, read_options("option", methods()[name].options, values)) for name, values in job.methods)
    job = replace(job, methods=tuple(chosen))
    option = _option(job, spelt)
    if file is not None:
        require_file(file)
    whole, seed = read_training_data(job), int(job.run.get("seed", 0))
    material = replace(whole, train=sample_images(whole.train, subset, SUBSET, seed=seed)[0])
    near = _require_neighbours(job, material)
    # The outputs of frozen encoders are the same for all.
    cache = job.run.get("cache") or job.out / "cache"
    options = RunOptions(**{**job.run, "cache": cache, "resume": True})
    records: list[Record] = []
    for number, ratio in enumerate(RATIOS, start=1):
        run = _at(job, ratio)
        say(f"ratio {number} of {len(RATIOS)}: {_name(ratio)}", quiet=job.quiet)
        setup = build_setup(run, material, seed=seed)
        with training_meter(quiet=job.quiet) as told:
            record = initial_record(run, material, setup)
            fitted = fit(setup, material.train, material.val, run.out, record=record, run=options, report=told)
        if fitted.record.status == "stopped":
            return Tuned(f"stopped in {run.out}; the same command goes on from there", stopped=True)
        records.append(fitted.record)
    found = _found(job, records, option)
    found["subset"] = {
        "pictures": len(material.train.images), "of": len(whole.train.images), "pairs": len(material.train.links),
        "seed": seed, "neighbours": near,
    }  # fmt: skip
    if file is not None:
        write_text(file, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return Tuned(_told(found, job))


def _option(job: Job, spelt: Sequence[str]) -> str:
    """The method as it was typed, ready for a beta and a gamma."""
    chosen = [options for name, options in job.methods if name == METHOD]
    if len(chosen) != 1:
        got = "more than one" if chosen else ", ".join(name for name, _ in job.methods) or "none"
        raise RecipeError(
            f"weights tune chooses beta and gamma of combined: it needs one --with combined:graph=GRAPH; it got {got}"
        )
    if job.val_split is None:
        raise RecipeError("weights tune chooses by validation; it got --val-split none; name a split")
    if chosen[0]["mode"] != "val":
        raise RecipeError(
            f"weights tune needs mode=val; mode={chosen[0]['mode']} reads no beta and gamma; leave it out"
        )
    if not chosen[0]["sign"]:
        raise RecipeError("weights tune needs a sign other than 0, with which all weights are alike; leave it out")
    text = next(text for text in spelt if text.partition(":")[0] == METHOD)
    given = {piece.partition("=")[0].strip() for piece in text.partition(":")[2].split(",")}
    if both := sorted({"beta", "gamma"} & given):
        raise RecipeError(f"weights tune chooses beta and gamma; {' and '.join(both)} cannot be given; leave it out")
    return text.rstrip(",")


def _require_neighbours(job: Job, material: TrainingData) -> dict[str, float]:
    """How many neighbours texts of the subset have in it, and have in all; what cannot be weighted is refused."""
    options = next(options for name, options in job.methods if name == METHOD)
    # Everything that can be refused is, before the first of nine trainings.
    build_setup(_at(job, RATIOS[0]), material, seed=int(job.run.get("seed", 0)))
    graph = Graph.load(Path(str(options["graph"])).expanduser())
    asked, texts = int(str(options["neighbours"])) or graph.width, len(material.train.texts)
    if asked > graph.width:
        raise DataError(f"neighbours={asked} needs a graph of as many; {options['graph']} has {graph.width} a text")
    if texts <= asked:
        raise DataError(
            f"scores of {asked} neighbours need a subset of more than {asked} texts; it has {texts:,}; draw more "
            "pictures (--subset), or ask for fewer neighbours (neighbours=N)"
        )
    mean = float((graph.within(material.train.texts).neighbours[:, :asked] >= 0).sum()) / texts
    if not mean:
        raise DataError(
            "weights need neighbours within the subset; of its texts none has one there; draw more pictures (--subset)"
        )
    return {"in the subset": round(mean, 2), "asked": asked}


def _at(job: Job, ratio: Ratio) -> Job:
    """The training with a ratio, in a folder of its own."""
    both = {"beta": float(ratio[0]), "gamma": float(ratio[1])}
    changed = tuple((name, {**options, **both} if name == METHOD else options) for name, options in job.methods)
    return replace(job, methods=changed, out=job.out / f"beta{ratio[0]:g}-gamma{ratio[1]:g}")


def _found(job: Job, records: Sequence[Record], option: str) -> dict[str, Any]:
    beta, gamma = best_ratio(records)
    value = "loss" if records[0].plan["select"] == "loss" else "rsum"
    rows = [
        {
            "beta": ratio[0], "gamma": ratio[1], value: record.best.get(value), "epoch": record.best_epoch,
            "run": str(_at(job, ratio).out),
        }
        for ratio, record in zip(RATIOS, records, strict=True)
    ]  # fmt: skip
    joined = f"{option}{',' if ':' in option else ':'}beta={beta:g},gamma={gamma:g}"
    chosen = {"beta": beta, "gamma": gamma, "with": joined}
    return {"host": job.model, "split": job.val_split, "selection": value, "ratios": rows, "chosen": chosen}


def _told(found: dict[str, Any], job: Job) -> str:
    value, subset, chosen = found["selection"], found["subset"], found["chosen"]
    rows: list[list[Cell]] = [
        [_name((row["beta"], row["gamma"])), f"{row[value]:.4f}", row["epoch"]] for row in found["ratios"]
    ]
    alike = len({row[value] for row in found["ratios"]}) == 1
    near = subset["neighbours"]
    return "\n".join(
        [
            table(["beta:gamma", value, "epoch"], rows),
            f"{value} on the split {found['split']}, after learning from {subset['pictures']:,} of "
            f"{counted(subset['of'], 'picture')} (seed {subset['seed']}); there a text has {near['in the subset']:g} "
            f"of its {near['asked']:g} neighbours",
            *(["all are equal: nothing is learnt from this; in a first epoch all pairs weigh alike"] if alike else []),
            f"best, and the first of equals: {_name((chosen['beta'], chosen['gamma']))}; use it with",
            f"  --with {shlex.quote(chosen['with'])}",
        ]
    )


def _name(ratio: Ratio) -> str:
    return f"{ratio[0]:g}:{ratio[1]:g}"
