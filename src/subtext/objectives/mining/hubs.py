"""Hubs: cells count by how near their items are to a bank of others."""

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
"""Names in Epoch.bank of the images and of the texts of the kept pairs, row i of one with row i of the other."""


@dataclass(frozen=True)
class Hubs:
    """Hubness weights from a bank (HAL, Liu et al. 2020): items that are near many others count more.

    A_i = sum_{t in T_i} exp(beta t - below), T_i the largest `nearest` scores of item i with the bank's other modality
    W_ij = (A_i + A_j) / (A_i + A_j + exp(beta s_ii) + exp(beta s_jj))       for an image i and a text j, not a pair
    w_i  = 1 - exp(alpha (s_ii - above)) / (exp(alpha (s_ii - above)) + P_i + P'_i),   P as A, of exp(alpha (t - above))
    for the image and the text of pair i. The loss then reads threshold + W (s - threshold) for a negative's score s,
    and w s for a positive's. All weights are cut off from the graph.

    The bank comes with the Epoch and not as further columns of the comparison: W_ij needs what the bank says of the
    candidate as well, other processes' candidates too, and columns would be negatives for every other term.

    of               direction whose comparison is given
    threshold        of the loss, `HAL`, in score units
    positive_scale, positive_threshold  alpha and `above`; 40 and 0.2
    negative_scale, negative_threshold  beta and `below`; 40 and 0.1
    nearest          scores of the bank that count; 250, and never more than there are pairs in the batch
    inside           whether `below` is multiplied by beta, exp(beta (t - below)), as the positive part has it; their
                     code leaves it outside
    other_pictures   whether kept pairs of the batch's images are left out, too, and not only those of its texts.
                     Their code takes other captions of the same image for wrong

    Takes     Scene of pairs with their embeddings, of plain cosines; Epoch.bank with "hubs/image" and "hubs/text".
    Gives     the Comparison with other scores; as it is without a bank, as in validation, and where the bank holds no
              other pair.
    Raises    RequirementError for a bank of something else, without embeddings, and where images and texts are no
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
        """Of every pair of the batch: log A of its image and of its text, its score, w; None without a bank."""
        images, texts = batch_items(scene)
        if len(images) != len(texts):
            raise RequirementError(
                f"Hubs needs an image for each text of the batch; it got {len(images)} images and {len(texts)} "
                "texts; take captions=all or one"
            )
        kept = self._others(bank, images, texts)
        if not bool(kept.any()):
            return None
        own = best_views(images.vectors, texts.vectors).diagonal()
        count = min(self.nearest, len(images), int(kept.sum()))
        near = [
            best_views(items.vectors, others.vectors[kept]).topk(count, dim=1).values
            for items, others in ((images, bank[1]), (texts, bank[0]))
        ]
        beta = self.negative_scale
        below = beta * self.negative_threshold if self.inside else self.negative_threshold
        hubs = [(beta * scores - below).logsumexp(dim=1) for scores in near]
        alpha, above = self.positive_scale, self.positive_threshold
        pulls = torch.logaddexp(*[(alpha * (scores - above)).logsumexp(dim=1) for scores in near])
        return hubs[0], hubs[1], own, torch.sigmoid(pulls - alpha * (own - above))

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison with the scores that the loss is to read."""
        comparison = scene.comparison(self.of)
        bank = epoch.bank
        if bank is None:
            return comparison
        if not {IMAGES, TEXTS} <= bank.keys():
            raise RequirementError(
                f"Hubs needs a bank with '{IMAGES}' and '{TEXTS}'; this epoch has {', '.join(sorted(bank)) or 'none'}; "
                "train with a method that keeps one (hal)"
            )
        found = self._weights(scene, (bank[IMAGES], bank[TEXTS]))
        if found is None:
            return comparison
        of_images, of_texts, own, positive = found
        asking, asked = (of_images, of_texts) if self.of == "image_to_text" else (of_texts, of_images)
        rows = len(comparison.scores)
        mass = torch.logaddexp(asking[:rows, None], asked[None, :])
        pairs = torch.logaddexp(self.negative_scale * own[:rows, None], self.negative_scale * own[None, :])
        pushed = self.threshold + torch.sigmoid(mass - pairs) * (comparison.scores - self.threshold)
        pulled = positive[:rows, None] * comparison.scores
        return replace(comparison, scores=torch.where(comparison.truth.match, pulled, pushed))

    def _others(self, bank: tuple[Embeddings, Embeddings], images: Embeddings, texts: Embeddings) -> Bool[Tensor, "p"]:
        """(P) which kept pairs are of none of the batch's."""
        known = torch.isin(bank[1].ids, texts.ids)
        return ~(known | torch.isin(bank[0].ids, images.ids)) if self.other_pictures else ~known
