"""From scores to a Result: every fold measured, joined, resampled, and stated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.evaluation import values as measuring
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.human import agreement
from subtext.evaluation.intervals import intervals
from subtext.evaluation.measure import measure
from subtext.evaluation.metrics.summary import mean
from subtext.evaluation.protocol import Further, Protocol
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.results import Result, notes, stated
from subtext.evaluation.scoring import Rows, Source, scored_once

WORDS = (10, 15, 20)
"""Where one bucket of text lengths ends and the next begins, in words."""


@dataclass
class _Table:
    """What one fold, or several together, give; names are "<direction>/<figure>".

    sizes    pictures and texts of each fold
    pools    direction -> fewest and most wrong candidates of a query
    invalid  direction -> scores that are not a number
    """

    sizes: list[list[int]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    pools: dict[Direction, tuple[int, int]] = field(default_factory=dict)
    invalid: dict[Direction, int] = field(default_factory=dict)


def measured(source: Source, gallery: Gallery, protocol: Protocol, further: Further) -> Result:
    """Measure the scores of a gallery under a protocol, in one set of folds or several.

    Cost   a model of pairs gives no more scores than the gallery has pairs, however many sets of folds read them.
    """
    further.require(source.shape)
    reads = sum(1 / count for count in (protocol.folds, *protocol.also_folds)) + (further.human is not None)
    source = scored_once(source, reads)
    per_query: dict[str, NDArray[Any]] = {}
    whole = _folds(source, gallery, protocol, further, per_query)
    for count in protocol.also_folds:
        columns: dict[str, NDArray[Any]] = {}
        table = _folds(source, gallery, replace(protocol, folds=count, also_folds=()), further, columns)
        label = label_of(len(gallery.image_ids), count)
        for mine, more in (
            (whole.figures, table.figures),
            (whole.chance, table.chance),
            (whole.ceiling, table.ceiling),
        ):
            mine |= {f"{name}{label}": value for name, value in more.items()}
        per_query |= {f"{name}{label}": column for name, column in columns.items()}
        whole.sizes += table.sizes
    per_query |= dict(_by_length(per_query, further.lengths, protocol, whole.figures))
    if further.human is not None:
        whole.figures |= agreement(source, further.human, further.rated)
    return _result(whole, per_query, gallery, protocol, further)


def _folds(
    source: Source, gallery: Gallery, protocol: Protocol, further: Further, per_query: dict[str, NDArray[Any]]
) -> _Table:
    """Means over the folds; the values of every query are put into `per_query`."""
    folds: list[_Table] = []
    for image_rows, text_rows, match in gallery.folds(protocol.folds):
        part = source.part(image_rows, text_rows)
        asked = further if protocol.folds == 1 else further.part(image_rows, text_rows)
        folds.append(_fold(part, gallery, (image_rows, text_rows, match), protocol, asked, per_query))
    joined = _Table(sizes=[size for fold in folds for size in fold.sizes])
    joined.figures = _averaged([fold.figures for fold in folds])
    for name in [name for name in per_query if name not in joined.figures]:
        del per_query[name]
    joined.chance = {n: v for n, v in _averaged([fold.chance for fold in folds]).items() if n in joined.figures}
    joined.ceiling = {n: v for n, v in _averaged([fold.ceiling for fold in folds]).items() if v < 100}
    for table in (joined.figures, joined.chance):
        table["rsum"] = sum(table[f"{direction}/recall@{k}"] for direction in DIRECTIONS for k in protocol.recall)
    for direction in DIRECTIONS:
        joined.invalid[direction] = sum(fold.invalid[direction] for fold in folds)
        joined.figures[f"{direction}/nan_scores"] = float(joined.invalid[direction])
        fewest, most = zip(*(fold.pools[direction] for fold in folds), strict=True)
        joined.pools[direction] = (min(fewest), min(most))
    return joined


def _fold(
    part: Source,
    gallery: Gallery,
    chosen: tuple[Rows, Rows, Match],
    protocol: Protocol,
    further: Further,
    per_query: dict[str, NDArray[Any]],
) -> _Table:
    image_rows, text_rows, match = chosen
    fold = _Table([[len(image_rows), len(text_rows)]])
    more = {} if further.empty else measure(part, further, match, recall=protocol.recall, ties=protocol.ties)
    both = zip(DIRECTIONS, (image_rows, text_rows), part.counts(match, stable=protocol.ties == "stable"), strict=True)
    for direction, rows, counts in both:
        values = measuring.query_values(counts, gallery.keys(direction)[rows], protocol)
        figures, chance = measuring.figures(values), measuring.chance(counts, protocol)
        if direction in more:
            found = more[direction]
            values |= found.values
            figures |= {name: 100 * mean(column) for name, column in found.values.items()} | found.numbers
            chance |= {name: 100 * mean(column) for name, column in found.chance.items()}
            ceiling = {name: 100 * mean(column) for name, column in found.ceiling.items()}
            fold.ceiling |= _prefixed(direction, ceiling)
        fold.figures |= _prefixed(direction, figures)
        fold.chance |= _prefixed(direction, chance)
        fold.pools[direction] = measuring.pool(counts)
        fold.invalid[direction] = int(counts.invalid.sum())
        for name, column in _prefixed(direction, values).items():
            blank = np.full(len(gallery.ids(direction)), np.nan)
            per_query.setdefault(name, blank)[rows] = column
    return fold


def _by_length(
    per_query: Mapping[str, NDArray[Any]],
    lengths: NDArray[np.int64] | None,
    protocol: Protocol,
    figures: dict[str, float],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Recall of the texts of each length; figures are added to `figures`."""
    if lengths is None:
        return
    for (low, high), label in zip(_edges(), words(), strict=True):
        inside = (lengths >= low) & (lengths < high)
        for k in protocol.recall:
            name = f"text_to_image/recall@{k}"
            column = np.where(inside, per_query[name], np.nan)
            if not np.isnan(column).all():
                figures[f"{name}({label})"] = 100 * mean(column)
                yield f"{name}({label})", column


