"""The shape of a joint space: how near partners are, and how far apart all others (Wang and Isola 2020).

Also how much of the semantic neighbourhoods it preserves, within each modality.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from subtext.core import Comparison, Embeddings, Truth
from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metric import readings_of, registered
from subtext.evaluation.metrics import Preservation
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.result import Result
from subtext.graphs.graph import Graph, image_of_text
from subtext.ops.numerics import masked_mean

_ROWS = 256
"""Items that are compared with others at a time."""
_UNIFORMITY_ROWS = 1024
"""The same where only distances are summed."""

TruthOf = Callable[[int, int], Truth]
"""First and last query of a block -> its truth."""


def with_preservation(
    result: Result,
    similarity: nn.Module,
    items: tuple[Embeddings, Embeddings],
    pairs: Dataset,
    graph: Graph,
    *,
    protocol: Protocol | None = None,
) -> Result:
    """The result, with the share of each item's semantic neighbours that are nearest in the joint space too.

    Thomas and Kovashka 2020, section 4.3, for images and for texts: of the E neighbours that the graph has for a text
    among `pairs`, how many are among its E nearest there. An image has the neighbours of its first text, as images. An
    item itself does not count, nor do texts of the same image where the graph leaves them out.

    Figures are in per cent.

    Args:
        result: Figures to add to.
        similarity: That of the model.
        items: Embeddings of all images and all texts of `pairs`.
        pairs: I images and T texts.
        graph: Semantic neighbours of the texts.
        protocol: Its resampling and seed are those of the intervals; None for the default one.

    Returns:
        The result with these figures.

    Raises:
        DataError: If the graph was built for other data, or has no neighbours among these texts.

    Complexity:
        N^2 cosines of each modality, and the sorting of each row.
    """
    cut = graph.restrict_to(pairs.texts)
    if not cut.counts.any():
        raise DataError(
            f"this graph has no neighbours among the {len(pairs.texts):,} texts that are evaluated; build one whose "
            "texts are those (subtext neighbours build GRAPH --data DATA --split NAME --candidate-split NAME)"
        )
    protocol = protocol or Protocol()
    metrics: list[Any] = [Preservation(), *registered("neighbours")]
    owners = image_of_text(pairs)
    sides: list[tuple[str, Embeddings, TruthOf, NDArray[np.int64]]] = [
        ("image", items[0], _of_images(cut, pairs, owners), np.arange(len(pairs.images), dtype=np.int64)),
        ("text", items[1], _of_texts(cut, pairs), owners),
    ]
    cosine = getattr(similarity, "cosine", similarity)
    figures, values, chance, scaled, clusters = {}, {}, {}, {}, {}
    for side, embeddings, truth_of, owner in sides:
        blocks: list[list[tuple[NDArray[np.float64], Any]]] = [[] for _ in metrics]
        for start in range(0, len(embeddings), _ROWS):
            truth = truth_of(start, min(start + _ROWS, len(embeddings)))
            with torch.inference_mode():
                scores = cosine(embeddings[start : start + _ROWS], embeddings)
            readings = readings_of(Comparison(scores, truth), stable=True)
            for metric, column in zip(metrics, blocks, strict=True):
                taken = readings.take(metric.reads)
                column.append((metric.of(*taken), metric.chance(*taken)))
        for metric, column in zip(metrics, blocks, strict=True):
            name = f"{side}/{metric.name}"
            values[name] = np.concatenate([values for values, _ in column])
            scaled[name], clusters[name] = metric.scale * values[name], owner
            figures[name] = metric.scale * float(np.nanmean(values[name]))
            if column[0][1] is not None:
                chance[name] = metric.scale * float(np.nanmean(np.concatenate([line for _, line in column])))
    ends = intervals(scaled, clusters, {}, samples=protocol.bootstrap, seed=protocol.seed)
    mean = float(cut.counts[cut.counts > 0].mean())
    about = {"fingerprint": graph.fingerprint, "space": dict(graph.space), "neighbours": round(mean, 2)}
    return replace(
        result,
        figures=result.figures | figures,
        intervals=result.intervals | ends,
        chance=result.chance | chance,
        per_query=result.per_query | values,
        protocol=result.protocol | {"graph": about},
        metrics=result.metrics | {metric.name: metric.described for metric in metrics},
    )


def _of_texts(graph: Graph, pairs: Dataset) -> TruthOf:
    groups = torch.from_numpy(pairs.texts.groups)
    dropped = graph.settings["same_image"] == "drop"

    def truth_of(start: int, stop: int) -> Truth:
        matches = graph.truth(start, stop)
        assert matches.ignored is not None
        if not dropped:
            return matches
        same = groups[start:stop, None] == groups
        return Truth(matches.match, (matches.ignored | same) & ~matches.match)

    return truth_of


def _of_images(graph: Graph, pairs: Dataset, owners: NDArray[np.int64]) -> TruthOf:
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def truth_of(start: int, stop: int) -> Truth:
        match = np.zeros((stop - start, len(first)), dtype=np.bool_)
        for row, text in enumerate(first[start:stop]):
            neighbours = np.asarray(graph.neighbours[text]) if text >= 0 else np.empty(0, dtype=np.int64)
            image_rows = owners[neighbours[neighbours >= 0]]
            match[row, image_rows[image_rows >= 0]] = True
        is_self = np.arange(start, stop)[:, None] == np.arange(len(first))
        return Truth(torch.from_numpy(match & ~is_self), torch.from_numpy(is_self))

    return truth_of


def with_space(result: Result, images: Embeddings, texts: Embeddings, pairs: Dataset) -> Result:
    """The result, with the figures of `space`.

    Args:
        result: Figures to add to.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        pairs: I images and T texts.

    Returns:
        The result with these figures.
    """
    return replace(result, figures=result.figures | space(images, texts, pairs))


def space(images: Embeddings, texts: Embeddings, pairs: Dataset) -> dict[str, float]:
    """Alignment of partners and uniformity of each modality in the joint space; undefined values are left out.

    alignment           mean distance of an image and a text that match
    text/alignment      of two texts of one group (the texts of one image): the mean over all such pairs
    image/uniformity, text/uniformity   mean distance of different images, and of texts of different groups; with
                        _variance and _potential (log mean exp(-2 d^2))
    image/uncertainty, text/uncertainty  of distributions: the mean over items of `Embeddings.uncertainty`, with
                        _deviation

    Distances are Euclidean, of unit vectors; of an item with several views the mean of its views counts, and of one
    that is compared by its parts the mean of its regions or words: its pair has no say in that.

    Args:
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        pairs: I images and T texts.

    Returns:
        Name -> number.

    Complexity:
        N^2 distances of each modality.
    """
    rows, columns = matching.of_pairs(pairs).image_to_text.expand()
    of_images, of_texts = _whole(images), _whole(texts)
    figures = {
        "alignment": alignment(of_images[_tensor(rows)], of_texts[_tensor(columns)]),
        "text/alignment": _within(of_texts, pairs.texts.groups),
    }
    figures |= _spread("image", of_images, pairs.images.groups) | _spread("text", of_texts, pairs.texts.groups)
    for side, items in (("image", images), ("text", texts)):
        if (uncertainty := items.uncertainty) is not None:
            figures[f"{side}/uncertainty"] = float(uncertainty.mean())
            figures[f"{side}/uncertainty_deviation"] = float(uncertainty.std(correction=0))
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def compares_vectors(similarity: object) -> bool:
    """Whether a similarity of pairs makes one vector of each side of a pair, (I T 2 D), as AsCL's does.

    Args:
        similarity: Images and texts -> scores.

    Returns:
        Whether it does.
    """
    return hasattr(similarity, "pair_vectors")


@torch.inference_mode()
def space_of_pairs(
    similarity: Any,
    images: Embeddings,
    texts: Embeddings,
    pairs: Dataset,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """The shape of the space of what a model of pairs makes of each item together with its own partner.

    own_pair/alignment       mean distance of an image and its text, as each is with the other
    own_pair/text/alignment  of two texts of one image: the mean over all such pairs
    own_pair/image/uniformity, own_pair/text/uniformity   as in `space`; an image of several texts is the mean of what
                             it is with each, a text of several images what it is with the first

    Each vector has seen the partner that it is compared with, so these figures stand beside those of other models of
    this kind, and of no others. Distances are Euclidean, of unit vectors.

    Args:
        similarity: That of AsCL with attention.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        pairs: I images and T texts.
        progress: Hears how many images are done.

    Returns:
        Name -> number.

    Raises:
        RequirementError: If a similarity makes no vectors of pairs.

    Complexity:
        A score of every pair that belongs together, and N^2 distances of each modality.
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
    for row, (start, stop) in enumerate(pairwise(starts)):
        if stop > start:
            image_texts = texts[_tensor(columns[start:stop])].to(device)
            vectors = similarity.pair_vectors(images[torch.tensor([row])].to(device), image_texts)
            both.append(normalize(vectors[0].float(), dim=2).cpu())
        if progress is not None:
            progress(row + 1)
    if not both:
        return {}
    pair_vectors = torch.cat(both)
    of_images, of_texts = pair_vectors[:, 0], pair_vectors[:, 1]
    used_rows = np.unique(rows)
    means = torch.stack([of_images[starts[row] : starts[row + 1]].mean(dim=0) for row in used_rows])
    read, first = np.unique(columns, return_index=True)
    figures = {"own_pair/alignment": alignment(of_images, of_texts), "own_pair/text/alignment": _within(of_texts, rows)}
    figures |= _spread("own_pair/image", means, pairs.images.groups[used_rows])
    figures |= _spread("own_pair/text", of_texts[_tensor(first)], pairs.texts.groups[read])
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def _spread(side: str, vectors: Tensor, groups: NDArray[np.int64]) -> dict[str, float]:
    spread = uniformity(vectors, _tensor(groups))
    more = {f"{side}/uniformity_{name}": spread[name] for name in ("variance", "potential")}
    return {f"{side}/uniformity": spread["mean"], **more}


