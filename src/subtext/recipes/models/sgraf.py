"""SGRAF (Diao et al. 2021): similarity vectors of words and regions, filtered by attention or reasoned over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

_SGR = When("reasoning", ("sgr",))
PLAN = Plan(epochs=40, batch_size=128, lr=2e-4, schedule="step", step_epochs=30, factor=0.1, positives="pair")


def sgraf(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(word_dropout=0.4),
    width: Annotated[int, "width of the joint space, and of each direction of the GRU", Span(1)] = 1024,
    reasoning: Annotated[Literal["sgr", "saf"], "similarity vectors exchange what they know, or are weighted"] = "sgr",
    nodes: Annotated[int, "width of the similarity vectors", Span(1)] = 256,
    steps: Annotated[int, "exchanges between them", Span(1), _SGR] = 3,
    dropout: Annotated[float, "dropout of the attention that makes the whole's vector", Span(0, 1)] = 0.4,
    places: Annotated[int, "regions of every picture, for published weights (36); 0 for any number", Span(0)] = 0,
    bf16: Annotated[bool, "scores in bfloat16 where the machine has it; training stays in float32"] = False,
    margin: Annotated[float, "margin, in scores", Span(0)] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0)] = 0,
) -> Setup:
    """SGR or SAF: similarity vectors of words and regions become one score, with a hinge on the hardest negative.

    The published SGRAF is the mean of the scores of two runs, one of each. Filtration (saf) trains ten epochs less.
    """
    from subtext.models.heads.parts import Attended
    from subtext.models.similarity.saf import Saf
    from subtext.models.similarity.sgr import Sgr
    from subtext.recipes.pairwise import model_of, pair_sides, parts_heads, ranked

    sides = pair_sides(context, (pictures, pixels, regions), words, width)
    image, text = parts_heads(sides, width)
    heads = (
        Attended(image, width, dropout=dropout, normalise=True, places=places),
        Attended(text, width, dropout=dropout),
    )
    if reasoning == "saf":
        model = model_of(sides, heads, Saf(width=width, nodes=nodes, bf16=bf16))
        return ranked(model, margin=margin, plan=replace(PLAN, epochs=30, step_epochs=20), easy_epochs=easy_epochs)
    model = model_of(sides, heads, Sgr(width=width, nodes=nodes, steps=steps, bf16=bf16))
    return ranked(model, margin=margin, plan=PLAN, easy_epochs=easy_epochs)
