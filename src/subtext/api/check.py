"""`subtext data check`: a data set's report, for people and as JSON."""

from __future__ import annotations

import json

from subtext.api.load import Sources
from subtext.data.check import Report, check
from subtext.data.read import told
from subtext.errors import counted
from subtext.report.progress import image_meter
from subtext.report.text_table import Cell, table

SHOWN = 20
"""Kinds of problems that are shown to people; JSON holds every problem."""

EXAMPLES = 3
"""Duplicates and leaks that are shown to people."""


def check_data(
    sources: Sources, *, verify: bool = False, as_json: bool = False, quiet: bool = False
) -> tuple[str, bool]:
    """The report of a data set and of the features that go with it, and whether they are good for anything."""
    assert sources.data is not None

    with image_meter(quiet=quiet or not verify) as heard:
        report = check(
            sources.data.expanduser(),
            images=sources.images,
            seed=sources.split_seed or 0,
            bad=sources.bad or "refuse",
            verify=verify,
            features=sources.features and sources.features.expanduser(),
            text_features=sources.text_features and sources.text_features.expanduser(),
            progress=heard,
        )
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False) if as_json else _text(report)
    return text, report.usable


def _text(report: Report) -> str:
    counts = zip((report.pictures, report.texts, report.pairs), ("picture", "text", "pair"), strict=True)
    lines = [f"{report.path}: {', '.join(counted(number, noun) for number, noun in counts)}"]
    if report.splits:
        rows: list[list[Cell]] = [
            [name, counts["pictures"], counts["texts"], counts["pairs"]] for name, counts in report.splits.items()
        ]
        lines.append(table(["split", "pictures", "texts", "pairs"], rows, indent=2))
    if report.words:
        least, half, most = (f"{report.words[name]:,.0f}" for name in ("min", "median", "max"))
        lines.append(f"words a text: {least} to {most}, half have {half} or less")
    if report.languages:
        listed = ", ".join(f"{name} {count:,}" for name, count in list(report.languages.items())[:8])
        lines.append(f"languages{' (guessed)' if report.guessed else ''}: {listed}")
    if report.pairs:
        copies = counted(report.duplicate_texts, "text"), counted(report.duplicate_pictures, "picture")
        lines.append(f"duplicates: {', '.join(copies)}")
    lines += [f"  {example!r}" for example in report.duplicate_text_examples[:EXAMPLES]]
    lines += [f"  {' = '.join(example)}" for example in report.duplicate_picture_examples[:EXAMPLES]]
    lines += [f"leak: {leak}" for leak in report.leaks[:EXAMPLES]]
    if len(report.leaks) > EXAMPLES:
        lines.append(f"leaks: {len(report.leaks) - EXAMPLES:,} more; --json has all")
    lines += [f"{'features' if covered.whole else 'problem'}: {covered.told}" for covered in report.features]
    problems = [
        f"{word}: {sentence}"
        for word, fatal in (("problem", True), ("note", False))
        for sentence in told(problem for problem in report.problems if problem.fatal is fatal)
    ]
    lines += problems[:SHOWN]
    if len(problems) > SHOWN:
        lines.append(f"... {len(problems) - SHOWN:,} more; --json has all")
    return "\n".join([*lines, _verdict(report)])


def _verdict(report: Report) -> str:
    """What the data set is good for, and why not for more."""
    splits = ", ".join(report.evaluable_splits)
    if report.trainable:
        return f"usable: to train on, and to evaluate on ({splits})"
    if report.evaluable:
        return f"usable: to evaluate on ({splits}); not to train on: {report.reasons['train']}"
    return f"not usable as it is: {'; '.join(dict.fromkeys(report.reasons.values()))}"
