"""Blocks of scores: a score depends on its pair alone, and memory on the block alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from regions_and_words import random_pairs
from scenes import cast
from torch import Tensor, nn
from torch.nn.functional import pad

from subtext.core import Embeddings
from subtext.errors import ShapeError
from subtext.evaluation.scoring import blocks, matrix
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import Chan, CrossAttention, Imram
from subtext.models.similarity.sgraf import Saf, Sgr

pytestmark = pytest.mark.identity


def items(count: int, *, views: int = 1, width: int = 48, seed: int = 0) -> Embeddings:
    g = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(count, views, width, generator=g), dim=-1)
    return Embeddings(vectors, torch.arange(count))


def joined(
    images: Embeddings, texts: Embeddings, direction: str, block_bytes: int, *, exact: bool, similarity: nn.Module
) -> Tensor:
    """(I T), put together from the blocks of either direction."""
    queries, candidates = (images, texts) if direction == "image_to_text" else (texts, images)
    pieces, reached = [], 0
    for start, stop, scores in blocks(similarity, queries, candidates, direction, block_bytes, exact=exact):
        assert start == reached
        assert scores.shape == (stop - start, len(candidates))
        pieces.append(scores)
        reached = stop
    assert reached == len(queries)
    whole = torch.cat(pieces)
    return whole if direction == "image_to_text" else whole.T


@pytest.mark.parametrize("views", [1, 3])
def test_exact_scores_are_bit_identical_in_any_block(views: int) -> None:
    images, texts = items(150, views=views), items(203, views=2, seed=1) if views > 1 else items(203, seed=1)
    similarity = Cosine(temperature=0.07)
    reference = matrix(similarity, images, texts, exact=True)
    for block_bytes in (1, 10_000, 2**20):
        for direction in ("image_to_text", "text_to_image"):
            again = joined(images, texts, direction, block_bytes, exact=True, similarity=similarity)
            assert torch.equal(again, reference)
    rows, columns = torch.randperm(150), torch.randperm(203)
    assert torch.equal(matrix(similarity, images[rows], texts[columns], exact=True), reference[rows][:, columns])
    alone = matrix(similarity, images[7:8], texts[100:103], exact=True)
    assert torch.equal(alone, reference[7:8, 100:103])


def test_exact_scores_do_not_depend_on_thread_count() -> None:
    images, texts = items(100), items(130, seed=1)
    before = torch.get_num_threads()
    one = matrix(Cosine(), images, texts, exact=True)
    try:
        torch.set_num_threads(2)
        two = matrix(Cosine(), images, texts, exact=True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, two)


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("block_bytes", [1, 3_000, 2**20])
@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_fast_scores_differ_by_rounding_only(views: int, block_bytes: int, direction: str) -> None:
    images, texts = items(33, views=views), items(57, views=views, seed=1)
    plain = torch.einsum("ikd,tld->iktl", images.vectors.double(), texts.vectors.double()).amax(dim=(1, 3))
    fast = joined(images, texts, direction, block_bytes, exact=False, similarity=Cosine())
    torch.testing.assert_close(fast.double(), plain, atol=1e-6, rtol=0)
    exact = joined(images, texts, direction, block_bytes, exact=True, similarity=Cosine())
    torch.testing.assert_close(fast, exact, atol=1e-6, rtol=0)


class Recorder(nn.Module):
    """Remembers how much it was asked at once."""

    indexable = True

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def forward(self, images: Embeddings, texts: Embeddings) -> Tensor:
        self.largest = max(self.largest, len(images) * len(texts) * images.views * texts.views)
        return (images.vectors.flatten(1)[:, None] - texts.vectors.flatten(1)[None]).square().sum(-1).neg()


@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_block_stays_within_byte_limit(direction: str) -> None:
    images, texts = items(90, views=2, width=4), items(120, views=2, width=4, seed=1)
    watch = Recorder()
    first, second = (images, texts) if direction == "image_to_text" else (texts, images)
    for _, _, scores in blocks(watch, first, second, direction, 8_000):
        assert 4 * scores.numel() <= 8_000
    assert 4 * watch.largest <= 8_000


def test_images_are_first_argument_in_both_directions() -> None:
    class Order(nn.Module):
        """Not symmetric: the pictures' first number counts double."""

        indexable = True

        def forward(self, images: Embeddings, texts: Embeddings) -> Tensor:
            return 2 * images.vectors[:, 0, :1] + texts.vectors[:, 0, :1].T

    images, texts = items(5), items(7, seed=1)
    expected = Order()(images, texts)
    for exact in (False, True):
        for direction in ("image_to_text", "text_to_image"):
            assert torch.equal(joined(images, texts, direction, 1, exact=exact, similarity=Order()), expected)


