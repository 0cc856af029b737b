"""Text inside images, read by RapidOCR (extra `ocr`), whose package holds its weights: no network is asked."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from subtext.errors import RequirementError
from subtext.text_helpers import install_hint


def text_in(image: Image.Image) -> str:
    """Read the text in an image.

    Args:
        image: RGB.

    Returns:
        The lines from top to bottom, with a space between them; "" where there are none.

    Raises:
        RequirementError: If RapidOCR is not installed.
    """
    pixels = np.asarray(image.convert("RGB"))[:, :, ::-1]  # It takes them as OpenCV has them.
    found = reader()(np.ascontiguousarray(pixels))
    return " ".join(line.strip() for line in found.txts or () if line.strip())


@cache
def reader() -> Any:
    """RapidOCR, opened once.

    Raises:
        RequirementError: If it is not installed.
    """
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise RequirementError(
            f"reading text in images needs the package rapidocr; importing it failed: {error}; {install_hint('ocr')}"
        ) from error
    return RapidOCR(params={"Global.log_level": "error"})
