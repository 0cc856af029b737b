"""IMRAM (Chen et al. 2020): words and regions attend to each other in several steps, each made of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, factor=0.1, positives="pair")


def imram(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    width: Annotated[int, "width of the joint space, and of each direction of the GRU", Span(1)] = 1024,
    asking: Annotated[Literal["full", "text", "image"], "words ask, regions ask, or the sum of both"] = "full",
    steps: Annotated[int, "times that each asks", Span(1)] = 3,
    attention_scale: Annotated[float, "what attention multiplies; 11 for words on COCO"] = 9.0,
    bf16: Annotated[bool, "scores in bfloat16 where the machine has it; training stays in float32"] = False,
    margin: Annotated[float, "margin, in scores", Span(0)] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0)] = 0,
) -> Setup:
    """IMRAM: cross attention in several steps with a memory, and a triplet loss on the hardest negative."""
    from subtext.models.similarity.imram import Imram
    from subtext.recipes.pairwise import model_of, pair_sides, parts_heads, ranked

    sides = pair_sides(context, (pictures, pixels, regions), words, width)
    similarity = Imram(width=width, asking=asking, steps=steps, attention_scale=attention_scale, bf16=bf16)
    return ranked(
        model_of(sides, parts_heads(sides, width), similarity), margin=margin, plan=PLAN, easy_epochs=easy_epochs
    )
