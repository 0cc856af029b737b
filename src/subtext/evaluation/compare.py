"""Two systems, one or several trainings each, compared query by query on the same queries.

Read from files that `subtext evaluate` wrote; refused where the two sides were not measured alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS
from subtext.data.arrays import open_npz
from subtext.data.dataset import frame
from subtext.errors import DataError, RequirementError
from subtext.evaluation.intervals import FEWEST_RUNS, holm, paired
from subtext.evaluation.result import Result, digits_of
from subtext.report.plots import Bar, Plot, bars
from subtext.report.text_table import Cell, SavedReport, as_html, table
from subtext.text_helpers import counted, finite_json, listed
from subtext.version import require_format, require_same_draws

if TYPE_CHECKING:
    import pandas

SURE = 0.05
"""Corrected p-value below which a difference counts."""
APART = ("id", "image")
"""What the file of values holds beside values: names."""
_FREE = (
    "versions", "bootstrap", "intervals", "candidates", "several_positives", "median_rank", "figures_of_folds", "units",
    "seed",
)  # fmt: skip
"""What two protocols may differ in: it changes no value of a query."""
_ROLES = {
    "training": "measured on what a run learnt from: this says nothing about new data",
    "selection": "measured on the split that selected a run's epoch: compare on data that decided nothing",
}


@dataclass(frozen=True)
class Measured:
    """One evaluation.

    Attributes:
        path: Of its JSON file.
        figures: Name -> number.
        protocol: How it was measured.
        about: Model, data, split and its role, as far as the file says.
        queries: "<direction>/<figure>" -> (Q) one value a query, and names under "/id" and "/image".
    """

    path: Path
    figures: Mapping[str, float]
    protocol: Mapping[str, Any]
    about: Mapping[str, Any]
    queries: Mapping[str, NDArray[Any]]

    @property
    def seed(self) -> int | None:
        """Of its training; None for a model that says none."""
        seed = self._model.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def draws(self) -> int | None:
        """`version.DRAWS` of its training; None for a model that was not trained here."""
        draws = self._model.get("draws")
        return draws if isinstance(draws, int) else None

    @property
    def fingerprint(self) -> str:
        """Of the model's weights; empty where the file names none."""
        return str(self._model.get("fingerprint", ""))

    @property
    def training(self) -> dict[str, Any]:
        """What was trained, its seed apart."""
        return {name: self._model.get(name) for name in ("model", "pretrained", "arguments", "methods")}

    def declared(self, name: str) -> Mapping[str, bool | int]:
        """What the metric of a figure declares: whether it is in per cent, digits, `lower_is_better`, and `compared`.

        Args:
            name: Of a figure, with its direction.

        Returns:
            Name -> true or false, or a number.
        """
        return cast(Mapping[str, bool | int], self.about["metrics"][name.split("/", 1)[-1].partition("(")[0]])

    @property
    def _model(self) -> Mapping[str, Any]:
        model = self.about.get("model")
        return model if isinstance(model, Mapping) else {}


def measured_of(result: Result) -> Measured:
    """An evaluation in memory, as if it had been read from its files.

    Args:
        result: Of an evaluation.

    Returns:
        The evaluation.
    """
    content = result.to_json()
    about = {name: value for name, value in content.items() if name not in result.figures and name != "protocol"}
    return Measured(Path("in memory"), result.figures, content["protocol"], about, result.per_query)


def read_measured(path: Path) -> Measured:
    """A JSON file of `subtext evaluate --json`, and the values a query that lie beside it as NAME.npz.

    Args:
        path: The JSON file.

    Returns:
        The evaluation.

    Raises:
        DataError: If one of them cannot be read or is another file.
        RequirementError: If the values a query are missing, or belong to other figures.
    """
    figures, protocol, about = _figures(path)
    values = path.with_suffix(".npz")
    if not values.is_file():
        raise RequirementError(
            f"{path} needs its values a query beside it, as {values.name}; they are not there; write both at once: "
            f"subtext evaluate RUN --json {path} --per-query {values}"
        )
    queries = open_npz(values, None, empty=True)
    run = Measured(path, figures, protocol, about, queries)
    if lacking := [name for name in (*(f"{d}/id" for d in DIRECTIONS), "text_to_image/image") if name not in queries]:
        raise RequirementError(
            f"{values} needs the names of queries and of their images; {', '.join(lacking)} is not there; "
            "another program wrote it; evaluate again with --json and --per-query"
        )
    if mismatch := _mismatch(run):
        raise RequirementError(
            f"{path} needs the values a query that its figures are means of; {values.name} has {mismatch}, which is of "
            "another evaluation; write both files at once, with --json and --per-query"
        )
    return run


