"""`subtext evaluate`: figures with intervals beside chance, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.app.figures import SHOWN, figures_table
from subtext.app.job import Sources, Work
from subtext.app.opened import Opened, open_work, remembered
from subtext.app.output import require_file
from subtext.app.progress import meter
from subtext.app.table import Cell, table
from subtext.checkpoint import Record
from subtext.errors import RequirementError, counted
from subtext.evaluate import Protocol, Result, embed_pairs, evaluate_embeddings
from subtext.evaluate.preservation import FIGURES, with_preservation
from subtext.neighbours.graph import Graph
from subtext.search import model_fingerprint


def evaluate(
    work: Work,
    protocol: Mapping[str, Any],
    json_out: Path | None,
    per_query: Path | None,
    *,
    graph: Path | None = None,
) -> Result:
    """Evaluate as the work says, and write what is asked for.

    protocol   fields of `subtext.evaluate.Protocol`
    graph      a semantic graph, for how much of it the joint space keeps
    json_out   file for figures and protocol; per_query  npz for one value a query

    Raises what opening, reading and evaluating raise; OutputError for a file that cannot be written, before the
    work begins.
    """
    asked = Protocol(**protocol)
    files = [path for path in (json_out, per_query) if path is not None]
    for path in files:
        require_file(path)
    if len({path.resolve() for path in files}) < len(files):
        raise RequirementError(f"figures and values a query need a file each; both are to go to {json_out}")
    semantic = None if graph is None else Graph.load(graph.expanduser())
    opened = open_work(work)
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
        result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=asked)
    if semantic is not None:
        result = with_preservation(result, opened.model.similarity, items, pairs, semantic, protocol=asked)
    role, warning = _role(opened, work.sources)
    about = {**_subject(opened, work), "split": opened.split, "split_role": role}
    result = replace(result, about=about, notes=(*([warning] if warning else []), *result.notes))
    if json_out is not None:
        result.save(json_out)
    if per_query is not None:
        result.save_queries(per_query)
    return result


def summary(result: Result) -> str:
    """The figures for people: what was measured, a table with intervals and chance, and the notes."""
    asked = result.protocol
    gallery, folds = asked["gallery"], asked["folds"]
    what = f"split {result.about['split']} of {Path(result.about['data']['data']).name}"
    counts = f"{counted(gallery['pictures'], 'picture')}, {counted(gallery['texts'], 'text')}"
    head = f"{what}: {counts}{f', {folds} folds' if folds > 1 else ''}; ties {asked['ties']}"
    intervals = result.intervals if asked["bootstrap"] else None
    recalls = [f"recall@{k}" for k in asked["recall"]]
    names = [*recalls, *(name for name in SHOWN if "recall" not in name)]
    lines = [head, figures_table(result.figures, result.chance, intervals, names=names)]
    ways = [f"{c}_way{what}" for c in asked["c_way"] for what in ("@1", "@3", "_mean_rank")]
    if any(name.split("/")[-1] in ways for name in result.figures):
        lines.append(figures_table(result.figures, result.chance, intervals, names=ways, summed=False))
    if FIGURES[0] in result.figures:
        lines.append(_kept(result))
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def _kept(result: Result) -> str:
    rows: list[list[Cell]] = []
    for name, label in zip(FIGURES, ("pictures", "texts"), strict=True):
        ends = result.intervals.get(name)
        between = None if ends is None else f"{ends[0]:.1f}-{ends[1]:.1f}"
        rows.append([label, result.figures[name], between, result.chance[name]])
    return table(["semantic neighbours kept, %", "", "95 %", "chance"], rows)


def _subject(opened: Opened, work: Work) -> dict[str, Any]:
    """Which model, and on what data."""
    record, sources = opened.record, work.sources
    model: dict[str, Any] = {"fingerprint": model_fingerprint(opened.model)}
    if record is None:
        model = {"pretrained": work.model, **model}
    else:
        assert work.run is not None
        sources = sources.over(remembered(record.data))
        model = {
            "run": str(work.run.expanduser().resolve()),
            "host": record.host,
            "arguments": record.arguments,
            "methods": [list(method) for method in record.methods],
            "seed": record.seed,
            "epoch": record.best_epoch,
            "epochs": record.epochs,
            "training": record.status,
            **model,
        }
    return {"model": model, "data": sources.to_json()}


def _role(opened: Opened, given: Sources) -> tuple[str, str]:
    """What the split was to the run: "training", "selection", "held out" or "unknown"; and a warning where one is due.

    Only the run's own file is known: of another one nobody can say whether it holds the same pictures.
    """
    record, split = opened.record, opened.split
    if record is None or (given.data is not None and given.to_json()["data"] != record.data.data):
        return "unknown", ""
    if given.split_seed not in (None, record.data.split_seed):
        return "unknown", (
            f"--split-seed {given.split_seed} is not the run's, {record.data.split_seed}: where the data has no splits "
            "of its own, this one holds pictures that the run learnt from"
        )
    if split in ("all", record.data.train_split):
        holds = "holds" if split == "all" else "is"
        return "training", f"split {split} {holds} what the run learnt from: these figures say nothing about new data"
    if split == record.data.val_split and (guided := _guided(record)):
        return "selection", f"split {split} {guided}: expect a little less on data that decided nothing (--split NAME)"
    return "held out", ""


def _guided(record: Record) -> str:
    """What the validation split decided in a training; empty when it was only looked at."""
    if record.plan.get("select") != "last":
        return f"selected the epoch, {record.best_epoch} of {record.epochs}"
    stops = bool(record.plan.get("patience")) or record.plan.get("schedule") == "plateau"
    return "decided how long the run learnt, and how fast" if stops else ""
