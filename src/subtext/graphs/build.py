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
    Distance,
    Doc2VecSpace,
    EmbedsTexts,
    FeatureSpace,
    LsaSpace,
    Progress,
    SentenceSpace,
    Space,
    unit,
)
from subtext.ops.compiled.nearest import NearestRows, nearest_rows


@dataclass(frozen=True)
class GraphOptions:
    """How neighbours are chosen.

    A text is never its own neighbour, nor that of a text with the same words or the same vector.

    Attributes:
        neighbours: Per text; 200 in the paper.
        candidate_split: The split whose texts may be neighbours; texts of other splits only get neighbours; "all".
        search: "exact", or "approximate".
        same_image: "drop": a text of the same image is no neighbour; "keep": it may be one.
        distance: "l2" or "cosine"; None for the space's own.
    """

    neighbours: int = 200
    candidate_split: str = "train"
    search: Literal["exact", "approximate"] = "exact"
    same_image: Literal["drop", "keep"] = "drop"
    distance: Distance | None = None


def build_graph(
    pairs: Dataset,
    space: Space,
    options: GraphOptions | None = None,
    *,
    source: Mapping[str, Any] | None = None,
    placed: Progress | None = None,
    compared: Progress | None = None,
) -> Graph:
    """The graph of all texts of `pairs`, in a space that is fitted to the candidate split.

    Args:
        source: Where the pairs come from, stored in the graph.
        placed: Called with the number of texts that have a vector.
        compared: That have neighbours.

    Raises:
        DataError: If there are not more texts than neighbours, if all texts are the same, and what the space raises.

    Complexity:
        The space's own, and that of `ops.compiled.nearest.nearest_rows`.
    """
    options = options or GraphOptions()
    everywhere = options.candidate_split == "all"
    learn = np.ones(len(pairs.texts), dtype=bool) if everywhere else pairs.texts.splits == options.candidate_split
    _require_enough(options, int(learn.sum()), len(pairs.texts), "")
    embedded = space(pairs, learn.astype(bool), placed)
    candidates = learn & embedded.known
    _require_enough(options, int(candidates.sum()), len(pairs.texts), " that the space has a place for")
    distance = options.distance or space.distance
    vectors = unit(embedded.vectors) if distance == "cosine" else embedded.vectors
    groups = _groups(pairs, embedded, options)
    if options.search == "exact":
        nearest = nearest_rows(
            vectors, count=options.neighbours, candidates=candidates, groups=groups, progress=compared
        )
    else:
        nearest = approximate_rows(vectors, count=options.neighbours, candidates=candidates, groups=groups)
        if compared is not None:
            compared(len(vectors))
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
            "among": options.candidate_split, "search": options.search, "same_picture": options.same_image,
            "distance": distance,
        },
        source=dict(source or {}),
    )  # fmt: skip


def _groups(pairs: Dataset, embedded: EmbedsTexts, options: GraphOptions) -> NDArray[np.int64]:
    """(G N) what a text shares with those that are no neighbours of it: its words, its place, its image."""
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
    """The space that a text names: doc2vec, lsa, sentence:NAME, features:FILE or text-features:FILE.

    Raises:
        RequirementError: For another text, and what opening a feature file raises.
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
