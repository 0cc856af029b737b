"""How a backbone wants its pictures, from its short name or from the file that stands beside its weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from subtext.encoders.hub import file
from subtext.encoders.known import IMAGENET, KNOWN, PictureNumbers, Triple
from subtext.errors import RequirementError

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
    found = json.loads(preprocessor.read_text(encoding="utf-8"))
    mean, std = found.get("image_mean", IMAGENET[0]), found.get("image_std", IMAGENET[1])
    whole, cropped = _side(found.get("size", 224)), _side(found.get("crop_size"))
    size = cropped if cropped and found.get("do_center_crop") else whole
    if size is None or len(mean) != 3 or len(std) != 3:
        raise RequirementError(
            f"{preprocessor.name} of '{name}' needs a size and three channels' image_mean and image_std; it has "
            f"size {found.get('size')}, image_mean {mean}, image_std {std}; only colour pictures can be read"
        )
    keeps_shape = bool(found.get("do_center_crop")) or "crop_pct" in found or "shortest_edge" in _mapping(found)
    return PictureNumbers(
        size,
        _triple(mean),
        _triple(std),
        resize="crop" if keeps_shape else "squash",
        crop_share=min(1.0, float(found.get("crop_pct") or size / max(whole or size, 1))),
        filter="bicubic" if found.get("resample") == _BICUBIC else "bilinear",
    )


def _side(size: object) -> int | None:
    """The side that a preprocessor's size names: a number, or the height or short edge of a mapping."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) else None


def _mapping(found: dict[str, Any]) -> dict[str, Any]:
    size = found.get("size")
    return size if isinstance(size, dict) else {}


def _triple(values: Sequence[float | int]) -> Triple:
    first, second, third = (float(value) for value in values)
    return first, second, third
