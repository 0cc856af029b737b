"""Dual encoders of the package `open_clip` (extra: encoders)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import layers, settle
from subtext.models.encoders.hub import Preprocessing


@dataclass(frozen=True)
class OpenClip:
    """Both towers of a model of `open_clip`, its scale and shift, and its preprocessing.

    scale, shift  scores are scale * cosine + shift; shift is None for a model without
    """

    image: Tower
    text: Tower
    scale: float
    shift: float | None
    preprocessing: Preprocessing

    @staticmethod
    def open(name: str, *, pretrained: bool = True, fetch: bool = True, image_size: int = 0) -> OpenClip:
        """By architecture and weights, as in "ViT-B-32/laion2b_s34b_b79k"; random weights where none are named.

        fetch       whether to read weights now; not for a saved run, whose tensors follow
        image_size  side of images in pixels; 0 for that of the model

        Raises RequirementError when open_clip cannot be imported, or does not know the name.
        """
        architecture, _, tag = name.partition("/")
        knows = pretrained and bool(tag)
        try:
            import open_clip
        except (ImportError, RuntimeError, OSError) as error:
            raise RequirementError(
                f"'open_clip:{name}' needs the packages open_clip_torch and torchvision; importing them failed: "
                f"{error}; install subtext[encoders], with the torchvision that belongs to this torch"
            ) from error
        try:
            # With a custom text tower the text side needs nothing of the image side.
            model = open_clip.create_model(
                architecture,
                pretrained=tag if knows and fetch else None,
                force_image_size=image_size or None,
                force_custom_text=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise RequirementError(
                f"'open_clip:{name}' needs ARCHITECTURE/WEIGHTS as open_clip.list_pretrained() names them; "
                f"it got: {error}"
            ) from error
        if pretrained and fetch and not tag:
            raise RequirementError(
                f"model=open_clip:{name} needs the name of its weights, open_clip:ARCHITECTURE/WEIGHTS; it got none; "
                "add it, or weights=random"
            )
        shift = getattr(model, "logit_bias", None)
        return OpenClip(
            image=Tower(model.visual, input_name="pixels", pretrained=knows),
            text=Tower(model.text, input_name="tokens", pretrained=knows),
            scale=float(model.logit_scale.detach().exp()),
            shift=None if shift is None else float(shift.detach()),
            preprocessing=_preprocessing(model.visual),
        )


class Tower(nn.Module):
    """The tower of one modality: its pooled vector is in the joint space, not yet of unit length.

    body        the tower
    input_name  "pixels" or "tokens"
    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate
    """

    parts_width = None

    def __init__(self, body: Any, *, input_name: str, pretrained: bool = False) -> None:
        super().__init__()
        self.body = body
        self.input_name = input_name
        self.pretrained = pretrained
        self.pooled_width = int(body.output_dim)

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Joint vectors of images or texts."""
        settle(self.body, self.training)
        return Encoded(pooled=self.body(inputs[self.input_name]))

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained tower, bottom to top; none where all is new."""
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Nothing: the name is in the run's arguments, and open_clip holds the architecture."""


def _preprocessing(visual: Any) -> Preprocessing:
    settings = visual.preprocess_cfg
    size = settings["size"]
    return Preprocessing(
        int(size if isinstance(size, int) else size[0]),
        tuple(settings["mean"]),
        tuple(settings["std"]),
        resize="squash" if settings.get("resize_mode") == "squash" else "crop",
        crop_share=1.0,
        filter="bicubic" if settings.get("interpolation") == "bicubic" else "bilinear",
    )
