"""A picture made small enough to stand in a page."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from PIL import Image

from subtext.data.image_files import open_image
from subtext.errors import DataError

LARGEST = 160
"""Pixels of the longer side, on a screen of twice the density."""


def thumbnail(source: Any, root: Path = Path(), *, largest: int = LARGEST) -> str | None:
    """A data URI of the picture, at most `largest` pixels wide and high; None where it cannot be read.

    Drawings of few colours become PNG, photographs JPEG, whichever is the smaller. A page of results is not stopped by
    one picture that is gone.
    """
    try:
        image = open_image(source, root, at_least=largest)
    except DataError:
        return None
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    coded = {"image/png": _coded(image, "PNG"), "image/jpeg": _coded(image, "JPEG")}
    kind = min(coded, key=lambda name: len(coded[name]))
    return f"data:{kind};base64,{base64.b64encode(coded[kind]).decode('ascii')}"


def _coded(image: Image.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, optimize=True, quality=85)
    return buffer.getvalue()
