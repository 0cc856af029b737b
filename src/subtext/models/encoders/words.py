"""Words to a pooled vector: by their mean (a bag of words), or by a gated recurrent unit, which also returns states."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.ops.gru import end_states, padded_states
from subtext.ops.numerics import masked_mean


class Bag(nn.Module):
    """A word embedding without order.

    Args:
        words: Size of the vocabulary; token 0 is padding.
        width: E, the width of the embedding.
        dropout: Share of the embeddings' numbers set to zero in training.
        parts: Whether to give word embeddings; False: the mean is taken without storing them, in a fraction of the
            memory.
    """

    def __init__(self, words: int, width: int, *, dropout: float = 0.0, parts: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        nn.init.normal_(self.words.weight, std=0.1)
        with torch.no_grad():
            self.words.weight[0].zero_()
        self.dropout = nn.Dropout(dropout)
        self.parts_width = width if parts else None
        self.pooled_width = width

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Word embeddings of texts, and their means.

        Args:
            inputs: "tokens" (N P) int64, "mask" (N P) bool.

        Returns:
            Encoded with `parts` (N P E), the embeddings, with dropout; `pooled` (N E), their mean over the words.
        """
        if self.parts_width is None and not self.dropout.p:
            tokens = inputs["tokens"].masked_fill(~inputs["mask"], 0)
            pooled = torch.nn.functional.embedding_bag(tokens, self.words.weight, mode="mean", padding_idx=0)
            return Encoded(pooled=pooled)
        words, mask = self.dropout(self.words(inputs["tokens"])), inputs["mask"]
        pooled = masked_mean(words, mask)
        return Encoded(pooled=pooled) if self.parts_width is None else Encoded(words, mask, pooled)


class Recurrent(nn.Module):
    """A word embedding and a GRU, in one or both directions, as in VSE++ and PVSE.

    Padding is never read: texts are packed, longest first, so that a longer text in the batch changes only the last
    bit.

    Args:
        words: Size of the vocabulary; token 0 is padding.
        width: Width of the states; in a bidirectional GRU half of it for each direction.
        word_width: Width of the word embedding.
        layers: Number of stacked GRUs.
        both_directions: Whether the GRU is bidirectional; then it needs an even width.
        parts: Whether the parts are the "states" of the GRU or the embedded "words".
        word_dropout: Share of the embeddings' numbers set to zero in training.
        dropout: Share of the states and of the pooled vector set to zero in training.
        legacy_last: Whether to take both directions at the last word, where the backward half has read one word only.
            PVSE's published numbers were made so.

    Raises:
        RequirementError: If the GRU is bidirectional and the width odd.
    """

    def __init__(
        self,
        words: int,
        width: int = 1024,
        word_width: int = 300,
        layers: int = 1,
        both_directions: bool = True,
        *,
        parts: Literal["states", "words"] = "states",
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        legacy_last: bool = False,
    ) -> None:
        super().__init__()
        if both_directions and width % 2:
            raise RequirementError(f"a bidirectional GRU needs an even width; it got {width}; add one")
        self.words = nn.Embedding(words, word_width, padding_idx=0)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)  # As in VSE++.
        with torch.no_grad():
            self.words.weight[0].zero_()
        width_per_direction = width // 2 if both_directions else width
        self.rnn = nn.GRU(word_width, width_per_direction, layers, batch_first=True, bidirectional=both_directions)
        self.word_dropout = nn.Dropout(word_dropout)
        self.dropout = nn.Dropout(dropout)
        self.parts_source = parts
        self.legacy_last = legacy_last
        self.parts_width = word_width if parts == "words" else width
        self.pooled_width = width

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States or embeddings of words, and pooled vectors, of texts.

        Args:
            inputs: "tokens" (N P) int64, "mask" (N P) bool, words first. A text without words counts as one padding
                token.

        Returns:
            Encoded with `parts` (N P E), the states of every word, or the word embeddings, which PIE-Net attends to;
            `pooled` (N width), the state after the last word; of the backward half, the one after the first word.
        """
        tokens, mask = inputs["tokens"], inputs["mask"]
        lengths = mask.sum(dim=1).clamp_min(1)
        longest = int(lengths.max())
        words = self.word_dropout(self.words(tokens[:, :longest]))
        states = padded_states(words, lengths, self.rnn, learning=self.training)
        pooled = end_states(states, lengths, both_directions=self.rnn.bidirectional and not self.legacy_last)
        parts = words if self.parts_source == "words" else self.dropout(states)
        return Encoded(parts=parts, mask=mask[:, :longest], pooled=self.dropout(pooled))
