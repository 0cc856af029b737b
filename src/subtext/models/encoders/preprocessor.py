"""How a backbone wants its pictures, from its short name or from the file that stands beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subtext.errors import RequirementError
from subtext.models.encoders.hub import file
from subtext.models.encoders.known import IMAGENET, KNOWN, PictureNumbers, Triple

_BICUBIC = 3


def picture_numbers(name: str, *, option: str = "name") -> PictureNumbers:
    """What pictures the backbone of that name or folder wants.

    A short name is looked up; another model says it in its `preprocessor_config.json`, and where there is none, 224
    pixels and ImageNet's mean and deviation are taken.

    option  what the name was given as, for messages

    Raises RequirementError when that file does not hold the numbers, or there is no such model.
    """
    if name in KNOWN:
        return KNOWN[name].numbers
    preprocessor = file(name, "preprocessor_config.json", option=option)
    if preprocessor is None:
        return PictureNumbers(224, *IMAGENET)
    found = _object(preprocessor, f"{option}={name}")
    mean, std = (
        _triple(found.get(f"image_{kind}", plain)) for kind, plain in zip(("mean", "std"), IMAGENET, strict=True)
    )
    whole, cropped = _side(found.get("size", 224)), _side(found.get("crop_size"))
    size = cropped if cropped and found.get("do_center_crop") else whole
    share = found.get("crop_pct") or (size or 1) / max(whole or size or 1, 1)
    if size is None or mean is None or std is None or not isinstance(share, int | float):
        told = ", ".join(
            f"{key} {found.get(key)}" for key in ("size", "image_mean", "image_std", "crop_pct") if key in found
        )
        raise RequirementError(
            f"{option}={name} needs a {preprocessor.name} with a size and three channels' image_mean and image_std; it "
            f"has {told or 'none of them'}; give a model that reads colour pictures"
        )
    keeps_shape = bool(found.get("do_center_crop")) or "crop_pct" in found or "shortest_edge" in _mapping(found)
    return PictureNumbers(
        size,
        mean,
        std,
        resize="crop" if keeps_shape else "squash",
        crop_share=min(1.0, float(share)),
        filter="bicubic" if found.get("resample") == _BICUBIC else "bilinear",
    )


def _object(file: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RequirementError(f"{name} needs a {file.name} of JSON; {error}; fetch it again") from error
    if not isinstance(found, dict):
        raise RequirementError(f"{name} needs a JSON object in {file.name}; it has another value; fetch it again")
    return found


def _side(size: object) -> int | None:
    """The side that a preprocessor's size names: a number, or the height or short edge of a mapping."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) and size > 0 and size is not True else None


def _mapping(found: dict[str, Any]) -> dict[str, Any]:
    size = found.get("size")
    return size if isinstance(size, dict) else {}


def _triple(values: object) -> Triple | None:
    """Three numbers, or None for another thing."""
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(n, int | float) for n in values):
        return None
    first, second, third = map(float, values)
    return first, second, third
