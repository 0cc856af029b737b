"""The shape of a joint space, beside a Result's figures: alignment, uniformity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.evaluation.metrics.geometry import alignment, uniformity
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.results import Result
from subtext.ops.numerics import masked_mean

_ROWS = 256
"""Texts that are compared with the others of their groups at a time."""


class ComparesVectors(Protocol):
    """A similarity of pairs that makes one vector of each side of a pair (AsCL)."""

    def compared(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """(I T 2 D) the vectors of picture and text, of every pair."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is learnt."""
        ...


def with_space(result: Result, images: Embeddings, texts: Embeddings, pairs: Dataset) -> Result:
    """The result, with the figures of `space`."""
    return replace(result, figures=result.figures | space(images, texts, pairs))


def space(images: Embeddings, texts: Embeddings, pairs: Dataset) -> dict[str, float]:
    """How near partners are in the joint space, and how far apart everything else; what has no value is left out.

    alignment           mean distance of a picture and a text that belong together
    text/alignment      of two texts of one group (the texts of one picture): the mean over all such pairs
    image/uniformity, text/uniformity   mean distance of different pictures, and of texts of different groups; with
                        _variance and _potential (log mean exp(-2 d^2))
    image/uncertainty, text/uncertainty  of distributions: the mean over items of `Embeddings.uncertainty`, with
                        _deviation

    Distances are Euclidean, of unit vectors; of an item with several views the mean of its views counts, and of one
    that is compared by its parts the mean of its regions or words: its pair has no say in that.
    Cost   N^2 distances of each modality.
    """
    rows, columns = matching.of_pairs(pairs).image_to_text.expand()
    pictures, words = _whole(images), _whole(texts)
    figures = {
        "alignment": alignment(pictures[_tensor(rows)], words[_tensor(columns)]),
        "text/alignment": _within(words, pairs.texts.groups),
    }
    for side, vectors, groups in (("image", pictures, pairs.images.groups), ("text", words, pairs.texts.groups)):
        spread = uniformity(vectors, _tensor(groups))
        figures[f"{side}/uniformity"] = spread["mean"]
        figures |= {f"{side}/uniformity_{name}": spread[name] for name in ("variance", "potential")}
    for side, items in (("image", images), ("text", texts)):
        if (uncertainty := items.uncertainty) is not None:
            figures |= {f"{side}/uncertainty": float(uncertainty.mean())}
            figures |= {f"{side}/uncertainty_deviation": float(uncertainty.std(correction=0))}
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def compares_vectors(similarity: object) -> TypeGuard[ComparesVectors]:
    """Whether `space_of_pairs` can ask this similarity."""
    return hasattr(similarity, "compared")


@torch.inference_mode()
def space_of_pairs(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    pairs: Dataset,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """The shape of the space of what a model of pairs makes of each item together with its own partner.

    own_pair/alignment       mean distance of a picture and its text, as each is with the other
    own_pair/text/alignment  of two texts of one picture: the mean over all such pairs
    own_pair/image/uniformity, own_pair/text/uniformity   as in `space`; a picture of several texts is the mean of what
                             it is with each, a text of several pictures what it is with the first

    Each vector has seen the partner that it is compared with, so these figures stand beside those of other models of
    this kind, and of no others. Distances are Euclidean, of unit vectors.

    progress  hears how many pictures are done
    Raises RequirementError for a similarity that makes no vectors of pairs.
    Cost   a score of every pair that belongs together, and N^2 distances of each modality.
    """
    if not compares_vectors(similarity):
        raise RequirementError(
            f"vectors of pairs need a similarity that makes them (that of ascl with attention); this one is "
            f"{type(similarity).__name__}; measure its space without them"
        )
    device = next(similarity.parameters()).device
    rows, columns = matching.of_pairs(pairs).image_to_text.expand()
    order = np.argsort(rows, kind="stable")
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(rows, np.arange(len(images) + 1))
    both = []
    for picture, (start, stop) in enumerate(pairwise(starts)):
        if stop > start:
            image_texts = texts[_tensor(columns[start:stop])].to(device)
            found = similarity.compared(images[torch.tensor([picture])].to(device), image_texts)
            both.append(normalize(found[0].float(), dim=2).cpu())
        if progress is not None:
            progress(picture + 1)
    if not both:
        return {}
    pair_vectors = torch.cat(both)
    pictures, words = pair_vectors[:, 0], pair_vectors[:, 1]
    used_rows = np.unique(rows)
    means = torch.stack([pictures[starts[row] : starts[row + 1]].mean(dim=0) for row in used_rows])
    read, first = np.unique(columns, return_index=True)
    figures = {
        "own_pair/alignment": alignment(pictures, words),
        "own_pair/text/alignment": _within(words, rows),
    }
    for side, vectors, groups in (
        ("image", means, pairs.images.groups[used_rows]),
        ("text", words[_tensor(first)], pairs.texts.groups[read]),
    ):
        spread = uniformity(vectors, _tensor(groups))
        figures[f"own_pair/{side}/uniformity"] = spread["mean"]
        figures |= {f"own_pair/{side}/uniformity_{name}": spread[name] for name in ("variance", "potential")}
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def _within(vectors: Tensor, groups: NDArray[np.int64]) -> float:
    """Mean distance of the unit vectors of all pairs of rows of one group, each pair once; NaN where there is none.

    Cost   for N rows in groups of G: N (G + 256) D, in blocks of 256 rows of sorted groups.
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    # In float64: a square of 1e-8 that rounding leaves of equal vectors would be a distance of 1e-4.
    unit = normalize(vectors[_tensor(order)].double(), dim=1)
    ends = np.searchsorted(ordered, ordered, side="right")
    total, count = 0.0, 0
    for start in range(0, len(ordered), _ROWS):
        stop = min(start + _ROWS, len(ordered))
        end = int(ends[stop - 1])
        same = np.triu(ordered[start:stop, None] == ordered[None, start:end], k=1)
        squared = (2 - 2 * (unit[start:stop] @ unit[start:end].T)).clamp_min(0)[torch.from_numpy(same)]
        total += float(squared.sqrt().sum())
        count += len(squared)
    return total / count if count else math.nan


def _whole(items: Embeddings) -> Tensor:
    """(N D) one vector an item."""
    return items.vectors.mean(dim=1) if items.parts is None else masked_mean(items.parts, items.mask)


def _tensor(rows: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))
