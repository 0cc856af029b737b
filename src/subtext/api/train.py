"""`subtext.train`: a model recipe with methods, trained on a data set into a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.load import Run, Sources, choose_device, read
from subtext.api.options import (
    Columns,
    Device,
    Features,
    Flag,
    Metavar,
    OptionGroup,
    Quiet,
    Range,
    TextFeatures,
    TextFields,
    Workers,
    verb,
)
from subtext.errors import DataError, RecipeError
from subtext.recipes.catalogue import (
    RECOMMENDED,
    methods,
    models,
    plan_options,
    read_method,
    read_options,
    unknown,
)  # fmt: skip
from subtext.report.progress import say, training_meter
from subtext.report.text_table import Cell, duration, table
from subtext.text_helpers import counted

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.data.features import FeatureFile
    from subtext.models.checkpoint import Record
    from subtext.training.setup import Setup


_DATA = OptionGroup("Data")
_RUN = OptionGroup("Run")


@dataclass(frozen=True)
class Job:
    """A training as plain data.

    Attributes:
        model: A model recipe's name.
        options: Its options; those left out keep their defaults.
        methods: (name, options) in order.
        plan: Fields of the training plan that replace the model's own.
        out: The run's folder.
        train_split: Names of splits.
        val_split: val_split None for no validation.
        run: Fields of RunOptions: seed, device, workers, resume ...
        train_data: Pairs in memory, in place of those splits.
        val_data: See `train_data`.
    """

    model: str
    options: Mapping[str, object]
    methods: tuple[tuple[str, dict[str, object]], ...]
    plan: Mapping[str, object]
    sources: Sources
    out: Path
    train_split: str = "train"
    val_split: str | None = "val"
    run: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = False
    train_data: Dataset | None = None
    val_data: Dataset | None = None


@dataclass(frozen=True)
class TrainingData:
    """The pairs of a training, and the feature files that stand for a modality."""

    train: Dataset
    val: Dataset | None
    image_features: FeatureFile | None
    text_features: FeatureFile | None

    def __str__(self) -> str:
        text = f"train: {_size(self.train)}, {counted(len(self.train.links), 'pair')}"
        return text if self.val is None else f"{text}; validation: {_size(self.val)}"


@verb
def train(
    model: Annotated[str, "Model recipe."] = RECOMMENDED,
    /,
    *,
    data: Annotated[str | Path | Dataset, "Data set: a file or folder.", _DATA, Metavar("DATA")],
    out: Annotated[str | Path, "Folder of the run; must be new unless --resume is set.", _RUN, Metavar("RUN")],
    images: Annotated[str | Path | None, "Folder of relative image paths.", _DATA] = None,
    features: Features = None,
    text_features: TextFeatures = None,
    columns: Columns = None,
    text_fields: TextFields = None,
    train_split: Annotated[str, "Split to train on.", _DATA] = "train",
    val_split: Annotated[str | None, "Split that selects the epoch; none for no selection.", _DATA] = "val",
    split_seed: Annotated[int, "Seed of the 80-10-10 split of data without splits.", _DATA] = 0,
    on_error: Annotated[Literal["raise", "skip"], "What to do with rows that cannot be used.", _DATA] = "raise",
    with_: Annotated[
        tuple[str | Any, ...] | list[Any],
        "A training method; repeatable.",
        _RUN,
        Flag("--with"),
        Metavar("METHOD[:key=value,...]"),
    ] = (),
    seed: Annotated[int, "Seed of every random choice.", _RUN] = 0,
    device: Device = "auto",
    workers: Workers = 2,
    resume: Annotated[bool, "Resume from the last checkpoint in RUN.", _RUN] = False,
    checkpoint_every: Annotated[int, "Steps between checkpoints; 0: at the end of each epoch.", Range(0), _RUN] = 0,
    keep_checkpoints: Annotated[int, "Checkpoints to keep.", Range(1), _RUN] = 2,
    save_every_epochs: Annotated[
        int, "Save every Nth epoch as a run, RUN/epochs/EPOCH; 0 for none.", Range(0), _RUN
    ] = 0,
    cache: Annotated[str | Path | None, "Folder for the outputs of frozen encoders. Default: RUN/cache.", _RUN] = None,
    tensorboard: Annotated[bool, "Also write TensorBoard logs (extra: tensorboard).", _RUN] = False,
    dry_run: Annotated[bool, "Build model and data and report sizes; no training.", _RUN] = False,
    quiet: Quiet = False,
    train_data: Dataset | None = None,
    val_data: Dataset | None = None,
    **options: object,
) -> Run:
    """Train a model on pairs of images and texts, and save it in the folder RUN.

    DATA has any format of `subtext data check`.

    Args:
        model: The name of a recipe: `subtext train --help` lists them.
        with_: Training methods, as in ["hal", "neighbourhoods:graph=graphs/d2v,form=angular"], or with their options as
            a mapping: [("neighbourhoods", {"form": "angular"})].
        train_data: In Python: pairs to use instead of the splits of `data`. The record still contains `data`, so that
            other functions can read it.
        val_data: See `train_data`.
        **options: Of the model recipe (embed_dim, margin ...) and of the training plan (epochs, lr, batch_size ...):
            `subtext train MODEL --help` lists them.

    Returns:
        The run; the model with the saved weights, its record and its folder. Use it as the `run` of other functions.
        After Ctrl-C, the training stops after the current step, with `record.status` "stopped". With `dry_run`, the
        model is not trained and nothing is written; `summary` describes the model.

    Raises:
        RecipeError: If an option is unknown or has no effect.
        DataError: For data that cannot be used.
        TrainingError: If a loss is not finite.
        CheckpointError: If the folder contains another training, or is not empty without `resume`.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("model", "options")}
    # Before torch is imported and the data is read; beside features a name is refused as such, wherever it is from.
    has_name = model in ("adapt", "clip") and options.get("model", "features") != "features"
    if has_name and features is None and text_features is None:
        from subtext.models.encoders.hub import require_model

        require_model(str(options["model"]))
    from subtext.models.checkpoint import Record
    from subtext.training.fit import fit, start_run
    from subtext.training.setup import RunOptions

    job = job_of(model, arguments | options)
    run_options = RunOptions(**job.run)
    if not (dry_run or resume):
        start_run(job.out, Record(model), resume=False)  # Before minutes of reading the data.
    pairs = read_training_data(job)
    setup = build_setup(job, pairs, seed=run_options.seed)
    record = initial_record(job, pairs, setup)
    if dry_run:
        return Run(setup.model, record, job.out, summary=_description(job, setup, pairs))
    choose_device(run_options.device)
    say(str(pairs), quiet=quiet)
    with training_meter(quiet=quiet) as report:
        fitted = fit(setup, pairs.train, pairs.val, job.out, record=record, run=run_options, report=report)
    return Run(fitted.model, fitted.record, job.out, fitted.notes, summary=_outcome(job, fitted.record, pairs))


