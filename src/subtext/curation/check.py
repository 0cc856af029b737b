"""The content, defects and readiness of a data set: the report of `subtext data check`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from subtext.curation.copies import find_copies
from subtext.data.dataset import Dataset, Items, RowIssue, summarise
from subtext.data.feature_file import FeatureFile
from subtext.data.languages import language_of
from subtext.data.objects import Records, Rows
from subtext.data.read import UnusableData, read
from subtext.data.rows import Progress
from subtext.data.words import tokenise
from subtext.errors import DataError
from subtext.report.text_table import Cell, Report, table
from subtext.text_helpers import counted

_USES = ("train", "evaluate", "index")
_DUPLICATES = 20
"""Groups of duplicates in a report."""
_SHOWN_PROBLEMS = 20
"""Kinds of problems that the text shows; JSON has every problem."""
_SHOWN_EXAMPLES = 3
"""Duplicates and leaks that the text shows."""


@dataclass(frozen=True)
class Coverage:
    """The items of a data set that a feature file covers.

    Attributes:
        message: In one sentence.
        complete: Whether each item has finite features.
        splits: The splits all of whose items have them.
    """

    message: str
    complete: bool
    splits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckReport(Report):
    """The result of `check`.

    Attributes:
        path: The data set: its path, or its name.
        images: Their numbers.
        texts: See `images`.
        pairs: See `images`.
        groups: See `images`.
        splits: Name -> its images, texts and pairs.
        words: Words per text: smallest, median and largest number.
        languages: Code -> texts, most frequent first; `guessed` when no column names the language.
        guessed: Whether languages are guessed from the texts.
        duplicate_texts: Number of duplicate texts, with examples.
        duplicate_text_examples: Some duplicate texts.
        duplicate_images: Number of images that are copies of another, also scaled, compressed again or turned.
        duplicate_image_examples: Some groups of image ids that are copies.
        leaks: Images or texts of a test or val split whose copy is in another split.
        problems: Problems of each row; a fatal problem makes the row unusable.
        features: For each feature file, whether it covers the data.
        reasons: "train", "evaluate", "index" -> why the data cannot be used for this (with on_error="skip": after
            unusable rows are left out); empty if it can.
        evaluable_splits: Splits with at least two groups; "all" if only the full data set has two groups.
    """

    path: str
    images: int = 0
    texts: int = 0
    pairs: int = 0
    groups: int = 0
    splits: dict[str, dict[str, int]] = field(default_factory=dict)
    words: dict[str, float] = field(default_factory=dict)
    languages: dict[str, int] = field(default_factory=dict)
    guessed: bool = False
    duplicate_texts: int = 0
    duplicate_text_examples: list[str] = field(default_factory=list)
    duplicate_images: int = 0
    duplicate_image_examples: list[list[str]] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    problems: list[RowIssue]
    features: list[Coverage] = field(default_factory=list)
    reasons: dict[str, str]
    evaluable_splits: list[str] = field(default_factory=list)

    @property
    def trainable(self) -> bool:
        """Whether `train` accepts it."""
        return "train" not in self.reasons

    @property
    def evaluable(self) -> bool:
        """Whether `evaluate` accepts it."""
        return "evaluate" not in self.reasons

    @property
    def indexable(self) -> bool:
        """Whether `build_index` accepts it: images without a text are enough."""
        return "index" not in self.reasons

    @property
    def usable(self) -> bool:
        """Whether `train`, `evaluate` or `build_index` accepts it."""
        return self.trainable or self.evaluable or self.indexable

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values.

        Returns:
            Field -> plain value, with "usable", "trainable", "evaluable" and "indexable".
        """
        return asdict(self) | {name: getattr(self, name) for name in ("usable", "trainable", "evaluable", "indexable")}

    def _lines(self) -> list[str]:
        lines = [f"{self.path}: {self._counts()}"]
        if self.splits:
            rows: list[list[Cell]] = [[name, *counts.values()] for name, counts in self.splits.items()]
            lines.append(table(["split", "images", "texts", "pairs"], rows, indent=2))
        if self.words:
            least, median, most = (f"{self.words[name]:,.0f}" for name in ("min", "median", "max"))
            lines.append(f"words per text: {least} to {most}, median {median}")
        if self.languages:
            languages = ", ".join(f"{name} {count:,}" for name, count in list(self.languages.items())[:8])
            lines.append(f"languages{' (guessed)' if self.guessed else ''}: {languages}")
        if self.images:
            copies = counted(self.duplicate_texts, "text"), counted(self.duplicate_images, "image")
            lines.append(f"duplicates: {', '.join(copies)}")
        lines += [f"  {example!r}" for example in self.duplicate_text_examples[:_SHOWN_EXAMPLES]]
        lines += [f"  {' = '.join(example)}" for example in self.duplicate_image_examples[:_SHOWN_EXAMPLES]]
        lines += [f"leak: {leak}" for leak in self.leaks[:_SHOWN_EXAMPLES]]
        if len(self.leaks) > _SHOWN_EXAMPLES:
            lines.append(f"leaks: {len(self.leaks) - _SHOWN_EXAMPLES:,} more; --json has all")
        lines += [f"{'features' if file.complete else 'problem'}: {file.message}" for file in self.features]
        problems = [
            f"{word}: {sentence}"
            for word, fatal in (("problem", True), ("note", False))
            for sentence in summarise(problem for problem in self.problems if problem.fatal is fatal)
        ]
        lines += problems[:_SHOWN_PROBLEMS]
        if len(problems) > _SHOWN_PROBLEMS:
            lines.append(f"... {len(problems) - _SHOWN_PROBLEMS:,} more; --json has all")
        return [*lines, self._verdict()]

    def _counts(self) -> str:
        counts = ((self.images, "image"), (self.texts, "text"), (self.pairs, "pair"))
        return ", ".join(counted(number, noun) for number, noun in counts)

    def _verdict(self) -> str:
        splits = ", ".join(self.evaluable_splits)
        if self.trainable:
            return f"usable: for training, and for evaluation ({splits})"
        if self.evaluable:
            return f"usable: for evaluation ({splits}); not for training: {self.reasons['train']}"
        if self.indexable:
            reasons = "; ".join(dict.fromkeys(self.reasons[use] for use in ("train", "evaluate")))
            return f"usable: for an index (subtext index build); not for training or evaluation: {reasons}"
        return f"not usable as it is: {'; '.join(dict.fromkeys(self.reasons.values()))}"


