"""DAA (Li et al. 2022): all candidates of a batch are ordered by the relevance of their words."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval

WEIGHT, WEIGHT_OF_SAMPLES = 50.0, 1000.0
"""Beside a sum over a batch of 128, for scores and for samples: SGRAF-DAA and PCME-DAA as released."""
COSINE_TEMPERATURE, SCORE_TEMPERATURE = 0.01, 0.001
"""Temperatures of the released code."""


def daa(
    setup: Setup,
    *,
    temperature: Annotated[
        float, "temperature of ranks; 0: 0.01 for cosines, 0.001 for other scores", Interval(0)
    ] = 0.0,
    weight: Annotated[
        float,
        "weight of each direction; -1: relative to the model's loss as 50 to a sum over 128 pairs, 1000 with samples",
    ] = -1.0,
    relevance: Annotated[
        Literal["tfidf1", "ciderd", "cider", "class_tfidf1"],
        "relevance of training texts: tfidf1 as released; the paper says CIDEr; class_tfidf1 by the class of an image, "
        "as released for CUB",
    ] = "tfidf1",
    variant: Annotated[
        Literal["rows", "released"], "rank within a query's row, or within a column as in the released code"
    ] = "rows",
    per_sample: Annotated[bool, "rank each sample of an item by itself, for items of several vectors"] = False,
) -> Setup:
    """Adds a loss that ranks the candidates of a batch by their relevance (Li et al. 2022, eq. 12).

    The ranks of a query's candidates should be those of their relevance: the mean TF-IDF cosine of an image's texts
    with a text, fitted on the training texts, or that of the texts of the image's class. Needs texts with words. Where
    items are compared by cosine it reads plain cosines, else the model's scores; for samples (`pcme`) it reads their
    inner products.

    Args:
        setup: What the model, its objective and its batches are so far.
        temperature: Temperature of ranks; 0: 0.01 for cosines, 0.001 for other scores.
        weight: Weight of each direction; -1: relative to the model's loss as 50 to a sum over 128 pairs, 1000 with
            samples.
        relevance: Relevance of training texts: tfidf1 as released; the paper says CIDEr; class_tfidf1 by the class of
            an image, as released for CUB.
        variant: Rank within a query's row, or within a column as in the released code.
        per_sample: Rank each sample of an item by itself, for items of several vectors.

    Returns:
        The changed setup.

    Raises:
        RecipeError: If another method gives the relevance, for a model that mixes images, and for what `add_terms`
            refuses.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError
    from subtext.models.similarity.probabilistic import MatchProbability
    from subtext.objectives.losses.daa import DAA
    from subtext.recipes.methods.daa.relevance import ClassWords, SharedWords
    from subtext.recipes.parts import add_terms, has_cosines

    if setup.relevance is not None:
        raise RecipeError("daa gives a batch its relevance, and another method does so already; use one of them alone")
    if setup.mixing is not None:
        raise RecipeError("daa needs images that are not mixed; this model mixes them; turn that off (mix_prob=0)")
    per_sample = per_sample or isinstance(setup.model.similarity, MatchProbability)
    chosen = temperature or (COSINE_TEMPERATURE if per_sample or has_cosines(setup) else SCORE_TEMPERATURE)
    loss = DAA(chosen, variant, per_sample)
    sum_weight = WEIGHT_OF_SAMPLES if per_sample else WEIGHT
    source = ClassWords() if relevance == "class_tfidf1" else SharedWords(relevance)
    return replace(add_terms("daa", setup, loss, weight=weight, sum_weight=sum_weight), relevance=source)
