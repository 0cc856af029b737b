"""Whether anything fits a query on a bare folder: images without texts, and nobody has given pairs.

The level of a query is high where many images score high, or a few very high:

    t log mean over a sample of exp(s / t)        t = `SOFTNESS` standard deviations of the scores of everyday captions

It is compared with the levels of 200 everyday captions, whichever the images are. A query below most of them is about
something that the images are further from than from everyday life. This says less than given pairs do, which
`subtext index calibrate` takes; see docs/decisions/0202.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

EVERYDAY: tuple[str, ...] = tuple(
    f"{who} {where}"
    for who in (
        "a man", "two women", "a child", "a dog", "a cat", "a bird", "a car", "a bicycle", "a boat", "a house",
        "a tree", "some flowers", "a group of people", "an old man", "a girl laughing", "a boy with a ball",
        "a horse", "a cup and a plate", "a street sign", "a musician",
    )
    for where in (
        "in a park", "on the beach", "in a kitchen", "in the snow", "on a busy street", "at night", "by a river",
        "in front of a building", "on a table", "in a field",
    )
)  # fmt: skip
SOFTNESS = 1.5
"""t, in standard deviations of the scores."""
WEAK = 0.1
"""Share of everyday captions whose levels are so low that nothing fits."""
LEAST = 100
"""Images below which levels say nothing."""


def level_of(scores: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """The levels of queries.

    Args:
        scores: (Q M) of a sample of images.
        temperature: t, above 0, in units of the scores.

    Returns:
        (Q) levels, in units of the scores.

    Example:
        >>> level_of(np.float32([[0.5, 0.5], [1.0, 0.0]]), 0.25).round(3).tolist()
        [0.5, 0.831]
    """
    wide = scores.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True)
    return highest[:, 0] + temperature * np.log(np.exp((wide - highest) / temperature).mean(axis=1))


def everyday_levels(scores: Callable[[Sequence[str]], NDArray[np.float32]]) -> tuple[list[float], float]:
    """The levels of everyday captions.

    Args:
        scores: Texts to (Q M) scores of a sample of images.

    Returns:
        (101) quantiles of the levels, rising, and the temperature.
    """
    found = scores(EVERYDAY)
    temperature = SOFTNESS * float(found.std(axis=1, dtype=np.float64).mean()) or 1.0
    return np.quantile(level_of(found, temperature), np.linspace(0, 1, 101)).round(6).tolist(), temperature
