"""The types that flow: Encoded become Embeddings, Embeddings a Comparison, comparisons the Scene of a batch.

Axis letters have one meaning everywhere:
    N items   Q queries   C candidates   K views of one item   D width   P parts (regions, cells, words)   B batch
Larger scores are better. The constructors check that shapes agree, so losses and metrics do not check again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from html import escape
from typing import Literal, get_args, get_type_hints

import torch
from torch import Tensor
from torch.nn.functional import pad

from subtext.errors import RequirementError, ShapeError

__all__ = ["DIRECTIONS", "Comparison", "Direction", "Embeddings", "Encoded", "Epoch", "Origin", "Scene", "Truth"]

Direction = Literal["image_to_text", "text_to_image"]
DIRECTIONS: tuple[Direction, Direction] = ("image_to_text", "text_to_image")


def require_choice(part: object, name: str) -> None:
    """Check that a field of a dataclass has one of the values that its `Literal` names.

    Args:
        part: A dataclass.
        name: Its field, whose type is a `Literal`.

    Raises:
        RequirementError: If the value is none of those.
    """
    value, choices = getattr(part, name), get_args(get_type_hints(type(part))[name])
    if value not in choices:
        raise RequirementError(
            f"{type(part).__name__} needs {name} to be one of {', '.join(map(repr, choices))}; it got {value!r}"
        )


class _Tensors:
    """A dataclass of tensors: axes of one name have one length, and a notebook shows shapes and types, not numbers."""

    def _require_axes(self, axes: Mapping[str, str]) -> None:
        """Raise ShapeError unless each tensor has its axes, such as "items, width", and axes of one name one length."""
        sizes: dict[str, int] = {}
        for field_name, text in axes.items():
            if (value := getattr(self, field_name)) is None:
                continue
            names, shape, name = text.split(", "), tuple(value.shape), f"{type(self).__name__}.{field_name}"
            if len(shape) != len(names):
                raise ShapeError(f"{name} needs {len(names)} axes ({text}); it got shape {shape}")
            expected = tuple(sizes.setdefault(axis, size) for axis, size in zip(names, shape, strict=True))
            if shape != expected:
                raise ShapeError(f"{name} must be ({text}) = {expected}; it got {shape}")

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
class Encoded(_Tensors):
    """The output of an encoder, which a head maps to the joint space.

    Attributes:
        parts: (N P E), one vector per region, cell or word.
        mask: (N P) bool, True where a part exists; None where all do.
        pooled: (N G), one vector per item; None where the encoder makes none.

    Raises:
        ShapeError: If both parts and pooled are missing, or if shapes differ.
    """

    parts: Tensor | None = None
    mask: Tensor | None = None
    pooled: Tensor | None = None

    def __post_init__(self) -> None:
        if self.parts is None and self.pooled is None:
            raise ShapeError("Encoded needs parts (N, P, E) or pooled (N, G); it got neither")
        self._require_axes({"parts": "items, parts, width", "mask": "items, parts", "pooled": "items, pooled width"})


@dataclass(frozen=True, repr=False)
class Embeddings(_Tensors):
    """Items of one modality in the joint space.

    Attributes:
        vectors: (N K D), K views of each item; K = 1 for most models, K samples for a probabilistic one.
        ids: (N) int64, the item of each row.
        log_std: (N K D), or (N 1 D) for all samples, natural logarithm of the standard deviation, for probabilistic
            heads.
        residuals: (N K D), what PIE-Net added to the global feature, for the view diversity regulariser.
        parts: (N P D), regions or words in the joint space, for similarities that compare them.
        mask: (N P) bool, True where a part exists.

    Raises:
        ShapeError: If shapes differ.
    """

    vectors: Tensor
    ids: Tensor
    log_std: Tensor | None = None
    residuals: Tensor | None = None
    parts: Tensor | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        one_for_all = self.log_std is not None and self.log_std.ndim == 3 and self.log_std.shape[1] == 1
        self._require_axes(
            {
                "vectors": "items, views, width",
                "ids": "items",
                "log_std": "items, one, width" if one_for_all else "items, views, width",
                "residuals": "items, views, width",
                "parts": "items, parts, width of parts",
                "mask": "items, parts",
            }
        )

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
        """The same items on another device.

        Args:
            device: A device, or its name.

        Returns:
            The Embeddings with every tensor on that device.
        """
        return self._map(lambda value: value.to(device))

    def detach(self) -> Embeddings:
        """The same items without gradient.

        Returns:
            The Embeddings with every tensor detached.
        """
        return self._map(lambda value: value.detach())

    def _padded(self, length: int) -> Embeddings:
        """The same items with parts and a mask of another length."""
        assert self.parts is not None
        mask = torch.ones(self.parts.shape[:2], dtype=torch.bool, device=self.parts.device)
        missing = length - self.parts.shape[1]
        return replace(
            self,
            parts=pad(self.parts, (0, 0, 0, missing)),
            mask=pad(mask if self.mask is None else self.mask, (0, missing)),
        )

    def _map(self, change: Callable[[Tensor], Tensor]) -> Embeddings:
        present = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(self, **{name: change(value) for name, value in present.items()})

    @staticmethod
    def cat(batches: Sequence[Embeddings]) -> Embeddings:
        """Concatenate items. Parts of unequal length are padded to the longest and masked.

        Args:
            batches: Embeddings with the same fields, of one width.

        Returns:
            The items of all batches, in order; parts (N P D) with P of the longest.

        Raises:
            ShapeError: If there are no batches, or if only some of them have a field.
        """
        if not batches:
            raise ShapeError("Embeddings.cat needs at least one batch; it got none")
        if len(batches) == 1:
            return batches[0]
        joined: dict[str, Tensor] = {}
        lengths = [0 if batch.parts is None else batch.parts.shape[1] for batch in batches]
        if min(lengths) != max(lengths) and all(batch.parts is not None for batch in batches):
            batches = [batch._padded(max(lengths)) for batch in batches]
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


class Origin(IntEnum):
    """The source of a candidate of a Comparison."""

    PAIR = 0
    GENERATED = 1
    NEIGHBOUR = 2
    BANK = 3
    GATHERED = 4


@dataclass(frozen=True, repr=False)
class Truth(_Tensors):
    """Whether each query and candidate belong together.

    Attributes:
        match: (Q C) bool, positives.
        ignored: (Q C) bool, neither positive nor negative; never True where match is.
        relevance: (Q C) float, graded and finite; `scale` names its measure.
        scale: Name of the measure of `relevance`, such as "tfidf1".

    Raises:
        ShapeError: If shapes differ, or if `match` or `ignored` is not bool.
        RequirementError: If there is a relevance without a scale.
    """

    match: Tensor
    ignored: Tensor | None = None
    relevance: Tensor | None = None
    scale: str | None = None

    def __post_init__(self) -> None:
        self._require_axes(dict.fromkeys(("match", "ignored", "relevance"), "queries, candidates"))
        for name in ("match", "ignored"):
            if (value := getattr(self, name)) is not None and value.dtype != torch.bool:
                raise ShapeError(f"Truth.{name} needs bool; it got {value.dtype}; compare with > 0 first")
        if self.relevance is not None and self.scale is None:
            raise RequirementError("Truth.relevance needs the name of its scale ('tfidf1', ...); it got none")

    @staticmethod
    def from_groups(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """A query and a candidate belong together when their group ids are equal.

        Args:
            query_groups: (Q) int64.
            candidate_groups: (C) int64.

        Returns:
            The Truth, with match (Q C) and nothing ignored.
        """
        return Truth(match=query_groups[:, None] == candidate_groups[None, :])

    @staticmethod
    def of_pairs(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """Row i matches column i alone; other candidates of its group are ignored, not negative.

        Args:
            query_groups: (Q) int64.
            candidate_groups: (C) int64, C >= Q; the first Q are those of the partners.

        Returns:
            The Truth, with match and ignored (Q C).

        Raises:
            ShapeError: If there are fewer candidates than queries: the first Q columns are the partners.
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
        """The same truth with queries and candidates exchanged.

        Returns:
            The Truth with every matrix transposed, (C Q).
        """
        return replace(
            self,
            match=self.match.T,
            ignored=None if self.ignored is None else self.ignored.T,
            relevance=None if self.relevance is None else self.relevance.T,
        )


