"""The model card of a run: the README.md of its folder, and of every model that is exported from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from subtext.core import DIRECTIONS
from subtext.models.checkpoint import Record

FIGURES = ("recall@1", "recall@5", "recall@10", "median_rank", "mean_rank")
"""The figures of each direction that a card shows, where the record has them."""


def model_card(record: Record) -> str:
    """The model card of a run.

    Markdown with a YAML head, which the Hub reads: the model, its training, figures, limits and use.

    Args:
        record: Of the run.

    Returns:
        The text of README.md.
    """
    methods = [
        f"`{name}`" + (f" ({', '.join(f'{option}={value}' for option, value in options.items())})" if options else "")
        for name, options in record.methods
    ]
    data = record.data
    sides = (("image", data.features, '["a.jpg"]'), ("text", data.text_features, '["a dog on the grass"]'))
    features = [
        f"# this model reads precomputed {side} features, made as those that it was trained on: of each one array, "
        'or {"pooled": array, "grid": array} where it reads both'
        for side, file, _ in sides
        if file
    ]
    images, texts = (f"{side}_features" if file else example for side, file, example in sides)
    card = (
        Path(__file__)
        .with_suffix(".md")
        .read_text(encoding="utf-8")
        .format(
            record=record,
            tags="\n".join(f"- {name}" for name in (record.model, *(name for name, _ in record.methods))),
            methods=", ".join(methods) or "none",
            data=path.name if (path := data.path("data")) else "pairs in memory",
            figures="\n".join(_figures(record)),
            features="".join(f"{line}\n" for line in features),
            images=images,
            texts=texts,
        )
    )
    unfinished = [f"The training is {record.status}: these are the best weights so far, not its result.", ""]
    tables = _table("Options of the recipe", record.arguments) + _table("Training plan", record.plan)
    return card + "\n".join([*(unfinished if record.status != "finished" else []), *tables])


def _figures(record: Record) -> list[str]:
    """Validation figures, named as such."""
    if not record.best:
        return ["None: no validation pairs were given, or no epoch has ended."]
    names = [name for name in FIGURES if any(f"{direction}/{name}" in record.best for direction in DIRECTIONS)]
    lines = [
        f"On the split `{record.data.val_split}`, which also selected the epoch ({record.best_epoch}): expect a little",
        "less on data that selected nothing. Recall in per cent, ranks from 1, ties counted against the model.",
        "",
        f"| direction | {' | '.join(names)} |",
        f"|---{'|---' * len(names)}|",
    ]
    for direction in DIRECTIONS:
        values = [record.best.get(f"{direction}/{name}") for name in names]
        cells = ("-" if value is None else f"{value:.1f}" for value in values)
        lines.append(f"| {direction.replace('_', ' ')} | {' | '.join(cells)} |")
    if "rsum" in record.best:
        lines += ["", f"Sum of all recalls: {record.best['rsum']:.1f}."]
    return [*lines, "", "`subtext evaluate RUN` measures again, with intervals and the chance line."]


def _table(title: str, values: Mapping[str, object]) -> list[str]:
    rows = [f"| {name} | {value} |" for name, value in values.items()]
    return [f"## {title}", "", "| option | value |", "|---|---|", *rows, ""] if rows else []
