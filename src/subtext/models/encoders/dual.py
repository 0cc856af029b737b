"""Pretrained dual encoders: both towers of one model, of CLIP's and SigLIP's families or of `open_clip` (extra)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PretrainedConfig, PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import (
    Preprocessing,
    Pretrained,
    Weights,
    has_weights,
    import_extra,
    layers,
    open_body,
)


@dataclass(frozen=True)
class Dual:
    """Both halves of a dual encoder, and its scale and shift.

    scale, shift  scores are scale * cosine + shift; shift is None for a model without (CLIP)
    """

    image: Half
    text: Half
    scale: float
    shift: float | None

    @staticmethod
    def open(name: str, *, weights: Weights = "pretrained", assets: Path | None = None) -> Dual:
        """By hub name or folder (see `open_body`), or from the configuration that one half saved.

        Raises RequirementError for a model that has no body per modality.
        """
        model = open_body(name, weights=weights, assets=assets, option="model")
        vision, text = getattr(model, "vision_model", None), getattr(model, "text_model", None)
        if not isinstance(vision, nn.Module) or not isinstance(text, nn.Module) or not hasattr(model, "logit_scale"):
            raise RequirementError(
                f"a dual encoder needs a vision_model, a text_model and a logit_scale, as CLIP and SigLIP have; "
                f"{type(model).__name__} of '{name}' has not; use another host with it as image= or text="
            )
        config, pretrained = model.config, has_weights(name, weights)
        projections = (getattr(model, f"{side}_projection", None) for side in ("visual", "text"))
        image_half, text_half = (
            Half(body, projection, config, input_name=input_name, pretrained=pretrained)
            for body, projection, input_name in zip((vision, text), projections, ("pixels", "tokens"), strict=True)
        )
        return Dual(image_half, text_half, *_scale_and_shift(model))


class Half(Pretrained):
    """The encoder of one modality in a pretrained dual encoder.

    parts   (N P E): last hidden states, with their mask for texts
    pooled  (N G): the projected vector that the model compares, not yet of unit length

    body        the half's transformer
    projection  into the joint space; None where the body has it (SigLIP)
    config      of the full model, so that either half can restore both
    input_name  "pixels" or "tokens"
    pretrained  see `Pretrained`
    """

    def __init__(
        self,
        body: PreTrainedModel,
        projection: nn.Module | None,
        config: PretrainedConfig,
        *,
        input_name: str,
        pretrained: bool = False,
    ) -> None:
        super().__init__(body, pretrained=pretrained)
        self.projection = nn.Identity() if projection is None else projection
        self.config = config
        self.input_name = input_name
        side_config = config.vision_config if input_name == "pixels" else config.text_config
        self.parts_width = int(side_config.hidden_size)
        outer = getattr(config, "projection_dim", None) if projection is not None else None
        self.pooled_width = int(outer or getattr(side_config, "projection_size", None) or side_config.hidden_size)
        # SigLIP learnt with texts padded to full length and nothing masked, and reads its last token.
        self.full_length = input_name == "tokens" and "siglip" in config.model_type
        self.size = int(config.vision_config.image_size)
        self.longest = int(side_config.max_position_embeddings) if input_name == "tokens" else 0
        self.padding = getattr(side_config, "pad_token_id", None) if input_name == "tokens" else None

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States and joint vectors of images or texts."""
        self.keep_frozen()
        if self.input_name == "pixels":
            pixels = inputs["pixels"]
            resized = tuple(pixels.shape[-2:]) != (self.config.vision_config.image_size,) * 2
            output = self.body(pixel_values=pixels, interpolate_pos_encoding=resized)
            return Encoded(parts=output.last_hidden_state, pooled=self.projection(output.pooler_output))
        tokens, mask = inputs["tokens"], inputs["mask"]
        if self.full_length:
            missing = (0, self.longest - tokens.shape[1])
            padding = 0 if self.padding is None else int(self.padding)
            output = self.body(input_ids=pad(tokens.masked_fill(~mask, padding), missing, value=padding))
            mask = pad(mask, missing, value=False)
        else:
            output = self.body(input_ids=tokens, attention_mask=mask.to(tokens.dtype))
        return Encoded(parts=output.last_hidden_state, mask=mask, pooled=self.projection(output.pooler_output))

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained transformer and its projection, bottom to top; none otherwise."""
        if not self.pretrained:
            return []
        top = list(self.projection.parameters())
        return [*layers(self.body), top] if top else layers(self.body)

    def save_assets(self, folder: Path) -> None:
        """Write the configuration of the full model."""
        self.config.save_pretrained(folder)


@dataclass(frozen=True)
class OpenClip:
    """Both towers of a model of `open_clip`, its scale and shift as in `Dual`, and its preprocessing."""

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
        has_tag = pretrained and bool(tag)
        open_clip = import_extra("open_clip", f"open_clip:{name}", "open_clip_torch")
        try:
            # With a custom text tower the text side needs nothing of the image side.
            model = open_clip.create_model(
                architecture,
                pretrained=tag if has_tag and fetch else None,
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
        settings = model.visual.preprocess_cfg
        size = settings["size"]
        preprocessing = Preprocessing(
            int(size if isinstance(size, int) else size[0]),
            tuple(settings["mean"]),
            tuple(settings["std"]),
            resize="squash" if settings.get("resize_mode") == "squash" else "crop",
            crop_share=1.0,
            filter="bicubic" if settings.get("interpolation") == "bicubic" else "bilinear",
        )
        image, text = Tower(model.visual, "pixels", pretrained=has_tag), Tower(model.text, "tokens", pretrained=has_tag)
        return OpenClip(image, text, *_scale_and_shift(model), preprocessing)


class Tower(Pretrained):
    """The encoder of one modality; its pooled vector is in the joint space, before normalisation.

    body        the tower
    input_name  "pixels" or "tokens"
    pretrained  see `Pretrained`
    """

    parts_width = None

    def __init__(self, body: Any, input_name: str, *, pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        self.input_name = input_name
        self.pooled_width = int(body.output_dim)

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Joint vectors of images or texts."""
        self.keep_frozen()
        return Encoded(pooled=self.body(inputs[self.input_name]))


def _scale_and_shift(model: Any) -> tuple[float, float | None]:
    shift = getattr(model, "logit_bias", None)
    return float(model.logit_scale.detach().exp()), None if shift is None else float(shift.detach())
