"""What the hosts that score pairs share: sides that give regions and words, heads that keep them, and the loss.

The softmax over the batch as the ranking terms of any host, and the similarity that goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from subtext.data.build_context import BuildContext
    from subtext.models.heads.parts import Parts
    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Term
    from subtext.recipes.encoders import Side
    from subtext.recipes.options import Pictures, Pixels, Regions, Words
    from subtext.training.plan import Plan
    from subtext.training.setup import Setup


class Sides(NamedTuple):
    """Pictures by region and texts by word."""

    image: Side
    text: Side


def pair_sides(context: BuildContext, seen: tuple[Pictures, Pixels, Regions], words: Words, width: int) -> Sides:
    """Both sides. A GRU of both directions has `width` in each, as published: they are averaged, not set side by side.

    seen  what the picture side is told
    """
    from subtext.models.encoders.recurrent import GruShape
    from subtext.recipes.encoders import image_side, text_side

    pictures, pixels, regions = seen
    states = 2 * width if words.both_directions else width
    shape = GruShape(states, words.word_width, words.gru_layers, words.both_directions)
    return Sides(image_side(context, pictures, pixels, regions), text_side(context, words, shape))


def averaged(encoder: Any) -> bool:
    """Whether a text encoder gives two directions side by side."""
    from subtext.models.encoders.recurrent import Recurrent

    return isinstance(encoder, Recurrent) and bool(encoder.rnn.bidirectional)


def parts_heads(sides: Sides, width: int, *, unit: bool = True, pooled: bool = False) -> tuple[Parts, Parts]:
    """Parts in the joint space: regions are mapped there; a GRU's words are there already.

    unit    parts of unit length
    pooled  the picture's vector is a map of its pooled feature, not the mean of its regions
    """
    from subtext.models.encoders.recurrent import Recurrent
    from subtext.models.heads.parts import Parts

    image, text = sides.image.encoder, sides.text.encoder
    own = isinstance(text, Recurrent)
    whole: Literal["mean", "pooled"] = "pooled" if pooled else "mean"
    return (
        Parts(image.parts_width, width, normalise=unit, whole=whole, pooled_width=image.pooled_width),
        Parts(text.parts_width, width, project=not own, halves=averaged(text), normalise=unit),
    )


def model_of(sides: Sides, heads: tuple[nn.Module, nn.Module], similarity: nn.Module) -> Model:
    """A model of both sides."""
    from subtext.models.model import Branch, Model

    image, text = (Branch(side.input_spec, side.encoder, head) for side, head in zip(sides, heads, strict=True))
    return Model(image, text, similarity)


def hinges(
    margin: float, easy_epochs: int, *, reduction: Literal["mean", "sum"] = "sum", weight: float = 1.0
) -> dict[str, Term]:
    """A triplet loss on the hardest negative of the batch in each direction, summed as most publish it.

    easy_epochs  epochs over all negatives before that
    """
    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Term

    parts: dict[str, Term] = {}
    for side in DIRECTIONS:
        if easy_epochs:
            easy = Triplet(margin=margin, negatives="all")
            parts[f"{side}, all negatives"] = Term(
                easy, on=side, weight=weight, reduction=reduction, until_epoch=easy_epochs
            )
        hard = Triplet(margin=margin, negatives="hardest")
        parts[side] = Term(hard, on=side, weight=weight, reduction=reduction, from_epoch=easy_epochs)
    return parts


def ranked(model: Model, *, margin: float, plan: Plan, easy_epochs: int) -> Setup:
    """A model that learns by `hinges`."""
    from subtext.objectives.objective import Objective
    from subtext.training.setup import Setup

    return Setup(model=model, objective=Objective({**hinges(margin, easy_epochs)}), plan=plan)


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
