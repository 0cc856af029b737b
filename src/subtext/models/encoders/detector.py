"""Pixels to regions: the most confident boxes of an object detector of `transformers`, and their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForObjectDetection, PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import Weights, open_body, save_config
from subtext.models.encoders.precomputed import BOX


class Detector(nn.Module):
    """Regions by a query-based detector (DETR, YOLOS, RT-DETR ...), which is frozen here.

    parts   (N R E+4): of the R most confident boxes, best first, the last state of the box's query, then the box
    mask    (N R): boxes of probability `least` or more; an image always keeps its best box
    pooled  (N E): the mean of those states

    Features are the states of the queries, not a pooling of the backbone's map inside each box: every such detector has
    them, and they describe the box in the context of the full image. The confidence of a box is the greatest
    probability of any class, without "no object". Boxes are selected without gradient, and no loss here could train the
    detector: it stays as it is, and its outputs are cached like those of any frozen encoder.

    body      a query-based model for object detection
    regions   R; all queries where there are fewer
    least     from 0 to 1

    Takes   pixels (N 3 H W): the full image, since boxes are relative to it.
    Raises  RequirementError for a model without one state per box, and regions below 1.
    """

    def __init__(self, body: PreTrainedModel, *, regions: int = 36, least: float = 0.0) -> None:
        super().__init__()
        if regions < 1:
            raise RequirementError(f"a detector needs 1 region or more; it got {regions}")
        self.body = body.requires_grad_(False).eval()
        self.regions, self.least = regions, least
        self.pooled_width = int(body.config.hidden_size)
        self.parts_width = self.pooled_width + BOX

    @staticmethod
    def open(
        name: str, *, weights: Weights = "pretrained", assets: Path | None = None, regions: int = 36, least: float = 0.0
    ) -> Detector:
        """By hub name or folder; see `open_body`. Raises RequirementError when the detector cannot be had."""
        try:
            body = open_body(name, weights=weights, assets=assets, option="image", task=AutoModelForObjectDetection)
        except ImportError as error:
            # Published DETR has a backbone of timm.
            raise RequirementError(
                f"image=detector:{name} needs packages that are not there: {str(error).strip().splitlines()[0]}; "
                "install subtext[encoders], or take a detector without them (YOLOS, RT-DETR)"
            ) from error
        return Detector(body, regions=regions, least=least)

    def train(self, mode: bool = True) -> Detector:
        """Set the mode of this module; the body stays in eval mode."""
        super().train(mode)
        self.body.eval()
        return self

    @torch.no_grad()
    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """The most confident regions of images."""
        output = self.body(pixel_values=inputs["pixels"])
        states, boxes = _states(output, self.body), _edges(output.pred_boxes)
        confidence = _confidence(output.logits, int(self.body.config.num_labels))
        count = min(self.regions, confidence.shape[1])
        # Of equal boxes the earlier query comes first, on any machine.
        order = confidence.argsort(dim=1, descending=True, stable=True)[:, :count]
        mask = confidence.gather(1, order) >= self.least
        mask[:, 0] = True
        states, boxes = (
            values.gather(1, order[..., None].expand(-1, -1, values.shape[2])) for values in (states, boxes)
        )
        weight = mask[..., None].to(states.dtype)
        pooled = (states * weight).sum(dim=1) / weight.sum(dim=1)
        return Encoded(parts=torch.cat([states, boxes], dim=2), mask=mask, pooled=pooled)

    def save_assets(self, folder: Path) -> None:
        """Write the body's configuration."""
        save_config(self.body.config, folder)


def _states(output: Any, body: PreTrainedModel) -> Float[Tensor, "n q e"]:
    """The last states of the queries: all states of a decoder, or the last tokens of an encoder (YOLOS)."""
    states, logits = getattr(output, "last_hidden_state", None), getattr(output, "logits", None)
    if states is None or logits is None or states.ndim != 3 or states.shape[1] < logits.shape[1]:
        raise RequirementError(
            f"regions need a detector with one state per box; {type(body).__name__} has none; take a query-based one: "
            "DETR, YOLOS, RT-DETR"
        )
    return states[:, -logits.shape[1] :]


def _confidence(logits: Float[Tensor, "n q c"], classes: int) -> Float[Tensor, "n q"]:
    """The probability of the likeliest class: by softmax where the last class is "no object", else by sigmoid."""
    if logits.shape[2] == classes + 1:
        return logits.softmax(dim=2)[..., :-1].amax(dim=2)
    return logits.sigmoid().amax(dim=2)


def _edges(boxes: Float[Tensor, "n q four"]) -> Float[Tensor, "n q four"]:
    """Centre, width and height as edges, inside the image."""
    centre, half_size = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half_size, centre + half_size], dim=2).clamp(0, 1)
