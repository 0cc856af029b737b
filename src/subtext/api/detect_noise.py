"""`subtext.detect_noise`: how well a run's scores, and simple baselines, detect planted noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.options import (
    BatchSize,
    Data,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Run,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)
from subtext.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class NoiseDetection:
    """How well scores of pairs detect planted noise.

    run, labels  the paths
    settings     how the noise was planted
    pairs        kind of noise, "" for clean pairs -> number of pairs
    auc          score -> task -> {"auc": area under the ROC curve, "interval": its 95 % interval by image or None}
    """

    run: str
    labels: str
    settings: Mapping[str, Any]
    pairs: Mapping[str, int]
    auc: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; clean pairs are called "literal"."""
        return {
            "run": self.run,
            "labels": self.labels,
            "settings": dict(self.settings),
            "pairs": {kind or "literal": count for kind, count in self.pairs.items()},
            "auc": self.auc,
        }

    def to_frame(self) -> pandas.DataFrame:
        """A row per score and task: area and interval. Needs pandas."""
        from subtext.data.dataset import frame

        rows = []
        for score, tasks in self.auc.items():
            for task, value in tasks.items():
                low, high = value["interval"] or (None, None)
                rows.append({"score": score, "task": task, "auc": value["auc"], "low": low, "high": high})
        return frame(rows)

    def __repr__(self) -> str:
        return f"NoiseDetection({len(self.auc)} scores of {sum(self.pairs.values()):,} pairs)"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        from subtext.report.text_table import Cell, table

        tasks = list(next(iter(self.auc.values())))
        body: list[list[Cell]] = [[name, *(_cell(row[task]) for task in tasks)] for name, row in self.auc.items()]
        counts = ", ".join(f"{count:,} {kind or 'literal'}" for kind, count in self.pairs.items())
        return "\n".join(
            [
                f"pairs: {counts} (seed {self.settings.get('seed')})",
                table(["score", *tasks], body),
                "Area under the ROC curve with 95 % intervals by image. 50 is chance; above it large scores indicate "
                "noise, below it small ones.",
            ]
        )


@verb
def detect_noise(
    run: Run,
    *,
    labels: Annotated[str | Path, "Labels of `subtext data corrupt`.", Section("Noise"), Metavar("FILE")],
    graph: Annotated[
        str | Path | None, "Graph of the corrupted data: adds diversity and discrepancy.", Section("Noise")
    ] = None,
    beta: Annotated[float | None, "Weight of diversity in the combined score. Default: 3.", Section("Noise")] = None,
    gamma: Annotated[float | None, "Weight of discrepancy in the combined score. Default: 1.", Section("Noise")] = None,
    split: Annotated[str, "Split whose pairs are scored.", Section("Data")] = "train",
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
) -> NoiseDetection:
    """Measure how well scores of a run detect planted noise, beside simple baselines: the area under the ROC curve.

    RUN was trained on the output of `subtext data corrupt`. The scores use its final weights: cosine, value of a
    triplet loss, weight by rank, number of words, density among the other pairs; with --graph diversity and discrepancy
    of both modalities, and both combined.

    Raises ArgumentError for beta or gamma without a graph, DataError when the labels belong to other data,
    RequirementError when the run has no vectors.
    """
    for name, value in (("beta", beta), ("gamma", gamma)):
        if value is not None and graph is None:
            raise ArgumentError(f"{name} needs graph: it weights scores of neighbours")
    from subtext.api.load import Sources, Work, open_work
    from subtext.curation.noise_detection import (
        baseline_scores,
        density_scores,
        detection_areas,
        graph_scores,
        noise_kinds,
    )
    from subtext.data.noise import read_labels
    from subtext.evaluation import embed_pairs
    from subtext.report.progress import meter

    noise = read_labels(Path(labels).expanduser())
    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    opened = open_work(Work(Path(run), None, sources, "all", device, batch_size, workers, quiet)).by_mean(
        "detect noise"
    )
    noise.require(opened.pairs)
    pairs = opened.pairs.split(split)
    kinds = noise.of(pairs)[pairs.links[:, 1]]
    counts = {kind: int((kinds == kind).sum()) for kind in ("", *noise_kinds(kinds))}
    if not counts[""]:
        raise DataError("noise detection needs clean pairs beside the noise; all are corrupted; use a lower rate")
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=quiet) as progress:
        vectors = embed_pairs(opened.model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    scores = baseline_scores(opened.model, pairs, *vectors, seed=0) | density_scores(pairs, *vectors)
    if graph is not None:
        weights = (3.0 if beta is None else beta, 1.0 if gamma is None else gamma)
        scores |= graph_scores(Path(graph).expanduser(), *weights, pairs, *vectors)
    areas = detection_areas(scores, kinds, pairs.links[:, 0], 1000)
    return NoiseDetection(str(run), str(labels), dict(noise.settings), counts, areas)


def _cell(value: Mapping[str, Any]) -> str:
    area, interval = value["auc"], value["interval"]
    if area != area:
        return "-"
    return f"{100 * area:.1f}" + (f" ({100 * interval[0]:.1f}-{100 * interval[1]:.1f})" if interval else "")
