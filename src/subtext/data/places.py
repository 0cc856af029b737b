"""Where the pictures of a published data set lie: each release has its folder, and its users have others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from subtext.data.image_files import image_exists
from subtext.errors import DataError


def folder_of(names: Iterable[str], root: Path, candidates: Sequence[str]) -> str:
    """The first of the folders, relative to root, in which one of the first 20 pictures is; the first where none is."""
    first = list(islice(names, 20))
    found = (folder for folder in candidates if any(image_exists(joined(folder, name), root) for name in first))
    return next(found, candidates[0])


def joined(folder: str, name: str) -> str:
    """A picture's path; the folder may be empty."""
    return f"{folder}/{name}" if folder else name


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file.

    Raises DataError when the file holds something else.
    """
    try:
        found = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON object; {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} needs to be a JSON object; it is another JSON value")
    return found


def lines_of(path: Path) -> list[str]:
    """The lines of a text file without their ends; bytes that are no UTF-8 stay recognisable as such.

    A line ends at a line feed alone: Python's splitlines would cut a caption at each of eight other characters.
    """
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
