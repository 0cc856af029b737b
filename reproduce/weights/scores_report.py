"""The neighbourhood scores of a data set and the weights that result, with a page of its extreme pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduce.weights.statistics import MODALITIES, SCORES, Weights, explain, mean_weights, single_score
from subtext.api.load import Opened, Work, open_work
from subtext.data.atomic import require_file, write_text
from subtext.data.dataset import Dataset
from subtext.data.image_files import thumbnail
from subtext.errors import RequirementError
from subtext.evaluation import embed_pairs
from subtext.models.model import Model
from subtext.neighbours.graph import pictures_of_texts
from subtext.objectives.weighting import Combine, Neighbourhood
from subtext.report.page import Found, Page, Search, Section, render
from subtext.report.plots import Histogram, histograms
from subtext.report.progress import meter
from subtext.report.text_table import Cell, table
from subtext.training.tables import NeighbourMemory, NeighbourScores

COMBINE: Mapping[str, Combine] = {"diversity": "absdiff", "discrepancy": "absdiff", "combined": "mean"}
"""Each method's default combination of the weights of images and texts."""


@dataclass(frozen=True)
class WeightOptions:
    """Options of scores and weights.

    neighbours   per text; 0 for all        views  comparison of items with several views
    total, batch lambda, and pairs of a batch
    combine      of images and texts; None for each method's own
    beta, gamma  weights of diversity and discrepancy, where both are combined
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
class ScoresReport:
    """Scores and weights of a data set: their statistics, the options, and the files that were written."""

    weights: Weights
    options: WeightOptions
    run: Path | None
    split: str
    files: dict[str, Path]

    def to_json(self) -> dict[str, Any]:
        """The statistics and how they were made, as plain data."""
        options = self.options
        facts = {"run": str(self.run), "split": self.split, "graph": str(options.graph), "total": options.total}
        return {**facts, "batch": options.batch, "combine": options.combine or dict(COMBINE), **self.weights.to_json()}

    def __str__(self) -> str:
        options, weights = self.options, self.weights
        rows: list[list[Cell]] = [
            [name, s.known, f"{s.mean:.4f}", f"{s.deviation:.4f}", f"{s.low:.3f}", f"{s.high:.3f}"]
            for name, s in weights.spreads.items()
        ]
        shares = ", ".join(f"{name} {share:.1%}" for name, share in weights.effective.items())
        correlations = ", ".join(f"{name} {value:.3f}" for name, value in weights.correlation.items())
        return "\n".join(
            [
                table(["score", "pairs", "mean", "deviation", "least", "greatest"], rows),
                f"Spearman's correlation of the two scores: {correlations} (paper: 0.052)",
                f"effective sample size of the weights ({options.total:g} over {options.batch} pairs, "
                f"{options.combine or 'absdiff; combined: mean'}): {shares}",
                *(f"{name}: {file}" for name, file in self.files.items()),
            ]
        )

    __repr__ = __str__


def describe(
    work: Work,
    options: WeightOptions,
    *,
    plot: Path | None = None,
    page: Path | None = None,
    json: Path | None = None,
    top: int = 12,
) -> ScoresReport:
    """Embed the split with the run, compute the scores of its pairs in the graph, and describe scores and weights.

    plot  file for histograms (SVG)      page  file for the `top` pairs with the largest and the smallest weights (HTML)

    Raises what opening, reading and the graph raise, and RequirementError for a model that only scores pairs.
    """
    names = {"histograms": plot, "pairs by weight": page, "JSON": json}
    files = {name: file for name, file in names.items() if file is not None}
    for file in files.values():
        require_file(file)
    opened = open_work(work).by_mean("weights report")
    pairs = opened.pairs
    if options.views != "max":
        _require_views(options, opened.model, pairs)
    memory = NeighbourScores(options.graph, neighbours=options.neighbours, views=options.views).open(
        pairs, device=torch.device("cpu")
    )
    tables = tables_of(memory, opened, work)
    weighting = Neighbourhood(options.total, combine=options.combine or "absdiff", batch=options.batch)
    combined = _combined(options, weighting)
    weights = explain(tables, weighting, combined=combined, batch=options.batch)
    report = ScoresReport(weights, options, work.run, opened.split, files)
    if plot is not None:
        write_text(plot, histograms(_panels(weights)))
    if page is not None:
        title = f"Pairs by weight: {work.run}, {opened.split}"
        extremes = weight_gallery(tables, weighting, combined, pairs, title=title, batch=options.batch, top=top)
        write_text(page, render(extremes))
    if json is not None:
        write_text(json, dumps(report.to_json(), indent=2) + "\n")
    return report


def tables_of(memory: NeighbourMemory, opened: Opened, work: Work) -> Mapping[str, torch.Tensor]:
    """Both scores of a run's pairs in its present space, named as in `NeighbourMemory`."""
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as progress:
        embeddings = embed_pairs(
            opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=progress
        )
    memory.look(*embeddings)
    memory.begin(epoch=1, seed=0, embed=lambda: embeddings)
    assert memory.table is not None
    return memory.table


