"""VSE-infinity (Chen et al. 2021): a strong plain model whose pooling is learnt on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.recipes.options import ImageOptions, PixelOptions, RankingOptions, RegionOptions, TextOptions
from subtext.training.option_marks import Range, Requires
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

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
    images: ImageOptions = ImageOptions(),
    regions: RegionOptions = RegionOptions(region_dropout=0.2, append_pooled=True),
    pixels: PixelOptions = PixelOptions(flip=0.5),
    texts: TextOptions = TextOptions(token_mask=0.1, token_dropout=0.1),
    ranking: RankingOptions = RankingOptions(),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Range(1)] = 1024,
    margin: Annotated[float, "margin, in cosine", Range(0), _TRIPLET] = 0.2,
    all_negatives_epochs: Annotated[int, "epochs over all negatives before the hardest alone", Range(0), _TRIPLET] = 1,
    mlp: Annotated[bool, "add an MLP beside the linear map of regions"] = True,
) -> Setup:
    """VSE-infinity: regions and words pooled by learnt weights of ranks, and a triplet loss on the hardest negative.

    The first epoch sums over all negatives, as published: the hardest alone collapses an untrained model.
    """
    from subtext.models.heads.gpo import Gpo
    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Objective
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.model_parts import hinges, softmax
    from subtext.training.setup import Setup

    image = image_side(context, images, pixels, regions)
    text = text_side(context, texts, embed_dim)
    image_head = Gpo(image.encoder.parts_width, embed_dim, perceptron=mlp)
    text_head = Gpo(text.encoder.parts_width, embed_dim)
    if ranking.loss == "softmax":
        parts, similarity = softmax(ranking.temperature)
    else:
        parts, similarity = hinges(margin, all_negatives_epochs), Cosine()
    return Setup(
        model=Model(
            image.branch(image_head),
            text.branch(text_head),
            similarity,
        ),
        objective=Objective({**parts}),
        plan=PLAN,
    )
