"""Keras' MobileNetV1 weights in `transformers`' network give what the network of the file itself gives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from benchmarks.mobilenet_weights import BLOCKS, convert, write
from subtext.data.batches import item_batch
from subtext.data.dataset import Items
from subtext.data.output_cache import OutputCache
from subtext.models.encoders.vision import Vision
from subtext.models.feature_cache import cached_branch
from subtext.models.heads.mean import Passthrough
from subtext.models.model import Branch
from subtext.recipes.encoders import image_side
from subtext.recipes.options import InputOptions
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.golden

STRIDED = (2, 4, 6, 12)
Arrays = dict[str, NDArray[np.float32]]


def made(multiplier: float = 0.25) -> Arrays:
    """Weights by Keras' names, of a thin network."""
    rng = np.random.default_rng(0)
    widths = [int(width * multiplier) for width in (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)]
    arrays: Arrays = {}

    def norm(name: str, width: int) -> None:
        arrays[f"{name}/gamma"] = rng.uniform(0.8, 1.2, width).astype(np.float32)
        arrays[f"{name}/beta"] = rng.normal(size=width).astype(np.float32)
        arrays[f"{name}/moving_mean"] = rng.normal(size=width).astype(np.float32)
        arrays[f"{name}/moving_variance"] = rng.uniform(0.5, 2, width).astype(np.float32)

    def kernel(*shape: int) -> NDArray[np.float32]:
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)

    arrays["conv1/kernel"] = kernel(3, 3, 3, widths[0])
    norm("conv1_bn", widths[0])
    for block in range(1, BLOCKS + 1):
        arrays[f"conv_dw_{block}/depthwise_kernel"] = kernel(3, 3, widths[block - 1], 1)
        norm(f"conv_dw_{block}_bn", widths[block - 1])
        arrays[f"conv_pw_{block}/kernel"] = kernel(1, 1, widths[block - 1], widths[block])
        norm(f"conv_pw_{block}_bn", widths[block])
    return arrays


def plain(arrays: Arrays, pixels: Tensor) -> Tensor:
    """The feature map by the file's own arithmetic: SAME padding, batch norm as published, ReLU6."""

    def layer(values: Tensor, kernel: NDArray[np.float32], norm: str, stride: int, groups: int) -> Tensor:
        weight = torch.from_numpy(kernel.copy())
        if weight.shape[2] == 3:
            values = torch.nn.functional.pad(values, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
        values = torch.nn.functional.conv2d(values, weight, stride=stride, groups=groups)
        gamma, beta, mean, variance = (
            torch.from_numpy(arrays[f"{norm}/{part}"])[:, None, None]
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return ((values - mean) / torch.sqrt(variance + 1e-3) * gamma + beta).clamp(0, 6)

    values = layer(pixels, arrays["conv1/kernel"].transpose(3, 2, 0, 1), "conv1_bn", 2, 1)
    for block in range(1, BLOCKS + 1):
        deep = arrays[f"conv_dw_{block}/depthwise_kernel"].transpose(2, 3, 0, 1)
        stride = 2 if block in STRIDED else 1
        values = layer(values, deep, f"conv_dw_{block}_bn", stride, len(deep))
        point = arrays[f"conv_pw_{block}/kernel"].transpose(3, 2, 0, 1)
        values = layer(values, point, f"conv_pw_{block}_bn", 1, 1)
    return values


def test_network_equals_plain_arithmetic() -> None:
    arrays, pixels = made(), torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        found = convert(arrays)(pixel_values=pixels).last_hidden_state
    torch.testing.assert_close(found, plain(arrays, pixels), atol=1e-4, rtol=1e-4)


def test_folder_loads_as_encoder(tmp_path: Path) -> None:
    arrays, pixels = made(), torch.randn(2, 3, 64, 64)
    np.savez(tmp_path / "weights.npz", **arrays)
    encoder = Vision.open(str(write(tmp_path / "weights.npz", tmp_path / "model"))).eval()
    with torch.inference_mode():
        found = encoder({"pixels": pixels})
    torch.testing.assert_close(found.pooled, plain(arrays, pixels).mean(dim=(2, 3)), atol=1e-4, rtol=1e-4)
    assert len(encoder.body_layers()) == 2 * BLOCKS + 1


def test_missing_and_unexpected_arrays_raise() -> None:
    arrays = made()
    with pytest.raises(ValueError, match="no place for strange"):
        convert({**arrays, "strange": np.zeros(1, dtype=np.float32)})
    del arrays["conv_pw_3_bn/beta"]
    with pytest.raises(ValueError, match="needs 'conv_pw_3_bn/beta'"):
        convert(arrays)


def through_the_cache(folder: Path, names: list[str], root: Path, cache: Path) -> Tensor:
    """What a frozen run reads of these pictures: the recipe's own reader and encoder, run once, and read back."""
    side = image_side(BuildContext(), InputOptions(image=str(folder)))
    branch = Branch(side.input_spec, side.encoder, Passthrough()).eval()
    count = len(names)
    items = Items(names, list(names), np.arange(count), np.array(["train"] * count))
    sources = [(items, root)]
    found = cached_branch(branch, sources, OutputCache(cache), device=torch.device("cpu"))
    tensors = found.input_spec(item_batch(items, np.arange(count), root))
    return tensors["pooled"]


def squashed(names: list[str], root: Path) -> Tensor:
    """Pictures as the network was trained to see them: 224 x 224, in [-1, 1]."""
    pictures = [Image.open(root / name).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC) for name in names]
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(0, 3, 1, 2) / 127.5 - 1


def test_image_path_gives_network_features(tmp_path: Path) -> None:
    arrays, rng = made(), np.random.default_rng(0)
    np.savez(tmp_path / "weights.npz", **arrays)
    folder, names = write(tmp_path / "weights.npz", tmp_path / "model"), ["wide.png", "high.png", "small.png"]
    for name, (high, wide) in zip(names, ((100, 300), (260, 240), (20, 30)), strict=True):
        Image.fromarray(rng.integers(0, 256, (high, wide, 3), dtype=np.uint8)).save(tmp_path / name)
    found = through_the_cache(folder, names, tmp_path, tmp_path / "cache")
    with torch.inference_mode():
        wanted = plain(arrays, squashed(names, tmp_path)).mean(dim=(2, 3))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.data
@pytest.mark.skipif("SUBTEXT_DATA" not in os.environ, reason="needs SUBTEXT_DATA")
def test_imagenet_weights_classify_real_images(tmp_path: Path) -> None:
    data = Path(os.environ["SUBTEXT_DATA"])
    weights = data.parent / "weights" / "mobilenet_v1_0.75_224_imagenet.npz"
    with np.load(data / "flickr8k" / "mobilenet_pooled.npz") as file:
        given, every = torch.from_numpy(file["pooled"].astype(np.float32)), file["names"].tolist()
    names, root = every[::875], data / "flickr8k" / "images"
    found = through_the_cache(write(weights, tmp_path / "model"), names, root, tmp_path / "cache")
    with np.load(weights) as file, torch.inference_mode():
        arrays = {name: file[name] for name in file.files}
        wanted = plain(arrays, squashed(names, root)).mean(dim=(2, 3))
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)
    # The given features are of the 224-pixel originals and the pictures here are 160-pixel copies, so that they cannot
    # be equal. Of all 7,000 the nearest is still the picture's own.
    cosines = torch.nn.functional.normalize(found) @ torch.nn.functional.normalize(given).T
    assert cosines.argmax(dim=1).tolist() == [every.index(name) for name in names]
    assert float(cosines.amax(dim=1).min()) > 0.9
