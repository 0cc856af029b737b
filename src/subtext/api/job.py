"""What was asked for, as plain data: made by the command line, carried out by the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast


@dataclass(frozen=True)
class Sources:
    """Where pairs come from; what is None is the data set's own, or what the run remembers.

    data           the data set         images         folder that picture paths start from
    features, text_features  precomputed features, joined by name
    split_seed     of the 80-10-10 split of data without splits
    bad            what to do with a row that cannot be used
    """

    data: Path | None = None
    images: Path | None = None
    features: Path | None = None
    text_features: Path | None = None
    split_seed: int | None = None
    bad: Literal["refuse", "skip"] | None = None

    @staticmethod
    def of(
        data: Path | str | None = None,
        images: Path | str | None = None,
        features: Path | str | None = None,
        text_features: Path | str | None = None,
        split_seed: int | None = None,
        on_error: Literal["raise", "skip"] | None = None,
    ) -> Sources:
        """The sources that a public function was called with."""
        data, images, features, text_features = (
            None if path is None else Path(path) for path in (data, images, features, text_features)
        )
        bad: Literal["refuse", "skip"] | None = "refuse" if on_error == "raise" else on_error
        return Sources(data, images, features, text_features, split_seed, bad)

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Sources:
        """The sources among a command's options."""
        return Sources(**{f.name: values[f.name] for f in fields(Sources)})

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Sources:
        """What `to_json` wrote."""
        paths = ("data", "images", "features", "text_features")
        return Sources(
            **{name: Path(values[name]) for name in paths if values.get(name) is not None},
            split_seed=values.get("split_seed"),
            bad=cast(Literal["refuse", "skip"] | None, values.get("bad")),
        )

    def to_json(self) -> dict[str, Any]:
        """For run.json: absolute paths, so that a later command finds them from any folder."""
        return {
            name: str(value.expanduser().resolve()) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    def over(self, remembered: Sources) -> Sources:
        """These, and what was remembered where these say nothing."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(remembered, **given)


@dataclass(frozen=True)
class Job:
    """A training.

    host       a host recipe's name       arguments  its options; those left out keep their defaults
    methods    (name, options) in order   plan       the fields of the training plan that were asked for
    out        the run's folder           run        options of the run itself: seed, device, workers, resume ...
    train_split, val_split   names of splits; val_split None for no validation
    """

    host: str
    arguments: Mapping[str, object]
    methods: tuple[tuple[str, dict[str, object]], ...]
    plan: Mapping[str, object]
    sources: Sources
    out: Path
    train_split: str = "train"
    val_split: str | None = "val"
    run: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Work:
    """Something done with a model on a split of a data set.

    run      a run's folder; None where `model` names a pretrained dual encoder
    split    a name, or "all"; None for the run's validation split
    bf16     whether pairs are scored in bfloat16; None for what the run was trained with
    """

    run: Path | None
    model: str | None
    sources: Sources
    split: str | None
    device: str = "cpu"
    batch_size: int = 128
    workers: int = 2
    quiet: bool = False
    bf16: bool | None = None

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Work:
        """The work among a command's options."""
        return Work(
            run=values["run"],
            model=values.get("model"),
            sources=Sources.from_options(values),
            split=values["split"],
            device=values["device"],
            batch_size=values["batch_size"],
            workers=values["workers"],
            quiet=values["quiet"],
            bf16=values.get("bf16"),
        )
