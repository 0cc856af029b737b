"""Scores of two stages: a fast model lists candidates of each query, and a second model scores those pairs alone.

A pair that both directions list is scored once. A partner that the first model does not list counts as a miss: it
stands behind the list, where the first model has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.scoring import Block, Embedded, Matrix, Rows, ScoreSource, blocks, covers, device_of
from subtext.ops.numerics import precise
from subtext.ops.pairwise import equal_lengths


@dataclass(frozen=True)
class Shortlists:
    """Candidates of every query of both directions, best first; a direction has as many for each of its queries.

    Attributes:
        image_to_text: (I M) rows of texts.
        text_to_image: (T N) rows of images.
    """

    image_to_text: Int[np.ndarray, "i m"]
    text_to_image: Int[np.ndarray, "t n"]

    def of(self, direction: Direction) -> Int[np.ndarray, "q m"]:
        """One direction's.

        Args:
            direction: Which side asks.

        Returns:
            (Q M) rows of candidates, best first.
        """
        return self.image_to_text if direction == "image_to_text" else self.text_to_image

    def first(self, count: int) -> Shortlists:
        """The first `count` of each list.

        Args:
            count: 1 or more.

        Returns:
            Shorter lists.
        """
        return Shortlists(self.image_to_text[:, :count], self.text_to_image[:, :count])

    def pairs(self) -> Int[np.ndarray, "p two"]:
        """(P 2) image row and text row of every pair that either direction lists, each once, ordered by image.

        Returns:
            (P 2) int64.
        """
        return np.stack(np.divmod(np.unique(np.concatenate(self._codes())), len(self.text_to_image)), axis=1)

    def positions(self, pairs: Int[np.ndarray, "p two"]) -> dict[Direction, Int[np.ndarray, "q m"]]:
        """Where each candidate stands among `pairs`, which are ordered as above and hold them all.

        Args:
            pairs: (P 2) image and text rows.

        Returns:
            Direction -> (Q M) rows of `pairs`.
        """
        coded = pairs[:, 0] * len(self.text_to_image) + pairs[:, 1]
        shapes = (self.image_to_text.shape, self.text_to_image.shape)
        return {
            direction: np.searchsorted(coded, codes).reshape(shape)
            for direction, codes, shape in zip(DIRECTIONS, self._codes(), shapes, strict=True)
        }

    def _codes(self) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]:
        """One number a pair, image first, list by list."""
        texts = len(self.text_to_image)
        images = np.arange(len(self.image_to_text), dtype=np.int64)[:, None] * texts + self.image_to_text
        return images.ravel(), (self.text_to_image * texts + np.arange(texts, dtype=np.int64)[:, None]).ravel()


def shortlists(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, count: int, *, exact: bool = False
) -> Shortlists:
    """The `count` best texts of every image and images of every text, all of them where there are fewer.

    Of equal scores the earlier row comes first; a score that is not a number comes last.

    Args:
        similarity: Images and texts -> scores.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        count: Candidates per query, 1 or more.
        exact: Fixed tiles, so that a score depends on its pair alone; slower.

    Returns:
        The lists of both directions.

    Raises:
        RequirementError: If the count is below 1.

    Complexity:
        The similarity of all pairs in each direction, in blocks of bounded memory.
    """
    if count < 1:
        raise RequirementError(f"a shortlist needs 1 candidate or more; it got {count}")
    lists = []
    for direction in DIRECTIONS:
        both = (images, texts) if direction == "image_to_text" else (texts, images)
        scored = blocks(similarity, *both, direction, exact=exact)
        lists.append(np.concatenate([top_columns(scores, count) for _, _, scores in scored]))
    return Shortlists(*lists)


def top_columns(scores: Float[Tensor, "q c"], count: int) -> Int[np.ndarray, "q m"]:
    """The columns of the best `count` scores of each row, best first; of equal ones the earlier column.

    Args:
        scores: (Q C).
        count: 1 or more.

    Returns:
        (Q M) int64 columns, M = min(count, C).

    Example:
        >>> top_columns(torch.tensor([[0.1, 0.9, 0.9, 0.9]]), 2).tolist()
        [[1, 2]]
    """
    scores = torch.nan_to_num(scores, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    count = min(count, scores.shape[1])
    values, columns = scores.topk(count, dim=1)
    level = (scores >= values[:, -1:]).sum(dim=1) > count
    level |= (values[:, 1:] == values[:, :-1]).any(dim=1)
    for row in torch.nonzero(level)[:, 0].tolist():
        columns[row] = scores[row].argsort(descending=True, stable=True)[:count]
    return np.asarray(columns.numpy(), dtype=np.int64)


@torch.inference_mode()
def pair_scores(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, pairs: Int[np.ndarray, "p two"]
) -> Float[np.ndarray, "p"]:
    """Scores of chosen pairs, (P 2) image row and text row, on the CPU; float64 where the similarity gives that.

    Pairs are scored image by image, each with all its texts: scores differ from those of an exhaustive run by about
    1e-6 of their size, and IMRAM's of a text of one word by up to 1e-4 (as `model.Model.compare` says).

    Args:
        similarity: Images and texts -> scores.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        pairs: (P 2) image and text rows, ordered by image.

    Returns:
        (P) scores.

    Raises:
        ShapeError: Unless the pairs are ordered by image.

    Complexity:
        The similarity of these pairs; what it needs of a text alone it makes again for every image.
    """
    image_rows = pairs[:, 0]
    if (image_rows[1:] < image_rows[:-1]).any():
        raise ShapeError("pairs need to be ordered by image; these are not; sort them")
    device = device_of(similarity, images)
    # Texts are sorted by their lengths once, and not again for every image.
    groups = [(torch.arange(len(texts)), texts)] if texts.parts is None else list(equal_lengths(texts))
    group_of, position_of = np.empty((2, len(texts)), dtype=np.int64)
    for number, (rows, _) in enumerate(groups):
        group_of[rows.numpy()], position_of[rows.numpy()] = number, np.arange(len(rows))
    order = np.lexsort((group_of[pairs[:, 1]], image_rows))
    codes, starts = np.unique(image_rows[order] * len(groups) + group_of[pairs[order, 1]], return_index=True)
    prepare = getattr(similarity, "prepare", None)
    last = -1
    prepared: tuple[Any, ...] = ()
    scores: NDArray[Any] | None = None
    for code, start, stop in zip(codes.tolist(), starts, np.append(starts, len(pairs))[1:], strict=True):
        row, number = divmod(code, len(groups))
        if row != last:
            image = images[row : row + 1].to(device)
            last, prepared = row, () if prepare is None else (prepare(image),)
        block = order[start:stop]
        block_texts = groups[number][1][torch.from_numpy(position_of[pairs[block, 1]])].to(device)
        block_scores = precise(similarity(image, block_texts, *prepared)[0]).cpu().numpy()
        scores = np.empty(len(pairs), dtype=block_scores.dtype) if scores is None else scores
        scores[block] = block_scores
    return np.empty(0, dtype=np.float32) if scores is None else scores


def reranked_scores(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, lists: Shortlists
) -> Mapping[Direction, Float[np.ndarray, "q m"]]:
    """Scores of every query's candidates by the second model, as its lists have them.

    Args:
        similarity: Images and texts -> scores.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        lists: Candidates of every query.

    Returns:
        Direction -> (Q M) scores.

    Complexity:
        `pair_scores` of the pairs that either direction lists.
    """
    pairs = lists.pairs()
    scores = pair_scores(similarity, images, texts, pairs)
    return {direction: scores[positions] for direction, positions in lists.positions(pairs).items()}


@dataclass(frozen=True)
class CandidateScores(ScoreSource):
    """Lists in their second order, followed by all other candidates in their first.

    Attributes:
        first: Scores of the first stage.
        lists: Candidates of every query, and what the second gave them; -1 stands for one that was listed and is no
            candidate here.
        scores: See `lists`.
    """

    first: ScoreSource
    lists: Shortlists
    scores: Mapping[Direction, Float[np.ndarray, "q m"]]

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> CandidateScores:
        """The chosen images and texts, in the order that they have among all; itself when those are all, in order.

        Nothing is listed anew: an item that is left out leaves its place in a list empty.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            The lists among them.
        """
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        sides: list[tuple[Direction, Rows, Rows]] = [("image_to_text", images, texts), ("text_to_image", texts, images)]
        lists = []
        for (direction, queries, candidates), count in zip(sides, self.shape[::-1], strict=True):
            # One position more: what an earlier cut has left out stays out.
            positions = np.full(count + 1, -1, dtype=np.int64)
            positions[candidates] = np.arange(len(candidates))
            lists.append(positions[self.lists.of(direction)[queries]])
        scores = {direction: self.scores[direction][queries] for direction, queries, _ in sides}
        return CandidateScores(self.first.part(images, texts), Shortlists(*lists), scores)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Numbers that order each query's candidates: scores of its list, and below them all others; float64.

        Args:
            direction: Which side asks.

        Yields:
            First query, query after the last, and (Q C) float64 of each block.
        """
        lists, scores = self.lists.of(direction), self.scores[direction]
        finite = scores[np.isfinite(scores) & (lists >= 0)]
        below = float(finite.min()) - 1 if len(finite) else 0.0
        for start, stop, block in self.first.blocks(direction):
            highest = torch.nan_to_num(block, nan=-torch.inf).amax(dim=1, keepdim=True).double()
            full = block.to(torch.float64, copy=True).sub_(highest - below)
            rows, positions = np.nonzero(lists[start:stop] >= 0)
            columns, values = (values[start:stop][rows, positions] for values in (lists, scores))
            full[torch.from_numpy(rows), torch.from_numpy(columns)] = torch.from_numpy(values).double()
            yield start, stop, full


