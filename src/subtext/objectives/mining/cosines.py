"""Plain cosines instead of scores: for losses whose temperature is in cosines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from subtext.core import Comparison, Direction, Epoch, Scene
from subtext.objectives.scene import embeddings_of
from subtext.ops.numerics import best_views


@dataclass(frozen=True)
class Cosines:
    """The comparison with cosines as scores, without the scale and shift of the similarity.

    The temperature of losses on soft ranks (Smooth-AP, DAA) is in cosines. From scores that a similarity has divided by
    a temperature, perhaps a learnt one, such a loss would see the order but not the distances.

    of  direction of the comparison

    Takes     Scene whose comparisons hold their embeddings; of several views the best pair counts.
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
        """The comparison with cosines as scores."""
        comparison = scene.comparison(self.of)
        queries, candidates = embeddings_of(comparison, "Cosines")
        return replace(comparison, scores=best_views(queries.vectors, candidates.vectors))
