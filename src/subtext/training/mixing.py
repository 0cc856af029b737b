"""Images that are partly another one, and how much of which pair each is then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.inputs import Draw
from subtext.objectives.losses.soft_contrastive import MIXED
from subtext.objectives.scene import Relevance
from subtext.ops import draw as draws


@dataclass(frozen=True)
class Mixing:
    """Mixed images (PCME++, Chun 2024, section 3.3): some of a batch are blended with another, or have a part of it.

    x_i = lambda x_i + (1 - lambda) x_j (mixup, Zhang et al. 2018), or a rectangle of x_j of the share 1 - lambda in x_i
    (CutMix, Yun et al. 2019; lambda is what is left after the image's edge has cut it). j counts from the batch's end
    as i does from its start; lambda is drawn from Beta(2, 2).

    share  of the images that are mixed, in [0, 1]; 0.25 in the paper
    kind   "mixup", "cutmix", or either by the toss of a coin

    What is drawn for an image is a function of seed, epoch and its key; whom it is mixed with is the batch's matter.
    """

    share: float = 0.25
    kind: Literal["both", "mixup", "cutmix"] = "both"

    def __call__(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n"]]:
        """The images, some of them mixed; and of each how much is its own."""
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="mixing", count=5)
        shares = np.ones(len(keys))
        mixed, partners = pixels.clone(), pixels.flip(0)
        for row in np.flatnonzero(samples[:, 0] < self.share):
            share = _beta(float(samples[row, 2]))
            if self.kind == "cutmix" or (self.kind == "both" and samples[row, 1] < 0.5):
                height, width = pixels.shape[2:]
                top, bottom = _span(height, share, float(samples[row, 3]))
                left, right = _span(width, share, float(samples[row, 4]))
                mixed[row, :, top:bottom, left:right] = partners[row, :, top:bottom, left:right]
                shares[row] = 1 - (bottom - top) * (right - left) / (height * width)
            else:
                mixed[row] = share * pixels[row] + (1 - share) * partners[row]
                shares[row] = share
        return mixed, torch.from_numpy(shares).to(pixels.dtype)


def mixed_truth(shares: Float[Tensor, "n"], candidates: int) -> Relevance:
    """How much of every image belongs to which text, row i of images with row i of texts.

    candidates  of both sides, own ones first: those of other processes have no part in these images
    """
    count = len(shares)
    rows = torch.arange(count)
    matrix = shares.new_zeros(count, candidates)
    matrix[rows, rows] += shares
    matrix[rows, count - 1 - rows] += 1 - shares
    to_images = shares.new_zeros(count, candidates)
    to_images[:, :count] = matrix[:, :count].T
    return Relevance(matrix, to_images, MIXED)


def _beta(uniform: float) -> float:
    """A number of Beta(2, 2) from one in [0, 1): the middle root of 3 x^2 - 2 x^3 = drawn."""
    return 0.5 - float(np.sin(np.arcsin(1 - 2 * uniform) / 3))


def _span(length: int, share: float, position: float) -> tuple[int, int]:
    """From where to where a cut of a side reaches, in pixels, inside the image."""
    half = int(length * (1 - share) ** 0.5) // 2
    middle = int(length * position)
    return max(middle - half, 0), min(middle + half, length)
