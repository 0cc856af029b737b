"""DAA (Li et al. 2022): all candidates of a batch are put into the order of their words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.training.option_marks import Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup

WEIGHT, WEIGHT_OF_DRAWS = 50.0, 1000.0
"""Beside a sum over a batch of 128, for scores and for draws: SGRAF-DAA and PCME-DAA as released."""
OF_COSINES, OF_SCORES = 0.01, 0.001
"""Temperatures of the released code."""


def daa(
    setup: Setup,
    *,
    temperature: Annotated[float, "of ranks; 0: 0.01 for cosines, 0.001 for other scores", Span(0)] = 0.0,
    weight: Annotated[float, "of each direction; -1: as 50 to a hinge summed over 128 pairs, 1000 with draws"] = -1.0,
    relevance: Annotated[
        Literal["tfidf1", "ciderd", "cider"], "of training texts: tfidf1 as released, the paper's text says CIDEr"
    ] = "tfidf1",
    variant: Annotated[
        Literal["rows", "released"], "ranks within a query's row; released: among a column, as that code"
    ] = "rows",
    draws: Annotated[bool, "every draw of an item by itself, for items of several vectors"] = False,
) -> Setup:
    """Ranks all of a batch by how related its texts are, beside the host's loss (Li et al. 2022, eq. 12).

    The ranks of a query's candidates are to be those of their relevance: the mean over the texts of a picture of the
    TF-IDF cosine with a text, learnt from the training texts. Needs texts with words. Where items are compared by
    cosine it reads plain cosines, else the model's scores; where they are drawn (`pcme`), inner products of draws.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError
    from subtext.models.similarity.match_probability import MatchProbability
    from subtext.objectives.losses.daa import DAA
    from subtext.recipes.method_terms import beside, of_cosines
    from subtext.training.batch_relevance import SharedWords

    if setup.relevance is not None:
        raise RecipeError("daa gives a batch its relevance, and another method does so already; take one of them alone")
    if setup.mixing is not None:
        raise RecipeError("daa needs pictures that are whole; this host mixes them; leave that out (mixing=0)")
    draws = draws or isinstance(setup.model.similarity, MatchProbability)
    chosen = temperature or (OF_COSINES if draws or of_cosines(setup) else OF_SCORES)
    loss = DAA(chosen, variant, draws)
    made = beside("daa", setup, loss, weight=weight, sum_weight=WEIGHT_OF_DRAWS if draws else WEIGHT)
    return replace(made, relevance=SharedWords(relevance))
