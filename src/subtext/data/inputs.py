"""What an encoder reads: an Input turns items into tensors.

An Input belongs to one modality and to one encoder. It is given items and, while training, the epoch's draw; without a
draw it must give the same tensors always. Implementations: pixels (`images.py`), words (`text.py`), features
(`features.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Tensors = dict[str, Tensor]
"""What a branch of a model reads. Always "ids" (N) int64, and by kind of input:
pixels (N 3 H W) float | tokens (N L) int64, mask (N L) bool | pooled (N G), grid (N P E) float, mask (N P) bool
"""


@dataclass(frozen=True)
class Draw:
    """The seed and the epoch of training draws; what an Input augments with."""

    seed: int
    epoch: int


@dataclass(frozen=True)
class Batch:
    """Items to be read: values as in data.pairs.Items, and the keys that draws are made from.

    values  str path (against root), bytes, PIL image or array (images); str or array (texts)
    ids     names, by which features are joined
    rows    (N) int64, becomes Embeddings.ids
    keys    (N) int64
    """

    values: Sequence[Any]
    ids: Sequence[str]
    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    root: Path


@runtime_checkable
class Input(Protocol):
    """Items -> tensors for one encoder."""

    @property
    def augments(self) -> bool:
        """Whether a draw changes the tensors: then what the encoder makes of them cannot be cached."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the tensors for the same items without a draw would."""

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The tensors of a batch, among them "ids"."""

    def save(self, folder: Path) -> None:
        """Write what is needed to make this Input again (a vocabulary, a tokeniser, sizes), JSON or text only."""
