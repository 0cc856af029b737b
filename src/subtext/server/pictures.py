"""Pictures that clients bring: looked at before they are decoded, and refused where they are something else."""

from __future__ import annotations

import warnings
import zipfile
from http import HTTPStatus
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from subtext.data.image_files import open_image
from subtext.errors import DataError
from subtext.server.refusals import Refusal

FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif"}
"""What is taken, and how such a file is named. No format that can hold a program, a document or an address."""

_FOREIGN = (b"<script", b"<html", b"<svg", b"<!doctype", b"<?php", b"<iframe")
_HEAD, _TAIL = 1024, 2**16 + 22
"""Bytes among which PDF's and ZIP's readers look for their marks."""


def require_picture(data: bytes, *, pixels: int) -> str:
    """The ending of a file that holds this picture; the picture is whole, and nothing besides a picture.

    pixels  that it may have, width times height; known before anything is decoded

    Raises Refusal: 415 for what is no picture of these formats, or is something else as well (a page, a document, an
    archive); 413 for too many pixels; 422 for one that is cut off.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(data), formats=tuple(FORMATS)) as image:
                form, size = str(image.format), image.size
    except Image.DecompressionBombError as problem:
        raise _too_large(pixels) from problem
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as problem:
        raise _no_picture(f"it needs {', '.join(FORMATS)}; this is another kind of file") from problem
    if size[0] * size[1] > pixels:
        raise _too_large(pixels)
    lower = data.lower()
    if any(mark in lower for mark in _FOREIGN) or b"%PDF-" in data[:_HEAD] or _is_archive(data):
        raise _no_picture("it is a picture and a page, document or archive at once; save it again as a picture")
    try:
        open_image(data, at_least=64)
    except DataError as problem:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the picture cannot be decoded: {problem}") from problem
    return FORMATS.get(form, ".jpg")


def _is_archive(data: bytes) -> bool:
    return b"PK\x05\x06" in data[-_TAIL:] and zipfile.is_zipfile(BytesIO(data))


def _too_large(pixels: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a picture may have {pixels:,} pixels; this has more")


def _no_picture(why: str) -> Refusal:
    return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a picture cannot be used: {why}")
