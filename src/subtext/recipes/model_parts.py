"""What several model recipes share: sides and heads that keep parts, and the terms of their objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.models.heads.parts import Parts
    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Penalty, Reduction, Term
    from subtext.objectives.regularisers.kl import KL
    from subtext.recipes.encoders import Side
    from subtext.recipes.options import ImageOptions, PixelOptions, RegionOptions, TextOptions
    from subtext.training.plan import Plan
    from subtext.training.setup import Setup


def pair_sides(
    context: BuildContext,
    images: ImageOptions,
    pixels: PixelOptions,
    regions: RegionOptions,
    texts: TextOptions,
    width: int,
) -> tuple[Side, Side]:
    """Images by region and texts by word, for models that score pairs.

    A GRU of both directions has `width` in each, as published: they are averaged, not concatenated.
    """
    from subtext.recipes.encoders import image_side, text_side

    image = image_side(context, images, pixels, regions)
    return image, text_side(context, texts, 2 * width if texts.bidirectional else width)


def parts_heads(
    sides: tuple[Side, Side], width: int, *, unit: bool = True, pooled: bool = False
) -> tuple[Parts, Parts]:
    """Heads that keep the parts in the joint space: regions are mapped to it; the words of a GRU are in it already.

    unit    parts of unit length
    pooled  the image's vector is a map of its pooled feature, not the mean of its regions
    """
    from subtext.models.encoders.recurrent import Recurrent
    from subtext.models.heads.parts import Parts

    image, text = (side.encoder for side in sides)
    gru = isinstance(text, Recurrent)
    return (
        Parts(
            image.parts_width,
            width,
            normalise=unit,
            vector="pooled" if pooled else "mean",
            pooled_width=image.pooled_width,
        ),
        Parts(text.parts_width, width, project=not gru, halves=gru and bool(text.rnn.bidirectional), normalise=unit),
    )


def hinges(
    margin: float, all_negatives_epochs: int, *, reduction: Literal["mean", "sum"] = "sum", weight: float = 1.0
) -> dict[str, Term]:
    """A triplet loss on the hardest negative of the batch in each direction, summed as most publish it.

    all_negatives_epochs  epochs over all negatives before that
    """
    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Term

    terms: dict[str, Term] = {}
    for side in DIRECTIONS:
        if all_negatives_epochs:
            easy = Triplet(margin=margin, negatives="all")
            terms[f"{side}, all negatives"] = Term(
                easy, on=side, weight=weight, reduction=reduction, until_epoch=all_negatives_epochs
            )
        hard = Triplet(margin=margin, negatives="hardest")
        terms[side] = Term(hard, on=side, weight=weight, reduction=reduction, from_epoch=all_negatives_epochs)
    return terms


def triplet_setup(model: Model, *, margin: float, plan: Plan, all_negatives_epochs: int) -> Setup:
    """A model that learns by `hinges`."""
    from subtext.objectives.objective import Objective
    from subtext.training.setup import Setup

    return Setup(model=model, objective=Objective({**hinges(margin, all_negatives_epochs)}), plan=plan)


def softmax(
    temperature: float, *, learnable: bool = False, label_smoothing: float = 0.0
) -> tuple[dict[str, Term], Cosine]:
    """InfoNCE in both directions, half of the objective each, and a cosine over `temperature`."""
    from subtext.core import DIRECTIONS
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.objective import Term

    loss = InfoNCE(label_smoothing=label_smoothing)
    terms: dict[str, Term] = {direction: Term(loss, on=direction, weight=0.5) for direction in DIRECTIONS}
    return terms, Cosine(temperature=temperature, learnable=learnable)


def gaussian_terms(loss: Any, divergence: KL, *, reduction: Reduction, weight: float) -> dict[str, Term | Penalty]:
    """The objective of models whose items are distributions.

    loss        in both directions        reduction  of its values
    divergence  of the distributions of either modality, times `weight`; 0 leaves it out
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.objective import Penalty, Term

    terms: dict[str, Term | Penalty] = {side: Term(loss, on=side, reduction=reduction) for side in DIRECTIONS}
    if weight:
        terms["image divergence"] = Penalty(replace(divergence, of="image"), weight, share_of="image_to_text")
        terms["text divergence"] = Penalty(replace(divergence, of="text"), weight, share_of="text_to_image")
    return terms
