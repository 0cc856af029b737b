"""An audit from a run's folder to its checks, and the files that it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.app.auditing.page import page
from subtext.app.auditing.training import Known, held_out, training_pairs
from subtext.app.job import Work
from subtext.app.opened import Opened, open_work
from subtext.app.output import require_file
from subtext.app.progress import meter
from subtext.checkpoint import write_text
from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.fingerprint import fingerprint
from subtext.errors import RequirementError
from subtext.evaluate import Protocol, Result, embed_pairs, evaluate_embeddings
from subtext.evaluate import audit_overlap as overlap
from subtext.evaluate.audit import Audit, Check
from subtext.evaluate.audit_sample import Sample
from subtext.evaluate.audit_scores import CHECKS, Stability
from subtext.evaluate.audit_truth import caption_places, finite, shuffled_truth, ties
from subtext.evaluate.audit_words import vocabulary
from subtext.evaluate.statement import versions
from subtext.report.page import render
from subtext.search import model_fingerprint

SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank")


@dataclass(frozen=True)
class Asked:
    """What is audited, and how.

    pictures   of the sample that is scored again and again      tolerance  in standard deviations of the scores
    seed       of sample, orders and shuffles                    skip       names of checks that are left out
    json_out, html_out  files; None for none
    """

    work: Work
    pictures: int = 128
    tolerance: float = 1e-3
    seed: int = 0
    skip: tuple[str, ...] = ()
    json_out: Path | None = None
    html_out: Path | None = None

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Asked:
        """What the command was told; "-" for the JSON means no file."""
        json_out = None if values["json_out"] == Path("-") else values["json_out"]
        own = {name: values[name] for name in ("tolerance", "seed", "skip", "html_out")}
        return Asked(Work.from_options(values), pictures=values["sample"], json_out=json_out, **own)


def audit(asked: Asked) -> Audit:
    """Make every check, and write the files that are asked for.

    Raises what opening and reading raise; OutputError for a file that cannot be written, before the work begins.
    """
    files = [path for path in (asked.json_out, asked.html_out) if path is not None]
    for path in files:
        require_file(path)
    if len({path.resolve() for path in files}) < len(files):
        raise RequirementError(f"JSON and page need a file each; both are to go to {asked.json_out}")
    opened = open_work(asked.work)
    images, texts, result = _measured(opened, asked.work)
    subject = _Subject(asked, opened, training_pairs(opened.record, opened.pairs), images, texts, result)
    checks = tuple(
        Check(name, "Nothing.", "not applicable", "left out by whoever asked (--skip)")
        if name in asked.skip
        else make()
        for name, make in _checks(subject)
    )
    figures = {
        f"{d}/{name}": result.figures[f"{d}/{name}"] for d in ("image_to_text", "text_to_image") for name in SHOWN
    }
    found = Audit(checks, figures, _about(subject))
    if asked.json_out is not None:
        write_text(asked.json_out, json_text(found) + "\n")
    if asked.html_out is not None:
        write_text(asked.html_out, render(page(found, result)))
    return found


def json_text(found: Audit) -> str:
    """The audit as indented JSON."""
    return json.dumps(found.to_json(), indent=2, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class _Subject:
    """What the checks look at."""

    asked: Asked
    opened: Opened
    known: Known
    images: Embeddings
    texts: Embeddings
    result: Result


def _measured(opened: Opened, work: Work) -> tuple[Embeddings, Embeddings, Result]:
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
    result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=Protocol(c_way=()))
    return *items, result


def _checks(subject: _Subject) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Name -> how the check is made, in order."""
    asked, opened = subject.asked, subject.opened
    sample = Sample.drawn(
        opened.model, opened.pairs, pictures=asked.pictures, seed=asked.seed, batch_size=asked.work.batch_size
    )
    base = Stability.of(sample, tolerance=asked.tolerance, seed=asked.seed)
    yield "held-out", lambda: held_out(opened.record, opened.split, asked.work.sources)
    for name in CHECKS:
        yield name, lambda name=name: base.check(name, *CHECKS[name])  # type: ignore[misc]
    yield "truth", lambda: shuffled_truth(base)
    yield "captions", lambda: caption_places(subject.result, opened.pairs)
    yield "ties", lambda: ties(subject.result)
    yield "finite", lambda: finite(subject.result, subject.images, subject.texts, base.scores)
    yield "picture-overlap", lambda: _pictures(subject)
    yield "text-overlap", lambda: _texts(subject)
    yield "vocabulary", lambda: _vocabulary(subject)


def _pictures(subject: _Subject) -> Check:
    train, audited, work = subject.known.pairs, subject.opened.pairs, subject.asked.work
    if train is None or subject.known.itself:
        return _unknown("picture-overlap", subject.known)
    with meter("comparing pictures", len(audited.images) + len(train.images), quiet=work.quiet) as told:
        check = overlap.pictures(audited, train, workers=work.workers, told=told)
    reads = subject.opened.model.image.reads
    if check.outcome == "not applicable" and isinstance(reads, FeatureInput) and reads.file is not None:
        return overlap.features(audited, train, reads.file)
    return check


def _texts(subject: _Subject) -> Check:
    train, audited = subject.known.pairs, subject.opened.pairs
    if train is None or subject.known.itself:
        return _unknown("text-overlap", subject.known)
    with meter("comparing texts", len(audited.texts) + len(train.texts), quiet=subject.asked.work.quiet) as told:
        return overlap.texts(audited, train, told=told)


def _vocabulary(subject: _Subject) -> Check:
    train, record = subject.known.pairs, subject.opened.record
    if train is None or record is None:
        return _unknown("vocabulary", subject.known)
    words, other = ([t for t in each.texts.values if isinstance(t, str)] for each in (train, subject.opened.pairs))
    return vocabulary(subject.opened.model.text.reads, words, other, min_count=record.arguments.get("min_count"))


def _unknown(name: str, known: Known) -> Check:
    return Check(name, "Nothing: it needs the training split beside another one.", "not applicable", known.why)


def _about(subject: _Subject) -> dict[str, Any]:
    """Which run, which data, and how the audit was made."""
    asked, opened, pairs = subject.asked, subject.opened, subject.opened.pairs
    record, run = opened.record, asked.work.run
    assert record is not None and run is not None
    return {
        "run": str(run.expanduser().resolve()),
        "model": {"host": record.host, "seed": record.seed, "fingerprint": model_fingerprint(opened.model)},
        "data": str(asked.work.sources.data or record.data.data),
        "split": opened.split,
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