def test_empty_side_raises() -> None:
    with pytest.raises(ShapeError, match="it got 0 and 3"):
        list(blocks(Cosine(), items(3)[0:0], items(3), "image_to_text"))


SOME = {
    "scan, words asking": CrossAttention,
    "scan, regions asking": lambda: CrossAttention(attending="image_to_text", pooling="mean"),
    "chan": Chan,
    "imram": lambda: Imram(width=48),
    "saf": lambda: Saf(width=48, nodes=32),
    "sgr": lambda: Sgr(width=48, nodes=32),
    "ascl": lambda: Ascl(width=48),
}


def assert_equal_to_the_bit(similarity: nn.Module, width: int) -> None:
    """Scores are the same to the bit in another order, and of fewer items."""
    images, texts, _ = random_pairs(width, pictures=66, texts=24)
    images, texts = cast(images, torch.float32), cast(texts, torch.float32)
    rows, columns = (torch.randperm(count, generator=torch.Generator().manual_seed(3)) for count in (66, 24))
    reference = matrix(similarity.eval(), images, texts)
    assert reference.std() > 0
    assert torch.equal(matrix(similarity, images[rows], texts[columns]), reference[rows][:, columns])
    assert torch.equal(matrix(similarity, images[7:8], texts[5:8]), reference[7:8, 5:8])


UNEVEN = {
    "scan, regions asking": lambda width, nodes, half: CrossAttention(
        attending="image_to_text", pooling="mean", bf16=half
    ),
    "scan, words asking": lambda width, nodes, half: CrossAttention(bf16=half),
    "chan": lambda width, nodes, half: Chan(bf16=half),
    "imram": lambda width, nodes, half: Imram(width=width, bf16=half),
    "saf": lambda width, nodes, half: Saf(width=width, nodes=nodes, bf16=half),
    "sgr": lambda width, nodes, half: Sgr(width=width, nodes=nodes, bf16=half),
    "ascl": lambda width, nodes, half: Ascl(width=width, bf16=half),
    "ascl, heads of a few numbers": lambda width, nodes, half: Ascl(
        width=width, heads={30: 10, 47: 1, 50: 5}[width], fusion="concat", bf16=half
    ),
}
"""Similarities of any width of parts and of nodes."""


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize(("width", "nodes"), [(30, 6), (47, 10), (50, 10)])
def test_scores_of_any_width_are_bit_identical(name: str, width: int, nodes: int) -> None:
    assert_equal_to_the_bit(UNEVEN[name](width, nodes, False), width)


@pytest.mark.parametrize("name", UNEVEN)
def test_half_precision_scores_are_bit_identical(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.ops.numerics.supported", lambda device="cpu": True)
    assert_equal_to_the_bit(UNEVEN[name](50, 6, True), 50)


@pytest.mark.parametrize("name", SOME)
def test_pair_scores_are_bit_identical_in_any_block(name: str) -> None:
    images, texts, _ = random_pairs(48, pictures=70, texts=90)
    images, texts = cast(images, torch.float32), cast(texts, torch.float32)
    rows, columns = torch.randperm(70), torch.randperm(90)
    similarity = SOME[name]().eval()
    reference = matrix(similarity, images, texts)
    for block_bytes in (1, 2**20):
        for direction in ("image_to_text", "text_to_image"):
            again = joined(images, texts, direction, block_bytes, exact=False, similarity=similarity)
            assert torch.equal(again, reference)
    assert torch.equal(matrix(similarity, images[rows], texts[columns]), reference[rows][:, columns])
    alone = matrix(similarity, images[7:8], texts[50:53])
    assert torch.equal(alone, reference[7:8, 50:53])
    wider = replace(texts, parts=pad(texts.parts, (0, 0, 0, 9)), mask=pad(texts.mask, (0, 9)))
    assert torch.equal(matrix(similarity, images, wider), reference)
    assert torch.equal(matrix(similarity, images, texts, in_file=True), reference)
    largest = float(reference.abs().max())
    apart = (similarity(images, texts).detach() - reference).abs().amax(dim=0) / largest
    several = texts.mask.sum(dim=1) > 1
    assert float(apart[several].max()) < 1e-6
    # IMRAM divides a single word's product by its own size: near zero its sign decides, and steps carry that on.
    assert float(apart.max()) < (1e-4 if name == "imram" else 1e-6)
