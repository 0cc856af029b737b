"""Loading a run: its folder becomes a model again, alone or with the data set that a command uses it on.

A run's folder is the complete convention: `run.json`, `model.safetensors` and `assets/` are what a model is made of.
`load` reads a folder that `save_pretrained` wrote just as one that training left. Nothing in it can run code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from subtext.api.options import DEFAULTS, AnyPath, DataOptions
from subtext.data.config import IN_MEMORY, DataConfig, Verify
from subtext.data.objects import Arrays
from subtext.errors import ArgumentError, RequirementError, SearchIndexError, Setting
from subtext.report.progress import counter, meter, say
from subtext.report.text_table import Cell, Report, duration, table
from subtext.text_helpers import counted, listed, size

if TYPE_CHECKING:
    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset
    from subtext.data.feature_file import FeatureFile
    from subtext.data.unchanged import Unchanged
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model
    from subtext.retrieval.image_stream import ImageStream
    from subtext.retrieval.manifest import Manifest
    from subtext.training.journal import History
    from subtext.training.setup import Setup

AnyFeatures: TypeAlias = "str | Path | Arrays | FeatureFile | None"
"""Precomputed features: a file, or arrays with ids; None for none."""
CARD = "README.md"
LOADED = "a model in memory"
"""What results call a model that was opened elsewhere."""
READING = (
    "data",
    "images",
    "features",
    "text_features",
    "split_seed",
    "on_error",
    "columns",
    "text_fields",
    "max_pixels",
)
"""Fields of DataConfig that say how data is read; the others are for training."""
SHOWN = 5
"""How many kinds of problems of a data set a command shows before it counts the others."""


@dataclass(frozen=True, repr=False)
class Run(Report):
    """A loaded run. Use it like a path: every function that accepts the folder of a run accepts this object.

    Attributes:
        model: The model with the saved weights, in eval mode.
        record: Model, data and results of the training.
        path: Its folder.
        notes: Notes of the training.
        summary: A description of the training; empty for a loaded run.
        objects: "image", "text", "tokeniser" -> what it was trained with in place of names; its folder does not hold
            them.
    """

    model: Model
    record: Record
    path: Path
    notes: tuple[str, ...] = ()
    summary: str = ""
    objects: Mapping[str, Any] = field(default_factory=dict)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write the run without its log and checkpoints; see `subtext.save_pretrained`.

        Args:
            folder: A new or empty folder.
        """
        save_pretrained(self.model, self.record, folder)

    def setup(self) -> Setup:
        """The objective, the plan and the hooks of methods that the run was trained with, built from its record again.

        Returns:
            The setup that `build` made for the training; the weights are new ones.

        Raises:
            RecipeError: For an ensemble, which was not trained as one.
        """
        from subtext.models.checkpoint import ASSETS
        from subtext.recipes.build import build
        from subtext.training.setup import BuildContext

        record = self.record
        context = BuildContext(assets=self.path / ASSETS, seed=record.seed, objects=self.objects)
        return build(record.model, record.arguments, methods=record.methods, plan=record.plan, context=context)

    @property
    def history(self) -> History:
        """The course of the training, an entry for each epoch: `history.plot()` draws it."""
        from subtext.training.journal import read_history

        return read_history(self.path)

    def to_json(self) -> dict[str, Any]:
        """The record as plain data, with the run's folder.

        Returns:
            "path", and the fields of the record.
        """
        return {"path": str(self.path), **self.record.plain()}

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return self.summary or repr(self)

    def _lines(self) -> list[str]:
        from subtext.evaluation.result import figures_table

        record = self.record
        rows: list[list[Cell]] = [
            ["recipe", " + ".join([record.model, *(name for name, _ in record.methods)])],
            ["data", str(record.data.data or IN_MEMORY)],
            ["status", f"{record.status}, {counted(record.epochs, 'epoch')}, {duration(record.seconds)}"],
            ["seed", str(record.seed)],
        ]
        lines: list[str] = [table(["run", str(self.path)], rows)]
        if record.best:
            lines += [f"validation, epoch {record.best_epoch}:", *figures_table(record.best)]
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def __repr__(self) -> str:
        record = self.record
        recipe = " + ".join([record.model, *(name for name, _ in record.methods)])
        rsum = f", rsum={record.best['rsum']:.1f}" if "rsum" in record.best else ""
        progress = f"status={record.status}, epochs={record.epochs}, seed={record.seed}"
        return f"Run({str(self.path)!r}, recipe={recipe}, {progress}{rsum})"


