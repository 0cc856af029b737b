"""Any sentence encoder of `transformers`, as it is: the mean of a text's last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

from subtext.data.dataset import Dataset
from subtext.models.sentence_encoder import SentenceEncoder
from subtext.neighbours.space import Distance, Places, Told, unit, words_of


@dataclass(frozen=True)
class Sentence:
    """The vectors of a `SentenceEncoder`, whose fields these are, as unit rows. Gives cosine distances.

    Raises RequirementError when the model or its tokeniser cannot be had.
    """

    model: str
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: int = 128
    batch_size: int = 64
    device: str = "cpu"

    @property
    def distance(self) -> Distance:
        """Angles, which sentence encoders are trained for."""
        return "cosine"

    def settings(self) -> Mapping[str, Any]:
        """Everything that the places depend on."""
        return {"name": "sentence"} | {k: v for k, v in asdict(self).items() if k not in ("batch_size", "device")}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The places of all texts."""
        encoder = SentenceEncoder(self.model, self.pooling, self.max_tokens, self.batch_size, self.device)
        return Places(unit(encoder(words_of(pairs.texts), told)), np.ones(len(pairs.texts), dtype=bool))
