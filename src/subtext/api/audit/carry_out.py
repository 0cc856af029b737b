"""An audit from what is asked for to its checks, and the files that it leaves."""

from __future__ import annotations

import json
from typing import Any

from subtext.api.audit.checks import checks
from subtext.api.audit.page import page
from subtext.api.audit.subject import Asked, Subject, subject_of
from subtext.core import DIRECTIONS
from subtext.data.atomic import write_text
from subtext.data.fingerprint import fingerprint
from subtext.data.output import require_file
from subtext.errors import RequirementError
from subtext.evaluation.audit import Audit, Check
from subtext.evaluation.results import versions
from subtext.report.page import render

SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank")


def audit(asked: Asked) -> Audit:
    """Make every check, and write the files that are asked for.

    Raises what opening and reading raise; OutputError for a file that cannot be written, before the work begins.
    """
    files = [path for path in (asked.json_out, asked.html_out) if path is not None]
    for path in files:
        require_file(path)
    if len({path.resolve() for path in files}) < len(files):
        raise RequirementError(f"JSON and page need a file each; both are to go to {asked.json_out}")
    subject = subject_of(asked)
    made = tuple(
        Check(name, "Nothing.", "not applicable", "left out by whoever asked (--skip)")
        if name in asked.skip
        else make()
        for name, make in checks(subject)
    )
    figures = {f"{way}/{name}": subject.result.figures[f"{way}/{name}"] for way in DIRECTIONS for name in SHOWN}
    found = Audit(made, figures, _about(subject))
    if asked.json_out is not None:
        write_text(asked.json_out, json_text(found) + "\n")
    if asked.html_out is not None:
        write_text(asked.html_out, render(page(found, subject.result)))
    return found


def json_text(found: Audit) -> str:
    """The audit as indented JSON."""
    return json.dumps(found.to_json(), indent=2, ensure_ascii=False, allow_nan=False)


def _about(subject: Subject) -> dict[str, Any]:
    """What was audited, on which data, and how."""
    asked, pairs = subject.asked, subject.pairs
    return {
        "audited": subject.name,
        "kind": subject.kind,
        **subject.about,
        "split": subject.split,
        "train_split": asked.train_split,
        "data_fingerprint": fingerprint(pairs),
        "pictures": len(pairs.images),
        "texts": len(pairs.texts),
        "settings": {
            "sample": asked.pictures,
            "tolerance": asked.tolerance,
            "seed": asked.seed,
            "ties": "pessimistic",
            "device": asked.work.device,
        },
        "versions": versions(),
    }
