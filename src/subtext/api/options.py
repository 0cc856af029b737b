"""Settings that several public functions share: aliases of annotations, which `subtext.settings` reads.

A function that has all of `DataOptions` takes `**options: Unpack[DataOptions]`: its signature and its command name each
of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Union

from subtext.data.objects import Arrays, Rows
from subtext.settings import Flag, Interval, Metavar, OptionGroup

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.models.model import Model

_RUN = OptionGroup("Run")
_DATA = OptionGroup("Data")

AnyPath = str | os.PathLike[str]
"""A path, or a result that has a folder, such as a Run."""

_MODEL = OptionGroup("Model")
OptionalRun = Annotated[AnyPath | None, "Folder of a trained run.", _MODEL, Metavar("RUN")]
Pretrained = Annotated[
    Union[AnyPath, "Model", None],
    "Pretrained dual encoder instead of RUN: starter (needs no network), a hub name or a folder (CLIP, SigLIP), or "
    "open_clip:ARCHITECTURE/WEIGHTS.",
    _MODEL,
    Metavar("NAME_OR_FOLDER"),
]
TextPrompt = Annotated[
    str | None, "Prompt for every text of --model; {} stands for the text: 'a photo of {}'.", _MODEL, Metavar("PROMPT")
]
Run = Annotated[AnyPath, "Folder of a trained run.", _MODEL, Metavar("RUN")]
IndexArgument = Annotated[str | Path, "Folder of an index, or its address.", OptionGroup("Index"), Metavar("INDEX")]
IndexRun = Annotated[AnyPath | None, "New folder of the run of the index, if it was moved.", _RUN, Metavar("RUN")]
IndexPretrained = Annotated[
    AnyPath | None,
    "New folder of the pretrained model of the index, if it was moved.",
    _RUN,
    Metavar("NAME_OR_FOLDER"),
]
IndexData = Annotated[
    "str | Path | Dataset | Rows | None",
    "Data set: a file or folder. Default: that of the run, or of an interrupted add.",
    _DATA,
    Metavar("DATA"),
    Flag("--data"),
]
Data = Annotated["str | Path | Dataset | Rows | None", "Data set: a file or folder. Default: that of the run.", _DATA]
Images = Annotated[str | Path | None, "Folder of relative image paths.", _DATA]
Features = Annotated[
    str | Path | Arrays | None, "Precomputed image features: npz, npy, h5 or a folder (docs/datasets.md).", _DATA
]
TextFeatures = Annotated[str | Path | Arrays | None, "Precomputed text features, in the same formats.", _DATA]
Columns = Annotated[
    str | Mapping[str, str | Sequence[str]] | None,
    "Columns of a table with other names: image=file,text=title+caption,date=taken. Default: guessed.",
    _DATA,
    Metavar("ROLE=COLUMN,..."),
]
TextFields = Annotated[
    str | None,
    "Fields with texts of the image, separated by commas. Default for a folder of images: headline,caption.",
    _DATA,
    Metavar("FIELD,..."),
]
SplitSeed = Annotated[int | None, "Seed of the 80-10-10 split of data without splits.", _DATA]
OnError = Annotated[Literal["raise", "skip"] | None, "What to do with rows that cannot be used.", _DATA]
MaxPixels = Annotated[
    int | None, "Million pixels per image. Default: what half of the memory at hand allows.", Interval(1), _DATA
]
Split = Annotated[str | None, "Split to use; all: the complete data set. Default: the run's validation split.", _DATA]
ShownWhere = Annotated[
    tuple[str, ...],
    "Condition on the metadata that every item must meet: others are not there; repeatable.",
    Metavar("CONDITION"),
    OptionGroup("Access"),
]
Device = Annotated[str, "cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.", _RUN]
BatchSize = Annotated[int, "Items per batch.", Interval(1), _RUN]
Workers = Annotated[int, "Threads that load data.", Interval(0), _RUN]
Quiet = Annotated[bool, "Show no progress.", Flag("--quiet", "-q"), _RUN]
Bf16 = Annotated[bool | None, "Score pairs in bfloat16 if the machine supports it. Default: as in training.", _RUN]
Seed = Annotated[int, "Seed of every random choice.", _RUN]
Json = Annotated[str | Path | None, "Write the result as JSON; - for standard output.", Metavar("FILE")]


class ModelOptions(TypedDict, total=False):
    """The options of every verb that uses a model on a data set, without the data set."""

    images: Images
    features: Features
    text_features: TextFeatures
    columns: Columns
    text_fields: TextFields
    split_seed: SplitSeed
    on_error: OnError
    max_pixels: MaxPixels
    device: Device
    batch_size: BatchSize
    workers: Workers
    quiet: Quiet


class DataOptions(ModelOptions, total=False):
    """The same, with the data set."""

    data: Data


OnProgress = Callable[[int, int], None] | None
"""Called with the numbers of finished items and of all; None for nothing."""

DEFAULTS: dict[str, Any] = {"device": "auto", "batch_size": 128, "workers": 2, "quiet": False, "similarity": "cosine"}
"""The defaults of shared settings; of all others None."""
