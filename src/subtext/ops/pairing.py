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
    return _of_pairs(scene.text_to_image), _of_pairs(scene.image_to_text)


def by_query(values: Float[Tensor, "b"], scene: Scene, direction: Direction) -> Float[Tensor, "q"]:
    """From one value a text of the whole batch to one value a query of a direction.

    A pair is known by its text. A query that is one picture of several texts has their sum.
    """
    comparison = scene.comparison(direction)
    queries = len(comparison.scores)
    if direction == "text_to_image" or len(_of_pairs(scene.text_to_image)) == len(values):
        return values[:queries]
    return comparison.truth.match[:, : len(values)].to(values.dtype) @ values


def _of_pairs(comparison: Comparison) -> Embeddings:
    if comparison.candidates is None:
        raise RequirementError(
            "what is known of pairs by their rows needs the embeddings behind the scores; this batch has scores alone; "
            "compose the scene from embeddings"
        )
    if comparison.origin is None:
        return comparison.candidates
    return comparison.candidates[(comparison.origin == Origin.PAIR) | (comparison.origin == Origin.GATHERED)]
