"""Asymmetry III (Gong et al. 2024): a text that says less of what its picture shows."""

from __future__ import annotations

import math

FEWEST = 3
"""Words that are always left, where there are so many."""
LEAST, MOST = 0.5, 0.9
"""Share of its words that is left of a text, drawn evenly between; the paper does not state it."""


def shortened(text: str, drawn: float) -> str:
    """The first words of a text, between half and nine tenths of them.

    drawn  in [0, 1): where between

    Words are what stands between spaces. A text of three words or fewer stays as it is, and so does one of a script
    that sets no spaces.

    >>> shortened("a brown dog runs along the wet sand", 0.0)
    'a brown dog runs'
    """
    words = text.split()
    left = max(FEWEST, math.ceil((LEAST + (MOST - LEAST) * drawn) * len(words)))
    return text if left >= len(words) else " ".join(words[:left])
