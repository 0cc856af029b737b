"""Tests of the papers' claims: the experiment with a positive control, and icons.

    SUBTEXT_DATA=... python -m reproduce.evidence --out DIR --plan
    SUBTEXT_DATA=... python -m reproduce.evidence --out DIR [--only TASK ...] [--part N OF]
    SUBTEXT_DATA=... python -m reproduce.evidence --out docs --report

`--plan` prints the rules, every row and the core hours, and trains nothing. Without it the experiment is trained, or
resumed (`reproduce.experiment`). `--report` judges the finished runs, of the experiment and of the data that
docs/evidence.json names, and writes evidence.json, evidence.png and evidence.md into DIR; it trains nothing.

With `--data` it is about icons, which have no positive control:

    SUBTEXT_DATA=... python -m reproduce.evidence --data icons --out DIR --grid FILE [--rows ...] [--seeds 0 1 2]

`--plan` lists every run with its cost, `--describe` describes the weights; both train nothing.
Otherwise the runs are trained or resumed, and after each one the time that is left is printed. SUBTEXT_DATA points at
a folder with icons/; FILE has the grid cells of the images, so that an image has several views, and their pooled
vectors.

A finished run leaves a file of some kilobytes in `--results` (`reproduce/results` unless another is named): its rate,
its figures on the split that selects, and the rank of every pair. A call trains only what has no file there, so the
runs may be spread over days and machines; the runs of one machine can be repeated bit for bit.

The papers' model: PVSE with a GRU whose words start from Doc2Vec, the best of K = 3 views, all negatives, batches of
32, exact banks (one text an image). Neighbours are those of latent semantic analysis, N = 50.
Protocol: every row tries the same two rates with its first seed; val chooses the rate and the epochs; test is evaluated
once a run. Figures apart for literal and abstract icons: recall, exact choice among c, and of all pairs the share of
semantic neighbours kept. `reproduce.claims` says which rows decide which claim. evidence.json has every number.
`--beside FILE` names a report of other data, which is kept in this one.

Rows of `adapt` need `--stand-in RUN`, a `dual` that learnt from other images, of which the features are by the same
network, in place of a pretrained model. Adapters learn on its vectors; epoch 0 is the stand-in, and may be chosen.

Icons (`reproduce.icons`), by rules that were fixed before any training. A training icon with the tags or the drawing of
one in val or test is left out, and of val those of test. Lambda is the methods' default, 196, if both scores' default
weights have an effective sample size of at most 80 %; else 640. Abstract are the
fifth of the test icons around which images are most diverse: whose DIVERSITY, as a mean cosine of features that were
not trained, between the images of its 50 neighbours by the test texts, is lowest. The others are called literal. With
`--data icons-lite2` the images are known by EfficientNet-Lite2 (extra `starter`), which needs no --grid. With `--data
icons-pixels` a small residual network learns the images from pixels with the rest, for 6 epochs instead of 3; --grid is
for what is known before any training. Adapters, which learn on stored vectors, have no rows there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.stats import hypergeom, t as student

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce import claims, evidence_page, experiment, topics
from reproduce.claims import EXPERIMENT, ICONS, KEPT, LITE2, PIXELS, Values
from reproduce.experiment import report as experiment_report
from reproduce.experiment.runs import plan_lines, train_all
from reproduce.studies.common import Recipe, data_folder, file_name, options, starter_features, write_arrays
from subtext.api.train import flat_arguments
from subtext.core import DIRECTIONS
from subtext.data import atomic
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.evaluation.metrics import CWay, Preservation, default_metrics
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.graph import image_of_text
from subtext.graphs.spaces import LsaSpace
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.version import DRAWS, require_same_draws

RESULTS = Path(__file__).with_name("results")
REPORT = Path(__file__).parents[1] / "docs" / "evidence.json"
NEIGHBOURS = 50
EPOCHS = {ICONS: 3, LITE2: 3, PIXELS: 6}
SMALL_NETWORK: dict[str, Any] = {"image": "tiny", "image_size": 48}
"""Of the rows from pixels: icons are drawn on 24 x 24, and 48 give 3 x 3 cells, as the other features have."""
ABSTRACT = 0.2
"""Share of the test icons that are called abstract."""
SEEDS, RATES = (0, 1, 2, 3, 4), (2e-3, 1e-3)
RECALL, C = (1, 5, 10), (5, 20, 100)
SCORES = ("diversity", "discrepancy")
NO_CLUSTERS = np.zeros(0, dtype=np.int64)
RANDOM_DIM = 8
"""Of the vectors whose neighbours are a control: with so few, hardly a text is the neighbour of very many."""
GUESS = 80.0
"""Seconds of a run before any has been measured; twelve epochs of "pvse" took 140 s of processor time."""
TOTAL = 640
"""Lambda over 32 pairs where default weights are nearly uniform."""
_COMMON: dict[str, Any] = {
    "text": "gru",
    "word_dim": 200,
    "word_vectors": "doc2vec",
    "embed_dim": 256,
    "caption_sampling": "one",
    "positives": "pair",
    "batch_size": 32,
    "drop_last": True,
    "optimiser": "adam",
    "amsgrad": False,
    "weight_decay": 1e-5,
    "max_grad_norm": 0.0,
    "schedule": "one_cycle",
    "warmup": 0.1,
}
PVSE = Recipe("pvse", **_COMMON, views=3, negatives="all")
WITHOUT_LOSS = PVSE.but(negatives="hardest")
"""For methods that replace the loss: nothing reads its negatives."""
ANGULAR = WITHOUT_LOSS.but(methods=["neighbourhoods:form=angular,image_weight=0,text_weight=0"])
DUAL = Recipe("dual", **_COMMON, token_mask=0.0)
_ENCODERS = ("text", "word_dim", "word_vectors", "embed_dim")
ADAPT = Recipe("adapt", model="features", **{name: it for name, it in _COMMON.items() if name not in _ENCODERS})


def _with(method: str, host: Recipe = PVSE) -> Recipe:
    """A method after those of the host."""
    return host.but(methods=[*host.options.get("methods", ()), method])


def _weighted(method: str, more: str = "", host: Recipe = PVSE) -> Recipe:
    """A weighting by the neighbours' graph."""
    return _with(f"{method}:graph={{graph}},total_weight={{total}}{more}", host)


