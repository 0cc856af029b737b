"""Precomputed features of images or texts: pooled, by region, or both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.regions import BOX
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_mean, unit

Scaling = Literal["none", "unit", "standard"]


class Precomputed(nn.Module):
    """Precomputed features, with scaling and dropout.

    Args:
        pooled_width: Width of pooled features; None where the file has none.
        grid_width: Width of grid features, with boxes; None where the file has none.
        scaling: "unit": each vector over its length; "standard": each dimension by `mean` and `std`, which are part of
            the state and so are saved with a run.
        mean: "pooled" and "grid" -> (width), over the training split; zeros where missing.
        std: Likewise; ones where missing.
        dropout: Share of the scaled features set to zero in training.
        append_pooled: Whether the pooled vector becomes one more part; needs equal widths.
        boxes: Whether the last four numbers of each region are its box, as `Detector` has them: they are neither scaled
            nor dropped, nor part of the mean. The pooled vector's box is the full image.

    Raises:
        RequirementError: If there are neither pooled nor grid features, and for `append_pooled` with unequal widths.
    """

    def __init__(
        self,
        pooled_width: int | None,
        grid_width: int | None,
        *,
        scaling: Scaling = "none",
        mean: Mapping[str, NDArray[np.float32]] | None = None,
        std: Mapping[str, NDArray[np.float32]] | None = None,
        dropout: float = 0.0,
        append_pooled: bool = False,
        boxes: bool = False,
    ) -> None:
        super().__init__()
        features = None if grid_width is None else grid_width - BOX * boxes
        widths = {"pooled": pooled_width, "grid": features}
        self.widths = {name: width for name, width in widths.items() if width is not None}
        if not self.widths:
            raise RequirementError("precomputed features need a pooled vector, a grid, or both; the file has neither")
        if append_pooled and len(self.widths) == 2 and pooled_width != features:
            raise RequirementError(
                f"the pooled vector can be one more part of the grid only where their widths are equal; "
                f"they are {pooled_width} and {features}; leave append_pooled off"
            )
        self.boxes = boxes
        self.scaling = scaling
        self.append_pooled = append_pooled
        self.dropout = nn.Dropout(dropout)
        self.parts_width = next(reversed(self.widths.values())) + (0 if features is None else BOX * boxes)
        self.pooled_width = next(iter(self.widths.values()))
        if scaling == "standard":
            for name, width in self.widths.items():
                self.register_buffer(f"{name}_mean", _buffer(mean, name, width, 0.0))
                self.register_buffer(f"{name}_std", _buffer(std, name, width, 1.0).clamp_min(1e-6))

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """The features of a batch.

        Args:
            inputs: "pooled" (N G) and/or "grid" (N P E), and "mask" (N P) bool.

        Returns:
            Encoded with `parts` (N P E), the grid, with the pooled vector as one more part where `append_pooled` is
            set; the pooled vector alone where there is no grid; `pooled` (N G), the pooled vector, or the mean of the
            grid.

        Raises:
            RequirementError: If the batch lacks features.
        """
        missing = [name for name in self.widths if name not in inputs]
        if missing:
            raise RequirementError(f"the encoder needs {', '.join(missing)} features; this batch has {sorted(inputs)}")
        features = {name: inputs[name] for name in self.widths}
        boxes: Tensor | None = None
        if self.boxes and "grid" in features:
            features["grid"], boxes = inputs["grid"][..., :-BOX], inputs["grid"][..., -BOX:]
        scaled: dict[str, Tensor] = {}
        for name, values in features.items():
            numbers = values.float()
            if self.scaling == "unit":
                numbers = unit(numbers)
            elif self.scaling == "standard":
                numbers = (numbers - getattr(self, f"{name}_mean")) / getattr(self, f"{name}_std")
            scaled[name] = self.dropout(numbers)
        grid, pooled = scaled.get("grid"), scaled.get("pooled")
        if grid is None:
            assert pooled is not None
            return Encoded(parts=pooled[:, None], pooled=pooled)
        mask: Tensor | None = inputs.get("mask")
        pooled_or_mean = masked_mean(grid, mask) if pooled is None else pooled
        if boxes is not None:
            grid = torch.cat([grid, boxes.to(grid.dtype)], dim=2)
        if pooled is not None and self.append_pooled:
            full_box = pooled.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(len(pooled), BOX)
            appended = pooled if boxes is None else torch.cat([pooled, full_box], dim=1)
            grid = torch.cat([grid, appended[:, None]], dim=1)
            mask = None if mask is None else torch.nn.functional.pad(mask, (0, 1), value=True)
        return Encoded(parts=grid, mask=mask, pooled=pooled_or_mean)


def _buffer(statistics: Mapping[str, NDArray[np.float32]] | None, name: str, width: int, default: float) -> Tensor:
    if statistics is None or name not in statistics:
        return torch.full((width,), default)
    value = torch.as_tensor(np.asarray(statistics[name], dtype=np.float32)).clone()
    if tuple(value.shape) != (width,):
        raise RequirementError(f"the statistics of {name} features need {width} numbers; got {tuple(value.shape)}")
    return value
