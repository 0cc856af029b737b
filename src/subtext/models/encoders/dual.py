"""Pretrained dual encoders of the CLIP and SigLIP families: two encoders from one model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import Weights, has_weights, layers, open_body, save_config, settle


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
        config, knows = model.config, has_weights(name, weights)
        shift = getattr(model, "logit_bias", None)
        return Dual(
            image=Half(
                vision, getattr(model, "visual_projection", None), config, input_name="pixels", pretrained=knows
            ),
            text=Half(text, getattr(model, "text_projection", None), config, input_name="tokens", pretrained=knows),
            scale=float(model.logit_scale.detach().exp()),
            shift=None if shift is None else float(shift.detach()),
        )


class Half(nn.Module):
    """One modality's half of a dual encoder.

    parts   (N P E): last hidden states, with their mask for texts
    pooled  (N G): the projected vector that the model compares, not yet of unit length

    body        the half's transformer
    projection  into the joint space; None where the body has it (SigLIP)
    config      of the full model, so that either half can restore both
    input_name  "pixels" or "tokens"
    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate
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
        super().__init__()
        self.body = body
        self.projection = nn.Identity() if projection is None else projection
        self.config = config
        self.input_name = input_name
        self.pretrained = pretrained
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
        settle(self.body, self.training)
        if self.input_name == "pixels":
            pixels = inputs["pixels"]
            resized = tuple(pixels.shape[-2:]) != (self.config.vision_config.image_size,) * 2
            output = self.body(pixel_values=pixels, interpolate_pos_encoding=resized)
            return Encoded(parts=output.last_hidden_state, pooled=self.projection(output.pooler_output))
        tokens, mask = inputs["tokens"], inputs["mask"]
        if self.full_length:
            tokens, mask = self._padded(tokens, mask)
            output = self.body(input_ids=tokens)
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
        save_config(self.config, folder)

    def _padded(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Texts padded to full length with the model's padding token."""
        missing = self.longest - tokens.shape[1]
        padding = 0 if self.padding is None else int(self.padding)
        tokens = torch.nn.functional.pad(tokens.masked_fill(~mask, padding), (0, missing), value=padding)
        return tokens, torch.nn.functional.pad(mask, (0, missing), value=False)
