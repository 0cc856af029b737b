"""Mining: Scene, Epoch -> the comparison that a loss reads, with fewer negatives or with weighted scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from subtext.core import Comparison, Direction, Embeddings, Epoch, Scene
from subtext.errors import RequirementError, Setting
from subtext.objectives.scene import batch_items, embeddings_of
from subtext.ops import draw
from subtext.ops.numerics import best_views


@dataclass(frozen=True)
class Cosines:
    """The comparison with cosines as scores, without the scale and shift of the similarity.

    The temperature of losses on soft ranks (Smooth-AP, DAA) is in cosines. From scores that a similarity has divided by
    a temperature, perhaps a learnt one, such a loss would see the order but not the distances.

    Args:
        direction: Which comparison.

    Raises:
        RequirementError: If the scene has no embeddings.

    Complexity:
        Time Q C K K D, memory Q C K K.

    Example:
        >>> import torch
        >>> from subtext.core import Embeddings, Truth
        >>> items = Embeddings(torch.eye(2)[:, None], torch.arange(2))
        >>> whole = Comparison(20 * torch.eye(2) - 10, Truth(torch.eye(2, dtype=torch.bool)), items, items)
        >>> Cosines(direction="image_to_text")(Scene(whole, whole.flip()), Epoch(0, 0)).scores.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    direction: Direction

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with cosines as scores.

        Args:
            scene: Comparisons with embeddings; of several views the best pair counts.
            epoch: Not read.

        Returns:
            The Comparison whose scores are the inner products of its vectors, which have unit length. The gradient
            reaches the vectors, and no scale or shift.
        """
        comparison = scene.comparison(self.direction)
        queries, candidates = embeddings_of(comparison, "Cosines")
        return replace(comparison, scores=best_views(queries.vectors, candidates.vectors))


@dataclass(frozen=True)
class DistanceSampling:
    """Distance-weighted sampling (Wu et al. 2017, section 3): one negative per query, evenly over distances.

    P(n | q) = 1/q(max(d_qn, nearest)) over the sum of the same, for d_qn < furthest; d = sqrt(2 - 2 cosine)
    with q(d) the density of distances on the sphere (`log_rarity`). Uniform samples are nearly all about sqrt(2) away
    and teach nothing; the hardest negative is often a false one. With 128 dimensions or more the density is so steep
    that the nearest candidate beyond `nearest` is sampled almost always. All other negatives are ignored.

    A sample is a function of (seed, epoch, query, candidate): each candidate has a random number of its own, so that
    neither order nor batch changes the sample. The authors' code scales weights by the largest of all rows, which at
    1024 dimensions leaves rows of zeros, and then samples among all items, positives too. Here each row is normalised
    by itself, and a query without a negative in reach samples among all of its negatives alike.

    Args:
        direction: Image to text, or text to image: the direction whose queries sample.
        nearest: Minimum of distances; 0.5 in the authors' code.
        furthest: Negatives at this distance or more are not sampled; 1.4 in their code, where their loss is 0.

    Raises:
        RequirementError: If the bounds are not 0 < nearest < furthest, or if the scene has no embeddings.

    Complexity:
        Time Q C K K D, memory Q C K K.

    Example:
        >>> from subtext.core import Truth
        >>> items = Embeddings(torch.eye(3)[:, None], torch.arange(3))
        >>> whole = Comparison(torch.eye(3), Truth(torch.eye(3, dtype=torch.bool)), items, items)
        >>> mined = DistanceSampling(direction="image_to_text", furthest=1.5)(Scene(whole, whole.flip()), Epoch(0, 0))
        >>> mined.truth.negative.sum(dim=1).tolist()
        [1, 1, 1]
    """

    direction: Direction
    nearest: float = 0.5
    furthest: float = 1.4

    def __post_init__(self) -> None:
        if not 0 < self.nearest < self.furthest:
            raise RequirementError(
                f"DistanceSampling needs 0 < nearest < furthest; it got nearest {self.nearest} and furthest "
                f"{self.furthest}"
            )

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with one sampled negative per query.

        Args:
            scene: Comparisons with embeddings; of several views the best pair counts.
            epoch: Number and seed.

        Returns:
            The Comparison with one negative per query, and the others ignored.
        """
        comparison = scene.comparison(self.direction)
        queries, candidates = embeddings_of(comparison, "DistanceSampling")
        truth = comparison.truth
        log_p = self.log_probabilities(queries, candidates, truth.negative)
        # A number in (0, 1) for each query and candidate. Rows of data sets are far below 2^31: each pair has a key.
        first, second = queries.ids.cpu().numpy(), candidates.ids.cpu().numpy()
        keys = (first[:, None] << np.int64(32)) ^ second[None, :]
        samples = draw.uniform(keys.ravel(), seed=epoch.seed, epoch=epoch.draws, purpose=f"distance {self.direction}")
        numbers = torch.from_numpy(np.maximum(samples, 2.0**-53).reshape(keys.shape)).to(log_p)
        # The largest of log P plus Gumbel noise is a sample of P.
        sampled = (log_p - (-numbers.log()).log()).argmax(dim=1, keepdim=True)
        selected = torch.zeros_like(truth.match).scatter(1, sampled, True)
        return replace(comparison, truth=replace(truth, ignored=~(truth.match | (selected & truth.negative))))

    def log_probabilities(
        self, queries: Embeddings, candidates: Embeddings, negative: Bool[Tensor, "q c"]
    ) -> Float[Tensor, "q c"]:
        """Logarithms of the probabilities by which negatives are sampled.

        Args:
            queries: (Q) items.
            candidates: (C) items.
            negative: (Q C) bool.

        Returns:
            (Q C), minus infinity for candidates that cannot be sampled; equal numbers in a row without negatives.
        """
        cosines = best_views(queries.vectors.detach(), candidates.vectors.detach())
        distances = (2 - 2 * cosines).clamp_min(0).sqrt()
        reached = negative & (distances < self.furthest)
        without = ~reached.any(dim=1, keepdim=True)
        weights = log_rarity(distances, queries.width, least=self.nearest).masked_fill(without, 0)
        hidden = weights.masked_fill(~torch.where(without, negative, reached), float("-inf"))
        # A row without negatives has no sample: zeros avoid NaN.
        return hidden.masked_fill(~negative.any(dim=1, keepdim=True), 0).log_softmax(dim=1)