def _combined(options: WeightOptions, weighting: Neighbourhood) -> dict[str, Neighbourhood]:
    """COMBINED-VAL with this beta and gamma, and COMBINED-STATS."""
    mean = replace(weighting, combine=options.combine or COMBINE["combined"])
    return {
        f"combined {options.beta:g}:{options.gamma:g}": replace(
            mean, diversity=options.beta, discrepancy=options.gamma
        ),
        "combined by statistics": replace(mean, diversity=1.0, discrepancy=1.0, statistics="pooled"),
    }


def _require_views(options: WeightOptions, model: Model, pairs: Dataset) -> None:
    """Raise RequirementError where items have one view: the option would change nothing."""
    first = np.zeros(1, dtype=np.int64)
    embeddings = embed_pairs(model, pairs.subset(first, first), batch_size=1, workers=0)
    if max(items.views for items in embeddings) == 1:
        raise RequirementError(
            f"--views {options.views} needs a run with several views per item (pvse, views above 1); this run has one; "
            "leave --views out"
        )


def _panels(weights: Weights) -> list[Histogram]:
    return [
        Histogram(name, f"mean {s.mean:.4f}, deviation {s.deviation:.4f}", s.low, s.high, s.counts)
        for name, s in weights.spreads.items()
    ]


def weight_gallery(
    table: Mapping[str, Tensor],
    weighting: Neighbourhood,
    combined: Mapping[str, Neighbourhood],
    pairs: Dataset,
    *,
    title: str,
    batch: int,
    top: int,
) -> Page:
    """For each score and each combination of both, the `top` pairs with the largest and smallest weights.

    table     of `NeighbourMemory`, by row of the text
    combined  name -> a weighting of both scores
    batch     pairs of the batches that weights are means over
    """
    images = pictures_of_texts(pairs)
    weightings = {score: (single_score(weighting, score), f"by {score} alone") for score in SCORES}
    weightings |= {name: (both, "by both scores") for name, both in combined.items()}
    sections = []
    for name, (current, basis) in weightings.items():
        weights = mean_weights(table, current, batch=batch)
        weighted = int((~weights.isnan()).sum())
        order = torch.argsort(weights, stable=True)[:weighted]
        ends = {"largest weights": order.flip(0)[:top], "smallest weights": order[:top]}
        scores = [score for score in SCORES if getattr(current, score)]
        searches = [
            Search(end, [_card(table, weights, scores, row, pairs, int(images[row])) for row in rows.tolist()])
            for end, rows in ends.items()
        ]
        mean = current.total_for(batch) / batch
        text = (
            f"The number is the pair's weight {basis}, mean over random batches of {batch}; the mean is {mean:g}. "
            "Below it are the scores of the image and of the text."
        )
        sections.append(Section(name.capitalize(), text, searches, columns=2))
    facts = [
        ("lambda", f"{weighting.total:g} over {batch} pairs"),
        ("combine", weighting.combine),
        ("Gamma", f"{weighting.sign:g}"),
    ]
    lead = f"{weighted:,} of {len(pairs.texts):,} pairs have weights; the page shows the largest and smallest."
    return Page(title, lead, verdict="", figures=(), figures_text="", sections=sections, facts=facts)


def _card(
    table: Mapping[str, Tensor], weights: Tensor, scores: Sequence[str], row: int, pairs: Dataset, image: int
) -> Found:
    text = pairs.texts.values[row]
    return Found(
        pairs.texts.ids[row] if text is None else str(text),
        float(weights[row]),
        None if image < 0 else thumbnail(pairs.images.values[image], pairs.root),
        notes=[
            f"{modality if len(scores) == 1 else f'{score}, {modality}'} {float(table[f'{score}/{modality}'][row]):.3f}"
            for score in scores
            for modality in MODALITIES
        ],
    )
