"""Keras' MobileNetV1 weights as a model folder that `transformers` and `subtext` open.

    python -m benchmarks.mobilenet_weights WEIGHTS.npz FOLDER
    subtext train dual --data captions.jsonl --out runs/pixels --image FOLDER

The npz holds arrays by Keras' names: conv1/kernel, conv1_bn/gamma, conv_dw_1/depthwise_kernel, ... Batch norms keep
their statistics, so that the network can be fine-tuned. Pictures are squashed to 224 x 224 and scaled to [-1, 1].
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import MobileNetV1Config, MobileNetV1Model

BLOCKS = 13
_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def convert(weights: Mapping[str, NDArray[np.float32]]) -> MobileNetV1Model:
    """The network with these weights, in eval mode.

    Raises ValueError when an array is missing, is left over, or has another shape.
    """
    used: set[str] = set()
    state: dict[str, torch.Tensor] = {}

    def put(name: str, source: str, axes: tuple[int, ...] | None = None) -> None:
        if source not in weights:
            raise ValueError(f"MobileNetV1 needs '{source}'; the file has {len(weights)} other arrays")
        used.add(source)
        array = weights[source] if axes is None else weights[source].transpose(axes)
        state[name] = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))

    def layer(name: str, kernel: str, norm: str, axes: tuple[int, ...]) -> None:
        put(f"{name}.convolution.weight", kernel, axes)
        for ours, theirs in _NORM.items():
            put(f"{name}.normalization.{ours}", f"{norm}/{theirs}")
        state[f"{name}.normalization.num_batches_tracked"] = torch.tensor(0)

    # Keras keeps kernels as (height, width, in, out), depthwise ones as (height, width, channel, 1).
    layer("conv_stem", "conv1/kernel", "conv1_bn", (3, 2, 0, 1))
    for block in range(1, BLOCKS + 1):
        deep, point = f"conv_dw_{block}", f"conv_pw_{block}"
        layer(f"layer.{2 * block - 2}", f"{deep}/depthwise_kernel", f"{deep}_bn", (2, 3, 0, 1))
        layer(f"layer.{2 * block - 1}", f"{point}/kernel", f"{point}_bn", (3, 2, 0, 1))
    left = sorted(name for name in set(weights) - used if not name.startswith(("conv_preds", "predictions")))
    if left:
        raise ValueError(f"MobileNetV1 has no place for {', '.join(left[:4])}{' ...' if len(left) > 4 else ''}")
    multiplier = state["conv_stem.convolution.weight"].shape[0] / 32
    model = MobileNetV1Model(MobileNetV1Config(depth_multiplier=multiplier, layer_norm_eps=1e-3, tf_padding=True))
    model.load_state_dict(state, strict=True)
    return model.eval()


def write(source: Path, folder: Path) -> Path:
    """Convert a file of weights to a model folder, with the numbers of its pictures beside it."""
    with np.load(source, allow_pickle=False) as file:
        model = convert({name: file[name] for name in file.files})
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    numbers = {
        "do_resize": True,
        "size": {"height": 224, "width": 224},
        "resample": 3,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return folder


def main() -> None:
    """Read two paths from the command line, and convert."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, metavar="WEIGHTS.npz")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    chosen = parser.parse_args()
    print(write(chosen.weights, chosen.folder))


if __name__ == "__main__":
    main()
