"""Distance-weighted sampling: one negative per query, with probabilities that make all distances likely."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from subtext.core import Comparison, Direction, Embeddings, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import embeddings_of
from subtext.ops import draw
from subtext.ops.numerics import best_views


@dataclass(frozen=True)
class Distance:
    """Distance-weighted sampling (Wu et al. 2017, section 3): one negative per query, evenly over distances.

    P(n | q) = 1/q(max(d_qn, nearest)) over the sum of the same, for d_qn < furthest; d = sqrt(2 - 2 cosine)
    with q(d) the density of distances on the sphere (`log_rarity`). Uniform samples are nearly all about sqrt(2) away
    and teach nothing; the hardest negative is often a false one. With 128 dimensions or more the density is so steep
    that the nearest candidate beyond `nearest` is sampled almost always. All other negatives are ignored.

    A sample is a function of (seed, epoch, query, candidate): each candidate has a random number of its own, so that
    neither order nor batch changes the sample. The authors' code scales weights by the largest of all rows, which at
    1024 dimensions leaves rows of zeros, and then samples among all items, positives too. Here each row is normalised
    by itself, and a query without a negative in reach samples among all of its negatives alike.

    of        direction whose queries sample
    nearest   minimum of distances; 0.5 in the authors' code
    furthest  negatives at this distance or more are not sampled; 1.4 in their code, where their loss is 0

    Takes     Scene whose comparisons hold their embeddings; of several views the best pair counts. Of Epoch
              number and seed.
    Gives     the Comparison with one negative per query, and the others ignored.
    Raises    RequirementError for bounds that are not 0 < nearest < furthest, and a scene without embeddings.
    Cost      time Q C K K D, memory Q C K K.

    >>> from subtext.core import Truth
    >>> items = Embeddings(torch.eye(3)[:, None], torch.arange(3))
    >>> whole = Comparison(torch.eye(3), Truth(torch.eye(3, dtype=torch.bool)), items, items)
    >>> mined = Distance(of="image_to_text", furthest=1.5)(Scene(whole, whole.flip()), Epoch(0, 0))
    >>> mined.truth.negative.sum(dim=1).tolist()
    [1, 1, 1]
    """

    of: Direction
    nearest: float = 0.5
    furthest: float = 1.4

    def __post_init__(self) -> None:
        if not 0 < self.nearest < self.furthest:
            raise RequirementError(
                f"Distance needs 0 < nearest < furthest; it got nearest {self.nearest} and furthest {self.furthest}"
            )

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with one sampled negative per query."""
        comparison = scene.comparison(self.of)
        queries, candidates = embeddings_of(comparison, "Distance")
        truth = comparison.truth
        log_p = self.log_probabilities(queries, candidates, truth.negative)
        numbers = _numbers(queries.ids, candidates.ids, epoch, f"distance {self.of}").to(log_p)
        # The largest of log P plus Gumbel noise is a sample of P.
        sampled = (log_p - (-numbers.log()).log()).argmax(dim=1, keepdim=True)
        selected = torch.zeros_like(truth.match).scatter(1, sampled, True)
        return replace(comparison, truth=replace(truth, ignored=~(truth.match | (selected & truth.negative))))

    def log_probabilities(
        self, queries: Embeddings, candidates: Embeddings, negative: Bool[Tensor, "q c"]
    ) -> Float[Tensor, "q c"]:
        """(Q C) log probability of every candidate; minus infinity for none."""
        cosines = best_views(queries.vectors.detach(), candidates.vectors.detach())
        distances = (2 - 2 * cosines).clamp_min(0).sqrt()
        reached = negative & (distances < self.furthest)
        without = ~reached.any(dim=1, keepdim=True)
        weights = log_rarity(distances, queries.width, least=self.nearest).masked_fill(without, 0)
        hidden = weights.masked_fill(~torch.where(without, negative, reached), float("-inf"))
        # A row without negatives has no sample: zeros avoid NaN.
        return hidden.masked_fill(~negative.any(dim=1, keepdim=True), 0).log_softmax(dim=1)


def _numbers(queries: Int[Tensor, "q"], candidates: Int[Tensor, "c"], epoch: Epoch, purpose: str) -> Tensor:
    """(Q C) float64 in (0, 1), each a function of its query, its candidate, the seed and the epoch."""
    first, second = queries.cpu().numpy(), candidates.cpu().numpy()
    # Rows of data sets are far below 2^31: each pair of rows has a key of its own.
    keys = (first[:, None] << np.int64(32)) ^ second[None, :]
    numbers = draw.uniform(keys.reshape(-1), seed=epoch.seed, epoch=epoch.draws, purpose=purpose)
    return torch.from_numpy(np.maximum(numbers, 2.0**-53).reshape(keys.shape))


def log_rarity(distances: Float[Tensor, "*shape"], width: int, *, least: float = 0.5) -> Float[Tensor, "*shape"]:
    """-log q of distances between points on the unit sphere, up to a constant (Wu et al. 2017, section 3).

    q(d) = d^(D-2) (1 - d^2 / 4)^((D-3)/2)
    is the frequency of distance d between two random points in D dimensions: nearly always about sqrt(2) for large D.

    distances  0 to 2; at least `least`, since noise decides among smaller ones
    width      D, 2 or more

    >>> [round(value, 4) for value in log_rarity(torch.tensor([0.1, 0.5, 1.2]), 4).tolist()]
    [1.4186, 1.4186, -0.1415]
    """
    clamped = distances.clamp_min(least)
    # Zero at distance 2: the minimum keeps the logarithm finite.
    complement = (1 - clamped.square() / 4).clamp_min(torch.finfo(clamped.dtype).eps)
    return (2 - width) * clamped.log() - (width - 3) / 2 * complement.log()
