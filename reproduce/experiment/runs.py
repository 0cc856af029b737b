"""Training of the experiment: a run leaves a file of some kilobytes, and a call trains only what has none.

Rates are searched with two seeds; the sign of a row at an effective size is found on the vectors of the trained host
"uniform"; a run of a set in folds is one run of all folds.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

import subtext as st
from reproduce import topics
from reproduce.experiment.rows import FORMS, MAIN_HOST, MAIN_SET, Row, batch_of, oracle, plan
from reproduce.experiment.sets import TrainingSet, make
from reproduce.studies.common import file_name, write_arrays
from subtext.api.train import flat_arguments
from subtext.errors import DataError, TrainingError
from subtext.graphs.graph import Graph, image_of_text
from subtext.objectives.weighting import Neighbourhood
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.version import DRAWS, require_same_draws

RESULTS = Path(__file__).parents[1] / "results" / "experiment"
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
START = 2
"""Place of the rate where a search begins."""
SEARCHING = (0, 1)
SEEDS, FEWER = tuple(range(10)), tuple(range(5))
GUESS = 40.0
"""Seconds of a run before any has been measured."""


@dataclass(frozen=True)
class Finished:
    """What is left of a run, over the test pairs of all its folds.

    rsum     sum of recalls on the split that selects, at the selected epoch, mean of the folds
    epochs   trained, mean of the folds         seconds  of processor time
    sizes    (E) effective sample size of the weights in training, by epoch; empty for other rows
    sign     of the weights, 0 where a row has none
    ranks    (2 N) of the right item of each pair, by direction, among the items that are not right; ties count half
    others   (2 N) how many items are not right
    described (N) the rank where the query is the literal description; empty without one
    draws    `subtext.version.DRAWS` of the training
    """

    rsum: float
    epochs: float
    seconds: float
    sign: float
    sizes: NDArray[np.float32]
    ranks: NDArray[np.float32]
    others: NDArray[np.int32]
    described: NDArray[np.float32]
    draws: int = DRAWS

    def write(self, file: Path) -> None:
        """Write it in one piece."""
        write_arrays(file, vars(self))

    @staticmethod
    def read(file: Path) -> Finished:
        """Read it again."""
        with np.load(file, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in Finished.__dataclass_fields__}
        single = {name: float(values[name]) for name in ("rsum", "epochs", "seconds", "sign")}
        return Finished(**{**values, **single, "draws": int(values["draws"])})

    def choice(self, c: int) -> NDArray[np.float64]:
        """(2 N) probability of the right choice among c, exactly: that none of the c - 1 others drawn is better."""
        drawn = np.arange(c - 1)[:, None, None]  # One after the other, none twice.
        worse = self.others - np.ceil(self.ranks).astype(np.int64) + 1
        return np.asarray((np.maximum(worse - drawn, 0) / (self.others - drawn)).prod(axis=0))


@dataclass(frozen=True)
class Task:
    """The rows of a host on a set."""

    set: str
    host: str
    rows: Mapping[str, Row]

    @property
    def folder(self) -> str:
        """Its folder below the results."""
        return f"{self.set}-{self.host}"

    @property
    def is_main(self) -> bool:
        """Whether it is the main set on the main host."""
        return (self.set, self.host) == (MAIN_SET, MAIN_HOST)


def tasks() -> list[Task]:
    """Everything that is to be trained, the main task first."""
    return [Task(name, host, rows) for (name, host), rows in plan().items()]


def keep_known(sets: Sequence[TrainingSet], results: Path) -> None:
    """Write beside the finished runs what is known of the test pairs, so that a report needs no set."""
    file = results / f"{sets[0].name}.npz"
    if file.is_file():
        return
    known = [fold.known.of("test") for fold in sets]
    fields = {"abstract": "abstract", "literal": "literal", "clusters": "written"}
    results.mkdir(parents=True, exist_ok=True)
    write_arrays(file, {name: np.concatenate([getattr(each, own) for each in known]) for name, own in fields.items()})


def result_file(results: Path, task: Task, row: str, seed: int, rate: float) -> Path:
    """The file of what is left of a run."""
    return results / task.folder / f"{file_name(row)}-{rate:g}-{seed}.npz"


@dataclass(frozen=True)
class Search:
    """What is known of a row's rate.

    rates  rate -> mean sum of recalls of the searching seeds, of rates that both have tried
    """

    rates: Mapping[float, float]

    @property
    def best(self) -> int:
        """Place of the best rate so far."""
        return max((RATES.index(rate) for rate in self.rates), key=lambda place: self.rates[RATES[place]])

    @property
    def next_rate(self) -> float | None:
        """The rate to try next: a neighbour of the best one; None where all of them are known."""
        if not self.rates:
            return RATES[START]
        near = [place for place in (self.best - 1, self.best + 1) if 0 <= place < len(RATES)]
        return next((RATES[place] for place in near if RATES[place] not in self.rates), None)

    @property
    def inner(self) -> bool:
        """Whether the best rate lies between two worse ones."""
        return self.next_rate is None and 0 < self.best < len(RATES) - 1


def search(results: Path, task: Task, row: str) -> Search:
    """What the finished runs know of a row's rate."""
    found = {}
    for rate in RATES:
        files = [result_file(results, task, row, seed, rate) for seed in SEARCHING]
        if all(file.is_file() for file in files):
            found[rate] = float(np.mean([Finished.read(file).rsum for file in files]))
    return Search(found)


