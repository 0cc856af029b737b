"""Density weights (Amrani et al. 2021): pairs in dense regions, in both modalities at once, count more."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import DropLast, Setup
from subtext.settings import Interval, IsPath
from subtext.training.plan import Requires

_TOTAL = Requires("normalise", ("sum", "softmax"))


def amrani(
    setup: Setup,
    *,
    features: Annotated[str, "file of image features, from which densities are computed", IsPath()] = "",
    text_features: Annotated[str, "file of text features; none: LSA of the training texts", IsPath()] = "",
    neighbours: Annotated[int, "nearest pairs that a density counts", Interval(1)] = 10,
    combine: Annotated[
        Literal["min", "sum", "product"], "combination of the modalities' similarities; min: close in both"
    ] = "min",
    density: Annotated[Literal["mean", "last"], "mean similarity of the neighbours, or that of the furthest"] = "mean",
    rescale: Annotated[Literal["range", "rank"], "rescale densities by their range, or by their ranks"] = "range",
    same_image: Annotated[
        Literal["drop", "keep"], "whether texts of one image count as each other's neighbours"
    ] = "drop",
    normalise: Annotated[Literal["sum", "softmax", "none"], "how densities become weights; none: as they are"] = "sum",
    total_weight: Annotated[float, "sum of the weights over a batch", _TOTAL] = 196.0,
    reference_batch: Annotated[
        int, "batch size that total_weight is for; 0 for the batch as it is", Interval(0), _TOTAL
    ] = 32,
    average_directions: Annotated[bool, "average both directions; off: keep the model's own scale"] = True,
    drop_last: DropLast = True,
) -> Setup:
    """Weights pairs by the density of similar pairs in image and text features (Amrani et al. 2021).

    Densities are computed once, before the training. The paper's code was never published: this follows its abstract.

    Args:
        setup: What the model, its objective and its batches are so far.
        features: File of image features, from which densities are computed.
        text_features: File of text features; none: LSA of the training texts.
        neighbours: Nearest pairs that a density counts.
        combine: Combination of the modalities' similarities; min: close in both.
        density: Mean similarity of the neighbours, or that of the furthest.
        rescale: Rescale densities by their range, or by their ranks.
        same_image: Whether texts of one image count as each other's neighbours.
        normalise: How densities become weights; none: as they are.
        total_weight: Sum of the weights over a batch.
        reference_batch: Batch size that total_weight is for; 0 for the batch as it is.
        average_directions: Average both directions; off: keep the model's own scale.
        drop_last: Drop the last batch of an epoch if it is smaller.

    Returns:
        The changed setup.

    Raises:
        RecipeError: Without features of the images, and for what `weight_terms` refuses.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.objectives.weighting import Density
    from subtext.ops.density import DensityOptions
    from subtext.recipes.methods.amrani.densities import DensityTable
    from subtext.recipes.parts import weight_terms

    if not features:
        raise RecipeError("amrani needs features=FILE, features of the images; it got none; name one")
    weighted = weight_terms(
        "amrani",
        setup,
        lambda direction: Density(total_weight, direction, reference_batch, normalise),
        average=average_directions,
        drop_last=drop_last,
    )
    texts = Path(text_features) if text_features else None
    bank = DensityTable(Path(features), texts, DensityOptions(neighbours, combine, density, rescale), same_image)
    return replace(weighted, banks=(*weighted.banks, bank))
