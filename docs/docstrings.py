"""Docstrings of this project as reStructuredText, for the API reference.

The docstrings are plain text in a layout of their own. A paragraph is one of:

    name   text        a table: names at the left, texts after two or more spaces, continued under the text
    indented lines     formulas, kept as they are
    >>> examples       kept as they are
    sentences

Nothing in them is markup but `code` in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ROW = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")
TERM = re.compile(r"[\w.,`\"'*()/-]+( [\w.,`\"'*()/-]+){0,3}")
SPECIAL = re.compile(r"([\\*|])|(?<=\w)(_)(?!\w)")


def to_rest(lines: Iterable[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    rest: list[str] = []
    for block in paragraphs(lines):
        rest += [*convert(block), ""]
    return rest


def paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    """Runs of lines that are alike: split at blank lines and where indented lines begin or end."""
    block: list[str] = []
    for line in [*lines, ""]:
        if not line.strip():
            if block:
                yield from pieces(block)
            block = []
        else:
            block.append(line.rstrip())


def pieces(block: list[str]) -> Iterator[list[str]]:
    """A paragraph cut into its tables, formulas and sentences."""
    if block[0].lstrip().startswith(">>>"):
        yield block
        return
    run: list[str] = []
    kind = ""
    for line in block:
        now = kind_of(line, kind)
        if run and now != kind:
            yield run
            run = []
        kind = now
        run.append(line)
    yield run


def kind_of(line: str, before: str) -> str:
    """formula, table or text; a line that continues another has its kind."""
    if line.startswith(" "):
        return "table" if before == "table" else "formula"
    row = ROW.fullmatch(line)
    if row and TERM.fullmatch(row[1]):
        return "table"
    if row or (" = " in line and before == "formula"):
        return "formula"
    return "text"


def convert(block: list[str]) -> list[str]:
    """One paragraph as reStructuredText."""
    if block[0].lstrip().startswith(">>>"):
        return block
    kind = kind_of(block[0], "")
    if kind == "formula":
        return ["::", "", *(f"    {line}" for line in block)]
    return list(table(block)) if kind == "table" else [escaped(line) for line in block]


def table(block: list[str]) -> Iterator[str]:
    """A definition list: one term per row."""
    for line in block:
        row = ROW.fullmatch(line) if not line.startswith(" ") else None
        if row is None:
            yield f"    {escaped(line.strip())}"
        else:
            yield f"**{escaped(row[1].replace('`', ''))}**"
            yield f"    {escaped(row[2])}"


def escaped(text: str) -> str:
    """Text with its markup taken literally, but for `code` in backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"`{part}`" if part.startswith("`") and len(part) > 2 else SPECIAL.sub(r"\\\g<0>", part).replace("`", r"\`")
        for part in parts
    )
