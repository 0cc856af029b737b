"""MTEB's form: a corpus, queries, and judgements of which belong together, graded or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.data.columns import IMAGE, RowError, image_of, name_of, wrong_text
from subtext.data.readers.table import TABLES, raws
from subtext.data.rows import Problem, Row, Source
from subtext.data.splits import split_in_name
from subtext.errors import DataError

_ROOMS = {"corpus": ("corpus",), "queries": ("queries", "query"), "qrels": ("qrels",)}
_QUERY = ("query-id", "query_id", "query")
_TAKEN = frozenset(("id", "_id", "text", "title", "modality", "split", "group", *IMAGE))
_CANDIDATE = ("corpus-id", "corpus_id", "corpus")


@dataclass(frozen=True)
class _Judged:
    query: str
    candidate: str
    score: float
    split: str | None
    where: str


def mteb_files(folder: Path) -> dict[str, list[Path]]:
    """corpus, queries and qrels -> their files: NAME.jsonl (or another table), or all tables in the folder NAME."""
    found = {}
    for room, names in _ROOMS.items():
        single = [path for name in names for ending in TABLES if (path := folder / f"{name}{ending}").is_file()]
        inner = (path for name in names for path in (folder / name).rglob("*"))
        found[room] = single or sorted(path for path in inner if path.suffix in TABLES)
    return found


def is_mteb(folder: Path) -> bool:
    """Whether corpus, queries and qrels are all there."""
    return all(mteb_files(folder).values())


def read_mteb(folder: Path, images: Path | None) -> Source:
    """Pictures on one side and texts on the other; a score above 0 makes a pair, every score is a judgement.

    Groups are what positive judgements connect, directly or through others; the judgements themselves are the finer
    truth. A split is the name of a qrels file, where there are several.

    Raises DataError when both sides are pictures, or both texts.
    """
    files = mteb_files(folder)
    problems: list[Problem] = []
    corpus, queries = (_side(files[room], folder, problems) for room in ("corpus", "queries"))
    judged = list(_judged(files["qrels"], folder, problems))
    pictured = [
        any(row.get(name) is not None for _, row in side.values() for name in IMAGE) for side in (corpus, queries)
    ]
    if pictured[0] == pictured[1]:
        raise DataError(
            f"{folder} needs pictures ('image') in corpus or in queries, and texts in the other; it has pictures in "
            f"{'both' if pictured[0] else 'neither'}"
        )
    image_side, text_side = (corpus, queries) if pictured[0] else (queries, corpus)
    triples = []
    for one in judged:
        text, image = (one.query, one.candidate) if pictured[0] else (one.candidate, one.query)
        if image not in image_side or text not in text_side:
            lost = image if image not in image_side else text
            what = f"judges '{lost}', which is neither in corpus nor in queries"
            problems.append(Problem(one.where, what, name=f"'{lost}'"))
        else:
            triples.append((text, image, one))
    rows = list(_rows(image_side, text_side, triples))
    scores = tuple((text, image, one.score) for text, image, one in triples)
    return Source([*problems, *rows], images if images is not None else folder, judgements=scores)


def _side(paths: list[Path], folder: Path, problems: list[Problem]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Where each id stands, and its columns."""
    side: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for path in paths:
        for where, raw in raws(path, f"{path.relative_to(folder)} "):
            if isinstance(raw, Problem):
                problems.append(raw)
                continue
            try:
                name = name_of(raw, "_id", "id")
            except RowError as error:
                problems.append(error.at(where))
                continue
            if name is None:
                problems.append(Problem(where, "needs an 'id' (or '_id') to be judged by"))
            elif name in side:
                problems.append(Problem(where, f"id '{name}' stands at {side[name][0]} already; ids need to be unique"))
            else:
                side[name] = (where, {column: value for column, value in raw.items() if column != "_id"})
    return side


