"""A pretrained dual encoder of the CLIP or SigLIP family, fine-tuned whole or by low-rank adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, PixelOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_SUBWORDS = Requires("text", ("backbone",), needs="a model of transformers, not of open_clip")
_ADAPTERS = Requires("lora_rank", ("0",), needs="lora_rank above 0", negated=True)
PLAN = Plan(
    epochs=5,
    batch_size=128,
    lr=1e-5,
    optimiser="adamw",
    weight_decay=0.05,
    max_grad_norm=1.0,
    schedule="cosine",
    warmup=0.1,
)


def clip(
    context: BuildContext,
    *,
    model: Annotated[
        str, "starter, hub name or folder of a dual encoder, or open_clip:ARCHITECTURE/WEIGHTS"
    ] = "openai/clip-vit-base-patch32",
    weights: Annotated[Literal["pretrained", "random"], "initial weights"] = "pretrained",
    pixels: PixelOptions = PixelOptions(),
    max_tokens: Annotated[
        int, "longest text in subwords; 0 for all that the model can read", Interval(0), _SUBWORDS
    ] = 0,
    token_mask: Annotated[float, "share of subwords masked while training", Interval(0, below=1), _SUBWORDS] = 0.0,
    text_prompt: Annotated[str, "words around every text, with {} in its place: a photo of {}"] = "",
    lora_rank: Annotated[int, "rank of low-rank adapters; 0 to fine-tune everything", Interval(0)] = 0,
    lora_alpha: Annotated[float, "scale of the update, divided by lora_rank", _ADAPTERS] = 16.0,
    lora_dropout: Annotated[float, "dropout before the adapters", Interval(0, below=1), _ADAPTERS] = 0.0,
    loss: Annotated[
        Literal["auto", "infonce", "sigmoid"], "auto: sigmoid for a model with a shift (SigLIP), else infonce"
    ] = "auto",
) -> Setup:
    """CLIP or SigLIP fine-tuned: a pretrained dual encoder with its own scale, shift and loss.

    Without training it is the pretrained model. Adapters learn at ten times the rate of the complete model, unless `lr`
    is given. Scale and shift stay learnable.

    Args:
        context: The data set, and what its texts and features are like.
        model: Starter, hub name or folder of a dual encoder, or open_clip:ARCHITECTURE/WEIGHTS.
        weights: Initial weights.
        pixels: How images become pixels.
        max_tokens: Longest text in subwords; 0 for all that the model can read.
        token_mask: Share of subwords masked while training.
        text_prompt: Words around every text, with {} in its place: a photo of {}.
        lora_rank: Rank of low-rank adapters; 0 to fine-tune everything.
        lora_alpha: Scale of the update, divided by lora_rank.
        lora_dropout: Dropout before the adapters.
        loss: Auto: sigmoid for a model with a shift (SigLIP), else infonce.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For what `dual_sides` refuses.
    """
    from dataclasses import replace

    from subtext.models.encoders.backbone import adapt
    from subtext.models.heads.mean import Passthrough
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.sigmoid import Sigmoid
    from subtext.recipes.encoders import dual_sides
    from subtext.recipes.parts import both_directions, setup_of

    image, text, scale, shift = dual_sides(
        context, model, weights, pixels, max_tokens=max_tokens, token_mask=token_mask, prompt=text_prompt
    )
    if lora_rank:
        for side in (image, text):
            adapt(side.encoder, rank=lora_rank, scale=lora_alpha, dropout=lora_dropout)
    # CLIP limits its scale to 100; models with a shift were trained without a limit that they would reach.
    largest = 100.0 if shift is None else 1000.0
    by_sigmoid = loss == "sigmoid" or (loss == "auto" and shift is not None)
    shift = 0.0 if shift is None and by_sigmoid else shift
    similarity = Cosine(scale=min(scale, largest), learnable=True, shift=shift, largest=largest)
    terms = both_directions(Sigmoid() if by_sigmoid else InfoNCE(), 0.5)
    plan = replace(PLAN, lr=PLAN.lr * 10) if lora_rank else PLAN
    return setup_of((image, text), (Passthrough(), Passthrough()), similarity, terms, plan, loss_options=("loss",))
