"""SCAN (Lee et al. 2018): words and regions meet by attention, and a triplet loss on the hardest negative."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_LSE = Requires("pooling", ("lse",))
PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, lr_factor=0.1, positives="pair")


def scan(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(flip=0.5),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of the GRU", Interval(1)] = 1024,
    cross_attention: Annotated[
        Literal["text_to_image", "image_to_text"], "words attend to regions, or regions to words"
    ] = "text_to_image",
    pooling: Annotated[Literal["mean", "lse"], "how cosines are combined to a score; lse is a soft maximum"] = "lse",
    attention_scale: Annotated[
        float, "inverse temperature of attention; 0: 9 for words, 4 for regions", Interval(0)
    ] = 0.0,
    lse_scale: Annotated[
        float, "inverse temperature of the soft maximum; 0: 6 for words, 20 for regions", Interval(0), _LSE
    ] = 0.0,
    bf16: Annotated[bool, "score pairs in bfloat16 if the machine supports it; training uses float32"] = False,
    margin: Annotated[float, "margin, in scores", Interval(0)] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0)] = 0,
) -> Setup:
    """SCAN: regions and words compared by cross attention, and a triplet loss on the hardest negative of the batch.

    Scores need image and text together: such a model re-ranks the results of an index, and cannot fill one. Regions are
    an image's features by region, or the cells of a backbone.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space, and of each direction of the GRU.
        cross_attention: Words attend to regions, or regions to words.
        pooling: How cosines are combined to a score; lse is a soft maximum.
        attention_scale: Inverse temperature of attention; 0: 9 for words, 4 for regions.
        lse_scale: Inverse temperature of the soft maximum; 0: 6 for words, 20 for regions.
        bf16: Score pairs in bfloat16 if the machine supports it; training uses float32.
        margin: Margin, in scores.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.similarity.cross_attention import CrossAttention
    from subtext.recipes.parts import hardest_negative_triplet, pair_sides, parts_heads, setup_of

    sides = pair_sides(context, inputs, embed_dim)
    similarity = CrossAttention(
        attending=cross_attention, pooling=pooling, attention_scale=attention_scale, pooling_scale=lse_scale, bf16=bf16
    )
    terms, options = hardest_negative_triplet(margin, all_negatives_epochs), ("margin", "all_negatives_epochs")
    return setup_of(sides, parts_heads(sides, embed_dim), similarity, terms, PLAN, loss_options=options)
