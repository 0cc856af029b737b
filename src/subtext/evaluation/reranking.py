"""Two stages: a fast model finds a few candidates of each query, and a dear one scores those pairs alone.

A pair that both directions want is scored once. Pairs are scored picture by picture, each with all the texts that are
wanted of it: scores differ from those of an exhaustive run (`scoring`) by about 1e-6 of their size, and IMRAM's of a
text of one word by up to 1e-4 (as `model.Model.compare` says).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import scoring
from subtext.ops.numerics import precise
from subtext.ops.pairwise import equal_lengths


@dataclass(frozen=True)
class Shortlists:
    """Candidates of every query of both directions, best first; a direction has as many for each of its queries.

    image_to_text  (I M) rows of texts        text_to_image  (T N) rows of pictures
    """

    image_to_text: Int[np.ndarray, "i m"]
    text_to_image: Int[np.ndarray, "t n"]

    def of(self, direction: Direction) -> Int[np.ndarray, "q m"]:
        """One direction's."""
        return self.image_to_text if direction == "image_to_text" else self.text_to_image

    def first(self, count: int) -> Shortlists:
        """The first `count` of each list."""
        return Shortlists(self.image_to_text[:, :count], self.text_to_image[:, :count])

    def pairs(self) -> Int[np.ndarray, "p two"]:
        """(P 2) picture row and text row of every pair that is wanted, each once, ordered by picture."""
        return np.stack(np.divmod(np.unique(np.concatenate(self._codes())), len(self.text_to_image)), axis=1)

    def places(self, pairs: Int[np.ndarray, "p two"]) -> dict[Direction, Int[np.ndarray, "q m"]]:
        """Where each candidate stands among `pairs`, which are ordered as above and hold them all."""
        coded = pairs[:, 0] * len(self.text_to_image) + pairs[:, 1]
        shapes = (self.image_to_text.shape, self.text_to_image.shape)
        return {
            direction: np.searchsorted(coded, codes).reshape(shape)
            for direction, codes, shape in zip(DIRECTIONS, self._codes(), shapes, strict=True)
        }

    def _codes(self) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]:
        """One number a pair, picture first, list by list."""
        texts = len(self.text_to_image)
        images = np.arange(len(self.image_to_text), dtype=np.int64)[:, None] * texts + self.image_to_text
        return images.ravel(), (self.text_to_image * texts + np.arange(texts, dtype=np.int64)[:, None]).ravel()


def shortlists(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, count: int, *, exact: bool = False
) -> Shortlists:
    """The `count` best texts of every picture and pictures of every text, all of them where there are fewer.

    Of equal scores the earlier row comes first; a score that is not a number comes last.

    Raises RequirementError for a count below 1.
    Cost   the similarity of all pairs in each direction, in blocks of bounded memory.
    """
    if count < 1:
        raise RequirementError(f"a shortlist needs 1 candidate or more; it got {count}")
    shortlists_by_direction = {}
    for direction in DIRECTIONS:
        both = (images, texts) if direction == "image_to_text" else (texts, images)
        shortlists_by_direction[direction] = np.concatenate(
            [best(scores, count) for _, _, scores in scoring.blocks(similarity, *both, direction, exact=exact)]
        )
    return Shortlists(shortlists_by_direction["image_to_text"], shortlists_by_direction["text_to_image"])


def best(scores: Float[Tensor, "q c"], count: int) -> Int[np.ndarray, "q m"]:
    """The columns of the best `count` scores of each row, best first; of equal ones the earlier column.

    >>> best(torch.tensor([[0.1, 0.9, 0.9, 0.9]]), 2).tolist()
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
    """Scores of chosen pairs, (P 2) picture row and text row, on the CPU; float64 where the similarity gives that.

    Raises ShapeError unless they are ordered by picture.
    Cost   the similarity of these pairs; what it needs of a text alone it makes again for every picture.
    """
    pictures = pairs[:, 0]
    if (pictures[1:] < pictures[:-1]).any():
        raise ShapeError("pairs need to be ordered by picture; these are not; sort them")
    device = scoring.device_of(similarity, images)
    found: NDArray[Any] | None = None
    # Texts are sorted by their lengths once, and not again for every picture.
    groups = [texts] if texts.parts is None else [group for _, group in equal_lengths(texts)]
    rows = [np.arange(len(texts))] if texts.parts is None else [rows.numpy() for rows, _ in equal_lengths(texts)]
    group_of, place_of = np.empty(len(texts), dtype=np.int64), np.empty(len(texts), dtype=np.int64)
    for number, candidate_rows in enumerate(rows):
        group_of[candidate_rows], place_of[candidate_rows] = number, np.arange(len(candidate_rows))
    order = np.lexsort((group_of[pairs[:, 1]], pictures))
    pair_ids = pictures[order] * len(groups) + group_of[pairs[order, 1]]
    chosen, starts = np.unique(pair_ids, return_index=True)
    prepare = getattr(similarity, "prepare", None)
    last = -1
    prepared: tuple[Any, ...] = ()
    for code, start, stop in zip(chosen.tolist(), starts, np.append(starts, len(pairs))[1:], strict=True):
        picture, number = divmod(code, len(groups))
        if picture != last:
            image = images[picture : picture + 1].to(device)
            last, prepared = picture, () if prepare is None else (prepare(image),)
        block = order[start:stop]
        some = groups[number][torch.from_numpy(place_of[pairs[block, 1]])].to(device)
        scores = precise(similarity(image, some, *prepared)[0]).cpu().numpy()
        if found is None:
            found = np.empty(len(pairs), dtype=scores.dtype)
        found[block] = scores
    return np.empty(0, dtype=np.float32) if found is None else found


def reranked(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, lists: Shortlists
) -> Mapping[Direction, Float[np.ndarray, "q m"]]:
    """Scores of every query's candidates by the second model, as its lists have them.

    Cost   `pair_scores` of the pairs that either direction wants.
    """
    pairs = lists.pairs()
    scores = pair_scores(similarity, images, texts, pairs)
    return {direction: scores[positions] for direction, positions in lists.places(pairs).items()}
