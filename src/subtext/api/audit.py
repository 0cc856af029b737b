"""`subtext.audit`: checks of an evaluation for leaks, and for scores that depend on more than their pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.external import (
    Files,
    ImageEmbeddings,
    ImageIds,
    OptionalRun,
    PretrainedModel,
    Scores,
    Similarity,
    TextEmbeddings,
    TextIds,
    read_output,
    read_split,
    require_one,
)
from subtext.api.load import Sources, Work
from subtext.api.options import (
    BatchSize,
    Bf16,
    Data,
    Device,
    Features,
    Flag,
    Images,
    Metavar,
    OnError,
    Quiet,
    Range,
    Section,
    Split,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)
from subtext.errors import ArgumentError, DataError, RequirementError

if TYPE_CHECKING:
    from torch import Tensor

    from subtext.api.load import Opened
    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset
    from subtext.evaluation import Result
    from subtext.evaluation.audit import Audit, Check
    from subtext.models.checkpoint import Record

CheckName = Literal[
    "held-out", "repeat", "order", "blocks", "neighbours", "names", "truth", "captions", "ties", "finite",
    "image-overlap", "text-overlap", "vocabulary",
]  # fmt: skip
SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank")
_CHECKS, _OUTPUT = Section("Checks"), Section("Output")


@verb
def audit(
    run: OptionalRun = None,
    *,
    model: PretrainedModel = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    image_ids: ImageIds = None,
    text_ids: TextIds = None,
    similarity: Similarity = "cosine",
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Split = None,
    train_split: Annotated[
        str | None, "Without RUN: the split of this data that the model was trained on, if known.", Section("Data")
    ] = None,
    skip: Annotated[tuple[CheckName, ...], "Leave a check out; repeat for more.", _CHECKS] = (),
    sample_size: Annotated[
        int, "Images that are scored again in other orders, blocks and batches.", Range(2), _CHECKS
    ] = 128,
    tolerance: Annotated[
        float, "Largest change of a score, in standard deviations of the scores.", Range(0), _CHECKS
    ] = 1e-3,
    seed: Annotated[int, "Seed of sample and shuffles.", _CHECKS] = 0,
    json: Annotated[
        str | Path | None, "Write the audit as JSON; - for standard output.", Metavar("FILE"), _OUTPUT
    ] = None,
    html: Annotated[str | Path | None, "Write the audit as one page.", Flag("--html"), Metavar("FILE"), _OUTPUT] = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
    bf16: Bf16 = None,
) -> Audit:
    """Check an evaluation for leaks, and for scores that depend on more than their pair.

    The audit scores a sample again in other orders, blocks and batches; shuffles the truth; counts ties and scores that
    are not a number; compares recall by caption position; and searches the audited split for images, texts and words of
    the training split. Checks that need the model do not apply to the scores or vectors of another program. The exit
    code is 1 when a check fails.

    Raises ArgumentError for arguments that do not go together; what loading and reading raise; OutputError for a file
    that cannot be written, before the work begins.
    """
    from subtext.core import DIRECTIONS
    from subtext.data.atomic import require_file, write_text
    from subtext.data.dataset import fingerprint
    from subtext.evaluation.audit import Audit, Check, audit_page
    from subtext.evaluation.results import versions
    from subtext.report.page import render

    files = Files.of(scores, image_embeddings, text_embeddings, image_ids, text_ids, similarity)
    require_one("audit", run, model, files, data=data, features=features, text_features=text_features, bf16=bf16)
    if run is not None and train_split is not None:
        raise ArgumentError("--train-split is for what has no record; RUN records what it was trained on")
    outputs = [Path(path) for path in (json, html) if path is not None]
    for path in outputs:
        require_file(path)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise RequirementError(f"--json and --html need a file each; both write to {json}")
    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    folder = None if run is None else Path(getattr(run, "path", run))
    work = Work(folder, model, sources, split, device, batch_size, workers, quiet, bf16)
    subject = _of_model(work, train_split) if files is None else _of_files(work, train_split, files)
    checks = []
    for name, check in _checks(subject, sample_size, tolerance, seed):
        if name in skip:
            checks.append(Check(name, "Nothing.", "not applicable", "skipped (--skip)"))
        else:
            checks.append(check())
    figures = {
        f"{direction}/{name}": subject.result.figures[f"{direction}/{name}"]
        for direction in DIRECTIONS
        for name in SHOWN
    }
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
            "device": device,
        },
        "versions": versions(),
    }
    audited = Audit(tuple(checks), figures, about)
    if json is not None:
        write_text(Path(json), audited.json_text() + "\n")
    if html is not None:
        write_text(Path(html), render(audit_page(audited, subject.result)))
    return audited


@dataclass(frozen=True)
class _TrainSplit:
    """The training split, or the reason why it cannot be read.

    itself  whether it is the very split that is audited
    """

    pairs: Dataset | None
    reason: str = ""
    itself: bool = False


@dataclass(frozen=True)
class _Subject:
    """What the checks look at.

    name, kind     for people                  about  run, model or files, as JSON can hold them
    opened         the model and its record; None for files
    pairs, split   the audited ones            train  what the model was trained on
    images, texts  vectors; None for scores    scores (I T); None for a model, or for vectors
    """

    work: Work
    name: str
    kind: Literal["run", "pretrained model", "score matrix", "set of vectors"]
    about: dict[str, Any]
    opened: Opened | None
    pairs: Dataset
    split: str
    train_split: str | None
    train: _TrainSplit
    result: Result
    images: Embeddings | None = None
    texts: Embeddings | None = None
    scores: Tensor | None = None


def _of_model(work: Work, train_split: str | None) -> _Subject:
    from subtext.api.load import choose_precision, open_work
    from subtext.evaluation import Protocol, embed_pairs, evaluate_embeddings
    from subtext.report.progress import meter
    from subtext.search import model_fingerprint

    opened = open_work(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    pairs, record = opened.pairs, opened.record
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as progress:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=progress)
    result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=Protocol(c_way=()))
    model: dict[str, Any] = {"fingerprint": model_fingerprint(opened.model)}
    common = (opened, pairs, opened.split, train_split)
    if record is None:
        about: dict[str, Any] = {"model": {"pretrained": work.model, **model}, "data": str(work.sources.data)}
        train = _named_split(work.sources, train_split, pairs)
        return _Subject(work, str(work.model), "pretrained model", about, *common, train, result, *items)
    assert work.run is not None
    about = {
        "run": str(work.run.expanduser().resolve()),
        "model": {"host": record.model, "seed": record.seed, **model},
        **({"scores_in_bf16": True} if opened.model.scores_in_bf16 else {}),
        "data": str(work.sources.data or record.data.data),
    }
    return _Subject(work, work.run.name, "run", about, *common, _recorded_split(record, pairs), result, *items)


def _of_files(work: Work, train_split: str | None, files: Files) -> _Subject:
    from subtext.evaluation import Protocol

    pairs, split = read_split(work.sources, work.split)
    output = read_output(files, pairs)
    path = files.scores or files.images
    assert path is not None
    return _Subject(
        work,
        path.name,
        "set of vectors" if output.scores is None else "score matrix",
        {"model": output.about, "data": str(work.sources.data)},
        None,
        pairs,
        split,
        train_split,
        _named_split(work.sources, train_split, pairs),
        output.evaluate(pairs, Protocol(c_way=())),
        output.images,
        output.texts,
        output.scores,
    )


def _recorded_split(record: Record, audited: Dataset) -> _TrainSplit:
    """The pairs that a run was trained on, read again from where they were; images are not decoded."""
    from subtext.data.dataset import fingerprint
    from subtext.data.read import read as read_dataset

    if not record.data.data:
        return _TrainSplit(None, "the run does not record where its training data is")
    source = record.data
    try:
        reading = read_dataset(
            Path(source.data),
            images=None if source.images is None else Path(source.images),
            split_seed=source.split_seed,
            on_error=source.on_error,
            # Where bad rows were skipped, the same have to be skipped again.
            verify=source.on_error == "skip" and source.features is None,
            need_images=source.features is None,
        )
        pairs = reading.split(source.train_split)
    except DataError as error:
        return _TrainSplit(None, f"the training data cannot be read: {error}")
    recorded = source.fingerprint.partition("-")[0]
    if recorded and recorded != fingerprint(pairs):
        return _TrainSplit(None, f"the training data, {source.data}, has changed since the run was trained on it")
    if fingerprint(pairs) == fingerprint(audited):
        return _TrainSplit(pairs, "the audited split is the one that the run was trained on", itself=True)
    return _TrainSplit(pairs)


def _named_split(sources: Sources, train_split: str | None, audited: Dataset) -> _TrainSplit:
    """The split of the audited data that a model without a record was trained on, as the user says.

    Raises DataError when the data has no such split.
    """
    from subtext.data.dataset import fingerprint

    if train_split is None:
        return _TrainSplit(None, "the training split is not known; name a split of this data (--train-split)")
    pairs = read_split(sources, train_split)[0]
    if fingerprint(pairs) == fingerprint(audited):
        return _TrainSplit(pairs, "the audited split is the one that --train-split names", itself=True)
    return _TrainSplit(pairs)


def _checks(
    subject: _Subject, sample_size: int, tolerance: float, seed: int
) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Name -> how the check is made, in the order of a report."""
    from subtext.evaluation.audit import CHECKS, Sample, Stability, caption_places, finite, shuffled_truth, ties

    yield "held-out", lambda: _held_out(subject)
    if subject.opened is None:
        scores = subject.scores
        for name in (*CHECKS, "truth"):
            yield name, partial(_impossible, subject, name)
    else:
        sample = Sample.drawn(
            subject.opened.model, subject.pairs, pictures=sample_size, seed=seed, batch_size=subject.work.batch_size
        )
        base = Stability.of(sample, tolerance=tolerance, seed=seed)
        scores = base.scores
        for name in CHECKS:
            yield name, partial(base.check, name, *CHECKS[name])
        yield "truth", lambda: shuffled_truth(base)
    yield "captions", lambda: caption_places(subject.result, subject.pairs)
    yield "ties", lambda: ties(subject.result)
    yield "finite", lambda: finite(subject.result, subject.images, subject.texts, scores)
    yield "image-overlap", lambda: _images(subject)
    yield "text-overlap", lambda: _texts(subject)
    yield "vocabulary", lambda: _vocabulary(subject)


