"""IMRAM (Chen et al. 2020): words and regions attend to each other in several steps, each refining the one before."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan

PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, lr_factor=0.1, positives="pair")


def imram(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(flip=0.5),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of the GRU", Interval(1)] = 1024,
    attention_mode: Annotated[
        Literal["full", "text", "image"], "attend from words, from regions, or sum both"
    ] = "full",
    steps: Annotated[int, "attention steps", Interval(1)] = 3,
    attention_scale: Annotated[float, "inverse temperature of attention; paper: 11 for words on COCO"] = 9.0,
    bf16: Annotated[bool, "score pairs in bfloat16 if the machine supports it; training uses float32"] = False,
    margin: Annotated[float, "margin, in scores", Interval(0)] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0)] = 0,
) -> Setup:
    """IMRAM: cross attention in several steps with a memory, and a triplet loss on the hardest negative.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space, and of each direction of the GRU.
        attention_mode: Attend from words, from regions, or sum both.
        steps: Attention steps.
        attention_scale: Inverse temperature of attention; paper: 11 for words on COCO.
        bf16: Score pairs in bfloat16 if the machine supports it; training uses float32.
        margin: Margin, in scores.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.similarity.cross_attention import Imram
    from subtext.recipes.parts import hardest_negative_triplet, pair_sides, parts_heads, setup_of

    sides = pair_sides(context, inputs, embed_dim)
    similarity = Imram(width=embed_dim, queries=attention_mode, steps=steps, attention_scale=attention_scale, bf16=bf16)
    terms, options = hardest_negative_triplet(margin, all_negatives_epochs), ("margin", "all_negatives_epochs")
    return setup_of(sides, parts_heads(sides, embed_dim), similarity, terms, PLAN, loss_options=options)
