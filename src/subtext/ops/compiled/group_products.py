"""Sums of sparse products over groups of rows: the core of every relevance by words.

A group is the texts of an image. Each text meets each candidate in their common features, and what a match counts may
fall with the difference of the two in kind (CIDEr-D: in length). All matches of a feature are computed together: the
weights of the group become one number per kind of candidate, and the candidates that have the feature are visited once
for the group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops.in_threads import in_threads
from subtext.ops.sparse import Sparse, concatenated_ranges

KERNEL_MATCHES = 2**24
"""Matches of references and candidates from which compiling the kernel pays."""
_PLAIN_MATCHES = 2**22
"""Matches that the plain path expands at a time."""


@dataclass(frozen=True)
class Terms:
    """R references in G groups, and C candidates, over the same V features.

    Their products, one number per group and candidate, are::

        values[g, c] = sum over r in g of decay[kind(r), kind(c)] * sum over f of references[r, f] * candidates[c, f]

    Args:
        references: (R V).
        groups: (R) int64 in [0, count), the group of each reference.
        candidates: (C V).
        count: G.
        reference_kinds: (R) int64, rows of decay.
        candidate_kinds: (C) int64, columns of decay.
        decay: (P K) float32; None where every match counts in full.

    Raises:
        ShapeError: If they do not agree.
    """

    references: Sparse
    groups: Int[np.ndarray, "r"]
    candidates: Sparse
    count: int
    reference_kinds: Int[np.ndarray, "r"] | None = None
    candidate_kinds: Int[np.ndarray, "c"] | None = None
    decay: Float[np.ndarray, "p k"] | None = None

    def __post_init__(self) -> None:
        if self.references.width != self.candidates.width:
            raise ShapeError(
                "Terms need references and candidates of the same features; they have "
                f"{self.references.width} and {self.candidates.width}"
            )
        outside = (self.groups < 0) | (self.groups >= self.count)
        if len(self.groups) != len(self.references) or outside.any():
            raise ShapeError(
                f"Terms need a group in [0, {self.count}) for each of {len(self.references)} references; it got "
                f"{len(self.groups)} groups, {int(outside.sum())} of them outside"
            )

    def take(self, groups: NDArray[np.int64], candidates: NDArray[np.int64]) -> Terms:
        """The selected groups and candidates, in that order.

        Args:
            groups: (M) groups.
            candidates: (N) candidates.

        Returns:
            Terms of M groups and N candidates.
        """
        order, starts = self._by_group
        lengths = starts[groups + 1] - starts[groups]
        rows = order[concatenated_ranges(starts[groups], lengths)]
        return Terms(
            references=self.references.take(rows),
            groups=np.repeat(np.arange(len(groups), dtype=np.int64), lengths),
            candidates=self.candidates.take(candidates),
            count=len(groups),
            reference_kinds=None if self.reference_kinds is None else self.reference_kinds[rows],
            candidate_kinds=None if self.candidate_kinds is None else self.candidate_kinds[candidates],
            decay=self.decay,
        )

    def all(self, out: Float[np.ndarray, "g c"] | None = None) -> Float[np.ndarray, "g c"]:
        """Every group against every candidate.

        Args:
            out: (G C) float16 or float32, the output; None for a new matrix.

        Returns:
            (G C).

        Complexity:
            That of `group_products`.
        """
        return group_products(self, out=out)

    def block(self, groups: NDArray[np.int64], candidates: NDArray[np.int64]) -> Float[np.ndarray, "g c"]:
        """The chosen groups against the chosen candidates; a batch of training costs a millisecond or two.

        Args:
            groups: (M) groups.
            candidates: (N) candidates.

        Returns:
            (M N) float32.
        """
        return group_products(self.take(groups, candidates), kernel=False)

    @cached_property
    def _by_group(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """References in the order of their groups, and the start of each group among them, (G + 1)."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.groups, minlength=self.count))])
        return np.argsort(self.groups, kind="stable"), starts.astype(np.int64)