def _within(vectors: Tensor, groups: NDArray[np.int64]) -> float:
    """Mean distance of the unit vectors of all pairs of rows of one group, each pair once; NaN where there is none.

    Complexity:
        For N rows in groups of G: N (G + 256) D, in blocks of 256 rows of sorted groups.
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


def alignment(first: Float[Tensor, "l d"], second: Float[Tensor, "l d"]) -> float:
    """Mean Euclidean distance of the unit vectors of partners, row by row; NaN for none.

    Lower is nearer; vectors at right angles are sqrt(2) = 1.414 apart. Wang and Isola's alignment is its square's mean.

    Args:
        first: (N D).
        second: (N D).

    Returns:
        In [0, 2].

    Example:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
        1.4142135623730951
    """
    if not len(first):
        return math.nan
    gaps = normalize(first.double(), dim=1) - normalize(second.double(), dim=1)
    return float(gaps.norm(dim=1).mean())


def uniformity(vectors: Float[Tensor, "n d"], groups: Int[Tensor, "n"]) -> dict[str, float]:
    """Distances of the unit vectors of all pairs of items that are of different groups.

    "mean" and "variance" are of Euclidean distances, the variance of the population (right angles are sqrt(2) apart);
    "potential" is log mean exp(-2 d^2) (Wang and Isola 2020, eq. 5), lower is more uniform; "pairs" is how many
    distances there are, and the others are NaN where that is 0.

    Args:
        vectors: (N D).
        groups: (N), equal for items that belong together, such as the texts of one image; those are left out.

    Returns:
        "mean", "variance" and "potential".

    Complexity:
        N^2 D, in blocks of 1,024 rows.

    Example:
        >>> spread = uniformity(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.arange(3))
        >>> round(spread["mean"], 6), spread["pairs"]  # (sqrt 2 + sqrt 2 + 2) / 3
        (1.609476, 3)
    """
    unit = normalize(vectors.float(), dim=1)
    total = squares = potential = 0.0
    count = 0
    for start in range(0, len(unit), _UNIFORMITY_ROWS):
        rows = slice(start, start + _UNIFORMITY_ROWS)
        apart = torch.triu(groups[rows, None] != groups[None, start:], diagonal=1)
        squared = (2 - 2 * (unit[rows] @ unit[start:].T)).clamp_min(0)[apart].double()
        count += len(squared)
        total += float(squared.sqrt().sum())
        squares += float(squared.sum())
        potential += float(torch.exp(-2 * squared).sum())
    if not count:
        return dict.fromkeys(("mean", "variance", "potential"), math.nan) | {"pairs": 0}
    mean = total / count
    variance = max(squares / count - mean**2, 0.0)
    return {"mean": mean, "variance": variance, "potential": math.log(potential / count), "pairs": count}
