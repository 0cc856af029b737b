"""Items in an encoder's space and in the joint space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from subtext.core.shapes import dimensions, exact
from subtext.errors import ShapeError


@dataclass(frozen=True)
class Encoded:
    """What an encoder gives to a head, before there is a joint space.

    parts    (N P E)  one vector a region, cell or word
    mask     (N P) bool, True where a part exists; None where all do
    pooled   (N G)  one vector an item; None where the encoder makes none
    """

    parts: Tensor | None = None
    mask: Tensor | None = None
    pooled: Tensor | None = None

    def __post_init__(self) -> None:
        if self.parts is None and self.pooled is None:
            raise ShapeError("Encoded needs parts (N, P, E) or pooled (N, G); it got neither")
        if self.parts is not None:
            dimensions("Encoded.parts", self.parts, "items, parts, width")
            if self.mask is not None:
                exact("Encoded.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")
        if self.pooled is not None:
            dimensions("Encoded.pooled", self.pooled, "items, width")


@dataclass(frozen=True)
class Embeddings:
    """Items of one modality in the joint space.

    vectors    (N K D)  K views of each item; K = 1 for most models, K draws for a probabilistic one
    ids        (N) int64, which item each row is
    log_std    (N K D), or (N 1 D) for all draws, natural logarithm of the standard deviation, for probabilistic heads
    residuals  (N K D)  what PIE-Net added to the global feature; view diversity reads it
    parts      (N P D)  regions or words in the joint space, for similarities that look at them
    mask       (N P) bool, True where a part exists
    """

    vectors: Tensor
    ids: Tensor
    log_std: Tensor | None = None
    residuals: Tensor | None = None
    parts: Tensor | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        dimensions("Embeddings.vectors", self.vectors, "items, views, width")
        count = self.vectors.shape[0]
        exact("Embeddings.ids", self.ids, (count,), "items")
        for name in ("log_std", "residuals"):
            value = getattr(self, name)
            shared = name == "log_std" and value is not None and value.ndim == 3 and value.shape[1] == 1
            if value is not None:
                shape = (count, 1, self.vectors.shape[2]) if shared else tuple(self.vectors.shape)
                exact(f"Embeddings.{name}", value, shape, "items, views, width")
        if self.parts is not None:
            dimensions("Embeddings.parts", self.parts, "items, parts, width")
            if self.parts.shape[0] != count:
                raise ShapeError(f"Embeddings.parts needs one row an item, {count}; it got {self.parts.shape[0]}")
            if self.mask is not None:
                exact("Embeddings.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")

    def __len__(self) -> int:
        """How many items."""
        return int(self.vectors.shape[0])

    @property
    def views(self) -> int:
        """K, the vectors that each item has."""
        return int(self.vectors.shape[1])

    @property
    def width(self) -> int:
        """D, the width of the joint space."""
        return int(self.vectors.shape[2])

    @property
    def uncertainty(self) -> Tensor | None:
        """(N) the root mean square of an item's standard deviations, above 0; None where the head gives none.

        D times its square is what the item adds to a squared distance on average.
        """
        return None if self.log_std is None else (2 * self.log_std).exp().mean(dim=(1, 2)).sqrt()

    def __getitem__(self, rows: slice | Tensor) -> Embeddings:
        """The chosen items, every field cut alike."""
        return self._each(lambda value: value[rows])

    def to(self, device: torch.device | str) -> Embeddings:
        """The same items on another device."""
        return self._each(lambda value: value.to(device))

    def detach(self) -> Embeddings:
        """The same items, cut off from the graph."""
        return self._each(lambda value: value.detach())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Embeddings:
        present = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(self, **{name: change(value) for name, value in present.items()})

    @staticmethod
    def cat(pieces: Sequence[Embeddings]) -> Embeddings:
        """One after the other; parts of unequal length are padded to the longest and masked.

        Raises ShapeError when there is nothing to join, or when a field is present in some pieces only.
        """
        if not pieces:
            raise ShapeError("Embeddings.cat needs at least one piece; it got none")
        if len(pieces) == 1:
            return pieces[0]
        joined: dict[str, Tensor] = {}
        pieces = _even_parts(pieces)
        for f in fields(Embeddings):
            values = [getattr(piece, f.name) for piece in pieces]
            present = [value for value in values if value is not None]
            if present and len(present) != len(values):
                raise ShapeError(
                    f"Embeddings.cat needs {f.name} in every piece or in none; {len(present)} of {len(values)} have it"
                )
            if present:
                joined[f.name] = torch.cat(present)
        return Embeddings(**joined)


def _even_parts(pieces: Sequence[Embeddings]) -> Sequence[Embeddings]:
    """Pad parts and masks to the longest piece, so that they can be joined."""
    lengths = [0 if piece.parts is None else piece.parts.shape[1] for piece in pieces]
    if len(set(lengths)) == 1:
        return pieces
    evened = []
    for piece, length in zip(pieces, lengths, strict=True):
        if piece.parts is None:
            return pieces
        mask = piece.parts.new_ones(len(piece), length, dtype=torch.bool) if piece.mask is None else piece.mask
        missing = max(lengths) - length
        evened.append(replace(piece, parts=pad(piece.parts, (0, 0, 0, missing)), mask=pad(mask, (0, missing))))
    return evened
