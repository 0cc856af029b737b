"""`subtext train`: a Job carried out, from pairs on disk to a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from subtext.api.job import Job
from subtext.api.load import attach
from subtext.api.loaded import choose_device, read
from subtext.data.build_context import BuildContext, FeatureShape
from subtext.data.dataset import Dataset, Items
from subtext.data.features import FeatureFile, FeatureInput
from subtext.errors import DataError, counted
from subtext.evaluation.measure import chance_figures
from subtext.evaluation.results import figures_table
from subtext.models.checkpoint import DataSource, Record
from subtext.models.model import Model
from subtext.recipes.build import acting, build
from subtext.recipes.catalogue import Recipe, methods
from subtext.report.progress import say, training_meter
from subtext.report.text_table import Cell, duration, table
from subtext.training.fit import fit
from subtext.training.reading import batches_of
from subtext.training.setup import RunOptions, Setup


@dataclass(frozen=True)
class Material:
    """What is learnt from: pairs, and the features that stand for a modality."""

    train: Dataset
    val: Dataset | None
    image_features: FeatureFile | None
    text_features: FeatureFile | None


@dataclass(frozen=True)
class Trained:
    """What a training has to say in the end, and whether somebody stopped it before."""

    text: str
    stopped: bool = False


def train(job: Job) -> Trained:
    """Train as the job says, or with `dry_run` build everything and train nothing.

    Raises what reading, building and training raise.
    """
    run = RunOptions(**job.run)
    material = gather(job)
    setup = prepare(job, material, seed=run.seed)
    if job.dry_run:
        return Trained(describe(job, setup, material))
    choose_device(run.device)
    say(_counts(material), quiet=job.quiet)
    with training_meter(quiet=job.quiet) as told:
        fitted = fit(
            setup, material.train, material.val, job.out, record=record_of(job, material, setup), run=run, report=told
        )
    return Trained(_outcome(job, fitted.record, material), stopped=fitted.record.status == "stopped")


def gather(job: Job) -> Material:
    """Read pairs and features, and see that every picture and text that is needed has its features, in finite numbers.

    Raises DataError when they cannot be used.
    """
    reading = read(job.sources, quiet=job.quiet)
    pairs = reading.pairs
    images = _opened(job.sources.features) or reading.features
    texts = _opened(job.sources.text_features)
    chosen = Material(pairs.split(job.train_split), _validation(pairs, job.val_split), images, texts)
    for part in filter(None, (chosen.train, chosen.val)):
        _require_rows(images, part.images)
        _require_rows(texts, part.texts)
    return chosen


def prepare(job: Job, material: Material, *, seed: int) -> Setup:
    """The host with its methods, built for this material, reading its features."""
    train = material.train
    context = BuildContext(
        image_features=_shape(material.image_features, train.images),
        text_features=_shape(material.text_features, train.texts),
        texts=tuple(text for text in train.texts.values if isinstance(text, str)),
        seed=seed,
    )
    setup = build(job.host, job.arguments, methods=job.methods, plan=job.plan, context=context)
    if material.image_features is not None:
        attach(setup.model.image, material.image_features, "image")
        for part in filter(None, (train, material.val)):
            _require_boxes(setup.model, part.images)
    if material.text_features is not None:
        attach(setup.model.text, material.text_features, "text")
    return setup


def record_of(job: Job, material: Material, setup: Setup) -> Record:
    """What is known of the run before it starts.

    Every option that acts is written down, those left out too: a default may change, a run may not. Features that are
    a part of the data set are remembered as a file.
    """
    images = material.image_features
    sources = replace(job.sources, features=None if images is None else images.path).to_json()
    return Record(
        host=job.host,
        arguments=acting(job.host, job.arguments, setup),
        methods=tuple((name, _complete(methods()[name], given)) for name, given in job.methods),
        data=DataSource(
            data=sources["data"],
            images=sources["images"],
            features=sources["features"],
            text_features=sources["text_features"],
            train_split=job.train_split,
            val_split=job.val_split,
            split_seed=job.sources.split_seed or 0,
            bad=job.sources.bad or "refuse",
        ),
    )


def _complete(recipe: Recipe, given: Mapping[str, object]) -> dict[str, object]:
    return {option.name: option.default for option in recipe.options} | dict(given)


def describe(job: Job, setup: Setup, material: Material) -> str:
    """What would be trained: parameters, pairs, steps."""
    plan = setup.plan
    steps = len(batches_of(material.train, plan, epoch=0, seed=0, processes=1))
    rows: list[list[Cell]] = [
        [name, sum(p.numel() for p in part.parameters()), sum(p.numel() for p in part.parameters() if p.requires_grad)]
        for name, part in _parts(setup.model)
    ]
    return "\n".join(
        [
            f"{job.host}{''.join(f' + {name}' for name, _ in job.methods)}: built, not trained (--dry-run)",
            table(["part", "parameters", "learning"], rows),
            _counts(material),
            f"{counted(plan.epochs, 'epoch')} of {counted(steps, 'step')} of {counted(plan.batch_size, 'pair')}: "
            f"{counted(plan.epochs * steps, 'step')}",
        ]
    )


def _parts(model: Model) -> list[tuple[str, nn.Module]]:
    return [("image", model.image), ("text", model.text), ("similarity", model.similarity), ("all", model)]


def _opened(path: Path | None) -> FeatureFile | None:
    return None if path is None else FeatureFile.open(path.expanduser())


def _validation(pairs: Dataset, name: str | None) -> Dataset | None:
    if name is None:
        return None
    try:
        return pairs.split(name)
    except DataError as error:
        raise DataError(f"{error}, or train without validation (--val-split none)") from error


def _require_rows(file: FeatureFile | None, items: Items) -> None:
    if file is not None:
        file.require(items.ids, items.values)


def _require_boxes(model: Model, items: Items) -> None:
    if isinstance(model.image.input_spec, FeatureInput):
        model.image.input_spec.require_boxes(items.ids, items.values)


def _shape(file: FeatureFile | None, items: Items) -> FeatureShape | None:
    return None if file is None else file.shape(items.ids, items.values)


def _counts(material: Material) -> str:
    train, val = material.train, material.val
    text = f"train: {_items(train)}, {counted(len(train.links), 'pair')}"
    return text if val is None else f"{text}; validation: {_items(val)}"


def _items(pairs: Dataset) -> str:
    return f"{counted(len(pairs.images), 'picture')}, {counted(len(pairs.texts), 'text')}"


def _outcome(job: Job, record: Record, material: Material) -> str:
    out = shlex.quote(str(job.out))
    best = "" if record.best_epoch is None else f", the best of them {record.best_epoch}"
    lines = [f"{job.out}: {record.status} after {counted(record.epochs, 'epoch')}{best}, {duration(record.seconds)}"]
    if record.best and material.val is not None:
        lines += [f"on the split {job.val_split}:", figures_table(record.best, chance_figures(material.val))]
    if record.status == "stopped":
        return "\n".join([*lines, "the same command with --resume goes on from there"])
    split = job.val_split or job.train_split
    return "\n".join(
        [
            *lines,
            "next:",
            f"  subtext evaluate {out} --split {split}",
            f"  subtext index build INDEX --run {out} --split all",
            '  subtext search INDEX "words"',
        ]
    )