def _figures(path: Path) -> tuple[dict[str, float], dict[str, Any], dict[str, Any]]:
    """Figures, protocol, and everything else of a JSON file."""
    advice = "name a file that `subtext evaluate --json FILE` wrote; in Python a Result will do"
    if not path.is_file():
        raise DataError(
            f"compare needs files of figures; {path} is {'a folder' if path.is_dir() else 'not there'}; {advice}"
        )
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be JSON; {str(error).splitlines()[0]}; {advice}") from error
    if not isinstance(content, dict) or not isinstance(content.get("protocol"), dict):
        raise DataError(f"{path} needs figures with the protocol that they were measured under; it has none; {advice}")
    require_format(content.get("format"), path, "evaluate", DataError)
    figures = {
        name: float(value)
        for name, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and ("/" in name or name == "rsum")
    }
    if not figures:
        raise DataError(f"{path} needs figures such as image_to_text/recall@1; it has none; {advice}")
    about = {name: value for name, value in content.items() if name not in figures and name != "protocol"}
    return figures, content["protocol"], about


def _mismatch(run: Measured) -> str:
    """What shows that the values are not those behind the figures; empty where nothing does."""
    gallery = run.protocol.get("gallery", {})
    images, texts = (len(run.queries[f"{direction}/id"]) for direction in DIRECTIONS)
    if isinstance(gallery, Mapping) and (images, texts) != (gallery.get("images"), gallery.get("texts")):
        return f"{images:,} images and {texts:,} texts"
    if run.protocol.get("folds") != 1:
        return ""
    for name, value in run.figures.items():
        column = run.queries.get(name)
        if column is None or np.isnan(column).all():
            continue
        mean = float(np.nanmean(column))
        if min(abs(mean - value), abs(100 * mean - value)) > 1e-6 * max(1.0, abs(value)):
            return f"a mean {name} of {mean:.6g}"
    return ""


@dataclass(frozen=True)
class Difference:
    """One figure of both sides, in its unit (per cent, or ranks).

    Attributes:
        name: Of the figure.
        first: Means over the runs.
        second: See `first`.
        first_runs: One number a run.
        second_runs: See `first_runs`.
        difference: First minus second.
        low: Its 95 % interval: of other runs and images from three runs a side on, else of other images alone.
        high: NaN where there is none.
        p_queries: If nothing but chance told these models apart on queries like these; corrected by Holm.
        p_runs: Of other runs and other images, by Student's t; corrected by Holm; NaN below three runs a side.
        raw_p_queries: Before correction.
        raw_p_runs: See `raw_p_queries`.
        better: "first", "second", or "" where it is not sure. Sure is 0 outside the interval and a p-value below 0.05:
            of runs where there are three or more a side, else of queries.
    """

    name: str
    first: float
    second: float
    first_runs: tuple[float, ...]
    second_runs: tuple[float, ...]
    difference: float
    low: float = math.nan
    high: float = math.nan
    p_queries: float = math.nan
    p_runs: float = math.nan
    raw_p_queries: float = math.nan
    raw_p_runs: float = math.nan
    better: str = ""

    @property
    def tested(self) -> bool:
        """Whether there are values a query behind it."""
        return not math.isnan(self.raw_p_queries)

    def row(self, label: str, digits: int = 1) -> list[Cell]:
        """A line of the table for people.

        Args:
            label: Its first cell.
            digits: Of the figure, behind the point.

        Returns:
            The cells of a table.
        """
        between = None if math.isnan(self.low) else f"{self.low:+.{digits}f} to {self.high:+.{digits}f}"
        p_values = [
            None if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}" for p in (self.p_queries, self.p_runs)
        ]
        means = []
        for runs in (self.first_runs, self.second_runs):
            mean = sum(runs) / len(runs)
            spread = f" ± {np.std(runs, ddof=1):.{digits}f}" if len(runs) > 1 else ""
            means.append(f"{mean:.{digits}f}{spread}")
        better = {"first": "A", "second": "B"}.get(self.better)
        return [label, *means, f"{self.difference:+.{digits}f}", between, *p_values, better]


