"""The types that flow: Embeddings become a Comparison, comparisons make a Scene.

Axis letters have one meaning in the house:
    N items   Q queries   C candidates   K views of one item   D width   P parts (regions, cells, words)   B batch
Scores: larger is better, everywhere. Agreement is checked once, in the constructors here, so that a loss or a metric
can trust what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Literal

import torch
from torch import Tensor

from subtext.errors import RequirementError, ShapeError

Direction = Literal["image_to_text", "text_to_image"]
DIRECTIONS: tuple[Direction, Direction] = ("image_to_text", "text_to_image")


class Origin(IntEnum):
    """Where a candidate of a Comparison came from."""

    PAIR = 0
    GENERATED = 1
    NEIGHBOUR = 2
    BANK = 3
    GATHERED = 4


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
            _dimensions("Encoded.parts", self.parts, "items, parts, width")
            if self.mask is not None:
                _exact("Encoded.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")
        if self.pooled is not None:
            _dimensions("Encoded.pooled", self.pooled, "items, width")


@dataclass(frozen=True)
class Embeddings:
    """Items of one modality in the joint space.

    vectors    (N K D)  K views of each item; K = 1 for most models, K draws for a probabilistic one
    ids        (N) int64, which item each row is
    log_std    (N K D)  natural logarithm of the standard deviation, for probabilistic heads
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
        _dimensions("Embeddings.vectors", self.vectors, "items, views, width")
        count = self.vectors.shape[0]
        _exact("Embeddings.ids", self.ids, (count,), "items")
        for name in ("log_std", "residuals"):
            value = getattr(self, name)
            if value is not None:
                _exact(f"Embeddings.{name}", value, tuple(self.vectors.shape), "items, views, width")
        if self.parts is not None:
            _dimensions("Embeddings.parts", self.parts, "items, parts, width")
            if self.parts.shape[0] != count:
                raise ShapeError(f"Embeddings.parts needs one row an item, {count}; it got {self.parts.shape[0]}")
            if self.mask is not None:
                _exact("Embeddings.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")

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


