"""Any sentence encoder of `transformers`, as it is: the mean of a text's last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from transformers import AutoTokenizer

from subtext.data.batches import item_blocks
from subtext.data.pairs import Pairs
from subtext.data.text import SubwordInput
from subtext.encoders.hub import opened
from subtext.encoders.language import Language
from subtext.errors import RequirementError
from subtext.neighbours.space import Distance, Places, Told, unit, words_of


@dataclass(frozen=True)
class Sentence:
    """A text backbone by hub name or folder, with its tokeniser; unit rows.

    model       "sentence-transformers/all-MiniLM-L6-v2", or a folder that transformers reads
    pooling     "mean" of the states that are there, what most sentence encoders were trained with; "cls": the first
    max_tokens  longer texts are cut
    batch_size  texts at a time; it does not change the places beyond rounding
    device      what the backbone runs on

    Layers that such a model may have behind its pooling are not read. Nothing is learnt. Gives cosine distances.

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

    def __call__(self, pairs: Pairs, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The places of all texts."""
        words_of(pairs.texts)
        reads = SubwordInput(self._tokeniser(), max_tokens=self.max_tokens)
        encoder = Language.open(self.model, pooling=self.pooling).eval().to(self.device)
        pieces = []
        with torch.inference_mode():
            for batch in item_blocks(pairs.texts, pairs.root, batch_size=self.batch_size):
                tensors = {name: value.to(self.device) for name, value in reads(batch).items()}
                pieces.append(encoder(tensors).pooled.float().cpu().numpy())
                if told is not None:
                    told(int(batch.rows[-1]) + 1)
        return Places(unit(np.concatenate(pieces)), np.ones(len(pairs.texts), dtype=bool))

    def _tokeniser(self) -> Any:
        found = opened(
            self.model,
            lambda source, local: AutoTokenizer.from_pretrained(source, local_files_only=local),
            files=["tokenizer.json"],
            option="sentence",
        )
        # Without its files a tokeniser is made that knows its own marks and nothing else.
        if len(found) <= len(set(found.all_special_ids)):
            raise RequirementError(f"sentence:{self.model} needs a tokeniser beside its weights; it knows no words")
        return found
