"""Regions and words for tests of pairwise similarities: the cards' fixture, and random ones of unequal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from subtext.core import Embeddings


def det(shape: tuple[int, ...], phase: float = 0.0, step: float = 0.7) -> Tensor:
    """sin(phase + step k), row by row, in float64: the cards' numbers."""
    count = int(torch.tensor(shape).prod())
    return torch.sin(phase + step * torch.arange(count, dtype=torch.float64)).view(shape)


def fill(parameters: list[Tensor], amplitude: float, offset: float = 0.0) -> list[Tensor]:
    """The cards' weights for parameters of these shapes, in their order."""
    return [offset + amplitude * det(tuple(p.shape), 0.5 * k + 0.1) for k, p in enumerate(parameters)]


def assign(parameters: list[nn.Parameter | Tensor], amplitude: float, offset: float = 0.0) -> None:
    """Put the cards' weights into parameters."""
    with torch.no_grad():
        for parameter, value in zip(parameters, fill(list(parameters), amplitude, offset), strict=True):
            parameter.copy_(value)


def of_parts(parts: Tensor, lengths: list[int] | None = None) -> Embeddings:
    """Embeddings of parts, with the mean of each item's as its vector."""
    count, longest = parts.shape[:2]
    mask = None if lengths is None else torch.arange(longest) < torch.tensor(lengths)[:, None]
    return Embeddings(parts.mean(dim=1)[:, None], torch.arange(count), parts=parts, mask=mask)


def card_items() -> tuple[Embeddings, Embeddings]:
    """Card B3's pictures (2 of 5 regions) and texts (3 of 4, 3 and 2 words), width 4."""
    images = normalize(det((2, 5, 4), 1.3), dim=-1)
    return of_parts(images), of_parts(normalize(det((3, 4, 4), 0.3), dim=-1), [4, 3, 2])


def random_pairs(
    width: int = 8, *, pictures: int = 5, texts: int = 7, seed: int = 0
) -> tuple[Embeddings, Embeddings, Iterator[tuple[int, int, Tensor, Tensor]]]:
    """Pictures of 1 to 6 regions, one of them hidden in the middle, texts of 1 to 5 words; and every pair by itself.

    What lies behind a mask is large: reading it would be seen.
    """
    g = torch.Generator().manual_seed(seed)
    sides = []
    for count, most in ((pictures, 6), (texts, 5)):
        parts = torch.randn(count, most, width, generator=g, dtype=torch.float64)
        lengths = torch.randint(1, most + 1, (count,), generator=g)
        lengths[0], lengths[-1] = most, 1
        items = of_parts(normalize(parts, dim=-1), lengths.tolist())
        assert items.mask is not None
        if most == 6:
            items.mask[0, 2] = False
        sides.append(replace(items, parts=items.parts.masked_fill(~items.mask[:, :, None], 100.0)))
    images, words = sides

    def alone() -> Iterator[tuple[int, int, Tensor, Tensor]]:
        for i in range(pictures):
            for t in range(texts):
                yield i, t, images.parts[i][images.mask[i]], words.parts[t][words.mask[t]]

    return images, words, alone()
