"""`subtext weights report`: the neighbourhood scores of a data set, and the weights that come of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reproduce.weight_gallery import weight_gallery
from reproduce.weight_statistics import Weights, explain
from subtext.api.load import Opened, Work, open_work
from subtext.data.atomic import require_file, write_text
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.evaluation import embed_pairs
from subtext.models.model import Model
from subtext.objectives.weighting.neighbourhood import Combine, Neighbourhood
from subtext.report.page import render
from subtext.report.plots import Histogram, histograms
from subtext.report.progress import meter
from subtext.report.text_table import Cell, table
from subtext.training.weight_tables import NeighbourMemory, NeighbourScores

COMBINE: Mapping[str, Combine] = {"diversity": "absdiff", "discrepancy": "absdiff", "combined": "mean"}
"""How each method joins the weights of pictures and texts, unless told otherwise."""


@dataclass(frozen=True)
class Asked:
    """How scores are made and weights told.

    neighbours   0 for all                  views   how several views of an item compare
    total, batch lambda, and pairs of a batch
    combine      of the two modalities; None for each method's own
    beta, gamma  of diversity and discrepancy, where both are combined
    """

    graph: Path
    neighbours: int
    views: Any
    total: float
    batch: int
    combine: Any
    beta: float = 3.0
    gamma: float = 1.0


@dataclass(frozen=True)
class Shown:
    """Files to write beside what is told: histograms (SVG), and a page of the `top` lightest and heaviest pairs."""

    plot: Path | None = None
    page: Path | None = None
    top: int = 12


def report(work: Work, asked: Asked, shown: Shown, *, in_json: bool = False) -> str:
    """Embed the split with the run, score its pairs in the graph, and describe scores and weights.

    Raises what opening, reading and the graph raise, and RequirementError for a model that only scores pairs.
    """
    for file in (shown.plot, shown.page):
        if file is not None:
            require_file(file)
    opened = open_work(work).by_mean("weights report")
    pairs = opened.pairs
    if asked.views != "max":
        _require_views(asked, opened.model, pairs)
    memory = NeighbourScores(asked.graph, neighbours=asked.neighbours, views=asked.views).open(
        pairs, device=torch.device("cpu")
    )
    tables = tables_of(memory, opened, work)
    weighting = Neighbourhood(asked.total, combine=asked.combine or "absdiff", batch=asked.batch)
    combined = _combined(asked, weighting)
    weights = explain(tables, weighting, combined=combined, batch=asked.batch)
    if shown.plot is not None:
        write_text(shown.plot, histograms(_panels(weights)))
    if shown.page is not None:
        title = f"Pairs by weight: {work.run}, {opened.split}"
        made = weight_gallery(tables, weighting, combined, pairs, title=title, batch=asked.batch, top=shown.top)
        write_text(shown.page, render(made))
    if in_json:
        facts = {"run": str(work.run), "split": opened.split, "graph": str(asked.graph), "total": asked.total}
        facts |= {"batch": asked.batch, "combine": asked.combine or COMBINE}
        return json.dumps({**facts, **weights.to_json()}, indent=2)
    files = [("histograms", shown.plot), ("lightest and heaviest pairs", shown.page)]
    return "\n".join([*_told(weights, asked), *(f"{name}: {file}" for name, file in files if file is not None)])


def tables_of(memory: NeighbourMemory, opened: Opened, work: Work) -> Mapping[str, torch.Tensor]:
    """Both scores of an opened run's pairs in its space as it is now, named as in `NeighbourMemory`."""
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        found = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
    memory.look(*found)
    memory.begin(epoch=1, seed=0, embed=lambda: found)
    assert memory.table is not None
    return memory.table


def _combined(asked: Asked, weighting: Neighbourhood) -> dict[str, Neighbourhood]:
    """COMBINED-VAL with this beta and gamma, and COMBINED-STATS."""
    mean = replace(weighting, combine=asked.combine or COMBINE["combined"])
    return {
        f"combined {asked.beta:g}:{asked.gamma:g}": replace(mean, diversity=asked.beta, discrepancy=asked.gamma),
        "combined by statistics": replace(mean, diversity=1.0, discrepancy=1.0, statistics="pooled"),
    }


def _require_views(asked: Asked, model: Model, pairs: Dataset) -> None:
    """Raise RequirementError where items have one view: the option would change nothing."""
    one = np.zeros(1, dtype=np.int64)
    found = embed_pairs(model, pairs.subset(one, one), batch_size=1, workers=0)
    if max(items.views for items in found) == 1:
        raise RequirementError(
            f"--views {asked.views} needs a run with several views of an item (pvse, views above 1); this one has one; "
            "leave --views out"
        )


def _told(weights: Weights, asked: Asked) -> list[str]:
    rows: list[list[Cell]] = [
        [name, one.known, f"{one.mean:.4f}", f"{one.deviation:.4f}", f"{one.low:.3f}", f"{one.high:.3f}"]
        for name, one in weights.spreads.items()
    ]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in weights.effective.items())
    related = ", ".join(f"{name} {value:.3f}" for name, value in weights.correlation.items())
    return [
        table(["score", "pairs", "mean", "deviation", "least", "greatest"], rows),
        f"Spearman's correlation of the two scores: {related} (paper: 0.052)",
        f"effective sample size of the weights ({asked.total:g} over {asked.batch} pairs, "
        f"{asked.combine or 'absdiff; combined: mean'}): {shares}",
    ]


def _panels(weights: Weights) -> list[Histogram]:
    return [
        Histogram(name, f"mean {one.mean:.4f}, deviation {one.deviation:.4f}", one.low, one.high, one.counts)
        for name, one in weights.spreads.items()
    ]
