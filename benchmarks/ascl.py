"""AsCL's scores with contexts folded away, beside a loop over captions that forms them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from benchmarks.common import options
from benchmarks.pairs import LENGTHS, REGIONS, WIDTH, Contest, run
from subtext.core import Embeddings
from subtext.models.similarity.ascl import Ascl


def gathered(direction: nn.Module, heads: int, own: Tensor, others: Tensor) -> Tensor:
    """Y* of every item: (I P D)."""

    def split(values: Tensor) -> Tensor:
        return values.unflatten(2, (heads, -1)).transpose(1, 2)

    asking, keys = split(direction.query(own)), split(direction.key(others))
    weights = torch.softmax(asking @ keys.mT / math.sqrt(keys.shape[3]), dim=3)
    return direction.out((weights @ keys).transpose(1, 2).flatten(2))


def plain(similarity: nn.Module, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture."""
    assert isinstance(similarity, Ascl) and images.parts is not None and text.parts is not None
    assert similarity.fusion is not None and similarity.image_map is not None
    regions, words = images.parts, text.parts.expand(len(images), -1, -1).contiguous()
    seen = gathered(similarity.by_words, similarity.heads, words, regions)
    said = gathered(similarity.by_regions, similarity.heads, regions, words)
    local = cosine_similarity(regions, said, dim=2).mean(dim=1) + cosine_similarity(words, seen, dim=2).mean(dim=1)
    picture = similarity.fusion(similarity.by_words.whole(seen.mean(dim=1)), similarity.image_map(images.vectors[:, 0]))
    whole = cosine_similarity(picture, similarity.by_regions.whole(said.mean(dim=1)), dim=1)
    return (similarity.local_share * local / 2 + (1 - similarity.local_share) * whole) / similarity.temperature


def main() -> None:
    """Measure and print."""
    asked = options("AsCL, beside a loop over captions", repeats=3, quick_repeats=1)
    contest = Contest(
        "ascl",
        "a loop over captions that forms every context (no public code is known)",
        lambda bf16: Ascl(width=WIDTH, bf16=bf16),
        plain,
    )
    run(asked, contest, products=4 * REGIONS * WIDTH * sum(LENGTHS) // len(LENGTHS))


if __name__ == "__main__":
    main()
