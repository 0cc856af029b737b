"""What people said about pairs: a table of query, candidate and score, and where its items stand in a gallery."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.data.dataset import Judgements, Problem
from subtext.data.readers.table import records
from subtext.data.rows import RowError, name_of
from subtext.errors import DataError

QUERY = ("query", "query-id", "query_id", "text", "caption", "caption1", "image1")
CANDIDATE = ("candidate", "corpus-id", "corpus_id", "image", "caption2", "image2")
SCORE = ("score", "agg_score", "rating", "relevance")


@dataclass(frozen=True)
class Human:
    """L judged pairs, by name.

    queries, candidates  names        scores  (L) float32, finite, larger is more
    """

    queries: list[str]
    candidates: list[str]
    scores: Float[np.ndarray, "l"]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.queries)

    def cells(
        self, query_ids: Sequence[str], candidate_ids: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Float[np.ndarray, "m"]]:
        """Query row, candidate row and score of the M pairs whose two items are there.

        Raises DataError when there is none.
        """
        rows, columns = _rows(query_ids), _rows(candidate_ids)
        present = [
            position
            for position, (query, candidate) in enumerate(zip(self.queries, self.candidates, strict=True))
            if query in rows and candidate in columns
        ]
        if not present:
            raise DataError(
                f"judgements need the names of the items; none of {len(self)} pairs has both; the first is "
                f"{self.queries[0]!r} and {self.candidates[0]!r}, the items begin with {list(query_ids[:1])} and "
                f"{list(candidate_ids[:1])}; name them alike"
            )
        return (
            np.array([rows[self.queries[position]] for position in present], dtype=np.int64),
            np.array([columns[self.candidates[position]] for position in present], dtype=np.int64),
            self.scores[present],
        )

    def judgements(self, image_ids: Sequence[str], text_ids: Sequence[str]) -> Judgements:
        """The same as judgements of a data set, whichever of the two columns has the pictures.

        Raises DataError when no pair has a picture and a text of these.
        """
        if _shared(self.queries, image_ids) > _shared(self.queries, text_ids):
            images, texts, scores = self.cells(image_ids, text_ids)
        else:
            texts, images, scores = self.cells(text_ids, image_ids)
        return Judgements(texts=texts, images=images, scores=scores)


def read_human(path: Path) -> Human:
    """CSV, TSV, JSONL or Parquet with a column each for the query, the candidate and the score.

    Columns are known by name: `QUERY`, `CANDIDATE` and `SCORE` list them, the first that is there counts.

    Raises DataError when a column is missing, a row is broken, a score is no finite number, or a pair stands twice.
    """
    queries: list[str] = []
    candidates: list[str] = []
    scores: list[float] = []
    first_at: dict[tuple[str, str], str] = {}
    for where, raw in records(path):
        if isinstance(raw, Problem):
            raise DataError(f"{path}: {raw.where} {raw.what}")
        query, candidate, score = _row(path, where, raw)
        if first_at.setdefault((query, candidate), where) != where:
            raise DataError(
                f"{path} needs each pair once; '{query}' and '{candidate}' are at {first_at[query, candidate]} and at "
                f"{where}"
            )
        queries.append(query)
        candidates.append(candidate)
        scores.append(score)
    if not queries:
        raise DataError(f"{path} needs at least one judged pair; it has none")
    return Human(queries, candidates, np.array(scores, dtype=np.float32))


def _row(path: Path, where: str, raw: Mapping[str, Any]) -> tuple[str, str, float]:
    for wanted, names in (("query", QUERY), ("candidate", CANDIDATE), ("score", SCORE)):
        if not raw.keys() & set(names):
            have = ", ".join(f"'{column}'" for column in list(raw)[:8])
            raise DataError(f"{path} needs a column '{wanted}' ({', '.join(names)}); {where} has {have}; rename one")
    try:
        query, candidate = name_of(raw, *QUERY), name_of(raw, *CANDIDATE)
        score = float(next(raw[name] for name in SCORE if name in raw))
    except (RowError, TypeError, ValueError):
        query = candidate = None
        score = math.nan
    if query is None or candidate is None or not math.isfinite(score):
        raise DataError(f"{path}: {where} needs a query, a candidate and a finite score; it has {str(dict(raw))[:200]}")
    return query, candidate, score


def _rows(names: Sequence[str]) -> dict[str, int]:
    return {str(name): row for row, name in enumerate(names)}


def _shared(names: Sequence[str], ids: Sequence[str]) -> int:
    known = {str(name) for name in ids}
    return sum(name in known for name in names)
