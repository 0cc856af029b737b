"""What every text and every path has to be, wherever it comes from: the one door of the values of settings."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from subtext.errors import ArgumentError, SubtextError

_KINDS = {stat.S_ISCHR: "a device", stat.S_ISBLK: "a device", stat.S_ISSOCK: "a socket", stat.S_ISFIFO: "a pipe"}
_OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/")
"""Where pipes that are open already have a path: `--ids-from <(command)`."""


def why_no_text(value: str) -> str:
    """Why a value is no text.

    Args:
        value: As it was given.

    Returns:
        What it needs, what it got and what to do, without the name of the setting; empty for a text.
    """
    if "\0" in value:
        return f"needs text without the character NUL; it got {shown(value)}; leave that character out"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return f"needs text in UTF-8; it got {shown(value)}; {_encoding_advice(value, 'write it in UTF-8')}"
    return ""


def why_no_path(value: str | os.PathLike[str]) -> str:
    """Why a value cannot be the path of a file or a folder, whether it exists or not.

    Args:
        value: As it was given.

    Returns:
        What it needs, what it got and what to do, without the name of the setting; empty for a path.
    """
    text = os.fspath(value)
    if not text:
        return "needs the path of a file or folder; it got an empty text; name one"
    if "\0" in text:
        return f"needs a path without the character NUL; it got {shown(text)}; leave that character out"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return f"needs a path in UTF-8; it got {shown(text)}; {_encoding_advice(text, 'rename that file or folder')}"
    try:
        path = Path(text).expanduser()
        mode = path.stat().st_mode
    except RuntimeError:
        return f"needs a path; it got {shown(text)}, and there is no user of that name; write the folder's full path"
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""  # What is to be there, and what is to be made, is known where it is read or written.
    except UnicodeEncodeError:
        return f"needs a path that this system can write; it got {shown(text)}; {_encoding_advice(text, '')}"
    except OSError as problem:
        return f"needs a path that can be read; {shown(text)} cannot: {problem.strerror}; name another"
    kind = next((kind for test, kind in _KINDS.items() if test(mode)), "")
    if kind and not (kind == "a pipe" and text.startswith(_OPEN_PIPES)):
        return f"needs a file or a folder; {shown(text)} is {kind}; name a file or a folder"
    return ""


def require_path(name: str, value: str | os.PathLike[str], error: type[SubtextError] = ArgumentError) -> None:
    """Require that a value can be a path: of a setting that is a part of a text, as `features:FILE` is.

    Args:
        name: Of the setting.
        value: As it was given.
        error: What is raised.

    Raises:
        SubtextError: The `error`, with `field`, for a value that cannot be the path of a file or folder.
    """
    if reason := why_no_path(value):
        raise error(f"{name} {reason}", field=name)


def shown(value: str, most: int = 80) -> str:
    r"""A value in quotes, with escapes for what cannot be printed, and cut where it is long.

    Args:
        value: Any text.
        most: Characters that are shown, 1 or more.

    Returns:
        The value for a message.

    Example:
        >>> shown("a\0b")
        "'a\\x00b'"
        >>> shown("x" * 10000, 3)
        "'xxx' and 9,997 more characters"
    """
    more = len(value) - most
    # Characters that are no text stand for bytes.
    text = repr(value[:most]).replace("\\udc", "\\x")
    return text if more <= 0 else f"{text} and {more:,} more characters"


def _encoding_advice(text: str, advice: str) -> str:
    """What to do about a value that is not UTF-8, or that this process has not read as UTF-8."""
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8"):
        return advice
    return "set PYTHONUTF8=1, or a locale of UTF-8 such as LC_ALL=C.UTF-8, and do it again"
