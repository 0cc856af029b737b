"""What a recipe builds from; Setup, which it returns and a method changes; the options, reports and result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from subtext.data.feature_file import FeatureShape
from subtext.errors import RequirementError, TrainingError
from subtext.models.checkpoint import Record
from subtext.models.model import Model
from subtext.objectives.objective import Objective
from subtext.training.batch_relevance import Mixing, RelevanceSource
from subtext.training.memory import BankSource
from subtext.training.plan import Phase, Plan, Range, ranges
from subtext.training.step import ExtraSource


@dataclass(frozen=True)
class BuildContext:
    """What a recipe builds from.

    image_features, text_features  shapes of precomputed features; None where the modality is read from pixels or words
    texts    texts of the training split (empty when a saved run is opened): vocabularies are built from these alone
    assets   folder of a saved run with "image" and "text" inside (vocabulary, tokeniser, backbone configuration); None
             for a new run
    seed     what the initial weights of a new run are drawn from
    member   of a saved ensemble: which member's assets, a folder inside that of each modality; empty for a run's own
    """

    image_features: FeatureShape | None = None
    text_features: FeatureShape | None = None
    texts: tuple[str, ...] = ()
    assets: Path | None = None
    seed: int = 0
    member: str = ""

    def asset(self, modality: str) -> Path | None:
        """The saved folder of one modality, None for a new run.

        Raises RequirementError when the run has none.
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

    phases           parts of the training in order; empty for one phase that trains everything
    extras           what is read beside every batch, for terms on other comparisons than those of its pairs. The last
                     one compares first
    memories         what is kept between steps and epochs, for weightings that need more than their batch
    relevance        graded truth of a batch, for losses that read it; None for none
    mixing           mixes images of a batch, for losses that read the share of each; None for none
    defaults_before  values that held for options which an older record lacks: those of the model and the plan, then
                     those of each method
    from_start       measure the model before the first step, too: as epoch 0, it takes part in the selection
    opened           built to open a run, not to train: combinations that are no longer trained can still be opened
    """

    model: Model
    objective: Objective
    plan: Plan
    phases: tuple[Phase, ...] = ()
    extras: tuple[ExtraSource, ...] = ()
    memories: tuple[BankSource, ...] = ()
    relevance: RelevanceSource | None = None
    mixing: Mixing | None = None
    defaults_before: tuple[Mapping[str, object], ...] = ()
    from_start: bool = False
    opened: bool = False


@dataclass(frozen=True)
class RunOptions:
    """How a training is run; of these, the seed and the precision of the cache alone change what is learnt.

    seed              of every draw
    device            "auto" (a GPU where there is one), or a torch device: "cpu", "cuda", "mps"
    workers           threads that read batches ahead; 0 reads in the loop
    resume            go on from the newest complete checkpoint of the folder
    checkpoint_every  steps between checkpoints; 0 for the ends of epochs alone, which always have one
    keep_checkpoints  checkpoints kept, the newest; a finished training has none any more
    save_every_epochs save every Nth epoch as a run in RUN/epochs/EPOCH; 0 for none
    cache             folder for the outputs of frozen encoders; None for `cache` in the run's folder
    cache_precision   how they are stored; float16 halves the disk, and moves the features by about 0.05 %: `resume`
                      needs the same again
    log_every         steps between two lines of log.jsonl
    tensorboard       also write TensorBoard's files (extra: tensorboard)
    """

    seed: int = 0
    device: str = "auto"
    workers: Annotated[int, Range(0)] = 2
    resume: bool = False
    checkpoint_every: Annotated[int, Range(0)] = 0
    keep_checkpoints: Annotated[int, Range(1)] = 2
    save_every_epochs: Annotated[int, Range(0)] = 0
    cache: Path | None = None
    cache_precision: Literal["float32", "float16"] = "float32"
    log_every: Annotated[int, Range(1)] = 50
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, allowed in ranges(RunOptions).items():
            allowed.require(name, getattr(self, name), TrainingError)


@dataclass(frozen=True)
class Report:
    """Where a training stands; told a few times a second, at each epoch's end, and with every note.

    epoch, epochs  counted from 1        step, steps  finished so far in the whole training, and all of them
    loss           mean over the epoch so far
    figures        of the latest validation, empty before
    seconds_left   estimated, None before enough is known
    note           something to say in words, None mostly
    ended          the epoch that has just ended, from 1, with `loss` its mean and `figures` its own; None between
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
    """What came out.

    run     the folder           model    the model with the saved weights, in eval mode
    record  as in RUN/run.json   notes  what was said on the way
    """

    run: Path
    model: Model
    record: Record
    notes: tuple[str, ...] = ()
