"""The types that flow: Encoded and Embeddings of items, a Comparison with its Truth, the Scene of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from html import escape
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from subtext.errors import RequirementError, ShapeError

Direction = Literal["image_to_text", "text_to_image"]
DIRECTIONS: tuple[Direction, Direction] = ("image_to_text", "text_to_image")


def _require_axes(name: str, value: Tensor, axes: str) -> None:
    """Raise ShapeError unless the tensor has as many axes as `axes` names."""
    count = axes.count(",") + 1
    if value.ndim != count:
        raise ShapeError(f"{name} needs {count} axes ({axes}); it got shape {tuple(value.shape)}")


def _require_shape(name: str, value: Tensor, shape: tuple[int, ...], axes: str) -> None:
    """Raise ShapeError unless the tensor has that shape."""
    if tuple(value.shape) != shape:
        raise ShapeError(f"{name} must be ({axes}) = {shape}; it got {tuple(value.shape)}")


class _Shown:
    """Shows a dataclass of tensors by their shapes, types and device: a notebook prints no numbers."""

    def __repr__(self) -> str:
        shown = [f"{name}={shape}" for name, shape, _ in self._rows()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{name}</th><td>{escape(shape)}</td><td>{escape(kind)}</td></tr>"
            for name, shape, kind in self._rows()
        )
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"

    def _rows(self) -> list[tuple[str, str, str]]:
        """Name, shape and type of every field that is there."""
        rows = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                kind = str(value.dtype).removeprefix("torch.")
                rows.append((f.name, str(tuple(value.shape)), f"{kind}, {value.device}"))
            elif value is not None:
                rows.append((f.name, repr(value), type(value).__name__))
        return rows


@dataclass(frozen=True, repr=False)
class Encoded(_Shown):
    """The output of an encoder, which a head maps to the joint space.

    parts    (N P E)  one vector per region, cell or word
    mask     (N P) bool, True where a part exists; None where all do
    pooled   (N G)  one vector per item; None where the encoder makes none
    """

    parts: Tensor | None = None
    mask: Tensor | None = None
    pooled: Tensor | None = None

    def __post_init__(self) -> None:
        if self.parts is None and self.pooled is None:
            raise ShapeError("Encoded needs parts (N, P, E) or pooled (N, G); it got neither")
        if self.parts is not None:
            _require_axes("Encoded.parts", self.parts, "items, parts, width")
            if self.mask is not None:
                _require_shape("Encoded.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")
        if self.pooled is not None:
            _require_axes("Encoded.pooled", self.pooled, "items, width")


@dataclass(frozen=True, repr=False)
class Embeddings(_Shown):
    """Items of one modality in the joint space.

    vectors    (N K D)  K views of each item; K = 1 for most models, K samples for a probabilistic one
    ids        (N) int64, the item of each row
    log_std    (N K D), or (N 1 D) for all samples, natural logarithm of the standard deviation, for probabilistic heads
    residuals  (N K D)  what PIE-Net added to the global feature, for the view diversity regulariser
    parts      (N P D)  regions or words in the joint space, for similarities that compare them
    mask       (N P) bool, True where a part exists
    """

    vectors: Tensor
    ids: Tensor
    log_std: Tensor | None = None
    residuals: Tensor | None = None
    parts: Tensor | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        _require_axes("Embeddings.vectors", self.vectors, "items, views, width")
        count = self.vectors.shape[0]
        _require_shape("Embeddings.ids", self.ids, (count,), "items")
        for name in ("log_std", "residuals"):
            value = getattr(self, name)
            one_for_all = name == "log_std" and value is not None and value.ndim == 3 and value.shape[1] == 1
            if value is not None:
                shape = (count, 1, self.vectors.shape[2]) if one_for_all else tuple(self.vectors.shape)
                _require_shape(f"Embeddings.{name}", value, shape, "items, views, width")
        if self.parts is not None:
            _require_axes("Embeddings.parts", self.parts, "items, parts, width")
            if self.parts.shape[0] != count:
                raise ShapeError(f"Embeddings.parts needs one row per item, {count}; it got {self.parts.shape[0]}")
            if self.mask is not None:
                _require_shape("Embeddings.mask", self.mask, tuple(self.parts.shape[:2]), "items, parts")

    def __len__(self) -> int:
        """N, the number of items."""
        return int(self.vectors.shape[0])

    @property
    def views(self) -> int:
        """K, the number of vectors per item."""
        return int(self.vectors.shape[1])

    @property
    def width(self) -> int:
        """D, the width of the joint space."""
        return int(self.vectors.shape[2])

    @property
    def uncertainty(self) -> Tensor | None:
        """(N) the root mean square of an item's standard deviations, above 0; None without `log_std`.

        D times its square is the item's expected share of a squared distance.
        """
        return None if self.log_std is None else (2 * self.log_std).exp().mean(dim=(1, 2)).sqrt()

    def __getitem__(self, rows: slice | Tensor) -> Embeddings:
        """The selected items, in every field."""
        return self._map(lambda value: value[rows])

    def to(self, device: torch.device | str) -> Embeddings:
        """The same items on another device."""
        return self._map(lambda value: value.to(device))

    def detach(self) -> Embeddings:
        """The same items without gradient."""
        return self._map(lambda value: value.detach())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Embeddings:
        present = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(self, **{name: change(value) for name, value in present.items()})

    @staticmethod
    def cat(batches: Sequence[Embeddings]) -> Embeddings:
        """Concatenate items. Parts of unequal length are padded to the longest and masked.

        Raises ShapeError for no batches, and for a field that only some of them have.
        """
        if not batches:
            raise ShapeError("Embeddings.cat needs at least one batch; it got none")
        if len(batches) == 1:
            return batches[0]
        joined: dict[str, Tensor] = {}
        batches = _padded_parts(batches)
        for f in fields(Embeddings):
            values = [getattr(batch, f.name) for batch in batches]
            present = [value for value in values if value is not None]
            if present and len(present) != len(values):
                raise ShapeError(
                    f"Embeddings.cat needs {f.name} in every batch or in none; {len(present)} of {len(values)} have it"
                )
            if present:
                joined[f.name] = torch.cat(present)
        return Embeddings(**joined)


def _padded_parts(batches: Sequence[Embeddings]) -> Sequence[Embeddings]:
    """Pad parts and masks to the longest batch. Batches without parts stay as they are."""
    lengths = [0 if batch.parts is None else batch.parts.shape[1] for batch in batches]
    if len(set(lengths)) == 1:
        return batches
    padded = []
    for batch, length in zip(batches, lengths, strict=True):
        if batch.parts is None:
            return batches
        mask = batch.parts.new_ones(len(batch), length, dtype=torch.bool) if batch.mask is None else batch.mask
        missing = max(lengths) - length
        padded.append(replace(batch, parts=pad(batch.parts, (0, 0, 0, missing)), mask=pad(mask, (0, missing))))
    return padded


class Origin(IntEnum):
    """The source of a candidate of a Comparison."""

    PAIR = 0
    GENERATED = 1
    NEIGHBOUR = 2
    BANK = 3
    GATHERED = 4


@dataclass(frozen=True, repr=False)
class Truth(_Shown):
    """Whether each query and candidate belong together.

    match      (Q C) bool, positives
    ignored    (Q C) bool, neither positive nor negative; never True where match is
    relevance  (Q C) float, graded and finite; `scale` names its measure
    """

    match: Tensor
    ignored: Tensor | None = None
    relevance: Tensor | None = None
    scale: str | None = None

    def __post_init__(self) -> None:
        _require_axes("Truth.match", self.match, "queries, candidates")
        shape = tuple(self.match.shape)
        for name in ("match", "ignored"):
            value = getattr(self, name)
            if value is not None:
                _require_shape(f"Truth.{name}", value, shape, "queries, candidates")
                if value.dtype != torch.bool:
                    raise ShapeError(f"Truth.{name} needs bool; it got {value.dtype}; compare with > 0 first")
        if self.relevance is not None:
            _require_shape("Truth.relevance", self.relevance, shape, "queries, candidates")
            if self.scale is None:
                raise RequirementError("Truth.relevance needs the name of its scale ('tfidf1', ...); it got none")

    @staticmethod
    def from_groups(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """A query and a candidate belong together when their group ids are equal."""
        return Truth(match=query_groups[:, None] == candidate_groups[None, :])

    @staticmethod
    def of_pairs(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """Row i matches column i alone; other candidates of its group are ignored, not negative.

        Raises ShapeError when there are fewer candidates than queries: the first Q columns are the partners.
        """
        queries, candidates = len(query_groups), len(candidate_groups)
        if candidates < queries:
            raise ShapeError(f"Truth.of_pairs needs a partner for each of {queries} queries; it got {candidates}")
        match = torch.eye(queries, candidates, dtype=torch.bool, device=query_groups.device)
        same_group = query_groups[:, None] == candidate_groups[None, :]
        return Truth(match=match, ignored=same_group & ~match)

    @property
    def negative(self) -> Tensor:
        """(Q C) bool: neither positive nor ignored."""
        return ~self.match if self.ignored is None else ~(self.match | self.ignored)

    def flip(self) -> Truth:
        """The same truth with queries and candidates exchanged."""
        return replace(
            self,
            match=self.match.T,
            ignored=None if self.ignored is None else self.ignored.T,
            relevance=None if self.relevance is None else self.relevance.T,
        )


@dataclass(frozen=True, repr=False)
class Comparison(_Shown):
    """Queries against candidates: the input of losses and metrics.

    scores      (Q C), larger is better
    truth       which candidates match
    queries     the embeddings of the rows; None where only scores are available
    candidates  the embeddings of the columns
    origin      (C) uint8 of Origin; None where every candidate is of a pair
    """

    scores: Tensor
    truth: Truth
    queries: Embeddings | None = None
    candidates: Embeddings | None = None
    origin: Tensor | None = None

    def __post_init__(self) -> None:
        _require_axes("Comparison.scores", self.scores, "queries, candidates")
        rows, columns = self.scores.shape
        expected = tuple(self.truth.match.shape)
        if expected != (rows, columns):
            hint = "; flip() transposes it" if expected == (columns, rows) else ""
            raise ShapeError(
                f"Comparison.scores must be (queries, candidates) = {expected} as its truth is; "
                f"it got {(rows, columns)}{hint}"
            )
        if self.queries is not None and len(self.queries) != rows:
            raise ShapeError(
                f"Comparison.queries needs {rows} items, one per row of scores; it got {len(self.queries)}"
            )
        if self.candidates is not None and len(self.candidates) != columns:
            raise ShapeError(f"Comparison.candidates needs {columns} items, one per column; got {len(self.candidates)}")
        if self.origin is not None:
            _require_shape("Comparison.origin", self.origin, (columns,), "candidates")

    def flip(self) -> Comparison:
        """The same pairs with queries and candidates exchanged.

        Raises ShapeError when the comparison is not square, or has candidates that are not of a pair: they have no row.
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
    """The comparisons of one batch. The two directions are separate, because each may have candidates of its own.

    image_neighbours, text_neighbours  items against sampled neighbours of their own modality
    edited                             comparisons with generated texts, by name
    """

    image_to_text: Comparison
    text_to_image: Comparison
    image_neighbours: Comparison | None = None
    text_neighbours: Comparison | None = None
    edited: Mapping[str, Comparison] = field(default_factory=dict)

    def comparison(self, name: str) -> Comparison:
        """The comparison called `name` ("image_to_text", "text_neighbours", or the name of an edit).

        Raises RequirementError when the batch was built without it.
        """
        names = {f.name for f in fields(self)} - {"edited"}
        present = {n: getattr(self, n) for n in names if getattr(self, n) is not None} | dict(self.edited)
        if name not in present:
            raise RequirementError(
                f"a term reads the comparison '{name}', but this batch has only {', '.join(sorted(present))}; "
                "add the method that supplies it, or leave the term out"
            )
        return present[name]


@dataclass(frozen=True)
class Epoch:
    """What weightings and miners read beyond their batch.

    number   counted from 0
    seed     of the run
    table    name -> (items) values of the full data set, by item id
    bank     name -> embeddings of earlier steps
    drawing  the epoch whose random draws are used; None for this one
    """

    number: int
    seed: int
    table: Mapping[str, Tensor] | None = None
    bank: Mapping[str, Embeddings] | None = None
    drawing: int | None = None

    @property
    def draws(self) -> int:
        """The epoch that random draws depend on."""
        return self.number if self.drawing is None else self.drawing