def load(
    run: AnyPath | None = None,
    *,
    model: AnyPath | None = None,
    text_prompt: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Model:
    """Load the model of a run, or a pretrained dual encoder, for `embed_images`, `embed_texts` and `compare`.

    Args:
        run: Folder of a run.
        model: Instead of a run: starter, hub name or folder of a pretrained dual encoder, or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of a pretrained model; {} stands for the text.
        options: The objects that the run was trained with; see `open_run`.
        device: "cpu", "cuda", "mps" or "auto".

    Returns:
        The model, in eval mode.

    Raises:
        CheckpointError: If the folder is not a run, is damaged or is incomplete.
        RequirementError: If the pretrained model is not available.
        ArgumentError: If `run` and `model` are both None, or both set.
    """
    source = ModelSource.of(run, model, text_prompt)
    opened = (source if options is None else replace(source, objects=options)).open(device=device)[0]
    _say_note(opened)
    return opened


def _say_note(model: Model, *, quiet: bool = False) -> None:
    """Say what the files of a pretrained model do not; a saved run has said it when it was trained."""
    if note := getattr(model.text.input_spec, "note", ""):
        say(f"note: {note}", quiet=quiet)


from_pretrained = load
"""`load` under the name that other libraries use."""


def open_run(
    path: AnyPath,
    *,
    features: AnyFeatures = None,
    text_features: AnyFeatures = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Run:
    """Open a run: load its model and its record.

    Args:
        path: Folder of the run.
        features: File of image features, or arrays with ids (`DataConfig`), instead of the file in the record. A
            missing file of the record raises an error only when an item is looked up in it.
        text_features: The same for texts.
        options: The objects that the run was trained with in place of names: {"image": module}. A run that `train` or
            `open_run` returned brings its own.
        device: "cpu", "cuda", "mps" or "auto".

    Returns:
        The run, with the model in eval mode.

    Raises:
        CheckpointError: If the folder is not a run, is damaged, or has an unknown recipe.
        DataError: If a feature file cannot be read, or its features have another width than the model needs.
        RecipeError: If `features` or `text_features` is set, but the model does not use such features.
        RequirementError: If the run was trained with objects that are not given.
    """
    from subtext.recipes.build import reopen

    require_run(path, "path")
    folder, objects = Path(path).expanduser(), dict(options if options is not None else objects_of_run(path))
    model, record = reopen(folder, features=features, text_features=text_features, objects=objects)
    return Run(model.to(choose_device(device)), record, folder, objects=objects)


def is_model(value: object) -> bool:
    """Whether a value is a model in memory, and no path, run or name.

    Args:
        value: Any value.

    Returns:
        True for a `Model`.
    """
    return hasattr(value, "embed_texts") and hasattr(value, "parameters") and not isinstance(value, str | os.PathLike)


def require_run(run: object, name: str) -> None:
    """Require what can be a run or the name of a model.

    Args:
        run: A folder, a name, or a Run.
        name: Of the parameter.

    Raises:
        ArgumentError: For another object, such as a model.
    """
    if not isinstance(run, str | os.PathLike):
        loaded = (
            "; give the Run that `train` or `open_run` returned, or its folder" if hasattr(run, "embed_texts") else ""
        )
        raise ArgumentError(
            f"{name} needs the folder of a run, a Run, or the name of a pretrained model; it got {run!r:.80}{loaded}",
            field=name,
        )


def objects_of_run(run: object) -> Mapping[str, Any]:
    """The objects that an opened run was trained with.

    Args:
        run: A Run, or its folder.

    Returns:
        Option -> object; empty for a folder.
    """
    return run.objects if isinstance(run, Run) else {}


def save_pretrained(model: Model, record: Record, folder: Path | str) -> None:
    """Write a model as a folder that `load` reads: record, weights, assets and a model card.

    Args:
        model: The model.
        record: Of its run.
        folder: A new or empty folder.

    Raises:
        CheckpointError: If the folder is not empty, or the disk is full.
    """
    from subtext.data.atomic import write_text
    from subtext.models.checkpoint import require_new_folder, save_run
    from subtext.models.model_card import model_card

    folder = Path(folder).expanduser()
    require_new_folder(folder, "save_pretrained")
    save_run(folder, model, record)
    write_text(folder / CARD, model_card(record))


@dataclass(frozen=True)
class ModelSource:
    """Where a model that embeds images and texts comes from: a run, or a pretrained dual encoder as it is.

    Attributes:
        run: Folder of a run; None for a pretrained model.
        name: Of a pretrained model: a hub name, a folder, or open_clip:ARCHITECTURE/WEIGHTS; "" for a run.
        text_prompt: Words around every text of a pretrained model, {} in its place; "" for none.
        revision: Commit of a hub's model; "" for the newest.
        objects: Of a run that was trained with objects: option -> object.
        loaded: A model in memory, which has no name of its own; None for one that is opened.
    """

    run: Path | None = None
    name: str = ""
    text_prompt: str = ""
    revision: str = ""
    objects: Mapping[str, Any] = field(default_factory=dict, compare=False)
    loaded: Model | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of_model(model: Model, text_prompt: str | None = None) -> ModelSource:
        """A model in memory, as `load` returns it.

        Args:
            model: The model; it is put on the chosen device, in eval mode.
            text_prompt: Has to be None: the model has its own.

        Returns:
            The source of the model.

        Raises:
            ArgumentError: For a prompt.
        """
        if text_prompt is not None:
            raise ArgumentError(
                "text_prompt is for a pretrained model that is opened here; leave it out", field="text_prompt"
            )
        return ModelSource(None, LOADED, loaded=model)

    @staticmethod
    def of(
        run: AnyPath | Model | None, model: AnyPath | Model | None = None, text_prompt: str | None = None
    ) -> ModelSource:
        """The model that a public function was called with: before its imports of torch, which take seconds.

        Args:
            run: Folder of a run; None for a pretrained model.
            model: Name or folder of a pretrained model, or a model in memory; None for a run.
            text_prompt: Words around every text of a pretrained model; None for none.

        Returns:
            The source of the model; nothing is loaded.

        Raises:
            ArgumentError: Unless exactly one is given, for a prompt without a pretrained model, and for a run in the
                place of one.
            RequirementError: If a pretrained model is not available.
        """
        if (run is None) == (model is None):
            got = "none" if run is None else f"both, {run} and {model}"
            raise ArgumentError(
                "give one of these: ",
                Setting("run", "RUN"),
                ", a folder that `subtext train` made; or ",
                Setting("model", "NAME_OR_FOLDER"),
                f", a pretrained dual encoder; it got {got}",
            )
        if is_model(one := model if run is None else run):
            return ModelSource.of_model(cast("Model", one), text_prompt)
        require_run(one, "model" if run is None else "run")
        if run is not None and text_prompt is not None:
            raise ArgumentError(
                "text_prompt is for a pretrained model (",
                Setting("model", "NAME_OR_FOLDER"),
                "); leave it out",
                field="text_prompt",
            )
        if run is not None:
            return ModelSource(Path(cast(AnyPath, run)), objects=objects_of_run(run))
        if Path(str(model), "run.json").is_file():
            raise ArgumentError(
                f"model is for pretrained models; {model} is a run; give ", Setting("run", str(model)), field="model"
            )
        from subtext.models.encoders.hub import require_model

        require_model(str(model))
        return ModelSource(None, str(model), text_prompt or "")

    @staticmethod
    def of_index(manifest: Manifest, run: AnyPath | None, model: AnyPath | None, *, index: str) -> ModelSource:
        """The model of an index: the one that its manifest names, or that one where it was moved to.

        Args:
            manifest: Of the index.
            run: Folder that the run was moved to; None for the one that the manifest names.
            model: Name or folder of the pretrained model; None for the one that the manifest names.
            index: For messages.

        Returns:
            The source of the model; nothing is loaded.

        Raises:
            SearchIndexError: If its run is not there, or it names none; the errors of `of`.
        """
        recorded = manifest.pretrained
        if run is None and model is None and recorded:
            return ModelSource(None, recorded["name"], recorded.get("text_prompt", ""), recorded.get("revision", ""))
        if model is not None:
            return ModelSource.of(run, model, recorded.get("text_prompt") or None)
        folder = manifest.run if run is None else run
        if not folder:
            raise SearchIndexError(
                f"{index} needs the model of its vectors here, and names none; search by one of its items (",
                Setting("like", "ID"),
                "), or import the vectors again and name the model (",
                Setting("run"),
                " or ",
                Setting("model"),
                ")",
            )
        if not Path(folder).expanduser().is_dir():
            raise SearchIndexError(
                f"{index} needs the run that made it; {folder} is not there; name its folder (",
                Setting("run", "RUN"),
                ")",
            )
        return ModelSource(Path(folder), objects=objects_of_run(run))

    def open(
        self, *, features: AnyFeatures = None, text_features: AnyFeatures = None, device: str = "cpu"
    ) -> tuple[Model, Record | None]:
        """The model in eval mode, and its record; None for a pretrained model.

        Raises the errors of `open_run`.

        Args:
            features: Image features that replace the run's; None to keep these.
            text_features: Text features that replace the run's; None to keep these.
            device: As for `choose_device`.

        Returns:
            The model in eval mode on the device, and its record.

        Raises:
            RequirementError: If a pretrained model is not available.
            ArgumentError: For files of features with a pretrained model.
        """
        if self.run is not None:
            run = open_run(
                self.run, features=features, text_features=text_features, options=self.objects, device=device
            )
            return run.model, run.record
        if features is not None or text_features is not None:
            raise ArgumentError(
                "model reads images and words, no features; leave ", Setting("features"), " out", field="model"
            )
        if self.loaded is not None:
            return self.loaded.to(choose_device(device)).eval(), None
        from subtext.models.encoders.hub import cached_revision, require_model

        name = cached_revision(self.name, self.revision)
        require_model(name)  # An index names its model, too.
        from subtext.recipes.build import build
        from subtext.training.setup import BuildContext

        # The recipe `clip`, untrained.
        options = {"model": name, "text_prompt": self.text_prompt}
        model = build("clip", options, context=BuildContext()).model
        model.image.frozen = model.text.frozen = True
        return model.to(choose_device(device)).eval(), None

    @property
    def label(self) -> str:
        """The folder of a run, or the name of a pretrained model."""
        return self.name if self.run is None else str(self.run)

    def recorded(self) -> dict[str, str]:
        """The fields `run` and `model` of a manifest: absolute paths, and the commit of a hub's model.

        Returns:
            name, revision and text_prompt of a pretrained model; nothing for a run.

        Raises:
            ArgumentError: For a model in memory.
        """
        if self.run is not None:
            return {}
        if self.loaded is not None:
            raise ArgumentError(
                "what is kept of a model needs a place to open it again, and a model in memory has none; save it "
                "(save_pretrained), and give the folder",
                field="model",
            )
        from subtext.data.starter import NAME as STARTER
        from subtext.models.encoders.hub import revision_of

        folder = Path(self.name).expanduser()
        name = str(folder.resolve()) if folder.is_dir() and self.name != STARTER else self.name
        return {"name": name, "revision": self.revision or revision_of(self.name), "text_prompt": self.text_prompt}


@dataclass(frozen=True)
class EvaluationSubject:
    """Something done with a model on a split of a data set.

    Attributes:
        source: The model; None where files hold its output.
        sources: Where the pairs come from.
        split: A name, or "all"; None for the run's validation split.
        device: As for `choose_device`.
        batch_size: Items per batch, 1 or more.
        workers: Threads that load data, 0 or more.
        quiet: Show no progress and no notes.
        bf16: Whether pairs are scored in bfloat16; None for what the run was trained with.
        cache: Folder for matrices of graded relevance; None to compute them each time.
    """

    source: ModelSource | None
    sources: DataConfig
    split: str | None
    device: str = "cpu"
    batch_size: int = 128
    workers: int = 2
    quiet: bool = False
    bf16: bool | None = None
    cache: Path | None = None

    @staticmethod
    def of(
        source: ModelSource | None, split: str | None, *, bf16: bool | None = None, **options: Unpack[DataOptions]
    ) -> EvaluationSubject:
        """The work that a public function was called for.

        Args:
            source: The model; None where files hold its output.
            split: A name, or "all"; None for the run's validation split.
            bf16: Whether pairs are scored in bfloat16; None for what the run was trained with.
            **options: Where the data are and how they are read; those left out keep their defaults.

        Returns:
            The subject; nothing is opened.
        """
        values: dict[str, Any] = DEFAULTS | options
        sources = DataConfig.of(**{name: values.get(name) for name in READING}).require_there()
        running = {name: values[name] for name in ("device", "batch_size", "workers", "quiet")}
        return EvaluationSubject(source, sources, split, bf16=bf16, **running)

    @property
    def model(self) -> ModelSource:
        """The model, where the work has one."""
        assert self.source is not None
        return self.source


@dataclass(frozen=True)
class LoadedRun:
    """A model in eval mode, the chosen split and its name, and the run's record (None for a pretrained model).

    Attributes:
        model: In eval mode.
        pairs: The chosen split.
        split: Its name.
        record: Of the run; None for a pretrained model.
    """

    model: Model
    pairs: Dataset
    split: str
    record: Record | None

    def to_indexable(self, purpose: str) -> LoadedRun:
        """The same with a model whose vectors decide; see `Model.to_indexable`.

        Args:
            purpose: What needs it, for the message of an error.

        Returns:
            The same pairs with the other model.
        """
        return replace(self, model=self.model.to_indexable(purpose))

    def to_means(self, purpose: str) -> LoadedRun:
        """The same with a model whose vectors are means; see `Model.to_means`.

        Args:
            purpose: What needs it, for the message of an error.

        Returns:
            The same pairs with the other model.
        """
        return replace(self, model=self.model.to_means(purpose))

    def embed(self, work: EvaluationSubject, label: str = "embedding") -> tuple[Embeddings, Embeddings]:
        """The vectors of the split's images and texts, with a meter.

        Args:
            work: Batch size, threads, and whether progress is shown.
            label: Of the progress meter.

        Returns:
            Embeddings of the I images and of the T texts.
        """
        from subtext.evaluation import embed_pairs

        pairs = self.pairs
        embed = partial(embed_pairs, batch_size=work.batch_size, workers=work.workers)
        note = lru_cache(partial(say, quiet=work.quiet))
        total = len(pairs.images) + len(pairs.texts)
        with cache_shown(quiet=work.quiet), meter(label, total, quiet=work.quiet) as progress:
            return embed(self.model, pairs, progress=progress, note=note)


@contextmanager
def cache_shown(*, quiet: bool) -> Iterator[None]:
    """Say where outputs of frozen encoders are kept, and their size, where the block keeps more of them.

    Args:
        quiet: Say nothing.

    Yields:
        Nothing.
    """
    from subtext.data.output_cache import user_cache

    cache = user_cache()
    before = 0 if cache is None else cache.size
    yield
    if cache is not None and (after := cache.size) > before:
        limit = "" if cache.limit is None else f" of at most {size(cache.limit)}"
        say(
            f"note: outputs of frozen encoders are kept in {cache.folder} ({size(after)}{limit}; `subtext cache`)",
            quiet=quiet,
        )


def open_subject(
    work: EvaluationSubject,
    *,
    need_pairs: bool = True,
    verify: Verify = True,
    unchanged: Unchanged | None = None,
    stream: ImageStream | None = None,
) -> LoadedRun:
    """Open the run, or the pretrained model, and read the split; `need_pairs` and `verify` as in `DataConfig.read`.

    Args:
        work: The model, its data and the split.
        need_pairs: As in `DataConfig.read`.
        verify: See `need_pairs`.
        unchanged: See `need_pairs`.
        stream: Puts images of stores into an index while they are read; None for none.

    Returns:
        The model in eval mode on its device, the split and the record.

    Raises:
        ArgumentError: If a pretrained model comes without data.
        RequirementError: If no data is named and none is remembered.
    """
    from subtext.data.features import FeatureInput
    from subtext.data.text import cut_note
    from subtext.recipes.build import attach

    device, sources = choose_device(work.device), work.sources
    if work.model.run is None and sources.data is None:
        raise ArgumentError(
            "model needs ", Setting("data", "DATA"), ": a pretrained model has no data set of its own", field="model"
        )
    model, record = work.model.open(features=sources.features, text_features=sources.text_features, device=device)
    _say_note(model, quiet=work.quiet)
    if record is not None:
        sources = sources.over(record.data)
    by_features = isinstance(model.image.input_spec, FeatureInput)
    if stream is not None:
        stream.use(model, record)
    # Features may change without the files that their items name.
    unchanged = None if by_features or isinstance(model.text.input_spec, FeatureInput) else unchanged
    reading = read(
        sources,
        need_pairs=need_pairs,
        verify=verify,
        quiet=work.quiet,
        need_images=not by_features,
        unchanged=unchanged,
    )
    if reading.features is not None and work.sources.data is not None and work.sources.features is None:
        attach(model.image, reading.features, "image")
    split = work.split or (record is not None and record.data.val_split) or "val"
    pairs = reading.split(split, need_pairs=need_pairs)
    if sources.on_error == "skip":
        pairs = with_features(model, pairs, quiet=work.quiet)
    require_features(model, pairs)
    if (note := cut_note(model.text.input_spec, pairs.texts.values)) is not None:
        say(f"note: {note}", quiet=work.quiet)
    return LoadedRun(model, pairs, split, record)


def with_features(model: Model, pairs: Dataset, *, quiet: bool) -> Dataset:
    """The items that the files of features name, where the model reads such files; a note counts the others.

    Args:
        model: Reads features in one modality, both or none.
        pairs: Images and texts.
        quiet: Show no note.

    Returns:
        The pairs whose items have features.
    """
    import numpy as np

    from subtext.data.features import FeatureInput

    usable = []
    for branch, items, noun in ((model.image, pairs.images, "image"), (model.text, pairs.texts, "text")):
        usable.append(np.ones(len(items), dtype=bool))
        file = branch.input_spec.file if isinstance(branch.input_spec, FeatureInput) else None
        if file is None:
            continue
        for row, (name, value) in enumerate(zip(items.ids, items.values, strict=True)):
            usable[-1][row] = file.name_of(*map(str, [name, *filter(None, [value])])) is not None
        if not usable[-1].all():
            first, number = items.ids[int(usable[-1].argmin())], counted(int((~usable[-1]).sum()), noun)
            say(f"note: {number} without features left out, first '{first}'", quiet=quiet)
    if all(rows.all() for rows in usable):
        return pairs
    image_rows, text_rows = pairs.links.T
    lost = np.setdiff1d(text_rows, text_rows[usable[0][image_rows]])
    usable[1][lost] = False  # A text goes with the last of its images.
    return pairs.subset(*(np.flatnonzero(rows).astype(np.int64) for rows in usable))


def require_features(model: Model, pairs: Dataset) -> None:
    """Raise DataError where items lack the features that the model reads: here, and not after half of the work.

    Args:
        model: Reads features in one modality, both or none.
        pairs: Images and texts.

    Raises:
        DataError: If an item has no features, or no boxes where the model reads them.
    """
    from subtext.data.features import FeatureInput

    for branch, items in ((model.image, pairs.images), (model.text, pairs.texts)):
        if isinstance(branch.input_spec, FeatureInput):
            branch.input_spec.rows(items.ids, items.values)
            branch.input_spec.require_boxes(items.ids, items.values)


def read(
    sources: DataConfig,
    *,
    need_pairs: bool = True,
    verify: Verify = True,
    quiet: bool = False,
    need_images: bool = True,
    unchanged: Unchanged | None = None,
) -> Dataset:
    """The pairs, with images decoded once; problems that do not forbid their use go to standard error.

    Args:
        sources: Where the pairs come from.
        need_pairs: As in `DataConfig.read`.
        verify: See `need_pairs`.
        quiet: Show no progress and no notes.
        need_images: False if the model reads features, so that image files may be missing.
        unchanged: As in `DataConfig.read`.

    Returns:
        The data set with all its splits.

    Raises:
        DataError: If they cannot be used.
        RequirementError: If no data set is named.
    """
    from subtext.data.dataset import summarise

    need_images = need_images and sources.features is None
    with counter("checking images", quiet=quiet or not need_images) as progress:
        reading = sources.read(
            verify=need_images and verify,
            need_images=need_images,
            need_pairs=need_pairs,
            progress=progress,
            unchanged=unchanged,
        )
    fatal = [problem for problem in reading.problems if problem.fatal]
    if fatal:
        left = f"{len(fatal):,} {'row or text' if len(fatal) == 1 else 'rows or texts'}"
        if all(problem.where.startswith("image ") for problem in fatal):
            left = counted(len(fatal), "image")
        reasons = listed(summarise(fatal), SHOWN, separator="; ", conjunction="; and")
        say(f"note: {left} cannot be read and {'is' if len(fatal) == 1 else 'are'} left out: {reasons}", quiet=quiet)
    sentences = summarise(problem for problem in reading.problems if not problem.fatal)
    for sentence in sentences[:SHOWN]:
        say(f"note: {sentence}", quiet=quiet)
    if len(sentences) > SHOWN:
        say(f"note: {len(sentences) - SHOWN:,} more; `subtext data check --verify` lists them", quiet=quiet)
    return reading


def is_data_of_run(record: Record, sources: DataConfig) -> bool:
    """Whether `sources` name the file that a run was trained on, or are a data set in memory with its pairs.

    Args:
        record: Of the run.
        sources: What a function was called with.

    Returns:
        True if they are the same data.
    """
    from subtext.data.dataset import fingerprint

    data = sources.in_memory
    if data is None:
        return sources.data is None or sources.absolute().data == record.data.data
    train, _, val = record.fingerprint.partition("-")
    splits = {record.data.train_split: train}
    splits |= {} if record.data.val_split is None else {record.data.val_split: val}
    return all(
        split in (*data.counts(), "all") and fingerprint(data.split(split)) == recorded
        for split, recorded in splits.items()
    )


def read_data_of_run(record: Record, sources: DataConfig) -> Dataset:
    """The data that a run was trained on: from where it was, or the data set in memory that has the same pairs.

    Args:
        record: Of the run.
        sources: What a function was called with.

    Returns:
        The data set with all its splits.

    Raises:
        DataError: If it cannot be read.
        RequirementError: If the run remembers no path.
    """
    if sources.in_memory is not None and is_data_of_run(record, sources):
        return sources.in_memory
    sources = record.data
    need_images = sources.features is None
    # Where bad rows were skipped, the same have to be skipped again: only then images are decoded.
    return sources.read(verify=sources.on_error == "skip" and need_images, need_images=need_images)


def choose_precision(model: Model, bf16: bool | None, *, quiet: bool = False) -> None:
    """Have the model score pairs as an option says; None leaves it as it was trained.

    Args:
        model: Scores pairs.
        bf16: True for bfloat16 where the machine supports it, False for float32, None for no change.
        quiet: Show no note where the machine does not support it.

    Raises:
        RequirementError: If a model compares vectors.
    """
    if bf16 is not None and model.score_in_bf16(bf16) is not bf16:
        say("note: --bf16: this machine does not multiply in bfloat16; scores are made in float32", quiet=quiet)


def choose_device(name: str) -> str:
    """The device that a setting names; "auto" is the first GPU, or the processor.

    Args:
        name: "auto", "cpu", "cuda", "cuda:1", "mps".

    Returns:
        The name of a device of torch.

    Raises:
        RequirementError: If the machine does not have it.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise RequirementError(
            f"device {name} cannot be used here: {reason}; take cpu or auto", field="device"
        ) from None
    return name
