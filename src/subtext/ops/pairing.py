"""Which pairs a batch is of, and from values of its pairs to values of its queries."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison, Direction, Embeddings, Origin, Scene
from subtext.errors import RequirementError


def whole_batch(scene: Scene) -> tuple[Embeddings, Embeddings]:
    """Pictures and texts of the whole batch: this process's first, in order, then those of the others.

    Raises RequirementError for a scene of scores alone.
    """
    return _items(scene.text_to_image), _items(scene.image_to_text)


def pair_count(scene: Scene) -> int:
    """Pairs of the whole batch, each known by its text."""
    return _count(scene.image_to_text)


def by_query(values: Float[Tensor, "b"], scene: Scene, direction: Direction) -> Float[Tensor, "q"]:
    """From one value a pair of the whole batch, in the order of its texts, to one value a query of a direction.

    A query that is one picture of several texts has their sum.
    """
    comparison = scene.comparison(direction)
    if direction == "text_to_image" or _count(scene.text_to_image) == len(values):
        return values[: len(comparison.scores)]
    return comparison.truth.match[:, : len(values)].to(values.dtype) @ values


def _of_pairs(comparison: Comparison) -> Tensor | None:
    """(C) bool, which candidates are of pairs, here or gathered; None for all of them."""
    origin = comparison.origin
    return None if origin is None else (origin == Origin.PAIR) | (origin == Origin.GATHERED)


def _count(comparison: Comparison) -> int:
    chosen = _of_pairs(comparison)
    return comparison.scores.shape[1] if chosen is None else int(chosen.sum())


def _items(comparison: Comparison) -> Embeddings:
    if comparison.candidates is None:
        raise RequirementError(
            "what is known of pairs by their rows needs the embeddings behind the scores; this batch has scores alone; "
            "compose the scene from embeddings"
        )
    chosen = _of_pairs(comparison)
    return comparison.candidates if chosen is None else comparison.candidates[chosen]
