"""Build the graph of a data set's texts in a space: exactly, or by HNSW (Malkov and Yashunin 2018; FAISS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError, RequirementError
from subtext.graphs.graph import Graph, group_labels, image_of_text
from subtext.graphs.spaces import (
    DistanceName,
    Doc2VecSpace,
    FeatureSpace,
    LsaSpace,
    SentenceSpace,
    Space,
    TextProgress,
    TextVectors,
    unit_rows,
)
from subtext.ops.compiled.nearest import NearestRows, nearest_rows


@dataclass(frozen=True)
class GraphOptions:
    """How neighbours are chosen.

    A text is never its own neighbour, nor that of a text with the same words or the same vector.

    Attributes:
        neighbours: Number per text, 1 or more; 200 in the paper.
        candidate_split: The split whose texts may be neighbours, or "all"; texts of other splits only get neighbours.
        search: "exact", or "approximate" by HNSW.
        same_image: "drop": a text of the same image is no neighbour; "keep": it may be one.
        distance: "l2" or "cosine"; None for the space's default.
    """

    neighbours: int = 200
    candidate_split: str = "train"
    search: Literal["exact", "approximate"] = "exact"
    same_image: Literal["drop", "keep"] = "drop"
    distance: DistanceName | None = None


def build_graph(
    pairs: Dataset,
    space: Space,
    options: GraphOptions | None = None,
    *,
    source: Mapping[str, Any] | None = None,
    on_embedded: TextProgress | None = None,
    on_compared: TextProgress | None = None,
) -> Graph:
    """Build the graph of all texts of a data set, in a space that is fitted to the candidate split.

    Args:
        on_embedded: Called with the number of texts that have a vector.
        on_compared: Called with the number of texts that have neighbours.
        pairs: The data set.
        space: Maps texts to vectors.
        options: How neighbours are chosen; None for the defaults.
        source: Where the pairs come from, stored in the graph.

    Returns:
        The graph; rows are those of `pairs.texts`.

    Raises:
        DataError: If there are not more texts than neighbours, or all texts are the same, and what the space raises.

    Complexity:
        The space's own, and that of `ops.compiled.nearest.nearest_rows`.
    """
    options = options or GraphOptions()
    everywhere = options.candidate_split == "all"
    learn = np.ones(len(pairs.texts), dtype=bool) if everywhere else pairs.texts.splits == options.candidate_split
    _require_enough(options, int(learn.sum()), len(pairs.texts), "")
    embedded = space(pairs, learn.astype(bool), on_embedded)
    candidates = learn & embedded.known
    _require_enough(options, int(candidates.sum()), len(pairs.texts), " that the space has a vector for")
    distance = options.distance or space.distance
    vectors = unit_rows(embedded.vectors) if distance == "cosine" else embedded.vectors
    groups = _groups(pairs, embedded, options)
    if options.search == "exact":
        nearest = nearest_rows(
            vectors, count=options.neighbours, candidates=candidates, groups=groups, progress=on_compared
        )
    else:
        nearest = approximate_rows(vectors, count=options.neighbours, candidates=candidates, groups=groups)
        if on_compared is not None:
            on_compared(len(vectors))
    rows, scores = nearest.rows, nearest.scores
    rows[~embedded.known], scores[~embedded.known] = -1, -np.inf
    if not (rows >= 0).any():
        raise DataError(
            f"a graph needs texts that differ; all {len(rows):,} are the same, or of one image; look at them with "
            "`subtext data check`"
        )
    squared = np.maximum(-2 * scores, 0)
    return Graph(
        ids=list(pairs.texts.ids),
        marks=group_labels(pairs.texts),
        neighbours=rows,
        distances=(squared / 2 if distance == "cosine" else np.sqrt(squared)).astype(np.float32),
        space=dict(space.settings()),
        settings={
            "candidate_split": options.candidate_split, "search": options.search, "same_image": options.same_image,
            "distance": distance,
        },
        source=dict(source or {}),
    )  # fmt: skip


def _groups(pairs: Dataset, embedded: TextVectors, options: GraphOptions) -> NDArray[np.int64]:
    """(G N) what a text shares with those that are no neighbours of it: its words, its vector, its image."""
    words: dict[str, int] = {}
    same_words = np.empty(len(pairs.texts), dtype=np.int64)
    for row, value in enumerate(pairs.texts.values):
        # A text that is known by features alone shares no words.
        same_words[row] = words.setdefault(f"#{row}" if value is None else f"={value!s}", len(words))
    rows = np.ascontiguousarray(embedded.vectors + 0.0)
    coded = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    lines = [same_words, np.unique(coded, return_inverse=True)[1].reshape(-1).astype(np.int64)]
    if options.same_image == "drop":
        images = image_of_text(pairs)
        without = len(pairs.images) + np.arange(len(images))
        lines.append(np.where(images < 0, without, images))
    return np.stack(lines)


def _require_enough(options: GraphOptions, count: int, total: int, condition: str) -> None:
    if options.neighbours < 1:
        raise DataError(f"a graph needs 1 neighbour or more; it got {options.neighbours}")
    if count <= options.neighbours:
        split = "" if options.candidate_split == "all" else f" of the split '{options.candidate_split}'"
        advice = f"use at most {count - 1}" if count > 1 else "name another split with --candidate-split"
        raise DataError(
            f"{options.neighbours} neighbours need more than {options.neighbours} texts{split}{condition}; "
            f"there are {count:,} among {total:,}; {advice}"
        )


LINKS, BUILD = 32, 200
"""Links a node, and how many candidates are looked at for them."""


def approximate_rows(
    vectors: Float[np.ndarray, "n d"],
    *,
    count: int,
    candidates: Bool[np.ndarray, "n"],
    groups: Int[np.ndarray, "g n"],
) -> NearestRows:
    """As `ops.compiled.nearest.nearest_rows` in L2, faster on large sets; some neighbours are missed.

    The search visits 2 `count` candidates or more for each row, and requests as many more than `count` as the largest
    of a row's groups has members, at most `count`; lists may be shorter than `count`.

    Args:
        vectors: (N D).
        count: Number of neighbours per row.
        candidates: (N) bool, rows that may be neighbours.
        groups: (G N) rows of one number in any line are not neighbours of each other.

    Returns:
        Rows and scores (N count), as `ops.nearest.nearest_rows` returns them.
    """
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS)
    index.hnsw.efConstruction = BUILD
    rows = np.flatnonzero(candidates)
    index.add(np.ascontiguousarray(vectors[rows], dtype=np.float32))
    excluded = sum(int(np.bincount(np.unique(line, return_inverse=True)[1]).max()) for line in groups)
    requested = min(len(rows), count + min(count, excluded + 1))
    index.hnsw.efSearch = 2 * requested
    squared, hits = index.search(np.ascontiguousarray(vectors, dtype=np.float32), requested)
    missing = hits < 0
    names = rows[np.where(missing, 0, hits)]
    self_rows = np.arange(len(vectors))[:, None]
    for line in groups:
        missing |= line[names] == line[:, None]
    missing |= names == self_rows
    front = np.argsort(missing, axis=1, kind="stable")[:, :count]
    padding = np.take_along_axis(missing, front, axis=1)
    result = np.where(padding, -1, np.take_along_axis(names, front, axis=1)).astype(np.int32)
    scores = np.where(padding, -np.inf, -0.5 * np.take_along_axis(squared, front, axis=1)).astype(np.float32)
    short = ((0, 0), (0, count - result.shape[1]))
    return NearestRows(np.pad(result, short, constant_values=-1), np.pad(scores, short, constant_values=-np.inf))


def open_space(
    space: str,
    *,
    dim: int = 200,
    min_count: int = 20,
    epochs: int | None = None,
    max_sentences: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Space:
    """Make the space that a text names.

    Args:
        space: doc2vec, lsa, sentence:NAME, features:FILE or text-features:FILE.
        dim: Width of the vectors of doc2vec and lsa.
        min_count: Occurrences below which doc2vec leaves out a word.
        epochs: Training epochs of doc2vec; None for its default.
        max_sentences: Sentences of each text that doc2vec reads; None for all.
        seed: Of doc2vec and lsa.
        device: Device of a sentence encoder.

    Returns:
        The space, not yet fitted.

    Raises:
        RequirementError: If the text names no space, and what opening a feature file raises.
    """
    name, _, value = space.partition(":")
    if name == "doc2vec" and not value:
        return Doc2VecSpace(width=dim, min_count=min_count, epochs=epochs, sentences=max_sentences, seed=seed)
    if name == "lsa" and not value:
        return LsaSpace(width=dim, seed=seed)
    if name == "sentence" and value:
        from subtext.models.encoders.language import SentenceEncoder  # transformers takes seconds to import

        return SentenceSpace(SentenceEncoder(value, device=device))
    if name == "features" and value:
        return FeatureSpace(FeatureFile.open(Path(value).expanduser()))
    if name == "text-features" and value:
        return FeatureSpace(FeatureFile.open(Path(value).expanduser(), "text"), of="texts")
    raise RequirementError(
        f"a space needs doc2vec, lsa, sentence:NAME, features:FILE or text-features:FILE; it got '{space}'"
    )
