"""The nearest rows of every row of a matrix, exactly: the graph of k nearest neighbours.

The score of two rows is the same from both sides, so each pair is scored once and offered to both: half of the work of
searching an index for every row. An upper bound of the score, at half the cost of a product in float32, rules out
nearly all pairs; the others are scored exactly, so that the bound costs no neighbour.

Every row keeps a list of keys. A key is a score and a row in 64 bits, so that one comparison of whole numbers orders by
score and settles ties by row. A list that is full is cut to its best, and the worst of these becomes the limit below
which nothing enters.

For the bound, each row is rounded to integers with its own scale, and Cauchy and Schwarz limit the error:

    <u, v> <= s_u s_v <q_u, q_v> + |u - s_u q_u| |v| + |s_u q_u| |v - s_v q_v|

Processors multiply integers of 16 bits in pairs (`pmaddwd`), twice as many a cycle as numbers of float32. Numba cannot
express vectors, so the innermost loop is written in LLVM's language, in operations that every processor has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw
from subtext.ops.in_threads import in_threads

HIGH, WIDE = 4, 16
"""Rows and columns of a tile of pairs: one bit each in 64."""
SCALE, NORM, SLACK, HALF = range(4)
"""Lines of Rounded.terms."""
LONGEST = 9e18
"""A norm up to which float32 holds every score."""
TINY = 2.0**-126
"""Added to bounds: below it float32 loses digits."""
_CHUNK = 4096
"""Rows that are rounded at a time, in float64."""


class Rounded(NamedTuple):
    """N rows, and the same as integers; there N is filled up with rows of noughts to a multiple of WIDE.

    vectors  (N D) float32
    panels  (N/16 K 16 2) int16: of 16 rows two neighbouring numbers at a time, as a tile reads them
    terms   (4 N) float32, of a row: its scale; its norm; what its rounding can take from a score with a row of norm 1,
            with room for the rounding of sums in float32; and what it adds to each of its scores, -|u|^2 / 2
    """

    vectors: NDArray[np.float32]
    panels: NDArray[np.int16]
    terms: NDArray[np.float32]


def rounded(vectors: Float[np.ndarray, "n d"]) -> Rounded:
    """Round each row, none longer than LONGEST; integers are as large as a sum of D products in 32 bits allows."""
    total, width = vectors.shape
    pairs = max(1, -(-width // 2))
    top = min(32767, isqrt((2**31 - 1) // (2 * pairs)))
    panels = np.zeros((-(-total // WIDE), pairs, WIDE, 2), dtype=np.int16)
    terms = np.zeros((4, len(panels) * WIDE), dtype=np.float32)
    # The sum of D products in float32 is off by at most D half units of the last place; a few more for what follows.
    rounding = (2 * pairs + 16) * 2.0**-24
    for start in range(0, total, _CHUNK):
        chunk = np.zeros((min(_CHUNK, len(panels) * WIDE - start), 2 * pairs))
        chunk[: min(_CHUNK, total - start), :width] = vectors[start : start + _CHUNK]
        scale = (np.abs(chunk).max(axis=1) / top).astype(np.float32)
        # A scale of the smallest numbers has few digits: what it cannot reach is lost, and counted.
        integers = np.rint(chunk / np.where(scale > 0, scale, 1.0)[:, None]).clip(-top, top)
        norm = np.sqrt((chunk**2).sum(axis=1))
        residual = np.sqrt(((chunk - integers * scale[:, None].astype(np.float64)) ** 2).sum(axis=1))
        # |r_u||v| + (|u| + |r_u|)|r_v| is at most |u||v| times the sum of e + e^2 of both, with e = |r| / |u|.
        slack = residual * (1 + residual / np.where(norm > 0, norm, 1.0)) + rounding * norm
        offset = (2 * rounding - 0.5) * norm**2 + TINY * (norm > 0)
        block = slice(start, start + len(chunk))
        terms[:, block] = scale, norm * (1 + 1e-6), slack * (1 + 1e-6), offset
        by_panel = integers.reshape(-1, WIDE, pairs, 2).transpose(0, 2, 1, 3)
        panels[start // WIDE : start // WIDE + len(by_panel)] = by_panel
    return Rounded(vectors, panels, terms)


@functools.cache
def reached(lanes: int | None = None) -> Any:
    """A compiled function `reached(where, row, column)` that answers for a tile of 4 rows and 16 columns.

    The answer is a bit a pair in 64, the first row's 16 lowest: does its bound

        s_u s_v <q_u, q_v> + |u| slack_v + slack_u |v| + half_u + half_v

    reach the limit of its row, or that of its column?

    where   six whole numbers: the address of Rounded.panels, with K; that of its terms, with the length of a line; and
            those of two lines of float32 limits, of rows and of columns
    row     the tile's first row, a multiple of 4; column its first column, a multiple of 16
    lanes   numbers of 16 bits that a vector holds, 16 or 32; None: as many as this processor's registers do
    """
    import numba
    from llvmlite import binding
    from numba import types
    from numba.extending import intrinsic

    width = lanes or (32 if binding.get_host_cpu_features().get("avx512bw") else 16)

    @intrinsic
    def tile(typing: Any, where: Any, row: Any, column: Any) -> Any:
        def written(context: Any, builder: Any, signature: Any, value: Any) -> Any:
            return _Writer(builder, width).tile(*value)

        return types.uint64(types.UniTuple(types.intp, 6), types.intp, types.intp), written

    @numba.njit(nogil=True)
    @no_type_check
    def called(where: Any, row: int, column: int) -> int:
        return tile(where, row, column)

    return called


_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
"""Its 64 windows of six bits are all different."""
_BIT_OF_WINDOW = np.zeros(64, dtype=np.int64)
_BIT_OF_WINDOW[[(int(_DE_BRUIJN) << bit) % 2**64 >> 58 for bit in range(64)]] = range(64)


@no_type_check
def lowest(bits: np.uint64) -> int:
    """The position of the lowest bit that is set, of 64; to be compiled."""
    return _BIT_OF_WINDOW[((bits & (~bits + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58)]


class _Writer:
    """Writes the tile of `reached` in LLVM's language."""

    def __init__(self, builder: Any, lanes: int) -> None:
        from llvmlite import ir

        self.builder = builder
        self.lanes, self.side = lanes, lanes // 2  # columns that a vector of sums holds
        self.vectors = range(WIDE // self.side)
        self.word, self.index, self.real = ir.IntType(32), ir.IntType(64), ir.FloatType()
        self.sums, self.reals = ir.VectorType(self.word, self.side), ir.VectorType(self.real, self.side)
        self.halves, self.whole = ir.VectorType(ir.IntType(16), lanes), ir.VectorType(self.word, lanes)
        self.bits = ir.IntType(self.side)
        self.constant, self.unknown = ir.Constant, ir.Undefined

    def number(self, value: int) -> Any:
        """A whole number, for places and counts."""
        return self.constant(self.index, value)

    def at(self, address: Any, kind: Any, offset: Any) -> Any:
        """Where the `offset`-th value of a kind lies behind an address."""
        return self.builder.gep(self.builder.inttoptr(address, kind.as_pointer()), [offset])

    def read(self, address: Any, kind: Any) -> Any:
        """A value, or a vector of values, of 32 bits."""
        loaded = self.builder.load(self.builder.bitcast(address, kind.as_pointer()))
        loaded.align = 4
        return loaded

    def everywhere(self, value: Any, kind: Any) -> Any:
        """A vector that holds one value throughout."""
        none = self.constant(kind, self.unknown)
        first = self.builder.insert_element(none, value, self.constant(self.word, 0))
        zeros = self.constant(type(kind)(self.word, kind.count), None)
        return self.builder.shuffle_vector(first, none, zeros)

    def products(self, row_address: Any, column_address: Any, pairs: Any) -> list[list[Any]]:
        """The products of 4 rows and 16 columns, a vector at a time; each begins at a place and goes on panel-wise."""
        builder, number = self.builder, self.number
        before = builder.block
        loop, after = builder.append_basic_block("products"), builder.append_basic_block("bounds")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(self.index)
        step.add_incoming(number(0), before)
        carried = [[builder.phi(self.sums) for _ in self.vectors] for _ in range(HIGH)]
        offset = builder.mul(step, number(WIDE))
        pair = [
            self.read(builder.gep(row_address, [builder.add(offset, number(high))]), self.word) for high in range(HIGH)
        ]
        rows = [builder.bitcast(self.everywhere(word, self.sums), self.halves) for word in pair]
        starts = [
            builder.gep(column_address, [builder.add(offset, number(vector * self.side))]) for vector in self.vectors
        ]
        columns = [builder.sext(self.read(start, self.halves), self.whole) for start in starts]
        even, odd = (self.constant(self.sums, list(range(first, self.lanes, 2))) for first in (0, 1))
        sums = []
        for high in range(HIGH):
            row = builder.sext(rows[high], self.whole)
            row_sums = []
            for column, carry in zip(columns, carried[high], strict=True):
                product = builder.mul(row, column)
                # The products of neighbours, and their sum: one instruction, where there is one.
                both = (builder.shuffle_vector(product, product, parity) for parity in (even, odd))
                row_sums.append(builder.add(carry, builder.add(*both)))
                carry.add_incoming(self.constant(self.sums, None), before)
                carry.add_incoming(row_sums[-1], loop)
            sums.append(row_sums)
        following = builder.add(step, number(1))
        step.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, pairs), loop, after)
        builder.position_at_end(after)
        return sums

    def tile(self, where: Any, row: Any, column: Any) -> Any:
        """The whole answer."""
        builder, number = self.builder, self.number
        addresses = (builder.extract_value(where, index) for index in range(6))
        panels, pairs, terms, length, row_limits, column_limits = addresses

        def of_row(address: Any, line: int, high: int) -> Any:
            index = builder.add(builder.mul(length, number(line)), builder.add(row, number(high)))
            return self.everywhere(self.read(self.at(address, self.real, index), self.real), self.reals)

        def of_columns(address: Any, line: int, vector: int) -> Any:
            index = builder.add(builder.mul(length, number(line)), builder.add(column, number(vector * self.side)))
            return self.read(self.at(address, self.real, index), self.reals)

        # A panel holds 16 rows: rows are taken four at a time, columns all. A pair of numbers is a word.
        panel = builder.mul(builder.lshr(row, number(4)), builder.mul(pairs, number(WIDE)))
        row_address = self.at(panels, self.word, builder.add(panel, builder.and_(row, number(WIDE - 1))))
        sums = self.products(row_address, self.at(panels, self.word, builder.mul(column, pairs)), pairs)
        answer = number(0)
        for high in range(HIGH):
            scale, norm, slack, offset = (of_row(terms, line, high) for line in (SCALE, NORM, SLACK, HALF))
            limit = of_row(row_limits, 0, high)
            for vector in self.vectors:
                scales, norms, slacks, parts = (of_columns(terms, line, vector) for line in (SCALE, NORM, SLACK, HALF))
                # One scale after the other: the product of two may be too small for float32.
                product = builder.fmul(builder.fmul(builder.sitofp(sums[high][vector], self.reals), scale), scales)
                spare = builder.fadd(builder.fmul(norm, slacks), builder.fmul(slack, norms))
                bound = builder.fadd(builder.fadd(product, spare), builder.fadd(offset, parts))
                by_row = builder.fcmp_ordered(">=", bound, limit)
                by_column = builder.fcmp_ordered(">=", bound, of_columns(column_limits, 0, vector))
                bits = builder.zext(builder.bitcast(builder.or_(by_row, by_column), self.bits), self.index)
                answer = builder.or_(answer, builder.shl(bits, number(high * WIDE + vector * self.side)))
        return answer


