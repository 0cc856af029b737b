"""SCAN (Lee et al. 2018): words and regions meet by attention, and a triplet loss on the hardest negative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

_LSE = When("pooling", ("lse",))
PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, factor=0.1, positives="pair")


def scan(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    width: Annotated[int, "width of the joint space, and of each direction of the GRU", Span(1)] = 1024,
    attending: Annotated[
        Literal["text_to_image", "image_to_text"], "words attend to regions, or regions to words"
    ] = "text_to_image",
    pooling: Annotated[Literal["mean", "lse"], "how cosines become a score: lse is a soft maximum"] = "lse",
    attention_scale: Annotated[float, "what attention multiplies; 0: 9 for words, 4 for regions", Span(0)] = 0.0,
    pooling_scale: Annotated[float, "what the cosines are multiplied by; 0: 6, or 20", Span(0), _LSE] = 0.0,
    bf16: Annotated[bool, "scores in bfloat16 where the machine has it; training stays in float32"] = False,
    margin: Annotated[float, "margin, in scores", Span(0)] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0)] = 0,
) -> Setup:
    """SCAN: regions and words compared by cross attention, and a triplet loss on the hardest negative of the batch.

    Scores need pictures and texts together: such a model re-orders what an index finds, and cannot fill one. Regions
    are a picture's features by region, or the cells of a backbone.
    """
    from subtext.models.similarity.cross_attention import CrossAttention
    from subtext.recipes.pairwise import model_of, pair_sides, parts_heads, ranked

    sides = pair_sides(context, (pictures, pixels, regions), words, width)
    similarity = CrossAttention(
        attending=attending,
        pooling=pooling,
        attention_scale=attention_scale,
        pooling_scale=pooling_scale,
        bf16=bf16,
    )
    return ranked(
        model_of(sides, parts_heads(sides, width), similarity), margin=margin, plan=PLAN, easy_epochs=easy_epochs
    )
