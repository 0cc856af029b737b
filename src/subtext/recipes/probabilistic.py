"""What the hosts whose items are distributions share: one loss in both directions, and a divergence a modality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

    from subtext.models.model import Model
    from subtext.objectives.objective import Reduction, Term
    from subtext.objectives.regularisers.kl import KL
    from subtext.recipes.encoders import Side

Name = Literal["image", "text"]
_SIDES: tuple[tuple[Name, str], ...] = (("image", "image_to_text"), ("text", "text_to_image"))


def model_of(sides: Mapping[Name, Side], heads: Mapping[Name, nn.Module], similarity: nn.Module) -> Model:
    """A model of both sides."""
    from subtext.models.model import Branch, Model

    image, text = (Branch(sides[name].input_spec, sides[name].encoder, heads[name]) for name, _ in _SIDES)
    return Model(image, text, similarity)


def parts_of(loss: Any, divergence: KL, *, reduction: Reduction, weight: float) -> dict[str, Any]:
    """The parts of an objective.

    loss        in both directions        reduction  of its values
    divergence  of each modality's distributions, by `weight`; 0 leaves it out
    """
    from dataclasses import replace

    from subtext.objectives.objective import Penalty, Term

    terms: dict[str, Term] = {side: Term(loss, on=side, reduction=reduction) for _, side in _SIDES}
    if not weight:
        return dict(terms)
    penalties = {
        f"{name} divergence": Penalty(replace(divergence, of=name), weight, share_of=side) for name, side in _SIDES
    }
    return {**terms, **penalties}
