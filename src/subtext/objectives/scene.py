"""From the embeddings of a batch to its Scene, and from a Scene back to its pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Comparison, Direction, Embeddings, Origin, Scene, Truth
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_max, product

Positives = Literal["group", "pair"]
Negatives = Literal["anchors", "neighbours", "both"]


class Groups(NamedTuple):
    """(I) group of every image and (T) of every text of a batch."""

    images: Tensor
    texts: Tensor

    @staticmethod
    def of(groups: Tensor | Groups) -> Groups:
        """Groups of both modalities from one tensor, where image i belongs with text i.

        Args:
            groups: (B) of the pairs; Groups are returned as they are.

        Returns:
            The Groups.
        """
        return groups if isinstance(groups, Groups) else Groups(groups, groups)


class Relevance(NamedTuple):
    """Graded relevance of the items of a batch.

    Attributes:
        images: (I T) of its images with all candidates: those of this process first, then those of other processes.
        texts: (T I) of its texts likewise.
        scale: Name of the measure.
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
    """The two comparisons of a batch.

    A batch has pairs, where image i belongs with text i, or images with all their texts, where there are more texts
    than images.

    Args:
        similarity: Images, texts -> (I T) scores.
        images: I items.
        texts: T items; the first I belong to the images where positives is "pair".
        groups: Group of each pair (B), or of each image and each text; items of one group are never negatives.
        positives: "group": every candidate of the query's group; "pair": its partner alone, the others of the group are
            ignored; only for pairs.
        gathered: Images, texts and groups of the same step on other processes: extra candidates in both directions.
        relevance: Of the pairs of the batch, for losses that read Truth.relevance; None without.
        scores: (I T) of images with texts, where they are computed already and nothing is gathered.

    Returns:
        The Scene; candidates of other processes have Origin.GATHERED.
    """
    local = Groups.of(groups)
    build = Truth.from_groups if positives == "group" else Truth.of_pairs
    image_origin: Tensor | None = None
    text_origin: Tensor | None = None
    if gathered is None:
        all_images, all_texts = images, texts
        scores = similarity(images, texts) if scores is None else scores
        reverse_scores = scores.T
        to_texts = build(local.images, local.texts)
        to_images = to_texts.flip()
    else:
        all_images, all_texts = Embeddings.cat([images, gathered[0]]), Embeddings.cat([texts, gathered[1]])
        image_origin, text_origin = _origin(all_images, len(images)), _origin(all_texts, len(texts))
        scores, reverse_scores = similarity(images, all_texts), similarity(all_images, texts).T
        all_groups = Groups(*(torch.cat(pair) for pair in zip(local, Groups.of(gathered[2]), strict=True)))
        to_texts, to_images = build(local.images, all_groups.texts), build(local.texts, all_groups.images)
    if relevance is not None:
        to_texts = replace(to_texts, relevance=relevance.images, scale=relevance.scale)
        to_images = replace(to_images, relevance=relevance.texts, scale=relevance.scale)
    return Scene(
        image_to_text=Comparison(scores, to_texts, images, all_texts, text_origin),
        text_to_image=Comparison(reverse_scores, to_images, texts, all_images, image_origin),
    )


def compare_neighbours(
    similarity: nn.Module,
    other_side: Grouped,
    neighbours: Grouped,
    *,
    negatives: Negatives = "anchors",
    gathered: tuple[Grouped, Grouped] | None = None,
) -> Comparison:
    """Compare items with sampled neighbours of the same modality, and with each other.

    Scores are cosines, without the scale and shift of the similarity, which belong to images against texts.
    Candidates are neighbours (those of this process first), then items; no items for negatives="neighbours".

    Args:
        similarity: Its method `cosine` computes the scores; one without that method is called.
        other_side: N items and their groups.
        neighbours: N neighbours, the i-th of item i, and their groups.
        negatives: The other items ("anchors"), their neighbours, or both. Candidates of the group of the item, or of
            its neighbour, are ignored.
        gathered: Items and neighbours of the same step on other processes: extra candidates.

    Returns:
        The Comparison; row i matches neighbour i.
    """
    neighbour_groups, item_groups = [neighbours], [other_side]
    if gathered is not None:
        item_groups.append(gathered[0])
        neighbour_groups.append(gathered[1])
    parts = neighbour_groups if negatives == "neighbours" else neighbour_groups + item_groups
    candidates = Embeddings.cat([part.items for part in parts])
    groups = torch.cat([part.groups for part in parts])
    match = torch.eye(len(other_side.items), len(candidates), dtype=torch.bool, device=groups.device)
    ignored = (groups == other_side.groups[:, None]) | (groups == neighbours.groups[:, None])
    count = sum(len(part.items) for part in neighbour_groups)
    if negatives == "anchors":
        ignored[:, :count] = True
    origin = torch.full((len(candidates),), Origin.PAIR, dtype=torch.uint8, device=groups.device)
    origin[:count] = Origin.NEIGHBOUR
    # The similarity takes images and texts; cosines of one modality are the same formula.
    scores = getattr(similarity, "cosine", similarity)(other_side.items, candidates)
    return Comparison(scores, Truth(match, ignored & ~match), other_side.items, candidates, origin)


