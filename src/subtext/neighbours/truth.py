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
    rows, places = np.nonzero(neighbours >= 0)
    match = torch.zeros(stop - start, len(graph), dtype=torch.bool)
    match[torch.from_numpy(rows), torch.from_numpy(neighbours[rows, places].astype(np.int64))] = True
    own = torch.zeros_like(match)
    own[torch.arange(stop - start), torch.arange(start, stop)] = True
    return Truth(match=match, ignored=own)