def _pulled(graph: str, more: str = "") -> Recipe:
    """Items drawn towards their neighbours in a graph (Thomas and Kovashka 2020), angular loss."""
    return _with(f"neighbourhoods:graph={graph},pool_size={NEIGHBOURS}{more}", WITHOUT_LOSS)


FORMS: dict[str, dict[str, Any]] = {
    "Gamma 1": {"sign": 1},
    "sum": {"combine": "sum"},
    "images": {"combine": "image", "sign": -20},
    "texts": {"combine": "text", "sign": -20},
}
"""Other forms of both weightings than their default."""
EVEN = (("diversity", "sum"), ("discrepancy", "images"), ("discrepancy", "texts"))
"""Forms that are not as even as the default; their rows "even" have the sign by which they are."""
ROWS = {
    "pvse": PVSE,
    "uniform": _with("uniform:total_weight={total}"),
    "Gamma 0": _weighted("diversity", ",sign=0"),
    **{
        name: recipe
        for score in ("diversity", "discrepancy")
        for name, recipe in {
            score: _weighted(score),
            f"{score} permuted": _weighted(score, ",control=permuted"),
            f"{score} random": _weighted(score, ",control=random"),
            **{
                f"{score} {form}": _weighted(score, "".join(f",{name}={value}" for name, value in changed.items()))
                for form, changed in FORMS.items()
            },
            f"angular {score}": _weighted(score, "", ANGULAR),
        }.items()
    },
    **{
        f"{score} {form} even": _weighted(score, f",combine={FORMS[form]['combine']},sign={{{score}_{form}}}")
        for score, form in EVEN
    },
    "combined val": _weighted("combined", ",beta=3,gamma=1"),
    "combined stats": _weighted("combined", ",mode=stats"),
    "hal": _with("hal", WITHOUT_LOSS),
    "thomas": _pulled("{graph}", ",form=triplet"),
    "thomas random": _pulled("{random}", ",form=triplet"),
    "angular": ANGULAR,
    "angular thomas": _pulled("{graph}"),
    "angular thomas random": _pulled("{random}"),
    "angular thomas visual": _pulled("{visual}"),
    "angular thomas images": _pulled("{graph}", ",text_weight=0"),
    "angular thomas texts": _pulled("{graph}", ",image_weight=0"),
    "dual": DUAL,
    "dual diversity": _weighted("diversity", "", DUAL),
    "dual discrepancy": _weighted("discrepancy", "", DUAL),
    "dual discrepancy permuted": _weighted("discrepancy", ",control=permuted", DUAL),
    "adapt": ADAPT,
    "adapt diversity": _weighted("diversity", "", ADAPT),
    "adapt diversity permuted": _weighted("diversity", ",control=permuted", ADAPT),
    "adapt discrepancy": _weighted("discrepancy", "", ADAPT),
    "adapt discrepancy permuted": _weighted("discrepancy", ",control=permuted", ADAPT),
}
"""`reproduce.claims` says which are compared."""


