"""Subword tokens to states and a pooled vector, by a text backbone of `transformers` (the BERT family)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import Tensor, nn
from transformers import PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.encoders.backbone import Weights, drop_pooler, has_weights, layers, open_body, save_config, settle
from subtext.ops.numerics import masked_mean


class Language(nn.Module):
    """The last hidden states of a text, and one vector of it.

    parts   (N P E): last hidden states, with their mask
    pooled  (N E): the first token's state ("cls"), or the mean of all states ("mean")

    dropout     share of the outputs set to zero in training
    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate

    Takes  tokens (N P) int64, mask (N P) bool.    Raises RequirementError for a model that is not of this family.
    """

    def __init__(
        self,
        body: PreTrainedModel,
        *,
        pooling: Literal["cls", "mean"] = "cls",
        dropout: float = 0.0,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        width = getattr(body.config, "hidden_size", None)
        if not isinstance(width, int) or body.config.is_encoder_decoder:
            raise RequirementError(
                f"a text backbone needs one stack of states of one width, as the BERT family has; it got "
                f"{type(body).__name__}; name a BERT-like model, or use the host 'clip' for a dual encoder"
            )
        drop_pooler(body)
        self.body = body
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.pretrained = pretrained
        self.parts_width = self.pooled_width = width

    @staticmethod
    def open(
        name: str,
        *,
        weights: Weights = "pretrained",
        assets: Path | None = None,
        pooling: Literal["cls", "mean"] = "cls",
        dropout: float = 0.0,
    ) -> Language:
        """By hub name or folder; see `open_body`."""
        body = open_body(name, weights=weights, assets=assets, option="text")
        return Language(body, pooling=pooling, dropout=dropout, pretrained=has_weights(name, weights))

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States and pooled vectors of texts."""
        settle(self.body, self.training)
        mask = inputs["mask"]
        states = self.body(input_ids=inputs["tokens"], attention_mask=mask.to(inputs["tokens"].dtype)).last_hidden_state
        pooled = states[:, 0] if self.pooling == "cls" else masked_mean(states, mask)
        return Encoded(parts=self.dropout(states), mask=mask, pooled=self.dropout(pooled))

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained body, bottom to top; none where all is new or learns by adapters."""
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Write the body's configuration."""
        save_config(self.body.config, folder)
