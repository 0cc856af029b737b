"""The measurements of a trained model: the figures of a table's cells, and the values per query behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

import subtext as st
from reproduce.tables.config import TableConfig
from reproduce.tables.figure_names import DIRECTIONS, FIGURES, LENGTHS, RANKINGS, SPACE
from reproduce.tables.material import TableData, graph_of_scored, one_text_each, require
from reproduce.tables.nulls import Both, bm25_between_captions, hubness
from reproduce.tables.specification import BM25, HUBNESS, Shared
from subtext.data.dataset import fingerprint
from subtext.errors import RequirementError
from subtext.evaluation import embed_pairs
from subtext.evaluation.checks.space import space
from subtext.evaluation.metric import Measure
from subtext.evaluation.metrics import (
    ASP,
    PMRP,
    AveragePrecision,
    CWay,
    PMRecall,
    Preservation,
    Recall,
    RPrecision,
    default_metrics,
)
from subtext.evaluation.scoring import matrix
from subtext.graphs.graph import Graph, image_of_text
from subtext.ops import draw
from subtext.ops.neighbour_scores import AS_PRINTED, Scores, neighbour_scores, pooled_scores
from subtext.text_helpers import counted

FOLD = 1000
"""Images of a fold of the papers' smaller test of COCO."""
RECALLS = (1, 5, 10)
"""The k of recall, which RSUM adds up, as shares of 1."""
TEXTS = 1000
"""Texts in recall by length, as in AsCL's figure 5."""
LABELS = "labels"
"""The column that PMRP reads."""
SAMPLES = 1000
"""Neighbours of neighbours that are averaged for a discrepancy with several views, as in the paper."""

Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Measured:
    """Figures by name, with the values per query and the image of each query where there are such."""

    figures: Mapping[str, float]
    data: str
    queries: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    clusters: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A run on a data set of a table.

    run   its folder        key  of the data set        data  its pairs      features  of images; None for pixels
    """

    run: Path
    key: str
    config: TableConfig
    data: TableData
    features: Path | None = None

    @property
    def options(self) -> dict[str, Any]:
        """How a public function reads features and computes."""
        paths = self.config.data[self.key]
        return {
            "features": self.features,
            "text_features": paths.text_features,
            "device": self.config.device,
            "batch_size": 256,
            "workers": self.config.workers,
            "quiet": self.config.quiet,
        }

    def evaluate(
        self, pairs: st.Dataset, *metrics: Measure, fold_sizes: Sequence[int] = (), by_length: bool = False
    ) -> st.Result:
        """The figures of the run on these pairs: recall and ranks, and those of the metrics."""
        options = self.options
        return st.evaluate(
            self.run,
            st.DataConfig(pairs, features=options["features"], text_features=options["text_features"]),
            split="all",
            metrics=[Recall(*RECALLS, by_length=by_length), *default_metrics()[1:], *metrics],
            protocol=st.Protocol(bootstrap=0, fold_sizes=fold_sizes),
            config=st.ComputeConfig(
                device=options["device"], batch_size=options["batch_size"], workers=options["workers"]
            ),
            quiet=options["quiet"],
        )

    def scores(self, pairs: st.Dataset) -> Float[np.ndarray, "i t"]:
        """The scores of all images with all texts."""
        options = self.options
        features = {name: options[name] for name in ("features", "text_features", "device")}
        model = st.open_run(self.run, **features).model
        embedded = embed_pairs(model, pairs, batch_size=options["batch_size"], workers=options["workers"])
        return matrix(model.similarity, *embedded).cpu().numpy()


def measure(name: str, subject: Subject) -> Measured:
    """One measurement.

    name  "question" with its c, "rankings", "space", "lengths", or "preservation" or "scores" with a graph's digest

    "hubness-" or "bm25-" before it: of that null model

    Raises RequirementError when the data set is too small for it.
    """
    null, _, rest = name.partition("-")
    if null in (HUBNESS, BM25):
        return _of_null(null, rest, subject)
    if name.startswith("question"):
        return _choice(int(name.removeprefix("question")), subject)
    kinds = {
        "rankings": _rankings,
        "space": _space,
        "lengths": _lengths,
        "preservation": _preservation,
        "scores": _scores,
    }
    return kinds[name.partition("-")[0]](subject)


@dataclass(frozen=True)
class NullSubject(Subject):
    """A null model: scores of images as queries, and of texts as queries, in place of the run's."""

    both: Both | None = None

    def evaluate(
        self, pairs: st.Dataset, *metrics: Measure, fold_sizes: Sequence[int] = (), by_length: bool = False
    ) -> st.Result:
        """The figures of the scores on these pairs, each direction by its own."""
        assert self.both is not None
        found = {
            direction: st.evaluate(
                scores={"scores": np.ascontiguousarray(scores)},
                external=st.ExternalConfig(image_ids=pairs.images.ids, text_ids=pairs.texts.ids),
                data=pairs,
                split="all",
                metrics=[Recall(*RECALLS, by_length=by_length), *default_metrics()[1:], *metrics],
                protocol=st.Protocol(bootstrap=0, fold_sizes=fold_sizes),
                quiet=True,
            )
            for direction, scores in zip(DIRECTIONS, self.both, strict=True)
        }
        values = {
            name: column
            for direction, result in found.items()
            for name, column in result.per_query.items()
            if name.startswith(f"{direction}/")
        }
        return replace(found[DIRECTIONS[0]], per_query=values)


