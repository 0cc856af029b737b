"""VSE0 and VSE++ (Faghri et al. 2018): one linear map, one GRU, a triplet loss."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, InputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan

PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, lr_factor=0.1, positives="pair")


def vse(
    context: BuildContext,
    *,
    inputs: InputOptions = InputOptions(flip=0.5, bidirectional=False),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    margin: Annotated[float, "margin of the triplet loss, in cosine", Interval(0)] = 0.2,
    negatives: Annotated[
        Literal["all", "hardest", "semi-hard"], "hardest for VSE++, all for VSE0, semi-hard as in FaceNet"
    ] = "hardest",
    normalise: Annotated[bool, "scale vectors to unit length; the published VSE0 does not"] = True,
) -> Setup:
    """VSE++: a linear map of images, a GRU over words, and a triplet loss on the hardest negative.

    VSE0 is `negatives=all normalise=False`. The loss is a sum over the batch, as published, so its gradient grows
    with the batch.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space and of the GRU.
        margin: Margin of the triplet loss, in cosine.
        negatives: Hardest for VSE++, all for VSE0, semi-hard as in FaceNet.
        normalise: Scale vectors to unit length; the published VSE0 does not.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.heads.mean import Mean
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.triplet import Triplet
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import both_directions, setup_of

    image, text = image_side(context, inputs), text_side(context, inputs, embed_dim)
    width = text.encoder.pooled_width
    heads = (
        Mean(image.encoder.pooled_width, embed_dim, normalise=normalise),
        Mean(width, embed_dim, project=width != embed_dim, normalise=normalise),
    )
    loss = Triplet(margin=margin, negatives=negatives)
    return setup_of(
        (image, text),
        heads,
        Cosine(),
        both_directions(loss, reduction="sum"),
        PLAN,
        loss_options=("margin", "negatives"),
    )
