"""What the experiment says: its finished runs as figures, verdicts and a section of docs/evidence.md.

A task is judged from the rows that are finished with all their seeds; the others are counted. The oracle's gap is what
its weights gain over themselves permuted, on abstract pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.claims import (
    CHOICE,
    COMPLEMENTARY,
    LEAST_GAP,
    SEMANTIC,
    T2,
    T3,
    C,
    Claim,
    Source,
    Values,
    judged,
    primary_of,
)
from reproduce.experiment.rows import SCORES, SIZES
from reproduce.experiment.runs import RATES, Finished, Task, result_file, search, seeds_of, tasks, waiting
from reproduce.experiment.sets import OPENSTAX
from subtext.core import DIRECTIONS
from subtext.evaluation.intervals import paired

PARTS = ("abstract", "literal", "all")
ORACLE, PERMUTED, UNIFORM = "oracle", "oracle permuted", "uniform"
TEXTS = ("caption", "description")
"""What finds an image of OpenStax: the caption of its chapter, or the literal description of it."""
_WEIGHTS = tuple(
    Claim(
        COMPLEMENTARY,
        f"Weights by {score.upper()} lift retrieval, {gain} % (mean of four data sets)",
        f"{score} images 75",
        f"{score} images 75 permuted",
        Source(T2, score, "pvse"),
        (UNIFORM,),
        part="abstract",
    )
    for score, gain in (("diversity", "70.5 to 73.9"), ("discrepancy", "70.5 to 73.5"))
)


def _published(says: str, row: str, control: str, source: Source, *beside: str) -> Claim:
    return Claim(COMPLEMENTARY, says, row, control, source, beside, part="abstract")


_WITHIN = Claim(
    SEMANTIC,
    "Losses within modalities lift the angular loss from 62.4 to 64.8 % (Politics)",
    "within",
    "within random",
    Source("eccv2020_table1", "ours", "ang_np_sym", ("politics",)),
    ("within nothing",),
    part="abstract",
)
MAIN_CLAIMS = (
    *_WEIGHTS,
    _published(
        "Lambda alone lifts PVSE from 59.9 to 60.3 % (Politics)",
        "uniform 196",
        UNIFORM,
        Source(T3, "uniform", "pvse", ("politics",), T2),
    ),
    _published(
        "Uniform weights beat random ones, 60.3 to 57.8 % (Politics)",
        "uniform 196",
        "random",
        Source(T3, "uniform", "random"),
    ),
    *(
        _published(says, row, control, Source(T3, *source), *beside)
        for score, short, figures in (
            ("diversity", "div", ("63.2", "62.2", "62.2", "61.7", "60.9")),
            ("discrepancy", "dis", ("62.2", "61.7", "61.6", "60.5", "60.2")),
        )
        for name, (best, plus, summed, images, texts) in ((score.upper(), figures),)
        for says, row, control, source, *beside in (
            (
                f"{name} beats uniform weights, {best} to 60.3 %",
                f"{score} Gamma -1",
                "uniform 196",
                (short, "uniform"),
                f"{score} Gamma -1 permuted",
            ),
            (
                f"Gamma = -1 beats Gamma = 1, {best} to {plus} % ({name})",
                f"{score} Gamma -1",
                f"{score} Gamma +1",
                (short, f"{short}_plus"),
            ),
            (
                f"The difference of both modalities beats their sum, {best} to {summed} % ({name})",
                f"{score} Gamma -1",
                f"{score} sum",
                (short, f"{short}_sum"),
            ),
            (
                f"The difference beats images alone, {best} to {images} % ({name})",
                f"{score} Gamma -1",
                f"{score} images alone",
                (short, f"{short}_image"),
            ),
            (
                f"The difference beats texts alone, {best} to {texts} % ({name})",
                f"{score} Gamma -1",
                f"{score} texts alone",
                (short, f"{short}_text"),
            ),
        )
    ),
    _published(
        "Both together beat the better one, 74.5 to 73.9 % (mean of four; COMBINED-VAL)",
        "combined val",
        "diversity Gamma -1",
        Source(T2, "combined_val", "diversity"),
        "uniform 196",
    ),
    _published(
        "So do both without a search, 74.5 to 73.9 % (COMBINED-STATS)",
        "combined stats",
        "diversity Gamma -1",
        Source(T2, "combined_stats", "diversity"),
        "uniform 196",
    ),
    _published(
        "DIVERSITY beats HAL's weights, 73.9 to 72.3 %", "diversity Gamma -1", "hal", Source(T2, "diversity", "hal")
    ),
    _published(
        "DIVERSITY beats MITHUN's weights, 73.9 to 71.8 %",
        "diversity Gamma -1",
        "mithun",
        Source(T2, "diversity", "mithun"),
    ),
    _published(
        "DIVERSITY beats AMRANI's weights, 73.9 to 72.2 %",
        "diversity Gamma -1",
        "amrani",
        Source(T2, "diversity", "amrani"),
    ),
    _published(
        "DIVERSITY beats losses within modalities, 73.9 to 72.0 %",
        "diversity Gamma -1",
        "within",
        Source(T2, "diversity", "thomas"),
    ),
    _WITHIN,
)
"""Claims of the main set on the main host."""


def claims_of(task: Task) -> tuple[Claim, ...]:
    """The claims that the rows of a task decide."""
    if task.is_main:
        return MAIN_CLAIMS
    return (*_WEIGHTS, _WITHIN) if task.set == OPENSTAX else _WEIGHTS


def part(results: Path) -> dict[str, Any]:
    """The part of a report: folder of a task -> what its finished rows say; tasks without any are left out."""
    found = {}
    for task in tasks():
        runs = {row: _finished(results, task, row) for row in task.rows if not waiting(results, task, row)}
        if runs:
            found[task.folder] = _judged(results, task, runs)
    return found


def _finished(results: Path, task: Task, row: str) -> list[Finished]:
    rate = RATES[search(results, task, row).best]
    return [Finished.read(result_file(results, task, row, seed, rate)) for seed in seeds_of(task)]


def _judged(results: Path, task: Task, runs: Mapping[str, Sequence[Finished]]) -> dict[str, Any]:
    with np.load(results / f"{task.set}.npz", allow_pickle=False) as arrays:
        known: dict[str, NDArray[Any]] = dict(arrays)
    values = {row: [_values(run, known) for run in of_row] for row, of_row in runs.items()}
    rates = {row: search(results, task, row) for row in runs}
    edge = [row for row, found in rates.items() if not found.inner]
    oracle = _gap(values)
    return {
        "seeds": list(seeds_of(task)),
        "pairs": {kind: int(values[next(iter(values))][0].chosen(kind).sum()) for kind in PARTS},
        "clusters": len(np.unique(known["clusters"])),
        "oracle": oracle,
        "waiting": [row for row in task.rows if row not in runs],
        "rows": {row: _figures(of_row, runs[row], values, row, rates[row].best) for row, of_row in values.items()},
        "claims": judged(values, claims_of(task), oracle=oracle, edge=edge),
    }


def _values(run: Finished, known: Mapping[str, NDArray[Any]]) -> Values:
    choice = run.choice(C)
    values = {f"{way}/{CHOICE}": choice[number] for number, way in enumerate(DIRECTIONS)}
    return Values(known["abstract"], values, known["clusters"], known["literal"])


def _difference(values: Mapping[str, Sequence[Values]], row: str, control: str, kind: str) -> dict[str, float]:
    mine, theirs = (np.stack([run.of(CHOICE, kind) for run in values[name]]) for name in (row, control))
    test = paired(mine, theirs, values[row][0].clusters_of(kind))
    return {"difference": test.difference, "low": test.low, "high": test.high}


def _gap(values: Mapping[str, Sequence[Values]]) -> dict[str, Any]:
    if not {ORACLE, PERMUTED}.issubset(values):
        return {"gap": None}
    found = _difference(values, ORACLE, PERMUTED, "abstract")
    return {"gap": found["difference"], "low": found["low"], "high": found["high"]}


def _figures(
    of_row: Sequence[Values], runs: Sequence[Finished], values: Mapping[str, Sequence[Values]], row: str, best: int
) -> dict[str, Any]:
    """The figures of a row: by kind of pair each seed's mean in per cent, and the difference to `uniform`."""
    figures: dict[str, Any] = {
        "rate": RATES[best],
        "inner": 0 < best < len(RATES) - 1,
        "epochs": float(np.mean([run.epochs for run in runs])),
        "seconds": float(np.mean([run.seconds for run in runs])),
        **{kind: [float(run.of(CHOICE, kind).mean()) for run in of_row] for kind in PARTS},
    }
    if runs[0].sizes.size:
        figures["sizes"] = [[float(run.sizes.min()), float(run.sizes.max())] for run in runs]
    if runs[0].described.size:
        figures["images of"] = {kind: _images_of(runs, of_row[0].chosen(kind)) for kind in PARTS[:2]}
    if row != UNIFORM and UNIFORM in values:
        figures["above uniform"] = {kind: _difference(values, row, UNIFORM, kind) for kind in PARTS}
    return figures