def _of_null(null: str, name: str, subject: Subject) -> Measured:
    """A measurement of a null model; NaN for one of vectors, and where the data has nothing that it reads."""
    kind, pairs = re.sub(r"\d+$", "", name.partition("-")[0]), subject.data.scored
    both = None
    if kind in ("question", "rankings", "lengths"):
        both = hubness(subject.scores(pairs)) if null == HUBNESS else bm25_between_captions(pairs)
    if both is None:
        return Measured(
            {name: np.nan for name, figure in FIGURES.items() if figure.measure == kind}, fingerprint(pairs)
        )
    return measure(name, NullSubject(subject.run, subject.key, subject.config, subject.data, subject.features, both))


def _measured(figures: Mapping[str, float], values: Values, result: st.Result, pairs: st.Dataset) -> Measured:
    """Figures and values per query of an evaluation, with the image of each query."""
    rows = {name: row for row, name in enumerate(pairs.images.ids)}
    clusters = {
        "image_to_text": np.arange(len(pairs.images), dtype=np.int64),
        "text_to_image": np.array([rows.get(name, -1) for name in result.per_query["text_to_image/image"].tolist()]),
    }
    return Measured(
        figures, result.protocol["data"], values, {name: clusters[name.partition("/")[0]] for name in values}
    )


def _choice(c: int, subject: Subject) -> Measured:
    pairs = subject.data.scored
    result = subject.evaluate(pairs, CWay(c))
    names = {direction: f"{direction}/{c}_way@1" for direction in DIRECTIONS}
    if not set(names.values()) <= set(result.per_query):
        raise RequirementError(
            f"a choice among {c} needs {counted(c - 1, 'wrong candidate')} a query; the split '{subject.config.split}' "
            f"has {counted(len(pairs.images), 'image')} and {counted(len(pairs.texts), 'text')}; score a larger split"
        )
    values: Values = {direction: result.per_query[name] for direction, name in names.items()}
    figures = {direction: float(np.nanmean(column)) for direction, column in values.items()}
    figures["both"] = sum(figures.values()) / len(figures)
    return _measured(figures, values, result, pairs)


def _rankings(subject: Subject) -> Measured:
    """Figures of complete rankings; NaN where there are no labels, or the images make no folds of 1,000."""
    pairs = subject.data.scored
    count, remainder = divmod(len(pairs.images), FOLD)
    metrics: list[Measure] = [RPrecision(), AveragePrecision(), ASP("tfidf1")]
    if LABELS in pairs.images.metadata:
        metrics += [PMRP(), PMRecall()]
    sizes = (FOLD, count * FOLD) if count > 1 and not remainder else ()
    result = subject.evaluate(pairs, *metrics, fold_sizes=sizes)
    names = [f"{direction}/{name}{size}" for direction in DIRECTIONS for name in RANKINGS for size in ("", "(1k)")]
    values: Values = {name: result.per_query[name] for name in names if name in result.per_query}
    figures = {name: float(np.nanmean(values[name])) if name in values else np.nan for name in names}
    if count == 1 and not remainder:
        figures |= {name: figures[name.removesuffix("(1k)")] for name in names if name.endswith("(1k)")}
    figures |= {
        f"rsum{size}": sum(figures[f"{direction}/recall@{k}{size}"] for direction in DIRECTIONS for k in RECALLS)
        for size in ("", "(1k)")
    }
    return _measured(figures, values, result, pairs)


