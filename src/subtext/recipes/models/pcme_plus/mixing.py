"""Mixed images (Chun 2024, section 3.3): some images of a batch are blended with another, or have a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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

    What is sampled for an image is a function of seed, epoch and its key; its partner depends on the batch.

    Args:
        share: Of the images that are mixed, in [0, 1]; 0.25 in the paper.
        kind: "mixup", "cutmix", or either by the toss of a coin.
    """

    share: float = 0.25
    kind: Literal["both", "mixup", "cutmix"] = "both"
    needs_pairs: ClassVar[tuple[str, str]] = ("mixed images", "turn mixing off (pcme_plus: mix_prob=0)")

    def mix(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw, *, candidates: int
    ) -> tuple[Float[Tensor, "n c h w"], Relevance]:
        """Mix the images that one process has of a batch.

        Args:
            pixels: (N C H W) its images.
            keys: (N) their keys, of which samples are a function.
            draw: Seed and epoch.
            candidates: Number of images, or texts, of the complete batch; those of this process come first.

        Returns:
            (N C H W) images, and how much of every image belongs to which text.
        """
        mixed, shares = self(pixels, keys, draw)
        return mixed, mixed_truth(shares, candidates)

    def __call__(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n"]]:
        """Mix some of the images.

        Args:
            pixels: (N C H W) images.
            keys: (N) their keys.
            draw: Seed and epoch.

        Returns:
            (N C H W) images, some of them mixed, and (N) the share of each that is its own, in [0, 1].
        """
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="mixing", count=5)
        shares = np.ones(len(keys))
        mixed, partners = pixels.clone(), pixels.flip(0)
        for row in np.flatnonzero(samples[:, 0] < self.share):
            # Of Beta(2, 2): the middle root of 3 x^2 - 2 x^3 = the sample.
            share = 0.5 - float(np.sin(np.arcsin(1 - 2 * samples[row, 2]) / 3))
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

    Args:
        shares: (N) share of each image that is its own, in [0, 1]; the rest is of the image at N - 1 - i.
        candidates: Number of images, or texts, of the complete batch; those of other processes have no part in these
            images.

    Returns:
        (N candidates) of images with texts, and of texts with images.
    """
    count = len(shares)
    rows = torch.arange(count)
    matrix = shares.new_zeros(count, candidates)
    matrix[rows, rows] += shares
    matrix[rows, count - 1 - rows] += 1 - shares
    to_images = shares.new_zeros(count, candidates)
    to_images[:, :count] = matrix[:, :count].T
    return Relevance(matrix, to_images, MIXED)


def _span(length: int, share: float, position: float) -> tuple[int, int]:
    """From where to where a cut of a side reaches, in pixels, inside the image."""
    half = int(length * (1 - share) ** 0.5) // 2
    middle = int(length * position)
    return max(middle - half, 0), min(middle + half, length)
