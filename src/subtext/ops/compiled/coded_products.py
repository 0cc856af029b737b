"""Inner products of many vectors with one, from codes of 8 bits, and how far each may be off.

Of a row x of N vectors with the mean m, y = x - m is coded: c = round(y / s), s = max |y| / 127. A query q is coded by
whole numbers p, too, of 16 bits or fewer: sums stay below 2^31. Then

    |q.x - (q.m + s t p.c)| <= |y - s c| |q| + s |c| |q - t p|        t: the step of p

by the inequality of Cauchy and Schwarz, so that a product of which this is too little needs no look at x. A quarter of
the memory is read, and 16 products are summed at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from numpy.typing import NDArray

_BLOCK = 8192
"""Rows that are coded at a time."""
_ROUNDING = 1e-6
"""Of sums and factors of float32, relative to the lengths."""


@no_type_check
def _multiply(codes: NDArray[np.int8], query: NDArray[np.int16], sums: NDArray[np.int32]) -> None:
    """(N) sums of (N D) codes times (D) numbers."""
    for row in range(codes.shape[0]):
        total = np.int32(0)
        for column in range(codes.shape[1]):
            total = np.int32(total + np.int32(np.int32(codes[row, column]) * np.int32(query[column])))
        sums[row] = total


@functools.cache
def _kernel() -> Callable[..., None]:
    import numba

    return numba.njit(nogil=True)(_multiply)


@dataclass(frozen=True)
class Codes:
    """N vectors as codes.

    Attributes:
        codes: (N D) int8.
        mean: (D) float64, the mean of the vectors.
        steps: (N) float32, s.
        residuals: (N) float32, |y - s c|.
        longest: The largest s |c|.
    """

    codes: NDArray[np.int8]
    mean: NDArray[np.float64]
    steps: NDArray[np.float32]
    residuals: NDArray[np.float32]
    longest: float

    @staticmethod
    def of(vectors: NDArray[np.float32] | NDArray[np.float16]) -> Codes:
        """Code vectors.

        Args:
            vectors: (N D) float32 or float16, N and D 1 or more.

        Returns:
            The codes.
        """
        count = len(vectors)
        mean: NDArray[np.float64] = np.asarray(vectors.mean(axis=0, dtype=np.float64))
        codes = np.empty(vectors.shape, dtype=np.int8)
        steps, residuals, longest = np.empty(count, np.float32), np.empty(count, np.float32), 0.0
        for start in range(0, count, _BLOCK):
            rows = slice(start, start + _BLOCK)
            centred = vectors[rows] - mean.astype(np.float32)
            step = np.abs(centred).max(axis=1, keepdims=True) / 127
            step[step == 0] = 1
            coded = np.rint(centred / step)
            codes[rows], steps[rows] = coded, step[:, 0]
            coded *= step
            longest = max(longest, float(np.linalg.norm(coded, axis=1).max()))
            residuals[rows] = np.linalg.norm(centred - coded, axis=1)
        return Codes(codes, mean, steps, residuals, longest)

    def products(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The products with a query.

        Args:
            query: (D) float32.

        Returns:
            (N) float32 products, and (N) float32 by how much each may be off.

        Example:
            >>> vectors = np.random.default_rng(0).standard_normal((50, 16), dtype=np.float32)
            >>> products, errors = Codes.of(vectors).products(vectors[0])
            >>> bool((np.abs(products - vectors @ vectors[0]) <= errors).all())
            True
        """
        wide = query.astype(np.float64)
        length = float(np.linalg.norm(wide))
        most = min(32_767, (2**31 - 1) // (127 * len(query)))
        step = float(np.abs(wide).max()) / most or 1.0
        coded = np.rint(wide / step)
        sums = np.empty(len(self.codes), dtype=np.int32)
        _kernel()(self.codes, coded.astype(np.int16), sums)
        products = sums * (self.steps * np.float32(step)) + np.float32(self.mean @ wide)
        rest = float(np.linalg.norm(wide - step * coded)) * self.longest
        whole = self.longest + float(np.linalg.norm(self.mean))
        return products.astype(np.float32), self.residuals * np.float32(length) + np.float32(
            rest + _ROUNDING * whole * length
        )
