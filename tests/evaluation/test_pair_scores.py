"""Chosen pairs in float64, as two stages score them, one pair at a time in plain loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from plain_similarities import ascl_slowly, imram_slowly, scan_slowly
from regions_and_words import random_pairs
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.evaluation.two_stages.scores import Shortlists, pair_scores, reranked_scores
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cross_attention import CrossAttention, Imram

pytestmark = pytest.mark.golden

Slow = Callable[[nn.Module, Embeddings, int, Tensor, Tensor], float]
KINDS: dict[str, tuple[Callable[[], nn.Module], Slow]] = {
    "scan": (
        CrossAttention,
        lambda part, images, i, regions, words: scan_slowly(regions, words, "text_to_image", "lse"),
    ),
    "imram": (
        lambda: Imram(width=8, queries="text", steps=3),
        lambda part, images, i, regions, words: imram_slowly(part.memories["text"], words, regions, 3),
    ),
    "ascl": (
        lambda: Ascl(width=8, heads=4),
        lambda part, images, i, regions, words: ascl_slowly(part, regions, words, images.vectors[i, 0]),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_selected_pair_scores_equal_plain_loops(kind: str) -> None:
    """Pictures have a hidden region, texts unequal lengths, and what lies behind a mask is large."""
    make, slow = KINDS[kind]
    similarity = make().double().eval()
    images, texts, alone = random_pairs()
    chosen = np.array([pair for number, pair in enumerate(np.ndindex(5, 7)) if number % 3 != 1])
    with torch.no_grad():
        wanted = {(i, t): slow(similarity, images, i, regions, words) for i, t, regions, words in alone}
    found = pair_scores(similarity, images, texts, chosen)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [wanted[tuple(pair)] for pair in chosen.tolist()], atol=1e-6, rtol=0)


def test_scores_keep_precision_of_similarity() -> None:
    images, texts, _ = random_pairs()
    lists = Shortlists(np.array([[t % 7, (t + 3) % 7] for t in range(5)]), np.array([[i % 5] for i in range(7)]))
    whole = CrossAttention()(images, texts).numpy()
    both = reranked_scores(CrossAttention(), images, texts, lists)
    # Closer than float32 could tell.
    np.testing.assert_allclose(both["image_to_text"], np.take_along_axis(whole, lists.image_to_text, 1), rtol=1e-12)
    np.testing.assert_allclose(both["text_to_image"], np.take_along_axis(whole.T, lists.text_to_image, 1), rtol=1e-12)
    half = [
        Embeddings(items.vectors.half(), items.ids, parts=items.parts.half(), mask=items.mask)
        for items in (images, texts)
    ]
    pairs = np.stack(np.divmod(np.arange(35), 7), axis=1)
    assert pair_scores(CrossAttention(), *half, pairs).dtype == np.float32
    assert len(pair_scores(CrossAttention(), images, texts, pairs[:0])) == 0
