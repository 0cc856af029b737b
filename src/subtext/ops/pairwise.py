"""Scores of every image with every text, for similarities that need their regions and words together.

A similarity implements the score of some images with texts of one length. Pairs are split into such blocks: texts of
equal length need no mask, and a block fits the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.ops.numerics import padded, precise

BLOCK_FLOATS = 2**23
"""Numbers that a block may take in evaluation: a few texts, in the cache."""
KEPT_FLOATS = 2**27
"""Numbers that blocks may take in training; further blocks are recomputed in the backward pass."""
IMAGES_PER_BLOCK = 64
"""Images per block in evaluation."""

Prepared = TypeVar("Prepared")
"""Terms of some images alone, computed once for all texts."""


def pairwise(
    images: Embeddings,
    texts: Embeddings,
    score: Callable[[Embeddings, Prepared, Embeddings], Tensor],
    *,
    ready: Callable[[Embeddings], Prepared] = lambda images: None,  # type: ignore[assignment, return-value]
    floats: Callable[[int, int], int],
    block: int = BLOCK_FLOATS,
    width: int | None = None,
) -> Float[Tensor, "i t *more"]:
    """Scores of every image with every text.

    score   images, their prepared terms, and texts of one length (without a mask) -> (I T *more)
    ready   images -> their terms for `score`
    floats  number of regions and of words -> approximate number of floats per pair
    block   number of floats per block. More where much is read of every image each time
    width   of regions and words, where the score has weights of that width; None for any

    In evaluation the texts of a block are a power of two, so that blocks of a tile of scores are alike.

    Raises RequirementError for items without parts; ShapeError for parts of unequal widths.
    """
    region_width, word_width = (_parts(items).shape[2] for items in (images, texts))
    if region_width != word_width:
        raise ShapeError(
            f"a pairwise similarity needs regions and words of one width; it got {region_width} and {word_width}; give "
            "both heads the same width"
        )
    if width not in (None, region_width):
        raise ShapeError(
            f"this similarity needs regions and words of width {width}; it got {region_width}; build it for that"
        )
    images, texts = _checked(images, "image"), _checked(texts, "text")
    with torch.autocast(images.vectors.device.type, enabled=False):
        return _all_pairs(images, texts, score, ready, floats, block)


def _all_pairs(
    images: Embeddings,
    texts: Embeddings,
    score: Callable[[Embeddings, Prepared, Embeddings], Tensor],
    ready: Callable[[Embeddings], Prepared],
    floats: Callable[[int, int], int],
    block: int,
) -> Tensor:
    groups = list(equal_lengths(texts))
    restore_order = torch.cat([rows for rows, _ in groups]).argsort()
    learning = torch.is_grad_enabled()
    starts = range(0, len(images), IMAGES_PER_BLOCK)
    scores = []
    for chunk in [images] if learning else [images[start : start + IMAGES_PER_BLOCK] for start in starts]:
        prepared = ready(chunk)
        kept_floats = KEPT_FLOATS if learning else 0
        columns = []
        for _, group in groups:
            per_text = len(chunk) * floats(_parts(chunk).shape[1], _parts(group).shape[1])
            keep = per_text * len(group) <= kept_floats
            kept_floats -= per_text * len(group) if keep else 0
            count = len(group) if keep else _power_of_two(block // per_text)
            for start in range(0, len(group), count):
                arguments = chunk, prepared, group[start : start + count]
                if learning and not keep:
                    # Recomputed in the backward pass; nothing in a score is random.
                    columns.append(checkpoint(score, *arguments, use_reentrant=False, preserve_rng_state=False))
                else:
                    columns.append(score(*arguments))
        scores.append(torch.cat(columns, dim=1).index_select(1, restore_order))
    return torch.cat(scores)


def equal_lengths(items: Embeddings) -> Iterator[tuple[Int[Tensor, "n"], Embeddings]]:
    """Items in groups with equal numbers of parts, fewest first: their rows, and the items without a mask."""
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
    """The same items, with parts before padding: a dropped region leaves a gap."""
    if items.parts is None or items.mask is None or not bool((items.mask[:, 1:] & ~items.mask[:, :-1]).any()):
        return items
    order = torch.argsort((~items.mask).byte(), dim=1, stable=True)
    parts = items.parts.gather(1, order[:, :, None].expand_as(items.parts))
    return replace(items, parts=parts, mask=items.mask.gather(1, order))


def parts_of(items: Embeddings) -> Float[Tensor, "n p d"]:
    """The parts, in float32 or better, padded (`numerics.padded`). Raises RequirementError without parts."""
    return padded(precise(_parts(items)))


def vectors_of(items: Embeddings, width: int) -> Float[Tensor, "n d"]:
    """The first vector of each item, padded. Raises ShapeError for vectors of another width."""
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


def _power_of_two(number: int) -> int:
    return 1 << max(number, 1).bit_length() - 1
