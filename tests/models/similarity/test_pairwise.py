"""CHAN, IMRAM and AsCL: the cards' numbers (B4, B6), and one pair at a time in plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from plain_similarities import ascl_slowly, gathered, imram_slowly
from regions_and_words import card_items, det, of_parts, random_pairs
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from subtext.core import Embeddings
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cross_attention import Chan, Imram

pytestmark = pytest.mark.golden

CHAN = {
    "mean": [[0.85570743, 0.76709192, 0.97552566], [0.84097728, 0.93948616, 0.58492788]],
    "lse": [[10.67840761, 9.76990371, 10.44841778], [10.45390847, 10.49414428, 6.57072563]],
}


@pytest.mark.parametrize("pooling", CHAN)
def test_chan_equals_worked_values(pooling: str) -> None:
    scores = Chan(pooling=pooling)(*card_items())
    # The authors' code adds 1e-8 to lengths when it normalises regions and words once more: two parts in 1e8.
    torch.testing.assert_close(scores, torch.tensor(CHAN[pooling], dtype=torch.float64), atol=1e-8, rtol=2e-8)


def test_chan_pair_scores_equal_plain_loops() -> None:
    images, texts, alone = random_pairs()
    mean, soft = Chan(pooling="mean")(images, texts), Chan()(images, texts)
    for i, t, regions, words in alone:
        best = [max(float(word @ region) for region in regions) for word in words]
        assert float(mean[i, t]) == pytest.approx(sum(best) / len(best))
        assert float(soft[i, t]) == pytest.approx(math.log(sum(math.exp(10 * one) for one in best)))


@pytest.mark.parametrize("asking", ["text", "image", "full"])
def test_imram_pair_scores_equal_plain_loops(asking: str) -> None:
    similarity = Imram(width=8, queries=asking, steps=3).double()
    images, texts, alone = random_pairs()
    with torch.no_grad():
        scores = similarity(images, texts)
        for i, t, regions, words in alone:
            wanted = 0.0
            if asking != "image":
                wanted += imram_slowly(similarity.memories["text"], words, regions, 3)
            if asking != "text":
                wanted += imram_slowly(similarity.memories["image"], regions, words, 3)
            assert float(scores[i, t]) == pytest.approx(wanted, abs=1e-7)


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any tensor had that was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self.numbers = max(self.numbers, found.numel())
        return found


@pytest.mark.parametrize("asking", ["text", "image", "full"])
def test_imram_builds_no_context_matrix(asking: str) -> None:
    """8 x 8 pairs of 4 regions and 3 words, width 512: a context of every word would be 98,304 numbers."""
    similarity = Imram(width=512, queries=asking, steps=1)
    images, texts = (of_parts(det((8, parts, 512), phase).float()) for parts, phase in ((4, 0.2), (3, 0.9)))
    images.parts.requires_grad_()
    with Largest() as watch:
        similarity(images, texts).sum().backward()
    assert watch.numbers <= 8 * 4 * 512


def with_heads(layer: nn.Linear, weights: list[Tensor]) -> None:
    """Z_h, one (D, D / H) a head, side by side; a layer keeps its transpose."""
    with torch.no_grad():
        layer.weight.copy_(torch.cat(weights, dim=1).T)


def test_ascl_equals_worked_values() -> None:
    similarity = Ascl(width=4, heads=2, fusion="mean", temperature=1.0).double()
    for direction in (similarity.by_words, similarity.by_regions):
        with_heads(direction.query, [0.5 * det((4, 2), 0.1 + h) for h in range(2)])
        with_heads(direction.key, [0.5 * det((4, 2), 0.6 + h) for h in range(2)])
        with_heads(direction.out, [0.5 * det((4, 4), 1.1)])
    with_heads(similarity.by_regions.whole, [0.5 * det((4, 4), 0.2)])
    with_heads(similarity.by_words.whole, [0.5 * det((4, 4), 0.5)])
    with_heads(similarity.image_map, [0.5 * det((4, 4), 0.8)])
    images = Embeddings(det((1, 1, 4), 1.7), torch.arange(1), parts=det((1, 3, 4), 0.2))
    texts = of_parts(det((1, 2, 4), 0.9))
    regions, words = det((3, 4), 0.2), det((2, 4), 0.9)
    of_regions = [0.03878788, 0.05057884, 0.03858178, 0.00843911]
    of_words = [-0.01692561, -0.02152185, -0.01599602, -0.00294702]
    assert gathered(similarity, similarity.by_regions, regions, words)[0].tolist() == pytest.approx(
        of_regions, abs=1e-8
    )
    assert gathered(similarity, similarity.by_words, words, regions)[0].tolist() == pytest.approx(of_words, abs=1e-8)
    similarity.local_share = 0.8
    with torch.no_grad():
        picture, text = similarity.pair_vectors(images, texts)[0, 0]
    assert float(picture @ text / picture.norm() / text.norm()) == pytest.approx(0.934845965480, abs=1e-11)
    for share, wanted in ((1.0, -0.132298641227), (0.0, 0.934845965480), (0.8, 0.081130280115)):
        similarity.local_share = share
        assert float(similarity(images, texts).detach()) == pytest.approx(wanted, abs=1e-11)


@pytest.mark.parametrize("fusion", ["gated", "mean", "sum", "concat", "none"])
@pytest.mark.parametrize("directions", ["separate", "shared"])
def test_ascl_pair_scores_equal_plain_loops(fusion: str, directions: str) -> None:
    similarity = Ascl(width=8, heads=4, fusion=fusion, directions=directions, local_share=0.6).double()
    images, texts, alone = random_pairs()
    with torch.no_grad():
        scores = similarity(images, texts)
        for i, t, regions, words in alone:
            wanted = ascl_slowly(similarity, regions, words, images.vectors[i, 0])
            assert float(scores[i, t]) == pytest.approx(wanted, abs=1e-6)
