"""From the embeddings of a batch to its Scene."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from subtext.core import Comparison, Embeddings, Origin, Scene, Truth

Positives = Literal["group", "pair"]


class Groups(NamedTuple):
    """(I) group of every picture and (T) of every text of a batch."""

    images: Tensor
    texts: Tensor

    @staticmethod
    def of(groups: Tensor | Groups) -> Groups:
        """Both from one tensor, where row i of the pictures belongs with row i of the texts."""
        return groups if isinstance(groups, Groups) else Groups(groups, groups)


def compose(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    groups: Tensor | Groups,
    *,
    positives: Positives = "group",
    others: tuple[Embeddings, Embeddings, Tensor | Groups] | None = None,
) -> Scene:
    """The two comparisons of a batch: of pairs, where row i of images belongs with row i of texts, or of pictures
    with all their texts, where there are more texts than pictures.

    groups     group of each pair (B), or of each picture and each text; what shares a group is never a negative
    positives  "group": every candidate of the query's group is right; "pair": its partner alone, the rest of the
               group is ignored, which only pairs can have
    others     images, texts and groups of the same step on other processes: they widen both directions' candidates
    """
    own = Groups.of(groups)
    if others is None:
        scores, truth = similarity(images, texts), _truth(own.images, own.texts, positives)
        return Scene(
            image_to_text=Comparison(scores, truth, images, texts),
            text_to_image=Comparison(scores.T, truth.flip(), texts, images),
        )
    other_images, other_texts, other_groups = others[0], others[1], Groups.of(others[2])
    every = Groups(*(torch.cat([mine, theirs]) for mine, theirs in zip(own, other_groups, strict=True)))
    all_images, all_texts = Embeddings.cat([images, other_images]), Embeddings.cat([texts, other_texts])
    of_texts, of_images = _origin(every.texts, len(texts)), _origin(every.images, len(images))
    to_texts, to_images = _truth(own.images, every.texts, positives), _truth(own.texts, every.images, positives)
    return Scene(
        image_to_text=Comparison(similarity(images, all_texts), to_texts, images, all_texts, of_texts),
        text_to_image=Comparison(similarity(all_images, texts).T, to_images, texts, all_images, of_images),
    )


def _origin(candidates: Tensor, own: int) -> Tensor:
    origin = torch.full((len(candidates),), Origin.GATHERED, dtype=torch.uint8, device=candidates.device)
    origin[:own] = Origin.PAIR
    return origin


def _truth(queries: Tensor, candidates: Tensor, positives: Positives) -> Truth:
    return (Truth.from_groups if positives == "group" else Truth.of_pairs)(queries, candidates)