_LOW = 0x7FFFFFFF
"""A key's lower half: this less the row, so that among equal scores the first row has the largest key. Its upper half
is the score's bits; those of a negative score with all but their sign turned over, so that they order as numbers do."""
NO_BAR = np.iinfo(np.int64).min
"""The bar of a list from which nothing was dropped for being too small."""
PANELS = 64
"""Panels of columns that all rows of a block meet before the next: they stay in a processor's second cache."""
FILLED, BAR, NAME, CAPACITY = range(4)
"""Lines of Lists.state."""


class Lists(NamedTuple):
    """The best candidates so far of N rows.

    keys    (N S) int64, score and name of each candidate, in no order; S is room for them
    state   (4 N) int64: how many keys of a row count, the key that a new one has to pass, what the row is called in
            keys, and how many a full list is cut to
    limits  (M) float32, the score of the key to pass: nothing below it is looked at; filled up with infinity to whole
            panels; limit_bits are the same numbers as int32
    groups  (G N) int64: a candidate that shares one of them with the row is no neighbour of it
    """

    keys: NDArray[np.int64]
    state: NDArray[np.int64]
    limits: NDArray[np.float32]
    limit_bits: NDArray[np.int32]
    groups: NDArray[np.int64]


@no_type_check
def _cut(keys: Any, length: int, count: int) -> None:
    """Put the `count` largest of the first `length` keys in front, the smallest of these last (Hoare's selection)."""
    left, right, last = 0, length - 1, count - 1
    while left < right:
        pivot = keys[(left + right) >> 1]
        i, j = left, right
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if last <= j:
            right = j
        elif last >= i:
            left = i
        else:
            break


