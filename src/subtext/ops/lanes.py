"""Rows of a whole number of lanes: what a score is must not depend on where its numbers lie.

Matrix kernels read several numbers at once. Rows that are no multiple of that begin at addresses where the same row is
read, and rounded, in another way, so that scores would depend on their neighbours. Zeros at a row's end mend it: they
change no product, no sum and no length.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LANES = 8
"""Numbers a row is a multiple of: 16 bytes in half precision, 32 in single."""


def filled(values: Float[Tensor, "*shape"], axes: int = 1) -> Float[Tensor, "*filled"]:
    """The same values with zeros up to a multiple of LANES along each of the last `axes` axes.

    >>> filled(torch.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return grown(values, *(-(-size // LANES) * LANES for size in values.shape[values.ndim - axes :]))


def grown(values: Float[Tensor, "*shape"], *sizes: int) -> Float[Tensor, "*grown"]:
    """The same values with zeros up to these sizes of the last axes; what is larger stays as it is."""
    last = values.shape[values.ndim - len(sizes) :]
    missing = [max(size - own, 0) for size, own in zip(sizes, last, strict=True)]
    if not any(missing):
        return values
    return torch.nn.functional.pad(values, [side for size in reversed(missing) for side in (0, size)])