def _held_out(subject: _Subject) -> Check:
    """Whether the model was trained on the split, or selected by it."""
    from subtext.evaluation.audit import Check

    check = partial(Check, "held-out")
    split, train_split = subject.split, subject.train_split
    record = None if subject.opened is None else subject.opened.record
    if record is None:
        if train_split is None:
            reason = f"a {subject.kind} has no record of its training split; name it (--train-split)"
            return check("Nothing.", "not applicable", reason)
        did = "The audit relied on --train-split, the split that the model was trained on."
        if split in ("all", train_split) or train_split == "all":
            return check(did, "fail", f"split {split} shares pairs with the training split")
        result = f"trained on split {train_split}, not on {split}; which split selected its epoch is not known"
        return check(did, "pass", result)
    did = "The record of the run was read: which split it was trained on, and which one selected its epoch."
    sources = subject.work.sources
    other_data = sources.data is not None and sources.to_json()["data"] != record.data.data
    if other_data or sources.split_seed not in (None, record.data.split_seed):
        reason = "the audited data is not the run's own, or is split anew; the overlap checks compare the two"
        return check(did, "not applicable", reason)
    if split in ("all", record.data.train_split):
        return check(did, "fail", f"split {split} {'holds' if split == 'all' else 'is'} what the run was trained on")
    if split == record.data.val_split and record.plan.get("select") != "last":
        result = f"not trained on; but split {split} selected the epoch, so expect less on data that decided nothing"
        return check(did, "pass", result, {"chose_the_epoch": True})
    return check(did, "pass", f"the run was trained on split {record.data.train_split}, not on {split}")


