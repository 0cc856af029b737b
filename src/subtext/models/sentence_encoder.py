"""Any sentence encoder of `transformers`, as it is: what neighbours and relevance of texts both start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from transformers import AutoTokenizer

from subtext.data.inputs import Batch
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError
from subtext.models.encoders.hub import read_model
from subtext.models.encoders.language import Language


@dataclass(frozen=True)
class SentenceEncoder:
    """A text backbone by hub name or folder, with its tokeniser: texts to vectors.

    model       "sentence-transformers/all-MiniLM-L6-v2", or a folder that transformers reads
    pooling     "mean" of the states that are there, what most sentence encoders were trained with; "cls": the first
    max_tokens  longer texts are cut
    batch_size  texts at a time; it does not change the vectors beyond rounding
    device      what the backbone runs on

    Layers that such a model may have behind its pooling are not read. Nothing is learnt.
    """

    model: str
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: int = 128
    batch_size: int = 64
    device: str = "cpu"

    def __call__(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Float[np.ndarray, "n d"]:
        """The vectors of texts, float32, of whatever length they have; `progress` hears how many texts are done.

        Raises RequirementError when the model or its tokeniser cannot be had; DataError for an item without a text.
        """
        input_spec = SubwordInput(self._tokeniser(), max_tokens=self.max_tokens)
        encoder = Language.open(self.model, pooling=self.pooling).eval().to(self.device)
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(texts), self.batch_size):
                batch = _batch(texts[start : start + self.batch_size], start)
                tensors = {name: value.to(self.device) for name, value in input_spec(batch).items()}
                vectors.append(encoder(tensors).pooled.float().cpu().numpy())
                if progress is not None:
                    progress(start + len(batch.values))
        return np.concatenate(vectors) if vectors else np.empty((0, encoder.pooled_width), dtype=np.float32)

    def _tokeniser(self) -> Any:
        tokeniser = read_model(
            self.model,
            lambda source, local: AutoTokenizer.from_pretrained(source, local_files_only=local),
            files=["tokenizer.json"],
            option="sentence",
        )
        # Without its files a tokeniser is made that knows its own marks and nothing else.
        if len(tokeniser) <= len(set(tokeniser.all_special_ids)):
            raise RequirementError(f"sentence:{self.model} needs a tokeniser beside its weights; it knows no words")
        return tokeniser


def _batch(texts: Sequence[str], start: int) -> Batch:
    rows = np.arange(start, start + len(texts), dtype=np.int64)
    return Batch(values=texts, ids=[str(row) for row in rows], rows=rows, keys=rows, root=Path())
