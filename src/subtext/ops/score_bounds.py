"""Upper bounds of the scores of many pairs, from products of 16-bit integers.

Whoever looks for the largest scores can do without the others, and nearly all pairs are others. Each row is rounded to
integers with a scale of its own; what the rounding can have taken from a score is bounded by Cauchy and Schwarz:

    <u, v> <= s_u s_v <q_u, q_v> + |u - s_u q_u| |v| + |s_u q_u| |v - s_v q_v|

A pair whose bound stays below its limit is done; the few that remain are scored as they are. Processors multiply
integers of 16 bits in pairs (`pmaddwd`), twice as many a cycle as numbers of float32. Numba has no name for vectors, so
the innermost loop is written in LLVM's own language, in operations that every processor has.
"""

from __future__ import annotations

import functools
from math import isqrt
from typing import Any, Literal, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

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
    """N rows as integers; N is filled up with rows of noughts to a multiple of WIDE.

    panels  (N/16 K 16 2) int16: of 16 rows two neighbouring numbers at a time, as a tile reads them
    terms   (4 N) float32, of a row: its scale; its norm; what its rounding can take from a score with a row of norm 1,
            with room for the rounding of sums in float32; and what it adds to each of its scores (L2: -|u|^2 / 2)
    """

    panels: NDArray[np.int16]
    terms: NDArray[np.float32]


def rounded(vectors: Float[np.ndarray, "n d"], *, metric: Literal["l2", "inner"]) -> Rounded:
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
        offset = (2 * rounding - 0.5) * norm**2 if metric == "l2" else np.zeros_like(norm)
        offset += TINY * (norm > 0)
        block = slice(start, start + len(chunk))
        terms[:, block] = scale, norm * (1 + 1e-6), slack * (1 + 1e-6), offset
        by_panel = integers.reshape(-1, WIDE, pairs, 2).transpose(0, 2, 1, 3)
        panels[start // WIDE : start // WIDE + len(by_panel)] = by_panel
    return Rounded(panels, terms)


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


@functools.cache
def lowest() -> Any:
    """A compiled function `lowest(bits)`: the place of the lowest bit that is set, of 64."""
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def place(typing: Any, bits: Any) -> Any:
        def written(context: Any, builder: Any, signature: Any, value: Any) -> Any:
            return builder.cttz(value[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), written

    @numba.njit(nogil=True)
    @no_type_check
    def called(bits: int) -> int:
        return place(bits)

    return called


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
