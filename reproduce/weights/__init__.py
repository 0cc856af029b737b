"""Sample weights by semantic neighbourhoods: `report` describes them, `gain` measures their effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.api.options import (
    BatchSize,
    Data,
    Device,
    Features,
    Images,
    Json,
    Metavar,
    OnError,
    Quiet,
    Range,
    Run,
    Section,
    Shown,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)

if TYPE_CHECKING:
    from reproduce.weights.gain_report import GainReport
    from reproduce.weights.scores_report import ScoresReport


@verb
def report(
    run: Run,
    *,
    graph: Annotated[str | Path, "Graph of `subtext neighbours build`.", Section("Scores")],
    neighbours: Annotated[int, "Neighbours per text; 0: all of the graph.", Range(0), Section("Scores")] = 0,
    views: Annotated[
        Literal["max", "mean", "aligned"], "Comparison of items with several views.", Section("Scores")
    ] = "max",
    split: Annotated[str, "Split whose pairs are described.", Section("Scores")] = "train",
    total: Annotated[float, "lambda, the sum of the weights of a batch.", Section("Weights")] = 196.0,
    pairs: Annotated[int, "Pairs of a batch, for total.", Range(1), Section("Weights")] = 32,
    combine: Annotated[
        Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"] | None,
        "How weights of images and texts are combined.",
        Section("Weights"),
        Shown("absdiff; mean for combined"),
    ] = None,
    beta: Annotated[float, "combined: weight of diversity.", Section("Weights")] = 3.0,
    gamma: Annotated[float, "combined: weight of discrepancy.", Section("Weights")] = 1.0,
    plot: Annotated[str | Path | None, "Histograms, as SVG.", Section("Output"), Metavar("FILE")] = None,
    page: Annotated[
        str | Path | None, "The pairs with the largest and smallest weights, HTML.", Section("Output"), Metavar("FILE")
    ] = None,
    top: Annotated[int, "Pairs at each end of the page.", Range(1), Section("Output")] = 12,
    json: Json = None,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> ScoresReport:
    """Describe the diversity and discrepancy of neighbourhoods in a run's space, and the weights that result.

    It shows mean, standard deviation and histogram of both scores for images and texts, Spearman's correlation of the
    two scores, and the effective sample size of the weights of each score and of both combined: by --beta and --gamma,
    and by the statistics of the scores (COMBINED-STATS). The options decide scores and weights, whatever weights the
    run was trained with; `gain` reports those. --page shows the pairs themselves.

    Raises RequirementError for views where items have one view; what opening, reading and the graph raise.
    """
    from reproduce.weights.scores_report import WeightOptions, describe
    from subtext.api.load import Sources, Work

    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    work = Work(Path(run), None, sources, split, device, batch_size, workers, quiet)
    options = WeightOptions(Path(graph), neighbours, views, total, pairs, combine, beta, gamma)
    return describe(work, options, plot=_path(plot), page=_path(page), json=_path(json), top=top)


@verb
def gain(
    pairs: Annotated[
        tuple[str, ...], "Folders of a weighted run and its baseline.", Section("Runs"), Metavar("RUN=BASELINE")
    ],
    *,
    split: Annotated[str | None, "Split to evaluate on. Default: each run's validation split.", Section("Runs")] = None,
    json: Json = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> GainReport:
    """Report whether the gain of DIVERSITY or DISCREPANCY goes with the spread of its scores and weights.

    For every weighted run and its baseline: the score's standard deviation over the training pairs and the effective
    sample size of the weights, both in the run's own space and with its own options; the gain of its sum of six recalls
    over the baseline in per cent; and other differences between the two trainings. From three pairs of a method on also
    Spearman's correlation, with its p-value.

    Raises ArgumentError for a text that is not RUN=BASELINE; RequirementError for a run that neither DIVERSITY nor
    DISCREPANCY weighted in its kept epoch, for a baseline on other data, and for one with recall 0; what opening,
    reading and the graph raise.
    """
    from reproduce.weights.gain_report import compare
    from subtext.api.load import Sources, Work

    work = Work(None, None, Sources(), split, device, batch_size, workers, quiet)
    return compare(work, [_pair_of_runs(text) for text in pairs], json=_path(json))


def _path(path: str | Path | None) -> Path | None:
    """The file to write; None for none and for standard output."""
    return None if path is None or str(path) == "-" else Path(path)


def _pair_of_runs(text: str) -> tuple[Path, Path]:
    """The two sides of the first = that has a run on either side, so paths may contain = themselves.

    Raises ArgumentError where there is none.
    """
    from subtext.errors import ArgumentError

    def is_run(folder: Path) -> bool:
        return (folder.expanduser() / "run.json").is_file()

    for index in (index for index, letter in enumerate(text) if letter == "="):
        sides = Path(text[:index]), Path(text[index + 1 :])
        if all(map(is_run, sides)):
            return sides
    left, equals, right = text.partition("=")
    bad = [side for side in (left, right) if equals and not is_run(Path(side))]
    reason = f"; {' and '.join(bad)} {'is' if len(bad) == 1 else 'are'} no run" if bad else ""
    raise ArgumentError(f"'{text}' needs two folders of runs with = between them, as runs/diverse=runs/plain{reason}")