def _judged(paths: list[Path], folder: Path, problems: list[Problem]) -> Iterator[_Judged]:
    for path in paths:
        split = split_in_name(path.relative_to(folder / "qrels").as_posix()) if path.parent != folder else None
        for where, raw in raws(path, f"{path.relative_to(folder)} "):
            if isinstance(raw, Problem):
                problems.append(raw)
                continue
            if not raw.keys() & {*_QUERY} or not raw.keys() & {*_CANDIDATE}:
                have = ", ".join(f"'{column}'" for column in list(raw)[:8])
                raise DataError(
                    f"{path} needs the columns 'query-id', 'corpus-id' and 'score'; {where} has {have}; name them in a "
                    "table's first line"
                )
            try:
                query, candidate = name_of(raw, *_QUERY), name_of(raw, *_CANDIDATE)
                score = float(raw.get("score", 1))
            except (RowError, TypeError, ValueError):
                query = candidate = None
                score = math.nan
            if query is None or candidate is None or not math.isfinite(score):
                shown = str(dict(raw))[:200]
                problems.append(
                    Problem(where, f"needs 'query-id', 'corpus-id' and a finite 'score'; it has {shown}", name=shown)
                )
                continue
            yield _Judged(query, candidate, score, split, where)


def _rows(
    image_side: dict[str, tuple[str, Mapping[str, Any]]],
    text_side: dict[str, tuple[str, Mapping[str, Any]]],
    triples: list[tuple[str, str, _Judged]],
) -> Iterator[Row | Problem]:
    positive = [(text, image, one) for text, image, one in triples if one.score > 0]
    group_of = _connected([(f"t{text}", f"i{image}") for text, image, _ in positive])
    splits = {one.split for _, _, one in triples}
    rest = None if len(splits) != 1 else next(iter(splits))
    if len(splits) > 1:
        # What nobody judged is a distractor of the split that is measured last.
        rest = "test" if "test" in splits else max(str(split) for split in splits)
    used: set[str] = set()
    for text, image, one in positive:
        row = _row(one.where, image, image_side[image][1], (text, text_side[text][1]))
        if isinstance(row, Row):
            row.split, row.group = one.split, group_of[f"t{text}"]
            used |= {f"t{text}", f"i{image}"}
        yield row
    for image, (where, columns) in image_side.items():
        if f"i{image}" not in used:
            row = _row(where, image, columns, None)
            if isinstance(row, Row):
                row.split, row.lone = rest, True
            yield row
    for text, (where, columns) in text_side.items():
        words = _words(columns)
        if f"t{text}" not in used and wrong_text(words) is None:
            yield Row(where, None, None, [words], [text], split=rest, lone=True)


def _row(
    where: str, image: str, picture: Mapping[str, Any], written: tuple[str, Mapping[str, Any]] | None
) -> Row | Problem:
    try:
        value, _ = image_of(picture)
    except RowError as error:
        return error.at(where)
    if value is None:
        return Problem(where, f"'{image}' has no picture; fill in its 'image'", name=f"'{image}'")
    name, columns = written if written is not None else ("", {})
    words = _words(columns)
    wrong = wrong_text(words)
    if written is not None and wrong is not None:
        return Problem(where, f"the text '{name}' {wrong}", name=f"'{name}'")
    more = {key: value for key, value in {**columns, **picture}.items() if key not in _TAKEN and value is not None}
    texts = [] if written is None else [words]
    return Row(where, value, image, texts, [name] if texts else None, more=more)


def _words(columns: Mapping[str, Any]) -> Any:
    """The title, where there is one, before the text; what is no string stays as it is, to be told of."""
    title, text = columns.get("title"), columns.get("text")
    if not isinstance(title, str) or not title.strip():
        return text
    return f"{title} {text}" if isinstance(text, str) and text.strip() else title


def _connected(edges: list[tuple[str, str]]) -> dict[str, str]:
    """Node -> the name of its component, which is its first node."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in edges:
        first, second = root(one), root(other)
        if first != second:
            parent[second] = first
    return {node: root(node) for node in list(parent)}
