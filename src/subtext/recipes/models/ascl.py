"""AsCL's model (Gong et al. 2024): cross attention both ways, local and global. `asymmetry` edits its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import ImageOptions, PixelOptions, RegionOptions, TextOptions
from subtext.training.option_marks import Range, Requires
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.models.model import Model
    from subtext.objectives.objective import Objective
    from subtext.recipes.encoders import Side
    from subtext.training.setup import Setup

FusionOption = Literal["gated", "mean", "sum", "concat", "none"]
LossOption = Literal["softmax", "ratio", "triplet"]
_TRIPLET = Requires("loss", ("triplet",))
_ATTENTION = Requires("attention", ("True",), needs="attention=True")
PLAN = Plan(
    epochs=20,
    batch_size=64,
    lr=5e-4,
    schedule="step",
    step_epochs=10,
    lr_factor=0.1,
    freeze_epochs=-1,
    positives="pair",
)


def ascl(
    context: BuildContext,
    *,
    images: ImageOptions = ImageOptions(),
    regions: RegionOptions = RegionOptions(),
    pixels: PixelOptions = PixelOptions(flip=0.5),
    texts: TextOptions = TextOptions(),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of a GRU", Range(1)] = 1024,
    attention: Annotated[bool, "cross attention; without it (w/o MF) a cosine, which an index can hold"] = True,
    heads: Annotated[
        int, "attention heads, a divisor of embed_dim; 0 for 8 where that is one", Range(0), _ATTENTION
    ] = 0,
    local_weight: Annotated[float, "weight of the local score; 0.6 on Flickr30K", Range(0, 1.0001), _ATTENTION] = 0.8,
    direction_weights: Annotated[
        Literal["separate", "shared"], "attention weights of the two directions", _ATTENTION
    ] = "separate",
    fusion: Annotated[
        FusionOption, "how the feature of the whole image joins its regions; none leaves it out"
    ] = "gated",
    temperature: Annotated[float, "temperature of the scores; 0.01 on Flickr30K"] = 0.05,
    bf16: Annotated[
        bool, "score in bfloat16 where the machine supports it; training stays in float32", _ATTENTION
    ] = False,
    loss: Annotated[LossOption, "softmax (InfoNCE), its ratios as printed, or the hardest negative"] = "softmax",
    margin: Annotated[float, "margin, in scores before division by the temperature", Range(0), _TRIPLET] = 0.2,
    all_negatives_epochs: Annotated[int, "epochs over all negatives before the hardest alone", Range(0), _TRIPLET] = 0,
) -> Setup:
    """AsCL's similarity and a softmax over the batch (its ablation w/o P&N); `--with asymmetry` makes it AsCL.

    A pretrained text backbone stays frozen by default (`freeze_epochs`): the published rate would destroy it.
    """
    from subtext.models.model import Model
    from subtext.models.similarity.ascl import Ascl
    from subtext.recipes.model_parts import pair_sides, parts_heads
    from subtext.training.setup import Setup

    sides = pair_sides(context, images, pixels, regions, texts, embed_dim)
    if attention:
        similarity = Ascl(
            width=embed_dim,
            heads=heads,
            local_share=local_weight,
            fusion=fusion,
            directions=direction_weights,
            temperature=temperature,
            bf16=bf16,
        )
        reads_whole = fusion != "none" and local_weight < 1
        heads_of_parts = parts_heads(sides, embed_dim, unit=False, pooled=reads_whole)
        image, text = (side.branch(head) for side, head in zip(sides, heads_of_parts, strict=True))
        model = Model(image, text, similarity)
    else:
        model = _without_attention(sides, embed_dim, fusion=fusion, temperature=temperature)
    return Setup(model=model, objective=_objective(loss, temperature, margin, all_negatives_epochs), plan=PLAN)


def _objective(loss: LossOption, temperature: float, margin: float, all_negatives_epochs: int) -> Objective:
    """Both directions, summed as printed. A triplet's margin and value are of scores that are not divided."""
    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.ratio import Ratio
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.model_parts import hinges

    if loss == "triplet":
        return Objective({**hinges(margin / temperature, all_negatives_epochs, reduction="mean", weight=temperature)})
    value = Ratio() if loss == "ratio" else InfoNCE()
    return Objective({side: Term(value, on=side) for side in DIRECTIONS})


def _without_attention(sides: tuple[Side, Side], embed_dim: int, *, fusion: FusionOption, temperature: float) -> Model:
    """A dual encoder: means of regions, fused with the feature of the whole image, and of words."""
    from subtext.models.heads.parts import Fused
    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.recipes.model_parts import parts_heads

    image, text = parts_heads(sides, embed_dim, unit=False, pooled=fusion != "none")
    image_head, text_head = Fused(image, embed_dim, fusion), Fused(text, embed_dim, "none", keep=True)
    return Model(sides[0].branch(image_head), sides[1].branch(text_head), Cosine(temperature=temperature))
