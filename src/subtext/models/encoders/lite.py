"""EfficientNet-Lite2 (Tan and Le 2019, as Google published it for small devices): the image tower of `starter`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.starter import starter_file
from subtext.models.encoders.backbone import Pretrained, Weights
from subtext.models.encoders.hub import Preprocessing
from subtext.ops.numerics import unit

PREPROCESSING = Preprocessing(
    260, (127 / 255,) * 3, (128 / 255,) * 3, resize="crop", crop_share=260 / (260 + 32), filter="bicubic"
)
"""As the network was trained and evaluated: 260 pixels of the middle of 292, (value - 127) / 128 of a byte."""

_STAGES = (
    (1, 16, 3, 1, 1), (3, 24, 3, 2, 6), (3, 48, 5, 2, 6), (4, 88, 3, 2, 6), (4, 120, 5, 1, 6), (5, 208, 5, 2, 6),
    (1, 352, 3, 1, 6),
)  # fmt: skip
"""Blocks, width, side of the kernel, stride of the first block, and expansion of each stage."""
_STEM, _HEAD = 32, 1280
_PIXELS = 2**17
"""Pixels that a processor computes together: the states of more leave its memory pool, and take twice the time."""


class _Layer(nn.Module):
    """A convolution and a batch norm, which are one convolution outside of training: that takes two thirds of the time.

    Padded as by TensorFlow ("same"): where the padding is odd, one more pixel below and right.
    """

    def __init__(self, width_in: int, width: int, side: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        padding = side // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(width_in, width, side, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)

    def forward(self, inputs: Tensor) -> Tensor:
        conv, norm = self.conv, self.norm
        side, stride = conv.kernel_size[0], conv.stride[0]
        if stride > 1:
            high, wide = (max((-(-size // stride) - 1) * stride + side - size, 0) for size in inputs.shape[-2:])
            inputs = nn.functional.pad(inputs, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        if norm.training:
            return norm(conv(inputs))
        assert norm.running_mean is not None and norm.running_var is not None
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        weight, bias = conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
        if side == 1:
            # A product of matrices where channels are last, which takes less time than a convolution of one pixel.
            return nn.functional.linear(inputs.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
        return nn.functional.conv2d(inputs, weight, bias, stride, conv.padding, groups=conv.groups)


class _Block(nn.Module):
    """An inverted bottleneck: expand, filter each channel, project; the input is added where the shapes agree."""

    def __init__(self, width_in: int, width: int, side: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width_in * expansion
        layers: list[nn.Module] = [_Layer(width_in, inner), nn.ReLU6(inplace=True)] if expansion > 1 else []
        layers += [_Layer(inner, inner, side, stride, groups=inner), nn.ReLU6(inplace=True), _Layer(inner, width)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and width_in == width

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return inputs + outputs if self.adds else outputs


class EfficientNetLite2(nn.Module):
    """The network without its classifier.

    Maps pixels (N 3 H W) to the last feature map (N 1280 H/32 W/32).
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_Layer(3, _STEM, 3, 2), nn.ReLU6(inplace=True))
        self.blocks = nn.ModuleList()
        width_in = _STEM
        for count, width, side, stride, expansion in _STAGES:
            for index in range(count):
                self.blocks.append(_Block(width_in, width, side, 1 if index else stride, expansion))
                width_in = width
        self.head = nn.Sequential(_Layer(width_in, _HEAD), nn.ReLU6(inplace=True))

    def forward(self, pixels: Tensor) -> Tensor:
        """The last feature map.

        Args:
            pixels: (N 3 H W).

        Returns:
            (N 1280 H/32 W/32).
        """
        states = self.stem(pixels)
        for block in self.blocks:
            states = block(states)
        return self.head(states)

    def load_published(self, tensors: dict[str, Tensor]) -> None:
        """Load the tensors of the published file, which has other names in the same order, then the classifier.

        Args:
            tensors: Of the published file, by name.
        """
        published = {name: value for name, value in tensors.items() if not name.startswith("_fc.")}
        self.load_state_dict(dict(zip(self.state_dict(), published.values(), strict=True)))


def published() -> dict[str, Tensor]:
    """The tensors of the installed package, the classifier's among them.

    Raises the errors of `starter_file`.

    Returns:
        Name -> tensor.
    """
    return torch.load(starter_file("image"), map_location="cpu", weights_only=True)


class LiteVision(Pretrained):
    """The cells of an image by EfficientNet-Lite2, and one vector for the complete image.

    Args:
        body: An `EfficientNetLite2`.
        pretrained: Whether the body is pretrained, see `Pretrained`.
    """

    alone_from = int((_PIXELS / 2) ** 0.5) + 1
    """Side of images that a processor computes one at a time, whatever the batch."""

    def __init__(self, body: Any, *, pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        self.parts_width: int | None = _HEAD
        self.pooled_width = _HEAD

    @staticmethod
    def open(*, weights: Weights = "pretrained", fetch: bool = True) -> LiteVision:
        """Open the encoder with the weights of the installed package, or random ones.

        Raises the errors of `starter_file`.

        Args:
            weights: "pretrained" or "random".
            fetch: Whether to read the weights now; not for a saved run, whose tensors follow.

        Returns:
            The encoder.
        """
        encoder = LiteVision(EfficientNetLite2(), pretrained=weights == "pretrained")
        encoder.installed = ("body.",) if weights == "pretrained" else ()
        if fetch and encoder.installed:
            encoder.load_installed()
        return encoder

    def load_installed(self) -> None:
        """Load the tensors of the installed package.

        Raises the errors of `starter_file`.
        """
        self.body.load_published(published())

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Cells and pooled vectors of images.

        Args:
            inputs: "pixels" (N 3 H W).

        Returns:
            Encoded with `parts` (N P 1280), cells of the last feature map in row-major order; `pooled` (N 1280), their
            average, at unit length.
        """
        return self.finish(self.run_body(inputs))

    def finish(self, outputs: Encoded) -> Encoded:
        """What follows the network and costs next to nothing: outputs are cached before it.

        Args:
            outputs: As `run_body` returns them, or the fields of them that a head reads.

        Returns:
            See `forward`.
        """
        return replace(outputs, pooled=None if outputs.pooled is None else unit(outputs.pooled))

    def run_body(self, inputs: dict[str, Tensor]) -> Encoded:
        """Run the network.

        Args:
            inputs: "pixels" (N 3 H W).

        Returns:
            Encoded with `parts` (N P 1280) and `pooled` (N 1280), their average.
        """
        self.keep_frozen()
        pixels = inputs["pixels"]
        count = len(pixels)
        if pixels.device.type == "cpu" and not self.body.training and not torch.is_grad_enabled():
            count = max(1, _PIXELS // (pixels.shape[2] * pixels.shape[3]))
        parts = torch.cat([self.body(few) for few in pixels.split(count)]).flatten(2).transpose(1, 2)
        return Encoded(parts=parts, pooled=parts.mean(dim=1))
