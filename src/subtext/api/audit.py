"""`subtext.audit`: checks of an evaluation for leaks, and for scores that depend on more than their pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api import options as opt
from subtext.api.evaluate import (
    ComputeConfig,
    ExternalConfig,
    Files,
    ImageEmbeddings,
    Scores,
    SubjectData,
    TextEmbeddings,
    read_output,
    read_split,
    require_outputs,
    split_role,
    subject_of,
)  # fmt: skip
from subtext.api.load import EvaluationSubject, ModelSource, choose_precision, open_subject, read_data_of_run
from subtext.api.options import AnyPath
from subtext.errors import ArgumentError, DataError, RequirementError
from subtext.report.progress import meter
from subtext.settings import Interval, Metavar, OptionGroup, Unfold, command

if TYPE_CHECKING:
    from torch import Tensor

    from subtext.api.load import LoadedRun
    from subtext.core import Embeddings
    from subtext.data.config import DataConfig
    from subtext.data.dataset import Dataset
    from subtext.evaluation import Result
    from subtext.evaluation.checks.audit import Audit
    from subtext.evaluation.checks.check import Check
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model

CheckName = Literal[
    "held-out", "repeat", "order", "blocks", "neighbours", "names", "truth", "captions", "ties", "finite",
    "image-overlap", "text-overlap", "vocabulary",
]  # fmt: skip
_CHECKS, _FILE = OptionGroup("Checks"), Metavar("FILE")
TrainSplit = Annotated[str | None, "Without RUN: split that the model was trained on, if known.", OptionGroup("Data")]
Skip = Annotated[tuple[CheckName, ...], "Check to leave out; repeatable.", _CHECKS]
SampleSize = Annotated[int, "Images that are scored again in other orders, blocks and batches.", Interval(2), _CHECKS]
Tolerance = Annotated[
    float, "Largest allowed change of a score, in standard deviations of all scores.", Interval(0), _CHECKS
]
AuditSeed = Annotated[int, "Seed of the sample and the shuffles.", _CHECKS]
Html = Annotated[str | Path | None, "Write the audit as one page.", _FILE, OptionGroup("Output")]
SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank")


@command
def audit(
    model: AnyPath | ModelSource | Model | None = None,
    data: SubjectData = None,
    *,
    split: opt.Split = None,
    train_split: TrainSplit = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    external: ExternalConfig = ExternalConfig(),
    skip: Skip = (),
    sample_size: SampleSize = 128,
    tolerance: Tolerance = 1e-3,
    seed: AuditSeed = 0,
    html: Html = None,
    config: Annotated[ComputeConfig, Unfold(ComputeConfig(), without=("cache",))] = ComputeConfig(),
    quiet: opt.Quiet = False,
) -> Audit:
    """Check an evaluation for leaks, and for scores that depend on other pairs.

    The audit scores a sample again in other orders, blocks and batches. It shuffles the truth, counts ties and NaN, and
    compares recall by caption position. It searches the audited split for images, texts and words of the training
    split. For scores or vectors from a file, checks that need the model are left out.

    Args:
        model: As in `evaluate`.
        data: As in `evaluate`.
        split: As in `evaluate`.
        train_split: The split that a model without a record was trained on, if known.
        skip: Names of checks to leave out.
        sample_size: Images that are scored again in other orders, blocks and batches, 2 or more.
        tolerance: Largest allowed change of a score, in standard deviations of all scores, 0 or more.
        seed: Seed of the sample and the shuffles.
        scores: As in `evaluate`.
        image_embeddings: As in `evaluate`.
        text_embeddings: As in `evaluate`.
        external: As in `evaluate`.
        config: As in `evaluate`.
        html: File to write the audit to, as one page; None for none.
        quiet: Show no progress.

    Returns:
        All checks with their results; `save` writes them as JSON.

    Raises:
        ArgumentError: For contradictory arguments. Also raises the errors of loading and reading.
        OutputError: If a file cannot be written. This is checked before the work begins.
    """
    work, files = subject_of(
        model,
        data,
        split=split,
        scores=scores,
        image_embeddings=image_embeddings,
        text_embeddings=text_embeddings,
        external=external,
        config=config,
        quiet=quiet,
    )
    from subtext.core import DIRECTIONS
    from subtext.data.atomic import write_text
    from subtext.data.dataset import fingerprint
    from subtext.evaluation.checks.audit import Audit, audit_page
    from subtext.evaluation.checks.check import Check
    from subtext.evaluation.result import versions
    from subtext.report.page import render

    if work.source is not None and work.source.run is not None and train_split is not None:
        raise ArgumentError(
            "train_split is for what has no record; RUN records what it was trained on", field="train_split"
        )
    require_outputs({"html": html})
    subject = _of_model(work, train_split) if files is None else _of_files(work, train_split, files)
    checks = [
        Check(name, "Nothing.", "not applicable", "skipped (--skip)") if name in skip else check()
        for name, check in _checks(subject, sample_size, tolerance, seed)
    ]
    names = [f"{direction}/{name}" for direction in DIRECTIONS for name in SHOWN]
    about = {
        "audited": subject.name,
        "kind": subject.kind,
        **subject.about,
        "split": subject.split,
        "train_split": train_split,
        "data_fingerprint": fingerprint(subject.pairs),
        "images": len(subject.pairs.images),
        "texts": len(subject.pairs.texts),
        "settings": {
            "sample": sample_size,
            "tolerance": tolerance,
            "seed": seed,
            "ties": "pessimistic",
            "device": work.device,
        },
        "versions": versions(),
    }
    audited = Audit(tuple(checks), {name: subject.result.figures[name] for name in names}, about)
    if html is not None:
        write_text(Path(html), render(audit_page(audited, subject.result)))
    return audited


@dataclass(frozen=True)
class _Subject:
    """What the checks look at.

    Attributes:
        name: For people.
        kind: See `name`.
        about: Run, model or files, as JSON can hold them.
        opened: The model and its record; None for files.
        pairs: The audited ones.
        split: See `pairs`.
        train: What the model was trained on, None where it cannot be read; and the reason why the audited pairs are not
            compared with it: that it cannot be read, or is what is audited; "" where they are compared.
        images: Vectors.
        texts: None for scores.
        scores: (I T); None for a model, or for vectors.
    """

    work: EvaluationSubject
    name: str
    kind: Literal["run", "pretrained model", "score matrix", "set of vectors"]
    about: dict[str, Any]
    opened: LoadedRun | None
    pairs: Dataset
    split: str
    train_split: str | None
    train: tuple[Dataset | None, str]
    result: Result
    images: Embeddings | None = None
    texts: Embeddings | None = None
    scores: Tensor | None = None


def _of_model(work: EvaluationSubject, train_split: str | None) -> _Subject:
    from subtext.evaluation import evaluate_embeddings
    from subtext.retrieval.build import model_fingerprint

    opened = open_subject(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    pairs, record = opened.pairs, opened.record
    items = opened.embed(work)
    result = evaluate_embeddings(opened.model.similarity, *items, pairs)
    model: dict[str, Any] = {"fingerprint": model_fingerprint(opened.model)}
    common = (opened, pairs, opened.split, train_split)
    if record is None:
        about: dict[str, Any] = {"model": {"pretrained": work.model.label, **model}, "data": work.sources.name}
        train = _named_split(work, train_split, pairs)
        return _Subject(work, work.model.label, "pretrained model", about, *common, train, result, *items)
    folder = Path(work.model.label).expanduser()
    about = {
        "run": str(folder.resolve()),
        "model": {"model": record.model, "seed": record.seed, **model},
        **({"scores_in_bf16": True} if opened.model.scores_in_bf16 else {}),
        "data": work.sources.name if work.sources.data is not None else record.data.name,
    }
    return _Subject(
        work, folder.name, "run", about, *common, _recorded_split(record, pairs, work.sources), result, *items
    )


def _of_files(work: EvaluationSubject, train_split: str | None, files: Files) -> _Subject:
    from subtext.evaluation import gallery_of

    pairs, split = read_split(work)
    output = read_output(files, pairs)
    kind: Literal["score matrix", "set of vectors"] = "set of vectors" if output.scores is None else "score matrix"
    about = {"model": output.about, "data": work.sources.name}
    train, result = _named_split(work, train_split, pairs), output.evaluate(gallery_of(pairs))
    vectors_or_scores = (output.images, output.texts, output.scores)
    name = Path(output.about.get("scores") or output.about["image_embeddings"]).name
    return _Subject(work, name, kind, about, None, pairs, split, train_split, train, result, *vectors_or_scores)


def _recorded_split(record: Record, audited: Dataset, sources: DataConfig) -> tuple[Dataset | None, str]:
    """The pairs that a run was trained on."""
    from subtext.data.dataset import fingerprint

    source = record.data
    try:
        pairs = read_data_of_run(record, sources).split(source.train_split)
    except (DataError, RequirementError) as error:
        return None, f"the training data cannot be read: {error}"
    recorded = record.fingerprint.partition("-")[0]
    if recorded and recorded != fingerprint(pairs):
        return None, f"the training data, {source.data}, has changed since the run was trained on it"
    is_audited = fingerprint(pairs) == fingerprint(audited)
    return pairs, "the audited split is the one that the run was trained on" if is_audited else ""


def _named_split(work: EvaluationSubject, train_split: str | None, audited: Dataset) -> tuple[Dataset | None, str]:
    """The split of the audited data that a model without a record was trained on, as the user says.

    Raises:
        DataError: If the data has no such split.
    """
    from subtext.data.dataset import fingerprint

    if train_split is None:
        return None, "the training split is not known; name a split of this data (--train-split)"
    pairs = read_split(replace(work, split=train_split))[0]
    is_audited = fingerprint(pairs) == fingerprint(audited)
    return pairs, "the audited split is the one that --train-split names" if is_audited else ""


def _checks(
    subject: _Subject, sample_size: int, tolerance: float, seed: int
) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Name -> how the check is made, in the order of a report."""
    from subtext.evaluation.checks.audit import CHECKS, Sample, caption_positions, finite, shuffled_truth, ties

    yield "held-out", partial(_held_out, subject)
    scores, opened = subject.scores, subject.opened
    if opened is None:
        needs = dict.fromkeys(CHECKS, "the model has to score the same pairs again")
        for name, need in (needs | {"truth": "the model has to embed each image under another one's name"}).items():
            yield name, partial(_impossible, subject, name, need)
    else:
        model, size = opened.model, subject.work.batch_size
        sample = Sample.drawn(model, subject.pairs, size=sample_size, seed=seed, batch_size=size, tolerance=tolerance)
        scores = sample.scores
        for name in CHECKS:
            yield name, partial(sample.check, name)
        yield "truth", partial(shuffled_truth, sample)
    yield "captions", partial(caption_positions, subject.result, subject.pairs)
    yield "ties", partial(ties, subject.result)
    yield "finite", partial(finite, subject.result, subject.images, subject.texts, scores)
    yield "image-overlap", partial(_overlap, subject, "image-overlap")
    yield "text-overlap", partial(_overlap, subject, "text-overlap")
    yield "vocabulary", partial(_vocabulary, subject)


