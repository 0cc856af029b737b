"""SCAN's scores from products of regions with each other, beside a loop over captions that forms every context."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, leaky_relu

from benchmarks.common import options
from benchmarks.pairs import LENGTHS, REGIONS, WIDTH, Contest, run
from subtext.core import Embeddings
from subtext.models.similarity.cross_attention import Attending, CrossAttention


def plain(similarity: nn.Module, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture: attention, contexts, cosines, and a soft maximum."""
    assert images.parts is not None and text.parts is not None
    assert isinstance(similarity, CrossAttention)
    regions, words = images.parts, text.parts.expand(len(images), -1, -1).contiguous()
    ours, theirs = (words, regions) if similarity.attending == "text_to_image" else (regions, words)
    fits = leaky_relu(torch.bmm(theirs, ours.mT), 0.1)
    fits = fits / (fits.pow(2).sum(dim=2, keepdim=True).sqrt() + 1e-8)
    weights = torch.softmax(fits.mT.contiguous() * similarity.attention_scale, dim=2)
    contexts = torch.bmm(weights, theirs)
    cosines = cosine_similarity(ours, contexts, dim=2)
    return cosines.mul(similarity.pooling_scale).exp().sum(dim=1).log() / similarity.pooling_scale


def main() -> None:
    """Measure both ways of attending and print."""
    asked = options("SCAN, beside a loop over captions", repeats=5, quick_repeats=2)
    sides: tuple[Attending, Attending] = ("text_to_image", "image_to_text")
    for side in sides:
        contest = Contest(
            f"scan {side}",
            "a loop over captions that forms every context (as the reference)",
            lambda bf16, side=side: CrossAttention(attending=side, bf16=bf16),
            plain,
        )
        run(asked, contest, products=REGIONS * WIDTH * sum(LENGTHS) // len(LENGTHS))


if __name__ == "__main__":
    main()
