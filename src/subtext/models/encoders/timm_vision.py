"""Pixels to parts and a pooled vector, by a vision backbone of `timm` (extra: encoders)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import layers, settle
from subtext.models.encoders.hub import Preprocessing


class TimmVision(nn.Module):
    """The cells or patches of an image and one vector of it, as in `encoders.vision`.

    body        a `timm` model made with num_classes=0
    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate

    Takes  pixels (N 3 H W).
    """

    def __init__(self, body: Any, *, pretrained: bool = False) -> None:
        super().__init__()
        self.body = body
        self.pretrained = pretrained
        self.extra = int(getattr(body, "num_prefix_tokens", 0))
        self.parts_width = self.pooled_width = int(body.num_features)

    @staticmethod
    def open(name: str, *, pretrained: bool = True, fetch: bool = True, image_size: int = 0) -> TimmVision:
        """A model of `timm` by name.

        fetch       whether to read its weights now; not for a saved run, whose tensors follow
        image_size  side in pixels of a transformer's position embeddings; 0 for its own. Convolutions take any size

        Raises RequirementError when timm cannot be imported or does not know the name.
        """
        try:
            import timm
        except (ImportError, RuntimeError, OSError) as error:
            # timm needs torchvision, which fails in several ways where it was built for another torch.
            raise RequirementError(
                f"'timm:{name}' needs the packages timm and torchvision; importing them failed: {error}; install "
                "subtext[encoders], with the torchvision that belongs to this torch"
            ) from error
        try:
            body = _created(timm.create_model, name, fetch, image_size)
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
        """Cells and pooled vectors of images."""
        settle(self.body, self.training)
        states = self.body.forward_features(inputs["pixels"])
        pooled = self.body.forward_head(states, pre_logits=True)
        parts = states.flatten(2).transpose(1, 2) if states.ndim == 4 else states[:, self.extra :]
        return Encoded(parts=parts, pooled=pooled)

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained body, bottom to top; none where all is new or learns by adapters."""
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Nothing: the name is in the run's arguments, and timm holds the architecture."""


def _created(create: Callable[..., Any], name: str, fetch: bool, image_size: int) -> Any:
    if not image_size:
        return create(name, pretrained=fetch, num_classes=0)
    try:
        return create(name, pretrained=fetch, num_classes=0, img_size=image_size)
    except TypeError:
        # Only models with position embeddings know that argument.
        return create(name, pretrained=fetch, num_classes=0)
