"""`subtext.train`: a model recipe with methods, trained on a data set into a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.load import Run, choose_device, read
from subtext.api.options import Quiet
from subtext.data.config import DataConfig
from subtext.data.objects import Rows
from subtext.errors import ArgumentError, DataError, RecipeError, Setting
from subtext.recipes.catalogue import (
    RECOMMENDED,
    methods as known_methods,
    models,
    plan_options,
    read_method,
    read_options,
)
from subtext.report.progress import say, training_meter
from subtext.report.text_table import Cell, duration, table
from subtext.settings import Flag, Metavar, OptionGroup, Unfold, command, did_you_mean, objects_of
from subtext.text_helpers import counted
from subtext.training.plan import Plan, RunConfig

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.data.features import FeatureFile
    from subtext.models.checkpoint import Record
    from subtext.training.setup import BuildContext, Setup


_DATA, _RUN = OptionGroup("Data"), OptionGroup("Run")
CALLS = ("on_step", "on_epoch", "on_end")
"""Methods of callbacks."""
Methods = tuple[tuple[str, dict[str, object]], ...]


@dataclass(frozen=True)
class TrainingData:
    """The pairs of a training, and the feature files that stand for a modality.

    Attributes:
        train: Pairs of the training split.
        val: Pairs of the validation split; None for no validation.
        image_features: File of image features; None if images are read from pixels.
        text_features: File of text features; None if texts are read as words.
    """

    train: Dataset
    val: Dataset | None
    image_features: FeatureFile | None
    text_features: FeatureFile | None

    def __str__(self) -> str:
        text = f"train: {_size(self.train)}, {counted(len(self.train.links), 'pair')}"
        return text if self.val is None else f"{text}; validation: {_size(self.val)}"


@command
def train(
    model: Annotated[str, "Model recipe."] = RECOMMENDED,
    /,
    *,
    data: Annotated[
        str | Path | Dataset | Rows | DataConfig,
        "Data set: a file or folder.",
        _DATA,
        Metavar("DATA"),
        Unfold(DataConfig(split_seed=0, on_error="raise")),
    ],
    out: Annotated[str | Path, "Folder of the run; must be new unless --resume is set.", _RUN, Metavar("RUN")],
    options: Mapping[str, object] | None = None,
    methods: Annotated[
        tuple[str | Any, ...] | list[Any],
        "A training method; repeatable.",
        _RUN,
        Flag("--with"),
        Metavar("METHOD[:key=value,...]"),
    ] = (),
    plan: Annotated[Plan | Mapping[str, object], OptionGroup("Training")] = Plan(),
    run: Annotated[RunConfig | Mapping[str, object], _RUN] = RunConfig(),
    dry_run: Annotated[bool, "Build the model, read the data and report sizes, but do not train.", _RUN] = False,
    callbacks: Sequence[object] = (),
    quiet: Quiet = False,
) -> Run:
    """Train a model on pairs of images and texts, and save it in the folder RUN.

    DATA can have any format that `subtext data check` accepts.

    Args:
        model: The name of a recipe: `subtext train --help` lists them.
        data: A file, a folder, a Dataset, a table or rows as `subtext.read` takes them, or a DataConfig, which also
            names features and splits.
        out: Folder of the run. It must be new or empty, unless `run.resume` is set.
        options: Options of the model, as in {"embed_dim": 512}. All other options keep their defaults.
            `subtext train MODEL --help` lists them. "image" and "text" may also be objects. A torch module learns: it
            gets pixels (N, 3, H, W), and of texts the tokens of a "tokeniser" (any function of a list of texts), or a
            list of texts. A function stays as it is: it gets a list of PIL images, or of texts. Both return vectors
            (N, D), or (N, P, D) for parts.
        methods: Training methods, applied in this order. A method is a text, such as "hal" or
            "neighbourhoods:graph=graphs/d2v,form=angular"; or a pair of name and options, such as ("neighbourhoods",
            {"form": "angular"}).
        plan: Changes of the model's own plan: Plan(epochs=3), or {"epochs": 3}. Only the named fields change.
        run: Seed, device, checkpoints and logs.
        dry_run: Build the model, read the data and compute one loss, but do not train: whatever the training would
            refuse is refused. `summary` of the result describes the model.
        callbacks: Objects with some of these methods. `on_step(line)` gets, after each step, a mapping with "step",
            "epoch", "loss" (mean over the epoch so far), "parts", "lr" and "seconds"; `on_epoch(line)` also the
            "figures" of the validation; `on_end(run)` the run. An error of a callback ends the training, which can be
            resumed.
        quiet: Show no progress.

    Returns:
        The run: the model with the saved weights, the record and the folder. Other functions accept it as their `run`.
        If Ctrl-C stopped the training, `record.status` is "stopped".

    Raises:
        ArgumentError: If an argument is of another type.
        RecipeError: If an option is unknown or has no effect.
        DataError: For data that cannot be used.
        TrainingError: If a loss is not finite.
        CheckpointError: If the folder contains another training, or is not empty without `resume`.

    Example:
        >>> from subtext import DataConfig, Plan, RunConfig, train
        >>> run = train(
        ...     "vse",
        ...     data=DataConfig("captions.jsonl", features="features.npz"),
        ...     out="runs/vse",
        ...     options={"embed_dim": 512},
        ...     plan=Plan(epochs=10),
        ...     run=RunConfig(seed=1),
        ... )  # doctest: +SKIP
    """
    data = DataConfig.of(data)
    if not isinstance(options, Mapping | None):
        raise ArgumentError(
            f"options needs a mapping, as in {{'embed_dim': 512}}; it got {options!r:.60}", field="options"
        )
    options, objects = split_objects(options or {})
    assert isinstance(plan, Plan) and isinstance(run, RunConfig)  # A mapping has become one.
    changes = {name: getattr(plan, name) for name in sorted(plan.given)}
    require_callbacks(callbacks)
    _require_known(model, options)
    if dry_run or run.resume or not (Path(out).is_dir() and any(Path(out).iterdir())):  # Else that is said below.
        data.require_there()
    # Before torch is imported and the data is read; beside features a name is refused as such, wherever it is from.
    has_name = model in ("adapt", "clip") and options.get("model", "features") != "features"
    if has_name and data.features is None and data.text_features is None:
        from subtext.models.encoders.hub import require_model

        require_model(str(options["model"]))
    from subtext.data.languages import foreign_texts
    from subtext.models.checkpoint import RECORD, Record, load_record
    from subtext.models.encoders.languages import languages_read
    from subtext.recipes.choose import choose_encoders
    from subtext.training.loop import fit, rehearse
    from subtext.training.run_folder import start_run

    folder = Path(out)
    steps = tuple(
        read_method(method) if isinstance(method, str) else (method[0], dict(method[1])) for method in methods
    )
    if not (dry_run or run.resume):
        start_run(folder, Record(model), resume=False)  # Before minutes of reading the data.
    pairs = read_training_data(data, quiet=quiet)
    earlier = load_record(folder) if run.resume and (folder / RECORD).is_file() else None
    recorded = earlier.arguments if earlier is not None and earlier.model == model else None
    options, chosen = choose_encoders(model, options, _context(pairs, run.seed), recorded=recorded)
    setup = build_setup(model, options, methods=steps, plan=changes, pairs=pairs, seed=run.seed, objects=objects)
    if objects:
        given = ", ".join(f"'{option}': ..." for option in objects)
        chosen += [f"the run does not hold {' and '.join(objects)}; open it with open_run(RUN, options={{{given}}})"]
    if foreign := foreign_texts(pairs.train.texts.values, languages_read(setup.model.text, trained=False)):
        chosen += [f"note: {foreign}; text=bag learns the words of the texts"]
    record = initial_record(model, options, methods=steps, data=data, pairs=pairs, setup=setup)
    choose_device(run.device)
    if dry_run:
        chosen += rehearse(setup, pairs.train, pairs.val, folder, record=record, run=run)
        description = "\n".join([_description(record, setup, pairs), *chosen])
        return Run(setup.model, record, folder, tuple(chosen), summary=description, objects=objects)
    for line in (str(pairs), *chosen):
        say(line, quiet=quiet)
    with training_meter(quiet=quiet) as report:
        fitted = fit(setup, pairs.train, pairs.val, folder, record=record, run=run, report=report, callbacks=callbacks)
    notes = (*chosen, *fitted.notes)
    result = Run(
        fitted.model,
        fitted.record,
        folder,
        notes,
        summary=_outcome(folder, fitted.record, pairs, objects),
        objects=objects,
    )
    for each in callbacks:
        if hasattr(each, "on_end"):
            each.on_end(result)
    return result


def require_callbacks(callbacks: Sequence[object]) -> None:
    """Require objects with methods that a training calls.

    Args:
        callbacks: As for `train`.

    Raises:
        ArgumentError: For an object without any of them, or with one of the same kind that is spelt otherwise.
    """
    if not isinstance(callbacks, list | tuple):
        raise ArgumentError(f"callbacks needs a list of objects; it got {callbacks!r:.60}", field="callbacks")
    for each in callbacks:
        methods = [name for name in dir(each) if name.startswith("on_") and callable(getattr(each, name))]
        wrong = [name for name in methods if name not in CALLS]
        if wrong or not methods:
            got = f"it has {wrong[0]}" if wrong else f"{type(each).__name__} has none"
            raise ArgumentError(f"a callback needs methods named {', '.join(CALLS)}; {got}", field="callbacks")


def flat_arguments(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `train` from flat settings, as a command line has them.

    Args:
        model: The recipe.
        values: Its options, fields of DataConfig, Plan and RunConfig, and other arguments, by name: {"data": ...,
            "epochs": 3, "embed_dim": 64, "seed": 1}.

    Returns:
        Keyword arguments of `train`.

    Example:
        >>> flat_arguments("vse", {"out": "runs/a", "epochs": 3, "embed_dim": 64})
        {'out': 'runs/a', 'plan': Plan(epochs=3), 'options': {'embed_dim': 64}}
    """
    own = {option.name for option in models()[model].options} if model in models() else set()
    flat = {name: value for name, value in values.items() if name not in own}
    return {**objects_of(train, flat), "options": {name: value for name, value in values.items() if name in own}}


