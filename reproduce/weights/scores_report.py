"""`python -m reproduce.weights report`: the neighbourhood scores of a data set and the weights that result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import torch
from torch import Tensor

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.weights.statistics import MODALITIES, SCORES, Weights, explain, mean_weights, single_score
from subtext.api.options import DEFAULTS, DataOptions, Json, Run
from subtext.data import atomic
from subtext.data.image_files import thumbnail
from subtext.errors import RequirementError
from subtext.graphs.graph import image_of_text
from subtext.objectives.weighting import Neighbourhood
from subtext.recipes.neighbour_scores import NeighbourScores
from subtext.report.page import HtmlPage, PageHit, PageSearch, PageSection, render
from subtext.report.plots import OURS, set_titles, side_by_side, svg
from subtext.report.text_table import Cell, table
from subtext.settings import Interval, Metavar, OptionGroup, Shown, command

COMBINE = {"diversity": "absdiff", "discrepancy": "absdiff", "combined": "mean"}
"""Each method's default combination of the weights of images and texts."""
_SCORES, _WEIGHTS, _OUTPUT = OptionGroup("Scores"), OptionGroup("Weights"), OptionGroup("Output")


@dataclass(frozen=True)
class ScoresReport:
    """Scores and weights of a data set: their statistics, how they were computed, and the files that were written."""

    weights: Weights
    facts: Mapping[str, Any]
    files: Mapping[str, Path]

    def to_json(self) -> dict[str, Any]:
        """The statistics and how they were computed, as plain data."""
        return {**self.facts, "combine": self.facts["combine"] or COMBINE, **self.weights.to_json()}

    def __str__(self) -> str:
        facts, weights = self.facts, self.weights
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
                f"effective sample size of the weights ({facts['total']:g} over {facts['batch']} pairs, "
                f"{facts['combine'] or 'absdiff; combined: mean'}): {shares}",
                *(f"{name}: {file}" for name, file in self.files.items()),
            ]
        )

    __repr__ = __str__


@command(defaults=DEFAULTS)
def report(
    run: Run,
    *,
    graph: Annotated[str | Path, "Graph of `subtext neighbours build`.", _SCORES],
    neighbours: Annotated[int, "Neighbours per text; 0: all of the graph.", Interval(0), _SCORES] = 0,
    views: Annotated[Literal["max", "mean", "aligned"], "Comparison of items with several views.", _SCORES] = "max",
    split: Annotated[str, "Split whose pairs are described.", _SCORES] = "train",
    total: Annotated[float, "lambda, the sum of the weights of a batch.", _WEIGHTS] = 196.0,
    pairs: Annotated[int, "Pairs of a batch, for total.", Interval(1), _WEIGHTS] = 32,
    combine: Annotated[
        Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"] | None,
        "How weights of images and texts are combined.",
        _WEIGHTS,
        Shown("absdiff; mean for combined"),
    ] = None,
    beta: Annotated[float, "combined: weight of diversity.", _WEIGHTS] = 3.0,
    gamma: Annotated[float, "combined: weight of discrepancy.", _WEIGHTS] = 1.0,
    plot: Annotated[str | Path | None, "Histograms, as SVG.", _OUTPUT, Metavar("FILE")] = None,
    page: Annotated[
        str | Path | None, "The pairs with the largest and smallest weights, HTML.", _OUTPUT, Metavar("FILE")
    ] = None,
    top: Annotated[int, "Pairs at each end of the page.", Interval(1), _OUTPUT] = 12,
    json: Json = None,
    **options: Unpack[DataOptions],
) -> ScoresReport:
    """Describe the diversity and discrepancy of neighbourhoods in a run's space, and the weights that result.

    It shows mean, standard deviation and histogram of both scores for images and texts, Spearman's correlation of the
    two scores, and the effective sample size of the weights of each score and of both combined: by --beta and --gamma,
    and by the statistics of the scores (COMBINED-STATS). The options decide scores and weights, whatever weights the
    run was trained with; `gain` reports those. --page shows the pairs themselves.

    Raises RequirementError for views where items have one view; what opening, reading and the graph raise.
    """
    outputs = {"histograms": plot, "pairs by weight": page, "JSON": None if str(json) == "-" else json}
    files = {name: Path(file) for name, file in outputs.items() if file is not None}
    for file in files.values():
        atomic.require_file(file)
    embedded = st.embed(run, split=split, **options)
    if views != "max" and max(items.views for items in (embedded.image_vectors, embedded.text_vectors)) == 1:
        raise RequirementError(
            f"--views {views} needs a run with several views per item (pvse, views above 1); this run has one; "
            "leave --views out"
        )
    scores = score_tables(NeighbourScores(Path(graph), neighbours=neighbours, views=views), embedded)
    weighting = Neighbourhood(total, combine=combine or "absdiff", batch=pairs)
    mean = replace(weighting, combine=combine or "mean")
    combined = {
        f"combined {beta:g}:{gamma:g}": replace(mean, diversity=beta, discrepancy=gamma),
        "combined by statistics": replace(mean, diversity=1.0, discrepancy=1.0, statistics="pooled"),
    }
    weights = explain(scores, weighting, combined=combined, batch=pairs)
    facts = {"run": str(run), "split": split, "graph": str(graph), "total": total, "batch": pairs, "combine": combine}
    result = ScoresReport(weights, facts, files)
    if plot is not None:
        atomic.write_text(Path(plot), histograms(_panels(weights)))
    if page is not None:
        title = f"Pairs by weight: {run}, {split}"
        extremes = weight_gallery(scores, weighting, combined, embedded.dataset, title=title, batch=pairs, top=top)
        atomic.write_text(Path(page), render(extremes))
    if "JSON" in files:
        atomic.write_text(files["JSON"], dumps(result.to_json(), indent=2) + "\n")
    return result