def log_rarity(distances: Float[Tensor, "*shape"], width: int, *, least: float = 0.5) -> Float[Tensor, "*shape"]:
    """-log q of distances between points on the unit sphere, up to a constant (Wu et al. 2017, section 3).

    q(d) = d^(D-2) (1 - d^2 / 4)^((D-3)/2)
    is the frequency of distance d between two random points in D dimensions: nearly always about sqrt(2) for large D.

    Args:
        distances: 0 to 2; at least `least`, since noise decides among smaller ones.
        width: D, 2 or more.
        least: Lower bound of distances.

    Returns:
        The same shape as `distances`.

    Example:
        >>> [round(value, 4) for value in log_rarity(torch.tensor([0.1, 0.5, 1.2]), 4).tolist()]
        [1.4186, 1.4186, -0.1415]
    """
    clamped = distances.clamp_min(least)
    # Zero at distance 2: the minimum keeps the logarithm finite.
    complement = (1 - clamped.square() / 4).clamp_min(torch.finfo(clamped.dtype).eps)
    return (2 - width) * clamped.log() - (width - 3) / 2 * complement.log()


IMAGES, TEXTS = "hubs/image", "hubs/text"
"""Names in Epoch.bank of the images and texts of stored pairs, in the same order."""


@dataclass(frozen=True)
class Hubs:
    """Hubness weights from a bank (HAL, Liu et al. 2020): items that are similar to many other items have more weight.

    A_i = sum_{t in T_i} exp(beta t - below), T_i the `nearest` largest scores of item i with the bank's other side
    W_ij = (A_i + A_j) / (A_i + A_j + exp(beta s_ii) + exp(beta s_jj))       for an image i and a text j, not a pair
    w_i  = 1 - exp(alpha (s_ii - above)) / (exp(alpha (s_ii - above)) + P_i + P'_i),   P as A, of exp(alpha (t - above))
    for the image and the text of pair i. The loss then reads threshold + W (s - threshold) for a negative's score s,
    and w s for a positive's. Weights have no gradient.

    The bank comes with the Epoch, not as columns of the comparison: W_ij needs the bank's scores of the candidate too,
    also of other processes' candidates, and columns would be negatives of every other term.

    Args:
        direction: Direction of the comparison.
        threshold: Of the loss, `HAL`, in score units.
        positive_scale: alpha, 40.
        positive_threshold: `above`, 0.2, in score units.
        negative_scale: beta, 40.
        negative_threshold: `below`, 0.1.
        nearest: Number of scores of the bank; 250, at most the number of pairs in the batch.
        inside: Whether beta multiplies `below`, exp(beta (t - below)), as in the positive part; not in their code.
        exclude_same_image: Whether to exclude stored pairs of the batch's images too, not only those of its texts. The
            authors' code takes other captions of the same image for negatives.

    Raises:
        RequirementError: If the bank lacks these names, the scene has no embeddings, or images and texts are not pairs.

    Complexity:
        Time B P K K D for a bank of P pairs, memory B P K K.

    Example:
        >>> from subtext.core import Truth
        >>> axes = Embeddings(torch.eye(2)[:, None], torch.arange(2))
        >>> kept = Embeddings(torch.eye(2)[:1, None], torch.tensor([9]))
        >>> whole = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), axes, axes)
        >>> epoch = Epoch(1, 0, bank={"hubs/image": kept, "hubs/text": kept})
        >>> soft = Hubs(direction="image_to_text", threshold=0.0, positive_scale=1.0, negative_scale=1.0)
        >>> mined = soft(Scene(whole, whole.flip()), epoch)
        >>> [[round(cell, 3) for cell in row] for row in mined.scores.tolist()]
        [[0.667, 0.0], [0.0, 0.424]]
    """

    direction: Direction
    threshold: float = 0.3
    positive_scale: float = 40.0
    positive_threshold: float = 0.2
    negative_scale: float = 40.0
    negative_threshold: float = 0.1
    nearest: int = 250
    inside: bool = False
    exclude_same_image: bool = True

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise RequirementError(f"Hubs needs nearest of 1 or more; it got {self.nearest}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with weighted scores.

        Args:
            scene: Of pairs with their embeddings, of plain cosines.
            epoch: Epoch.bank with "hubs/image" and "hubs/text".

        Returns:
            The Comparison with weighted scores; unchanged without a bank, as in validation, and where the bank has no
            other pair.

        Raises:
            RequirementError: See the class.
        """
        comparison, bank = scene.comparison(self.direction), epoch.bank
        if bank is None:
            return comparison
        if not {IMAGES, TEXTS} <= bank.keys():
            raise RequirementError(
                f"Hubs needs a bank with '{IMAGES}' and '{TEXTS}'; this epoch has {', '.join(sorted(bank)) or 'none'}; "
                "train with a method that keeps one (hal)"
            )
        images, texts = (items.detach() for items in batch_items(scene))
        if len(images) != len(texts):
            raise RequirementError(
                f"Hubs needs an image for each text of the batch; it got {len(images)} images and {len(texts)} "
                "texts; take ",
                Setting("caption_sampling", "all or one"),
            )
        # Stored pairs that share no item with the batch.
        stored = ~torch.isin(bank[TEXTS].ids, texts.ids)
        if self.exclude_same_image:
            stored &= ~torch.isin(bank[IMAGES].ids, images.ids)
        if not bool(stored.any()):
            return comparison
        count = min(self.nearest, len(images), int(stored.sum()))
        nearest = [
            best_views(items.vectors, bank[name].vectors[stored]).topk(count, dim=1).values
            for items, name in ((images, TEXTS), (texts, IMAGES))
        ]
        # Log A of the images and of the texts of all pairs, the pairs' scores, and w.
        alpha, above, beta = self.positive_scale, self.positive_threshold, self.negative_scale
        below = beta * self.negative_threshold if self.inside else self.negative_threshold
        hubs = [(beta * scores - below).logsumexp(dim=1) for scores in nearest]
        pair_scores = best_views(images.vectors, texts.vectors).diagonal()
        pulls = torch.logaddexp(*[(alpha * (scores - above)).logsumexp(dim=1) for scores in nearest])
        positive = torch.sigmoid(pulls - alpha * (pair_scores - above))
        of_queries, of_candidates = hubs if self.direction == "image_to_text" else hubs[::-1]
        rows = len(comparison.scores)
        mass = torch.logaddexp(of_queries[:rows, None], of_candidates[None, :])
        pairs = torch.logaddexp(beta * pair_scores[:rows, None], beta * pair_scores[None, :])
        pushed = self.threshold + torch.sigmoid(mass - pairs) * (comparison.scores - self.threshold)
        pulled = positive[:rows, None] * comparison.scores
        return replace(comparison, scores=torch.where(comparison.truth.match, pulled, pushed))
