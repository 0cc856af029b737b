"""A sparse matrix by rows: selection, transposition and products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

SLAB = 128
"""Columns of a dense matrix multiplied at a time: their rows stay in the cache."""


@dataclass(frozen=True)
class Sparse:
    """A matrix of N rows and V columns by its entries, row after row.

    starts   (N + 1) int64, the start of each row among the entries
    columns  (L) int64, rising within a row         values  (L) float32
    width    V
    """

    starts: Int[np.ndarray, "n1"]
    columns: Int[np.ndarray, "l"]
    values: Float[np.ndarray, "l"]
    width: int

    def __len__(self) -> int:
        """N, the number of rows."""
        return len(self.starts) - 1

    @staticmethod
    def of_entries(
        rows: Int[np.ndarray, "l"],
        columns: Int[np.ndarray, "l"],
        values: Float[np.ndarray, "l"],
        *,
        count: int,
        width: int,
    ) -> Sparse:
        """`count` rows from their entries. Columns must rise within a row."""
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
        return Sparse(starts, columns[order], values[order].astype(np.float32), width)

    def take(self, rows: NDArray[np.int64]) -> Sparse:
        """The selected rows, in that order."""
        lengths = (self.starts[1:] - self.starts[:-1])[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = concatenated_ranges(self.starts[rows], lengths)
        return Sparse(starts, self.columns[entries], self.values[entries], self.width)

    def transposed(self) -> Sparse:
        """The same entries, column after column."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(len(self), dtype=np.int64), self.starts[1:] - self.starts[:-1])
        counts = np.bincount(self.columns, minlength=self.width)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Sparse(starts, rows[order], self.values[order], len(self))

    def times(self, dense: Float[Tensor, "v d"]) -> Float[Tensor, "n d"]:
        """The product with a dense matrix."""
        columns, starts = torch.from_numpy(self.columns), torch.from_numpy(self.starts[:-1])
        values = torch.from_numpy(self.values)
        slabs = [
            embedding_bag(columns, slab.contiguous(), starts, mode="sum", per_sample_weights=values)
            for slab in dense.split(SLAB, dim=1)
        ]
        return torch.cat(slabs, dim=1)


def concatenated_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, ... of every range, one range after the other.

    >>> concatenated_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
