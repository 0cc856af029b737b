"""What is in a data set, and what is wrong with it: the report behind `subtext data check`."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from subtext.data.coverage import Coverage, coverage
from subtext.data.dataset import Dataset, Items
from subtext.data.image_files import read_bytes, stored_size
from subtext.data.language import guess_language
from subtext.data.purpose import judge, unusable
from subtext.data.read import Problem, Reading, read_pairs
from subtext.data.rows import Progress, UnusableData
from subtext.data.words import tokenise
from subtext.errors import DataError, counted

_SHOWN = 20
"""How many groups of duplicates a report names."""


@dataclass(frozen=True, kw_only=True)
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
    features           for each file of features, whether it covers the data
    reasons            "train", "evaluate" -> why it cannot be trained on, or evaluated on, as it is (with bad="skip":
                       after leaving bad rows out); empty when it can
    evaluable_splits   those in which an answer can be wrong; "all" where only the whole has two groups
    """

    path: str
    pictures: int = 0
    texts: int = 0
    pairs: int = 0
    groups: int = 0
    splits: dict[str, dict[str, int]] = field(default_factory=dict)
    words: dict[str, float] = field(default_factory=dict)
    languages: dict[str, int] = field(default_factory=dict)
    guessed: bool = False
    duplicate_texts: int = 0
    duplicate_text_examples: list[str] = field(default_factory=list)
    duplicate_pictures: int = 0
    duplicate_picture_examples: list[list[str]] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    problems: list[Problem]
    features: list[Coverage] = field(default_factory=list)
    reasons: dict[str, str]
    evaluable_splits: list[str] = field(default_factory=list)

    @property
    def trainable(self) -> bool:
        """Whether `train` would take it."""
        return "train" not in self.reasons

    @property
    def evaluable(self) -> bool:
        """Whether `evaluate` would say something of a model."""
        return "evaluate" not in self.reasons

    @property
    def usable(self) -> bool:
        """Whether it is good for anything."""
        return self.trainable or self.evaluable

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        verdict = {"usable": self.usable, "trainable": self.trainable, "evaluable": self.evaluable}
        return asdict(self) | verdict


def check(
    path: Path,
    *,
    images: Path | None = None,
    seed: int = 0,
    bad: Literal["refuse", "skip"] = "refuse",
    verify: bool = True,
    features: Path | None = None,
    text_features: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read a data set and report; a data set that cannot be read at all gives a report that says why.

    features, text_features  files that stand for pictures, whose own files need not be there then, and for texts

    The other arguments are those of `read_pairs`. Only pictures of equal size in bytes are compared, by a hash.
    """
    try:
        reading = read_pairs(
            path,
            images=images,
            seed=seed,
            bad="skip",
            verify=verify,
            need_images=features is None,
            progress=progress,
        )
    except DataError as error:
        problems = error.problems if isinstance(error, UnusableData) else []
        verdict = unusable("there is no pair that can be used")
        return Report(path=str(path), problems=problems or [Problem(str(path), str(error))], reasons=verdict.reasons)
    pairs = reading.pairs
    wording = _wording(pairs.texts)
    texts = _copies(pairs.texts.values)
    pictures = _equal_pictures(pairs) if features is None else []
    covered = [coverage(features, pairs.images, "picture")] if features is not None else []
    covered += [coverage(text_features, pairs.texts, "text")] if text_features is not None else []
    obstacle = _obstacle(reading, bad, features, text_features)
    verdict = unusable(obstacle) if obstacle else judge(pairs, covered)
    return Report(
        path=str(path),
        pictures=len(pairs.images),
        texts=len(pairs.texts),
        pairs=len(pairs.links),
        groups=len(np.unique(pairs.images.groups)),
        splits=_splits(pairs),
        words=wording.lengths,
        languages=wording.languages,
        guessed=wording.guessed,
        duplicate_texts=sum(len(rows) - 1 for rows in texts),
        duplicate_text_examples=[str(pairs.texts.values[rows[0]])[:200] for rows in texts[:_SHOWN]],
        duplicate_pictures=sum(len(rows) - 1 for rows in pictures),
        duplicate_picture_examples=[[pairs.images.ids[row] for row in rows] for rows in pictures[:_SHOWN]],
        leaks=[*_leaks("picture", pairs.images, pictures), *_leaks("text", pairs.texts, texts)],
        problems=[*reading.problems, *wording.problems],
        features=covered,
        reasons=verdict.reasons,
        evaluable_splits=verdict.splits,
    )


def _obstacle(reading: Reading, bad: str, features: Path | None, text_features: Path | None) -> str | None:
    """Why nothing at all can be done with a data set that was read, or None."""
    fatal = sum(problem.fatal for problem in reading.problems)
    if fatal and bad == "refuse":
        return (
            f"it has {counted(fatal, 'problem')}; mend {'it' if fatal == 1 else 'them'}, or skip bad rows (--bad skip)"
        )
    known = (
        ("pictures", reading.pairs.images, features or reading.features, "--features"),
        ("texts", reading.pairs.texts, text_features, "--text-features"),
    )
    for what, items, given, option in known:
        if given is None and any(value is None for value in items.values):
            return f"{what} are known by name alone; give the features that go with the names ({option} FILE)"
    return None


def _splits(pairs: Dataset) -> dict[str, dict[str, int]]:
    of_link = pairs.images.splits[pairs.links[:, 0]]
    counts = [Counter(map(str, column)) for column in (pairs.images.splits, pairs.texts.splits, of_link)]
    return {
        name: dict(zip(("pictures", "texts", "pairs"), (count[name] for count in counts), strict=True))
        for name in dict.fromkeys([*counts[0], *counts[1]])
    }


@dataclass(frozen=True)
class _Wording:
    lengths: dict[str, float]
    languages: dict[str, int]
    guessed: bool
    problems: list[Problem]


def _wording(texts: Items) -> _Wording:
    """What is in the texts, each of them taken apart once."""
    column = texts.metadata.get("language")
    languages = Counter(map(str, column or ()))
    lengths, wordless = [], []
    for text in texts.values:
        if not isinstance(text, str):
            continue
        words = tokenise(text)
        lengths.append(len(words))
        if not words:
            wordless.append(text)
        if column is None:
            languages[guess_language(text, words)] += 1
    spread = zip(("min", "median", "max"), map(float, np.quantile(lengths or [0], (0, 0.5, 1))), strict=True)
    what = f"{len(wordless):,} of {len(lengths):,} have no word, such as {wordless[0][:40]!r}" if wordless else ""
    return _Wording(
        lengths=dict(spread) if lengths else {},
        languages=dict(languages.most_common()),
        guessed=column is None,
        problems=[Problem("texts", what, fatal=False)] if wordless else [],
    )


def _copies(values: Sequence[Hashable]) -> list[list[int]]:
    """Rows that have one value, where it is more than one; in the order of their first."""
    counts = Counter(values)
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        if value is not None and counts[value] > 1:
            rows[value].append(row)
    return list(rows.values())


def _equal_pictures(pairs: Dataset) -> list[list[int]]:
    values = pairs.images.values
    sizes = [None if value is None else stored_size(value, pairs.root) for value in values]
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
