"""`subtext evaluate`: figures with intervals beside chance, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.api.external import Files, judge, read_split
from subtext.api.extra_metrics import Wanted
from subtext.api.load import (
    Opened,
    Sources,
    Work,
    choose_device,
    choose_precision,
    open_work,
    remembered,
    require_features,
)
from subtext.api.split_role import split_role
from subtext.api.two_stage import Rerank, drawing, stage_of, told
from subtext.core import DIRECTIONS, Embeddings
from subtext.data.atomic import write_text
from subtext.data.lengths import cut_note, too_long
from subtext.data.output import require_file
from subtext.errors import RequirementError, counted
from subtext.evaluation import Protocol, Result, embed_pairs, evaluate_embeddings
from subtext.evaluation.preservation import FIGURES, with_preservation
from subtext.evaluation.results import SHOWN, figures_table
from subtext.evaluation.space import compares_vectors, space_of_pairs, with_space
from subtext.evaluation.two_stages import evaluate_two_stage, require_plan
from subtext.models.checkpoint import Record
from subtext.models.model import Model
from subtext.neighbours.graph import Graph
from subtext.report.progress import meter, say
from subtext.report.text_table import Cell, table
from subtext.search import model_fingerprint

_QUIET = ("mrr", "tie_share", "nan_scores")
"""Figures for the JSON, and none for a terminal."""
_ALONE = (
    "human/", "alignment", "text/alignment", "image/uniformity", "text/uniformity", "image/uncertainty",
    "text/uncertainty", "own_pair/",
)  # fmt: skip
"""Figures of the whole that have no direction."""


def evaluate(
    work: Work,
    protocol: Mapping[str, Any],
    json_out: Path | None,
    per_query: Path | None,
    *,
    graph: Path | None = None,
    wanted: Wanted | None = None,
    files: Files | None = None,
    rerank: Rerank | None = None,
) -> Result:
    """Evaluate as the work says, and write what is asked for.

    protocol   fields of `subtext.evaluation.Protocol`; folds may be a number or "1k+5k"
    graph      a semantic graph, for how much of it the joint space keeps
    wanted     what is measured beyond recall; files  scores or vectors of any model, in place of the work's own
    rerank     a second model, which re-orders what the work's own finds
    json_out   file for figures and protocol; per_query  npz for one value a query

    Raises what opening, reading and evaluating raise; OutputError for a file that cannot be written, before the
    work begins.
    """
    wanted = wanted or Wanted()
    wanted.check()
    plot = None if rerank is None else rerank.plot
    places = [path for path in (json_out, per_query, plot) if path is not None]
    for path in places:
        require_file(path)
    if len({path.resolve() for path in places}) < len(places):
        raise RequirementError(
            f"figures, values a query and a drawing need a file each; two are to go to {_twice(places)}; name another"
        )
    semantic = None if graph is None else Graph.load(graph.expanduser())
    if rerank is not None:
        result = _of_two(work, protocol, wanted, rerank)
    elif files is None:
        result = _of_model(work, protocol, semantic, wanted)
    else:
        result = _of_files(work, protocol, wanted, files)
    if json_out is not None:
        result.save(json_out)
    if per_query is not None:
        result.save_queries(per_query)
    if plot is not None:
        write_text(plot, drawing(result))
    return result


def _twice(places: Sequence[Path]) -> Path:
    """The first path that stands there for a second time."""
    found = [path.resolve() for path in places]
    return next(path for place, path in enumerate(found) if path in found[:place])


def _of_model(work: Work, protocol: Mapping[str, Any], semantic: Graph | None, wanted: Wanted) -> Result:
    opened = open_work(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    if wanted.space_of_pairs and not compares_vectors(opened.model.similarity):
        raise RequirementError(
            "--space-of-pairs needs a model that makes vectors of pairs: ascl with attention; take --space for this one"
        )
    pairs = opened.pairs
    asked = _protocol(protocol, len(pairs.images))
    extra = wanted.of(pairs, choose_device(work.device), quiet=work.quiet)
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
        result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=asked, extra=extra)
    if wanted.space:
        result = with_space(result, *_placed(opened, items, work), pairs)
    if wanted.space_of_pairs:
        with meter("vectors of pairs", len(pairs.images), quiet=work.quiet) as told:
            seen = space_of_pairs(opened.model.similarity, *items, pairs, progress=told)
        result = replace(result, figures=result.figures | seen)
    if semantic is not None:
        result = with_preservation(result, opened.model.similarity, items, pairs, semantic, protocol=asked)
    role, warning = split_role(opened, work.sources)
    about = {**_subject(opened, work), "split": opened.split, "split_role": role}
    return replace(result, about=about, notes=(*([warning] if warning else []), *result.notes))


def _placed(opened: Opened, items: tuple[Embeddings, Embeddings], work: Work) -> tuple[Embeddings, Embeddings]:
    """The items as they lie in the joint space: a probabilistic model's by their means, others' as they are."""
    if items[0].parts is not None and items[1].parts is not None:
        return items
    means = opened.by_mean("measure the space of").model
    if means is opened.model:
        return items
    with meter("embedding means", len(items[0]) + len(items[1]), quiet=work.quiet) as told:
        return embed_pairs(means, opened.pairs, batch_size=work.batch_size, workers=work.workers, progress=told)


def _of_two(work: Work, protocol: Mapping[str, Any], wanted: Wanted, rerank: Rerank) -> Result:
    opened = open_work(work).indexed("a first stage")
    pairs, asked = opened.pairs, _protocol(protocol, len(opened.pairs.images))
    device = choose_device(work.device)
    extra = wanted.of(pairs, device, quiet=work.quiet)
    # All that can be said of the second model is said before the first one works.
    run = rerank.open(device)
    choose_precision(run.model, work.bf16, quiet=work.quiet)
    require_plan(rerank.candidates, extra)
    require_features(run.model, pairs)
    texts = pairs.texts.values
    if (note := cut_note(run.model.text.input_spec, texts)) is not None:
        say(f"note: the re-ranking run: {note}", quiet=work.quiet)
    first, second = (
        stage_of(model, pairs, batch_size=work.batch_size, workers=work.workers, quiet=work.quiet)
        for model in (opened.model, run.model)
    )
    result = evaluate_two_stage(first, second, pairs, candidates=rerank.candidates, protocol=asked, extra=extra)
    subject = _subject(opened, work)
    sources = Sources.from_json(subject["data"])
    both = Opened(run.model, pairs, opened.split, run.record)
    (role, warning), (other, more) = split_role(opened, work.sources), split_role(both, sources)
    cut = too_long(run.model.text.input_spec, texts)
    again = {**_run(run.path, run.record, run.model), **({"texts_cut": cut} if cut else {})}
    plan = {"rerank": again, "split_role": other, **result.about["two_stage"]}
    about = {**subject, "split": opened.split, "split_role": role, "two_stage": plan}
    warnings = [warning, f"the re-ranking run: {more}" if more else ""]
    return replace(result, about=about, notes=(*filter(None, warnings), *result.notes))


def _of_files(work: Work, protocol: Mapping[str, Any], wanted: Wanted, files: Files) -> Result:
    if wanted.space_of_pairs:
        raise RequirementError("--space-of-pairs needs a model to ask; files hold none; take --space with embeddings")
    pairs, split = read_split(work.sources, work.split)
    asked = _protocol(protocol, len(pairs.images))
    extra = wanted.of(pairs, choose_device(work.device), quiet=work.quiet)
    result, made = judge(files, pairs, asked, extra, space=wanted.space)
    about = {"model": made, "data": work.sources.to_json(), "split": split, "split_role": "unknown"}
    return replace(result, about=about)


def _protocol(values: Mapping[str, Any], pictures: int) -> Protocol:
    """The protocol, with folds of so many thousand pictures counted out.

    Raises RequirementError where there are not so many pictures.
    """
    typed = str(values.get("folds", 1))
    sizes = [int(piece.removesuffix("k")) * 1000 for piece in typed.split("+") if piece.endswith("k")]
    if not sizes:
        return Protocol(**{**values, "folds": int(typed)})
    if wrong := [size for size in sizes if pictures % size]:
        raise RequirementError(
            f"folds of {wrong[0]:,} pictures need a multiple of as many; there are {pictures:,}; give a number of folds"
        )
    first, *others = sorted({pictures // size for size in sizes})
    return Protocol(**{**values, "folds": first, "also_folds": tuple(others)})


def summary(result: Result) -> str:
    """The figures for people: what was measured, a table with intervals and chance, and the notes."""
    asked = result.protocol
    gallery, folds = asked["gallery"], asked["folds"]
    what = f"split {result.about['split']} of {Path(result.about['data']['data']).name}"
    sums = " ".join(f"{name} {value:.1f}" for name, value in result.figures.items() if name.startswith("rsum("))
    counts = f"{counted(gallery['images'], 'image')}, {counted(gallery['texts'], 'text')}"
    head = f"{what}: {counts}{f', {folds} folds' if folds > 1 else ''}; ties {asked['ties']}"
    intervals = result.intervals if asked["bootstrap"] else None
    recalls = [f"recall@{k}" for k in asked["recall"]]
    names = [*recalls, *(name for name in SHOWN if "recall" not in name)]
    lines = [head, figures_table(result.figures, result.chance, intervals, names=names)]
    ways = [f"{c}_way{what}" for c in asked["c_way"] for what in ("@1", "@3", "_mean_rank")]
    if any(name.split("/")[-1] in ways for name in result.figures):
        lines.append(figures_table(result.figures, result.chance, intervals, names=ways, summed=False))
    lines += [
        figures_table(result.figures, result.chance, intervals, names=names, summed=False, ceiling=result.ceiling)
        for names in _further(result)
    ]
    if "words" in asked:
        lines.append("texts by length: " + ", ".join(f"{name} {count:,}" for name, count in asked["words"].items()))
    if sums:
        lines.append(sums)
    lines += told(result)
    if FIGURES[0] in result.figures:
        lines.append(_kept(result))
    if others := [name for name in result.figures if name.startswith(_ALONE)]:
        lines.append(table(["", ""], [[name, f"{result.figures[name]:.3f}"] for name in others]))
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def _further(result: Result) -> list[list[str]]:
    """Names of the figures that are measured on demand, table by table: of one relevance, truth or set of folds."""
    base = {f"recall@{k}" for k in result.protocol["recall"]} | set(SHOWN)
    tables: dict[str, list[str]] = {}
    for name in result.figures:
        direction, _, figure = name.partition("/")
        if direction not in DIRECTIONS or figure.partition("(")[0].startswith(_QUIET):
            continue
        plain, _, label = figure.partition("(")
        if (label or plain not in base) and "_way" not in plain:
            tables.setdefault(label, []).append(figure)
    return [list(dict.fromkeys(names)) for names in tables.values()]


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
    if record is None:
        model = {"pretrained": work.model, "fingerprint": model_fingerprint(opened.model)}
    else:
        assert work.run is not None
        sources = sources.over(remembered(record.data))
        model = _run(work.run, record, opened.model)
    cut = too_long(opened.model.text.input_spec, opened.pairs.texts.values)
    return {"model": model, "data": sources.to_json(), **({"texts_cut": cut} if cut else {})}


def _run(path: Path, record: Record, model: Model) -> dict[str, Any]:
    """Which run."""
    return {
        "run": str(path.expanduser().resolve()),
        "host": record.model,
        "arguments": record.arguments,
        "methods": [list(method) for method in record.methods],
        "seed": record.seed,
        "epoch": record.best_epoch,
        "epochs": record.epochs,
        "training": record.status,
        "fingerprint": model_fingerprint(model),
        **({"scores_in_bf16": True} if model.scores_in_bf16 else {}),
    }
