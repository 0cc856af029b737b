"""Every picture with every text, where a score needs their regions and words together.

What a similarity has to write is the score of some pictures with texts of one length. Here pairs are cut into such
pieces: texts of equal length need no mask, and a piece is small enough for the memory that a processor has near.
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

PIECE_FLOATS = 2**23
"""Numbers that a piece may take while nothing is learnt: a few texts, and not far from the processor."""
KEPT_FLOATS = 2**27
"""Numbers that pieces may take while training; those beyond are computed again in the backward pass."""
PICTURES = 64
"""Pictures a piece, while nothing is learnt."""

Ready = TypeVar("Ready")
"""What a similarity makes of some pictures alone, once for all texts."""


def pairwise(
    images: Embeddings,
    texts: Embeddings,
    score: Callable[[Embeddings, Ready, Embeddings], Tensor],
    *,
    ready: Callable[[Embeddings], Ready],
    floats: Callable[[int, int], int],
    piece: int | None = None,
    width: int | None = None,
) -> Float[Tensor, "i t *more"]:
    """Scores of every picture with every text.

    score   pictures, what `ready` made of them, and texts of one length (without a mask) -> (I T *more)
    ready   pictures -> whatever the score needs of them alone
    floats  regions and words -> about how many numbers one pair takes
    piece   how many numbers a piece may take; None for PIECE_FLOATS. More where much is read of every picture each time
    width   of regions and words, where the score has weights of that width; None for any

    While nothing is learnt, the texts of a piece are a power of two, so that pieces of a tile of scores are alike.

    Raises RequirementError for items without parts; ShapeError for parts of unequal widths.
    """
    own, other = (_given(items).shape[2] for items in (images, texts))
    if own != other:
        raise ShapeError(
            f"a pairwise similarity needs regions and words of one width; it got {own} and {other}; give both heads "
            "the same width"
        )
    if width not in (None, own):
        raise ShapeError(f"this similarity needs regions and words of width {width}; it got {own}; build it for that")
    images, texts = _checked(images, "picture"), _checked(texts, "text")
    with torch.autocast(images.vectors.device.type, enabled=False):
        return _whole(images, texts, score, ready, floats, piece or PIECE_FLOATS)


def _whole(
    images: Embeddings,
    texts: Embeddings,
    score: Callable[[Embeddings, Ready, Embeddings], Tensor],
    ready: Callable[[Embeddings], Ready],
    floats: Callable[[int, int], int],
    piece: int,
) -> Tensor:
    groups = list(equal_lengths(texts))
    back = torch.cat([rows for rows, _ in groups]).argsort()
    learning = torch.is_grad_enabled()
    rows = [images] if learning else [images[start : start + PICTURES] for start in range(0, len(images), PICTURES)]
    found = []
    for some in rows:
        assert some.parts is not None
        made = ready(some)
        left = KEPT_FLOATS if learning else 0
        pieces = []
        for _, group in groups:
            each = len(some) * floats(some.parts.shape[1], _longest(group))
            keep = each * len(group) <= left
            left -= each * len(group) if keep else 0
            most = len(group) if keep else _power_of_two(piece // each)
            for start in range(0, len(group), most):
                given = some, made, group[start : start + most]
                again = learning and not keep
                pieces.append(_twice(score, *given) if again else score(*given))
        found.append(torch.cat(pieces, dim=1).index_select(1, back))
    return torch.cat(found)


def _twice(
    score: Callable[[Embeddings, Ready, Embeddings], Tensor], images: Embeddings, made: Ready, texts: Embeddings
) -> Tensor:
    """Scores that are computed again in the backward pass; nothing in them is drawn."""
    return checkpoint(score, images, made, texts, use_reentrant=False, preserve_rng_state=False)


def equal_lengths(items: Embeddings) -> Iterator[tuple[Int[Tensor, "n"], Embeddings]]:
    """Items in groups of equally many parts, shortest first: their rows, and they themselves without a mask."""
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
    """The same items, each one's parts moved before those that are not there: a hidden region leaves a hole."""
    if items.parts is None or items.mask is None or not bool((items.mask[:, 1:] & ~items.mask[:, :-1]).any()):
        return items
    order = torch.argsort((~items.mask).byte(), dim=1, stable=True)
    parts = items.parts.gather(1, order[:, :, None].expand_as(items.parts))
    return replace(items, parts=parts, mask=items.mask.gather(1, order))


def parts_of(items: Embeddings) -> Float[Tensor, "n p d"]:
    """The parts, in float32 or better, zeros at their ends (`numerics.padded`). Raises RequirementError without any."""
    return padded(precise(_given(items)))


def whole_of(items: Embeddings, width: int) -> Float[Tensor, "n d"]:
    """The first vector of each item, as `parts_of` has parts. Raises ShapeError for vectors of another width."""
    if items.vectors.shape[2] != width:
        raise ShapeError(
            f"this similarity needs vectors of width {width}, as its parts; it got {items.vectors.shape[2]}; take a "
            "head that gives both alike"
        )
    return padded(precise(items.vectors[:, 0]))


def _given(items: Embeddings) -> Float[Tensor, "n p d"]:
    if items.parts is None:
        raise RequirementError(
            "a pairwise similarity needs the regions and words of its items; it got vectors alone; take a head that "
            "gives parts"
        )
    return items.parts


def _checked(items: Embeddings, what: str) -> Embeddings:
    parts = parts_of(items)
    if items.mask is not None and bool((empty := ~items.mask.any(dim=1)).any()):
        first = int(items.ids[empty.nonzero()[0, 0]])
        raise RequirementError(
            f"a pairwise similarity needs a part of every {what}; {int(empty.sum())} have none, first id {first}; "
            "leave them out"
        )
    whole = items.mask is None or bool(items.mask.all())
    return replace(items, vectors=precise(items.vectors), parts=parts, mask=None if whole else items.mask)


def _longest(items: Embeddings) -> int:
    assert items.parts is not None
    return int(items.parts.shape[1])


def _power_of_two(number: int) -> int:
    return 1 << max(number, 1).bit_length() - 1
