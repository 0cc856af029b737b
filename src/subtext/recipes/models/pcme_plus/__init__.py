"""PCME++ (Chun 2024): items are normal distributions, compared in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from subtext.recipes.models.vse_infinity import PLAN as VSE_INFINITY
from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Requires

_PIXELS = Requires("image", ("pixels",), needs="image=tiny or a backbone")
_MIXED = Requires("mix_prob", ("0", "0.0"), needs="mix_prob above 0", negated=True)
# One backbone_lr_scale and one freeze_epochs serve both encoders. The paper has a scale for each, and freezes the image
# encoder alone for two epochs: here both have the text's.
PLAN = replace(
    VSE_INFINITY, optimiser="adamp", layer_decay=0.7, weight_average="swa", swa_start=0.64, positives="group"
)


def pcme_plus(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(
        region_dropout=0.2, append_pooled=True, flip=0.5, token_mask=0.1, token_dropout=0.1
    ),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    distance: Annotated[
        Literal["sampled", "wasserstein"], "distance of distributions: expected between samples, or Wasserstein's"
    ] = "sampled",
    mlp: Annotated[bool, "add an MLP beside the linear map of regions"] = True,
    uncertainty_layers: Annotated[int, "attention layers of the variance head; paper: 1 with CLIP", Interval(0)] = 0,
    init_log_variance: Annotated[float, "initial log variance of each dimension"] = -9.0,
    init_scale: Annotated[float, "initial scale of distances, learnt"] = 5.0,
    init_shift: Annotated[float, "initial shift of distances, learnt"] = 5.0,
    pseudo_positive_weight: Annotated[
        float, "weight of a loss in which candidates above the positive count as positives", Interval(0)
    ] = 0.1,
    label_smoothing: Annotated[float, "label smoothing", Interval(0, below=0.5)] = 1e-4,
    vib_weight: Annotated[
        float, "weight of the KL divergence from a standard normal, a mean over dimensions", Interval(0)
    ] = 1e-4,
    mix_prob: Annotated[
        float, "pixels: share of images mixed with another while training", Interval(0, below=1), _PIXELS
    ] = 0.25,
    mix_type: Annotated[
        Literal["both", "mixup", "cutmix"], "blend images, paste rectangles, or either at random", _PIXELS, _MIXED
    ] = "both",
) -> Setup:
    """PCME++: a mean and a variance per item by generalised pooling, and a closed-form distance.

    All texts of an image in a batch count as right; uncertain candidates rank lower. An index stores variances, too.
    Pretrained encoders learn at a tenth of the rate from the start, as the paper's text encoder does. Its image encoder
    learns at a hundredth, from the third epoch on: where that alone is pretrained, give
    `backbone_lr_scale=0.01 freeze_epochs=2`.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space and of the GRU.
        distance: Distance of distributions: expected between samples, or Wasserstein's.
        mlp: Add an MLP beside the linear map of regions.
        uncertainty_layers: Attention layers of the variance head; paper: 1 with CLIP.
        init_log_variance: Initial log variance of each dimension.
        init_scale: Initial scale of distances, learnt.
        init_shift: Initial shift of distances, learnt.
        pseudo_positive_weight: Weight of a loss in which candidates above the positive count as positives.
        label_smoothing: Label smoothing.
        vib_weight: Weight of the KL divergence from a standard normal, a mean over dimensions.
        mix_prob: Pixels: share of images mixed with another while training.
        mix_type: Blend images, paste rectangles, or either at random.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.data.pixels import PixelInput
    from subtext.models.heads.gaussian import Gaussian, PooledSpread
    from subtext.models.heads.gpo import Gpo
    from subtext.models.similarity.probabilistic import ClosedFormDistance
    from subtext.objectives.losses.soft_contrastive import SoftContrastive
    from subtext.objectives.regularisers import KL
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.models.pcme_plus.mixing import Mixing
    from subtext.recipes.parts import gaussian_terms, setup_of

    image, text = image_side(context, inputs), text_side(context, inputs, embed_dim)
    heads = []
    for name, side in (("image", image), ("text", text)):
        width, with_mlp = side.encoder.parts_width, mlp and name == "image"
        spread = PooledSpread(width, embed_dim, layers=uncertainty_layers, perceptron=with_mlp, start=init_log_variance)
        heads.append(Gaussian(Gpo(width, embed_dim, perceptron=with_mlp), spread, embed_dim, side=name))
    loss = SoftContrastive(pseudo=pseudo_positive_weight, smoothing=label_smoothing)
    similarity = ClosedFormDistance(kind=distance, scale=init_scale, shift=init_shift)
    terms = gaussian_terms(loss, KL(over="mean"), reduction="mean over cells", weight=vib_weight)
    setup = setup_of((image, text), (heads[0], heads[1]), similarity, terms, PLAN)
    mixes = mix_prob and isinstance(image.input_spec, PixelInput)
    return replace(setup, mixing=Mixing(mix_prob, mix_type)) if mixes else setup