def group_products(
    terms: Terms,
    *,
    out: Float[np.ndarray, "g c"] | None = None,
    kernel: bool | None = None,
    threads: int | None = None,
) -> Float[np.ndarray, "g c"]:
    """Every group against every candidate.

    One thread sums each row in one order: the numbers do not depend on the threads.

    Args:
        terms: References, groups and candidates.
        out: (G C) the output: float32 or float16, in memory or mapped; None for a new float32 matrix.
        kernel: Whether compiled code computes; None for where it pays (`KERNEL_MATCHES`). Both agree to rounding.
        threads: Of the kernel; None for as many as torch uses.

    Returns:
        (G C).

    Raises:
        ShapeError: If `out` has another shape.

    Complexity:
        Time in matches, the sum over groups and their features of the candidates that have the feature.
    """
    shape = (terms.count, len(terms.candidates))
    if out is None:
        out = np.empty(shape, dtype=np.float32)
    if out.shape != shape:
        raise ShapeError(f"group_products needs out of (groups, candidates) = {shape}; it got {out.shape}")
    references = terms.references
    rows = np.repeat(np.arange(len(references), dtype=np.int64), np.diff(references.starts))
    groups = terms.groups[rows]
    order = np.argsort(groups * np.int64(references.width) + references.columns, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=terms.count))]).astype(np.int64)
    kinds = np.zeros(len(rows), np.int64) if terms.reference_kinds is None else terms.reference_kinds[rows[order]]
    entries = _Entries(starts, references.columns[order], references.values[order], kinds)
    columns = terms.candidates.transposed()
    matches = columns.starts[entries.features + 1] - columns.starts[entries.features]
    if matches.sum() >= KERNEL_MATCHES if kernel is None else kernel:
        decay = np.ones((1, 1), np.float32) if terms.decay is None else np.ascontiguousarray(terms.decay, np.float32)
        kinds = np.zeros(shape[1], np.int64) if terms.candidate_kinds is None else terms.candidate_kinds
        small = kinds.astype(np.uint8 if decay.shape[1] <= 256 else np.uint32)
        postings = _Postings(columns.starts, columns.columns.astype(np.uint32), columns.values, small[columns.columns])
        fill = _kernel()

        def products(groups: slice) -> None:
            direct = out.dtype == np.float32
            block = np.asarray(out[groups]) if direct else np.empty((groups.stop - groups.start, shape[1]), np.float32)
            fill(groups.start, groups.stop, entries, postings, decay, block)
            if not direct:
                out[groups] = block

        in_threads(products, terms.count, threads=threads, most=_GROUPS)
    else:
        for start, stop, sums in _plain(terms, entries, columns, matches):
            out[start:stop] = sums
    return out


class _Entries(NamedTuple):
    """Entries of all references in the order of groups, and of features within a group; starts (G + 1)."""

    starts: NDArray[np.int64]
    features: NDArray[np.int64]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int64]


def _plain(
    terms: Terms, entries: _Entries, columns: Sparse, matches: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Blocks of groups, start to stop, with all their matches expanded and summed in float64."""
    before = np.concatenate([[0], np.cumsum(matches)])[entries.starts]
    candidates = len(terms.candidates)
    start = 0
    while start < terms.count:
        limit = before[start] + _PLAIN_MATCHES
        stop = max(start + 1, int(np.searchsorted(before, limit, side="right")) - 1)
        stop = min(stop, start + max(1, _PLAIN_MATCHES // max(1, candidates)), terms.count)
        entry_range = slice(int(entries.starts[start]), int(entries.starts[stop]))
        lengths = matches[entry_range]
        positions = concatenated_ranges(columns.starts[entries.features[entry_range]], lengths)
        candidate_rows = columns.columns[positions]
        weights = np.repeat(entries.weights[entry_range].astype(np.float64), lengths) * columns.values[positions]
        if terms.decay is not None and terms.candidate_kinds is not None:
            kinds = np.repeat(entries.kinds[entry_range], lengths)
            weights = weights * terms.decay[kinds, terms.candidate_kinds[candidate_rows]]
        groups = np.repeat(np.arange(stop - start, dtype=np.int64), np.diff(entries.starts[start : stop + 1]))
        cells = np.repeat(groups, lengths) * candidates + candidate_rows
        sums: NDArray[Any] = np.bincount(cells, weights, minlength=(stop - start) * candidates)
        yield start, stop, sums.reshape(stop - start, candidates)
        start = stop


_GROUPS = 32
"""Groups that a thread takes at a time."""


class _Postings(NamedTuple):
    """Features: starts (V + 1), and of each candidate that has the feature its row, weight and kind.

    Rows without a sign need no test for being counted from the end, which takes a third of the time.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    weights: NDArray[np.float32]
    kinds: NDArray[Any]


@no_type_check
def _fill(
    first: int,
    last: int,
    entries: _Entries,
    postings: _Postings,
    decay: NDArray[np.float32],
    block: NDArray[np.float32],
) -> None:
    """Rows first to last of the products into a block of as many rows."""
    width = decay.shape[1]
    factors = np.zeros(width, np.float32)
    for number in range(first, last):
        row = block[number - first]
        row[:] = np.float32(0)
        entry, end = entries.starts[number], entries.starts[number + 1]
        while entry < end:
            feature = entries.features[entry]
            begin, stop = postings.starts[feature], postings.starts[feature + 1]
            rows, weights, kinds = postings.rows[begin:stop], postings.weights[begin:stop], postings.kinds[begin:stop]
            factors[:] = np.float32(0)
            while entry < end and entries.features[entry] == feature:
                weight, kind = entries.weights[entry], entries.kinds[entry]
                for column in range(width):
                    factors[column] += weight * decay[kind, column]
                entry += 1
            if width == 1:
                factor = factors[0]
                for index in range(len(rows)):
                    row[rows[index]] += factor * weights[index]
            else:
                for index in range(len(rows)):
                    row[rows[index]] += factors[kinds[index]] * weights[index]


@functools.cache
def _kernel() -> Callable[..., None]:
    import numba

    return numba.njit(nogil=True)(_fill)
