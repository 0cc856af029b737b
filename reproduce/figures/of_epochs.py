"""ASP after each epoch: from a run's log, else measured on the epochs that the run saved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import subtext as st
from reproduce.figures.config import Figure, FigureConfig
from reproduce.figures.of_dataset import lead
from reproduce.figures.of_systems import spelt
from reproduce.figures.systems import about, evaluate, facts_of, pairs_of
from subtext.core import DIRECTIONS, Direction
from subtext.errors import CheckpointError, RequirementError
from subtext.report.plots import Chart, Curve, charts
from subtext.report.progress import say


@dataclass(frozen=True)
class Course:
    """The figures of a run by epoch, from 1.

    figures  epoch -> name -> per cent; chance, ceiling  name -> per cent, empty for figures of a log
    """

    figures: dict[int, dict[str, float]]
    chance: dict[str, float]
    ceiling: dict[str, float]

    def line(self, name: str) -> list[tuple[float, float]]:
        """One figure over the epochs that have it."""
        return [(float(epoch), figures[name]) for epoch, figures in self.figures.items() if name in figures]


def asp_by_epoch(config: FigureConfig) -> Figure:
    """Figure 4: ASP after each epoch, with chance and the best order; recall beside it in the numbers."""
    pairs, split = pairs_of(config)
    name = f"asp({config.relevance})"
    courses = {label: _course(config, label, path, pairs) for label, path in config.systems}
    panels = [_chart(courses, direction, name) for direction in DIRECTIONS]
    ends = ", ".join(
        f"{label} {spelt(direction)} {line[0][1]:.1f} to {line[-1][1]:.1f}"
        for label, course in courses.items()
        for direction in DIRECTIONS
        if (line := course.line(f"{direction}/{name}"))
    )
    return Figure(
        lead=lead(pairs, split),
        summary=f"{name} from the first epoch measured to the last: {ends}.",
        numbers={**about(config, pairs, split), "systems": [_course_json(label, courses[label]) for label in courses]},
        facts=facts_of(config, pairs, split),
        drawing=charts(panels),
    )


def saved_epochs(run: Path) -> dict[int, Path]:
    """Epoch -> folder of the epochs that a run saved (`--save-every-epochs`), in order."""
    folder = run / "epochs"
    folders = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    return {int(path.name): path for path in sorted(folders, key=lambda path: int(path.name))}


def logged(run: Path, name: str) -> dict[int, dict[str, float]]:
    """Epoch -> validation figures of the log, where both directions have a figure of that name.

    Raises CheckpointError for a log that is no JSON lines.
    """
    by_epoch: dict[int, dict[str, float]] = {}
    log = run / "log.jsonl"
    if not log.is_file():
        return by_epoch
    for number, line in enumerate(log.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise CheckpointError(f"{log} needs a JSON object a line; line {number}: {error}") from error
        figures = event.get("figures", {}) if isinstance(event, dict) else {}
        if all(f"{direction}/{name}" in figures for direction in DIRECTIONS):
            by_epoch[int(event["epoch"])] = figures
    return by_epoch


def _course(config: FigureConfig, label: str, run: Path, pairs: st.Dataset) -> Course:
    """The figures of one run.

    Raises RequirementError when it has neither ASP in its log nor saved epochs; what evaluating raises.
    """
    if by_epoch := logged(run, f"asp({config.relevance})"):
        return Course(by_epoch, {}, {})
    folders = saved_epochs(run)
    if not folders:
        raise RequirementError(
            f"{config.name} needs ASP in the log, or saved epochs; {run} has neither; train with --save-every-epochs 1"
        )
    course = Course({}, {}, {})
    for epoch, folder in folders.items():
        say(f"{label}, epoch {epoch}", quiet=config.quiet)
        result = evaluate(config, folder, pairs)
        course = Course(course.figures | {epoch: result.figures}, result.chance, result.ceiling)
    return course


def _chart(courses: dict[str, Course], direction: Direction, name: str) -> Chart:
    figure = f"{direction}/{name}"
    curves = [Curve(label, course.line(figure)) for label, course in courses.items()]
    epochs = [epoch for course in courses.values() for epoch in course.figures]
    for label, part in (("best order", "ceiling"), ("chance", "chance")):
        levels = [getattr(course, part)[figure] for course in courses.values() if figure in getattr(course, part)]
        if levels:
            curves.append(Curve(label, [(min(epochs), levels[0]), (max(epochs), levels[0])], reference=True))
    return Chart(spelt(direction), "epoch", f"{name}, %", curves)


def _course_json(label: str, course: Course) -> dict[str, Any]:
    names = sorted({name for figures in course.figures.values() for name in figures})
    shown = [name for name in names if "/asp" in name or "/recall@" in name or name == "rsum"]
    asp = [name for name in shown if "/asp" in name]
    return {
        "name": label,
        "epochs": list(course.figures),
        "figures": {name: [figures.get(name) for figures in course.figures.values()] for name in shown},
        "chance": {name: course.chance[name] for name in asp if name in course.chance},
        "best_order": {name: course.ceiling[name] for name in asp if name in course.ceiling},
    }