def _images_of(runs: Sequence[Finished], chosen: NDArray[np.bool_]) -> dict[str, list[float]]:
    """How often the image of a caption, and of a description, is found, in per cent: a value a seed."""
    found = {f"5-way by {TEXTS[0]}": [float(100 * run.choice(5)[1, chosen].mean()) for run in runs]}
    for text in TEXTS:
        ranks = [(run.ranks[1] if text == TEXTS[0] else run.described)[chosen] for run in runs]
        found |= {f"R@{k} by {text}": [float(100 * (rank <= k).mean()) for rank in ranks] for k in (1, 5, 10)}
    return found


def recovered(found: Mapping[str, Any], row: str) -> float | None:
    """The share of the oracle's gain on abstract pairs that a row has over its own permutation; None without these."""
    gap = found["oracle"]["gap"]
    effect = next((primary_of(claim) for claim in found["claims"] if claim["row"] == row), None)
    if gap is None or gap < LEAST_GAP or effect is None:
        return None
    return float(effect["difference"] / gap)


def front(found: Mapping[str, Any]) -> dict[str, list[tuple[int, float, float]]]:
    """Score and form -> (effective size, abstract, literal above uniform), of all sizes: what the weights cost."""
    fronts = {}
    for score in SCORES:
        for form in ("images", "texts", "difference"):
            rows = [(size, found["rows"].get(f"{score} {form} {size}")) for size in SIZES]
            points = [
                (size, own["above uniform"]["abstract"]["difference"], own["above uniform"]["literal"]["difference"])
                for size, own in rows
                if own is not None and "above uniform" in own
            ]
            if len(points) > 1:
                fronts[f"{score} {form}"] = points
    return fronts
