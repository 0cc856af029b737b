"""From the embeddings of a batch to its Scene."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from subtext.core import Comparison, Embeddings, Origin, Scene, Truth

Positives = Literal["group", "pair"]


def compose(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    groups: Tensor,
    *,
    positives: Positives = "group",
    others: tuple[Embeddings, Embeddings, Tensor] | None = None,
) -> Scene:
    """The two comparisons of a batch of pairs: row i of images belongs with row i of texts.

    groups     (B) group of each pair; pairs of one group are never each other's negatives
    positives  "group": every candidate of the query's group is right; "pair": its partner alone, the rest of the
               group is ignored
    others     images, texts and groups of the same step on other processes: they widen both directions' candidates
    """
    if others is None:
        scores = similarity(images, texts)
        forward = Comparison(scores, _truth(groups, groups, positives), images, texts)
        return Scene(image_to_text=forward, text_to_image=forward.flip())
    other_images, other_texts, other_groups = others
    all_groups = torch.cat([groups, other_groups])
    origin = torch.full((len(all_groups),), Origin.GATHERED, dtype=torch.uint8, device=groups.device)
    origin[: len(groups)] = Origin.PAIR
    all_images, all_texts = Embeddings.cat([images, other_images]), Embeddings.cat([texts, other_texts])
    truth = _truth(groups, all_groups, positives)
    return Scene(
        image_to_text=Comparison(similarity(images, all_texts), truth, images, all_texts, origin),
        text_to_image=Comparison(similarity(all_images, texts).T, truth, texts, all_images, origin),
    )


def _truth(queries: Tensor, candidates: Tensor, positives: Positives) -> Truth:
    return (Truth.from_groups if positives == "group" else Truth.of_pairs)(queries, candidates)