@dataclass(frozen=True)
class Truth:
    """What is right: for every query and candidate, whether they belong together.

    match      (Q C) bool, positives
    ignored    (Q C) bool, neither positive nor negative; never True where match is
    relevance  (Q C) float, graded and finite; `scale` names what it was computed with
    """

    match: Tensor
    ignored: Tensor | None = None
    relevance: Tensor | None = None
    scale: str | None = None

    def __post_init__(self) -> None:
        _dimensions("Truth.match", self.match, "queries, candidates")
        shape = tuple(self.match.shape)
        for name in ("match", "ignored"):
            value = getattr(self, name)
            if value is not None:
                _exact(f"Truth.{name}", value, shape, "queries, candidates")
                if value.dtype != torch.bool:
                    raise ShapeError(f"Truth.{name} needs bool; it got {value.dtype}; compare with > 0 first")
        if self.relevance is not None:
            _exact("Truth.relevance", self.relevance, shape, "queries, candidates")
            if self.scale is None:
                raise RequirementError("Truth.relevance needs the name of its scale ('tfidf1', ...); it got none")

    @staticmethod
    def from_groups(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """A query and a candidate belong together when their group ids are equal."""
        return Truth(match=query_groups[:, None] == candidate_groups[None, :])

    @staticmethod
    def of_pairs(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """Row i belongs to column i alone; others of the same group are ignored rather than taken for wrong.

        Raises ShapeError when there are fewer candidates than queries: the first Q columns are the partners.
        """
        queries, candidates = len(query_groups), len(candidate_groups)
        if candidates < queries:
            raise ShapeError(f"Truth.of_pairs needs a partner for each of {queries} queries; it got {candidates}")
        own = torch.eye(queries, candidates, dtype=torch.bool, device=query_groups.device)
        same = query_groups[:, None] == candidate_groups[None, :]
        return Truth(match=own, ignored=same & ~own)

    @property
    def negative(self) -> Tensor:
        """(Q C) bool: neither positive nor ignored."""
        return ~self.match if self.ignored is None else ~(self.match | self.ignored)

    def flip(self) -> Truth:
        """The same truth asked from the other side."""
        return replace(
            self,
            match=self.match.T,
            ignored=None if self.ignored is None else self.ignored.T,
            relevance=None if self.relevance is None else self.relevance.T,
        )


@dataclass(frozen=True)
class Comparison:
    """Queries against candidates: what a loss and a metric both read.

    scores      (Q C), larger is better
    truth       what is right
    queries     the embeddings behind the rows; None where only scores are known
    candidates  the embeddings behind the columns
    origin      (C) uint8 of Origin; None where every candidate is of a pair
    """

    scores: Tensor
    truth: Truth
    queries: Embeddings | None = None
    candidates: Embeddings | None = None
    origin: Tensor | None = None

    def __post_init__(self) -> None:
        _dimensions("Comparison.scores", self.scores, "queries, candidates")
        rows, columns = self.scores.shape
        wanted = tuple(self.truth.match.shape)
        if wanted != (rows, columns):
            hint = "; flip() turns it" if wanted == (columns, rows) else ""
            raise ShapeError(
                f"Comparison.scores must be (queries, candidates) = {wanted} as its truth is; "
                f"it got {(rows, columns)}{hint}"
            )
        if self.queries is not None and len(self.queries) != rows:
            raise ShapeError(f"Comparison.queries needs {rows} items, one a row of scores; it got {len(self.queries)}")
        if self.candidates is not None and len(self.candidates) != columns:
            raise ShapeError(f"Comparison.candidates needs {columns} items, one a column; got {len(self.candidates)}")
        if self.origin is not None:
            _exact("Comparison.origin", self.origin, (columns,), "candidates")

    def flip(self) -> Comparison:
        """The same pairs asked from the other side.

        Raises ShapeError when the comparison is not square, or was widened by candidates that are no pairs: those have
        no row of their own to become.
        """
        rows, columns = self.scores.shape
        origins = [] if self.origin is None else sorted({Origin(code).name for code in self.origin.tolist()})
        if rows != columns or origins not in ([], ["PAIR"]):
            raise ShapeError(
                f"Comparison.flip needs a square comparison of pairs alone; it got {rows} x {columns} with origins "
                f"{origins or ['PAIR']}; build the other direction from its own candidates"
            )
        return replace(
            self, scores=self.scores.T, truth=self.truth.flip(), queries=self.candidates, candidates=self.queries
        )


@dataclass(frozen=True)
class Scene:
    """The comparisons of one batch, both directions apart, because widening differs by direction.

    image_neighbours and text_neighbours compare items with sampled neighbours of their own modality; `edited` holds
    comparisons with generated texts, by name.
    """

    image_to_text: Comparison
    text_to_image: Comparison
    image_neighbours: Comparison | None = None
    text_neighbours: Comparison | None = None
    edited: Mapping[str, Comparison] = field(default_factory=dict)

    def comparison(self, name: str) -> Comparison:
        """The comparison of that name ("image_to_text", "text_neighbours", or the name of an edit).

        Raises RequirementError when the batch was built without it.
        """
        known = {f.name for f in fields(self)} - {"edited"}
        found = getattr(self, name) if name in known else self.edited.get(name)
        if found is None:
            have = sorted([n for n in known if getattr(self, n) is not None] + list(self.edited))
            raise RequirementError(
                f"a term reads the comparison '{name}', but this batch has only {', '.join(have)}; "
                "add the method that supplies it, or leave the term out"
            )
        return found


@dataclass(frozen=True)
class Epoch:
    """What a weighting may know beyond its batch.

    number  counted from 0        seed  the run's
    table   name -> (items) scores of the whole data set, looked up by item id        bank  embeddings kept from before
    """

    number: int
    seed: int
    table: Mapping[str, Tensor] | None = None
    bank: Mapping[str, Embeddings] | None = None


def _dimensions(name: str, value: Tensor, axes: str) -> None:
    wanted = axes.count(",") + 1
    if value.ndim != wanted:
        raise ShapeError(f"{name} needs {wanted} axes ({axes}); it got shape {tuple(value.shape)}")


def _exact(name: str, value: Tensor, shape: tuple[int, ...], axes: str) -> None:
    if tuple(value.shape) != shape:
        raise ShapeError(f"{name} must be ({axes}) = {shape}; it got {tuple(value.shape)}")


def _even_parts(pieces: Sequence[Embeddings]) -> Sequence[Embeddings]:
    """Pad parts and masks to the longest piece, so that they can be joined."""
    if any(piece.parts is None for piece in pieces):
        return pieces
    longest = max(piece.parts.shape[1] for piece in pieces if piece.parts is not None)
    evened = []
    for piece in pieces:
        assert piece.parts is not None
        items, length, width = piece.parts.shape
        mask = piece.mask if piece.mask is not None else piece.parts.new_ones(items, length, dtype=torch.bool)
        parts = torch.cat([piece.parts, piece.parts.new_zeros(items, longest - length, width)], dim=1)
        mask = torch.cat([mask, mask.new_zeros(items, longest - length)], dim=1)
        evened.append(replace(piece, parts=parts, mask=mask))
    return evened