@no_type_check
def _score(vectors: Any, row: int, column: int) -> float:
    """The score of two rows: the same from both sides, and nought for equal rows."""
    total = np.float32(0)
    for d in range(vectors.shape[1]):
        difference = vectors[row, d] - vectors[column, d]
        total += difference * difference
    return np.float32(-0.5) * total


@no_type_check
def _sift(
    reached: Any, lowest: Any, score: Any, cut: Any, pairs: Any, limits: Any, lists: Any, block: tuple[int, ...]
) -> None:
    """Offer the pairs of a block to the lists of its rows and of its columns.

    pairs   the rows, as `Rounded`
    limits  two lines of N limits, of rows and of columns: those of the lists, or infinite for a side that takes nothing
    block   the first and the last row and column; whether rows and whether columns take

    One function, because a call that hands over eight arrays costs more than an offer: half of the whole time.
    """
    vectors, panels, terms = pairs
    keys, state, _, limit_bits, groups = lists
    lengths, bar, name, capacities = state[FILLED], state[BAR], state[NAME], state[CAPACITY]
    top, bottom, left, right, rows_take, columns_take = block
    rounded = (panels.ctypes.data, panels.shape[1], terms.ctypes.data, terms.shape[1])
    addresses = (*rounded, limits[0].ctypes.data, limits[1].ctypes.data)
    unit = np.uint64(1)
    for start in range(left // WIDE * WIDE, right, PANELS * WIDE):
        columns = min(PANELS, (right - start + WIDE - 1) // WIDE)
        for panel in range(top // WIDE * WIDE, bottom, WIDE):
            # Four tiles high, then a panel of columns further.
            for tile in range(columns * (WIDE // HIGH)):
                row_tile, column_tile = panel + tile * HIGH % WIDE, start + tile * HIGH // WIDE * WIDE
                hits = reached(addresses, row_tile, column_tile)
                while hits != 0:
                    bit = lowest(hits)
                    hits &= hits - unit
                    across, down = row_tile + bit // WIDE, column_tile + bit % WIDE
                    # Tiles reach over the edges of a block.
                    if across < top or across >= bottom or down < left or down >= right:
                        continue
                    allowed = True
                    for group in range(groups.shape[0]):
                        allowed = allowed and groups[group, across] != groups[group, down]
                    if not allowed:
                        continue
                    # Nought has one sign: -0 would order below 0.
                    value = np.float32(score(vectors, across, down) + np.float32(0))
                    bits = np.int64(value.view(np.int32))
                    high = bits if bits >= 0 else bits ^ _LOW
                    for side in range(2):
                        row, candidate = (down, across) if side else (across, down)
                        if not (columns_take if side else rows_take):
                            continue
                        key = (high << 32) | (_LOW - name[candidate])
                        if key <= bar[row]:
                            continue
                        count, capacity = lengths[row], capacities[row]
                        keys[row, count] = key
                        count += 1
                        if count >= capacity + max(16, capacity // 2):
                            cut(keys[row], count, capacity)
                            count = capacity
                            bar[row] = keys[row, capacity - 1]
                            worst = bar[row] >> 32
                            limit_bits[row] = worst if worst >= 0 else worst ^ _LOW
                        lengths[row] = count


@no_type_check
def _finish(cut: Any, lists: Any, rows: Any, bits: Any, part: tuple[int, int]) -> None:
    """Write each row's best candidates and the bits of their scores, best first, in the place of its name."""
    count = rows.shape[1]
    for row in range(part[0], part[1]):
        name = lists.state[NAME, row]
        length = lists.state[FILLED, row]
        if length > count:
            cut(lists.keys[row], length, count)
            length = count
        best = np.sort(lists.keys[row, :length])
        for rank in range(length):
            key = best[length - 1 - rank]
            high = key >> 32
            rows[name, rank] = _LOW - (key & _LOW)
            bits[name, rank] = high if high >= 0 else high ^ _LOW


@no_type_check
def _score_first(score: Any, pairs: Any, row: int, scores: Any) -> None:
    """The scores of a row with the first rows, as many as there is room for."""
    for column in range(len(scores)):
        scores[column] = score(pairs[0], row, column) + np.float32(0)


@functools.cache
def _compiled() -> dict[str, Callable[..., None]]:
    import numba

    jit = numba.njit(nogil=True)
    score = numba.njit(nogil=True, fastmath={"contract", "reassoc"})(_score)
    cut = jit(_cut)
    return {
        "sift": functools.partial(jit(_sift), reached(), jit(lowest), score, cut),
        "finish": functools.partial(jit(_finish), cut),
        "score": functools.partial(jit(_score_first), score),
    }


ROWS, COLUMNS = 1024, 8192
"""A block of pairs. Between blocks threads change sides and progress is reported."""
SMALL = 4096
"""Rows up to which lists are sorted whole: that is done before a kernel would be compiled."""
SAMPLE = 256
"""Rows of the first band: their scores set the first limits."""


@dataclass(frozen=True)
class NearestRows:
    """The nearest rows of each of N rows, nearest first.

    rows    (N E) int32; -1 behind the last of a list that is shorter than E; equal scores by row
    scores  (N E) float32, larger is nearer: minus half of the squared distance; minus infinity where there is no row
    """

    rows: Int[np.ndarray, "n e"]
    scores: Float[np.ndarray, "n e"]


def nearest_rows(
    vectors: Float[np.ndarray, "n d"],
    *,
    count: int,
    candidates: Bool[np.ndarray, "n"] | None = None,
    groups: Int[np.ndarray, "g n"] | None = None,
    progress: Callable[[int], None] | None = None,
) -> NearestRows:
    """For every row the `count` other rows nearest to it, all compared.

        s_ij = -|v_i - v_j|^2 / 2

    vectors     (N D) finite; float32 is what is computed in
    count       E, 1 or more
    candidates  (N) which rows may be neighbours; all of them by default. The others get neighbours, and are none
    groups      (G N) int64: a row that shares its number in one of the G lines is no neighbour (a duplicate, a text of
                the same image)
    progress    hears how many of the N rows are finished

    Scores are sums in float32: rows whose scores agree to its last bits may change places.

    Raises ShapeError for numbers that are not finite or too large, a `count` below 1, or groups of another length.
    Cost time N^2 D / 2 products of 16-bit integers; memory 1.5 E N keys of 8 bytes, and 1.5 copies of the vectors.

    >>> found = nearest_rows(np.float32([[0], [1], [3]]), count=2)
    >>> found.rows.tolist(), found.scores[0].tolist()
    ([[1, 2], [0, 2], [1, 0]], [-0.5, -4.5])
    """
    if count < 1:
        raise ShapeError(f"nearest_rows needs a count of 1 or more; it got {count}")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ShapeError(f"nearest_rows needs finite numbers; row {bad} of the vectors has NaN or infinity")
    longest = float(np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64).max(initial=0)))
    if longest > LONGEST:
        raise ShapeError(f"scores of vectors as long as {longest:.3g} leave float32: scale the vectors")
    total = len(vectors)
    row_numbers = np.arange(total, dtype=np.int64)[None]
    groups = row_numbers if groups is None else np.concatenate([row_numbers, groups.astype(np.int64)])
    allowed = np.ones(total, dtype=bool) if candidates is None else candidates
    if total <= SMALL:
        result = _sorted(vectors, groups, allowed, count)
        if progress is not None:
            progress(total)
        return result
    # Rows that may be neighbours first; shuffled, so that the first are a sample of all.
    shuffled = draw.permutation(total, seed=0, epoch=0, purpose="nearest rows")
    order = shuffled[np.argsort(~allowed[shuffled], kind="stable")]
    candidate_count = int(allowed.sum())
    ordered = np.ascontiguousarray(vectors[order], dtype=np.float32)
    pairs = rounded(ordered)
    limits = np.full(-(-total // WIDE) * WIDE, np.inf, dtype=np.float32)
    limits[:total] = -np.inf
    state = np.zeros((4, total), dtype=np.int64)
    state[BAR], state[NAME], state[CAPACITY] = NO_BAR, order, count
    # Half as much again as is kept: most keys enter without a cut.
    keys = np.empty((total, count + max(16, count // 2)), dtype=np.int64)
    lists = Lists(keys, state, limits, limits.view(np.int32), np.ascontiguousarray(groups[:, order]))
    _sweep(pairs, lists, candidate_count=candidate_count, count=count, progress=progress)
    rows = np.full((total, count), -1, dtype=np.int32)
    scores = np.full((total, count), -np.inf, dtype=np.float32)
    finish, score = _compiled()["finish"], _compiled()["score"]
    in_threads(lambda part: finish(lists, rows, scores.view(np.int32), (part.start, part.stop)), total)
    # A list that fell short of `count` after something was dropped was guessed too short: it is filled without a guess.
    names = lists.state[NAME]
    for row in np.flatnonzero((lists.state[FILLED] < count) & (lists.state[BAR] != NO_BAR)):
        row_scores = np.empty(candidate_count, dtype=np.float32)
        score(pairs, row, row_scores)
        others = np.flatnonzero((lists.groups[:, :candidate_count] != lists.groups[:, row, None]).all(axis=0))
        best = others[np.lexsort((names[others], -row_scores[others]))][:count]
        rows[names[row], : len(best)], scores[names[row], : len(best)] = names[best], row_scores[best]
    if progress is not None:
        progress(total)
    return NearestRows(rows, scores)


def _sorted(
    vectors: NDArray[np.float32], groups: NDArray[np.int64], allowed: NDArray[np.bool_], count: int
) -> NearestRows:
    """The same by sorting all scores of a row."""
    total = len(allowed)
    rows = np.full((total, count), -1, dtype=np.int32)
    best = np.full((total, count), -np.inf, dtype=np.float32)
    candidates = np.flatnonzero(allowed)
    # Seen from one of them, distant rows lose nothing to cancellation, and whole numbers stay whole.
    points = vectors.astype(np.float64) - vectors[0]
    halves = -0.5 * np.einsum("nd,nd->n", points, points)
    for start in range(0, total, 512):
        scores = points[start : start + 512] @ points[candidates].T + halves[start : start + 512, None]
        scores += halves[candidates]
        block_groups = groups[:, start : start + 512, None]
        scores[(block_groups == groups[:, None, candidates]).any(axis=0)] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        best_scores = np.take_along_axis(scores, order, axis=1)
        block = slice(start, start + len(best_scores)), slice(0, best_scores.shape[1])
        for line, neighbours in enumerate(candidates[order]):
            # Once more from differences: equal rows have a distance of nought.
            squares = ((points[neighbours] - points[start + line]) ** 2).sum(axis=1)
            best_scores[line] = np.where(best_scores[line] > -np.inf, -0.5 * squares, -np.inf)
        best[block] = best_scores
        rows[block] = np.where(best_scores > -np.inf, candidates[order], -1)
    return NearestRows(rows, best)


def _sweep(
    pairs: Rounded, lists: Lists, *, candidate_count: int, count: int, progress: Callable[[int], None] | None
) -> None:
    """Offer every pair of a row that may be a neighbour with itself and those behind it to the lists of both, once."""
    total, threads, kernel = len(lists.keys), torch.get_num_threads(), _compiled()["sift"]
    # Bands of rows: each as high as all before it, until they are ROWS high.
    growing = [SAMPLE * 2**step for step in range(16) if SAMPLE * 2**step < min(ROWS, candidate_count)]
    bands = [0, *growing, *range(ROWS, candidate_count, ROWS), candidate_count]
    with ThreadPoolExecutor(threads) as pool:
        for top, bottom in pairwise(bands):
            # What a row was compared with tells how few of its best can matter: those of the band see all of it.
            lists.state[CAPACITY, bottom:] = _guess(bottom, candidate_count, count)
            # Columns of the band: the band itself, then what lies behind it, apart where candidates end.
            ends = ((bottom, candidate_count), (candidate_count, total))
            behind = [cut for start, stop in ends for cut in pairwise([*range(start, stop, COLUMNS), stop])]
            for left, right in [(top, bottom), *behind]:
                lists.state[CAPACITY, top:bottom] = _guess(min(right, candidate_count), candidate_count, count)
                # Whether rows of the block take, and whether columns do; with both, they are different ones.
                takers = (left < candidate_count, left != top)
                infinite = np.full(0 if all(takers) else total, np.inf, dtype=np.float32)
                limits = tuple(lists.limits if takes else infinite for takes in takers)
                offer = functools.partial(kernel, pairs, limits, lists)
                tops = np.linspace(top, bottom, threads + 1).astype(np.int64).tolist()
                lefts = np.linspace(left, right, threads + 1).astype(np.int64).tolist()
                for step in range(threads):
                    # In one step no two threads share a row or a column, so that each list has one writer.
                    sides = [(number + step) % threads for number in range(threads)]
                    edges = [
                        (tops[number], tops[number + 1], lefts[side], lefts[side + 1], *map(int, takers))
                        for number, side in enumerate(sides)
                    ]
                    list(pool.map(offer, edges))
            if progress is not None:
                done = bottom / max(candidate_count, 1)
                progress(int(total * done * (2 - done)))


def _guess(compared: int, candidate_count: int, count: int) -> int:
    """How many of the best among the first `compared` candidates to keep; their worst is then below the true limit.

    Of the `count` nearest about m = count * compared / candidates are among a random sample. More than m + 5 sqrt(m)
    + 2 are there once in a hundred thousand rows or less. A list then ends shorter than `count`, and is filled again: a
    wrong guess costs time, and no neighbour.
    """
    expected = count * compared / max(candidate_count, 1)
    return min(count, int(expected + 5 * expected**0.5 + 2))
