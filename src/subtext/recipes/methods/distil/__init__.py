"""Distillation: a model whose vectors decide the score learns from one that scores pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.recipes.options import Setup
from subtext.settings import Interval, IsPath
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.models.model import Model

_MINED = Requires("mined_candidates", ("0",), needs="mined_candidates above 0", negated=True)
_WEIGHTED = Requires("mined_weight", ("0", "0.0"), needs="mined_weight above 0", negated=True)


def distil(
    setup: Setup,
    *,
    teacher: Annotated[str, "RUN of the teacher, trained on the same pairs", IsPath()] = "",
    weight: Annotated[float, "weight of the batch's lists, half in each direction", Interval(0)] = 1.0,
    mined_candidates: Annotated[
        int, "candidates mined per item before each epoch but the first; 0 for none", Interval(0), _WEIGHTED
    ] = 16,
    mined_weight: Annotated[float, "weight of the mined lists, half in each direction", Interval(0), _MINED] = 1.0,
    temperature: Annotated[float, "temperature of the student's cosines in these lists"] = 0.05,
    teacher_temperature: Annotated[
        float, "temperature of the teacher's scores; 0 for the best fit to its pairs", Interval(0)
    ] = 0.0,
    device: Annotated[str, "device of the teacher"] = "cpu",
) -> Setup:
    """Adds a loss that trains a dual encoder to score candidates as a teacher does (Hinton et al. 2015).

    Lists are the images and texts of the batch and, from the second epoch on, the student's nearest candidates. The
    teacher, usually a model of regions and words, embeds all training items once and scores the pairs of every batch,
    which takes most of a step. Needs a model that compares items by the cosine of their vectors.

    Args:
        setup: What the model, its objective and its batches are so far.
        teacher: RUN of the teacher, trained on the same pairs.
        weight: Weight of the batch's lists, half in each direction.
        mined_candidates: Candidates mined per item before each epoch but the first; 0 for none.
        mined_weight: Weight of the mined lists, half in each direction.
        temperature: Temperature of the student's cosines in these lists.
        teacher_temperature: Temperature of the teacher's scores; 0 for the best fit to its pairs.
        device: Device of the teacher.

    Returns:
        The changed setup.

    Raises:
        RecipeError: Without a teacher or a weight, for a model that does not compare by cosine, and if another method
            gives the relevance.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.objectives.losses.listwise import Listwise
    from subtext.objectives.mining import Cosines
    from subtext.objectives.objective import Term
    from subtext.recipes.build import reopen
    from subtext.recipes.methods.distil.teacher import Mined, MinedNegatives, Teacher
    from subtext.recipes.parts import require_cosine

    if not teacher:
        raise RecipeError("distil needs teacher=RUN, a folder that `subtext train` made; it got none; name one")
    require_cosine("distil", setup)
    if setup.relevance is not None:
        raise RecipeError("distil gives a batch its relevance, and another method does so already; use one of them")
    mines = bool(mined_candidates and mined_weight)
    if not weight and not mines:
        raise RecipeError("distil needs a weight above 0, of the batch's lists or of mined ones; both are 0")

    def load(run: Path, device: str) -> Model:
        return reopen(run)[0].to(device)

    scorer = Teacher(Path(teacher).expanduser(), load, temperature=teacher_temperature, device=device)
    parts, loss = dict(setup.objective.parts), Listwise(temperature)
    for side in DIRECTIONS:
        if weight:
            parts[f"distil {side}"] = Term(loss, side, weight / 2, mining=Cosines(side))
        if mines:
            parts[f"distil mined {side}"] = Term(loss, side, mined_weight / 2, mining=Mined(side), from_epoch=1)
    return replace(
        setup,
        objective=replace(setup.objective, parts=parts),
        relevance=scorer if weight else None,
        banks=(*setup.banks, MinedNegatives(scorer, mined_candidates)) if mines else setup.banks,
    )