def _images(subject: _Subject) -> Check:
    from subtext.data.features import FeatureInput
    from subtext.evaluation import overlap
    from subtext.report.progress import meter

    train, work = subject.train.pairs, subject.work
    if train is None or subject.train.itself:
        return _unknown("image-overlap", subject.train)
    with meter("comparing images", len(subject.pairs.images) + len(train.images), quiet=work.quiet) as progress:
        check = overlap.images(subject.pairs, train, workers=work.workers, progress=progress)
    input_spec = None if subject.opened is None else subject.opened.model.image.input_spec
    if check.outcome == "not applicable" and isinstance(input_spec, FeatureInput) and input_spec.file is not None:
        return overlap.features(subject.pairs, train, input_spec.file)
    return check


def _texts(subject: _Subject) -> Check:
    from subtext.evaluation import overlap
    from subtext.report.progress import meter

    train = subject.train.pairs
    if train is None or subject.train.itself:
        return _unknown("text-overlap", subject.train)
    with meter("comparing texts", len(subject.pairs.texts) + len(train.texts), quiet=subject.work.quiet) as progress:
        return overlap.texts(subject.pairs, train, progress=progress)


def _vocabulary(subject: _Subject) -> Check:
    from subtext.evaluation.overlap import vocabulary

    if subject.opened is None:
        return _impossible(subject, "vocabulary")
    train, record = subject.train.pairs, subject.opened.record
    if train is None:
        return _unknown("vocabulary", subject.train)
    train_texts, texts = ([t for t in dataset.texts.values if isinstance(t, str)] for dataset in (train, subject.pairs))
    min_count = None if record is None else record.arguments.get("min_count")
    return vocabulary(subject.opened.model.text.input_spec, train_texts, texts, min_count=min_count)


def _impossible(subject: _Subject, name: str) -> Check:
    from subtext.evaluation.audit import Check

    needs = {
        "truth": "the model has to embed each image under another one's name",
        "vocabulary": "the model's vocabulary has to be read",
    }.get(name, "the model has to score the same pairs again")
    reason = f"not possible for a {subject.kind}: {needs}; audit the run, or the model (--model), for it"
    return Check(name, "Nothing.", "not applicable", reason)


def _unknown(name: str, train: _TrainSplit) -> Check:
    from subtext.evaluation.audit import Check

    did = "Nothing: it needs the training split beside another one."
    return Check(name, did, "not applicable", train.reason)
