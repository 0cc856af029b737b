"""VSE-infinity (Chen et al. 2021): a strong plain model whose pooling is learnt on both sides."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import BuildContext, RankingOptions, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_TRIPLET = Requires("loss", ("triplet",))
PLAN = Plan(
    epochs=25,
    batch_size=128,
    lr=5e-4,
    optimiser="adamw",
    weight_decay=1e-4,
    schedule="step",
    step_epochs=15,
    lr_factor=0.1,
    backbone_lr_scale=0.1,
    positives="pair",
)


def vse_infinity(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(
        region_dropout=0.2, append_pooled=True, flip=0.5, token_mask=0.1, token_dropout=0.1
    ),
    ranking: RankingOptions = RankingOptions(),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    margin: Annotated[float, "margin, in cosine", Interval(0), _TRIPLET] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0), _TRIPLET] = 1,
    mlp: Annotated[bool, "add an MLP beside the linear map of regions"] = True,
) -> Setup:
    """VSE-infinity: generalised pooling of regions and words, and a triplet loss on the hardest negative.

    The first epoch sums over all negatives, as published: the hardest alone collapses an untrained model.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        ranking: What hits are ranked by.
        embed_dim: Dimension of the joint space and of the GRU.
        margin: Margin, in cosine.
        all_negatives_epochs: Number of first epochs with all negatives.
        mlp: Add an MLP beside the linear map of regions.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.heads.gpo import Gpo
    from subtext.models.similarity.cosine import Cosine
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import hardest_negative_triplet, setup_of, softmax

    image, text = image_side(context, inputs), text_side(context, inputs, embed_dim)
    heads = Gpo(image.encoder.parts_width, embed_dim, perceptron=mlp), Gpo(text.encoder.parts_width, embed_dim)
    terms, similarity = hardest_negative_triplet(margin, all_negatives_epochs), Cosine()
    if ranking.loss == "softmax":
        terms, similarity = softmax(ranking.temperature)
    options = ("loss", "temperature", "margin", "all_negatives_epochs")
    return setup_of((image, text), heads, similarity, terms, PLAN, loss_options=options)
