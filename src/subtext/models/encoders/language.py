"""Subword tokens to states and a pooled vector, by a text backbone of `transformers`; and texts to vectors by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from subtext.core import Encoded
from subtext.data.inputs import InputBatch
from subtext.data.starter import NAME as STARTER, starter_folder
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError, Setting
from subtext.models.encoders.backbone import Pretrained, Weights, drop_pooler, has_weights, open_body, read_model
from subtext.ops.numerics import masked_mean, unit
from subtext.text_helpers import install_hint

_TEXTS = 16
"""Texts that a processor computes together. Of 128 captions, the longest twice as long as the mean, a step with their
gradients then takes half of the time: 2.0 s for 3.7 by MiniLM, one thread."""


class Language(Pretrained):
    """The last hidden states of a text, and one vector for the complete text.

    Args:
        body: A model of the BERT family.
        pooling: "cls" for the first token's state, "mean" for the mean of all.
        dropout: Share of the outputs set to zero in training.
        pretrained: Whether the body is pretrained, see `Pretrained`.
        normalise: Whether pooled vectors have unit length.

    Raises:
        RequirementError: If the model is of another family.
    """

    def __init__(
        self,
        body: PreTrainedModel,
        *,
        pooling: Literal["cls", "mean"] = "cls",
        dropout: float = 0.0,
        pretrained: bool = False,
        normalise: bool = False,
    ) -> None:
        super().__init__(body, pretrained=pretrained)
        width = getattr(body.config, "hidden_size", None)
        if not isinstance(width, int) or body.config.is_encoder_decoder:
            raise RequirementError(
                f"a text backbone needs one stack of states of one width, as the BERT family has; it got "
                f"{type(body).__name__}; name a BERT-like model, or use the model 'clip' for a dual encoder"
            )
        drop_pooler(body)
        self.pooling, self.normalise = pooling, normalise
        self.dropout = nn.Dropout(dropout)
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
        """Open a text backbone by hub name or folder; see `open_body`.

        `starter` pools as it was trained: the mean, at unit length.

        Args:
            name: A hub name, a folder, or "starter".
            weights: "pretrained" or "random".
            assets: Folder of a saved run, of which the configuration alone is read; None to open the named model.
            pooling: "cls" or "mean".
            dropout: Share of the outputs set to zero in training.

        Returns:
            The encoder.
        """
        body = open_body(name, weights=weights, assets=assets, option="text")
        is_starter, pretrained = name == STARTER, has_weights(name, weights)
        pooling = "mean" if is_starter else pooling
        encoder = Language(body, pooling=pooling, dropout=dropout, pretrained=pretrained, normalise=is_starter)
        encoder.installed = ("body.",) if is_starter and pretrained else ()
        return encoder

    def load_installed(self) -> None:
        """Load the tensors of the text tower of `starter`.

        Raises the errors of `starter_file`.
        """
        with starter_folder() as folder:
            tensors = load_file(folder / "model.safetensors")
        self.body.load_state_dict({name: tensors[name] for name in self.body.state_dict()})

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States and pooled vectors of texts.

        Args:
            inputs: "tokens" (N P) int64, "mask" (N P) bool.

        Returns:
            Encoded with `parts` (N P E), last hidden states, with their mask; `pooled` (N E), the first token's state
            ("cls"), or the mean of all states ("mean").
        """
        self.keep_frozen()
        mask = inputs["mask"]
        states = self._states(inputs["tokens"], mask)
        pooled = states[:, 0] if self.pooling == "cls" else masked_mean(states, mask)
        pooled = unit(pooled) if self.normalise else pooled
        return Encoded(parts=self.dropout(states), mask=mask, pooled=self.dropout(pooled))

    def _states(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(N P E) the last hidden states; on a processor texts of similar length together, without their padding."""
        # A graph takes any number of texts: while it is written, that number must not be looked at.
        apart = not torch.compiler.is_exporting() and len(tokens) > _TEXTS and tokens.device.type == "cpu"
        if apart and bool(mask[:, 0].all()):
            lengths = mask.sum(dim=1)
            order = lengths.argsort(stable=True)
            blocks = []
            for rows in order.split(_TEXTS):
                longest = int(lengths[rows[-1]])
                states = self._states(tokens[rows, :longest], mask[rows, :longest])
                blocks.append(nn.functional.pad(states, (0, 0, 0, tokens.shape[1] - longest)))
            return torch.cat(blocks)[order.argsort()]
        return self.body(input_ids=tokens, attention_mask=mask.to(tokens.dtype)).last_hidden_state


@dataclass(frozen=True)
class SentenceEncoder:
    """A sentence encoder of `transformers` by hub name or folder, with its tokeniser: texts to vectors.

    Layers behind the pooling are not read. Nothing is learnt.

    Args:
        model: "sentence-transformers/all-MiniLM-L6-v2", or a folder that transformers reads.
        pooling: "mean" of all states, as most sentence encoders were trained with; "cls": the first state.
        max_tokens: Number of tokens beyond which a text is cut.
        batch_size: Number of texts at a time; it does not change the vectors beyond rounding.
        device: Device of the backbone.
    """

    model: str
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: int = 128
    batch_size: int = 64
    device: str = "cpu"

    def __call__(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Float[np.ndarray, "n d"]:
        """The vectors of texts, not scaled to unit length.

        Args:
            texts: N texts.
            progress: Called with the number of texts that are done.

        Returns:
            (N D) float32.

        Raises:
            RequirementError: If the model or its tokeniser cannot be read.
            DataError: If an item has no text.
        """
        input_spec = SubwordInput(tokeniser(self.model, option="sentence"), max_tokens=self.max_tokens)
        encoder = Language.open(self.model, pooling=self.pooling).eval().to(self.device)
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(texts), self.batch_size):
                values = texts[start : start + self.batch_size]
                rows = np.arange(start, start + len(values), dtype=np.int64)
                batch = InputBatch(values=values, ids=[str(row) for row in rows], rows=rows, keys=rows, root=Path())
                tensors = {name: value.to(self.device) for name, value in input_spec(batch).items()}
                vectors.append(encoder(tensors).pooled.float().cpu().numpy())
                if progress is not None:
                    progress(start + len(values))
        return np.concatenate(vectors) if vectors else np.empty((0, encoder.pooled_width), dtype=np.float32)


def tokeniser(name: str, *, option: str = "text") -> Any:
    """The tokeniser of a text backbone.

    Args:
        name: A hub name, a folder, or "starter".
        option: The option that gave the name, for messages.

    Returns:
        A tokeniser of `transformers`.

    Raises:
        RequirementError: If it is not available, has no vocabulary, or needs a package that is missing.
    """
    try:
        result = read_model(
            name,
            lambda source, local: AutoTokenizer.from_pretrained(
                source, local_files_only=local, trust_remote_code=False
            ),
            files=["tokenizer.json"],
            option=option,
        )
    except ImportError as error:
        raise RequirementError(
            Setting(option, name),
            " needs sentencepiece and protobuf for its tokeniser (SigLIP's; SigLIP 2 needs neither); "
            f"{install_hint('siglip')}",
        ) from error
    # Without its files transformers makes a tokeniser that has its special tokens alone.
    if len(result) <= len(set(result.all_special_ids)):
        raise RequirementError(
            Setting(option, name),
            " needs a tokeniser beside its weights; the one there has no vocabulary; give a folder that holds both",
        )
    return result
