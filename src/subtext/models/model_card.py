"""A run in words: the README.md of its folder, and of every model that is exported from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from subtext.core import DIRECTIONS
from subtext.models.checkpoint import Record

FIGURES = ("recall@1", "recall@5", "recall@10", "median_rank", "mean_rank")
"""The figures of each direction that a card shows, where the record has them."""


def model_card(record: Record) -> str:
    """Markdown with a YAML head: what the model is, what it learnt, how well it does, its limits, how to use it."""
    methods = ", ".join(f"`{name}`{_options(arguments)}" for name, arguments in record.methods) or "none"
    data = PurePath(record.data.data).name if record.data.data else "pairs in memory"
    return "\n".join(
        [
            *_head(record),
            f"# {record.model}: images and texts in one space",
            "",
            "A model for retrieval between images and texts: it scores how well they go together, larger is better.",
            f"Trained with Subtext {record.version}; the training is {record.status}.",
            "",
            "| what | value |",
            "|---|---|",
            f"| host | `{record.model}` |",
            f"| methods | {methods} |",
            f"| data | `{data}`, split {record.data.train_split} |",
            f"| seed | {record.seed} |",
            f"| epochs, steps | {record.epochs}, {record.steps} |",
            f"| time | {record.seconds:.0f} s |",
            "",
            *_figures(record),
            *_use(record),
            *_limits(record),
            *_table("Options of the recipe", record.arguments),
            *_table("Training plan", record.plan),
        ]
    )


def _head(record: Record) -> list[str]:
    """What the Hub reads; figures are validation ones, and say so."""
    return [
        "---",
        "library_name: subtext",
        "pipeline_tag: feature-extraction",
        "tags:",
        "- image-text-retrieval",
        "- cross-modal-retrieval",
        f"- {record.model}",
        *[f"- {name}" for name, _ in record.methods],
        "metrics:",
        "- recall",
        "---",
        "",
    ]


def _figures(record: Record) -> list[str]:
    if not record.best:
        return ["## Figures", "", "None: no validation pairs were given, or no epoch has ended.", ""]
    names = [name for name in FIGURES if any(f"{direction}/{name}" in record.best for direction in DIRECTIONS)]
    lines = [
        "## Figures",
        "",
        f"On the split `{record.data.val_split}`, which also selected the epoch ({record.best_epoch}): expect a little",
        "less on data that selected nothing. Recall in per cent, ranks from 1, ties counted against the model.",
        "",
        f"| direction | {' | '.join(names)} |",
        f"|---{'|---' * len(names)}|",
    ]
    for direction in DIRECTIONS:
        cells = [_number(record.best.get(f"{direction}/{name}")) for name in names]
        lines.append(f"| {direction.replace('_', ' ')} | {' | '.join(cells)} |")
    if "rsum" in record.best:
        lines += ["", f"Sum of all recalls: {record.best['rsum']:.1f}."]
    return [*lines, "", "`subtext evaluate RUN` measures again, with intervals and the chance line.", ""]


def _use(record: Record) -> list[str]:
    images = "image_features" if record.data.features else '["a.jpg"]'
    texts = "text_features" if record.data.text_features else '["a dog on the grass"]'
    arrays = [
        f"# this model reads precomputed {modality} features, made as those that it was trained on: of each one array, "
        'or {"pooled": array, "grid": array} where it reads both'
        for modality, features in (("image", record.data.features), ("text", record.data.text_features))
        if features
    ]
    return [
        "## Use",
        "",
        "```python",
        "import subtext",
        "",
        'model = subtext.load("FOLDER")  # this folder',
        *arrays,
        f"images, texts = model.embed_images({images}), model.embed_texts({texts})",
        "scores = model.compare(images, texts)",
        "```",
        "",
    ]


def _limits(record: Record) -> list[str]:
    lines = [
        "## Limits",
        "",
        "A score orders candidates for one query; it is no probability and says nothing across models. The model knows",
        "what its training pairs showed, their gaps and slants included; languages and kinds of image that they did",
        "not hold are guesses. It was not examined for decisions about people.",
        "",
    ]
    if record.status != "finished":
        lines += [f"The training is {record.status}: these are the best weights so far, not its result.", ""]
    return lines


def _table(title: str, values: Mapping[str, object]) -> list[str]:
    if not values:
        return []
    return [f"## {title}", "", "| option | value |", "|---|---|", *[f"| {n} | {v} |" for n, v in values.items()], ""]


def _options(arguments: Mapping[str, object]) -> str:
    return f" ({', '.join(f'{name}={value}' for name, value in arguments.items())})" if arguments else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
