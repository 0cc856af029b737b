"""CHAN's scores, every text's words with every picture's regions at once, beside a loop over captions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.common import options
from benchmarks.pairs import LENGTHS, REGIONS, WIDTH, Contest, run
from subtext.core import Embeddings
from subtext.models.similarity.cross_attention import Chan


def plain(similarity: nn.Module, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture."""
    assert images.parts is not None and text.parts is not None
    fits = torch.bmm(images.parts, text.parts.expand(len(images), -1, -1).contiguous().mT)
    return torch.logsumexp(fits.max(dim=1).values / 0.1, dim=1)


def main() -> None:
    """Measure and print."""
    asked = options("CHAN, beside a loop over captions", repeats=5, quick_repeats=2)
    contest = Contest("chan", "a loop over captions (as the reference)", lambda bf16: Chan(bf16=bf16), plain)
    run(asked, contest, products=REGIONS * WIDTH * sum(LENGTHS) // len(LENGTHS))


if __name__ == "__main__":
    main()
