"""Plain cosines in the place of scores: for losses whose temperature is a distance between cosines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from subtext.core import Comparison, Direction, Epoch, Scene
from subtext.errors import RequirementError
from subtext.ops.numerics import best_views


@dataclass(frozen=True)
class Cosines:
    """The comparison with the cosines of its items for scores, whatever scale and shift the similarity puts on them.

    A loss that counts who is ahead, and by how much (Smooth-AP, DAA), has its temperature in cosines. Of scores that
    come divided by a temperature of their own, perhaps a learnt one, it would see the order and no distance.

    of  direction whose comparison it is

    Takes     Scene whose comparisons hold their embeddings; of several views the two that fit best count.
    Gives     the Comparison with inner products of its vectors, which heads give unit length, for scores. The gradient
              reaches vectors, and no scale or shift.
    Raises    RequirementError for a scene without embeddings.
    Cost      time Q C K K D, memory Q C K K.

    >>> import torch
    >>> from subtext.core import Embeddings, Truth
    >>> items = Embeddings(torch.eye(2)[:, None], torch.arange(2))
    >>> whole = Comparison(20 * torch.eye(2) - 10, Truth(torch.eye(2, dtype=torch.bool)), items, items)
    >>> Cosines(of="image_to_text")(Scene(whole, whole.flip()), Epoch(0, 0)).scores.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    of: Direction

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison, with cosines for scores."""
        comparison = scene.comparison(self.of)
        if comparison.queries is None or comparison.candidates is None:
            raise RequirementError(
                "Cosines needs the embeddings behind the scores; this batch has scores alone; compose the scene from "
                "embeddings"
            )
        return replace(comparison, scores=best_views(comparison.queries.vectors, comparison.candidates.vectors))
