"""Pixels to parts and a pooled vector: by a vision backbone or object detector of `transformers`, or by `timm`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForObjectDetection, PreTrainedModel

from subtext.core import Encoded
from subtext.data.regions import BOX
from subtext.errors import RequirementError, Setting
from subtext.models.encoders.backbone import (
    Pretrained,
    Weights,
    drop_pooler,
    has_weights,
    import_extra,
    open_body,
)
from subtext.models.encoders.hub import Preprocessing
from subtext.text_helpers import install_hint

Pooling = Literal["auto", "average", "cls"]


class Vision(Pretrained):
    """The cells or patches of an image, and one vector for the complete image.

    Args:
        body: A convolutional network or a vision transformer.
        pooling: "average" of the cells, "cls" for the class token, or "auto": the class token where there is one.
        pretrained: Whether the body is pretrained, see `Pretrained`.

    Raises:
        RequirementError: If pooling is "cls" and the body has no class token.
    """

    def __init__(self, body: PreTrainedModel, *, pooling: Pooling = "auto", pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        drop_pooler(body)
        for name, parameter in body.named_parameters():
            if name.endswith("mask_token"):  # Only masked pre-training uses it.
                parameter.requires_grad_(False)
        for module in body.modules():
            # MobileNetV1 in `transformers` has the share of the old average, 0.9997, for that of the new one: running
            # statistics would be those of the last batch alone.
            if isinstance(module, nn.BatchNorm2d) and module.momentum is not None and module.momentum > 0.5:
                module.momentum = max(1 - module.momentum, 0.01)
        self.pooling = pooling
        self.resizes = "interpolate_pos_encoding" in inspect.signature(body.forward).parameters
        # Configurations have many names for the width of the output: a forward pass shows it.
        was_training = body.training
        body.eval()
        with torch.inference_mode():
            states = body(pixel_values=torch.zeros(1, 3, *(self._sides("image_size") or (64, 64)))).last_hidden_state
        body.train(was_training)
        self.parts_width = self.pooled_width = int(states.shape[1 if states.ndim == 4 else 2])

    @staticmethod
    def open(
        name: str,
        *,
        weights: Weights = "pretrained",
        image_size: int | None = None,
        assets: Path | None = None,
        pooling: Pooling = "auto",
    ) -> Vision:
        """Open a vision backbone by short name, hub name or folder; see `open_body`.

        Args:
            name: A short name of `hub.BACKBONES`, a hub name, or a folder.
            weights: "pretrained" or "random".
            image_size: Side in pixels of a randomly initialised vision transformer; None for that of its configuration.
            assets: Folder of a saved run, of which the configuration alone is read; None to open the named model.
            pooling: See the class.

        Returns:
            The encoder.
        """
        body = open_body(name, weights=weights, image_size=image_size, assets=assets, option="image")
        return Vision(body, pooling=pooling, pretrained=has_weights(name, weights))

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Cells and pooled vectors of images.

        Args:
            inputs: "pixels" (N 3 H W).

        Returns:
            Encoded with `parts` (N P E), cells of the last feature map in row-major order, or the last patch tokens;
            `pooled` (N E), their average, or the class token.

        Raises:
            RequirementError: If pooling is "cls" and there is no class token.
        """
        self.keep_frozen()
        pixels = inputs["pixels"]
        other_size = self.resizes and tuple(pixels.shape[-2:]) != self._sides("image_size")
        states = self.body(
            pixel_values=pixels, **({"interpolate_pos_encoding": True} if other_size else {})
        ).last_hidden_state
        extra = 0  # tokens before the patches: a class token, registers, or none
        if states.ndim == 4:
            parts = states.flatten(2).transpose(1, 2)
        else:
            if patch := self._sides("patch_size"):
                extra = max(states.shape[1] - (pixels.shape[-2] // patch[0]) * (pixels.shape[-1] // patch[1]), 0)
            parts = states[:, extra:]
        if self.pooling == "cls" and not extra:
            raise RequirementError(
                f"pooling 'cls' needs a class token; {type(self.body).__name__} has none; use 'average'"
            )
        pooled = states[:, 0] if extra and self.pooling != "average" else parts.mean(dim=1)
        return Encoded(parts=parts, pooled=pooled)

    def _sides(self, setting: str) -> tuple[int, int] | None:
        """Height and width of a setting that is a number or a pair; None where the configuration has none."""
        size = getattr(self.body.config, setting, None)
        return size if size is None else (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


class TimmVision(Pretrained):
    """The cells or patches of an image, and one vector for the complete image, from timm.

    Args:
        body: A model of `timm` that was made with num_classes=0.
        pretrained: Whether the body is pretrained, see `Pretrained`.
    """

    def __init__(self, body: Any, *, pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        self.extra = int(getattr(body, "num_prefix_tokens", 0))
        self.parts_width = self.pooled_width = int(body.num_features)

    @staticmethod
    def open(name: str, *, pretrained: bool = True, fetch: bool = True, image_size: int = 0) -> TimmVision:
        """Open a model of `timm` by name.

        Args:
            name: As `timm.list_models()` has it.
            pretrained: Whether the body counts as pretrained, see `Pretrained`.
            fetch: Whether to read its weights now; not for a saved run, whose tensors follow.
            image_size: Side in pixels of a transformer's position embeddings; 0 for its own. Convolutions take any
                size.

        Returns:
            The encoder.

        Raises:
            RequirementError: If timm cannot be imported or does not know the name.
        """
        timm = import_extra("timm", f"timm:{name}", "timm")
        try:
            try:
                sizes = {"img_size": image_size} if image_size else {}
                body = timm.create_model(name, pretrained=fetch, num_classes=0, **sizes)
            except TypeError:
                # Only models with position embeddings know that argument.
                body = timm.create_model(name, pretrained=fetch, num_classes=0)
        except (RuntimeError, ValueError, OSError) as error:
            raise RequirementError(
                f"'timm:{name}' needs a model that timm has, and its weights; it got: {error}; "
                "timm.list_models() names the models"
            ) from error
        return TimmVision(body, pretrained=pretrained)

    @property
    def preprocessing(self) -> Preprocessing:
        """Preprocessing of the images of the body."""
        settings = self.body.pretrained_cfg
        return Preprocessing(
            int(settings["input_size"][-1]),
            tuple(settings["mean"]),
            tuple(settings["std"]),
            crop_share=float(settings.get("crop_pct") or 0.875),
            filter="bicubic" if settings.get("interpolation") == "bicubic" else "bilinear",
        )

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Cells and pooled vectors of images.

        Args:
            inputs: "pixels" (N 3 H W).

        Returns:
            Encoded with `parts` (N P E), cells of the last feature map in row-major order, or the last patch tokens;
            `pooled` (N E), what the body's own head pools.
        """
        self.keep_frozen()
        states = self.body.forward_features(inputs["pixels"])
        pooled = self.body.forward_head(states, pre_logits=True)
        parts = states.flatten(2).transpose(1, 2) if states.ndim == 4 else states[:, self.extra :]
        return Encoded(parts=parts, pooled=pooled)


class Detector(Pretrained):
    """Regions from a frozen query-based detector (DETR, YOLOS, RT-DETR ...).

    Features are the states of the queries, not a pooling of the backbone's map inside each box: every such detector has
    them, and they describe the box in the context of the full image. The confidence of a box is the greatest
    probability of any class, without "no object". Boxes are selected without gradient, and no loss here could train the
    detector: it stays as it is, and its outputs are cached like those of any frozen encoder.

    Args:
        body: A query-based model for object detection.
        regions: R, the number of boxes; all of the detector's where it has fewer.
        min_confidence: Probability below which a box is masked, 0 to 1.

    Raises:
        RequirementError: If regions is below 1, or the model has no state per box.
    """

    def __init__(self, body: PreTrainedModel, *, regions: int = 36, min_confidence: float = 0.0) -> None:
        super().__init__(body.requires_grad_(False).eval(), pretrained=False)
        if regions < 1:
            raise RequirementError(f"a detector needs 1 region or more; it got {regions}")
        self.regions, self.min_confidence = regions, min_confidence
        self.pooled_width = int(body.config.hidden_size)
        self.parts_width = self.pooled_width + BOX

    @staticmethod
    def open(
        name: str,
        *,
        weights: Weights = "pretrained",
        assets: Path | None = None,
        regions: int = 36,
        min_confidence: float = 0.0,
    ) -> Detector:
        """Open a detector by hub name or folder; see `open_body`.

        Args:
            name: A hub name, or a folder.
            weights: "pretrained" or "random".
            assets: Folder of a saved run, of which the configuration alone is read; None to open the named model.
            regions: See the class.
            min_confidence: See the class.

        Returns:
            The encoder.

        Raises:
            RequirementError: If the detector, or a package that it needs, is not available.
        """
        try:
            body = open_body(name, weights=weights, assets=assets, option="image", task=AutoModelForObjectDetection)
        except ImportError as error:
            # Published DETR has a backbone of timm.
            raise RequirementError(
                Setting("image", f"detector:{name}"),
                f" needs packages that are not there: {str(error).strip().splitlines()[0]}; "
                f"{install_hint('encoders')}, or take a detector without them (YOLOS, RT-DETR)",
            ) from error
        return Detector(body, regions=regions, min_confidence=min_confidence)

    def train(self, mode: bool = True) -> Detector:
        """Set the mode of this module; the body stays in eval mode.

        Args:
            mode: Whether this module is in training mode.

        Returns:
            This module.
        """
        super().train(mode)
        self.body.eval()
        return self

    @torch.no_grad()
    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """The most confident regions of images.

        Args:
            inputs: "pixels" (N 3 H W): the full image, since boxes are relative to it.

        Returns:
            Encoded with `parts` (N R E+4), of the R most confident boxes, best first, the last state of the box's
            query, then the box; `mask` (N R), boxes of probability `min_confidence` or more, and an image's best box in
            any case; `pooled` (N E), the mean of those states.

        Raises:
            RequirementError: If the model has no state per box.
        """
        output = self.body(pixel_values=inputs["pixels"])
        states, logits = getattr(output, "last_hidden_state", None), getattr(output, "logits", None)
        if states is None or logits is None or states.ndim != 3 or states.shape[1] < logits.shape[1]:
            raise RequirementError(
                f"regions need a detector with one state per box; {type(self.body).__name__} has none; take a "
                "query-based one: DETR, YOLOS, RT-DETR"
            )
        # All states of a decoder, or the last tokens of an encoder (YOLOS).
        states = states[:, -logits.shape[1] :]
        # Centre, width and height as edges, inside the image.
        centre, half_size = output.pred_boxes[..., :2], output.pred_boxes[..., 2:] / 2
        boxes = torch.cat([centre - half_size, centre + half_size], dim=2).clamp(0, 1)
        # The probability of the likeliest class: by softmax where the last class is "no object", else by sigmoid.
        has_none = logits.shape[2] == int(self.body.config.num_labels) + 1
        confidence = (logits.softmax(dim=2)[..., :-1] if has_none else logits.sigmoid()).amax(dim=2)
        count = min(self.regions, confidence.shape[1])
        # Of equal boxes the earlier query comes first, on any machine.
        order = confidence.argsort(dim=1, descending=True, stable=True)[:, :count]
        mask = confidence.gather(1, order) >= self.min_confidence
        mask[:, 0] = True
        states, boxes = (
            values.gather(1, order[..., None].expand(-1, -1, values.shape[2])) for values in (states, boxes)
        )
        weight = mask[..., None].to(states.dtype)
        pooled = (states * weight).sum(dim=1) / weight.sum(dim=1)
        return Encoded(parts=torch.cat([states, boxes], dim=2), mask=mask, pooled=pooled)
