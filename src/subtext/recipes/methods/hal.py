"""HAL (Liu et al. 2020): near negatives count exponentially, and hubs most of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Span, When

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
    alpha: Annotated[float, "how steeply scores with kept pairs weight a pair", Span(0), _BANK] = 40.0,
    above: Annotated[float, "epsilon 1: score from which they do, in cosine", _BANK] = 0.2,
    beta: Annotated[float, "how steeply they weight negatives", Span(0), _BANK] = 40.0,
    below: Annotated[float, "epsilon 2: what is taken off there", _BANK] = 0.1,
    inside: Annotated[bool, "below is multiplied by beta, as above is by alpha", _BANK] = False,
    other_pictures: Annotated[bool, "other captions of the batch's pictures are no strangers", _BANK] = True,
) -> Setup:
    """Replaces the losses between pictures and texts by the hubness-aware one (Liu et al. 2020), on plain cosines.

    From the second epoch on a bank of other pairs tells which items are hubs. Other parts of the objective stay. Needs
    a host that compares by the cosine of vectors.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.hal import HAL
    from subtext.objectives.mining.hubs import Hubs
    from subtext.objectives.objective import Term
    from subtext.recipes.method_terms import retold
    from subtext.training.pair_bank import KeptPairs

    if not isinstance(setup.model.similarity, Cosine):
        raise RecipeError(
            "hal needs a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; take another host"
        )
    loss = HAL(gamma, threshold, "shifted" if diagonal else "none")
    if not bank:
        return retold("hal", setup, {direction: Term(loss, on=direction) for direction in DIRECTIONS})
    later = replace(loss, diagonal="one" if diagonal else "none")
    hubs = Hubs(
        DIRECTIONS[0],
        threshold,
        positive_scale=alpha,
        positive_threshold=above,
        negative_scale=beta,
        negative_threshold=below,
        nearest=nearest,
        inside=inside,
        other_pictures=other_pictures,
    )
    terms = {}
    for side in DIRECTIONS:
        terms[f"{side}, without a bank"] = Term(loss, on=side, until_epoch=1)
        # Validation has no bank in any epoch: its loss is that of the first, or no two epochs could be compared.
        terms[side] = Term(later, on=side, from_epoch=1, mining=replace(hubs, of=side), unmined=loss)
    made = retold("hal", setup, terms)
    return replace(made, memories=(*made.memories, KeptPairs(bank)))