def job_of(model: str, arguments: Mapping[str, Any]) -> Job:
    """The job of a call of `train` with these keyword arguments.

    Raises:
        RecipeError: For an unknown model, method or option, with near names.
    """
    from subtext.training.setup import RunOptions

    if model not in models():
        raise RecipeError(unknown("model", model, models()))
    options, plan = models()[model].options, plan_options(models()[model].plan)
    model_names, planned = ({option.name for option in some} for some in (options, plan))
    for name in arguments:
        if name not in model_names | planned | set(train.__annotations__):
            options_by_name = {option.name: option for option in [*options, *plan]}
            raise RecipeError(unknown(f"option of '{model}' or of its training", name, options_by_name))
    methods = arguments.get("with_", ())
    names = ("data", "images", "features", "text_features", "split_seed", "on_error", "columns", "text_fields")
    run = {name: arguments[name] for name in RunOptions.__dataclass_fields__ if name in arguments}
    val_split = arguments.get("val_split", "val")
    return Job(
        model=model,
        options={name: value for name, value in arguments.items() if name in model_names},
        methods=tuple(
            read_method(method) if isinstance(method, str) else method
            for method in ([methods] if isinstance(methods, str) else methods)
        ),
        plan={name: value for name, value in arguments.items() if name in planned},
        sources=Sources.of(*map(arguments.get, names)),
        out=Path(arguments["out"]),
        train_split=arguments.get("train_split", "train"),
        val_split=None if val_split == "none" else val_split,
        run=run | ({"cache": Path(run["cache"])} if run.get("cache") is not None else {}),
        quiet=bool(arguments.get("quiet", False)),
        train_data=arguments.get("train_data"),
        val_data=arguments.get("val_data"),
    )


def read_training_data(job: Job) -> TrainingData:
    """Read pairs and features, and check that every image and text has its features, in finite numbers.

    Raises:
        DataError: If they cannot be used.
    """
    from subtext.data.features import FeatureFile

    reading = cache(lambda: read(job.sources, quiet=job.quiet))
    train, val = job.train_data, job.val_data
    if train is None:
        train = reading().split(job.train_split)
    if val is None and job.val_split is not None:
        try:
            val = reading().split(job.val_split)
        except DataError as error:
            raise DataError(f"{error}, or train without validation (--val-split none)") from error
    image_features, text_features = (
        None if path is None else FeatureFile.open(path, side)
        for side, path in (("image", job.sources.features), ("text", job.sources.text_features))
    )
    data = TrainingData(train, val, image_features or train.features, text_features)
    for part in filter(None, (data.train, data.val)):
        for file, items in ((image_features, part.images), (text_features, part.texts)):
            if file is not None:
                file.require(items.ids, items.values)
    return data


