"""Backbones that have a short name: where their weights are, and what their configuration is without a hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
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
    return Known(hub, "resnet", PictureNumbers(224, *IMAGENET), settings)


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
        "facebook/dinov2-small", "dinov2", PictureNumbers(224, *IMAGENET), {**_SMALL, "patch_size": 14}
    ),
    "mobilenet-v1": Known(
        "google/mobilenet_v1_0.75_192", "mobilenet_v1", PictureNumbers(224, *_HALF), {"depth_multiplier": 0.75}
    ),
}


NAMES = (
    *(known.hub for known in KNOWN.values() if known.hub is not None),
    "bert-base-uncased",
    "google-bert/bert-base-uncased",
    "google-bert/bert-base-multilingual-cased",
    "distilbert/distilbert-base-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/xlm-roberta-base",
    "sentence-transformers/all-MiniLM-L6-v2",
    "openai/clip-vit-base-patch16",
    "openai/clip-vit-base-patch32",
    "openai/clip-vit-large-patch14",
    "google/siglip-base-patch16-224",
    "google/siglip2-base-patch16-224",
)
"""Models of the hub that are often asked for: what a misspelt name may have meant."""
