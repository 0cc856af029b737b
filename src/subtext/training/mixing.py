"""Pictures that are partly another one, and how much of which pair each is then."""

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
    """Mixed pictures (PCME++, Chun 2024, section 3.3): some of a batch are blended with another, or have a part of it.

    x_i = lambda x_i + (1 - lambda) x_j (mixup, Zhang et al. 2018), or a rectangle of x_j of the share 1 - lambda in x_i
    (CutMix, Yun et al. 2019; lambda is what is left after the picture's edge has cut it). j counts from the batch's end
    as i does from its start; lambda is drawn from Beta(2, 2).

    share  of the pictures that are mixed, in [0, 1]; 0.25 in the paper
    kind   "mixup", "cutmix", or either by the toss of a coin

    What is drawn for a picture is a function of seed, epoch and its key; whom it is mixed with is the batch's matter.
    """

    share: float = 0.25
    kind: Literal["both", "mixup", "cutmix"] = "both"

    def __call__(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n"]]:
        """The pictures, some of them mixed; and of each how much is its own."""
        drawn = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="mixing", count=5)
        own = np.ones(len(keys))
        mixed, others = pixels.clone(), pixels.flip(0)
        for row in np.flatnonzero(drawn[:, 0] < self.share):
            kept = _beta(float(drawn[row, 2]))
            if self.kind == "cutmix" or (self.kind == "both" and drawn[row, 1] < 0.5):
                height, width = pixels.shape[2:]
                top, bottom = _span(height, kept, float(drawn[row, 3]))
                left, right = _span(width, kept, float(drawn[row, 4]))
                mixed[row, :, top:bottom, left:right] = others[row, :, top:bottom, left:right]
                own[row] = 1 - (bottom - top) * (right - left) / (height * width)
            else:
                mixed[row] = kept * pixels[row] + (1 - kept) * others[row]
                own[row] = kept
        return mixed, torch.from_numpy(own).to(pixels.dtype)


def mixed_truth(own: Float[Tensor, "n"], candidates: int) -> Relevance:
    """How much of every picture belongs to which text, row i of pictures with row i of texts.

    candidates  of both sides, own ones first: those of other processes have no part in these pictures
    """
    count = len(own)
    rows = torch.arange(count)
    matrix = own.new_zeros(count, candidates)
    matrix[rows, rows] += own
    matrix[rows, count - 1 - rows] += 1 - own
    to_images = own.new_zeros(count, candidates)
    to_images[:, :count] = matrix[:, :count].T
    return Relevance(matrix, to_images, MIXED)


def _beta(drawn: float) -> float:
    """A number of Beta(2, 2) from one in [0, 1): the middle root of 3 x^2 - 2 x^3 = drawn."""
    return 0.5 - float(np.sin(np.arcsin(1 - 2 * drawn) / 3))


def _span(length: int, kept: float, place: float) -> tuple[int, int]:
    """From where to where a cut of a side reaches, in pixels, inside the picture."""
    half = int(length * (1 - kept) ** 0.5) // 2
    middle = int(length * place)
    return max(middle - half, 0), min(middle + half, length)