def add_negatives(
    similarity: nn.Module,
    comparison: Comparison,
    wrong: Embeddings,
    *,
    outscoring: bool = False,
    scores: Tensor | None = None,
) -> Comparison:
    """Add negatives to every query of a comparison: generated texts.

    The result has neither relevance nor the candidates' embeddings: generated texts have none.

    Args:
        similarity: Queries, candidates -> scores.
        comparison: Q queries with C candidates.
        wrong: M negatives.
        outscoring: Whether to count negatives that score above the query's partner; else they are ignored, as Gong et
            al. 2024 leave out the hardest (alpha).
        scores: (Q M) of the queries with the negatives, where they are computed already.

    Returns:
        The Comparison of Q queries with C + M candidates.

    Raises:
        RequirementError: If the comparison has no embeddings of its queries.
    """
    if comparison.queries is None:
        raise RequirementError(
            "additional negatives need the embeddings of the queries; this comparison has scores alone; compose it "
            "from embeddings"
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


def compare_with_random(similarity: nn.Module, comparison: Comparison, sampled: Embeddings) -> Comparison:
    """Compare queries with their positives, and with random candidates as their only negatives.

    One of them may be the query's partner: the code of Thomas and Kovashka 2020 samples from all texts and takes every
    sample for a negative. Their scores are cosines; the result has neither relevance nor origin.

    Args:
        similarity: Its method `cosine` computes the scores of the samples; one without that method is called.
        comparison: Q queries with C candidates; those that do not match are ignored.
        sampled: M random candidates.

    Returns:
        The Comparison of Q queries with C + M candidates.

    Raises:
        RequirementError: If the comparison has no embeddings.
    """
    queries, candidates = embeddings_of(comparison, "a random negative")
    match = comparison.truth.match
    scores = getattr(similarity, "cosine", similarity)(queries, sampled)
    none = torch.zeros_like(scores, dtype=torch.bool)
    return Comparison(
        torch.cat([comparison.scores, scores], dim=1),
        Truth(torch.cat([match, none], dim=1), torch.cat([~match, none], dim=1)),
        queries,
        Embeddings.cat([candidates, sampled]),
    )


def embeddings_of(comparison: Comparison, reader: str) -> tuple[Embeddings, Embeddings]:
    """Queries and candidates of a comparison.

    Args:
        comparison: Any comparison.
        reader: Who needs them, for the message.

    Returns:
        The Embeddings of the Q queries and of the C candidates.

    Raises:
        RequirementError: If the comparison has scores alone.
    """
    if comparison.queries is None or comparison.candidates is None:
        raise RequirementError(
            f"{reader} needs the embeddings behind the scores; this batch has scores alone; compose the scene from "
            "embeddings"
        )
    return comparison.queries, comparison.candidates


def compare_draws(comparison: Comparison, reader: str, *, within: bool = False) -> Comparison:
    """Compare every draw (view) of a query with every draw of a candidate, by their inner products.

    The truth of a pair of draws is that of its items: all draws of a positive are positives.

    Args:
        comparison: Q queries of K draws, C candidates of L.
        reader: Who needs the embeddings, for messages.
        within: The candidates' draws are those of the queries instead; needs as many candidates as queries.

    Returns:
        The Comparison (Q K, C L), without embeddings.

    Raises:
        RequirementError: If the comparison has scores alone.
    """
    queries, candidates = embeddings_of(comparison, reader)
    rows, columns = queries.vectors, (queries if within else candidates).vectors
    truth = comparison.truth

    def repeated(matrix: Tensor | None) -> Tensor | None:
        if matrix is None:
            return None
        return matrix.repeat_interleave(rows.shape[1], dim=0).repeat_interleave(columns.shape[1], dim=1)

    match = repeated(truth.match)
    assert match is not None
    scores = product(rows.flatten(0, 1), columns.flatten(0, 1))
    return Comparison(scores, Truth(match, repeated(truth.ignored), repeated(truth.relevance), truth.scale))


def _origin(candidates: Embeddings, local: int) -> Tensor:
    """(C) Origin of candidates of which the first `local` are of this process."""
    origin = torch.full((len(candidates),), Origin.GATHERED, dtype=torch.uint8, device=candidates.vectors.device)
    origin[:local] = Origin.PAIR
    return origin


def batch_items(scene: Scene, reader: str = "a pair") -> tuple[Embeddings, Embeddings]:
    """Images and texts of the full batch: those of this process first, in order, then those of the others.

    Args:
        scene: The comparisons of the batch.
        reader: Who needs the items, for the message.

    Returns:
        The images and the texts.

    Raises:
        RequirementError: If the scene has scores alone.
    """
    sides = []
    for comparison in (scene.text_to_image, scene.image_to_text):
        candidates, chosen = embeddings_of(comparison, reader)[1], _of_pairs(comparison)
        sides.append(candidates if chosen is None else candidates[chosen])
    return sides[0], sides[1]


def count_pairs(scene: Scene) -> int:
    """The number of pairs of the full batch: one per text.

    Args:
        scene: The comparisons of the batch.

    Returns:
        The number, of all processes.
    """
    return _count(scene.image_to_text)


def pairs_to_queries(values: Float[Tensor, "b"], scene: Scene, direction: Direction) -> Float[Tensor, "q"]:
    """Turn one value per pair into one value per query of a direction.

    An image query with several texts gets their sum, also in a batch of as many images as texts that are no pairs.

    Args:
        values: (B), one per pair of the full batch, in the order of texts.
        scene: The comparisons of the batch.
        direction: Whose queries.

    Returns:
        (Q), of the queries of this process.
    """
    comparison, match = scene.comparison(direction), scene.comparison(direction).truth.match
    if direction == "text_to_image" or (_count(scene.text_to_image) == len(values) and match.diagonal().all()):
        return values[: len(comparison.scores)]
    return match[:, : len(values)].to(values.dtype) @ values


def _of_pairs(comparison: Comparison) -> Tensor | None:
    """(C) bool, candidates that are of pairs, here or gathered; None for all."""
    origin = comparison.origin
    return None if origin is None else (origin == Origin.PAIR) | (origin == Origin.GATHERED)


def _count(comparison: Comparison) -> int:
    chosen = _of_pairs(comparison)
    return comparison.scores.shape[1] if chosen is None else int(chosen.sum())