def _require_known(model: str, options: Mapping[str, object]) -> None:
    """Raise RecipeError for an unknown model, or an option that is not the model's."""
    if model not in models():
        raise RecipeError(did_you_mean("model", model, models()))
    own = {option.name: option for option in models()[model].options}
    planned = {option.name: option for option in plan_options(Plan())}
    for name in options:
        if name in planned:
            raise RecipeError(f"{name} is a field of the plan; give plan=Plan({name}=...)", field=name)
        if name not in own:
            raise RecipeError(did_you_mean(f"option of '{model}' or of its training", name, own | planned))


def read_training_data(config: DataConfig, *, quiet: bool = False) -> TrainingData:
    """Read pairs and features, and check that every image and text has its features, in finite numbers.

    Args:
        config: Where they are.
        quiet: Show no progress.

    Returns:
        The pairs of both splits, and the feature files.

    Raises:
        DataError: If they cannot be used.
    """
    from subtext.data.features import FeatureFile

    reading = cache(lambda: read(config, quiet=quiet))
    train, val = config.train_data, config.val_data
    if train is None:
        train = reading().split(config.train_split)
    if val is None and config.val_split is not None:
        try:
            val = reading().split(config.val_split)
        except DataError as error:
            raise DataError(f"{error}, or train without validation (", Setting("val_split", "none"), ")") from error
    image_features, text_features = (
        None if path is None else FeatureFile.open(path, side)
        for side, path in (("image", config.features), ("text", config.text_features))
    )
    data = TrainingData(train, val, image_features or train.features, text_features)
    for part in filter(None, (data.train, data.val)):
        for file, items in ((image_features, part.images), (text_features, part.texts)):
            if file is not None:
                file.require(items.ids, items.values)
    return data


