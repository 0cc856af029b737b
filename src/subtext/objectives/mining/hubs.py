"""Hubs: scores are weighted by the similarity of their items to a bank of other items."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from subtext.core import Comparison, Direction, Embeddings, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items
from subtext.ops.numerics import best_views

IMAGES, TEXTS = "hubs/image", "hubs/text"
"""Names in Epoch.bank of the images and texts of stored pairs, in the same order."""


@dataclass(frozen=True)
class Hubs:
    """Hubness weights from a bank (HAL, Liu et al. 2020): items that are similar to many others count more.

    A_i = sum_{t in T_i} exp(beta t - below), T_i the `nearest` largest scores of item i with the bank's other side
    W_ij = (A_i + A_j) / (A_i + A_j + exp(beta s_ii) + exp(beta s_jj))       for an image i and a text j, not a pair
    w_i  = 1 - exp(alpha (s_ii - above)) / (exp(alpha (s_ii - above)) + P_i + P'_i),   P as A, of exp(alpha (t - above))
    for the image and the text of pair i. The loss then reads threshold + W (s - threshold) for a negative's score s,
    and w s for a positive's. Weights have no gradient.

    The bank comes with the Epoch, not as columns of the comparison: W_ij needs the bank's scores of the candidate too,
    also of other processes' candidates, and columns would be negatives of every other term.

    of               direction of the comparison
    threshold        of the loss, `HAL`, in score units
    positive_scale, positive_threshold  alpha and `above`; 40 and 0.2
    negative_scale, negative_threshold  beta and `below`; 40 and 0.1
    nearest          number of scores of the bank; 250, at most the number of pairs in the batch
    inside           whether beta multiplies `below`, exp(beta (t - below)), as in the positive part; not in their code
    other_pictures   whether to exclude stored pairs of the batch's images too, not only those of its texts. Their code
                     takes other captions of the same image for negatives

    Takes     Scene of pairs with their embeddings, of plain cosines; Epoch.bank with "hubs/image" and "hubs/text".
    Gives     the Comparison with weighted scores; unchanged without a bank, as in validation, and where the bank has
              no other pair.
    Raises    RequirementError for a bank without these names, without embeddings, and where images and texts are not
              pairs.
    Cost      time B P K K D for a bank of P pairs, memory B P K K.

    >>> from subtext.core import Truth
    >>> axes = Embeddings(torch.eye(2)[:, None], torch.arange(2))
    >>> kept = Embeddings(torch.eye(2)[:1, None], torch.tensor([9]))
    >>> whole = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), axes, axes)
    >>> epoch = Epoch(1, 0, bank={"hubs/image": kept, "hubs/text": kept})
    >>> soft = Hubs(of="image_to_text", threshold=0.0, positive_scale=1.0, negative_scale=1.0)
    >>> mined = soft(Scene(whole, whole.flip()), epoch)
    >>> [[round(cell, 3) for cell in row] for row in mined.scores.tolist()]
    [[0.667, 0.0], [0.0, 0.424]]
    """

    of: Direction
    threshold: float = 0.3
    positive_scale: float = 40.0
    positive_threshold: float = 0.2
    negative_scale: float = 40.0
    negative_threshold: float = 0.1
    nearest: int = 250
    inside: bool = False
    other_pictures: bool = True

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise RequirementError(f"Hubs needs nearest of 1 or more; it got {self.nearest}")

    @torch.no_grad()
    def _weights(
        self, scene: Scene, bank: tuple[Embeddings, Embeddings]
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"], Float[Tensor, "b"], Float[Tensor, "b"]] | None:
        """For every pair of the batch: log A of its image and of its text, its score, w; None without a bank."""
        images, texts = batch_items(scene)
        if len(images) != len(texts):
            raise RequirementError(
                f"Hubs needs an image for each text of the batch; it got {len(images)} images and {len(texts)} "
                "texts; take captions=all or one"
            )
        stored = self._other_pairs(bank, images, texts)
        if not bool(stored.any()):
            return None
        pair_scores = best_views(images.vectors, texts.vectors).diagonal()
        count = min(self.nearest, len(images), int(stored.sum()))
        nearest = [
            best_views(items.vectors, bank_items.vectors[stored]).topk(count, dim=1).values
            for items, bank_items in ((images, bank[1]), (texts, bank[0]))
        ]
        beta = self.negative_scale
        below = beta * self.negative_threshold if self.inside else self.negative_threshold
        hubs = [(beta * scores - below).logsumexp(dim=1) for scores in nearest]
        alpha, above = self.positive_scale, self.positive_threshold
        pulls = torch.logaddexp(*[(alpha * (scores - above)).logsumexp(dim=1) for scores in nearest])
        return hubs[0], hubs[1], pair_scores, torch.sigmoid(pulls - alpha * (pair_scores - above))

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with weighted scores."""
        comparison = scene.comparison(self.of)
        bank = epoch.bank
        if bank is None:
            return comparison
        if not {IMAGES, TEXTS} <= bank.keys():
            raise RequirementError(
                f"Hubs needs a bank with '{IMAGES}' and '{TEXTS}'; this epoch has {', '.join(sorted(bank)) or 'none'}; "
                "train with a method that keeps one (hal)"
            )
        weights = self._weights(scene, (bank[IMAGES], bank[TEXTS]))
        if weights is None:
            return comparison
        of_images, of_texts, pair_scores, positive = weights
        of_queries, of_candidates = (of_images, of_texts) if self.of == "image_to_text" else (of_texts, of_images)
        rows = len(comparison.scores)
        mass = torch.logaddexp(of_queries[:rows, None], of_candidates[None, :])
        pairs = torch.logaddexp(
            self.negative_scale * pair_scores[:rows, None], self.negative_scale * pair_scores[None, :]
        )
        pushed = self.threshold + torch.sigmoid(mass - pairs) * (comparison.scores - self.threshold)
        pulled = positive[:rows, None] * comparison.scores
        return replace(comparison, scores=torch.where(comparison.truth.match, pulled, pushed))

    def _other_pairs(
        self, bank: tuple[Embeddings, Embeddings], images: Embeddings, texts: Embeddings
    ) -> Bool[Tensor, "p"]:
        """(P) bool, stored pairs that share no item with the batch."""
        shared = torch.isin(bank[1].ids, texts.ids)
        return ~(shared | torch.isin(bank[0].ids, images.ids)) if self.other_pictures else ~shared
