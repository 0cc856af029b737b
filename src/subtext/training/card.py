"""A run in words: the README.md of its folder, and of the model that is exported from it."""

from __future__ import annotations

from collections.abc import Mapping

from subtext.checkpoint import Record


def model_card(record: Record) -> str:
    """Markdown: what the model is, how it was trained and on what, how well it does, and how it is used."""
    methods = ", ".join(f"`{name}`{_options(arguments)}" for name, arguments in record.methods) or "none"
    lines = [
        "---",
        "library_name: subtext",
        "tags: [image-text-retrieval, cross-modal-retrieval]",
        "---",
        "",
        f"# {record.host}: pictures and texts in one space",
        "",
        f"Trained with Subtext {record.version}; the training is {record.status}.",
        "",
        "| what | value |",
        "|---|---|",
        f"| host | `{record.host}`{_options(record.arguments)} |",
        f"| methods | {methods} |",
        f"| data | {record.data.data or 'pairs in memory'}, split {record.data.train_split} |",
        f"| seed | {record.seed} |",
        f"| epochs, steps | {record.epochs}, {record.steps} |",
        f"| time | {record.seconds:.0f} s |",
        "",
        *_figures(record),
        "## Use",
        "",
        "```python",
        "import subtext",
        "",
        'model = subtext.load("FOLDER")  # this folder',
        'images, texts = model.embed_images(["a.jpg"]), model.embed_texts(["a dog on the grass"])',
        "scores = model.compare(images, texts)",
        "```",
        "",
        "A score orders the candidates of one query; it is no probability. The model knows what its training pairs",
        "showed, their gaps and slants included.",
        "",
        "## Plan",
        "",
        "| option | value |",
        "|---|---|",
        *[f"| {name} | {value} |" for name, value in record.plan.items()],
        "",
    ]
    return "\n".join(lines)


def _figures(record: Record) -> list[str]:
    if not record.best:
        return ["No validation figures: no validation pairs were given, or no epoch has ended.", ""]
    return [
        f"## Validation (split {record.data.val_split}, epoch {record.best_epoch}, which it selected)",
        "",
        "| figure | value |",
        "|---|---|",
        *[f"| {name} | {value:.2f} |" for name, value in record.best.items()],
        "",
    ]


def _options(arguments: Mapping[str, object]) -> str:
    return f" ({', '.join(f'{name}={value}' for name, value in arguments.items())})" if arguments else ""
