"""A frozen pretrained dual encoder with a small residual adapter on each side, which learns what an archive means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from subtext.recipes.options import BuildContext, PixelOptions, Setup
from subtext.training.plan import Plan, Range

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


def adapt(
    context: BuildContext,
    *,
    model: Annotated[
        str,
        "hub name or folder of a dual encoder, open_clip:ARCHITECTURE/WEIGHTS, or features: vectors of a dual encoder "
        "given as features and text_features",
    ] = "openai/clip-vit-base-patch32",
    text_prompt: Annotated[str, "words around every text, with {} in its place: a photo of {}"] = "",
    pixels: PixelOptions = PixelOptions(),
    adapter_dim: Annotated[int, "hidden units of each adapter; 0 for half of the joint space", Range(0)] = 0,
    adapter_dropout: Annotated[float, "dropout before each adapter", Range(0, 1)] = 0.1,
    loss: Annotated[Literal["infonce", "sigmoid"], "softmax over the batch, or a decision on every pair (SigLIP)"] = (
        "infonce"
    ),
) -> Setup:
    """Adapters on a frozen dual encoder: CLIP, SigLIP or another, whose towers run once over the data.

    Each side adds a two-layer perceptron to its vector (CLIP-Adapter, Gao et al. 2021). It starts at zero, so that
    epoch 0 is the pretrained model. Epoch 0 takes part in the selection: by the figure of `select` (the sum of recalls
    unless you choose another), the saved model is never worse on the validation split than the pretrained one. With
    `select=last` the last epoch is saved, whatever it is worth. The result states both, and their paired difference.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError, RequirementError
    from subtext.models.heads.mean import Adapter
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.sigmoid import Sigmoid
    from subtext.recipes.encoders import dual_sides, feature_side
    from subtext.recipes.parts import both_directions, setup_of

    scale, shift = 20.0, None
    if model == "features":
        if text_prompt or pixels != PixelOptions():
            raise RecipeError(
                "text_prompt and the options of images need a pretrained model that reads them; model is features; "
                "leave text_prompt and the options of images out"
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
    for side in (image, text):
        side.encoder.requires_grad_(False)
        # Nothing is left for a plan to freeze or to slow down.
        side.encoder.pretrained = False
    heads: list[Any] = [Adapter(width, adapter_dim or max(1, width // 2), dropout=adapter_dropout) for _ in range(2)]
    if loss == "sigmoid" and shift is None:
        shift = 0.0
    similarity = Cosine(scale=min(scale, 1000.0), learnable=True, shift=shift, largest=1000.0)
    terms = both_directions(Sigmoid() if loss == "sigmoid" else InfoNCE(), 0.5)
    # A twentieth of the pairs, so that few pairs still make many steps.
    plan = replace(PLAN, batch_size=max(64, min(PLAN.batch_size, len(context.texts) // 20))) if context.texts else PLAN
    return replace(setup_of((image, text), (heads[0], heads[1]), similarity, terms, plan), from_start=True)