def seeds_of(task: Task) -> tuple[int, ...]:
    """The seeds of a task."""
    return SEEDS if task.is_main else FEWER


def waiting(results: Path, task: Task, row: str) -> list[tuple[int, float]]:
    """The runs (seed, rate) of a row that can be trained next; none where it is finished."""
    found = search(results, task, row)
    if (rate := found.next_rate) is not None:
        runs = [(seed, rate) for seed in SEARCHING]
    else:
        runs = [(seed, RATES[found.best]) for seed in seeds_of(task)]
    return [(seed, rate) for seed, rate in runs if not result_file(results, task, row, seed, rate).is_file()]


def train_row(sets: Sequence[TrainingSet], task: Task, row: str, out: Path, results: Path) -> Iterator[str]:
    """Train what a row still lacks; gives a line for each run."""
    while runs := waiting(results, task, row):
        for seed, rate in runs:
            finished = train(sets, task, row, seed, rate, out, results)
            finished.write(result_file(results, task, row, seed, rate))
            yield (
                f"{task.folder}, {row}, seed {seed}, rate {rate:g}: rsum {finished.rsum:.1f} after "
                f"{finished.epochs:.0f} epochs, {finished.seconds:.0f} s"
            )


def train(
    sets: Sequence[TrainingSet], task: Task, row: str, seed: int, rate: float, out: Path, results: Path
) -> Finished:
    """One run: a training of each fold, and the ranks of all test pairs.

    Raises:
        TrainingError: If a training was stopped; the same call resumes it.
    """
    started = time.process_time()
    parts = [_fold(fold, task, row, seed, rate, out / "runs", results) for fold in sets]
    join = {name: [part[name] for part in parts] for name in parts[0]}
    return Finished(
        rsum=float(np.mean(join["rsum"])),
        epochs=float(np.mean(join["epochs"])),
        seconds=time.process_time() - started,
        sign=float(np.mean(join["sign"])),
        sizes=np.mean([sizes[: min(map(len, join["sizes"]))] for sizes in join["sizes"]], axis=0).astype(np.float32),
        ranks=np.concatenate(join["ranks"], axis=1),
        others=np.concatenate(join["others"], axis=1),
        described=np.concatenate(join["described"]),
    )


def _fold(fold: TrainingSet, task: Task, row: str, seed: int, rate: float, runs: Path, results: Path) -> dict[str, Any]:
    """A training of one fold, and what is left of it."""
    spec = task.rows[row]
    sign = find_sign(fold, task, spec, runs, results) if spec.size else None
    files = {"oracle": oracle_file(fold), "images": fold.images}
    for kind, name in (("texts", "graph"), ("random", "random")):
        if any(f"{{{name}}}" in method for method in spec.methods):
            files[name] = fold.graph(kind)
    recipe = spec.recipe(task.set, task.host, files=files, sign=sign)
    folder = runs / task.folder / fold.folder.name / f"{file_name(row)}-{rate:g}-{seed}"
    config = st.DataConfig(fold.data, features=fold.images, text_features=fold.texts, val_split="select")
    options = flat_arguments(recipe.model, {**recipe.options, "lr": rate})
    running = st.RunConfig(seed=seed, resume=True)
    trained = st.train(recipe.model, data=config, out=folder, run=running, quiet=True, **options)
    if trained.record.status != "finished":
        raise TrainingError(f"the training of {folder} was stopped; the same call resumes it")
    sizes = _sizes(folder, spec, sign, batch_of(task.set)) if spec.score else np.zeros(0, dtype=np.float32)
    found = evaluate(fold, folder)
    # The vectors of the host by which signs are found are needed again.
    if not (row == "uniform" and seed == SEARCHING[0]):
        shutil.rmtree(folder)
    best = trained.record.best
    return {"rsum": best["rsum"], "epochs": trained.record.epochs, "sign": sign or 0.0, "sizes": sizes, **found}


