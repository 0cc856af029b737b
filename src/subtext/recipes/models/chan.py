"""CHAN (Pan et al. 2023): every word takes its best region, and a triplet loss on the hardest negative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

_LSE = When("pooling", ("lse",))
PLAN = Plan(
    epochs=25,
    batch_size=128,
    lr=5e-4,
    optimiser="adamw",
    weight_decay=1e-4,
    schedule="step",
    step_epochs=15,
    factor=0.1,
    encoder_factor=0.1,
    positives="pair",
)


def chan(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(region_drop=0.2),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    width: Annotated[int, "width of the joint space, and of each direction of the GRU", Span(1)] = 1024,
    pooling: Annotated[
        Literal["lse", "mean"], "how words become a score: lse as published for a GRU, mean for a BERT"
    ] = "lse",
    temperature: Annotated[float, "temperature of the soft maximum over words", _LSE] = 0.1,
    bf16: Annotated[bool, "scores in bfloat16 where the machine has it; training stays in float32"] = False,
    margin: Annotated[float, "margin, in scores", Span(0)] = 0.05,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0)] = 1,
) -> Setup:
    """CHAN: each word compared with the one region that suits it best, the cheapest of the models that see regions.

    Published with 384 pairs a step for a GRU, 128 for a BERT.
    """
    from subtext.models.similarity.chan import Chan
    from subtext.recipes.pairwise import model_of, pair_sides, parts_heads, ranked

    sides = pair_sides(context, (pictures, pixels, regions), words, width)
    model = model_of(sides, parts_heads(sides, width), Chan(pooling=pooling, temperature=temperature, bf16=bf16))
    return ranked(model, margin=margin, plan=PLAN, easy_epochs=easy_epochs)
