"""What the hosts that score pairs share: sides that give regions and words, heads that keep them, and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from subtext.data.supply import Supply
    from subtext.recipes.options import Pictures, Pixels, Regions, Words
    from subtext.recipes.parts import Side
    from subtext.training.plan import Plan
    from subtext.training.setup import Setup


class Sides(NamedTuple):
    """Pictures by region and texts by word."""

    image: Side
    text: Side


def pair_sides(supply: Supply, seen: tuple[Pictures, Pixels, Regions], words: Words, width: int) -> Sides:
    """Both sides. A GRU of both directions has `width` in each, as published: they are averaged, not set side by side.

    seen  what the picture side is told
    """
    from subtext.encoders.recurrent import GruShape
    from subtext.recipes.parts import image_side, text_side

    pictures, pixels, regions = seen
    states = 2 * width if words.both_directions else width
    shape = GruShape(states, words.word_width, words.gru_layers, words.both_directions)
    return Sides(image_side(supply, pictures, pixels, regions), text_side(supply, words, shape))


def averaged(encoder: Any) -> bool:
    """Whether a text encoder gives two directions side by side."""
    from subtext.encoders.recurrent import Recurrent

    return isinstance(encoder, Recurrent) and bool(encoder.rnn.bidirectional)


def parts_heads(sides: Sides, width: int) -> tuple[nn.Module, nn.Module]:
    """Parts in the joint space: regions are mapped there; a GRU's words are there already."""
    from subtext.encoders.recurrent import Recurrent
    from subtext.heads.parts import Parts

    text = sides.text.encoder
    return (
        Parts(sides.image.encoder.parts_width, width),
        Parts(text.parts_width, width, project=not isinstance(text, Recurrent), halves=averaged(text)),
    )


def ranked(
    sides: Sides, heads: tuple[nn.Module, nn.Module], similarity: nn.Module, *, margin: float, plan: Plan
) -> Setup:
    """A model of both sides, ranked by the hardest negative of the batch in each direction, summed as published."""
    from subtext.core import DIRECTIONS
    from subtext.losses.triplet import Triplet
    from subtext.model import Branch, Model
    from subtext.objective import Objective, Term
    from subtext.training.setup import Setup

    loss = Triplet(margin=margin, negatives="hardest")
    image, text = (Branch(side.reads, side.encoder, head) for side, head in zip(sides, heads, strict=True))
    return Setup(
        model=Model(image, text, similarity),
        objective=Objective({side: Term(loss, on=side, reduction="sum") for side in DIRECTIONS}),
        plan=plan,
    )
