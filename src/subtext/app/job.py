"""What a training was asked to do, as plain data: made by the command line, carried out by `app.training`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Sources:
    """Where pairs come from.

    data           the data set         images         folder that picture paths start from; None for the data's own
    features, text_features  precomputed features, joined by name; None where a modality is read as it is
    train_split, val_split   names of splits; val_split None for no validation
    split_seed     of the 80-10-10 split of data without splits
    bad            what to do with a row that cannot be used
    """

    data: Path
    images: Path | None = None
    features: Path | None = None
    text_features: Path | None = None
    train_split: str = "train"
    val_split: str | None = "val"
    split_seed: int = 0
    bad: Literal["refuse", "skip"] = "refuse"


@dataclass(frozen=True)
class Job:
    """A training.

    host       a host recipe's name       arguments  all of its options
    methods    (name, options) in order   plan       the fields of the training plan that were asked for
    out        the run's folder           run        options of the run itself: seed, device, workers, resume ...
    """

    host: str
    arguments: Mapping[str, object]
    methods: tuple[tuple[str, dict[str, object]], ...]
    plan: Mapping[str, object]
    sources: Sources
    out: Path
    run: Mapping[str, object] = field(default_factory=dict)
    dry_run: bool = False
    quiet: bool = False