def _held_out(subject: _Subject) -> Check:
    """Whether the model was trained on the split, or selected by it."""
    from subtext.evaluation.checks.check import Check

    check = partial(Check, "held-out")
    split, train_split = subject.split, subject.train_split
    record = None if subject.opened is None else subject.opened.record
    if record is None or subject.opened is None:
        if train_split is None:
            reason = f"a {subject.kind} has no record of its training split; name it (--train-split)"
            return check("Nothing.", "not applicable", reason)
        did = "The audit relied on --train-split, the split that the model was trained on."
        if split in ("all", train_split) or train_split == "all":
            return check(did, "fail", f"split {split} shares pairs with the training split")
        result = f"trained on split {train_split}, not on {split}; which split selected its epoch is not known"
        return check(did, "pass", result)
    did = "The record of the run was read: which split it was trained on, and which one selected its epoch."
    role, _ = split_role(subject.opened, subject.work.sources)
    if role == "unknown":
        reason = "the audited data is not the run's own, or is split anew; the overlap checks compare the two"
        return check(did, "not applicable", reason)
    if role == "training":
        return check(did, "fail", f"split {split} {'holds' if split == 'all' else 'is'} what the run was trained on")
    if role == "selection" and record.plan.get("select") != "last":
        result = f"not trained on; but split {split} selected the epoch, so expect less on data that decided nothing"
        return check(did, "pass", result, {"chose_the_epoch": True})
    return check(did, "pass", f"the run was trained on split {record.data.train_split}, not on {split}")


