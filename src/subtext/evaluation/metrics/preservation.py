"""How much of a semantic neighbourhood the joint space keeps (Thomas and Kovashka 2020, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison
from subtext.ops.positive_ranks import positive_ranks


@dataclass(frozen=True)
class Preservation:
    """Share of a query's relevant candidates that are among as many best-scored ones, and its mean over queries.

        |first_E(scores) and match| / E        E the query's own number of positives

    R-Precision, asked within one modality: queries and candidates are the same items, truth.match marks each item's
    neighbours in the semantic graph (`neighbours.truth`), and truth.ignored the item itself. The paper's E is 200.
    Chance is E / (candidates - ignored).

    Equal scores stand in the order of their columns.

    Takes     Comparison; ignored cells are left out.
    Gives     (Q) float64 in [0, 1]; NaN for a query without positives.
    Raises    nothing of its own.
    Cost      a sort of each query's scores.

    >>> from subtext.core import Truth
    >>> match = torch.tensor([[False, True, True, False]])
    >>> Preservation()(Comparison(torch.tensor([[0.1, 0.9, 0.2, 0.5]]), Truth(match))).tolist()
    [0.5]
    """

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(positive_ranks(comparison, stable=True).precision("stable"))
