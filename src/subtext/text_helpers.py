"""Numbers and lists as the words of a message."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number and what it counts.

    Args:
        number: 0 or more.
        noun: In the singular; its plural ends in "s".

    Returns:
        The number with thousands separated, then the noun.

    Example:
        >>> counted(1, "image"), counted(2000, "image")
        ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], count: int = 3, *, separator: str = ", ", conjunction: str = " and") -> str:
    """The first of some names, and how many more there are.

    Args:
        names: Any number of names.
        count: How many are written out.
        separator: Between two names.
        conjunction: Before the number of the others.

    Returns:
        The text; empty for no names.

    Example:
        >>> listed(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    more = f"{conjunction} {len(names) - count:,} more" if len(names) > count else ""
    return separator.join(names[:count]) + more


def install_hint(extra: str) -> str:
    """Say how to install the packages of an extra, for messages.

    Subtext is on no package index yet. Once it is, this says `pip install 'subtext-retrieval[EXTRA]'`.

    Args:
        extra: Name of the extra, as in `pyproject.toml`.

    Returns:
        The command, and where to run it.

    Example:
        >>> install_hint("serve")
        "pip install '.[serve]' in a clone of Subtext"
    """
    return f"pip install '.[{extra}]' in a clone of Subtext"


def size(count: int) -> str:
    """Format a number of bytes.

    Args:
        count: Bytes.

    Returns:
        Such as "1.5 MB".

    Example:
        >>> size(1_536_000)
        '1.5 MB'
    """
    value, power = float(count), 0
    while value >= 1000 and power < 4:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}" if power else f"{count} B"
