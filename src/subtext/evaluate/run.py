"""The evaluation itself: data -> scores in blocks -> counts -> values -> Result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

import subtext
from subtext import scoring
from subtext.core import DIRECTIONS, Embeddings
from subtext.data.pairs import Pairs
from subtext.errors import ShapeError
from subtext.evaluate import gallery as galleries
from subtext.evaluate import values as measuring
from subtext.evaluate.bootstrap import LEVEL, intervals
from subtext.evaluate.embedding import embed_pairs
from subtext.evaluate.gallery import Gallery
from subtext.evaluate.protocol import Protocol
from subtext.evaluate.result import Result
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

    def blocks(direction: Any, queries: Embeddings, candidates: Embeddings) -> Iterator[Counts]:
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


def _measure(count: Counting, gallery: Gallery, protocol: Protocol) -> Result:
    """Counts of every fold to values, figures, chance and intervals."""
    sizes: list[list[int]] = []
    found: list[dict[str, float]] = []
    chances: list[dict[str, float]] = []
    per_query: dict[str, NDArray[Any]] = {}
    invalid = dict.fromkeys(DIRECTIONS, 0)
    keys = {direction: gallery.keys(direction) for direction in DIRECTIONS}
    for image_rows, text_rows, match in gallery.folds(protocol.folds):
        sizes.append([len(image_rows), len(text_rows)])
        found.append({})
        chances.append({})
        both = zip(DIRECTIONS, (image_rows, text_rows), count(image_rows, text_rows, match), strict=True)
        for direction, rows, counts in both:
            values = measuring.query_values(counts, keys[direction][rows], protocol)
            found[-1] |= _prefixed(direction, measuring.figures(values))
            chances[-1] |= _prefixed(direction, measuring.chance(counts, protocol))
            invalid[direction] += int(counts.invalid.sum())
            for name, column in _prefixed(direction, values).items():
                blank = np.full(len(gallery.ids(direction)), np.nan)
                per_query.setdefault(name, blank)[rows] = column
    recalls = [f"{direction}/recall@{k}" for direction in DIRECTIONS for k in protocol.recall]
    figures, chance = _averaged(found), _averaged(chances)
    for table in (figures, chance):
        table["rsum"] = sum(table[name] for name in recalls)
    figures |= {f"{direction}/nan_scores": float(number) for direction, number in invalid.items()}
    return Result(
        figures=figures,
        intervals=_intervals(per_query, recalls, gallery, protocol),
        chance=chance,
        protocol=_stated(protocol, gallery, per_query, sizes),
        per_query=per_query | {f"{d}/id": np.asarray(gallery.ids(d), dtype=np.str_) for d in DIRECTIONS},
    )


def _intervals(
    per_query: dict[str, NDArray[Any]], recalls: list[str], gallery: Gallery, protocol: Protocol
) -> dict[str, tuple[float, float]]:
    scaled = {name: measuring.unit(name) * column for name, column in per_query.items()}
    groups = {f"{direction}/": gallery.groups(direction) for direction in DIRECTIONS}
    clusters = {name: groups[name[: name.index("/") + 1]] for name in scaled}
    return intervals(scaled, clusters, {"rsum": recalls}, samples=protocol.bootstrap, seed=protocol.seed)


def _stated(
    protocol: Protocol, gallery: Gallery, per_query: dict[str, NDArray[Any]], sizes: list[list[int]]
) -> dict[str, Any]:
    """The protocol as the JSON states it."""
    asked = {d: int((~np.isnan(per_query[f"{d}/{measuring.RANK}"])).sum()) for d in DIRECTIONS}
    stated = asdict(protocol) | {"recall": list(protocol.recall), "c_way": list(protocol.c_way)}
    return stated | {
        "split": gallery.split,
        "gallery": {"pictures": len(gallery.image_ids), "texts": len(gallery.text_ids)},
        "fold_sizes": sizes,
        "queries": asked,
        "left_out": {direction: len(gallery.ids(direction)) - asked[direction] for direction in DIRECTIONS},
        "positives": gallery.positives,
        "c_way_truth": "the best-scored positive; other positives are no distractors",
        "intervals": {"level": LEVEL, "samples": protocol.bootstrap, "resampled": "pictures, with all of their group"},
        "units": "recall, mrr, c-way accuracy and tie_share in per cent; ranks from 1; nan_scores a count",
        "data": gallery.fingerprint,
        "versions": {"subtext": subtext.__version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def _prefixed(direction: str, table: dict[str, Any]) -> dict[str, Any]:
    return {f"{direction}/{name}": value for name, value in table.items()}


def _averaged(tables: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the folds."""
    return {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}
