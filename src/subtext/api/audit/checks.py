"""The checks of an audit in order, each made of what it needs, or told why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from subtext.api.audit.subject import Subject
from subtext.api.audit.training import Known, held_out, held_out_by_name
from subtext.api.load import Opened
from subtext.data.features import FeatureInput
from subtext.evaluation import overlap
from subtext.evaluation.audit import CHECKS, Check, Sample, Stability, caption_places, finite, shuffled_truth, ties
from subtext.evaluation.overlap import vocabulary
from subtext.report.progress import meter

_NEEDS = {
    **dict.fromkeys(CHECKS, "the model has to score the same pairs again"),
    "truth": "the model has to read each picture under another one's name",
    "vocabulary": "the model's vocabulary has to be looked at",
}
"""Name of a check -> what it needs that scores and vectors of another program do not bring."""

Made = Iterator[tuple[str, Callable[[], Check]]]


def checks(subject: Subject) -> Made:
    """Name -> how the check is made, in the order of a report."""
    yield "held-out", lambda: _held_out(subject)
    if subject.opened is None:
        scores = subject.scores
        for name in (*CHECKS, "truth"):
            yield name, partial(_impossible, subject, name)
    else:
        base = _stability(subject, subject.opened)
        scores = base.scores
        for name in CHECKS:
            yield name, partial(base.check, name, *CHECKS[name])
        yield "truth", lambda: shuffled_truth(base)
    yield "captions", lambda: caption_places(subject.result, subject.pairs)
    yield "ties", lambda: ties(subject.result)
    yield "finite", lambda: finite(subject.result, subject.images, subject.texts, scores)
    yield "picture-overlap", lambda: _pictures(subject)
    yield "text-overlap", lambda: _texts(subject)
    yield "vocabulary", lambda: _vocabulary(subject)


def _stability(subject: Subject, opened: Opened) -> Stability:
    asked = subject.asked
    sample = Sample.drawn(
        opened.model, subject.pairs, pictures=asked.pictures, seed=asked.seed, batch_size=asked.work.batch_size
    )
    return Stability.of(sample, tolerance=asked.tolerance, seed=asked.seed)


def _held_out(subject: Subject) -> Check:
    if subject.opened is not None and subject.opened.record is not None:
        return held_out(subject.opened.record, subject.split, subject.asked.work.sources)
    return held_out_by_name(subject.kind, subject.split, subject.asked.train_split)


def _pictures(subject: Subject) -> Check:
    train, work = subject.known.pairs, subject.asked.work
    if train is None or subject.known.itself:
        return _unknown("picture-overlap", subject.known)
    with meter("comparing pictures", len(subject.pairs.images) + len(train.images), quiet=work.quiet) as told:
        check = overlap.pictures(subject.pairs, train, workers=work.workers, told=told)
    input_spec = None if subject.opened is None else subject.opened.model.image.input_spec
    if check.outcome == "not applicable" and isinstance(input_spec, FeatureInput) and input_spec.file is not None:
        return overlap.features(subject.pairs, train, input_spec.file)
    return check


def _texts(subject: Subject) -> Check:
    train = subject.known.pairs
    if train is None or subject.known.itself:
        return _unknown("text-overlap", subject.known)
    items = len(subject.pairs.texts) + len(train.texts)
    with meter("comparing texts", items, quiet=subject.asked.work.quiet) as told:
        return overlap.texts(subject.pairs, train, told=told)


def _vocabulary(subject: Subject) -> Check:
    if subject.opened is None:
        return _impossible(subject, "vocabulary")
    train, record = subject.known.pairs, subject.opened.record
    if train is None:
        return _unknown("vocabulary", subject.known)
    words, other = ([t for t in each.texts.values if isinstance(t, str)] for each in (train, subject.pairs))
    least = None if record is None else record.arguments.get("min_count")
    return vocabulary(subject.opened.model.text.input_spec, words, other, min_count=least)


def _impossible(subject: Subject, name: str) -> Check:
    why = f"not possible for a {subject.kind}: {_NEEDS[name]}; audit the run, or the model (--model), for it"
    return Check(name, "Nothing.", "not applicable", why)


def _unknown(name: str, known: Known) -> Check:
    return Check(name, "Nothing: it needs the training split beside another one.", "not applicable", known.why)
