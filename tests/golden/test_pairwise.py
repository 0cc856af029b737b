"""CHAN, IMRAM and AsCL: the cards' numbers (B4, B6), and one pair at a time in plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from pairs import card_items, det, of_parts, random_pairs
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from subtext.core import Embeddings
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cross_attention import Chan, Imram

CHAN = {
    "mean": [[0.85570743, 0.76709192, 0.97552566], [0.84097728, 0.93948616, 0.58492788]],
    "lse": [[10.67840761, 9.76990371, 10.44841778], [10.45390847, 10.49414428, 6.57072563]],
}


def cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


@pytest.mark.parametrize("pooling", CHAN)
def test_chan_has_the_cards_values(pooling: str) -> None:
    scores = Chan(pooling=pooling)(*card_items())
    # The authors' code adds 1e-8 to lengths when it normalises regions and words once more: two parts in 1e8.
    torch.testing.assert_close(scores, torch.tensor(CHAN[pooling], dtype=torch.float64), atol=1e-8, rtol=2e-8)


def test_chan_one_pair_at_a_time() -> None:
    images, texts, alone = random_pairs()
    mean, soft = Chan(pooling="mean")(images, texts), Chan()(images, texts)
    for i, t, regions, words in alone:
        best = [max(float(word @ region) for region in regions) for word in words]
        assert float(mean[i, t]) == pytest.approx(sum(best) / len(best))
        assert float(soft[i, t]) == pytest.approx(math.log(sum(math.exp(10 * one) for one in best)))


def imram_slowly(memory: nn.Module, own: Tensor, others: Tensor, steps: int) -> float:
    asked, total = own, 0.0
    for _ in range(steps):
        fits = torch.tensor([[max(f := float(q @ o), 0.1 * f) for o in others] for q in asked], dtype=torch.float64)
        weights = (9 * fits / (fits.norm(dim=0) + 1e-8)).softmax(dim=1)
        contexts = weights @ others
        total += sum(cosine(w, c) for w, c in zip(own, contexts, strict=True)) / len(own)
        both = torch.cat([asked, contexts], dim=1)
        gate = torch.sigmoid(memory.gate(both))
        asked = gate * asked + (1 - gate) * torch.tanh(memory.new(both))
    return total


@pytest.mark.parametrize("asking", ["text", "image", "full"])
def test_imram_one_pair_at_a_time(asking: str) -> None:
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
def test_imram_forms_no_context(asking: str) -> None:
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


def test_ascl_has_the_cards_values() -> None:
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


def gathered(part: Ascl, direction: nn.Module, own: Tensor, others: Tensor) -> Tensor:
    """What each of `own` gathers of the others, formed head by head."""
    asking, keys = direction.query(own), direction.key(others)
    each = own.shape[1] // part.heads
    found = []
    for h in range(part.heads):
        cut = slice(h * each, (h + 1) * each)
        weights = (asking[:, cut] @ keys[:, cut].T / math.sqrt(each)).softmax(dim=1)
        found.append(weights @ keys[:, cut])
    return direction.out(torch.cat(found, dim=1))


def ascl_slowly(part: Ascl, regions: Tensor, words: Tensor, picture: Tensor) -> float:
    """Contexts formed head by head, and fused by the module itself."""
    v, w = gathered(part, part.by_words, words, regions), gathered(part, part.by_regions, regions, words)
    local = sum(map(cosine, regions, w)) / len(regions) / 2 + sum(map(cosine, words, v)) / len(words) / 2
    seen, said = part.by_words.whole(v.mean(dim=0)), part.by_regions.whole(w.mean(dim=0))
    if part.fusion is not None:
        seen = part.fusion(seen, part.image_map(picture))
    return (part.local_share * local + (1 - part.local_share) * cosine(seen, said)) / part.temperature


@pytest.mark.parametrize("fusion", ["gated", "mean", "sum", "concat", "none"])
@pytest.mark.parametrize("directions", ["separate", "shared"])
def test_ascl_one_pair_at_a_time(fusion: str, directions: str) -> None:
    similarity = Ascl(width=8, heads=4, fusion=fusion, directions=directions, local_share=0.6).double()
    images, texts, alone = random_pairs()
    with torch.no_grad():
        scores = similarity(images, texts)
        for i, t, regions, words in alone:
            wanted = ascl_slowly(similarity, regions, words, images.vectors[i, 0])
            assert float(scores[i, t]) == pytest.approx(wanted, abs=1e-6)


def test_the_order_of_words_has_no_say_in_ascl() -> None:
    """Card B4.2: shuffling the states of a text leaves the score as it is; a shuffle has to come before the encoder."""
    similarity = Ascl(width=8, heads=2).double()
    images, texts = of_parts(det((2, 3, 8), 0.2)), of_parts(det((2, 5, 8), 0.9))
    shuffled = of_parts(texts.parts[:, torch.randperm(5)])
    torch.testing.assert_close(similarity(images, shuffled), similarity(images, texts), atol=1e-6, rtol=0)
