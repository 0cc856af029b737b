"""PCME++ (Chun 2024): items are normal distributions, compared in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.recipes.encoders import Side
    from subtext.recipes.probabilistic import Name
    from subtext.training.setup import Setup

_PIXELS = When("image", ("pixels",), needs="image=tiny or a backbone")
_MIXED = When("mixing", ("0", "0.0"), needs="mixing above 0", but=True)
# One factor and one `freeze_epochs` serve both encoders. The paper has a factor of its own for each, and freezes the
# picture's alone for two epochs: here both have the text's.
PLAN = Plan(
    epochs=25,
    batch_size=128,
    lr=5e-4,
    optimiser="adamp",
    weight_decay=1e-4,
    schedule="step",
    step_epochs=15,
    factor=0.1,
    encoder_factor=0.1,
    layer_decay=0.7,
    average="swa",
    average_from=0.64,
)


def pcme_plus(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(region_drop=0.2, append_pooled=True),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(token_mask=0.1, word_drop=0.1),
    width: Annotated[int, "width of the joint space, and of the GRU", Span(1)] = 1024,
    distance: Annotated[
        Literal["sampled", "wasserstein"], "of distributions: what draws have on average, or Wasserstein's"
    ] = "sampled",
    perceptron: Annotated[bool, "a perceptron beside the linear map of regions"] = True,
    spread_layers: Annotated[int, "layers of attention that the deviations have of their own; 1 for CLIP", Span(0)] = 0,
    log_variance: Annotated[float, "what the log variances start near; with -9 a thousand of them add 0.1"] = -9.0,
    scale: Annotated[float, "of distances, learnt from there"] = 5.0,
    shift: Annotated[float, "beside them, learnt from there"] = 5.0,
    pseudo: Annotated[float, "weight of the loss in which candidates that beat the right one are right", Span(0)] = 0.1,
    smoothing: Annotated[float, "of right and wrong", Span(0, 0.5)] = 1e-4,
    vib: Annotated[float, "weight of the divergence from a standard normal, a mean over dimensions", Span(0)] = 1e-4,
    mixing: Annotated[float, "pixels: share of pictures mixed with another while training", Span(0, 1), _PIXELS] = 0.25,
    mixing_kind: Annotated[
        Literal["both", "mixup", "cutmix"], "mixing: blended, in rectangles, or either", _PIXELS, _MIXED
    ] = "both",
) -> Setup:
    """PCME++: a mean and a deviation an item by generalised pooling, and a closed-form distance for both.

    All texts of a picture in a batch count as right; uncertain candidates rank lower. An index keeps variances, too.
    Pretrained encoders learn at a tenth of the rate at once, as the paper's text does; its picture encoder does at a
    hundredth, from the third epoch on: where that alone is pretrained, give `encoder_factor=0.01 freeze_epochs=2`.
    """
    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.heads.gaussian import Gaussian, PooledSpread
    from subtext.models.heads.gpo import Gpo
    from subtext.models.similarity.closed_form_distance import ClosedFormDistance
    from subtext.objectives.losses.soft_contrastive import SoftContrastive
    from subtext.objectives.objective import Objective
    from subtext.objectives.regularisers.kl import KL
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.probabilistic import model_of, parts_of
    from subtext.training.mixing import Mixing
    from subtext.training.setup import Setup

    sides: dict[Name, Side] = {
        "image": image_side(context, pictures, pixels, regions),
        "text": text_side(context, words, GruShape(width, words.word_width, words.gru_layers, words.both_directions)),
    }
    heads = {}
    for name, side in sides.items():
        inside, both = side.encoder.parts_width, perceptron and name == "image"
        spread = PooledSpread(inside, width, layers=spread_layers, perceptron=both, start=log_variance)
        heads[name] = Gaussian(Gpo(inside, width, perceptron=both), spread, width, side=name)
    loss = SoftContrastive(pseudo=pseudo, smoothing=smoothing)
    parts = parts_of(loss, KL(over="mean"), reduction="mean over cells", weight=vib)
    return Setup(
        model=model_of(sides, heads, ClosedFormDistance(kind=distance, scale=scale, shift=shift)),
        objective=Objective(parts),
        plan=PLAN,
        mixing=Mixing(mixing, mixing_kind) if mixing and _seen(sides["image"].input_spec) else None,
    )


def _seen(reads: object) -> bool:
    """Whether pictures come as pixels."""
    from subtext.data.pixels import PixelInput

    return isinstance(reads, PixelInput)
