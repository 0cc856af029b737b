"""Density weights (Amrani et al. 2021): pairs in dense places, in both modalities at once, count more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.training.option_marks import Before, Place, Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def amrani(
    setup: Setup,
    *,
    features: Annotated[str, "file of features of the pictures, which densities are taken from", Place()] = "",
    text_features: Annotated[str, "file of features of the texts; none: LSA of the training texts"] = "",
    neighbours: Annotated[int, "nearest pairs that a density counts", Span(1)] = 10,
    join: Annotated[Literal["min", "sum", "product"], "of the two modalities' likeness; min: close in both"] = "min",
    value: Annotated[Literal["mean", "last"], "likeness of all of them, or of the furthest of them alone"] = "mean",
    spread: Annotated[Literal["range", "rank"], "densities from the least to the largest, or evenly by rank"] = "range",
    same_picture: Annotated[
        Literal["drop", "keep"], "whether texts of one picture count as near each other", Before("keep")
    ] = "drop",
    scale: Annotated[Literal["sum", "softmax", "none"], "how densities become weights; none: as they are"] = "sum",
    total: Annotated[float, "the sum of the weights over a batch"] = 196.0,
    batch: Annotated[int, "pairs that total is for; 0: whatever the batch", Span(0)] = 32,
    half: Annotated[bool, "the mean of both directions, as other weights have it; off: the host's own scale"] = True,
    drop_last: Annotated[bool, "leave out the last batch of an epoch where it is smaller"] = True,
) -> Setup:
    """Weights pairs by how densely they lie in picture and text features at once (Amrani et al. 2021).

    Densities are computed once, before the training. The paper's code was never published: this follows its abstract.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.objectives.weighting.density import Density
    from subtext.ops.density import DensityOptions
    from subtext.recipes.method_terms import weighted
    from subtext.training.density_table import CrowdedPairs

    if not features:
        raise RecipeError("amrani needs features=FILE, features of the pictures; it got none; name one")
    made = weighted("amrani", setup, lambda direction: Density(total, scale, direction, batch), half=half)
    texts = Path(text_features) if text_features else None
    memory = CrowdedPairs(Path(features), texts, DensityOptions(neighbours, join, value, spread), same_picture)
    return replace(made, memories=(*made.memories, memory), plan=replace(made.plan, drop_last=drop_last))