def _space(subject: Subject) -> Measured:
    """Alignment and uniformity of the vectors; no pair is scored, which costs much more for a model of pairs."""
    pairs, options = subject.data.scored, subject.options
    features = {name: options[name] for name in ("features", "text_features", "device")}
    model = st.open_run(subject.run, **features).model
    figures = space(*embed_pairs(model, pairs, batch_size=options["batch_size"], workers=options["workers"]), pairs)
    return Measured({name: figures.get(name, np.nan) for name in SPACE}, fingerprint(pairs))


def _lengths(subject: Subject) -> Measured:
    """Recall of sampled texts against all images, by their length in words; NaN for a length that none has."""
    pairs = subject.data.scored
    sampled = np.zeros(len(pairs.texts), dtype=bool)
    sampled[draw.permutation(len(pairs.texts), seed=0, epoch=0, purpose="texts by length")[:TEXTS]] = True
    result = subject.evaluate(pairs, by_length=True)
    all_queries = _measured({}, {f"text_to_image/recall@{k}": np.empty(0) for k in RECALLS}, result, pairs)
    figures: dict[str, float] = {}
    values: Values = {}
    clusters: dict[str, NDArray[np.int64]] = {}
    for size in LENGTHS:
        for k in RECALLS:
            name = f"text_to_image/recall@{k}(words {size})"
            column = result.per_query.get(name, np.full(len(pairs.texts), np.nan))
            present = sampled & ~np.isnan(column)
            figures[f"texts(words {size})"] = float(present.sum())
            figures[name] = float(column[present].mean()) if present.any() else np.nan
            if present.any():
                values[name] = column[present]
                clusters[name] = all_queries.clusters[f"text_to_image/recall@{k}"][present]
    return Measured(figures, all_queries.data, values, clusters)


def _preservation(subject: Subject) -> Measured:
    """Share of the neighbours in the graph of the scored texts that are nearest in the joint space."""
    pairs = one_text_each(subject.data.scored)
    graph = graph_of_scored(subject.config, subject.key, pairs, subject.data)
    result = subject.evaluate(pairs, Preservation(against=str(graph)))
    values: Values = {f"{side}_preservation": result.per_query[f"{side}/neighbours_kept"] for side in ("image", "text")}
    figures = {name: float(np.nanmean(column)) for name, column in values.items()}
    rows = np.arange(len(pairs.texts), dtype=np.int64)
    return Measured(figures, result.protocol["data"], values, dict.fromkeys(values, rows))


def _scores(subject: Subject) -> Measured:
    """Mean, deviation and their product of both scores over the training pairs, both modalities together."""
    config, train = subject.config, subject.data.train
    require(config, subject.key, Shared.TEXT_GRAPH, subject.data)
    graph = Graph.load(config.graph(subject.key, Shared.TEXT_GRAPH)).restrict_to(train.texts)
    embedded = st.embed(subject.run, data=train, **subject.options)
    images = image_of_text(train)
    without = images < 0
    banks = [
        embedded.image_vectors.vectors[torch.from_numpy(np.where(without, 0, images))],
        embedded.text_vectors.vectors,
    ]
    of_images, of_texts = (_of_bank(bank.float(), graph, train.texts.keys) for bank in banks)
    figures: dict[str, float] = {}
    for name, image_scores, text_scores in zip(Scores._fields, of_images, of_texts, strict=True):
        values = torch.cat([image_scores[torch.from_numpy(~without)], text_scores]).double()
        values = values[~values.isnan()]
        mean, deviation = float(values.mean()), float(values.std(correction=0))
        figures |= {f"{name}_mean": mean, f"{name}_deviation": deviation, f"{name}_product": mean * deviation}
    return Measured(figures, fingerprint(train))


def _of_bank(bank: torch.Tensor, graph: Graph, keys: NDArray[np.int64]) -> Scores:
    neighbours = torch.from_numpy(np.array(graph.neighbours))
    if bank.shape[1] == 1:
        return neighbour_scores(bank[:, 0].contiguous(), neighbours)
    return pooled_scores(bank, neighbours, AS_PRINTED, keys=keys, samples=SAMPLES, seed=0, epoch=0)