def _overlap(subject: _Subject, name: str) -> Check:
    """Whether images, or texts, of the audited split are in the training split."""
    from subtext.data.features import FeatureInput
    from subtext.evaluation.checks import overlap

    (train, reason), work, pairs = subject.train, subject.work, subject.pairs
    if train is None or reason:
        return _unknown(name, reason)
    if name == "text-overlap":
        with meter("comparing texts", len(pairs.texts) + len(train.texts), quiet=work.quiet) as progress:
            return overlap.texts(pairs, train, progress=progress)
    with meter("comparing images", len(pairs.images) + len(train.images), quiet=work.quiet) as progress:
        check = overlap.images(pairs, train, workers=work.workers, progress=progress)
    input_spec = None if subject.opened is None else subject.opened.model.image.input_spec
    if check.outcome == "not applicable" and isinstance(input_spec, FeatureInput) and input_spec.file is not None:
        return overlap.features(pairs, train, input_spec.file)
    return check


def _vocabulary(subject: _Subject) -> Check:
    from subtext.evaluation.checks.overlap import vocabulary

    if subject.opened is None:
        return _impossible(subject, "vocabulary", "the model's vocabulary has to be read")
    (train, reason), record = subject.train, subject.opened.record
    if train is None:
        return _unknown("vocabulary", reason)
    train_texts, texts = ([t for t in dataset.texts.values if isinstance(t, str)] for dataset in (train, subject.pairs))
    min_count = None if record is None else record.arguments.get("min_count")
    return vocabulary(subject.opened.model.text.input_spec, train_texts, texts, min_count=min_count)


def _impossible(subject: _Subject, name: str, need: str) -> Check:
    from subtext.evaluation.checks.check import Check

    reason = f"not possible for a {subject.kind}: {need}; audit the run, or the model (--model), for it"
    return Check(name, "Nothing.", "not applicable", reason)


def _unknown(name: str, reason: str) -> Check:
    from subtext.evaluation.checks.check import Check

    return Check(name, "Nothing: it needs the training split beside another one.", "not applicable", reason)