def oracle_file(fold: TrainingSet) -> Path:
    """The oracle's weights by training text, made once."""
    file = fold.folder / "oracle.npy"
    if not file.is_file():
        np.save(file, fold.known.of("train").oracle.astype(np.float32))
    return file


def _weighting(spec: Row, sign: float) -> Neighbourhood:
    return Neighbourhood(
        total=32.0,
        batch=32,
        sign=sign,
        combine=FORMS[spec.form],  # type: ignore[arg-type]
        diversity=float(spec.score == "diversity"),
        discrepancy=float(spec.score == "discrepancy"),
    )


def find_sign(fold: TrainingSet, task: Task, spec: Row, runs: Path, results: Path) -> float:
    """The sign at which a row's weights have their effective size on the vectors of the host "uniform", by bisection.

    Raises:
        DataError: Where that host is not trained yet.
    """
    scores = _scores_of_host(fold, task, runs, results)[spec.score]

    def size(sign: float) -> float:
        return 100 * topics.effective_size(*scores, _weighting(spec, sign), batch=batch_of(task.set))

    even, uneven = 0.0, -1.0
    while size(uneven) > spec.size:
        even, uneven = uneven, 2 * uneven
    for _ in range(24):
        middle = (even + uneven) / 2
        even, uneven = (middle, uneven) if size(middle) > spec.size else (even, middle)
    return float(f"{uneven:.4g}")


