"""Smooth-AP (Brown et al. 2020): positives before all others, by a smooth average precision."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval

WEIGHT, WEIGHT_OF_SAMPLES = 25.0, 500.0
"""Beside a sum over a batch of 128. SGRAF-DAA as released has 25, half of its weight of DAA; PCME-DAA states no weight
other than 0, so half of its weight of DAA is taken."""
COSINE_TEMPERATURE, SCORE_TEMPERATURE = 0.01, 0.001
"""Temperatures of the released code."""


def smooth_ap(
    setup: Setup,
    *,
    temperature: Annotated[
        float, "temperature; 0: 0.01 for cosines and samples, 0.001 for other scores", Interval(0)
    ] = 0.0,
    weight: Annotated[
        float,
        "weight of each direction; -1: relative to the model's loss as 25 to a sum over 128 pairs, 500 with samples; "
        "alone 1/2",
    ] = -1.0,
    form: Annotated[
        Literal["auto", "samples", "scores"],
        "rank the inner products of samples, each by itself, or the scores of items; auto: samples for pcme",
    ] = "auto",
    variant: Annotated[
        Literal["rows", "released"], "rank within a query's row, or within a column as in the released code for samples"
    ] = "rows",
    replace_loss: Annotated[bool, "replace the model's losses between images and texts"] = False,
) -> Setup:
    """Adds a smooth average precision between images and texts to the model's loss (Brown et al. 2020).

    The form and its weights are those of Li et al. 2022. With `replace_loss` it replaces the model's loss: the mean of
    both directions, on plain cosines. Where items are compared by cosine it reads plain cosines, else the model's
    scores; for samples (`pcme`) it reads their inner products, and all samples of the partner are positives.

    Args:
        setup: What the model, its objective and its batches are so far.
        temperature: Temperature; 0: 0.01 for cosines and samples, 0.001 for other scores.
        weight: Weight of each direction; -1: relative to the model's loss as 25 to a sum over 128 pairs, 500 with
            samples; alone 1/2.
        form: Rank the inner products of samples, each by itself, or the scores of items; auto: samples for pcme.
        variant: Rank within a query's row, or within a column as in the released code for samples.
        replace_loss: Replace the model's losses between images and texts.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For what `add_terms` refuses, or with `replace_loss` what `replace_terms` does.
    """
    from subtext.models.similarity.probabilistic import MatchProbability
    from subtext.objectives.losses.smooth_ap import SmoothAP
    from subtext.recipes.parts import add_terms, both_directions, has_cosines, replace_terms, require_cosine

    samples = form == "samples" or (form == "auto" and isinstance(setup.model.similarity, MatchProbability))
    chosen = temperature or (COSINE_TEMPERATURE if samples or has_cosines(setup) else SCORE_TEMPERATURE)
    loss = SmoothAP(chosen, variant, samples)
    if not replace_loss:
        sum_weight = WEIGHT_OF_SAMPLES if samples else WEIGHT
        return add_terms("smooth_ap", setup, loss, weight=weight, sum_weight=sum_weight)
    require_cosine("replace_loss", setup)
    return replace_terms("smooth_ap", setup, both_directions(loss, 0.5 if weight < 0 else weight))
