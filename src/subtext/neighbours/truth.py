"""The semantic graph as the truth of a within-modality Comparison, for the metric of neighbourhood preservation."""

from __future__ import annotations

import numpy as np
import torch

from subtext.core import Truth
from subtext.neighbours.graph import Graph


def truth(graph: Graph, start: int, stop: int) -> Truth:
    """Rows start to stop of the graph against all of its rows: neighbours are positive, a row itself is ignored."""
    stop = min(stop, len(graph))
    neighbours = np.asarray(graph.neighbours[start:stop])
    rows, columns = np.nonzero(neighbours >= 0)
    match = torch.zeros(stop - start, len(graph), dtype=torch.bool)
    match[torch.from_numpy(rows), torch.from_numpy(neighbours[rows, columns].astype(np.int64))] = True
    self_match = torch.zeros_like(match)
    self_match[torch.arange(stop - start), torch.arange(start, stop)] = True
    return Truth(match=match, ignored=self_match)
