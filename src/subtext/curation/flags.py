"""What is plainly wrong, or odd, with a text or a picture by itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from PIL import Image

from subtext.data.image_files import open_image
from subtext.data.words import tokenise
from subtext.errors import DataError

UNUSABLE = frozenset({"no words", "cannot be read"})
"""Flags that leave nothing to learn from."""
SHORT, LONG = 3, 100
"""Words below and above which a text is flagged."""
SMALL = 64
"""Pixels of the shorter side below which a picture is flagged."""
NARROW = 4.0
"""Longer side over shorter side above which it is."""
PLAIN = 4.0
"""Standard deviation of greys, of 255, below which it is of one colour."""

_ADDRESS = re.compile(r"https?://|www\.|\S+@\S+\.\w")
_MARKUP = re.compile(r"</?[a-z][a-z0-9]*\b[^>]*>|&[a-z]+;|\{\{|\]\]", re.IGNORECASE)
_FILE = re.compile(r"^\S+\.(jpe?g|png|gif|webp|tiff?|bmp|raw)$|^(img|dsc|image|photo)[_ -]?\d+$", re.IGNORECASE)


def text_flags(text: str) -> list[str]:
    """What is odd about a text.

    >>> text_flags("IMG_1234"), text_flags("A dog runs along the beach.")
    (['a file name', 'short'], [])
    """
    words = tokenise(text)
    flags = []
    if not words:
        flags.append("no words")
    if _FILE.search(text.strip()):
        flags.append("a file name")
    if 0 < len(words) < SHORT:
        flags.append("short")
    if len(words) > LONG:
        flags.append("long")
    if _ADDRESS.search(text):
        flags.append("an address")
    if _MARKUP.search(text):
        flags.append("markup")
    letters = [letter for letter in text if letter.isalpha()]
    if len(letters) > 10 and all(letter.isupper() for letter in letters):
        flags.append("capitals")
    if len(words) >= 6 and len(set(words)) <= len(words) / 3:
        flags.append("repeats itself")
    return flags


def picture_flags(value: str | bytes | None, root: Path) -> list[str]:
    """What is odd about a picture; nothing for one that is known by features alone."""
    if value is None:
        return []
    try:
        image = open_image(value, root)
    except DataError:
        return ["cannot be read"]
    flags = []
    short, long = sorted(image.size)
    if short < SMALL:
        flags.append("small")
    if long > NARROW * max(1, short):
        flags.append("narrow")
    greys = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.BOX), dtype=np.float32)
    if float(greys.std()) < PLAIN:
        flags.append("of one colour")
    return flags