def score_tables(scores: NeighbourScores, embedded: st.EmbeddedDataset) -> Mapping[str, Tensor]:
    """Both scores of embedded pairs: "diversity/image" and so on (T), and their moments; see `NeighbourBank`."""
    vectors = embedded.image_vectors, embedded.text_vectors
    memory = scores.open(embedded.dataset, device=torch.device("cpu"))
    memory.update(*vectors)
    memory.on_epoch_start(epoch=1, seed=0, embed=lambda items=None: vectors)
    assert memory.table is not None
    return memory.table


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width from low to high, with a title and a remark."""

    title: str
    remark: str
    low: float
    high: float
    counts: Sequence[int]


def histograms(panels: Sequence[Histogram]) -> str:
    """The panels from left to right, each scaled to its highest bar, as one SVG document."""
    figure, axes = side_by_side(len(panels), 2.8, 2.2)
    for panel, ax in zip(panels, axes, strict=True):
        width = (panel.high - panel.low) / len(panel.counts) or 1.0
        lefts = [panel.low + width * number for number in range(len(panel.counts))]
        ax.bar(lefts, panel.counts, width=0.9 * width, align="edge", color=OURS)
        ax.set_yticks([])
        ax.spines[["left", "right", "top"]].set_visible(False)
        ax.set_xticks([panel.low, panel.high], [f"{panel.low:.3f}", f"{panel.high:.3f}"])
        set_titles(ax, panel.title, panel.remark)
    return svg(figure, "; ".join(panel.title for panel in panels))


def _panels(weights: Weights) -> list[Histogram]:
    return [
        Histogram(name, f"mean {s.mean:.4f}, deviation {s.deviation:.4f}", s.low, s.high, s.counts)
        for name, s in weights.spreads.items()
    ]


def weight_gallery(
    table: Mapping[str, Tensor],
    weighting: Neighbourhood,
    combined: Mapping[str, Neighbourhood],
    pairs: st.Dataset,
    *,
    title: str,
    batch: int,
    top: int,
) -> HtmlPage:
    """For each score and each combination of both, the `top` pairs with the largest and smallest weights.

    table     of `NeighbourBank`, by row of the text
    combined  name -> a weighting of both scores
    batch     pairs of the batches that weights are means over
    """
    images = image_of_text(pairs)
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
            PageSearch(end, [_card(table, weights, scores, row, pairs, int(images[row])) for row in rows.tolist()])
            for end, rows in ends.items()
        ]
        mean = current.total_for(batch) / batch
        text = (
            f"The number is the pair's weight {basis}, mean over random batches of {batch}; the mean is {mean:g}. "
            "Below it are the scores of the image and of the text."
        )
        sections.append(PageSection(name.capitalize(), text, searches, columns=2))
    facts = [
        ("lambda", f"{weighting.total:g} over {batch} pairs"),
        ("combine", weighting.combine),
        ("Gamma", f"{weighting.sign:g}"),
    ]
    lead = f"{weighted:,} of {len(pairs.texts):,} pairs have weights; the page shows the largest and smallest."
    return HtmlPage(title, lead, verdict="", figures=(), figures_text="", sections=sections, facts=facts)


def _card(
    table: Mapping[str, Tensor], weights: Tensor, scores: Sequence[str], row: int, pairs: st.Dataset, image: int
) -> PageHit:
    text = pairs.texts.values[row]
    return PageHit(
        pairs.texts.ids[row] if text is None else str(text),
        float(weights[row]),
        None if image < 0 else thumbnail(pairs.images.values[image], pairs.root),
        notes=[
            f"{modality if len(scores) == 1 else f'{score}, {modality}'} {float(table[f'{score}/{modality}'][row]):.3f}"
            for score in scores
            for modality in MODALITIES
        ],
    )
