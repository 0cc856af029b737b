"""HAL (Liu et al. 2020): near negatives count exponentially, and hubs most of all."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import Setup
from subtext.settings import Interval
from subtext.training.plan import Requires

_BANK = Requires("bank_share", ("0", "0.0"), needs="bank_share above 0", negated=True)


def hal(
    setup: Setup,
    *,
    gamma: Annotated[float, "steepness of the weight of near negatives; 60 on Flickr30K", Interval(0)] = 30.0,
    threshold: Annotated[float, "cosine from which negatives count; 0.7 on Flickr30K"] = 0.3,
    diagonal: Annotated[bool, "count the pair's own cell among the negatives, as in the published code"] = True,
    bank_share: Annotated[
        float, "share of the pairs kept in a bank, which detects hubs; 0 for no bank", Interval(0)
    ] = 0.05,
    bank_neighbours: Annotated[int, "nearest bank pairs that count for an item", Interval(1), _BANK] = 250,
    alpha: Annotated[float, "steepness of a pair's weight by its similarity to the bank", Interval(0), _BANK] = 40.0,
    epsilon1: Annotated[float, "cosine from which the bank weights pairs", _BANK] = 0.2,
    beta: Annotated[float, "steepness of a negative's weight by its similarity to the bank", Interval(0), _BANK] = 40.0,
    epsilon2: Annotated[float, "offset of a negative's weight", _BANK] = 0.1,
    scale_epsilon2: Annotated[bool, "multiply epsilon2 by beta, as epsilon1 is by alpha", _BANK] = False,
    exclude_same_image: Annotated[
        bool, "exclude other captions of the batch's images from the bank neighbours", _BANK
    ] = True,
) -> Setup:
    """Replaces the losses between images and texts by the hubness-aware loss on plain cosines (Liu et al. 2020).

    From the second epoch on a bank of other pairs detects hubs. Other parts of the objective stay. Needs a model that
    compares items by the cosine of their vectors.

    Args:
        setup: What the model, its objective and its batches are so far.
        gamma: Steepness of the weight of near negatives; 60 on Flickr30K.
        threshold: Cosine from which negatives count; 0.7 on Flickr30K.
        diagonal: Count the pair's own cell among the negatives, as in the published code.
        bank_share: Share of the pairs kept in a bank, which detects hubs; 0 for no bank.
        bank_neighbours: Nearest bank pairs that count for an item.
        alpha: Steepness of a pair's weight by its similarity to the bank.
        epsilon1: Cosine from which the bank weights pairs.
        beta: Steepness of a negative's weight by its similarity to the bank.
        epsilon2: Offset of a negative's weight.
        scale_epsilon2: Multiply epsilon2 by beta, as epsilon1 is by alpha.
        exclude_same_image: Exclude other captions of the batch's images from the bank neighbours.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For a model that does not compare by cosine, and for losses that would be lost.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.hal import HAL
    from subtext.objectives.mining import Hubs
    from subtext.objectives.objective import Term
    from subtext.recipes.methods.hal.bank import PairBank
    from subtext.recipes.parts import both_directions, replace_terms, require_cosine

    require_cosine("hal", setup)
    loss = HAL(gamma, threshold, "shifted" if diagonal else "none")
    if not bank_share:
        return replace_terms("hal", setup, both_directions(loss))
    later = replace(loss, diagonal="one" if diagonal else "none")
    hubs = Hubs(
        DIRECTIONS[0],
        threshold,
        positive_scale=alpha,
        positive_threshold=epsilon1,
        negative_scale=beta,
        negative_threshold=epsilon2,
        nearest=bank_neighbours,
        inside=scale_epsilon2,
        exclude_same_image=exclude_same_image,
    )
    terms = {}
    for side in DIRECTIONS:
        terms[f"{side}, without a bank"] = Term(loss, on=side, until_epoch=1)
        # Validation has no bank in any epoch: its loss is that of the first, so that epochs can be compared.
        terms[side] = Term(later, on=side, from_epoch=1, mining=replace(hubs, direction=side), unmined=loss)
    setup = replace_terms("hal", setup, terms)
    return replace(setup, banks=(*setup.banks, PairBank(bank_share)))
