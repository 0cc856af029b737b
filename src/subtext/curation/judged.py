"""Every pair of a data set with all that is known of it, and the reasons to leave it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.curation.alignment import align, aligned
from subtext.curation.copies import later, leaks, picture_copies, text_copies
from subtext.curation.flags import UNUSABLE, picture_flags, text_flags
from subtext.curation.kinds import KINDS, Kinds, kinds_of
from subtext.curation.surroundings import Surroundings, chance_links, near_links, surroundings
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset
from subtext.data.language import guess_language
from subtext.evaluation.overlap import looks_of
from subtext.neighbours.graph import Graph

Reason = Literal["mismatched", "copies", "leaks", "unusable", "flagged"]
REASONS: tuple[Reason, ...] = ("mismatched", "copies", "leaks", "unusable", "flagged")
FEWEST = 50
"""Pairs below which nothing is said of kinds: shares of so few are noise."""


@dataclass(frozen=True)
class Judged:
    """Pairs and what is known of each.

    columns  name -> (L) values, one a link of `pairs`
    shares   of loose and mismatched pairs, as estimated; empty where there are too few pairs
    how      in words: how copies were found, and the like
    """

    pairs: Dataset
    columns: dict[str, list[Any]]
    shares: dict[str, float]
    how: dict[str, str]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.pairs.links)

    def row(self, link: int) -> dict[str, Any]:
        """One pair."""
        return {name: values[link] for name, values in self.columns.items()}


def judge(
    pairs: Dataset,
    images: Embeddings,
    texts: Embeddings,
    *,
    graph: Graph | None = None,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """All that is known of the pairs of a data set.

    images, texts  embeddings of its items, in their order
    graph          of its texts: without it there are no neighbours, and nothing is called loose
    progress           hears how many pictures have been looked at

    Cost that of `align`, of reading every picture, and time I^2 for copies among pictures.
    """
    scores, kinds = kinds_of_pairs(pairs, images, texts, graph=graph, seed=seed)
    neighbourhood = None if graph is None else surroundings(graph, pairs, images, texts)
    looks = _pictures(pairs, workers, progress)
    copies, how = text_copies(pairs)
    rows, words = pairs.links[:, 0], pairs.links[:, 1]
    values = pairs.texts.values
    odd = [text_flags(value) if isinstance(value, str) else [] for value in values]
    columns: dict[str, list[Any]] = {
        "picture": [pairs.images.ids[row] for row in rows],
        "text": [pairs.texts.ids[row] for row in words],
        "caption": [values[row] if isinstance(values[row], str) else None for row in words],
        "path": [value if isinstance(value := pairs.images.values[row], str) else None for row in rows],
        "split": [str(pairs.images.splits[row]) for row in rows],
        "language": _languages(pairs, words),
        **scores,
        **({} if neighbourhood is None else _near_columns(neighbourhood)),
        **_uncertain_columns(pairs, images, texts),
        "picture_copies": looks.copies[rows].tolist(),
        "text_copies": copies[words].tolist(),
        "copy": (later(pairs.images, looks.copies)[rows] & later(pairs.texts, copies)[words]).tolist(),
        "leak": (leaks(pairs.images, looks.copies)[rows] | leaks(pairs.texts, copies)[words]).tolist(),
        "flags": [[*looks.flags[row], *odd[word]] for row, word in zip(rows, words, strict=True)],
    }
    return Judged(pairs, columns, {} if kinds is None else kinds.shares, {"text copies": how, "pictures": looks.how})


def kinds_of_pairs(
    pairs: Dataset, images: Embeddings, texts: Embeddings, *, graph: Graph | None, seed: int = 0
) -> tuple[dict[str, list[Any]], Kinds | None]:
    """Columns of scores and kinds of the links, and the kinds; None where there are too few pairs to say."""
    alignments, crowd = align(pairs, images, texts, seed=seed)
    columns: dict[str, list[Any]] = {"cosine": alignments.cosine.tolist(), "alignment": alignments.alignment.tolist()}
    chance = chance_links(pairs, seed=seed)
    if len(pairs.links) < FEWEST or len(chance) < FEWEST:
        return columns | {name: [None] * len(pairs.links) for name in (*KINDS, "kind")}, None
    vectors = [alignment.vectors.float().numpy() for alignment in (images, texts)]
    details = {
        "chance": chance,
        "near": np.zeros((0, 2), np.int64) if graph is None else near_links(graph, pairs, seed=seed),
    }
    worth = {name: aligned(crowd, pairs, vectors[0], vectors[1], links).alignment for name, links in details.items()}
    kinds = kinds_of(alignments.alignment, worth["chance"], worth["near"] if len(worth["near"]) else None)
    likely = {name: getattr(kinds, name).tolist() for name in KINDS}
    return columns | likely | {"kind": list(kinds.likeliest)}, kinds


def left_out(judgement: Judged, drop: Sequence[Reason], *, least: float = 0.5) -> list[list[str]]:
    """Of each pair the reasons to leave it out, in words; an empty list for one that stays.

    least  probability of a mismatch from which a pair goes
    """
    reasons: list[list[str]] = []
    columns = judgement.columns
    for link in range(len(judgement)):
        why = []
        wrong = columns["mismatched"][link]
        if "mismatched" in drop and wrong is not None and wrong >= least:
            why.append(f"mismatched ({wrong:.2f})")
        if "copies" in drop and columns["copy"][link]:
            why.append("a copy of another pair")
        if "leaks" in drop and columns["leak"][link]:
            why.append("has a copy in a held-out split")
        flags = set(columns["flags"][link])
        if "unusable" in drop and flags & UNUSABLE:
            why.append(", ".join(sorted(flags & UNUSABLE)))
        if "flagged" in drop and flags - UNUSABLE:
            why.append(", ".join(sorted(flags - UNUSABLE)))
        reasons.append(why)
    return reasons


@dataclass(frozen=True)
class _Looked:
    copies: NDArray[np.int64]
    flags: list[list[str]]
    how: str = "difference hash, confirmed by greys"


def _pictures(pairs: Dataset, workers: int, progress: Callable[[int], None] | None) -> _Looked:
    """Copies among the pictures, and what is odd about them; nothing where none is there, but features alone."""
    values = pairs.images.values
    looks = looks_of(pairs.images, pairs.root, workers, progress, 0)
    if all(look is None for look in looks):
        how = "none can be read: nothing is said of copies among them, or of what is odd"
        return _Looked(np.full(len(values), -1, dtype=np.int64), [[] for _ in values], how)
    flags = list(read_ahead(values, lambda value: picture_flags(value, pairs.root), workers=workers))
    return _Looked(picture_copies(looks), flags)


def _languages(pairs: Dataset, words: NDArray[np.int64]) -> list[str | None]:
    column = pairs.texts.metadata.get("language")
    if column is not None:
        return [None if column[row] is None else str(column[row]) for row in words]
    guessed = [guess_language(value) if isinstance(value, str) else None for value in pairs.texts.values]
    return [guessed[row] for row in words]


def _near_columns(neighbourhood: Surroundings) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for modality in ("image", "text"):
        columns[f"diversity_{modality}"] = _known(neighbourhood.diversity[modality])
        columns[f"discrepancy_{modality}"] = _known(neighbourhood.discrepancy[modality])
    return {**columns, "agreement": _known(neighbourhood.agreement)}


def _uncertain_columns(pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, list[Any]]:
    """How uncertain the model is of each pair's picture and text; nothing where items are no distributions."""
    columns = {}
    for index, (name, items) in enumerate((("picture", images), ("text", texts))):
        if (uncertainty := items.uncertainty) is not None:
            columns[f"{name}_uncertainty"] = uncertainty[torch.from_numpy(pairs.links[:, index])].tolist()
    return columns


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
