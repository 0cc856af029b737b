"""AsCL's model (Gong et al. 2024): cross attention both ways, local and global. `asymmetry` edits its texts."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

FusionOption = Literal["gated", "mean", "sum", "concat", "none"]
LossOption = Literal["softmax", "ratio", "triplet"]
_TRIPLET = Requires("loss", ("triplet",))
_ATTENTION = Requires("attention", ("True",), needs="attention=True")
_GLOBAL = Requires("local_weight", ("1.0",), needs="local_weight below 1", negated=True)
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
    inputs: RegionInputOptions = RegionInputOptions(flip=0.5),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of a GRU", Interval(1)] = 1024,
    attention: Annotated[bool, "cross attention; without it (w/o MF), an index can be built"] = True,
    heads: Annotated[int, "attention heads, a divisor of embed_dim; 0 for 8 if possible", Interval(0), _ATTENTION] = 0,
    local_weight: Annotated[float, "weight of the local score; Flickr30K: 0.6", Interval(0, 1), _ATTENTION] = 0.8,
    direction_weights: Annotated[
        Literal["separate", "shared"], "attention weights of the two directions", _ATTENTION
    ] = "separate",
    fusion: Annotated[
        FusionOption, "how to combine the feature of the whole image with its regions; none: not used", _GLOBAL
    ] = "gated",
    temperature: Annotated[float, "temperature of the scores; paper: 0.01 on Flickr30K"] = 0.05,
    bf16: Annotated[
        bool, "score pairs in bfloat16 if the machine supports it; training uses float32", _ATTENTION
    ] = False,
    loss: Annotated[LossOption, "softmax (InfoNCE), ratio (of the paper) or triplet (hardest negative)"] = "softmax",
    margin: Annotated[float, "margin, before the division by the temperature", Interval(0), _TRIPLET] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0), _TRIPLET] = 0,
) -> Setup:
    """AsCL without generated texts (the paper's ablation); add `--with asymmetry` for the complete AsCL.

    A pretrained text backbone stays frozen by default (`freeze_epochs`): the published rate would destroy it.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space, and of each direction of a GRU.
        attention: Cross attention; without it (w/o MF), an index can be built.
        heads: Attention heads, a divisor of embed_dim; 0 for 8 if possible.
        local_weight: Weight of the local score; Flickr30K: 0.6.
        direction_weights: Attention weights of the two directions.
        fusion: How to combine the feature of the whole image with its regions; none: not used.
        temperature: Temperature of the scores; paper: 0.01 on Flickr30K.
        bf16: Score pairs in bfloat16 if the machine supports it; training uses float32.
        loss: Softmax (InfoNCE), ratio (of the paper) or triplet (hardest negative).
        margin: Margin, before the division by the temperature.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.heads.parts import FusedMean
    from subtext.models.similarity.ascl import Ascl
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.ratio import Ratio
    from subtext.recipes.parts import both_directions, hardest_negative_triplet, pair_sides, parts_heads, setup_of

    options = ("temperature", "loss", "margin", "all_negatives_epochs")
    # Both directions are summed as printed. A triplet's margin and value are of scores that are not divided.
    terms = both_directions(Ratio() if loss == "ratio" else InfoNCE())
    if loss == "triplet":
        terms = hardest_negative_triplet(
            margin / temperature, all_negatives_epochs, reduction="mean", weight=temperature
        )
    sides = pair_sides(context, inputs, embed_dim)
    if not attention:
        # A dual encoder: means of regions, fused with the feature of the whole image, and of words.
        image, text = parts_heads(sides, embed_dim, unit=False, pooled=fusion != "none")
        fused = FusedMean(image, embed_dim, fusion), FusedMean(text, embed_dim, "none", keep=True)
        return setup_of(sides, fused, Cosine(temperature=temperature), terms, PLAN, loss_options=options)
    similarity = Ascl(
        width=embed_dim,
        heads=heads,
        local_share=local_weight,
        fusion=fusion,
        directions=direction_weights,
        temperature=temperature,
        bf16=bf16,
    )
    pooled = fusion != "none" and local_weight < 1
    made = parts_heads(sides, embed_dim, unit=False, pooled=pooled)
    return setup_of(sides, made, similarity, terms, PLAN, loss_options=options)
