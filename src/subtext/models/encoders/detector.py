"""Pixels to regions: the surest boxes of an object detector of `transformers`, and what it made of each."""

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
    """Regions by a detector that asks by queries (DETR, YOLOS, RT-DETR and their kin), which never learns here.

    parts   (N R E+4): of the R surest boxes, surest first, the last state of the query that found it, then the box
    mask    (N R): boxes of `least` probability or more; a picture always keeps its surest
    pooled  (N E): the mean of those states

    The queries' states and not a pooling of the backbone's map inside each box: the detector has just put there what
    it sees in the box, in the light of the whole picture; every such detector has them, whatever maps it is made of.
    How sure a box is: the greatest probability of any class, "no object" left out. Boxes are chosen without a gradient
    and nothing here would tell the detector where objects are: it stays as it was trained, so that its outputs are
    cached like any frozen encoder's.

    body      a model for object detection, by queries
    regions   R; all queries where there are fewer        least  from 0 to 1

    Takes   pixels (N 3 H W): the whole picture, since boxes are told in shares of it.
    Raises  RequirementError for a model that gives no state a box, and regions below 1.
    """

    def __init__(self, body: PreTrainedModel, *, regions: int = 36, least: float = 0.0) -> None:
        super().__init__()
        if regions < 1:
            raise RequirementError(f"a detector needs to give 1 region or more; it was asked for {regions}")
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
        """As any module, but for the body, which rests."""
        super().train(mode)
        self.body.eval()
        return self

    @torch.no_grad()
    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """The surest regions of pictures."""
        found = self.body(pixel_values=inputs["pixels"])
        states, boxes = _states(found, self.body), _edges(found.pred_boxes)
        sure = _sureness(found.logits, int(self.body.config.num_labels))
        count = min(self.regions, sure.shape[1])
        # Of equal ones the earlier query comes first, on any machine.
        order = sure.argsort(dim=1, descending=True, stable=True)[:, :count]
        mask = sure.gather(1, order) >= self.least
        mask[:, 0] = True
        states, boxes = (each.gather(1, order[..., None].expand(-1, -1, each.shape[2])) for each in (states, boxes))
        weight = mask[..., None].to(states.dtype)
        pooled = (states * weight).sum(dim=1) / weight.sum(dim=1)
        return Encoded(parts=torch.cat([states, boxes], dim=2), mask=mask, pooled=pooled)

    def save_assets(self, folder: Path) -> None:
        """Write the body's configuration."""
        save_config(self.body.config, folder)


def _states(found: Any, body: PreTrainedModel) -> Float[Tensor, "n q e"]:
    """The queries' last states: all of a decoder's, the last tokens of an encoder that holds its queries (YOLOS)."""
    states, logits = getattr(found, "last_hidden_state", None), getattr(found, "logits", None)
    if states is None or logits is None or states.ndim != 3 or states.shape[1] < logits.shape[1]:
        raise RequirementError(
            f"regions need a detector that gives a state a box; {type(body).__name__} does not; take one that asks by "
            "queries, as DETR, YOLOS and RT-DETR do"
        )
    return states[:, -logits.shape[1] :]


def _sureness(logits: Float[Tensor, "n q c"], classes: int) -> Float[Tensor, "n q"]:
    """The probability of the likeliest class: beside "no object", which stands last, or each class by itself."""
    if logits.shape[2] == classes + 1:
        return logits.softmax(dim=2)[..., :-1].amax(dim=2)
    return logits.sigmoid().amax(dim=2)


def _edges(boxes: Float[Tensor, "n q four"]) -> Float[Tensor, "n q four"]:
    """Centre, width and height as edges, inside the picture."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=2).clamp(0, 1)