@dataclass(frozen=True)
class Run:
    """A training; `rate` None for the one that the first seed chooses."""

    row: str
    seed: int
    rate: float | None = None

    def finished(self, results: Path) -> Finished | None:
        """What is left of it; None until it is finished."""
        rates = RATES if self.rate is None else (self.rate,)
        files = [result_file(results, self.row, self.seed, rate) for rate in rates]
        return next((Finished.read(file) for file in files if file.is_file()), None)


@dataclass(frozen=True)
class Finished:
    """What is left of a training.

    rsum     sum of recalls on the split that selects, at the selected epoch
    seconds  of processor time
    sizes    (epochs) effective sample sizes of the weights that were used, as shares; of a row named as its score alone
    ranks    (2 N) rank of each pair, by direction, on the split that is evaluated; (2 0) where it was not
    kept     (2 N) share of neighbours kept, of its image and of its text
    abstract (N) whether it is one of those around which images are most diverse
    draws    `subtext.version.DRAWS` of the training
    """

    rsum: float
    seconds: float
    sizes: NDArray[np.float64]
    ranks: NDArray[np.uint16]
    kept: NDArray[np.float32]
    abstract: NDArray[np.bool_]
    draws: int = DRAWS

    def write(self, file: Path) -> None:
        """Write it in one piece."""
        write_arrays(file, vars(self))

    @staticmethod
    def read(file: Path) -> Finished:
        """Read it again."""
        with np.load(file, allow_pickle=False) as arrays:
            rsum, seconds, draws = float(arrays["rsum"]), float(arrays["seconds"]), int(arrays["draws"])
            return Finished(rsum, seconds, **{name: arrays[name] for name in _ARRAYS}, draws=draws)

    def values(self, clusters: NDArray[np.int64] = NO_CLUSTERS) -> Values:
        """Recall, and the exact choice among c, of each pair by its ranks; and what is kept of its neighbourhood.

        clusters  (N) of the pairs; none where each is drawn alone
        """
        others = self.ranks.shape[1] - 1
        values: dict[str, NDArray[Any]] = {}
        for direction, ranks in zip(DIRECTIONS, self.ranks.astype(np.int64), strict=True):
            values |= {f"{direction}/recall@{k}": ranks <= k for k in RECALL}
            # A small set has no choice among 100.
            usable = [c for c in C if c <= others + 1]
            values |= {f"{direction}/{c}_way@1": hypergeom.pmf(0, others, ranks - 1, c - 1) for c in usable}
        values |= {f"{side}/{KEPT}": kept for side, kept in zip(("image", "text"), self.kept, strict=True)}
        return Values(self.abstract, values, clusters)


_ARRAYS = ("sizes", "ranks", "kept", "abstract")


def result_file(results: Path, row: str, seed: int, rate: float) -> Path:
    """The file of what is left of a training."""
    return results / f"{file_name(row)}-{rate:g}-{seed}.npz"


def run_folder(out: Path, row: str, seed: int, rate: float) -> Path:
    """The folder of a training."""
    return out / f"{file_name(row)}-{rate:g}-{seed}"


