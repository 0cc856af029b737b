"""Pixels to parts and a pooled vector, by any vision backbone of `transformers`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import Weights, drop_pooler, has_weights, layers, open_body, save_config, settle

Pooling = Literal["auto", "average", "cls"]


class Vision(nn.Module):
    """The cells or patches of an image, and one vector of it.

    parts   (N P E): cells of the last feature map in row-major order, or the last patch tokens
    pooled  (N E): their average, or the class token

    body        a convolutional network or a vision transformer
    pooling     "auto" takes the class token where there is one
    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate

    Takes  pixels (N 3 H W).    Raises RequirementError for "cls" and a body without class token.
    """

    def __init__(self, body: PreTrainedModel, *, pooling: Pooling = "auto", pretrained: bool = False) -> None:
        super().__init__()
        drop_pooler(body)
        _unused(body)
        _mend_momentum(body)
        self.body = body
        self.pooling = pooling
        self.pretrained = pretrained
        self.resizes = "interpolate_pos_encoding" in inspect.signature(body.forward).parameters
        self.parts_width = self.pooled_width = _width(body)

    @staticmethod
    def open(
        name: str,
        *,
        weights: Weights = "pretrained",
        image_size: int | None = None,
        assets: Path | None = None,
        pooling: Pooling = "auto",
    ) -> Vision:
        """By short name, hub name or folder; see `open_body`."""
        body = open_body(name, weights=weights, image_size=image_size, assets=assets, option="image")
        return Vision(body, pooling=pooling, pretrained=has_weights(name, weights))

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Cells and pooled vectors of images."""
        settle(self.body, self.training)
        pixels = inputs["pixels"]
        arguments: dict[str, Any] = (
            {"interpolate_pos_encoding": True} if self.resizes and self._other_size(pixels) else {}
        )
        states = self.body(pixel_values=pixels, **arguments).last_hidden_state
        if states.ndim == 4:
            parts, extra = states.flatten(2).transpose(1, 2), 0
        else:
            extra = _extra_tokens(self.body, states.shape[1], pixels)
            parts = states[:, extra:]
        if self.pooling == "cls" and not extra:
            raise RequirementError(
                f"pooling 'cls' needs a class token; {type(self.body).__name__} has none; use 'average'"
            )
        pooled = states[:, 0] if extra and self.pooling != "average" else parts.mean(dim=1)
        return Encoded(parts=parts, pooled=pooled)

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained body, bottom to top; none where all is new or learns by adapters."""
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Write the body's configuration."""
        save_config(self.body.config, folder)

    def _other_size(self, pixels: Tensor) -> bool:
        return tuple(pixels.shape[-2:]) != _pair(getattr(self.body.config, "image_size", None))


def _pair(size: int | list[int] | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None or isinstance(size, int):
        return None if size is None else (size, size)
    return int(size[0]), int(size[1])


def _extra_tokens(body: PreTrainedModel, tokens: int, pixels: Tensor) -> int:
    """Number of tokens before the patches: a class token, registers, or none."""
    patch = _pair(getattr(body.config, "patch_size", None))
    if patch is None:
        return 0
    cells = (pixels.shape[-2] // patch[0]) * (pixels.shape[-1] // patch[1])
    return max(tokens - cells, 0)


def _width(body: PreTrainedModel) -> int:
    """The width of the body's output, found by a forward pass: configurations have many names for it."""
    sizes = _pair(getattr(body.config, "image_size", None)) or (64, 64)
    was_training = body.training
    body.eval()
    with torch.inference_mode():
        states = body(pixel_values=torch.zeros(1, 3, *sizes)).last_hidden_state
    body.train(was_training)
    return int(states.shape[1] if states.ndim == 4 else states.shape[2])


def _unused(body: PreTrainedModel) -> None:
    """Freeze parameters that only masked pre-training uses."""
    for name, parameter in body.named_parameters():
        if name.endswith("mask_token"):
            parameter.requires_grad_(False)


def _mend_momentum(body: PreTrainedModel) -> None:
    """Correct batch norms whose momentum is the share of the old average, not of the new one.

    MobileNetV1 in `transformers` has 0.9997: its running statistics would be those of the last batch alone.
    """
    for module in body.modules():
        if isinstance(module, nn.BatchNorm2d) and module.momentum is not None and module.momentum > 0.5:
            module.momentum = max(1 - module.momentum, 0.01)
