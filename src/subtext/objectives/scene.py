"""From the embeddings of a batch to its Scene.

Which pairs a batch is of, and from values of its pairs to values of its queries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Comparison, Direction, Embeddings, Origin, Scene, Truth
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_max

Positives = Literal["group", "pair"]
Negatives = Literal["anchors", "neighbours", "both"]


class Groups(NamedTuple):
    """(I) group of every image and (T) of every text of a batch."""

    images: Tensor
    texts: Tensor

    @staticmethod
    def of(groups: Tensor | Groups) -> Groups:
        """Both from one tensor, where row i of the images belongs with row i of the texts."""
        return groups if isinstance(groups, Groups) else Groups(groups, groups)


class Relevance(NamedTuple):
    """How much the items of a batch have to do with each other, in degrees.

    images  (I T) of its images with all candidates, and texts (T I) of its texts likewise: own ones first, then those
            of other processes
    scale   what it was computed with
    """

    images: Tensor
    texts: Tensor
    scale: str


class Grouped(NamedTuple):
    """Items of one modality, and (N) the group of each."""

    items: Embeddings
    groups: Tensor


def compose(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    groups: Tensor | Groups,
    *,
    positives: Positives = "group",
    gathered: tuple[Embeddings, Embeddings, Tensor | Groups] | None = None,
    relevance: Relevance | None = None,
    scores: Tensor | None = None,
) -> Scene:
    """The two comparisons of a batch: of pairs, where row i of images belongs with row i of texts, or of images
    with all their texts, where there are more texts than images.

    groups     group of each pair (B), or of each image and each text; what shares a group is never a negative
    positives  "group": every candidate of the query's group is right; "pair": its partner alone, the rest of the
               group is ignored, which only pairs can have
    gathered     images, texts and groups of the same step on other processes: they widen both directions' candidates
    relevance  of the pairs of the batch, for losses that read Truth.relevance
    scores     (I T) of images with texts, where they are known already and there are no others
    """
    local = Groups.of(groups)
    if gathered is None:
        scores = similarity(images, texts) if scores is None else scores
        truth = _truth(local.images, local.texts, positives)
        to_texts, to_images = _graded(truth, truth.flip(), relevance)
        return Scene(
            image_to_text=Comparison(scores, to_texts, images, texts),
            text_to_image=Comparison(scores.T, to_images, texts, images),
        )
    other_images, other_texts, other_groups = gathered[0], gathered[1], Groups.of(gathered[2])
    all_groups = Groups(
        *(torch.cat([here_groups, theirs]) for here_groups, theirs in zip(local, other_groups, strict=True))
    )
    all_images, all_texts = Embeddings.cat([images, other_images]), Embeddings.cat([texts, other_texts])
    of_texts, of_images = _origin(all_groups.texts, len(texts)), _origin(all_groups.images, len(images))
    to_texts, to_images = _graded(
        _truth(local.images, all_groups.texts, positives), _truth(local.texts, all_groups.images, positives), relevance
    )
    return Scene(
        image_to_text=Comparison(similarity(images, all_texts), to_texts, images, all_texts, of_texts),
        text_to_image=Comparison(similarity(all_images, texts).T, to_images, texts, all_images, of_images),
    )


def beside(
    similarity: nn.Module,
    own: Grouped,
    neighbours: Grouped,
    *,
    negatives: Negatives = "anchors",
    gathered: tuple[Grouped, Grouped] | None = None,
) -> Comparison:
    """Items against sampled neighbours of their own modality, neighbour i for item i, and against each other.

    negatives  which candidates are wrong: the other items themselves ("anchors"), their neighbours, or both. Whatever
               is of the item's own group, or of its neighbour's, is ignored
    gathered     items and neighbours of the same step on other processes: further candidates

    Scores are cosines, whatever scale and shift the similarity has: those were made for images against texts.
    Candidates are neighbours (own ones first), then items; without the latter where `negatives` is "neighbours".
    """
    neighbour_groups, item_groups = [neighbours], [own]
    if gathered is not None:
        item_groups.append(gathered[0])
        neighbour_groups.append(gathered[1])
    pieces = neighbour_groups if negatives == "neighbours" else neighbour_groups + item_groups
    candidates = Embeddings.cat([piece.items for piece in pieces])
    groups = torch.cat([piece.groups for piece in pieces])
    match = torch.eye(len(own.items), len(candidates), dtype=torch.bool, device=groups.device)
    ignored = (groups == own.groups[:, None]) | (groups == neighbours.groups[:, None])
    count = sum(len(piece.items) for piece in neighbour_groups)
    if negatives == "anchors":
        ignored[:, :count] = True
    origin = torch.full((len(candidates),), Origin.PAIR, dtype=torch.uint8, device=groups.device)
    origin[:count] = Origin.NEIGHBOUR
    # The similarity takes images and texts; cosines of one modality are the same formula.
    scores = getattr(similarity, "cosine", similarity)(own.items, candidates)
    return Comparison(scores, Truth(match, ignored & ~match), own.items, candidates, origin)


def widened(
    similarity: nn.Module,
    comparison: Comparison,
    wrong: Embeddings,
    *,
    outscoring: bool = False,
    scores: Tensor | None = None,
) -> Comparison:
    """A comparison with further candidates that are wrong for every query: generated texts.

    outscoring  whether one that scores above the query's own partner counts; else it is ignored (alpha of Gong et al.
                2024, who so leave out the hardest)
    scores      of the queries with them, where they are known already

    Relevance goes, and so do the candidates' embeddings: of generated texts neither is known.
    Raises RequirementError for a comparison without the embeddings of its queries.
    """
    if comparison.queries is None:
        raise RequirementError(
            "further candidates need the embeddings of the queries; this comparison has scores alone; compose it from "
            "embeddings"
        )
    scores = similarity(comparison.queries, wrong) if scores is None else scores
    truth = comparison.truth
    none = torch.zeros_like(scores, dtype=torch.bool)
    above = none if outscoring else scores.detach() > masked_max(comparison.scores.detach(), truth.match)[:, None]
    ignored = torch.zeros_like(truth.match) if truth.ignored is None else truth.ignored
    origin = comparison.origin
    if origin is None:
        origin = torch.full((comparison.scores.shape[1],), Origin.PAIR, dtype=torch.uint8, device=scores.device)
    return Comparison(
        torch.cat([comparison.scores, scores], dim=1),
        Truth(torch.cat([truth.match, none], dim=1), torch.cat([ignored, above], dim=1)),
        comparison.queries,
        origin=torch.cat([origin, origin.new_full((len(wrong),), Origin.GENERATED)]),
    )


def among(similarity: nn.Module, comparison: Comparison, strangers: Embeddings) -> Comparison:
    """A comparison in which these candidates are wrong for every query, and no others are.

    One of them may be the query's own partner: drawn from all items, as the code of Thomas and Kovashka 2020 draws
    texts, it is taken for wrong like the rest. Scores of strangers are cosines; relevance and origin go.
    Raises RequirementError for a comparison without its embeddings.
    """
    if comparison.queries is None or comparison.candidates is None:
        raise RequirementError(
            "candidates drawn at random need the embeddings of queries and candidates; this comparison has scores "
            "alone; compose it from embeddings"
        )
    match = comparison.truth.match
    scores = getattr(similarity, "cosine", similarity)(comparison.queries, strangers)
    none = torch.zeros_like(scores, dtype=torch.bool)
    return Comparison(
        torch.cat([comparison.scores, scores], dim=1),
        Truth(torch.cat([match, none], dim=1), torch.cat([~match, none], dim=1)),
        comparison.queries,
        Embeddings.cat([comparison.candidates, strangers]),
    )


def _origin(candidates: Tensor, local: int) -> Tensor:
    origin = torch.full((len(candidates),), Origin.GATHERED, dtype=torch.uint8, device=candidates.device)
    origin[:local] = Origin.PAIR
    return origin


def _truth(queries: Tensor, candidates: Tensor, positives: Positives) -> Truth:
    return (Truth.from_groups if positives == "group" else Truth.of_pairs)(queries, candidates)


def _graded(to_texts: Truth, to_images: Truth, relevance: Relevance | None) -> tuple[Truth, Truth]:
    if relevance is None:
        return to_texts, to_images
    return (
        replace(to_texts, relevance=relevance.images, scale=relevance.scale),
        replace(to_images, relevance=relevance.texts, scale=relevance.scale),
    )


def batch_items(scene: Scene) -> tuple[Embeddings, Embeddings]:
    """Images and texts of the whole batch: this process's first, in order, then those of the others.

    Raises RequirementError for a scene of scores alone.
    """
    return _items(scene.text_to_image), _items(scene.image_to_text)


def count_pairs(scene: Scene) -> int:
    """Pairs of the whole batch, each known by its text."""
    return _count(scene.image_to_text)


def pairs_to_queries(values: Float[Tensor, "b"], scene: Scene, direction: Direction) -> Float[Tensor, "q"]:
    """From one value a pair of the whole batch, in the order of its texts, to one value a query of a direction.

    A query that is one image of several texts has their sum.
    """
    comparison = scene.comparison(direction)
    if direction == "text_to_image" or _count(scene.text_to_image) == len(values):
        return values[: len(comparison.scores)]
    return comparison.truth.match[:, : len(values)].to(values.dtype) @ values


def _of_pairs(comparison: Comparison) -> Tensor | None:
    """(C) bool, which candidates are of pairs, here or gathered; None for all of them."""
    origin = comparison.origin
    return None if origin is None else (origin == Origin.PAIR) | (origin == Origin.GATHERED)


def _count(comparison: Comparison) -> int:
    chosen = _of_pairs(comparison)
    return comparison.scores.shape[1] if chosen is None else int(chosen.sum())


def _items(comparison: Comparison) -> Embeddings:
    if comparison.candidates is None:
        raise RequirementError(
            "what is known of pairs by their rows needs the embeddings behind the scores; this batch has scores alone; "
            "compose the scene from embeddings"
        )
    chosen = _of_pairs(comparison)
    return comparison.candidates if chosen is None else comparison.candidates[chosen]
