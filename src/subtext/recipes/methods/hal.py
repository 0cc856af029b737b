"""HAL (Liu et al. 2020): near negatives count exponentially, and hubs most of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.when import Span, When

if TYPE_CHECKING:
    from subtext.training.setup import Setup

_BANK = When("bank", ("0", "0.0"), needs="bank above 0", but=True)


def hal(
    setup: Setup,
    *,
    gamma: Annotated[float, "how steeply near negatives count; 60 on Flickr30K", Span(0)] = 30.0,
    threshold: Annotated[float, "score from which they do, in cosine; 0.7 on Flickr30K"] = 0.3,
    diagonal: Annotated[bool, "the pair's own cell among negatives, as in the paper's code"] = True,
    bank: Annotated[float, "share of the pairs kept from epoch to epoch, which tell hubs; 0: none", Span(0)] = 0.05,
    nearest: Annotated[int, "kept pairs that count for an item", Span(1), _BANK] = 250,
    inside: Annotated[bool, "the bank's threshold is multiplied by its scale", _BANK] = False,
    other_pictures: Annotated[bool, "other captions of the batch's pictures are no strangers", _BANK] = True,
) -> Setup:
    """Replaces the losses between pictures and texts by the hubness-aware one (Liu et al. 2020), on plain cosines.

    From the second epoch on a bank of other pairs tells which items are hubs. Other parts of the objective stay. Needs
    a host that compares by the cosine of vectors.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.losses.hal import HAL
    from subtext.mining.hubs import Hubs
    from subtext.objective import Term
    from subtext.recipes.within import retold
    from subtext.similarity.cosine import Cosine
    from subtext.training.kept_pairs import KeptPairs

    if not isinstance(setup.model.similarity, Cosine):
        raise RecipeError(
            "hal needs a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; take another host"
        )
    loss = HAL(gamma, threshold, "shifted" if diagonal else "none")
    if not bank:
        return retold("hal", setup, {direction: Term(loss, on=direction) for direction in DIRECTIONS})
    later = replace(loss, diagonal="one" if diagonal else "none")
    terms = {}
    for side in DIRECTIONS:
        hubs = Hubs(side, threshold, nearest=nearest, inside=inside, other_pictures=other_pictures)
        terms[f"{side}, without a bank"] = Term(loss, on=side, until_epoch=1)
        terms[side] = Term(later, on=side, from_epoch=1, mining=hubs)
    made = retold("hal", setup, terms)
    return replace(made, memories=(*made.memories, KeptPairs(bank)))