def _scores_of_host(
    fold: TrainingSet, task: Task, runs: Path, results: Path
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Score -> of images and of texts of the training pairs, by "uniform" with its best rate and the first seed."""
    file = runs / task.folder / fold.folder.name / "scores.npz"
    if not file.is_file():
        found = search(results, task, "uniform")
        if found.next_rate is not None:
            raise DataError(f"signs of {task.folder} need its row 'uniform'; train that row first")
        run = runs / task.folder / fold.folder.name / f"uniform-{RATES[found.best]:g}-{SEARCHING[0]}"
        embedded = st.embed(run, data=fold.data, features=fold.images, text_features=fold.texts, split="train")
        owner = image_of_text(embedded.dataset)
        lists = torch.from_numpy(Graph.load(fold.graph()).neighbours)
        images, texts = embedded.image_vectors.vectors[torch.from_numpy(owner), 0], embedded.text_vectors.vectors[:, 0]
        both = [neighbour_scores(bank.float(), lists) for bank in (images, texts)]
        arrays = {
            f"{score} {side}": getattr(scored, score).numpy()
            for score in ("diversity", "discrepancy")
            for side, scored in zip(("image", "text"), both, strict=True)
        }
        np.savez(file, allow_pickle=False, **arrays)
    with np.load(file, allow_pickle=False) as arrays:
        return {score: (arrays[f"{score} image"], arrays[f"{score} text"]) for score in ("diversity", "discrepancy")}


def _sizes(folder: Path, spec: Row, sign: float | None, batch: int) -> NDArray[np.float32]:
    tables = [load_file(file) for file in sorted((folder / "tables").glob("epoch-*.safetensors"))]
    weighting = _weighting(spec, -1.0 if sign is None else sign)
    sizes = [
        topics.effective_size(table[f"{spec.score}/image"], table[f"{spec.score}/text"], weighting, batch=batch)
        for table in tables
    ]
    return np.array(sizes, dtype=np.float32)


def evaluate(fold: TrainingSet, run: Path) -> dict[str, Any]:
    """The ranks of the test pairs by a run."""
    embedded = st.embed(run, data=fold.data, features=fold.images, text_features=fold.texts, split="test")
    images, texts = embedded.image_vectors.vectors.float(), embedded.text_vectors.vectors.float()
    scores = _cosines(images, texts)
    owner = image_of_text(embedded.dataset)
    ranks, others = pair_ranks(scores, owner)
    described = np.zeros(0, dtype=np.float32)
    if (fold.folder / "literal.npz").is_file():
        literal = st.embed(
            run, data=fold.data, features=fold.images, text_features=fold.folder / "literal.npz", split="test"
        )
        described = pair_ranks(_cosines(images, literal.text_vectors.vectors.float()), owner)[0][1]
    return {"ranks": ranks, "others": others, "described": described}


def _cosines(images: torch.Tensor, texts: torch.Tensor) -> NDArray[np.float32]:
    """(I T) cosines of the best views."""
    scores = torch.einsum("ikd,tld->itkl", images, texts).amax(dim=(2, 3))
    return scores.numpy()


def pair_ranks(scores: NDArray[np.float32], owner: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The rank of the right item of each pair among the items that are not right, from the image and from the text.

    Args:
        scores: (I T), high is good.
        owner: (T) the image of each text; other texts of an image are right too, and do not compete.

    Returns:
        (2 T) ranks from 1, ties counting half, and how many items compete with each.
    """
    own = scores[owner, np.arange(len(owner))]
    right = owner[None, :] == np.arange(len(scores))[:, None]
    ranks, others = np.empty((2, len(owner)), dtype=np.float32), np.empty((2, len(owner)), dtype=np.int32)
    for text, image in enumerate(owner.tolist()):
        for way, (row, wrong) in enumerate(((scores[image], ~right[image]), (scores[:, text], ~right[:, text]))):
            rivals = row[wrong]
            ranks[way, text] = 1 + (rivals > own[text]).sum() + (rivals == own[text]).sum() / 2
            others[way, text] = len(rivals)
    return ranks, others


def costs(results: Path) -> list[tuple[Task, str, int, int, float]]:
    """Of each row: runs done, runs left, and the seconds that these will take."""
    found = []
    seconds: dict[str, list[float]] = {}
    every = [(task, row) for task in tasks() for row in task.rows]
    for task, row in every:
        for file in (results / task.folder).glob(f"{file_name(row)}-*.npz"):
            seconds.setdefault(task.folder, []).append(Finished.read(file).seconds)
    measured = [value for values in seconds.values() for value in values]
    for task, row in every:
        own = seconds.get(task.folder) or measured or [GUESS]
        done = [result_file(results, task, row, seed, rate).is_file() for rate in RATES for seed in seeds_of(task)]
        known = search(results, task, row)
        # A search that has not ended tries about four rates with two seeds.
        rates = 0 if known.next_rate is None else max(1, 4 - len(known.rates))
        left = (
            rates * len(SEARCHING)
            + len(seeds_of(task))
            - (
                len(SEARCHING)
                if known.next_rate is not None
                else sum(result_file(results, task, row, seed, RATES[known.best]).is_file() for seed in seeds_of(task))
            )
        )
        found.append((task, row, sum(done), left, left * float(np.mean(own))))
    return found


def plan_lines(results: Path) -> list[str]:
    """Every row with what is done and what it will cost."""
    lines, total = [], 0.0
    for task, row, done, left, seconds in costs(results):
        total += seconds
        lines.append(f"{task.folder}, {row}: {done} runs done, about {left} left, {seconds / 60:.0f} min")
    return [*lines, f"about {total / 3600:.1f} core hours left"]


def train_all(out: Path, results: Path, *, only: Sequence[str] = (), part: tuple[int, int] = (0, 1)) -> Iterator[str]:
    """Train everything that is not finished: first the row by which signs are found, then the others.

    only  folders of tasks; empty for all of them      part   (n, of): every so manyeth row, for several processes
    """
    st.register_method(oracle)
    for task in tasks():
        if only and task.folder not in only:
            continue
        sets = make(task.set, out / "sets")
        keep_known(sets, results)
        _require_one_side(results / task.folder)
        rows = ["uniform", *(row for row in task.rows if row != "uniform")]
        for number, row in enumerate(rows):
            if number == 0 or number % part[1] == part[0]:
                yield from train_row(sets, task, row, out, results)


def _require_one_side(folder: Path) -> None:
    """Raise DataError where finished runs have other random draws than those of today."""
    files = sorted(folder.glob("*.npz"))
    require_same_draws(
        [*((str(file), Finished.read(file).draws) for file in files), ("a run of today", DRAWS)], DataError
    )