def build_setup(job: Job, data: TrainingData, *, seed: int) -> Setup:
    """The model with its methods, built for this data and reading its features."""
    from subtext.data.features import FeatureInput
    from subtext.recipes.build import attach, build
    from subtext.training.setup import BuildContext

    image_file, text_file, images, texts = data.image_features, data.text_features, data.train.images, data.train.texts
    context = BuildContext(
        image_features=None if image_file is None else image_file.shape(images.ids, images.values),
        text_features=None if text_file is None else text_file.shape(texts.ids, texts.values),
        texts=tuple(text for text in texts.values if isinstance(text, str)),
        seed=seed,
    )
    setup = build(job.model, job.options, methods=job.methods, plan=job.plan, context=context)
    if image_file is not None:
        attach(setup.model.image, image_file, "image")
        spec = setup.model.image.input_spec
        for part in filter(None, (data.train, data.val)):
            if isinstance(spec, FeatureInput):
                spec.require_boxes(part.images.ids, part.images.values)
    if text_file is not None:
        attach(setup.model.text, text_file, "text")
    return setup


def initial_record(job: Job, data: TrainingData, setup: Setup) -> Record:
    """The record of the run before it starts.

    Every option that is used is written down, those left out too: a default may change, a run may not. Features that
    are a part of the data set are recorded as a file.
    """
    from subtext.models.checkpoint import DataSource, Record
    from subtext.recipes.build import recorded_options

    features = None if data.image_features is None else data.image_features.path
    used = replace(
        job.sources, features=features, split_seed=job.sources.split_seed or 0, on_error=job.sources.on_error or "raise"
    )
    return Record(
        model=job.model,
        arguments=recorded_options(job.model, job.options, setup),
        methods=tuple((name, read_options("option", methods()[name].options, values)) for name, values in job.methods),
        data=DataSource(
            **{**used.to_json(), "data": used.to_json()["data"] or ""},
            train_split=job.train_split,
            val_split=job.val_split,
        ),
    )


def _description(job: Job, setup: Setup, data: TrainingData) -> str:
    """What would be trained: parameters, pairs, steps."""
    from subtext.training.step import batches_of

    plan, model = setup.plan, setup.model
    steps = len(batches_of(data.train, plan, epoch=0, seed=0, processes=1))
    modules = {"image": model.image, "text": model.text, "similarity": model.similarity, "all": model}
    rows: list[list[Cell]] = []
    for name, module in modules.items():
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in module.parameters()]
        rows.append([name, sum(size for size, _ in sizes), sum(size for size, learns in sizes if learns)])
    return "\n".join(
        [
            f"{job.model}{''.join(f' + {name}' for name, _ in job.methods)}: built, not trained (--dry-run)",
            table(["part", "parameters", "learning"], rows),
            str(data),
            f"{counted(plan.epochs, 'epoch')} of {counted(steps, 'step')} of {counted(plan.batch_size, 'pair')}: "
            f"{counted(plan.epochs * steps, 'step')}",
        ]
    )


def _gained(job: Job) -> list[str]:
    """The pretrained model and the adapted one, and their paired difference; `subtext compare` tests more figures."""
    from subtext.evaluation.compare import compare, read_measured
    from subtext.training.fit import KEPT, START

    kept, start = (job.out / f"{name}.json" for name in (KEPT, START))
    compared = compare([read_measured(kept)], [read_measured(start)], figures=("recall@1", "recall@10"))
    selected = "" if job.plan.get("select") == "last" else ", which selected the epoch"
    return [
        compared.gains(f"split {job.val_split}{selected}", "zero-shot", "adapted"),
        f"on another split: `subtext evaluate` {shlex.quote(str(job.out))} and the model, then `subtext compare`",
    ]


def _size(pairs: Dataset) -> str:
    return f"{counted(len(pairs.images), 'image')}, {counted(len(pairs.texts), 'text')}"


def _outcome(job: Job, record: Record, data: TrainingData) -> str:
    from subtext.evaluation.measure import chance_figures
    from subtext.evaluation.results import figures_table

    out = shlex.quote(str(job.out))
    best = "" if record.best_epoch is None else f", best epoch {record.best_epoch}"
    lines = [f"{job.out}: {record.status} after {counted(record.epochs, 'epoch')}{best}, {duration(record.seconds)}"]
    if record.best and data.val is not None:
        lines += [f"on the split {job.val_split}:", *figures_table(record.best, chance_figures(data.val))]
    if record.start:
        lines += _gained(job)
    if record.status == "stopped":
        return "\n".join([*lines, "run the same command with --resume to continue"])
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