def build_setup(
    model: str,
    options: Mapping[str, object],
    *,
    methods: Methods = (),
    plan: Mapping[str, object] | None = None,
    pairs: TrainingData,
    seed: int,
    objects: Mapping[str, Any] | None = None,
) -> Setup:
    """The model with its methods, built for this data and reading its features.

    Args:
        model: The recipe.
        options: Of the model; those left out keep their defaults.
        methods: (name, options) in order.
        plan: Fields that replace those of the model's plan.
        pairs: The training data.
        seed: What the initial weights are drawn from.
        objects: Option -> what is given as an object.

    Returns:
        The setup; its inputs read the files of features.
    """
    from subtext.data.features import FeatureInput
    from subtext.recipes.build import attach, build

    image_file, text_file = pairs.image_features, pairs.text_features
    setup = build(model, options, methods=methods, plan=plan, context=_context(pairs, seed, objects or {}))
    if image_file is not None:
        attach(setup.model.image, image_file, "image")
        spec = setup.model.image.input_spec
        for part in filter(None, (pairs.train, pairs.val)):
            if isinstance(spec, FeatureInput):
                spec.require_boxes(part.images.ids, part.images.values)
    if text_file is not None:
        attach(setup.model.text, text_file, "text")
    return setup


def split_objects(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a model, with names in place of objects, and the objects.

    Args:
        options: As given: "image" and "text" may be modules or functions, "tokeniser" is one.

    Returns:
        Options as plain values; and "image", "text", "tokeniser" -> object.

    Raises:
        RequirementError: For an object that cannot be called.
        RecipeError: For a tokeniser without a text tower that is an object.
    """
    objects = {
        name: options[name]
        for name in ("image", "text", "tokeniser")
        if name in options and not (options[name] is None or isinstance(options[name], str))
    }
    if not objects and "tokeniser" not in options:
        return dict(options), {}
    from subtext.data.given import name_of, require_callable
    from subtext.recipes.options import GIVEN

    for name, value in objects.items():
        require_callable(name, value)
    if "tokeniser" in options and "text" not in objects:
        raise RecipeError(
            "tokeniser needs a text tower that reads its tokens, given as a module: options={'text': module, "
            "'tokeniser': ...}; other text encoders have their own; leave it out",
            field="tokeniser",
        )
    named = {name: f"{GIVEN}{name_of(value)}" for name, value in objects.items()}
    return {n: named.get(n, value) for n, value in options.items() if n != "tokeniser"}, objects


def _context(pairs: TrainingData, seed: int, objects: Mapping[str, Any] | None = None) -> BuildContext:
    """What a recipe builds from."""
    from subtext.training.setup import BuildContext

    image_file, text_file, images, texts = (
        pairs.image_features,
        pairs.text_features,
        pairs.train.images,
        pairs.train.texts,
    )
    return BuildContext(
        image_features=None if image_file is None else image_file.shape(images.ids, images.values),
        text_features=None if text_file is None else text_file.shape(texts.ids, texts.values),
        texts=tuple(text for text in texts.values if isinstance(text, str)),
        seed=seed,
        objects=objects or {},
    )


def initial_record(
    model: str,
    options: Mapping[str, object],
    *,
    methods: Methods,
    data: DataConfig,
    pairs: TrainingData,
    setup: Setup,
) -> Record:
    """The record of the run before it starts.

    Every option that is used is written down, those left out too: a default may change, a run may not. Features that
    are a part of the data set are recorded as a file.

    Args:
        model: The recipe.
        options: Of the model, as given.
        methods: (name, options) in order, as given.
        data: Where the pairs come from.
        pairs: The training data.
        setup: What was built.

    Returns:
        A record without results.
    """
    from subtext.models.checkpoint import Record
    from subtext.recipes.build import recorded_options

    file = pairs.image_features
    features = None if file is None or file.in_memory else file.path
    recorded = replace(
        data.absolute(),
        data=data.absolute().data if isinstance(data.data, Path) else None,
        features=None if features is None else features.expanduser().resolve(),
        text_features=data.absolute().path("text_features"),
        split_seed=data.split_seed or 0,
        on_error=data.on_error or "raise",
        train_data=None,
        val_data=None,
    )
    return Record(
        model=model,
        arguments=recorded_options(model, options, setup),
        methods=tuple(
            (name, read_options("option", known_methods()[name].options, values)) for name, values in methods
        ),
        plan=asdict(setup.plan),
        data=recorded,
    )


def _description(record: Record, setup: Setup, data: TrainingData) -> str:
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
            f"{record.model}{''.join(f' + {name}' for name, _ in record.methods)}: built, not trained (--dry-run)",
            table(["part", "parameters", "learning"], rows),
            str(data),
            f"{counted(plan.epochs, 'epoch')} of {counted(steps, 'step')} of {counted(plan.batch_size, 'pair')}: "
            f"{counted(plan.epochs * steps, 'step')}",
        ]
    )


def _gained(out: Path, record: Record) -> list[str]:
    """The pretrained model and the adapted one, and their paired difference; `subtext compare` tests more figures."""
    from subtext.evaluation.compare import compare, read_measured
    from subtext.training.run_folder import KEPT, START

    kept, start = (out / f"{name}.json" for name in (KEPT, START))
    compared = compare([read_measured(kept)], [read_measured(start)], figures=("recall@1", "recall@10"))
    selected = "" if record.plan.get("select") == "last" else ", which selected the epoch"
    return [
        compared.gains(f"split {record.data.val_split}{selected}", "zero-shot", "adapted"),
        f"on another split: `subtext evaluate` {shlex.quote(str(out))} and the model, then `subtext compare`",
    ]


def _size(pairs: Dataset) -> str:
    return f"{counted(len(pairs.images), 'image')}, {counted(len(pairs.texts), 'text')}"


def _outcome(folder: Path, record: Record, data: TrainingData, objects: Mapping[str, Any]) -> str:
    """What came of a training, and what can follow: in Python where a command could not read its data or towers."""
    from subtext.evaluation.evaluate import chance_figures
    from subtext.evaluation.result import figures_table

    out = shlex.quote(str(folder))
    best = "" if record.best_epoch is None else f", best epoch {record.best_epoch}"
    lines = [f"{folder}: {record.status} after {counted(record.epochs, 'epoch')}{best}, {duration(record.seconds)}"]
    if record.best and data.val is not None:
        lines += [f"on the split {record.data.val_split}:", *figures_table(record.best, chance_figures(data.val))]
    if record.start:
        lines += _gained(folder, record)
    if record.status == "stopped":
        return "\n".join([*lines, "run the same command with --resume to continue"])
    split = record.data.val_split or record.data.train_split
    files = filter(None, (data.image_features, data.text_features))
    if objects or record.data.data is None or any(file.in_memory for file in files):
        evaluate, index = f".evaluate(run, data, split={split!r})", ".build_index('INDEX', data, run=run, split='all')"
        search = ".search('INDEX', 'words')"
    else:
        evaluate, index = f" evaluate {out} --split {split}", f" index build INDEX --run {out} --split all"
        search = ' search INDEX "words"'
    return "\n".join([*lines, "next:", *(f"  subtext{call}" for call in (evaluate, index, search))])
