"""Distillation: a model whose vectors decide the score learns what one that looks at pairs knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Place, Span, When

if TYPE_CHECKING:
    from pathlib import Path

    from subtext.models.checkpoint import Record
    from subtext.models.model import Model
    from subtext.training.setup import Setup

_MINED = When("mined", ("0",), needs="mined above 0", but=True)


def distil(
    setup: Setup,
    *,
    teacher: Annotated[str, "RUN that is learnt from; it learnt from the same training pairs", Place()] = "",
    weight: Annotated[float, "of lists that are the batch, half in each direction", Span(0)] = 1.0,
    mined: Annotated[int, "candidates mined for every item before each epoch but the first; 0: none", Span(0)] = 16,
    mined_weight: Annotated[float, "of lists that are mined, half in each direction", Span(0), _MINED] = 1.0,
    temperature: Annotated[float, "of the student's cosines in these lists"] = 0.05,
    teacher_temperature: Annotated[float, "of the teacher's scores; 0: what fits its pairs best", Span(0)] = 0.0,
    device: Annotated[str, "where the teacher computes"] = "cpu",
) -> Setup:
    """Teaches a dual encoder to share a list of candidates out as a teacher does (Hinton et al. 2015), beside its loss.

    Lists are the batch's pictures and texts and, from the second epoch on, what the student takes for nearest. The
    teacher, most often a model of regions and words, embeds all training items once and scores the pairs of every
    batch: a step takes as long as it needs for that. Needs a host that compares by the cosine of vectors.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.objectives.losses.listwise import Listwise
    from subtext.objectives.mining.cosines import Cosines
    from subtext.objectives.objective import Term
    from subtext.recipes.method_terms import by_cosine
    from subtext.training.teacher import BatchLessons, Mined, MinedLessons, Teacher

    if not teacher:
        raise RecipeError("distil needs teacher=RUN, a folder that `subtext train` made; it got none; name one")
    if not by_cosine(setup):
        raise RecipeError(
            "distil teaches a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; take another host"
        )
    if setup.relevance is not None:
        raise RecipeError("distil gives a batch its relevance, and another method does so already; take one of them")
    if not weight and not (mined and mined_weight):
        raise RecipeError("distil needs a weight above 0, of the batch's lists or of mined ones; both are 0")
    known = Teacher(Path(teacher).expanduser(), _opened, temperature=teacher_temperature, device=device)
    parts = dict(setup.objective.parts)
    for side in DIRECTIONS:
        if weight:
            parts[f"distil {side}"] = Term(Listwise(temperature), side, weight / 2, mining=Cosines(side))
        if mined and mined_weight:
            parts[f"distil mined {side}"] = Term(
                Listwise(temperature), side, mined_weight / 2, mining=Mined(side), from_epoch=1
            )
    made = replace(setup, objective=replace(setup.objective, parts=parts))
    if weight:
        made = replace(made, relevance=BatchLessons(known))
    if mined and mined_weight:
        made = replace(made, memories=(*made.memories, MinedLessons(known, mined)))
    return made


def _opened(run: Path, device: str) -> tuple[Model, Record]:
    """A run as a model in eval mode, and its record."""
    from subtext.recipes.load import reopened

    found = reopened(run)
    return found.model.to(device).eval(), found.record
