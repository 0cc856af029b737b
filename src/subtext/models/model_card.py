"""The model card of a run: the README.md of its folder, and of every model that is exported from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from subtext.core import DIRECTIONS
from subtext.models.checkpoint import Record

FIGURES = ("recall@1", "recall@5", "recall@10", "median_rank", "mean_rank")
"""The figures of each direction that a card shows, where the record has them."""


def model_card(record: Record) -> str:
    """Markdown with a YAML head, which the Hub reads: the model, its training, figures, limits and use."""
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
    unfinished = [f"The training is {record.status}: these are the best weights so far, not its result.", ""]
    lines = [
        "---",
        "library_name: subtext",
        "pipeline_tag: feature-extraction",
        "tags:",
        *(f"- {tag}" for tag in ("image-text-retrieval", "cross-modal-retrieval", record.model)),
        *(f"- {name}" for name, _ in record.methods),
        "metrics:",
        "- recall",
        "---",
        "",
        f"# {record.model}: images and texts in one space",
        "",
        "A model for retrieval between images and texts: it scores how well they go together, larger is better.",
        f"Trained with Subtext {record.version}; the training is {record.status}.",
        "",
        "| what | value |",
        "|---|---|",
        f"| model | `{record.model}` |",
        f"| methods | {', '.join(methods) or 'none'} |",
        f"| data | `{PurePath(data.data).name if data.data else 'pairs in memory'}`, split {data.train_split} |",
        f"| seed | {record.seed} |",
        f"| epochs, steps | {record.epochs}, {record.steps} |",
        f"| time | {record.seconds:.0f} s |",
        "",
        "## Figures",
        "",
        *_figures(record),
        "",
        "## Use",
        "",
        "```python",
        "import subtext",
        "",
        'model = subtext.load("FOLDER")  # this folder',
        *features,
        f"images, texts = model.embed_images({images}), model.embed_texts({texts})",
        "scores = model.compare(images, texts)",
        "```",
        "",
        "## Limits",
        "",
        "A score orders candidates for one query; it is no probability and says nothing across models. The model knows",
        "what its training pairs showed, their gaps and slants included; languages and kinds of image that they did",
        "not hold are guesses. It was not examined for decisions about people.",
        "",
        *(unfinished if record.status != "finished" else []),
        *_table("Options of the recipe", record.arguments),
        *_table("Training plan", record.plan),
    ]
    return "\n".join(lines)


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
