"""Bag of words: word embeddings and their mean. Fast, and hard to beat on short captions."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.ops.numerics import masked_mean


class Bag(nn.Module):
    """A word embedding without order.

    parts   (N P E): the embeddings, with dropout
    pooled  (N E): their mean over the words

    words    size of the vocabulary; token 0 is padding
    width    E, of the embedding
    dropout  share of the embeddings' numbers set to zero in training
    parts    False: no parts, and the mean is taken without storing them, in a fraction of the memory
    spread   standard deviation of the initial embeddings

    Takes  tokens (N P) int64, mask (N P) bool.
    """

    def __init__(
        self, words: int, width: int, *, dropout: float = 0.0, parts: bool = True, spread: float = 0.1
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        nn.init.normal_(self.words.weight, std=spread)
        with torch.no_grad():
            self.words.weight[0].zero_()
        self.dropout = nn.Dropout(dropout)
        self.parts_width = width if parts else None
        self.pooled_width = width

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Word embeddings of texts, and their means."""
        if self.parts_width is None and not self.dropout.p:
            tokens = inputs["tokens"].masked_fill(~inputs["mask"], 0)
            pooled = torch.nn.functional.embedding_bag(tokens, self.words.weight, mode="mean", padding_idx=0)
            return Encoded(pooled=pooled)
        words, mask = self.dropout(self.words(inputs["tokens"])), inputs["mask"]
        pooled = masked_mean(words, mask)
        return Encoded(pooled=pooled) if self.parts_width is None else Encoded(words, mask, pooled)

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Nothing here is pretrained."""
        return []

    def save_assets(self, folder: Path) -> None:
        """Nothing: the vocabulary is the input's."""
