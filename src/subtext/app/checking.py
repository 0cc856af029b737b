"""`subtext data check`: a data set's report, for people and as JSON."""

from __future__ import annotations

import json

from subtext.app.job import Sources
from subtext.app.progress import picture_meter
from subtext.app.table import Cell, table
from subtext.data.check import Report, check
from subtext.data.feature_file import FeatureFile
from subtext.data.readers import read_pairs
from subtext.errors import DataError

SHOWN = 20
"""Problems that are shown to people; JSON holds all."""

EXAMPLES = 3
"""Duplicates and leaks that are shown to people."""


def check_data(
    sources: Sources, *, verify: bool = False, as_json: bool = False, quiet: bool = False
) -> tuple[str, bool]:
    """The report of a data set and of the features that go with it, and whether they can be used."""
    assert sources.data is not None

    with picture_meter(quiet=quiet or not verify) as told:
        report = check(
            sources.data.expanduser(),
            images=sources.images,
            seed=sources.split_seed or 0,
            bad=sources.bad or "refuse",
            verify=verify,
            need_pictures=sources.features is None,
            progress=told,
        )
    features = _check_features(sources) if report.pairs else {}
    usable = report.usable and all(features.values())
    if as_json:
        found = report.to_json() | {"features": features, "usable": usable}
        return json.dumps(found, indent=2, ensure_ascii=False), usable
    return _text(report, features, usable), usable


def _check_features(sources: Sources) -> dict[str, bool]:
    """A sentence for each file of features, and whether it covers the data."""
    found: dict[str, bool] = {}
    assert sources.data is not None
    for path, modality in ((sources.features, "pictures"), (sources.text_features, "texts")):
        if path is None:
            continue
        try:
            pairs = read_pairs(
                sources.data.expanduser(), images=sources.images, bad="skip", need_pictures=sources.features is None
            ).pairs
            items = pairs.images if modality == "pictures" else pairs.texts
            shape = FeatureFile.open(path.expanduser()).shape(items.ids, items.values)
            widths = " and ".join(
                f"{name} {width}" for name, width in (("pooled", shape.pooled), ("grid", shape.grid)) if width
            )
            found[f"{path}: features of all {len(items):,} {modality} ({widths})"] = True
        except DataError as error:
            found[str(error)] = False
    return found


def _text(report: Report, features: dict[str, bool], usable: bool) -> str:
    lines = [f"{report.path}: {report.pictures:,} pictures, {report.texts:,} texts, {report.pairs:,} pairs"]
    if report.splits:
        rows: list[list[Cell]] = [
            [name, counts["pictures"], counts["texts"], counts["pairs"]] for name, counts in report.splits.items()
        ]
        lines.append(table(["split", "pictures", "texts", "pairs"], rows, indent=2))
    if report.words:
        words = report.words
        lines.append(f"words a text: {words['min']:.0f} to {words['max']:.0f}, half have {words['median']:.0f} or less")
    if report.languages:
        listed = ", ".join(f"{name} {count:,}" for name, count in list(report.languages.items())[:8])
        lines.append(f"languages{' (guessed)' if report.guessed else ''}: {listed}")
    if report.pairs:
        lines.append(f"duplicates: {report.duplicate_texts:,} texts, {report.duplicate_pictures:,} pictures")
    lines += [f"  {example!r}" for example in report.duplicate_text_examples[:EXAMPLES]]
    lines += [f"  {' = '.join(example)}" for example in report.duplicate_picture_examples[:EXAMPLES]]
    lines += [f"leak: {leak}" for leak in report.leaks[:EXAMPLES]]
    if len(report.leaks) > EXAMPLES:
        lines.append(f"leaks: {len(report.leaks) - EXAMPLES:,} more; --json has all")
    lines += [f"{'features' if good else 'problem'}: {text}" for text, good in features.items()]
    lines += [f"{'problem' if problem.fatal else 'note'}: {problem}" for problem in report.problems[:SHOWN]]
    if len(report.problems) > SHOWN:
        lines.append(f"... {len(report.problems) - SHOWN:,} more; --json has all")
    lines.append("usable" if usable else "not usable as it is")
    return "\n".join(lines)