@dataclass(frozen=True)
class TwoStage(ScoreSource):
    """Scores of two models, of which the second scores only what the first lists.

    Attributes:
        first: Scores all pairs.
        second: Scores the candidates.
        candidates: Of each query, at most `most`.
        most: Largest number of candidates of a query.
        every: The second model's scores of all pairs, where they are computed.
        cached: What was listed and scored, by the rows of images and texts.
    """

    first: Embedded
    second: Embedded
    candidates: int
    most: int
    every: Matrix | None = None
    cached: dict[bytes, CandidateScores] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> CandidateScores:
        """The chosen items, each with candidates among the chosen ones.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            Their lists, in both orders.
        """
        key = images.tobytes() + texts.tobytes()
        if key not in self.cached:
            self.cached[key] = self._listed(images, texts)
        full = self.cached[key]
        scores = {direction: scores[:, : self.candidates] for direction, scores in full.scores.items()}
        return CandidateScores(full.first, full.lists.first(self.candidates), scores)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Of the full gallery.

        Args:
            direction: Which side asks.

        Yields:
            First query, query after the last, and (Q C) float64 of each block.
        """
        yield from self.part(*(np.arange(count, dtype=np.int64) for count in self.shape)).blocks(direction)

    def _listed(self, images: Rows, texts: Rows) -> CandidateScores:
        rows, columns = torch.from_numpy(images), torch.from_numpy(texts)
        first, second = self.first, self.second
        lists = shortlists(first.similarity, first.images[rows], first.texts[columns], self.most, exact=first.exact)
        if self.every is None:
            scores = reranked_scores(second.similarity, second.images[rows], second.texts[columns], lists)
        else:
            every = precise(self.every.part(images, texts).scores).numpy()
            scores = {
                "image_to_text": np.take_along_axis(every, lists.image_to_text, axis=1),
                "text_to_image": every[lists.text_to_image, np.arange(len(texts))[:, None]],
            }
        return CandidateScores(first.part(images, texts), lists, scores)