@dataclass(frozen=True, repr=False)
class Compared(SavedReport):
    """Two systems compared on the same queries.

    Attributes:
        first: The runs of each side.
        second: See `first`.
        lines: A figure each.
        same_seeds: Whether runs were paired by their seeds.
        notes: Sentences that a reader should know.
    """

    first: tuple[Measured, ...]
    second: tuple[Measured, ...]
    lines: tuple[Difference, ...]
    same_seeds: bool
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: which files each side is made of, and the differences; a missing number is null.

        Returns:
            Plain JSON values.
        """
        files = {
            name: [{"file": str(run.path), "seed": run.seed, "model": run.about.get("model")} for run in side]
            for name, side in (("first", self.first), ("second", self.second))
        }
        lines = [finite_json(asdict(line)) for line in self.lines]
        protocol = dict(self.first[0].protocol)
        return {**files, "lines": lines, "same_seeds": self.same_seeds, "notes": list(self.notes), "protocol": protocol}

    def to_frame(self) -> pandas.DataFrame:
        """A row per figure, with the fields of `Difference`. Needs pandas.

        Returns:
            The table.
        """
        return frame([asdict(line) for line in self.lines])

    def _bars(self) -> list[Bar]:
        """The differences that were tested, as bars."""
        return [Bar(line.name.replace("_", " "), line.difference, line.low, line.high) for line in self.lines]

    def _repr_html_(self) -> str:
        values = self._bars()
        reach = max(
            (abs(end) for bar in values for end in (bar.value, bar.low, bar.high) if math.isfinite(end)), default=1
        )
        rows = []
        for bar in values:
            ends = "" if math.isnan(bar.low) else f"{bar.low:+.1f} to {bar.high:+.1f}"
            cells = (escape(bar.name), bar.html(-reach, reach), f"{bar.value:+.1f}", ends)
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{name}</th>" for name in ("", "B better, A better", "difference", "95 %"))
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>{as_html(self._lines())}"

    def plot(self) -> Plot:
        """Draw the differences with their intervals.

        Returns:
            A drawing, which a notebook shows and `save` writes as SVG.
        """
        return Plot(bars({"A minus B": self._bars()}, "difference, in the unit of the figure"))

    def gains(self, head: str, before: str, after: str) -> str:
        """A table of the second side, what the first has beyond it, and the interval of that difference.

        Args:
            head: Heading of the figures.
            before: Heading of the second side.
            after: Heading of the first side.

        Returns:
            The table as text.
        """
        rows: list[list[Cell]] = []
        for line in self.lines:
            interval = "-" if math.isnan(line.low) else f"{line.low:+.1f} to {line.high:+.1f}"
            means = f"{line.second:.1f}", f"{line.first:.1f}"
            rows.append([line.name, *means, f"{line.difference:+.1f}", interval])
        return table([head, before, after, "difference", "95 %"], rows)

    @property
    def verdict(self) -> str:
        """One sentence, which claims no more than the tests can carry."""
        tested = [line for line in self.lines if line.tested]
        if not tested:
            return "no figure could be tested: a test needs 10 images"
        figures = counted(len(tested), "figure")
        claims = []
        for side, label in (("first", "A"), ("second", "B")):
            if count := sum(line.better == side for line in tested):
                claims.append(f"{label} is better in {count} of {figures}")
        if not claims:
            return "no figure distinguishes the two on these queries"
        by_runs = min(len(self.first), len(self.second)) >= FEWEST_RUNS
        basis = "by runs: trainings and queries like these" if by_runs else "by queries: these trained models"
        return f"{' and '.join(claims)} ({basis})"

    def _lines(self) -> list[str]:
        protocol = self.first[0].protocol
        gallery = protocol.get("gallery", {})
        counts = f"{counted(gallery.get('images', 0), 'image')}, {counted(gallery.get('texts', 0), 'text')}"
        split = f"split {protocol['split']}: " if protocol.get("split") else ""
        lines = [
            f"A: {_described(self.first)}",
            f"B: {_described(self.second)}",
            f"{split}{counts}; ties {protocol.get('ties')}; numbers in per cent, ranks from 1",
        ]
        for direction in DIRECTIONS:
            names = {line.name.split("/", 1)[1]: line for line in self.lines if line.name.startswith(f"{direction}/")}
            if rows := [
                line.row(name.replace("_", " "), digits_of(name, self.first[0].about.get("metrics", {})))
                for name, line in names.items()
            ]:
                head = [direction.replace("_", " "), "A", "B", "A - B", "95 %", "p queries", "p runs", "better"]
                lines.append(table(head, rows))
        for total in (line for line in self.lines if line.name == "rsum"):
            means = f"rsum {total.first:.1f} and {total.second:.1f}"
            lines.append(f"{means}: {total.difference:+.1f} (its six parts are tested)")
        return [*lines, self.verdict, *(f"note: {note}" for note in self.notes)]

    def __repr__(self) -> str:
        return f"Compared({self.verdict})"


def _described(runs: Sequence[Measured]) -> str:
    """One side: model, methods, seeds and files."""
    names = ", ".join(str(run.path) for run in runs)
    model = runs[0].training["model"] or runs[0].training["pretrained"] or ""
    methods = "".join(f" + {method[0]}" for method in runs[0].training["methods"] or ())
    seeds = [str(run.seed) for run in runs if run.seed is not None]
    seed = f", seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" if seeds else ""
    return f"{f'{model}{methods}, ' if model else ''}{counted(len(runs), 'run')}{seed} ({names})"


def compare(
    first: Sequence[Measured],
    second: Sequence[Measured],
    *,
    figures: Sequence[str] = (),
    samples: int = 2000,
    seed: int = 0,
) -> Compared:
    """Compare the runs of one side with those of another.

    Args:
        first: Runs of one training with different seeds, one or more.
        second: Runs of another.
        figures: Names without the direction, as in "recall@10"; none for all means but tie_share and ranks.
        samples: Of the interval and of the p-values.
        seed: What they are drawn with.

    Returns:
        Their differences, tested.

    Raises:
        RequirementError: If two runs were not measured alike or learnt with other random draws, a side is no one
            training in several seeds, or a figure has no values.

    Complexity:
        Samples x images x figures.
    """
    runs = [*first, *second]
    require_same_draws([(str(run.path), run.draws) for run in runs if run.draws is not None], RequirementError)
    for run in runs[1:]:
        if unequal := differences(runs[0], run):
            raise RequirementError(
                f"compare needs figures that were measured alike; {runs[0].path} and {run.path} differ in "
                f"{listed(unequal, 5, separator='; ')}; evaluate both "
                "with the same options on the same data"
            )
    for side in (first, second):
        for position, run in enumerate(side):
            for earlier in side[:position]:
                if (run.path == earlier.path and run.path.name != "in memory") or (
                    run.fingerprint and run.fingerprint == earlier.fingerprint
                ):
                    raise RequirementError(
                        f"a side needs different runs; {earlier.path} and {run.path} are one and the same model, which "
                        "would count as two seeds; name it once"
                    )
            if unequal := [name for name, value in run.training.items() if value != side[0].training[name]]:
                raise RequirementError(
                    f"a side needs runs of one training with different seeds; {side[0].path} and {run.path} differ in "
                    f"{', '.join(unequal)}; put them on different sides, with 'vs' between"
                )
    names = _names(runs, figures)
    seeds = [[run.seed for run in side] for side in (first, second)]
    same = None not in seeds[0] and len(set(seeds[0])) == len(seeds[0]) and set(seeds[0]) == set(seeds[1])
    if same:
        first, second = (sorted(side, key=lambda run: run.seed or 0) for side in (first, second))
    lines = [_difference(name, first, second, same, samples, seed) for name in names]
    of_queries, of_runs = holm([line.raw_p_queries for line in lines]), holm([line.raw_p_runs for line in lines])
    for number, (line, p_queries, p_runs) in enumerate(zip(tuple(lines), of_queries, of_runs, strict=True)):
        p_value = p_queries if math.isnan(p_runs) else p_runs
        sure = p_value < SURE and (line.low > 0 or line.high < 0)
        ahead = "first" if (line.difference > 0) != first[0].declared(line.name)["lower_is_better"] else "second"
        lines[number] = replace(line, p_queries=p_queries, p_runs=p_runs, better=ahead if sure else "")
    if not figures and all("rsum" in run.figures for run in runs):
        lines.append(_means("rsum", *([run.figures["rsum"] for run in side] for side in (first, second))))
    return Compared(tuple(first), tuple(second), tuple(lines), same, _notes(first, second, len(names)))


def differences(first: Measured, second: Measured) -> list[str]:
    """In what two evaluations were not measured alike, each with both its sides; empty when they can be compared.

    Args:
        first: One evaluation.
        second: Another.

    Returns:
        A phrase for each difference.
    """
    of_first, of_second = _flat(first.protocol), _flat(second.protocol)

    def shown(value: Any) -> str:
        return "-" if value in (None, "") else str(value)[:40]

    unequal = [
        f"{name} ({shown(of_first.get(name))} and {shown(of_second.get(name))})"
        for name in dict.fromkeys([*of_first, *of_second])
        if name.split(".")[0] not in _FREE and of_first.get(name) != of_second.get(name)
        # A metric of one side alone is not compared.
        if not (name.startswith("metrics.") and None in (of_first.get(name), of_second.get(name)))
    ]
    for name in (f"{direction}/{part}" for direction in DIRECTIONS for part in APART):
        if name not in first.queries or name not in second.queries:
            continue
        left, right = first.queries[name], second.queries[name]
        label = name.replace("/", " ").replace("_", " ")
        if len(left) != len(right):
            unequal.append(f"{label} ({len(left):,} and {len(right):,} queries)")
        elif len(rows := np.flatnonzero(left != right)):
            names = f"'{left[rows[0]]}' and '{right[rows[0]]}'"
            unequal.append(f"{label} ({len(rows):,} of {len(left):,} names, first {names})")
    return unequal


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by points."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _names(runs: Sequence[Measured], figures: Sequence[str]) -> list[str]:
    """The figures that all runs have values for."""
    measured = [name for name in runs[0].queries if name.split("/")[-1] not in APART]
    measured = [name for name in measured if all(name in run.queries for run in runs)]
    if not figures:
        return [name for name in measured if runs[0].declared(name)["compared"]]
    requested = [f"{direction}/{figure}" for direction in DIRECTIONS for figure in dict.fromkeys(figures)]
    names = [name for name in measured if name in requested]
    lacking = [figure for figure in figures if not any(name.split("/", 1)[1] == figure for name in names)]
    if lacking:
        have = ", ".join(dict.fromkeys(name.split("/", 1)[1] for name in measured))
        raise RequirementError(
            f"compare needs values a query of {', '.join(lacking)}; these runs have {have}; name these"
        )
    return names


def _difference(
    name: str, first: Sequence[Measured], second: Sequence[Measured], same: bool, samples: int, seed: int
) -> Difference:
    direction = name.split("/")[0]
    column = "id" if direction == "image_to_text" else "image"
    owners = np.asarray(first[0].queries[f"{direction}/{column}"])
    # A text without an image of its own is a cluster of its own.
    owners = np.where(owners == "", np.char.add("\0", first[0].queries[f"{direction}/id"]), owners)
    clusters = np.unique(owners, return_inverse=True)[1].reshape(-1).astype(np.int64)
    first_values, second_values = (
        (100.0 if side[0].declared(name)["percent"] else 1.0)
        * np.stack([np.asarray(run.queries[name], dtype=np.float64) for run in side])
        for side in (first, second)
    )
    runs = [[float(np.nanmean(row)) for row in side] for side in (first_values, second_values)]
    test = paired(first_values, second_values, clusters, samples=samples, seed=seed, same_seeds=same)
    return replace(
        _means(name, *runs),
        difference=test.difference,
        low=test.low,
        high=test.high,
        raw_p_queries=test.p_queries,
        raw_p_runs=test.p_runs,
    )


def _means(name: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    means = float(np.mean(first)), float(np.mean(second))
    return Difference(name, *means, tuple(first), tuple(second), means[0] - means[1])


def _notes(first: Sequence[Measured], second: Sequence[Measured], tests: int) -> tuple[str, ...]:
    """What a reader of a comparison should know; `tests` is how many figures are tested."""
    fewest, correction = min(len(first), len(second)), f"p is corrected for {counted(tests, 'figure')} (Holm)"
    if fewest < FEWEST_RUNS:
        sentences = [
            f"intervals and p queries: other queries like these, the same trained models; {correction}",
            f"fewer than {FEWEST_RUNS} runs on a side: this tells trained models apart and does not speak for a "
            f"method, whose runs differ by their seeds; train each side with {FEWEST_RUNS} seeds or more and give all "
            "their files",
        ]
    else:
        sentences = [
            f"intervals, p runs and what is better: other trainings with other seeds, and other queries like these; p "
            f"queries: the same trained models; {correction}"
        ]
    roles = {str(run.about.get("split_role", "unknown")) for run in (*first, *second)}
    sentences += [warning for role, warning in _ROLES.items() if role in roles]
    if len({str(run.protocol.get("versions")) for run in (*first, *second)}) > 1:
        sentences.append("measured with different versions of the libraries; the files say which")
    if not first[0].protocol.get("data"):
        sentences.append("the files do not say which data they are of; that the truth is the same is taken on trust")
    return tuple(sentences)
