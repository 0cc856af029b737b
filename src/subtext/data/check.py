"""What is in a data set, and what is wrong with it: the report behind `subtext data check`."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from subtext.data.language import guess_language
from subtext.data.pairs import Items, Pairs
from subtext.data.pictures import picture_size, read_bytes
from subtext.data.readers import Problem, read_pairs
from subtext.data.readers.rows import Progress, UnusableData
from subtext.data.words import tokenise
from subtext.errors import DataError

_SHOWN = 20
"""How many groups of duplicates a report names."""


@dataclass(frozen=True)
class Report:
    """What `check` found.

    pictures, texts, pairs, groups  how many
    splits             name -> pictures, texts and pairs of it
    words              words a text: smallest, median and largest number
    languages          code -> texts, most frequent first; `guessed` when no column says so
    duplicate_texts    the same text more than once: how many texts are copies, and examples
    duplicate_pictures the same bytes under two names: how many pictures are copies, and examples
    leaks              pictures or texts of a test or val split whose copy stands in another split
    problems           row by row; fatal ones cannot be used
    usable             whether it can be trained on as it is (with bad="skip": after leaving bad rows out)
    """

    path: str
    pictures: int
    texts: int
    pairs: int
    groups: int
    splits: dict[str, dict[str, int]]
    words: dict[str, float]
    languages: dict[str, int]
    guessed: bool
    duplicate_texts: int
    duplicate_text_examples: list[str]
    duplicate_pictures: int
    duplicate_picture_examples: list[list[str]]
    leaks: list[str]
    problems: list[Problem]
    usable: bool

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return asdict(self)


def check(
    path: Path,
    *,
    images: Path | None = None,
    seed: int = 0,
    bad: Literal["refuse", "skip"] = "refuse",
    verify: bool = True,
    need_pictures: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Read a data set and report; a data set that cannot be read at all gives a report that says why.

    Arguments are those of `read_pairs`. Only pictures of equal size in bytes are compared, byte by byte (a hash).
    """
    try:
        reading = read_pairs(
            path,
            images=images,
            seed=seed,
            bad="skip",
            verify=verify,
            need_pictures=need_pictures,
            progress=progress,
        )
    except DataError as error:
        return _empty(path, error)
    pairs = reading.pairs
    problems = [*reading.problems, *_warnings(pairs)]
    texts = _copies(pairs.texts.values)
    pictures = _equal_pictures(pairs) if need_pictures else []
    languages, guessed = _languages(pairs.texts)
    return Report(
        path=str(path),
        pictures=len(pairs.images),
        texts=len(pairs.texts),
        pairs=len(pairs.links),
        groups=len(np.unique(pairs.images.groups)),
        splits=_splits(pairs),
        words=_words(pairs.texts),
        languages=languages,
        guessed=guessed,
        duplicate_texts=sum(len(rows) - 1 for rows in texts),
        duplicate_text_examples=[str(pairs.texts.values[rows[0]])[:200] for rows in texts[:_SHOWN]],
        duplicate_pictures=sum(len(rows) - 1 for rows in pictures),
        duplicate_picture_examples=[[pairs.images.ids[row] for row in rows] for rows in pictures[:_SHOWN]],
        leaks=[*_leaks("picture", pairs.images, pictures), *_leaks("text", pairs.texts, texts)],
        problems=problems,
        usable=bad == "skip" or not any(problem.fatal for problem in problems),
    )


def _empty(path: Path, error: DataError) -> Report:
    return Report(
        path=str(path),
        pictures=0,
        texts=0,
        pairs=0,
        groups=0,
        splits={},
        words={},
        languages={},
        guessed=False,
        duplicate_texts=0,
        duplicate_text_examples=[],
        duplicate_pictures=0,
        duplicate_picture_examples=[],
        leaks=[],
        problems=(error.problems if isinstance(error, UnusableData) else []) or [Problem(str(path), str(error))],
        usable=False,
    )


def _splits(pairs: Pairs) -> dict[str, dict[str, int]]:
    of_link = pairs.images.splits[pairs.links[:, 0]]
    counts = [Counter(map(str, column)) for column in (pairs.images.splits, pairs.texts.splits, of_link)]
    return {
        name: dict(zip(("pictures", "texts", "pairs"), (count[name] for count in counts), strict=True))
        for name in dict.fromkeys([*counts[0], *counts[1]])
    }


def _words(texts: Items) -> dict[str, float]:
    lengths = [len(tokenise(text)) for text in texts.values if isinstance(text, str)]
    if not lengths:
        return {}
    return {"min": float(min(lengths)), "median": float(np.median(lengths)), "max": float(max(lengths))}


def _languages(texts: Items) -> tuple[dict[str, int], bool]:
    column = texts.more.get("language")
    guessed = column is None
    names: Iterable[Any] = (
        column if column is not None else (guess_language(text) for text in texts.values if isinstance(text, str))
    )
    return dict(Counter(str(name) for name in names).most_common()), guessed


def _warnings(pairs: Pairs) -> list[Problem]:
    found = []
    counts = pairs.counts()
    if len(counts) == 1:
        only = next(iter(counts))
        found.append(
            Problem(
                f"split '{only}'",
                f"holds all pictures, {counts[only]}; training needs others to be measured on; give more, or 'split's",
                fatal=False,
            )
        )
    wordless = [text for text in pairs.texts.values if isinstance(text, str) and not tokenise(text)]
    if wordless:
        found.append(Problem("texts", f"{len(wordless)} have no word, such as {wordless[0][:40]!r}", fatal=False))
    return found


def _copies(values: Sequence[Hashable]) -> list[list[int]]:
    """Rows that have one value, where it is more than one; in the order of their first."""
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        if value is not None:
            rows[value].append(row)
    return [same for same in rows.values() if len(same) > 1]


def _equal_pictures(pairs: Pairs) -> list[list[int]]:
    values = pairs.images.values
    sizes = [None if value is None else picture_size(value, pairs.root) for value in values]
    same_size = sorted(row for rows in _copies(sizes) for row in rows)
    hashes: list[bytes | None] = [None] * len(values)
    for row in same_size:
        value = values[row]
        try:
            assert value is not None
            hashes[row] = hashlib.blake2b(read_bytes(value, pairs.root), digest_size=16).digest()
        except DataError:
            # A file that went away since it was listed is no copy of another.
            hashes[row] = None
    return _copies(hashes)


def _leaks(what: str, items: Items, copies: list[list[int]]) -> list[str]:
    """Copies of one thing in two splits; the same few words of many pictures are no leak, so texts need three words."""
    found = []
    for rows in copies:
        splits = dict.fromkeys(str(items.splits[row]) for row in rows)
        if len(splits) < 2 or (what == "text" and len(tokenise(str(items.values[rows[0]]))) < 3):
            continue
        first = {split: next(row for row in rows if items.splits[row] == split) for split in splits}
        places = " and ".join(f"'{items.ids[row]}' ({split})" for split, row in first.items())
        found.append(f"the same {what} is in {len(splits)} splits: {places}")
    return found
