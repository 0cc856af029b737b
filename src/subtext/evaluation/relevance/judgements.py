"""What people said about pairs: ratings in a table, and positives beyond the pairs of COCO's test set.

ECCV Caption (Chun et al. 2022) and Crisscrossed Captions (Parekh et al. 2021) name items by COCO's numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from subtext.data.dataset import Judgements, RowIssue
from subtext.data.readers.table import records
from subtext.data.rows import RowError, name_of
from subtext.errors import DataError
from subtext.evaluation.relevance.match import Match
from subtext.ops.sparse import CandidateLists

QUERY = ("query", "query-id", "query_id", "text", "caption", "caption1", "image1")
CANDIDATE = ("candidate", "corpus-id", "corpus_id", "image", "caption2", "image2")
SCORE = ("score", "agg_score", "rating", "relevance")

Kind = Literal["eccv", "cxc", "coco"]
CXC_THRESHOLD = 3.0
"""The mean rating of 0 to 5 from which Crisscrossed Captions takes a pair for a match."""
_PREFIX = {"eccv": "eccv", "cxc": "cxc", "coco": "original"}
_DIGITS = re.compile(r"(\d+)(?:\.\w+)?$")


@dataclass(frozen=True)
class Ratings:
    """L judged pairs, by name.

    Attributes:
        queries: Names.
        candidates: See `queries`.
        scores: (L) float32, finite, larger is more.
    """

    queries: list[str]
    candidates: list[str]
    scores: Float[np.ndarray, "l"]

    def judgements(self, image_ids: Sequence[str], text_ids: Sequence[str]) -> Judgements:
        """The pairs whose two items are among these, whichever of the two columns has the images.

        Args:
            image_ids: (I) names of images.
            text_ids: (T) names of texts.

        Returns:
            The rated pairs by their rows.

        Raises:
            DataError: If no pair has an image and a text of these.
        """
        images, texts = ({str(name): row for row, name in enumerate(ids)} for ids in (image_ids, text_ids))
        images_ask = sum(name in images for name in self.queries) > sum(name in texts for name in self.queries)
        queries, candidates = (images, texts) if images_ask else (texts, images)
        columns = enumerate(zip(self.queries, self.candidates, strict=True))
        present = [index for index, (query, other) in columns if query in queries and other in candidates]
        if not present:
            examples = [list(ids)[:1] for ids in (queries, candidates)]
            raise DataError(
                f"judgements need the names of the items; none of {len(self.queries)} pairs has both; the first is "
                f"{self.queries[0]!r} and {self.candidates[0]!r}, the items begin with {examples[0]} and "
                f"{examples[1]}; name them alike"
            )
        query_rows = np.array([queries[self.queries[index]] for index in present], dtype=np.int64)
        candidate_rows = np.array([candidates[self.candidates[index]] for index in present], dtype=np.int64)
        image_rows, text_rows = (query_rows, candidate_rows) if images_ask else (candidate_rows, query_rows)
        return Judgements(texts=text_rows, images=image_rows, scores=self.scores[present])


def read_ratings(path: Path) -> Ratings:
    """CSV, TSV, JSONL or Parquet with a column each for the query, the candidate and the score.

    Columns are known by name: `QUERY`, `CANDIDATE` and `SCORE` list them, the first that is there counts.

    Args:
        path: CSV, TSV, JSONL or Parquet.

    Returns:
        The ratings.

    Raises:
        DataError: If a column is missing, a row is broken, a score is no finite number, or a pair stands twice.
    """
    scores: dict[tuple[str, str], float] = {}
    first_at: dict[tuple[str, str], str] = {}
    for where, raw in records(path):
        if isinstance(raw, RowIssue):
            raise DataError(f"{path}: {raw.where} {raw.what}")
        pair, score = _rating(path, where, raw)
        if first_at.setdefault(pair, where) != where:
            raise DataError(
                f"{path} needs each pair once; '{pair[0]}' and '{pair[1]}' are at {first_at[pair]} and at {where}"
            )
        scores[pair] = score
    if not scores:
        raise DataError(f"{path} needs at least one judged pair; it has none")
    queries, candidates = zip(*scores, strict=True)
    return Ratings(list(queries), list(candidates), np.array(list(scores.values()), dtype=np.float32))


def _rating(path: Path, where: str, raw: Mapping[str, Any]) -> tuple[tuple[str, str], float]:
    for column, names in (("query", QUERY), ("candidate", CANDIDATE), ("score", SCORE)):
        if not raw.keys() & set(names):
            have = ", ".join(f"'{name}'" for name in list(raw)[:8])
            raise DataError(f"{path} needs a column '{column}' ({', '.join(names)}); {where} has {have}; rename one")
    try:
        query, candidate = name_of(raw, *QUERY), name_of(raw, *CANDIDATE)
        score = float(next(raw[name] for name in SCORE if name in raw))
    except (RowError, TypeError, ValueError):
        query = candidate = None
        score = math.nan
    if query is None or candidate is None or not math.isfinite(score):
        raise DataError(f"{path}: {where} needs a query, a candidate and a finite score; it has {str(dict(raw))[:200]}")
    return (query, candidate), score


@dataclass(frozen=True)
class Positives:
    """Which items belong together, by number; the two directions were judged apart and need not mirror each other.

    An image or caption that is no key was not judged: as a query it has no value.

    Attributes:
        name: "eccv", "cxc" or "coco".
        image_to_text: Image -> its captions.
        text_to_image: Caption -> its images.
    """

    name: str
    image_to_text: Mapping[int, Sequence[int]]
    text_to_image: Mapping[int, Sequence[int]]

    def match(self, image_ids: Sequence[str | int], text_ids: Sequence[str | int]) -> Match:
        """The truth of a gallery of these items, named by COCO's numbers or by names that end in them.

        Args:
            image_ids: (I) names of images.
            text_ids: (T) names of texts.

        Returns:
            The positives.

        Raises:
            DataError: If two items have the same number, or none of them was judged.
        """
        images, texts = _rows("image", image_ids), _rows("caption", text_ids)
        lists = []
        for subject, positives, queries, candidates in (
            ("image", self.image_to_text, images, texts),
            ("caption", self.text_to_image, texts, images),
        ):
            cells = [
                (queries[query], candidates[candidate])
                for query, numbers in positives.items()
                if query in queries
                for candidate in numbers
                if candidate in candidates
            ]
            if not cells:
                raise DataError(
                    f"{self.name} positives need {subject}s of COCO's test set by their numbers; none of "
                    f"{len(queries)} has one of {len(positives)} judged numbers with an answer here; read the set "
                    "with COCO's ids"
                )
            rows = np.array(cells, dtype=np.int64)
            lists.append(CandidateLists.of_pairs(rows[:, 0], rows[:, 1], queries=len(queries)))
        return Match(*lists)


def read_eccv(folder: Path, kind: Kind = "eccv") -> Positives:
    """The JSON files of the `eccv_caption` package: `<kind>_image_to_caption.json` and `<kind>_caption_to_image.json`.

    "coco" reads those of the pairs themselves, whose names begin with "original".

    Args:
        folder: With the JSON files of eccv_caption.
        kind: Which of its truths.

    Returns:
        The positives.

    Raises:
        DataError: If a file is missing or is no such JSON.
    """
    sides = (("image", "caption"), ("caption", "image"))
    files = [folder / f"{_PREFIX[kind]}_{query}_to_{candidate}.json" for query, candidate in sides]
    return Positives(kind, *map(_lists, files))


def read_cxc(path: Path) -> Positives:
    """The table `sits_test.csv` of Crisscrossed Captions: pairs rated `CXC_THRESHOLD` or more, in both directions.

    These are the positives that ECCV Caption ships for it, to the pair.

    Args:
        path: sits_test.csv.

    Returns:
        The positives.
    """
    table = read_ratings(path)
    images: dict[int, list[int]] = {}
    texts: dict[int, list[int]] = {}
    for text, image, score in zip(table.queries, table.candidates, table.scores, strict=True):
        if score >= CXC_THRESHOLD:
            images.setdefault(number(image), []).append(number(text))
            texts.setdefault(number(text), []).append(number(image))
    return Positives("cxc", images, texts)


def number(name: str | int) -> int:
    """The number that a name of COCO ends in.

    Args:
        name: Of an image or a text.

    Returns:
        The number that it ends in; None where there is none.

    Raises:
        DataError: If there is none.

    Example:
        >>> number("COCO_val2014_000000391895.jpg"), number("COCO_val2014:sentid:732091"), number(38)
        (391895, 732091, 38)
    """
    if isinstance(name, int):
        return name
    digits = _DIGITS.search(name)
    if digits is None:
        raise DataError(f"COCO's names end in a number; {name!r} does not; read the set with COCO's ids")
    return int(digits[1])


def _rows(subject: str, names: Sequence[str | int]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for row, name in enumerate(names):
        if rows.setdefault(number(name), row) != row:
            raise DataError(
                f"{subject}s need numbers of their own; {names[rows[number(name)]]!r} and {name!r} have the same; read "
                "the set with COCO's ids"
            )
    return rows


def _lists(path: Path) -> dict[int, list[int]]:
    try:
        content: Any = json.loads(path.read_bytes())
        return {int(key): [int(value) for value in values] for key, values in content.items()}
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}; it is one of eccv_caption's files"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path} needs to be JSON; {str(error)[:200]}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path} needs an object of lists of numbers; {str(error)[:200]}") from error