def runs(rows: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Every training: of each row both rates with the first seed, and the better one with the others."""
    first, *others = seeds
    return [
        run
        for row in rows
        for run in (*(Run(row, first, rate) for rate in RATES), *(Run(row, seed) for seed in others))
    ]


def require_one_side(every: Sequence[Run], results: Path) -> None:
    """Raise DataError where finished runs, and those that are still to be trained, have other random draws."""
    finished = [(f"{run.row}, seed {run.seed}", run.finished(results)) for run in every]
    require_same_draws([(name, DRAWS if run is None else run.draws) for name, run in finished], DataError)


def costs(every: Sequence[Run], results: Path) -> tuple[dict[Run, float], dict[Run, float]]:
    """Seconds of the finished runs, and expected seconds of the others: of their row, else of all, else a guess."""
    done = {run: finished.seconds for run in every if (finished := run.finished(results)) is not None}
    expected = {}
    for run in every:
        if run not in done:
            own = [seconds for other, seconds in done.items() if other.row == run.row]
            expected[run] = float(np.mean(own or list(done.values()) or [GUESS]))
    return done, expected


def time_left(every: Sequence[Run], results: Path) -> str:
    """How many runs are done, and how much processor time the others will take."""
    done, expected = costs(every, results)
    return f"{len(done)} of {len(every)} runs done, about {sum(expected.values()) / 3600:.1f} hours of a core left"


def plan(every: Sequence[Run], results: Path) -> list[str]:
    """Every run with its cost, and what is left."""
    done, expected = costs(every, results)
    lines = []
    for run in every:
        rate = "the chosen rate" if run.rate is None else f"rate {run.rate:g}"
        cost = f"done in {done[run]:.0f} s" if run in done else f"about {expected[run]:.0f} s"
        lines.append(f"{run.row}, seed {run.seed}, {rate}: {cost}")
    return [*lines, time_left(every, results)]


def main() -> None:
    """List the runs, or train and evaluate them and print the tables."""
    parser = options(__doc__, rows=list(ROWS), seeds=SEEDS)
    parser.add_argument("--plan", action="store_true", help="list every run with its cost, and train nothing")
    parser.add_argument("--describe", action="store_true", help="describe data and weights, and train nothing")
    parser.add_argument("--data", choices=MAKERS, help="recorded data; without it, the experiment")
    parser.add_argument("--only", nargs="+", default=[], metavar="TASK", help="sets and hosts of the experiment")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("N", "OF"), help="rows of one process")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--stand-in", type=Path, metavar="RUN", help="of a dual encoder, for the rows of `adapt`")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="a report of the other data")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="folder of the finished runs")
    parser.add_argument("--report", action="store_true", help="judge finished runs again, and train nothing")
    config = parser.parse_args()
    if config.report:
        old = json.loads((config.beside or REPORT).read_text(encoding="utf-8"))
        icons = {name: rejudged(part, config.results / name) for name, part in old.items() if name in MAKERS}
        trained = experiment_report.part(config.results / EXPERIMENT)
        write_report({EXPERIMENT: trained, **icons}, config.out)
        return
    if config.data is None:
        finished = config.results / EXPERIMENT
        lines = chain([experiment.__doc__ or ""], plan_lines(finished))
        for line in lines if config.plan else train_all(config.out, finished, only=config.only, part=config.part):
            print(line, flush=True)
        return
    every, finished = runs(config.rows, config.seeds), config.results / config.data
    if config.plan:
        print("\n".join(plan(every, finished)))
        return
    if config.grid is None and config.data != LITE2:
        sys.exit("trainings need features of cells: name them with --grid FILE")
    if config.grid is not None and config.data == LITE2:
        sys.exit("the features of icons-lite2 are computed: leave out --grid")
    adapters = any(ROWS[row].model == "adapt" for row in config.rows)
    if adapters and config.data == PIXELS:
        sys.exit("rows of `adapt` learn on stored vectors and know no pixels: name other --rows, or take --data icons")
    if config.stand_in is None and adapters and not config.describe:
        sys.exit("rows of `adapt` need a dual encoder that learnt from other images: name its run with --stand-in RUN")
    require_one_side(every, finished)
    config.out.mkdir(parents=True, exist_ok=True)
    material = MAKERS[config.data](config.out, config.grid)
    if config.stand_in is not None:
        material = material.with_stand_in(config.stand_in)
    print("\n".join(material.described), flush=True)
    if config.describe:
        print("\n".join(material.unevenness()))
        return
    results: dict[str, list[Finished]] = {}
    rates: dict[str, float] = {}
    for row in config.rows:
        tried = {rate: material.train(row, config.seeds[0], rate, finished).rsum for rate in RATES}
        rate = rates[row] = max(RATES, key=tried.__getitem__)
        results[row] = []
        for seed in config.seeds:
            results[row].append(material.train(row, seed, rate, finished, evaluated=True))
            print(f"{row}, seed {seed}, rate {rate:g}: {time_left(every, finished)}", flush=True)
    evaluated = len(results[config.rows[0]][0].abstract)
    part = report_part(
        results,
        data=material.about,
        protocol={"epochs": EPOCHS[config.data], "neighbours": NEIGHBOURS, material.split: evaluated},
        seeds=config.seeds,
        rates=rates,
    )
    beside = json.loads(config.beside.read_text(encoding="utf-8")) if config.beside else {}
    write_report({**beside, config.data: part}, config.out)
    print("\n".join(tables(part)))


def report_part(
    results: Mapping[str, Sequence[Finished]],
    *,
    data: Mapping[str, Any],
    protocol: Mapping[str, Any],
    seeds: Sequence[int],
    rates: Mapping[str, float],
) -> dict[str, Any]:
    """The part of a report on one data set.

    results  row -> its finished runs by seed
    """
    clusters = test_concepts(data_folder("icons"))
    values = {row: [run.values(clusters) for run in of_row] for row, of_row in results.items()}
    return {
        "data": data,
        "protocol": {**protocol, "concepts": len(np.unique(clusters))},
        "seeds": seeds,
        "rates": rates,
        "oracle": None,
        "trained": {row: [run.sizes.tolist() for run in results[row]] for row in results if row in SCORES},
        "rows": summary(values),
        "claims": claims.judged(values),
    }


def rejudged(part: Mapping[str, Any], results: Path) -> dict[str, Any]:
    """The part of a report by the rule of today, from the finished runs that it was made of."""
    finished = {
        row: [Finished.read(result_file(results, row, seed, part["rates"][row])) for seed in part["seeds"]]
        for row in part["rows"]
    }
    same = {key: part[key] for key in ("data", "protocol", "seeds", "rates")}
    return report_part(finished, **same)


def write_report(report: Mapping[str, Any], out: Path) -> None:
    """Write evidence.json, the figure and, with the experiment, the page into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    atomic.write_text(out / "evidence.json", json.dumps(report, indent=1) + "\n")
    if EXPERIMENT in report:
        atomic.write_text(out / "evidence.md", evidence_page.page(report))
    evidence_page.figure(report, out / "evidence.png")


def test_concepts(folder: Path) -> NDArray[np.int64]:
    """(N) number of the concept of each icon of test: icons of one are no samples of their own.

    folder  of the icons
    """
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    concepts = [row["concept"] for row in rows if row["split"] == "test"]
    return np.unique(concepts, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Material:
    """What all rows share.

    name       of the data            data      pairs of one text an image            images    their folder
    about      figures from before any training        described  the same in words
    abstract   ids of the texts whose figures stand apart
    graphs     neighbours of the texts of train, and of the split that is evaluated; of train also those of vectors
               drawn at random and those of the images
    features   of the images          selects   split that chooses the epochs         split     split that is evaluated
    total      lambda over 32 pairs
    encoder    options of the encoder that learns from pixels; none where models read the features
    vectors    of images and of texts by the stand-in for a pretrained dual encoder; None without one
    """

    name: str
    out: Path
    data: Path
    images: Path
    about: Mapping[str, Any]
    described: Sequence[str]
    abstract: Collection[str]
    graphs: Mapping[str, Path]
    features: Path
    selects: str
    split: str
    total: float
    encoder: Mapping[str, Any] = field(default_factory=dict)
    vectors: Path | None = None

    def with_stand_in(self, run: Path) -> Material:
        """With the vectors of a dual encoder, computed once."""
        file = self.out / "stand-in.npz"
        if not file.is_file():
            st.embed(run, data=self.data, images=self.images, features=self.features, split="all", out=file)
        return replace(self, vectors=file)

    @cached_property
    def untrained(self) -> Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Score -> of images, of texts of train, by features that were not trained."""
        whole = st.read(self.data, images=self.images)
        return Untrained.of(whole, "train", topics.image_vectors(whole, FeatureFile.open(self.features))).scores

    def effective(self, score: str, **changed: Any) -> float:
        """Effective sample size of a weighting's form, as a share, before any training."""
        weighting = replace(topics.PUBLISHED, total=self.total, **changed)
        return topics.effective_size(*self.untrained[score], weighting)

    def even_signs(self) -> dict[str, float]:
        """Form of `EVEN`, as in "discrepancy_images" -> the sign by which it is as even as the default (bisection)."""
        signs = {}
        for score, form in EVEN:
            combine, aim = FORMS[form]["combine"], self.effective(score)
            even, uneven = 0.0, float(FORMS[form].get("sign", -1))
            while self.effective(score, combine=combine, sign=uneven) > aim:
                even, uneven = uneven, 2 * uneven
            for _ in range(20):
                middle = (even + uneven) / 2
                size = self.effective(score, combine=combine, sign=middle)
                even, uneven = (middle, uneven) if size > aim else (even, middle)
            signs[f"{score}_{form}"] = round(even, 2)
        return signs

    def unevenness(self) -> list[str]:
        """Lines of a table: effective sample sizes of all forms of the weights. Rows differ by these, too."""
        lines = ["| effective sample size, % | diversity | discrepancy |", "|---|---|---|"]
        for form, changed in {"default": {}, **FORMS}.items():
            sizes = [f"{100 * self.effective(score, **changed):.1f}" for score in SCORES]
            lines.append(f"| {form} | {' | '.join(sizes)} |")
        signs = ", ".join(f"{name.replace('_', ' of ')} {sign:g}" for name, sign in self.even_signs().items())
        return [*lines, f"as even as the default by the sign: {signs}"]

    @staticmethod
    def icons(out: Path, grid: Path) -> Material:
        """Icons without repeated ones, and what is known of their weights before any training."""
        folder = data_folder("icons")
        data = out / "icons.jsonl"
        left_out = distinct_icons(folder, data)
        whole = st.read(data, images=folder / "images")
        vectors = topics.image_vectors(whole, FeatureFile.open(grid))
        train, test = (Untrained.of(whole, split, vectors) for split in ("train", "test"))
        sizes = {
            name: {score: topics.effective_size(*train.scores[score], weights) for score in SCORES}
            for name, weights in (("effective", topics.SHARP), ("published", topics.PUBLISHED))
        }
        total = topics.PUBLISHED.total if max(sizes["published"].values()) <= topics.EVEN else TOTAL
        diversity = test.scores["diversity"][0]
        spread_out = np.argsort(diversity, kind="stable")[: round(ABSTRACT * len(diversity))]
        abstract = {str(test.pairs.texts.ids[row]) for row in spread_out}
        spread = {
            f"{score}/{side}": [float(np.nanmean(values)), float(np.nanstd(values))]
            for score in SCORES
            for side, values in zip(("image", "text"), train.scores[score], strict=True)
        }
        figures = {
            "pairs": len(train.pairs),
            "selecting": len(whole.split("val")),
            "loose": len(abstract),
            "left_out": left_out,
            "spread": spread,
            **sizes,
            "total": total,
        }
        scores = ", ".join(
            f"{name.replace('/', ' of ')}s {mean:.3f} (deviation {deviation:.3f})"
            for name, (mean, deviation) in spread.items()
        )
        described = [
            f"{len(train.pairs):,} training icons, {figures['selecting']:,} that choose, {len(test.pairs):,} test "
            f"icons ({len(abstract):,} abstract); left out as repeated: "
            + ", ".join(f"{count} of {split}" for split, count in left_out.items()),
            f"{NEIGHBOURS} neighbours: {scores}",
            _sizes(figures),
            f"lambda {total:g}",
        ]
        graphs = _graphs(out, data, folder / "images", grid, "test")
        return Material(
            ICONS, out, data, folder / "images", figures, described, abstract, graphs, grid, "val", "test", total
        )

    @staticmethod
    def icons_by_lite2(out: Path, _: Path | None) -> Material:
        """Icons by the 3 x 3 cells of EfficientNet-Lite2 at 96 pixels, their size, which are computed once."""
        folder = data_folder("icons")
        whole = st.read(folder / "captions.jsonl", images=folder / "images")
        return replace(Material.icons(out, starter_features(whole, out, image_size=96)), name=LITE2)

    @staticmethod
    def icons_by_pixels(out: Path, grid: Path) -> Material:
        """Icons whose network learns with the rest."""
        return replace(Material.icons(out, grid), name=PIXELS, encoder=SMALL_NETWORK)

    def train(self, row: str, seed: int, rate: float, results: Path, *, evaluated: bool = False) -> Finished:
        """Train, or resume, or read what is left of it in `results`; `evaluated` once on the last split."""
        file, run = result_file(results, row, seed, rate), run_folder(self.out, row, seed, rate)
        finished = Finished.read(file) if file.is_file() else None
        if finished is None or (evaluated and not finished.ranks.size):
            # A result from another machine may have no run here that could be evaluated.
            if finished is None or not (run / "run.json").is_file():
                if finished is not None:
                    require_same_draws([(str(file), finished.draws), ("what is trained now", DRAWS)], DataError)
                finished = self._trained(row, seed, rate, run)
            if evaluated:
                finished = self._evaluated(finished, run)
            finished.write(file)
        return finished

    def _trained(self, row: str, seed: int, rate: float, run: Path) -> Finished:
        files = {name: self.graphs[name] for name in ("random", "visual")}
        signs = {name: f"{sign:g}" for name, sign in (self.even_signs() if row.endswith(" even") else {}).items()}
        recipe = ROWS[row].of(graph=self.graphs["train"], total=f"{self.total:g}", **files, **signs)
        recipe = recipe.but(**self.encoder)
        sides: dict[str, Any] = {} if self.encoder else {"features": self.features}
        if recipe.model == "adapt":
            assert self.vectors is not None
            sides = {"features": self.vectors, "text_features": self.vectors}
        started = time.process_time()
        config = st.DataConfig(self.data, images=self.images, val_split=self.selects, **sides)
        options = flat_arguments(recipe.model, {**recipe.options, "epochs": EPOCHS[self.name], "lr": rate})
        running = st.RunConfig(seed=seed, resume=True)
        trained = st.train(recipe.model, data=config, out=run, run=running, quiet=True, **options)
        if trained.record.status != "finished":
            sys.exit(f"the training of {run} was stopped; the same call resumes it")
        tables = [load_file(file) for file in sorted((run / "tables").glob("epoch-*.safetensors"))]
        weights = replace(topics.PUBLISHED, total=self.total)
        used = tables if row in SCORES else []
        sizes = [topics.effective_size(table[f"{row}/image"], table[f"{row}/text"], weights) for table in used]
        none = np.zeros((2, 0))
        return Finished(
            rsum=trained.record.best["rsum"],
            seconds=time.process_time() - started,
            sizes=np.array(sizes),
            ranks=none.astype(np.uint16),
            kept=none.astype(np.float32),
            abstract=np.zeros(0, dtype=bool),
        )

    def _evaluated(self, finished: Finished, run: Path) -> Finished:
        """With what the run has on each pair of the evaluated split."""
        metrics = [*default_metrics(), *(CWay(c) for c in C), Preservation(against=str(self.graphs[self.split]))]
        protocol = st.Protocol(bootstrap=0)
        result = st.evaluate(run, split=self.split, metrics=metrics, protocol=protocol, quiet=True)
        by_pair = result.per_query
        if not np.array_equal(by_pair["text_to_image/image"], by_pair["image_to_text/id"]):
            raise DataError(f"{self.data} needs one text an image, in the same order; build the data set again")
        evaluated = replace(
            finished,
            ranks=np.stack([by_pair[f"{way}/mean_rank"] for way in DIRECTIONS]).astype(np.uint16),
            kept=np.stack([by_pair[f"{side}/{KEPT}"] for side in ("image", "text")]).astype(np.float32),
            abstract=np.array([str(name) in self.abstract for name in by_pair["text_to_image/id"]]),
        )
        for name, values in evaluated.values().values.items():
            np.testing.assert_allclose(values, by_pair[name], rtol=1e-6, err_msg=name)
        return evaluated


def _sizes(figures: Mapping[str, Any]) -> str:
    sizes = {
        name: ", ".join(f"{score} {100 * size:.1f} %" for score, size in figures[name].items())
        for name in ("effective", "published")
    }
    return f"effective sample size: {sizes['effective']} at -20 x score; {sizes['published']} of default weights"


def _graphs(out: Path, data: Path, images: Path, features: Path, split: str) -> dict[str, Path]:
    """Build the neighbours once."""
    drawn = out / "random.npz"
    if not drawn.is_file():
        with np.load(features, allow_pickle=False) as file:
            names = file["names"]
        vectors = np.random.default_rng(0).standard_normal((len(names), RANDOM_DIM), dtype=np.float32)
        np.savez(drawn, names=names, pooled=vectors)
    graphs = {name: out / f"graph-{name}" for name in ("train", split, "random", "visual")}
    for name, graph in graphs.items():
        space: dict[str, Any] = {
            "random": {"space": f"features:{drawn}"},
            "visual": {"space": f"features:{features}"},
        }.get(name, {"space": "lsa", "dim": 100})
        if not graph.is_dir():
            st.build_neighbours(
                graph,
                data=data,
                images=images,
                split=split if name == split else "train",
                neighbours=NEIGHBOURS,
                **space,
            )
    return graphs


def distinct_icons(folder: Path, target: Path) -> dict[str, int]:
    """Write the icons without those of train whose tags or drawing are in val or test, and of val those of test.

    Returns how many were left out, by split.
    """
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    marks = [
        (frozenset(row["tags"]), sha256((folder / "images" / row["image"]).read_bytes()).hexdigest()) for row in rows
    ]
    taken: set[object] = set()
    kept, left_out = set(), {}
    for split in ("test", "val", "train"):
        own = [number for number, row in enumerate(rows) if row["split"] == split]
        free = [number for number in own if taken.isdisjoint(marks[number])]
        taken |= {mark for number in own for mark in marks[number]}
        kept |= set(free)
        left_out[split] = len(own) - len(free)
    atomic.write_text(target, "".join(json.dumps(row) + "\n" for number, row in enumerate(rows) if number in kept))
    return left_out


@dataclass(frozen=True)
class Untrained:
    """A split and the scores of its pairs by features that were not trained: score -> of images, of texts."""

    pairs: st.Dataset
    scores: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]

    @staticmethod
    def of(whole: st.Dataset, split: str, vectors: NDArray[Any]) -> Untrained:
        """By the split's own texts.

        vectors  (I D) of the images of `whole`
        """
        pairs, space = whole.split(split), LsaSpace(topics.TEXT_WIDTH, 0)
        row_of = {name: row for row, name in enumerate(whole.images.ids)}
        images = vectors[[row_of[name] for name in pairs.images.ids]][image_of_text(pairs)]
        texts = space(pairs, np.ones(len(pairs.texts), dtype=bool)).vectors
        lists = torch.from_numpy(build_graph(pairs, space, GraphOptions(NEIGHBOURS, "all")).neighbours)
        both = [neighbour_scores(torch.from_numpy(bank), lists) for bank in (images, texts)]
        return Untrained(pairs, {score: tuple(getattr(side, score).numpy() for side in both) for score in SCORES})


MAKERS = {
    ICONS: Material.icons,
    LITE2: Material.icons_by_lite2,
    PIXELS: Material.icons_by_pixels,
}


def summary(results: Mapping[str, Sequence[Values]]) -> dict[str, dict[str, list[float]]]:
    """Row -> "text_to_image/recall@10/abstract" and the like -> its mean in per cent, by seed."""
    return {
        row: {
            f"{name}/{part}": [100 * float(np.nanmean(result.values[name][chosen(result)])) for result in of_row]
            for name in of_row[0].values
            for part, chosen in (("literal", lambda each: ~each.abstract), ("abstract", lambda each: each.abstract))
        }
        for row, of_row in results.items()
    }


def next_seed(values: Sequence[float]) -> tuple[float, float]:
    """The interval in which the value of another seed lies with a probability of 95 %, by Student's t.

    A range of five seeds leaves out the sixth in one of three cases.
    """
    count = len(values)
    if count < 2:
        return -np.inf, np.inf
    half = float(student.ppf(0.975, count - 1)) * float(np.std(values, ddof=1)) * (1 + 1 / count) ** 0.5
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def tables(part: Mapping[str, Any]) -> list[str]:
    """The figures by row, mean over seeds and in brackets the interval of another seed, and the comparisons."""
    names = list(dict.fromkeys(name for row in part["rows"].values() for name in row))
    lines = ["", f"| row | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row, figures in part["rows"].items():
        cells = [
            f"{np.mean(figures[name]):.1f} [{' to '.join(f'{end:.1f}' for end in next_seed(figures[name]))}]"
            if name in figures
            else "-"
            for name in names
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return [*lines, "", *evidence_page.table(part)]


if __name__ == "__main__":
    main()
