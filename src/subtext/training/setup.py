"""Setup: what a recipe returns, and a method changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from subtext.models.model import Model
from subtext.neighbours.sampling import NeighbourDraw
from subtext.objectives.objective import Objective
from subtext.training.memory import Remembers
from subtext.training.mixing import Mixing
from subtext.training.plan import Phase, Plan
from subtext.training.related import Relates
from subtext.training.rewriting import Rewriting


@dataclass(frozen=True)
class Setup:
    """A model, what it is trained for, and how.

    phases      parts of the training in order; empty for one phase that trains everything
    neighbours  what every pair of a batch is read with, for terms on image_neighbours or text_neighbours
    memories    what is kept between steps and epochs, for weightings that know more than their batch
    relevance   what graded truth a batch comes with, for losses that read it; None for none
    mixing      mixes pictures of a batch while training, for losses that read how much is whose; None for none
    rewriting   what texts are made of a batch's own, for terms on image_to_noised, image_to_retold or retold_to_image
    unsaid      what holds for an option that the record of an older version lacks: the host's and the plan's, then each
                method's
    opened      built to open a run, not to train: what is no longer trained together can still be opened
    """

    model: Model
    objective: Objective
    plan: Plan
    phases: tuple[Phase, ...] = ()
    neighbours: NeighbourDraw | None = None
    memories: tuple[Remembers, ...] = ()
    relevance: Relates | None = None
    mixing: Mixing | None = None
    rewriting: Rewriting | None = None
    unsaid: tuple[Mapping[str, object], ...] = ()
    opened: bool = False