def words() -> list[str]:
    """Names of the buckets of text lengths.

    >>> words()
    ['words 0-9', 'words 10-14', 'words 15-19', 'words 20-']
    """
    return [f"words {low}-{'' if math.isinf(high) else int(high) - 1}" for low, high in _edges()]


def _edges() -> Sequence[tuple[int, float]]:
    return list(zip((0, *WORDS), (*WORDS, math.inf), strict=True))


def _result(
    table: _Table, per_query: dict[str, NDArray[Any]], gallery: Gallery, protocol: Protocol, further: Further
) -> Result:
    clusters = {str(direction): gallery.clusters(direction) for direction in DIRECTIONS}
    labels = ["", *(label_of(len(gallery.image_ids), count) for count in protocol.also_folds)]
    recalls = [f"{direction}/recall@{k}" for direction in DIRECTIONS for k in protocol.recall]
    found = intervals(
        {name: measuring.unit(name) * column for name, column in per_query.items()},
        {name: clusters[name.split("/")[0]] for name in per_query},
        {f"rsum{label}": [f"{name}{label}" for name in recalls] for label in labels},
        samples=protocol.bootstrap,
        seed=protocol.seed,
    )
    statement = stated(protocol, gallery, per_query, table.sizes)
    if not further.empty:
        statement["further"] = further.stated()
    if further.lengths is not None:
        sizes = [int(((further.lengths >= low) & (further.lengths < high)).sum()) for low, high in _edges()]
        statement["words"] = dict(zip(words(), sizes, strict=True))
    return Result(
        figures=table.figures,
        intervals=found,
        chance=table.chance,
        ceiling=table.ceiling,
        protocol=statement,
        per_query=per_query | gallery.names(),
        notes=notes(statement, table.figures, found, table.pools),
    )


def label_of(pictures: int, folds: int) -> str:
    """How names of figures end that are of a further set of folds: "(1k)" where each has 1,000 pictures.

    >>> label_of(5000, 5), label_of(30, 3), label_of(30, 1)
    ('(1k)', '(3 folds)', '(whole)')
    """
    size, left = divmod(pictures, folds)
    if left == 0 and size % 1000 == 0:
        return f"({size // 1000}k)"
    return "(whole)" if folds == 1 else f"({folds} folds)"


def _prefixed(direction: str, table: dict[str, Any]) -> dict[str, Any]:
    return {f"{direction}/{name}": value for name, value in table.items()}


def _averaged(tables: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the folds; one that a fold has no value of is left out."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    means = {name: float(np.mean([table[name] for table in tables])) for name in names}
    return {name: value for name, value in means.items() if not math.isnan(value)}
