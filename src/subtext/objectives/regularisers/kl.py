"""KL divergence of the distributions of items from the standard normal distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Embeddings, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items
from subtext.ops.numerics import precise


@dataclass(frozen=True)
class KL:
    """Divergence from N(0, 1) (PCME, Chun et al. 2021, section 3.3; PCME++, Chun 2024): deviations should not vanish.

    value = -1/2 sum over items and dimensions of (1 + l - m^2 - exp(l)),   l = 2 log_std, the log of the variance
    for images + the same for texts. m is the mean of an item's vectors: of its samples, or mu.

    of         "both", or one modality alone: where processes share a batch, each modality has a share of its own
    over       "sum" of items and dimensions as in PCME, "mean" of them as in PCME++
    published  l = log_std, as in PCME's code, which samples with the same number as a log deviation; the minimum is
               still at a deviation of 1

    Takes     Scene whose comparisons hold embeddings with log_std, which gaussian heads give.
    Gives     () >= 0. The gradient reaches vectors and deviations of this process's pairs.
    Raises    RequirementError where a modality has no deviations, and for an unknown setting.
    Cost      B K D.

    >>> from subtext.core import Comparison, Truth
    >>> x = Embeddings(torch.zeros(1, 1, 1), torch.arange(1), log_std=torch.full((1, 1, 1), 0.5))
    >>> forward = Comparison(torch.zeros(1, 1), Truth(torch.ones(1, 1, dtype=torch.bool)), x, x)
    >>> round(KL()(Scene(forward, forward.flip())).item(), 4)  # 2 * (e - 2) / 2
    0.7183
    """

    of: Literal["both", "image", "text"] = "both"
    over: Literal["sum", "mean"] = "sum"
    published: bool = False

    def __post_init__(self) -> None:
        if self.of not in ("both", "image", "text") or self.over not in ("sum", "mean"):
            raise RequirementError(
                f"KL needs of 'both', 'image' or 'text' and over 'sum' or 'mean'; it got '{self.of}' and '{self.over}'"
            )

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch."""
        sides = {"image": scene.image_to_text.queries, "text": scene.text_to_image.queries}
        values = []
        for (side, items), count in zip(sides.items(), self._sizes(scene), strict=True):
            if self.of in ("both", side):
                # The mean of this process's items times the full batch: this process's share of the sum.
                values.append(self._mean(side, items) * (count if self.over == "sum" else 1))
        return torch.stack(values).sum()

    def _sizes(self, scene: Scene) -> tuple[int, int]:
        if scene.image_to_text.candidates is None or scene.text_to_image.candidates is None:
            return 1, 1
        images, texts = batch_items(scene)
        return len(images), len(texts)

    def _mean(self, side: str, items: Embeddings | None) -> Float[Tensor, ""]:
        """Over items; over dimensions too, or their sum."""
        if items is None or items.log_std is None:
            raise RequirementError(
                f"KL needs the deviations of every {side}, which gaussian heads give; this batch has none; give the "
                f"{side} branch a gaussian head, or leave the penalty out"
            )
        log_variance = precise(items.log_std).mean(dim=1) * (1 if self.published else 2)
        means = precise(items.vectors).mean(dim=1)
        cells = -0.5 * (1 + log_variance - means.square() - log_variance.exp())
        return (cells.sum(dim=1) if self.over == "sum" else cells.mean(dim=1)).mean()