def check_dataset(
    data: str | Path | Dataset | Records | Rows,
    *,
    name: str = "",
    images: Path | None = None,
    split_seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    verify: bool = True,
    features: Any = None,
    text_features: Any = None,
    columns: str | Mapping[str, str | Sequence[str]] | None = None,
    text_fields: str | None = None,
    max_pixels: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Read a data set and report; a data set that cannot be read at all gives a report with the reason.

    The other arguments are those of `read`. Images are compared as `find_copies` does.

    Args:
        data: The data set, or its path.
        name: Of the data set, for people; its path by default.
        images: Folder of relative image paths; None for the data set's own.
        split_seed: Seed of the split of data without splits.
        on_error: "raise" counts bad rows as problems; "skip" leaves them out.
        verify: Whether every image is decoded.
        features: Feature files that replace images, whose own files may be missing then.
        text_features: Texts.
        columns: Columns of a foreign table; see `read`.
        text_fields: Fields that are texts; see `read`.
        max_pixels: Million pixels of the largest image that is decoded; see `read`.
        progress: Called with the number of decoded, and then of compared, images and their total.

    Returns:
        The report.
    """
    name = name or str(data)
    try:
        dataset = read(
            data,
            images=images,
            split_seed=split_seed,
            on_error="skip",
            verify=verify,
            need_images=features is None,
            columns=columns,
            text_fields=text_fields,
            max_pixels=max_pixels,
            progress=progress,
        )
    except DataError as error:
        problems = error.problems if isinstance(error, UnusableData) else []
        problems = problems or [RowIssue(name, str(error))]
        return CheckReport(path=name, problems=problems, reasons=dict.fromkeys(_USES, "no image is usable"))
    text_facts, text_problems = _text_facts(dataset.texts)
    texts = _copies(dataset.texts.values)
    image_copies: list[list[int]] = []
    if features is None and any(value is not None for value in dataset.images.values):
        shown = None if progress is None else (lambda done: progress(done, len(dataset.images)))
        groups = find_copies(dataset.images, dataset.root, progress=shown).groups
        image_copies = _copies([None if group < 0 else group for group in groups.tolist()])
    covered = [_coverage(features, dataset.images, "image")] if features is not None else []
    covered += [_coverage(text_features, dataset.texts, "text")] if text_features is not None else []
    fatal = sum(problem.fatal for problem in dataset.problems)
    sides = (
        ("images", dataset.images, features or dataset.features, "--features"),
        ("texts", dataset.texts, text_features, "--text-features"),
    )
    obstacles = [
        f"{name} are known by name only; give the features that belong to the names ({option} FILE)"
        for name, items, file, option in sides
        if file is None and None in items.values
    ]
    if fatal and on_error == "raise":
        pronoun = "it" if fatal == 1 else "them"
        obstacles[:0] = [
            f"it has {counted(fatal, 'problem')}; correct {pronoun}, or skip unusable rows (--on-error skip)"
        ]
    reasons, evaluable = _readiness(dataset, covered)
    if obstacles:
        reasons, evaluable = dict.fromkeys(_USES, obstacles[0]), []
    of_link = dataset.images.splits[dataset.links[:, 0]]
    split_columns = {"images": dataset.images.splits, "texts": dataset.texts.splits, "pairs": of_link}
    counts = {name: Counter(map(str, column)) for name, column in split_columns.items()}
    splits = {
        split: {name: count[split] for name, count in counts.items()}
        for split in dict.fromkeys([*counts["images"], *counts["texts"]])
    }
    return CheckReport(
        path=name,
        images=len(dataset.images),
        texts=len(dataset.texts),
        pairs=len(dataset.links),
        groups=len(np.unique(dataset.images.groups)),
        splits=splits,
        duplicate_texts=sum(len(rows) - 1 for rows in texts),
        duplicate_text_examples=[str(dataset.texts.values[rows[0]])[:200] for rows in texts[:_DUPLICATES]],
        duplicate_images=sum(len(rows) - 1 for rows in image_copies),
        duplicate_image_examples=[[dataset.images.ids[row] for row in rows] for rows in image_copies[:_DUPLICATES]],
        leaks=[*_leaks("image", dataset.images, image_copies), *_leaks("text", dataset.texts, texts)],
        problems=[*dataset.problems, *text_problems],
        features=covered,
        reasons=reasons,
        evaluable_splits=evaluable,
        **text_facts,
    )


def _readiness(dataset: Dataset, covered: Sequence[Coverage]) -> tuple[dict[str, str], list[str]]:
    """The reasons why the covered splits cannot be used, and the splits that can be evaluated.

    Training needs two groups, whose texts are negatives of each other, and a validation split; evaluation needs two
    groups.
    """
    if not {str(split) for split in dataset.images.splits}.intersection(*(file.splits for file in covered)):
        return dict.fromkeys(_USES, "the features cover no complete split"), []
    if not len(dataset):
        return dict.fromkeys(("train", "evaluate"), "no image has a text"), []
    linked = dataset.images.take(dataset.links[:, 0])
    usable = set(map(str, linked.splits)).intersection(*(file.splits for file in covered))
    groups = {name: len(np.unique(linked.groups[linked.splits == name])) for name in sorted(usable)}
    # With judgements, images of one group differ in how well they suit a text.
    splits = [name for name, count in groups.items() if count > 1 or dataset.judgements is not None]
    if not splits and len(groups) > 1:
        splits = ["all"]
    content = ", ".join(f"'{name}' ({counted(count, 'group')})" for name, count in groups.items())
    reasons = {}
    if groups.get("train", 0) < 2:
        reasons["train"] = (
            f"training needs at least two groups in the split 'train', to have negatives; there is {content}"
        )
    elif "val" not in groups:
        reasons["train"] = (
            f"training needs a split 'val' for validation; there is {content}; name another (--val-split NAME), or "
            "train without (--val-split none)"
        )
    if not splits:
        reasons["evaluate"] = f"evaluation needs at least two groups, to have wrong answers; there is {content}"
    return reasons, splits


def _coverage(path: Any, items: Items, noun: Literal["image", "text"]) -> Coverage:
    """Read the features of all items, split by split; a file that cannot be used covers no split."""
    splits = tuple(map(str, np.unique(items.splits)))
    try:
        file = FeatureFile.open(path, noun)
    except DataError as error:
        return Coverage(str(error), False, ())
    covered, message = [], ""
    for split in ("", *splits):
        subset = items.take(np.flatnonzero(items.splits == split)) if split else items
        try:
            shape = file.shape(subset.ids, subset.values)
        except DataError as error:
            message = message or str(error)
            continue
        if not split:
            widths = {"pooled": shape.pooled, "grid": shape.grid}
            parts = " and ".join(f"{name} {width}" for name, width in widths.items() if width)
            return Coverage(f"{file.path}: features of all {counted(len(items), noun)} ({parts})", True, splits)
        covered.append(split)
    return Coverage(message, False, tuple(covered))


def _text_facts(texts: Items) -> tuple[dict[str, Any], list[RowIssue]]:
    """The report's `words`, `languages` and `guessed`, and a note on texts without a word; one pass over the texts."""
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
            languages[language_of(text, words)] += 1
    quantiles = {"min": 0, "median": 0.5, "max": 1} if lengths else {}
    facts: dict[str, Any] = {
        "words": {name: float(np.quantile(lengths, share)) for name, share in quantiles.items()},
        "languages": dict(languages.most_common()),
        "guessed": column is None,
    }
    if not wordless:
        return facts, []
    message = f"{len(wordless):,} of {len(lengths):,} have no word, such as {wordless[0][:40]!r}"
    return facts, [RowIssue("texts", message, fatal=False)]


def _copies(values: Sequence[Hashable]) -> list[list[int]]:
    """The rows of each value that occurs more than once, in the order of their first."""
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        if value is not None:
            rows[value].append(row)
    return [copies for copies in rows.values() if len(copies) > 1]


def _leaks(noun: str, items: Items, copies: list[list[int]]) -> list[str]:
    """Copies in two splits; texts need three words, since the same few words of many images are no leak."""
    leaks = []
    for rows in copies:
        splits = dict.fromkeys(str(items.splits[row]) for row in rows)
        if len(splits) < 2 or (noun == "text" and len(tokenise(str(items.values[rows[0]]))) < 3):
            continue
        first = {split: next(row for row in rows if items.splits[row] == split) for split in splits}
        names = " and ".join(f"'{items.ids[row]}' ({split})" for split, row in first.items())
        leaks.append(f"the same {noun} is in {len(splits)} splits: {names}")
    return leaks
