"""What a recipe builds from; Setup, which it returns and a method changes; the reports and result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subtext.data.feature_file import FeatureShape
from subtext.errors import RequirementError
from subtext.models.checkpoint import Record
from subtext.models.model import Model
from subtext.objectives.objective import Objective
from subtext.training.bank import BankSource
from subtext.training.plan import Phase, Plan
from subtext.training.relevance import ImageMixing, RelevanceSource
from subtext.training.step import ExtraSource


@dataclass(frozen=True)
class BuildContext:
    """What a recipe builds from.

    Attributes:
        image_features: Shapes of precomputed features of images; None where images are read from pixels.
        text_features: Likewise of texts; None where texts are read by words.
        texts: Texts of the training split (empty for a saved run): vocabularies are built from these alone.
        assets: Folder of a saved run with "image" and "text" inside (vocabulary, tokeniser, backbone configuration);
            None for a new run.
        seed: Of the initial weights of a new run.
        member: Of a saved ensemble: which member's assets, a folder inside that of each modality; empty for a run's
            own.
        objects: "image", "text" and "tokeniser" -> what was given as an object in place of a name.
    """

    image_features: FeatureShape | None = None
    text_features: FeatureShape | None = None
    texts: tuple[str, ...] = ()
    assets: Path | None = None
    seed: int = 0
    member: str = ""
    objects: Mapping[str, Any] = field(default_factory=dict)

    def asset(self, modality: str) -> Path | None:
        """The saved folder of one modality.

        Args:
            modality: "image" or "text".

        Returns:
            The folder; None for a new run.

        Raises:
            RequirementError: If the run has none.
        """
        if self.assets is None:
            return None
        folder = self.assets / modality / self.member
        if not folder.is_dir():
            raise RequirementError(f"the recipe needs the {modality} assets of the run; {folder} is not there")
        return folder


@dataclass(frozen=True)
class Setup:
    """A model, its objective and its training plan, with the hooks of methods.

    Attributes:
        model: The model that is trained and saved.
        objective: Its loss.
        plan: How it is trained.
        phases: Parts of the training in order; empty for one phase that trains everything.
        extras: What is read beside every batch, for terms on other comparisons than those of its pairs. The last one
            compares first.
        banks: What is kept between steps and epochs, for weightings that need more than their batch.
        relevance: Graded truth of a batch, for losses that read it; None for none.
        mixing: Mixes images of a batch, for losses that read the share of each; None for none.
        loss_options: Options of the model that its losses between images and texts alone read.
        unread: Options of the model that nothing reads any more -> what made them so: a method, in words.
        from_start: Measure the model before the first step, too: as epoch 0, it takes part in the selection.
    """

    model: Model
    objective: Objective
    plan: Plan
    phases: tuple[Phase, ...] = ()
    extras: tuple[ExtraSource, ...] = ()
    banks: tuple[BankSource, ...] = ()
    relevance: RelevanceSource | None = None
    mixing: ImageMixing | None = None
    loss_options: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    from_start: bool = False


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training; sent a few times a second, at each epoch's end, and with every note.

    Attributes:
        epoch: Counted from 1.
        epochs: Of the full training.
        step: Finished so far in the full training.
        steps: All of them.
        loss: Mean over the epoch so far.
        figures: Of the latest validation, empty before.
        seconds_left: Estimated, None before enough is known.
        note: A sentence for the user, None mostly.
        ended: The epoch that has just ended, from 1, with `loss` its mean and `figures` its own; None between.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds_left: float | None = None
    note: str | None = None
    ended: int | None = None


@dataclass(frozen=True)
class TrainResult:
    """What a training returns.

    Attributes:
        run: The folder.
        model: The model with the saved weights, in eval mode.
        record: As in RUN/run.json.
        notes: Sentences for the user.
    """

    run: Path
    model: Model
    record: Record
    notes: tuple[str, ...] = ()
