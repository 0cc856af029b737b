"""Backbones that have a short name: where their weights are, and what their configuration is without a hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from subtext.errors import RequirementError

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_BICUBIC = 3
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class PictureNumbers:
    """How a backbone wants its pictures.

    size        side in pixels         mean, std  of each channel, on a scale of 0 to 1
    resize      "crop": the middle square, `crop_share` of the short side; "squash": the whole picture
    filter      how pixels are resampled
    """

    size: int
    mean: Triple
    std: Triple
    resize: Literal["crop", "squash"] = "crop"
    crop_share: float = 0.875
    filter: Literal["bilinear", "bicubic"] = "bilinear"


@dataclass(frozen=True)
class Known:
    """A backbone with a short name.

    hub       the name of its pretrained weights; None where there are none to have
    family    the model type that `transformers` calls it by
    settings  what its configuration holds beyond the family's defaults
    numbers   how it wants its pictures
    """

    hub: str | None
    family: str
    numbers: PictureNumbers
    settings: dict[str, Any] = field(default_factory=dict)


def _residual(hub: str | None, kind: str, depths: list[int], widths: list[int]) -> Known:
    settings = {"layer_type": kind, "depths": depths, "hidden_sizes": widths}
    return Known(hub, "resnet", PictureNumbers(224, *_IMAGENET), settings)


_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}

KNOWN: dict[str, Known] = {
    # Three stages of one basic block: what two cores can train from nothing on pictures of 64 to 96 pixels.
    "tiny": Known(
        None,
        "resnet",
        PictureNumbers(64, *_HALF),
        {"layer_type": "basic", "embedding_size": 32, "depths": [1, 1, 1], "hidden_sizes": [48, 96, 192]},
    ),
    "resnet-18": _residual("microsoft/resnet-18", "basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "resnet-50": _residual("microsoft/resnet-50", "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "resnet-152": _residual("microsoft/resnet-152", "bottleneck", [3, 8, 36, 3], [256, 512, 1024, 2048]),
    "vit-small": Known("WinKawaks/vit-small-patch16-224", "vit", PictureNumbers(224, *_HALF), _SMALL),
    "vit-base": Known("google/vit-base-patch16-224-in21k", "vit", PictureNumbers(224, *_HALF)),
    "dinov2-small": Known(
        "facebook/dinov2-small", "dinov2", PictureNumbers(224, *_IMAGENET), {**_SMALL, "patch_size": 14}
    ),
    "mobilenet-v1": Known(
        "google/mobilenet_v1_0.75_192", "mobilenet_v1", PictureNumbers(224, *_HALF), {"depth_multiplier": 0.75}
    ),
}


def picture_numbers(name: str) -> PictureNumbers:
    """What pictures the backbone of that name or folder wants.

    A short name is looked up; a folder or a hub name is asked for its `preprocessor_config.json`, and where there is
    none, 224 pixels and ImageNet's mean and deviation are taken.

    Raises RequirementError when that file does not hold the numbers.
    """
    if name in KNOWN:
        return KNOWN[name].numbers
    path = _preprocessor(name)
    if path is None:
        return PictureNumbers(224, *_IMAGENET)
    found = json.loads(path.read_text(encoding="utf-8"))
    mean, std = found.get("image_mean", _IMAGENET[0]), found.get("image_std", _IMAGENET[1])
    whole, cropped = _side(found.get("size", 224)), _side(found.get("crop_size"))
    size = cropped if cropped and found.get("do_center_crop") else whole
    if size is None or len(mean) != 3 or len(std) != 3:
        raise RequirementError(
            f"{path.name} of '{name}' needs a size and three channels' image_mean and image_std; it has "
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


def _preprocessor(name: str) -> Path | None:
    if Path(name).is_dir():
        path = Path(name) / "preprocessor_config.json"
        return path if path.is_file() else None
    from transformers.utils import cached_file

    try:
        found = cached_file(
            name,
            "preprocessor_config.json",
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
    except (OSError, ValueError):
        # No name that a hub could have: opening the backbone says so, with what to do.
        return None
    return None if found is None else Path(found)
