"""ASP after each epoch: from a run's log where it stands there, else measured from the epochs that were kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.of_dataset import lead
from reproduce.figures.of_systems import spelt
from reproduce.figures.systems import about, facts_of, pairs_of, relevance_of
from subtext.api.load import open_work
from subtext.core import DIRECTIONS, Direction
from subtext.data.dataset import Dataset, fingerprint
from subtext.errors import CheckpointError, RequirementError
from subtext.evaluation import ExtraMetrics, Protocol, embed_pairs, evaluate_embeddings
from subtext.evaluation.relevance.graded import Graded
from subtext.report.plots import Chart, Curve, charts
from subtext.report.progress import say
from subtext.training.fit import EPOCHS, LOG

QUIET = Protocol(recall=(1, 5, 10), c_way=(), bootstrap=0)


@dataclass(frozen=True)
class Course:
    """What was measured of a run, by epoch from 1.

    figures  epoch -> name -> per cent; chance, ceiling  name -> per cent, empty where a log says none
    """

    figures: dict[int, dict[str, float]]
    chance: dict[str, float]
    ceiling: dict[str, float]

    def line(self, name: str) -> list[tuple[float, float]]:
        """One figure over the epochs that have it."""
        return [(float(epoch), found[name]) for epoch, found in self.figures.items() if name in found]


def asp_by_epoch(config: FigureConfig) -> Figure:
    """Figure 4: ASP after each epoch, with chance and the best order; recall beside it in the numbers."""
    pairs, split = pairs_of(config)
    name = f"asp({config.relevance})"
    needed = any(not logged(path, name) for _, path in config.systems)
    graded = relevance_of(config, pairs) if needed else None
    courses = {label: _course(config, (label, path), pairs, graded) for label, path in config.systems}
    panels = [_chart(courses, direction, name) for direction in DIRECTIONS]
    last = ", ".join(
        f"{label} {spelt(direction)} {line[0][1]:.1f} to {line[-1][1]:.1f}"
        for label, course in courses.items()
        for direction in DIRECTIONS
        if (line := course.line(f"{direction}/{name}"))
    )
    return Figure(
        lead=lead(pairs, split),
        summary=f"{name} from the first epoch measured to the last: {last}.",
        numbers={**about(config, pairs, split), "systems": [_told(label, courses[label]) for label in courses]},
        facts=facts_of(config, pairs, split) + [(label, str(path)) for label, path in config.systems],
        drawing=charts(panels),
    )


def kept(run: Path) -> dict[int, Path]:
    """Epoch -> folder of the epochs that a run kept (`--save-every-epochs`), in order."""
    folder = run / EPOCHS
    places = [place for place in folder.iterdir() if place.name.isdecimal()] if folder.is_dir() else []
    return {int(place.name): place for place in sorted(places, key=lambda place: int(place.name))}


def logged(run: Path, name: str) -> dict[int, dict[str, float]]:
    """Epoch -> validation figures of the log, where those of both directions bear that name.

    Raises CheckpointError for a log that is no JSON lines.
    """
    found: dict[int, dict[str, float]] = {}
    if not (run / LOG).is_file():
        return found
    for number, line in enumerate((run / LOG).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            told = json.loads(line)
        except ValueError as error:
            raise CheckpointError(f"{run / LOG} needs a JSON object a line; line {number}: {error}") from error
        figures = told.get("figures", {}) if isinstance(told, dict) else {}
        if all(f"{direction}/{name}" in figures for direction in DIRECTIONS):
            found[int(told["epoch"])] = figures
    return found


def _course(config: FigureConfig, system: tuple[str, Path], pairs: Dataset, graded: Graded | None) -> Course:
    """Of one run.

    Raises RequirementError when it has neither; what opening and evaluating raise.
    """
    label, run = system
    if found := logged(run, f"asp({config.relevance})"):
        return Course(found, {}, {})
    places = kept(run)
    if not places:
        raise RequirementError(
            f"{config.name} needs ASP in the log, or saved epochs; {run} has neither; train with --save-every-epochs 1"
        )
    assert graded is not None
    extra = ExtraMetrics(relevances=(graded,), asp_ties=config.asp_ties, gain=(), ndcg=())
    figures: dict[int, dict[str, float]] = {}
    chance: dict[str, float] = {}
    ceiling: dict[str, float] = {}
    for epoch, place in places.items():
        say(f"{label}, epoch {epoch}", quiet=config.work.quiet)
        opened = open_work(replace(config.work, run=place))
        if fingerprint(opened.pairs) != fingerprint(pairs):
            raise RequirementError(
                f"{config.name} compares on the same pairs; {place} remembers other ones; name them (--data, --split)"
            )
        items = embed_pairs(
            opened.model, pairs, batch_size=config.work.batch_size, workers=config.work.workers, progress=None
        )
        result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=QUIET, extra=extra)
        figures[epoch], chance, ceiling = result.figures, result.chance, result.ceiling
    return Course(figures, chance, ceiling)


def _chart(courses: dict[str, Course], direction: Direction, name: str) -> Chart:
    whole = f"{direction}/{name}"
    drawn = [Curve(label, course.line(whole)) for label, course in courses.items()]
    ends = [epoch for course in courses.values() for epoch in course.figures]
    for label, part in (("best order", "ceiling"), ("chance", "chance")):
        levels = [getattr(course, part)[whole] for course in courses.values() if whole in getattr(course, part)]
        if levels:
            drawn.append(Curve(label, [(min(ends), levels[0]), (max(ends), levels[0])], reference=True))
    return Chart(spelt(direction), "epoch", f"{name}, %", drawn)


def _told(label: str, course: Course) -> dict[str, Any]:
    names = sorted({name for found in course.figures.values() for name in found})
    shown = [name for name in names if "/asp" in name or "/recall@" in name or name == "rsum"]
    asp = [name for name in shown if "/asp" in name]
    return {
        "name": label,
        "epochs": list(course.figures),
        "figures": {name: [found.get(name) for found in course.figures.values()] for name in shown},
        "chance": {name: course.chance[name] for name in asp if name in course.chance},
        "best_order": {name: course.ceiling[name] for name in asp if name in course.ceiling},
    }
