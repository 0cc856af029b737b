"""Positives that people found beyond the pairs of COCO's test set.

ECCV Caption (Chun et al. 2022) and Crisscrossed Captions (Parekh et al. 2021) name them by COCO's numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.errors import DataError
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.relevance.ratings import read_human
from subtext.ops.sparse import CandidateLists

Kind = Literal["eccv", "cxc", "coco"]
CXC_THRESHOLD = 3.0
"""The mean rating of 0 to 5 from which Crisscrossed Captions takes a pair for a match."""
_PREFIX = {"eccv": "eccv", "cxc": "cxc", "coco": "original"}
_DIGITS = re.compile(r"(\d+)(?:\.\w+)?$")


@dataclass(frozen=True)
class Positives:
    """Who belongs together, by number; the two directions were judged apart and need not mirror each other.

    image_to_text  picture -> its captions        text_to_image  caption -> its pictures
    name           "eccv", "cxc" or "coco"

    A picture or caption that is no key was not judged: as a query it has no value.
    """

    name: str
    image_to_text: Mapping[int, Sequence[int]]
    text_to_image: Mapping[int, Sequence[int]]

    def match(self, image_ids: Sequence[str | int], text_ids: Sequence[str | int]) -> Match:
        """The truth of a gallery of these items, named by COCO's numbers or by names that end in them.

        Raises DataError when two items have the same number, or none of them is known.
        """
        images, texts = _rows("picture", image_ids), _rows("caption", text_ids)
        return Match(
            self._cells(self.image_to_text, images, texts, "picture"),
            self._cells(self.text_to_image, texts, images, "caption"),
        )

    def _cells(
        self, positives: Mapping[int, Sequence[int]], query_rows: dict[int, int], answers: dict[int, int], subject: str
    ) -> CandidateLists:
        cells = [
            (query_rows[query], answers[candidate])
            for query, candidates in positives.items()
            if query in query_rows
            for candidate in candidates
            if candidate in answers
        ]
        if not cells:
            raise DataError(
                f"{self.name} positives need {subject}s of COCO's test set by their numbers; none of {len(query_rows)} "
                f"has one of {len(positives)} judged numbers with an answer here; read the set with COCO's ids"
            )
        pairs = np.array(cells, dtype=np.int64)
        return CandidateLists.of_pairs(pairs[:, 0], pairs[:, 1], queries=len(query_rows))


def read_eccv(folder: Path, kind: Kind = "eccv") -> Positives:
    """The JSON files of the `eccv_caption` package: `<kind>_image_to_caption.json` and `<kind>_caption_to_image.json`.

    "coco" reads those of the pairs themselves, whose names begin with "original".

    Raises DataError when a file is missing or is no such JSON.
    """
    prefix = _PREFIX[kind]
    images, texts = (
        _lists(folder / f"{prefix}_{query_side}_to_{candidate_side}.json")
        for query_side, candidate_side in (("image", "caption"), ("caption", "image"))
    )
    return Positives(kind, images, texts)


def read_cxc(path: Path, *, threshold: float = CXC_THRESHOLD) -> Positives:
    """The table `sits_test.csv` of Crisscrossed Captions: pairs rated `threshold` or more, in both directions.

    With 3.0 these are the positives that ECCV Caption ships for it, to the pair.
    """
    table = read_human(path)
    images: dict[int, list[int]] = {}
    texts: dict[int, list[int]] = {}
    for text, image, score in zip(table.queries, table.candidates, table.scores, strict=True):
        if score >= threshold:
            images.setdefault(number(image), []).append(number(text))
            texts.setdefault(number(text), []).append(number(image))
    return Positives("cxc", images, texts)


def number(name: str | int) -> int:
    """The number that a name of COCO ends in.

    Raises DataError where there is none.

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
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}; it is one of eccv_caption's files"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be JSON; {str(error)[:200]}") from error
    try:
        return {int(key): [int(value) for value in values] for key, values in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path} needs an object of lists of numbers; {str(error)[:200]}") from error


def counts(match: Match) -> dict[str, NDArray[np.int64]]:
    """How many positives each judged query has, by direction; queries without any are left out."""
    both = {"image_to_text": match.image_to_text, "text_to_image": match.text_to_image}
    return {name: cells.lengths[cells.lengths > 0] for name, cells in both.items()}
