"""Safe reading of the files of an index, which may come from anywhere: names, checksums, mapped arrays, and JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError

LONGEST = 2**26
"""Characters of JSON that are read at most."""


def inside(folder: Path, name: object) -> Path:
    """The file or folder of a relative name in a folder; it may not exist yet.

    Args:
        folder: The folder.
        name: Relative name of a file or folder in it.

    Returns:
        The path.

    Raises:
        SearchIndexError: For a name that leads elsewhere, or is a symbolic link: an index comes from anywhere, and
            nothing outside of it may be read, changed or removed in its name.
    """
    # Step by step: resolving the folder itself would follow whatever takes its path meanwhile.
    relative = PurePath(name) if isinstance(name, str) and "\0" not in name else PurePath()
    steps = [folder.joinpath(*relative.parts[:count]) for count in range(1, len(relative.parts) + 1)]
    leads_away = not steps or relative.is_absolute() or ".." in relative.parts
    if leads_away or any(step.is_symlink() for step in steps):
        raise SearchIndexError(
            f"{folder} needs files and folders of its own; '{name}' leads elsewhere, or is a symbolic link; put the "
            "folder itself there, or restore a backup"
        )
    return folder / relative


def checksums(folder: Path) -> dict[str, str]:
    """File name -> 32 hexadecimal digits of its bytes. Cost about a second a gigabyte.

    Args:
        folder: A folder of files.

    Returns:
        File name -> 32 hexadecimal digits.
    """
    return {file.name: file_checksum(file) for file in sorted(folder.iterdir())}


def file_checksum(file: Path) -> str:
    """32 hexadecimal digits of the bytes of a file.

    Args:
        file: The file.

    Returns:
        32 hexadecimal digits.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array on disk, mapped for reading.

    Args:
        path: An .npy file.
        dtype: Expected type.
        shape: Expected shape; None for a size of any number.

    Returns:
        The array, read-only.

    Raises:
        SearchIndexError: If it is missing, cut off or another.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise SearchIndexError(f"{path} is no complete array; {problem}; restore a backup, or build again") from problem
    sizes = zip(shape, array.shape, strict=False)
    if array.ndim != len(shape) or array.dtype != dtype or any(size not in (None, actual) for size, actual in sizes):
        raise SearchIndexError(
            f"{path} needs {dtype} of shape {shape} as the store remembers; it has {array.dtype} {array.shape}; "
            "restore a backup, or build again"
        )
    return array


def json_object(source: object) -> dict[str, Any] | None:
    """The object that a text of JSON is; None for anything else.

    Args:
        source: A text, or anything else.

    Returns:
        The object; None if the source is not the JSON of an object.
    """
    try:
        parsed = json.loads(source) if isinstance(source, str) and len(source) <= LONGEST else None
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def stored_object(source: object, owner: str) -> dict[str, Any]:
    """The object that an index holds as JSON.

    Args:
        source: JSON from an index.
        owner: What the object belongs to, for the message.

    Returns:
        The object.

    Raises:
        SearchIndexError: If it is none.
    """
    if (parsed := json_object(source)) is None:
        raise SearchIndexError(f"{owner} needs an object of JSON in the index, and has none; restore a backup")
    return parsed