@dataclass(frozen=True, repr=False)
class Comparison(_Tensors):
    """Queries against candidates: the input of losses and metrics.

    Attributes:
        scores: (Q C), larger is better.
        truth: Which candidates match.
        queries: The embeddings of the rows; None if only scores are available.
        candidates: The embeddings of the columns.
        origin: (C) uint8 of Origin; None if every candidate belongs to a pair.

    Raises:
        ShapeError: If scores, truth and embeddings do not agree in their numbers of queries and candidates.
    """

    scores: Tensor
    truth: Truth
    queries: Embeddings | None = None
    candidates: Embeddings | None = None
    origin: Tensor | None = None

    def __post_init__(self) -> None:
        self._require_axes({"scores": "queries, candidates", "origin": "candidates"})
        rows, columns = self.scores.shape
        expected = tuple(self.truth.match.shape)
        if expected != (rows, columns):
            hint = "; flip() transposes it" if expected == (columns, rows) else ""
            raise ShapeError(
                f"Comparison.scores must be (queries, candidates) = {expected} as its truth is; "
                f"it got {(rows, columns)}{hint}"
            )
        for name, items, count in (("queries", self.queries, rows), ("candidates", self.candidates, columns)):
            if items is not None and len(items) != count:
                axis = "row" if name == "queries" else "column"
                raise ShapeError(
                    f"Comparison.{name} needs {count} items, one per {axis} of scores; it got {len(items)}"
                )

    def flip(self) -> Comparison:
        """The same pairs with queries and candidates exchanged.

        Returns:
            The Comparison with scores (C Q), and embeddings exchanged.

        Raises:
            ShapeError: If the comparison is not square, or has candidates that belong to no pair and so have no row.
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

    Attributes:
        image_to_text: Images against texts.
        text_to_image: Texts against images.
        image_neighbours: Images against sampled neighbours, which are images; None without.
        text_neighbours: Texts against sampled neighbours, which are texts; None without.
        edited: Comparisons with generated texts, by name.
    """

    image_to_text: Comparison
    text_to_image: Comparison
    image_neighbours: Comparison | None = None
    text_neighbours: Comparison | None = None
    edited: Mapping[str, Comparison] = field(default_factory=dict)

    def comparison(self, name: str) -> Comparison:
        """One comparison by its name: "image_to_text", "text_neighbours", or the name of an edit.

        Args:
            name: Of a field, or of an edit.

        Returns:
            The Comparison.

        Raises:
            RequirementError: If the batch was built without it.
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
    """What weightings and miners read beside their batch.

    Attributes:
        number: Of the epoch, from 0.
        seed: Of the run, 0 or more.
        table: Values of all training items, (N ...) by name; rows are item ids. None before there are any.
        bank: Embeddings of earlier steps, by name; None before there are any.
        drawing: Epoch whose random draws are used; None for this one.
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
