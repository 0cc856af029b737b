"""The evaluation itself: data -> scores in blocks -> counts -> values -> Result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext import scoring
from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.pairs import Pairs
from subtext.errors import ShapeError
from subtext.evaluate import gallery as galleries
from subtext.evaluate import values as measuring
from subtext.evaluate.bootstrap import intervals
from subtext.evaluate.embedding import embed_pairs
from subtext.evaluate.gallery import Gallery
from subtext.evaluate.notes import notes
from subtext.evaluate.protocol import Protocol
from subtext.evaluate.result import Result
from subtext.evaluate.statement import stated
from subtext.model import Model
from subtext.ops.rank import KERNEL_CELLS, Counts, best_of, both_directions
from subtext.relevance.match import Match

STORED_BYTES = 2**28
"""Up to this size a score matrix is kept and read once for both directions; above, blocks are scored for each."""

Rows = NDArray[np.int64]
Counting = Callable[[Rows, Rows, Match], tuple[Counts, Counts]]
"""Picture rows, text rows, their truth -> counts of the pictures' and of the texts' queries."""


def evaluate(
    model: Model,
    pairs: Pairs,
    *,
    protocol: Protocol | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """How well a model finds the texts of these pictures and the pictures of these texts.

    pairs     one split; every picture and every text asks, and is a candidate of the other side
    protocol  None for the default one
    progress  hears how many pictures and texts are embedded

    Raises RequirementError when no picture and text of `pairs` belong together, or there are more folds than pictures.
    Cost   embedding, and one similarity of every pair in each direction; memory is bounded by the embeddings and
           blocks of 64 MB (a score matrix of up to 256 MB is kept instead).
    """
    images, texts = embed_pairs(model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    return evaluate_embeddings(model.similarity, images, texts, pairs, protocol=protocol)


def evaluate_embeddings(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    pairs: Pairs,
    *,
    protocol: Protocol | None = None,
    block_bytes: int = scoring.BLOCK_BYTES,
) -> Result:
    """The same from embeddings of all pictures and texts of `pairs`, in their order.

    Raises ShapeError when embeddings and items differ in number.
    """
    if (len(images), len(texts)) != (len(pairs.images), len(pairs.texts)):
        raise ShapeError(
            f"evaluation needs an embedding for each of {len(pairs.images)} pictures and {len(pairs.texts)} texts; it "
            f"got {len(images)} and {len(texts)}; embed the split that is evaluated"
        )
    asked = protocol or Protocol()

    def count(image_rows: Rows, text_rows: Rows, match: Match) -> tuple[Counts, Counts]:
        whole = (len(image_rows), len(text_rows)) == (len(images), len(texts))
        mine = images if whole else images[torch.from_numpy(image_rows)]
        theirs = texts if whole else texts[torch.from_numpy(text_rows)]
        stable = asked.ties == "stable"
        if 4 * len(mine) * len(theirs) <= STORED_BYTES:
            scores = scoring.matrix(similarity, mine, theirs, block_bytes, exact=asked.exact)
            return both_directions(scores, match.image_to_text, match.text_to_image, stable=stable)
        return _streamed(similarity, (mine, theirs), match, asked, block_bytes)

    return _measure(count, galleries.of_pairs(pairs), asked)


def evaluate_scores(
    scores: Float[Tensor, "i t"],
    image_groups: NDArray[np.int64],
    text_groups: NDArray[np.int64],
    protocol: Protocol | None = None,
) -> Result:
    """The same from a score matrix, larger is better; a picture and a text belong together when their groups agree.

    Raises ShapeError when groups and scores differ in number.
    """
    if tuple(scores.shape) != (len(image_groups), len(text_groups)):
        raise ShapeError(
            f"scores must be (pictures, texts) = {(len(image_groups), len(text_groups))} as the groups are; "
            f"it got {tuple(scores.shape)}"
        )
    asked = protocol or Protocol()

    def count(image_rows: Rows, text_rows: Rows, match: Match) -> tuple[Counts, Counts]:
        whole = (len(image_rows), len(text_rows)) == tuple(scores.shape)
        block = scores if whole else scores[torch.from_numpy(image_rows)][:, torch.from_numpy(text_rows)]
        return both_directions(block, match.image_to_text, match.text_to_image, stable=asked.ties == "stable")

    return _measure(count, galleries.of_groups(image_groups, text_groups), asked)


def _streamed(
    similarity: nn.Module, items: tuple[Embeddings, Embeddings], match: Match, protocol: Protocol, block_bytes: int
) -> tuple[Counts, Counts]:
    """Counts of both directions, each from blocks of its own queries: nothing larger than a block is held."""
    images, texts = items
    compiled = len(images) * len(texts) >= KERNEL_CELLS

    def blocks(direction: Direction, queries: Embeddings, candidates: Embeddings) -> Iterator[Counts]:
        positives = match.cells(direction)
        for start, stop, scores in scoring.blocks(
            similarity, queries, candidates, direction, block_bytes, exact=protocol.exact
        ):
            stable = protocol.ties == "stable"
            yield best_of(scores, positives[start:stop], stable=stable, kernel=compiled)

    return (
        Counts.cat(list(blocks("image_to_text", images, texts))),
        Counts.cat(list(blocks("text_to_image", texts, images))),
    )


@dataclass(frozen=True)
class _Fold:
    """What one fold gives; names are "<direction>/<figure>".

    sizes    pictures and texts
    pools    direction -> fewest and most wrong candidates of a query
    invalid  direction -> scores that are not a number
    """

    sizes: list[int]
    figures: dict[str, float] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    pools: dict[Direction, tuple[int, int]] = field(default_factory=dict)
    invalid: dict[Direction, int] = field(default_factory=dict)


def _measure(count: Counting, gallery: Gallery, protocol: Protocol) -> Result:
    """Counts of every fold to values, figures, chance and intervals."""
    folds: list[_Fold] = []
    per_query: dict[str, NDArray[Any]] = {}
    keys = {direction: gallery.keys(direction) for direction in DIRECTIONS}
    for image_rows, text_rows, match in gallery.folds(protocol.folds):
        fold = _Fold([len(image_rows), len(text_rows)])
        both = zip(DIRECTIONS, (image_rows, text_rows), count(image_rows, text_rows, match), strict=True)
        for direction, rows, counts in both:
            values = measuring.query_values(counts, keys[direction][rows], protocol)
            fold.figures.update(_prefixed(direction, measuring.figures(values)))
            fold.chance.update(_prefixed(direction, measuring.chance(counts, protocol)))
            fold.pools[direction] = measuring.pool(counts)
            fold.invalid[direction] = int(counts.invalid.sum())
            for name, column in _prefixed(direction, values).items():
                blank = np.full(len(gallery.ids(direction)), np.nan)
                per_query.setdefault(name, blank)[rows] = column
        folds.append(fold)
    return _joined(folds, per_query, gallery, protocol)


def _joined(folds: list[_Fold], per_query: dict[str, NDArray[Any]], gallery: Gallery, protocol: Protocol) -> Result:
    """The folds as one Result, without figures that a fold is too small for."""
    figures = _averaged([fold.figures for fold in folds])
    chance = {name: value for name, value in _averaged([fold.chance for fold in folds]).items() if name in figures}
    per_query = {name: column for name, column in per_query.items() if name in figures}
    recalls = [f"{direction}/recall@{k}" for direction in DIRECTIONS for k in protocol.recall]
    for table in (figures, chance):
        table["rsum"] = sum(table[name] for name in recalls)
    pools: dict[Direction, tuple[int, int]] = {}
    for direction in DIRECTIONS:
        figures[f"{direction}/nan_scores"] = float(sum(fold.invalid[direction] for fold in folds))
        fewest, most = zip(*(fold.pools[direction] for fold in folds), strict=True)
        pools[direction] = (min(fewest), min(most))
    clusters = {str(direction): gallery.clusters(direction) for direction in DIRECTIONS}
    found = intervals(
        {name: measuring.unit(name) * column for name, column in per_query.items()},
        {name: clusters[name.split("/")[0]] for name in per_query},
        {"rsum": recalls},
        samples=protocol.bootstrap,
        seed=protocol.seed,
    )
    statement = stated(protocol, gallery, per_query, [fold.sizes for fold in folds])
    return Result(
        figures=figures,
        intervals=found,
        chance=chance,
        protocol=statement,
        per_query=per_query | _names(gallery),
        notes=notes(statement, figures, found, pools),
    )


def _names(gallery: Gallery) -> dict[str, NDArray[Any]]:
    """Of the queries of both directions, and of the picture that each text goes with; "" where it has none."""
    ids = {f"{d}/id": np.asarray(gallery.ids(d), dtype=np.str_) for d in DIRECTIONS}
    owners = [gallery.image_ids[row] if row >= 0 else "" for row in gallery.owners]
    return ids | {"text_to_image/picture": np.asarray(owners, dtype=np.str_)}


def _prefixed(direction: str, table: dict[str, Any]) -> dict[str, Any]:
    return {f"{direction}/{name}": value for name, value in table.items()}


def _averaged(tables: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the folds; one that a fold has no value of is left out."""
    means = {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}
    return {name: value for name, value in means.items() if not math.isnan(value)}
