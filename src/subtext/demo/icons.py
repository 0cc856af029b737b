"""Icons of Lucide with their tags: what designers wrote that an icon stands for."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import metadata
from pathlib import Path

from subtext.demo.drawings import Drawing, distinct, missing

CREDIT = "Icons by Lucide Contributors, ISC License; some are derived from Feather, MIT License"
PREFIX = "lucide-"
"""Begins the id of an icon."""
_VARIANT = re.compile(
    r"\b([234a]|alert|big|bottom|check|circle|closed|cog|dashed|dot|down|front|half|horizontal|left|line|minus|off|open|"
    r"plus|question|mark|right|round|search|slash|square|text|top|up|vertical|warning|x)\b"
)
"""Words of a name that tell variants of one icon apart."""


def icons() -> list[Drawing]:
    """List every icon with its name, aliases and tags, by name.

    Returns:
        The drawings.

    Raises:
        RequirementError: If the package of the icons is not installed.
    """
    try:
        file = Path(str(metadata.distribution("python-lucide").locate_file("lucide/data/lucide-icons.db")))
    except metadata.PackageNotFoundError as error:
        raise missing("python-lucide") from error
    # Opened so, SQLite writes nothing beside it.
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        svgs = database.execute("SELECT name, svg FROM icons ORDER BY name").fetchall()
        texts: dict[str, list[str]] = {name: [name.replace("-", " ")] for name, _ in svgs}
        for table, column in (("icon_aliases", "alias"), ("icon_tags", "tag")):
            for name, text in database.execute(f"SELECT name, {column} FROM {table} ORDER BY name, {column}"):
                texts[name].append(text.replace("-", " "))
    # A text without letters, such as "&", is a sign that no encoder was trained on.
    named = {name: [("en", text) for text in many if any(map(str.isalpha, text))] for name, many in texts.items()}
    return [Drawing(PREFIX + name, "", base_of(name), distinct(named[name]), svg) for name, svg in svgs if named[name]]


def base_of(name: str) -> str:
    """Identify an icon with its variants.

    Args:
        name: Name of the icon.

    Returns:
        Name of the base.

    Example:
        >>> base_of("message-circle-heart") == base_of("message-square-heart")
        True
    """
    return " ".join(_VARIANT.sub("", name).replace("-", " ").split()) or name.replace("-", " ")
