"""Scores of every image with every text, for similarities that need their regions and words together.

A similarity implements the score of some images with texts of one length. Pairs are split into such blocks: texts of
equal length need no mask, and a block fits the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.ops.numerics import padded, parts_first, precise

BLOCK_FLOATS = 2**23
"""Numbers that a block may take in evaluation: a few texts, in the cache."""
GPU_BLOCK_FLOATS = 2**28
"""The same on a GPU, which has no use for the cache of a processor: a block is one call of 64 images and 64 texts."""
KEPT_FLOATS = 2**27
"""Numbers that blocks may take in training; further blocks are recomputed in the backward pass."""
IMAGES_PER_BLOCK = 64
"""Images per block in evaluation."""


class PairSimilarity(nn.Module):
    """A similarity that reads regions and words, and not one vector an item.

    A subclass scores some images with texts of one length, without a mask, in `score`. It may compute terms of images
    alone, once for all texts, in `prepare`. In evaluation the texts of a block are a power of two, so that blocks of a
    tile of scores are alike.

    Attributes:
        width: Of regions and words, where the similarity has weights of that width; None for any.
        block: Numbers per block in evaluation. More where much is read of every image each time.
    """

    indexable = False
    width: int | None = None
    block = BLOCK_FLOATS

    def forward(self, images: Embeddings, texts: Embeddings, prepared: Any = None) -> Float[Tensor, "i t *more"]:
        """Scores of every image with every text, larger is better.

        Args:
            images: I items with parts, R at most.
            texts: T items with parts of the same width.
            prepared: The result of `prepare` for these images, at most 64; None to compute it.

        Returns:
            (I T), or more numbers a pair behind it if `score` gives them.

        Raises:
            RequirementError: If items have no parts.
            ShapeError: If parts are of unequal widths.
        """
        return self.all_pairs(images, texts, self.score, prepared)

    def prepare(self, images: Embeddings) -> Any:
        """The terms of images alone, for scoring them with texts in several calls.

        Args:
            images: I items with parts.

        Returns:
            What `score` takes as `prepared`; None if there are no such terms.
        """

    def score(self, images: Embeddings, prepared: Any, texts: Embeddings) -> Float[Tensor, "i t *more"]:
        """Scores of some images with texts of one length.

        Args:
            images: I items with parts.
            prepared: The result of `prepare` for these images.
            texts: T items, all with as many parts, without a mask.

        Returns:
            (I T), larger is better.
        """
        raise NotImplementedError

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes in memory.

        Args:
            regions: R.
            words: L.

        Returns:
            The count, for the size of blocks.
        """
        raise NotImplementedError

    def all_pairs(
        self, images: Embeddings, texts: Embeddings, compare: Callable[..., Tensor], prepared: Any = None
    ) -> Float[Tensor, "i t *more"]:
        """Compare every image with every text, in blocks of texts of one length.

        Args:
            images: I items with parts.
            texts: T items with parts of the same width.
            compare: Called with images, their terms, and texts of one length, as `score` is.
            prepared: The result of `prepare` for these images, at most 64; None to compute it.

        Returns:
            (I T ...) what `compare` gives for each pair.

        Raises:
            RequirementError: If items have no parts.
            ShapeError: If parts are of unequal widths, or not of the width of the weights.

        Complexity:
            Memory of `BLOCK_FLOATS`, on a GPU `GPU_BLOCK_FLOATS`, numbers in evaluation. In training blocks beyond
            `KEPT_FLOATS` are recomputed in the backward pass.
        """
        region_width, word_width = (_parts(items).shape[2] for items in (images, texts))
        if region_width != word_width:
            raise ShapeError(
                f"a pairwise similarity needs regions and words of one width; it got {region_width} and {word_width}; "
                "give both heads the same width"
            )
        if self.width not in (None, region_width):
            raise ShapeError(
                f"this similarity needs regions and words of width {self.width}; it got {region_width}; build it for "
                "that"
            )
        images, texts = _checked(images, "image"), _checked(texts, "text")
        groups = list(equal_lengths(texts))
        restore_order = torch.cat([rows for rows, _ in groups]).argsort()
        learning = torch.is_grad_enabled()
        block = max(self.block, GPU_BLOCK_FLOATS) if images.vectors.is_cuda else self.block
        recomputed = partial(checkpoint, compare, use_reentrant=False, preserve_rng_state=False)
        scores = []
        with torch.autocast(images.vectors.device.type, enabled=False):
            for top in range(0, len(images), max(len(images), 1) if learning else IMAGES_PER_BLOCK):
                chunk = images if learning else images[top : top + IMAGES_PER_BLOCK]
                terms = self.prepare(chunk) if prepared is None else prepared
                kept_floats = KEPT_FLOATS if learning else 0
                columns: list[Tensor] = []
                for _, group in groups:
                    per_text = len(chunk) * self.floats(_parts(chunk).shape[1], _parts(group).shape[1])
                    keep = per_text * len(group) <= kept_floats
                    kept_floats -= per_text * len(group) if keep else 0
                    count = len(group) if keep else 1 << max(block // per_text, 1).bit_length() - 1
                    # Nothing in a score is random: beyond KEPT_FLOATS it is recomputed in the backward pass.
                    run = recomputed if learning and not keep else compare
                    columns += [run(chunk, terms, group[at : at + count]) for at in range(0, len(group), count)]
                scores.append(torch.cat(columns, dim=1).index_select(1, restore_order))
        return torch.cat(scores)


def in_blocks(
    compare: Callable[[Tensor, Tensor], Tensor],
    images: Float[Tensor, "i *rest"],
    texts: Float[Tensor, "t *other"],
    rows: int,
    *,
    learning: bool,
) -> Float[Tensor, "i t"]:
    """Compare blocks of images with all texts; while learning, blocks are recomputed in the backward pass.

    Args:
        compare: Called with a block of images and all texts.
        images: (I ...) of any item shape.
        texts: (T ...).
        rows: Images per block.
        learning: Whether gradients will be needed.

    Returns:
        (I T).
    """
    if learning:
        compare = partial(checkpoint, compare, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([compare(block, texts) for block in images.split(rows)])


def require_one_width(similarity: nn.Module, images: Embeddings, texts: Embeddings) -> None:
    """Check that vectors of both sides have one width.

    Args:
        similarity: Named in the error.
        images: The one side.
        texts: The other.

    Raises:
        ShapeError: If the widths differ.
    """
    if images.width != texts.width:
        raise ShapeError(
            f"{type(similarity).__name__} needs images and texts of one width; it got {images.width} and "
            f"{texts.width}; give both heads the same width"
        )


def equal_lengths(items: Embeddings) -> Iterator[tuple[Int[Tensor, "n"], Embeddings]]:
    """Items in groups with equal numbers of parts, fewest first.

    Args:
        items: N items with parts.

    Yields:
        The rows of a group, and its items without a mask.
    """
    items = packed(items)
    assert items.parts is not None
    if items.mask is None:
        yield torch.arange(len(items), device=items.parts.device), items
        return
    lengths = items.mask.sum(dim=1)
    for length in torch.unique(lengths).tolist():
        rows = torch.nonzero(lengths == length)[:, 0]
        yield rows, replace(items[rows], parts=items.parts[rows, :length], mask=None)


def packed(items: Embeddings) -> Embeddings:
    """The same items, with parts before padding.

    Args:
        items: With or without parts.

    Returns:
        The items themselves if nothing moves.
    """
    if items.parts is None:
        return items
    parts, mask = parts_first(items.parts, items.mask)
    return items if parts is items.parts else replace(items, parts=parts, mask=mask)


def parts_of(items: Embeddings) -> Float[Tensor, "n p d"]:
    """The parts, in float32 or better, padded (`numerics.padded`).

    Args:
        items: N items with parts.

    Returns:
        (N P D).

    Raises:
        RequirementError: If they have no parts.
    """
    return padded(precise(_parts(items)))


def vectors_of(items: Embeddings, width: int) -> Float[Tensor, "n d"]:
    """The first vector of each item, padded.

    Args:
        items: N items.
        width: D, the width that they must have.

    Returns:
        (N D).

    Raises:
        ShapeError: If the vectors are of another width.
    """
    if items.vectors.shape[2] != width:
        raise ShapeError(
            f"this similarity needs vectors of width {width}, that of its parts; it got {items.vectors.shape[2]}; "
            "take a head that gives both"
        )
    return padded(precise(items.vectors[:, 0]))


def _parts(items: Embeddings) -> Float[Tensor, "n p d"]:
    if items.parts is None:
        raise RequirementError(
            "a pairwise similarity needs regions and words; it got vectors alone; take a head that gives parts"
        )
    return items.parts


def _checked(items: Embeddings, kind: str) -> Embeddings:
    parts = parts_of(items)
    if items.mask is not None and bool((empty := ~items.mask.any(dim=1)).any()):
        first = int(items.ids[empty.nonzero()[0, 0]])
        raise RequirementError(
            f"a pairwise similarity needs parts of every {kind}; {int(empty.sum())} have none, first id {first}; leave "
            "them out"
        )
    full = items.mask is None or bool(items.mask.all())
    return replace(items, vectors=precise(items.vectors), parts=parts, mask=None if full else items.mask)
