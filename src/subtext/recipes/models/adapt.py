"""A pretrained dual encoder with small adapters after its towers, or inside them: they learn what an archive means."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from subtext.recipes.options import BuildContext, PixelOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

PLAN = Plan(
    epochs=16,
    batch_size=512,
    caption_sampling="together",
    lr=1e-3,
    optimiser="adamw",
    weight_decay=0.05,
    schedule="cosine",
    warmup=0.1,
)
INSIDE = replace(PLAN, epochs=5, batch_size=128, lr=1e-4, max_grad_norm=1.0)
"""The plan for adapters inside the towers, as `clip` has it for them."""
_AFTER = Requires("lora_rank", ("0",), needs="adapters after the towers")


def adapt(
    context: BuildContext,
    *,
    model: Annotated[
        str,
        "starter, hub name or folder of a dual encoder, open_clip:ARCHITECTURE/WEIGHTS, or features: vectors of a dual "
        "encoder given as features and text_features",
    ] = "openai/clip-vit-base-patch32",
    text_prompt: Annotated[str, "words around every text, with {} in its place: a photo of {}"] = "",
    pixels: PixelOptions = PixelOptions(),
    adapter_dim: Annotated[int, "hidden units of each adapter; 0 for half of the joint space", Interval(0), _AFTER] = 0,
    adapter_dropout: Annotated[float, "dropout before each adapter", Interval(0, below=1)] = 0.1,
    lora_rank: Annotated[
        int,
        "rank of low-rank adapters inside the towers, which a GPU should train; 0 for adapters after them",
        Interval(0),
    ] = 0,
    loss: Annotated[Literal["infonce", "sigmoid"], "softmax over the batch, or a decision on every pair (SigLIP)"] = (
        "infonce"
    ),
) -> Setup:
    """Small adapters on a frozen dual encoder (CLIP, SigLIP or another), which runs only once over the data.

    Each side adds a two-layer perceptron to its vector (CLIP-Adapter, Gao et al. 2021). It starts at zero, so that
    epoch 0 is the pretrained model. With `lora_rank` the adapters are low-rank updates of the attention inside the
    towers (LoRA, Hu et al. 2021), which then run in every epoch; they start at zero, too. Epoch 0 takes part in the
    selection: by the figure of `select` (the sum of recalls unless you choose another), the saved model is never worse
    on the validation split than the pretrained one. With `select=last` the last epoch is saved, whatever it is worth.
    The result states both, and their paired difference.

    Args:
        context: The data set, and what its texts and features are like.
        model: Starter, hub name or folder of a dual encoder, open_clip:ARCHITECTURE/WEIGHTS, or features: vectors of a
            dual encoder given as features and text_features.
        text_prompt: Words around every text, with {} in its place: a photo of {}.
        pixels: How images become pixels.
        adapter_dim: Hidden units of each adapter; 0 for half of the joint space.
        adapter_dropout: Dropout before each adapter.
        lora_rank: Rank of low-rank adapters inside the towers, which a GPU should train; 0 for adapters after them.
        loss: Softmax over the batch, or a decision on every pair (SigLIP).

    Returns:
        The model, its objective and its plan.

    Raises:
        RecipeError: For options of images or texts with precomputed features.
        RequirementError: If the vectors of images and texts differ in width, and for what `dual_sides` refuses.
    """
    from subtext.errors import RecipeError, RequirementError, Setting
    from subtext.models.encoders.backbone import adapt as low_rank
    from subtext.models.heads.mean import Adapter, Passthrough
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.sigmoid import Sigmoid
    from subtext.recipes.encoders import dual_sides, feature_side
    from subtext.recipes.parts import both_directions, setup_of

    scale, shift = 20.0, None
    if model == "features":
        if text_prompt or lora_rank or pixels != PixelOptions():
            raise RecipeError(
                Setting("text_prompt"),
                ", ",
                Setting("lora_rank"),
                " and the options of images need a pretrained model that has them; ",
                Setting("model"),
                " is features; leave them out",
            )
        image, text = feature_side(context, "image"), feature_side(context, "text")
    else:
        image, text, scale, shift = dual_sides(context, model, "pretrained", pixels, prompt=text_prompt)
    width, other = image.encoder.pooled_width, text.encoder.pooled_width
    if width is None or width != other:
        raise RequirementError(
            f"adapt needs images and texts in one space; their vectors have {width} and {other} numbers; give the "
            "features of both sides of one dual encoder"
        )
    heads: list[Any] = [Passthrough(), Passthrough()]
    for number, side in enumerate((image, text)):
        if lora_rank:
            low_rank(side.encoder, rank=lora_rank, scale=2.0 * lora_rank, dropout=adapter_dropout)
            continue
        side.encoder.requires_grad_(False)
        # Nothing is left for a plan to freeze or to slow down.
        side.encoder.pretrained = False
        heads[number] = Adapter(width, adapter_dim or max(1, width // 2), dropout=adapter_dropout)
    if loss == "sigmoid" and shift is None:
        shift = 0.0
    similarity = Cosine(scale=min(scale, 1000.0), learnable=True, shift=shift, largest=1000.0)
    terms = both_directions(Sigmoid() if loss == "sigmoid" else InfoNCE(), 0.5)
    plan = INSIDE if lora_rank else PLAN
    if context.texts:
        # A twentieth of the pairs, so that few pairs still make many steps.
        plan = replace(plan, batch_size=max(64, min(plan.batch_size, len(context.texts) // 20)))
    setup = setup_of((image, text), (heads[0], heads[1]), similarity, terms, plan, loss_options=("loss",))
    return replace(setup, from_start=True)
