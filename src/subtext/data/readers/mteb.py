"""MTEB's form: a corpus, queries, and judgements of which belong together, graded or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.data.dataset import RowIssue
from subtext.data.folders import TABLES
from subtext.data.readers.table import records
from subtext.data.rows import IMAGE, Row, RowError, Source, components, image_of, name_of, split_in_name, text_error
from subtext.errors import DataError

PRIORITY = 75
LOOKS_FOR = "corpus, queries and qrels (MTEB)"
_TABLES = {"corpus": ("corpus",), "queries": ("queries", "query"), "qrels": ("qrels",)}
_QUERY = ("query-id", "query_id", "query")
_RESERVED = frozenset(("id", "_id", "text", "title", "modality", "split", "group", *IMAGE))
_CANDIDATE = ("corpus-id", "corpus_id", "corpus")

_Side = dict[str, tuple[str, Mapping[str, Any]]]
"""Each id of corpus or queries -> its position and its columns."""


@dataclass(frozen=True)
class _Judgement:
    text: str
    image: str
    score: float
    split: str | None
    where: str


def recognises(path: Path) -> bool:
    """Recognise a folder with corpus, queries and qrels.

    Args:
        path: Folder; it need not exist.

    Returns:
        Whether it has all three.
    """
    return path.is_dir() and all(_files(path).values())


def _files(folder: Path) -> dict[str, list[Path]]:
    """corpus, queries and qrels -> their files: NAME.jsonl (or another table), or all tables in the folder NAME."""
    files = {}
    for table, names in _TABLES.items():
        single = [path for name in names for suffix in TABLES if (path := folder / f"{name}{suffix}").is_file()]
        nested = (path for name in names for path in (folder / name).rglob("*"))
        files[table] = single or sorted(path for path in nested if path.suffix in TABLES)
    return files


def read(path: Path, images: Path | None) -> Source:
    """Read images on one side and texts on the other; a score above 0 makes a pair, every score is a judgement.

    Groups are the connected components of positive judgements; the judgements themselves are the finer truth. Where
    there are several qrels files, their names are the splits.

    Args:
        path: Folder with corpus, queries and qrels.
        images: Folder of relative image paths; None for `path`.

    Returns:
        The rows, with judgements.

    Raises:
        DataError: If both sides are images, or both texts.
    """
    files = _files(path)
    problems: list[RowIssue] = []
    corpus, queries = (_side(files[table], path, problems) for table in ("corpus", "queries"))
    has_images = [
        any(columns.get(name) is not None for _, columns in side.values() for name in IMAGE)
        for side in (corpus, queries)
    ]
    if has_images[0] == has_images[1]:
        raise DataError(
            f"{path} needs images ('image') in corpus or in queries, and texts in the other; it has images in "
            f"{'both' if has_images[0] else 'neither'}"
        )
    image_side, text_side = (corpus, queries) if has_images[0] else (queries, corpus)
    judgements = []
    for judgement in list(_judgements(files["qrels"], path, has_images[0], problems)):
        unknown = [judgement.image] * (judgement.image not in image_side)
        unknown += [judgement.text] * (judgement.text not in text_side)
        if unknown:
            problem = f"judges '{unknown[0]}', which is neither in corpus nor in queries"
            problems.append(RowIssue(judgement.where, problem, name=f"'{unknown[0]}'"))
        else:
            judgements.append(judgement)
    rows = list(_rows(image_side, text_side, judgements))
    scores = tuple((judgement.text, judgement.image, judgement.score) for judgement in judgements)
    return Source([*problems, *rows], images if images is not None else path, judgements=scores)


def _side(paths: list[Path], folder: Path, problems: list[RowIssue]) -> _Side:
    side: _Side = {}
    for path in paths:
        for where, columns in records(path, f"{path.relative_to(folder)} "):
            if isinstance(columns, RowIssue):
                problems.append(columns)
                continue
            try:
                name = name_of(columns, "_id", "id")
            except RowError as error:
                problems.append(error.at(where))
                continue
            if name is None:
                problems.append(RowIssue(where, "needs an 'id' (or '_id'), which judgements refer to"))
            elif name in side:
                problems.append(RowIssue(where, f"id '{name}' is already at {side[name][0]}; ids need to be unique"))
            else:
                side[name] = (where, {name: value for name, value in columns.items() if name != "_id"})
    return side


def _judgements(
    paths: list[Path], folder: Path, images_in_corpus: bool, problems: list[RowIssue]
) -> Iterator[_Judgement]:
    for path in paths:
        split = split_in_name(path.relative_to(folder / "qrels").as_posix()) if path.parent != folder else None
        for where, columns in records(path, f"{path.relative_to(folder)} "):
            if isinstance(columns, RowIssue):
                problems.append(columns)
                continue
            if not columns.keys() & {*_QUERY} or not columns.keys() & {*_CANDIDATE}:
                names = ", ".join(f"'{name}'" for name in list(columns)[:8])
                raise DataError(
                    f"{path} needs the columns 'query-id', 'corpus-id' and 'score'; {where} has {names}; name them in "
                    "the table's first line"
                )
            try:
                query, candidate = name_of(columns, *_QUERY), name_of(columns, *_CANDIDATE)
                score = float(columns.get("score", 1))
            except (RowError, TypeError, ValueError):
                query = candidate = None
                score = math.nan
            if query is None or candidate is None or not math.isfinite(score):
                shown = str(dict(columns))[:200]
                problems.append(
                    RowIssue(where, f"needs 'query-id', 'corpus-id' and a finite 'score'; it has {shown}", name=shown)
                )
                continue
            text, image = (query, candidate) if images_in_corpus else (candidate, query)
            yield _Judgement(text, image, score, split, where)


def _rows(image_side: _Side, text_side: _Side, judgements: list[_Judgement]) -> Iterator[Row | RowIssue]:
    positive = [judgement for judgement in judgements if judgement.score > 0]
    group_of = components((f"t{judgement.text}", f"i{judgement.image}") for judgement in positive)
    splits = {judgement.split for judgement in judgements}
    # Items without a judgement are distractors of the split that is measured last.
    distractor_split = "test" if "test" in splits else max(splits, key=str, default=None)
    used: set[str] = set()
    for judgement in positive:
        text, image = judgement.text, judgement.image
        row = _row(judgement.where, image, image_side[image][1], {text: text_side[text][1]})
        if isinstance(row, Row):
            row.split, row.group = judgement.split, group_of[f"t{text}"]
            used |= {f"t{text}", f"i{image}"}
        yield row
    for image, (where, columns) in image_side.items():
        if f"i{image}" not in used:
            row = _row(where, image, columns, {})
            if isinstance(row, Row):
                row.split, row.unpaired = distractor_split, True
            yield row
    for text, (where, columns) in text_side.items():
        words = _text(columns)
        if f"t{text}" not in used and text_error(words) is None:
            yield Row(where, None, None, [words], [text], split=distractor_split, unpaired=True)


def _row(
    where: str, image: str, image_columns: Mapping[str, Any], texts: Mapping[str, Mapping[str, Any]]
) -> Row | RowIssue:
    try:
        value, _ = image_of(image_columns)
    except RowError as error:
        return error.at(where)
    if value is None:
        return RowIssue(where, f"'{image}' has no image file; fill in its 'image'", name=f"'{image}'")
    words = {name: _text(columns) for name, columns in texts.items()}
    for name, text in words.items():
        if (reason := text_error(text)) is not None:
            return RowIssue(where, f"the text '{name}' {reason}", name=f"'{name}'")
    columns = {name: value for side in (*texts.values(), image_columns) for name, value in side.items()}
    metadata = {name: value for name, value in columns.items() if name not in _RESERVED and value is not None}
    return Row(where, value, image, list(words.values()), list(words) or None, metadata=metadata)


def _text(columns: Mapping[str, Any]) -> Any:
    """The title, where there is one, before the text; a value that is no string stays as it is, to be reported."""
    title, text = columns.get("title"), columns.get("text")
    if not isinstance(title, str) or not title.strip():
        return text
    return f"{title} {text}" if isinstance(text, str) and text.strip() else title
