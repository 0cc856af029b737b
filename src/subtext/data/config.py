"""DataConfig: where pairs of images and texts come from, as one object; read without numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.data.addresses import as_path
from subtext.data.objects import Arrays, Records, Rows, records_of
from subtext.errors import ArgumentError, DataError, RequirementError, Setting
from subtext.settings import Interval, Metavar, OptionGroup, fields_of, named_fields
from subtext.text_helpers import counted

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.data.feature_file import FeatureFile
    from subtext.data.unchanged import Unchanged

Verify = bool | Callable[[str | bytes, Path], bool]
"""Which images are decoded once when data is read; see `subtext.read`."""
IN_MEMORY = "data set in memory"

_GROUP = OptionGroup("Data")
_PATHS = ("data", "images", "features", "text_features")
_RARE = ("columns", "text_fields", "max_pixels")
"""Fields that a record has only where somebody named them."""
_SPLITS = ("train_split", "val_split", "train_data", "val_data")


@named_fields()
@dataclass(frozen=True)
class DataConfig:
    """The source of images and texts, and the way to read them.

    A field that is None takes its value from the data set or from the run. Paths may be text; `~` is expanded.

    Attributes:
        data: A file or folder, or a Dataset in memory; or a table or rows as `subtext.read` takes them, which are read
            once, here.
        images: Folder that relative image paths start from.
        features: Precomputed image features, joined by name: a file, or arrays with the ids of their rows, as
            {"ids": [...], "vectors": array}, (array, ids) or {id: vector}.
        text_features: Precomputed text features, likewise.
        columns: Columns of a table with other names, as text or a mapping; see `subtext.read`.
        text_fields: Fields with texts of the image.
        train_split: For `subtext.train`: the split to train on.
        val_split: For `subtext.train`: the split that selects the epoch; None for no selection.
        split_seed: Seed of the 80-10-10 split of data without splits; None for 0.
        on_error: "raise" or "skip" rows that cannot be used; None for "raise".
        max_pixels: Million pixels of the largest image that is decoded; None for what the memory at hand allows.
        train_data: For `subtext.train`: pairs to train on, instead of `train_split`. The record still names `data`,
            which other functions then read.
        val_data: For `subtext.train`: pairs to validate on, instead of `val_split`.
        form: What the data was first read as (`Dataset.form`); None for what its path looks like.

    Raises:
        ArgumentError: For data that is neither a path nor a Dataset.
    """

    data: Annotated["str | Path | Dataset | Rows | None", "Data set: a file or folder.", _GROUP, Metavar("DATA")] = None
    images: Annotated[str | Path | None, "Folder of relative image paths.", _GROUP] = None
    features: Annotated[
        str | Path | Arrays | None, "Precomputed image features: npz, npy, h5 or a folder (docs/datasets.md).", _GROUP
    ] = None
    text_features: Annotated[str | Path | Arrays | None, "Precomputed text features, in the same formats.", _GROUP] = (
        None
    )
    columns: Annotated[
        str | Mapping[str, str | Sequence[str]] | None,
        "Columns of a table with other names: image=file,text=title+caption,date=taken. Default: guessed.",
        _GROUP,
        Metavar("ROLE=COLUMN,..."),
    ] = None
    text_fields: Annotated[
        str | None,
        "Fields with texts of the image, separated by commas. Default for a folder of images: headline,caption.",
        _GROUP,
        Metavar("FIELD,..."),
    ] = None
    train_split: Annotated[str, "Split to train on.", _GROUP] = "train"
    val_split: Annotated[str | None, "Split that selects the epoch; none for no selection.", _GROUP] = "val"
    split_seed: Annotated[int | None, "Seed of the 80-10-10 split of data without splits.", _GROUP] = None
    on_error: Annotated[Literal["raise", "skip"] | None, "What to do with rows that cannot be used.", _GROUP] = None
    max_pixels: Annotated[
        int | None,
        "Million pixels per image. Default: what half of the memory at hand allows.",
        Interval(1),
        _GROUP,
    ] = None
    train_data: Dataset | None = None
    val_data: Dataset | None = None
    form: str | None = None

    def __post_init__(self) -> None:
        for field in fields_of(DataConfig):
            if reason := field.why_not(getattr(self, field.name)):
                raise ArgumentError(f"{field.name} {reason}", field=field.name)
        for name in _PATHS:
            value = getattr(self, name)
            if isinstance(value, str | os.PathLike):
                object.__setattr__(self, name, as_path(value))
            elif name == "data":
                if value is not None and not _is_dataset(value):
                    object.__setattr__(self, name, records_of(value))
            elif name == "images":
                if value is not None:
                    raise ArgumentError(f"images needs a path; it got a {type(value).__name__}", field=name)
            elif value is not None:
                from subtext.data.feature_file import FeatureFile

                side = "text" if name == "text_features" else "image"
                object.__setattr__(self, name, FeatureFile.open(value, side, name=name))
        if self.val_split == "none":
            object.__setattr__(self, "val_split", None)

    def __repr__(self) -> str:
        given = ((f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) is not f.default)
        shown = ((name, str(value) if isinstance(value, Path) else value) for name, value in given)
        return f"DataConfig({', '.join(f'{name}={value!r}' for name, value in shown)})"

    @staticmethod
    def of(
        data: str | os.PathLike[str] | Dataset | Rows | DataConfig | None,
        images: str | Path | None = None,
        features: str | Path | Arrays | FeatureFile | None = None,
        text_features: str | Path | Arrays | FeatureFile | None = None,
        *,
        columns: str | Mapping[str, str | Sequence[str]] | None = None,
        text_fields: str | None = None,
        split_seed: int | None = None,
        on_error: Literal["raise", "skip"] | None = None,
        max_pixels: int | None = None,
    ) -> DataConfig:
        """Make one configuration of the arguments of a function.

        Args:
            data: A path, a Dataset, or a configuration.
            images: As the field; None if the caller did not set it.
            features: As the field.
            text_features: As the field.
            columns: As the field.
            text_fields: As the field.
            split_seed: As the field.
            on_error: As the field.
            max_pixels: As the field.

        Returns:
            The configuration; `data` itself if it is a DataConfig.

        Raises:
            ArgumentError: If a field is set both in `data` and as an argument.
        """
        if not isinstance(data, DataConfig):
            path = as_path(data) if isinstance(data, os.PathLike) else data
            made = DataConfig(path, images, features, text_features, columns, text_fields)
            return replace(made, split_seed=split_seed, on_error=on_error, max_pixels=max_pixels)
        beside = {"images": images, "features": features, "text_features": text_features, "columns": columns}
        beside |= {"text_fields": text_fields, "split_seed": split_seed, "on_error": on_error}  # type: ignore[dict-item]
        beside |= {"max_pixels": max_pixels}  # type: ignore[dict-item]
        for name, value in beside.items():
            if value is not None:
                raise ArgumentError(f"{name} stands in data=DataConfig(...) here; leave {name} out", field=name)
        return data

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> DataConfig:
        """Read what `to_json` wrote; other keys are ignored.

        Args:
            values: The JSON object of a journal or a run.

        Returns:
            The configuration.
        """
        return DataConfig(**{f.name: values[f.name] for f in fields(DataConfig) if f.name in values})

    def plain(self) -> dict[str, Any]:
        """Return all fields as plain JSON values, without data sets in memory. Paths are not made absolute.

        Returns:
            Field -> plain value.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        values |= {name: None for name in _PATHS if not isinstance(getattr(self, name), Path)}
        left_out = ("train_data", "val_data", *(("form",) if self.form is None else ()))
        return {name: value for name, value in values.items() if name not in left_out}

    def absolute(self) -> DataConfig:
        """Make all paths absolute, so that a later command finds them from any folder.

        Returns:
            The configuration with absolute paths.
        """
        paths: dict[str, Any] = {name: path.resolve() for name in _PATHS if (path := self.path(name)) is not None}
        return replace(self, **paths)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values with absolute paths, without the fields for training.

        A data set in memory has the path None, and its fingerprint; so have features.

        Returns:
            Field -> plain value.
        """
        from subtext.data.dataset import fingerprint

        values = {name: value for name, value in self.absolute().plain().items() if name not in _SPLITS}
        # Where nobody named them, they are left out.
        values = {n: value for n, value in values.items() if value is not None or n not in _RARE}
        for name in ("features", "text_features"):
            if self.path(name) is None and (file := getattr(self, name)) is not None:
                values[f"{name}_fingerprint"] = file.fingerprint
        dataset = self.in_memory
        return values if dataset is None else {**values, "fingerprint": fingerprint(dataset)}

    def path(self, name: str) -> Path | None:
        """Get the path of a field: `data`, `images`, `features` or `text_features`.

        Args:
            name: Name of the field.

        Returns:
            The path; None if the field is None or holds a data set in memory.
        """
        value = getattr(self, name)
        return value if isinstance(value, Path) else None

    @property
    def in_memory(self) -> Dataset | None:
        """The data set if it is in memory, else None; rows are read, without a look at their images."""
        data: Any = self.data
        if isinstance(data, Records):
            if "_read" not in vars(self):
                object.__setattr__(self, "_read", self.read(need_pairs=False))
            read: Dataset = vars(self)["_read"]
            return read
        dataset: Any = self.data  # What was neither a path nor a data set has become records.
        return None if isinstance(dataset, str | Path) else dataset

    @property
    def name(self) -> str:
        """The path of the data set, for messages."""
        return str(self.data) if self.data is None or isinstance(self.data, Path) else IN_MEMORY

    def over(self, remembered: DataConfig) -> DataConfig:
        """Fill the fields that are None from another configuration.

        Args:
            remembered: The configuration of a run, or of an index.

        Returns:
            A copy in which each field that was None has the value of `remembered`.
        """
        if self.data is not None and not isinstance(self.data, Path):
            # What was remembered of reading a file is not for a data set that was read already.
            remembered = DataConfig(features=remembered.features, text_features=remembered.text_features)
        elif self.data is not None and self.data.resolve() != _resolved(remembered.data):
            # Columns were named for one table; another has its own.
            remembered = replace(remembered, columns=None, text_fields=None, form=None)
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _SPLITS}
        given = {name: value for name, value in values.items() if value is not None}
        return replace(remembered, **given)

    def require_there(self) -> DataConfig:
        """Require the files that are named, before seconds of opening a model.

        Returns:
            The same.

        Raises:
            DataError: If the data set, the folder of images or a file of features does not exist.
        """
        for name in _PATHS:
            path = self.path(name)
            if path is None or path.exists():
                continue
            if name == "data":
                from subtext.data.readers import readers

                # A pattern of tars is no file, and who reads addresses registers a reader.
                if any(reader.recognises(path) for reader in readers()):
                    continue
                raise DataError(f"a data set needs a file, a folder or a pattern of tars; {path} does not exist")
            kind = "a folder" if name == "images" else "a file"
            raise DataError(f"{name} needs {kind}; {path} does not exist", field=name)
        return self

    def read(
        self,
        *,
        verify: Verify = False,
        need_images: bool = False,
        need_pairs: bool = True,
        progress: Any = None,
        unchanged: Unchanged | None = None,
    ) -> Dataset:
        """Read the data set; see `subtext.read`.

        Args:
            verify: Which images are decoded once.
            need_images: Whether every image file must exist.
            need_pairs: False to accept images without texts, as for an index.
            progress: Called with the number of images that were decoded.
            unchanged: See `subtext.read`.

        Returns:
            The pairs.

        Raises:
            RequirementError: If no data set is named.
            DataError: If pairs are needed and there are none.
        """
        from subtext.data.read import read

        if self.data is None:
            raise RequirementError(
                "data needs a data set; none was given, and none is remembered (a run that was trained on a data set "
                "in memory remembers none); pass that, or the path of a file (",
                Setting("data", "DATA"),
                ")",
                field="data",
            )
        dataset = read(
            self.data,
            images=self.images,
            split_seed=self.split_seed or 0,
            on_error=self.on_error or "raise",
            verify=verify,
            need_images=need_images,
            columns=self.columns,
            text_fields=self.text_fields,
            progress=progress,
            form=self.form,
            max_pixels=self.max_pixels,
            embedded=not need_pairs,  # Metadata are for searches.
            unchanged=unchanged,
        )
        if need_pairs and not len(dataset):
            raise DataError(
                f"this needs images with texts; {self.name} has {counted(len(dataset.images), 'image')} and no text; "
                "an index takes images alone (subtext index build)"
            )
        return dataset


def _is_dataset(value: object) -> bool:
    from subtext.data.dataset import Dataset

    return isinstance(value, Dataset)


def _resolved(data: Any) -> Path | None:
    return data.expanduser().resolve() if isinstance(data, Path) else None
