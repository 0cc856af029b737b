"""What a training reports: RUN/log.jsonl, TensorBoard's files, and its progress."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.data.atomic import written_to
from subtext.data.dataset import frame
from subtext.errors import RequirementError, Setting
from subtext.models.checkpoint import load_record
from subtext.report.plots import Chart, Curve, Plot, charts
from subtext.report.progress import Estimate
from subtext.report.text_table import Cell, TableReport, table
from subtext.text_helpers import install_hint, json_text
from subtext.training.checkpoints import TrainState
from subtext.training.plan import Plan
from subtext.training.setup import TrainingProgress

if TYPE_CHECKING:
    import pandas

LOG, BOARD = "log.jsonl", "tensorboard"
REPORT_EVERY = 0.25
"""Seconds between two reports of progress."""


class Journal:
    """RUN/log.jsonl, and TensorBoard's files.

    When a training is resumed, the log is cut back to what it was at the checkpoint, so that no step stands in it
    twice.

    Args:
        run: The run's folder.
        length: Bytes of the log to keep; 0 for a new training.
        tensorboard: Also write TensorBoard's files.
        step: The step from which TensorBoard's files are written anew.

    Raises:
        OutputError: If the log cannot be written; so do all methods.
        RequirementError: If TensorBoard is not installed.
    """

    def __init__(self, run: Path, *, length: int = 0, tensorboard: bool = False, step: int = 0) -> None:
        self._path = run / LOG
        with written_to(self._path):
            self._path.touch()
            if self._path.stat().st_size > length:
                os.truncate(self._path, length)
            self._file = self._path.open("a", encoding="utf-8")
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as problem:
                raise RequirementError(
                    Setting("tensorboard"),
                    f" needs the package tensorboard; it is not installed; {install_hint('tensorboard')}",
                ) from problem
            self._board = SummaryWriter(str(run / BOARD), purge_step=step or None)

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        """Append a line.

        Args:
            event: "step" or "epoch".
            values: The rest of the line; its numbers go to TensorBoard too, at their "step".
        """
        with written_to(self._path):
            self._file.write(json_text({"event": event, **values}) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, int(values["step"]))

    def flush(self) -> int:
        """Write everything to the disk.

        Returns:
            The length of the log in bytes, which a checkpoint remembers.
        """
        with written_to(self._path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Close the log and TensorBoard's files."""
        with written_to(self._path):
            self._file.close()
        if self._board is not None:
            self._board.close()


@dataclass(frozen=True, repr=False)
class History(TableReport):
    """The course of a training, an entry for each epoch.

    Attributes:
        entries: Lines of the log at the ends of epochs: "epoch", "step", "loss", "parts", "lr", "seconds", "figures".
        steps: Lines of the log between them, every `log_every` steps, without "figures".
        best_epoch: Whose weights were kept; None before there are any.
    """

    entries: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...] = ()
    best_epoch: int | None = None

    def _lines(self) -> list[str]:
        names = ("rsum", "image_to_text/recall@1", "text_to_image/recall@1")
        shown = [name for name in names if any(name in entry["figures"] for entry in self.entries)]
        rows: list[list[Cell]] = [
            [
                f"{entry['epoch']}{' (kept)' if entry['epoch'] == self.best_epoch else ''}",
                f"{entry['loss']:.4g}",
                f"{entry['lr']:.3g}",
                *(entry["figures"].get(name) for name in shown),
            ]
            for entry in self.entries
        ]
        return [table(["epoch", "loss", "lr", *shown], rows)] if rows else ["no epoch has ended"]

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row per epoch; parts of the loss and figures are columns. Needs pandas.

        Returns:
            The table.
        """
        rows = []
        for entry in self.entries:
            parts = {f"loss of {name}": value for name, value in entry["parts"].items()}
            rows.append({n: it for n, it in entry.items() if n not in ("parts", "figures")} | parts | entry["figures"])
        return frame(rows)

    def plot(self) -> Plot:
        """Draw the loss and the recall of each epoch.

        Returns:
            A drawing, which a notebook shows and `save` writes as SVG.
        """
        losses = [(entry["epoch"], entry["loss"]) for entry in self.entries]
        recalls = [
            Curve(
                direction.replace("_", " "),
                [(e["epoch"], e["figures"][name]) for e in self.entries if name in e["figures"]],
            )
            for direction in ("image_to_text", "text_to_image")
            for name in (f"{direction}/recall@10",)
        ]
        panels = [Chart("loss", "epoch", "mean over the epoch", [Curve("training", losses)])]
        panels += (
            [Chart("recall@10", "epoch", "per cent of queries", recalls, most=100)]
            if any(c.points for c in recalls)
            else []
        )
        return Plot(charts(panels))


def read_history(run: Path) -> History:
    """The course of a training from its log.

    Args:
        run: The run's folder.

    Returns:
        The history; without entries where there is no log, as of a run that `save_pretrained` wrote.

    Raises:
        CheckpointError: If the folder has no record.
    """
    best = load_record(run).best_epoch
    lines = []
    if (run / LOG).is_file():
        for line in (run / LOG).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # The last line of a training that was killed may be a part of one.
                lines.append(json.loads(line))
    entries, steps = (
        tuple({n: it for n, it in line.items() if n != "event"} for line in lines if line.get("event") == event)
        for event in ("epoch", "step")
    )
    # JSON has null for what is no number.
    for entry in entries:
        entry["figures"] = {name: math.nan if it is None else it for name, it in entry.get("figures", {}).items()}
        entry["loss"] = math.nan if entry["loss"] is None else entry["loss"]
    return History(entries, steps, best)


class Progress:
    """The clock of a training, its lines of the log, and its reports.

    Args:
        state: The training, as it starts or is resumed.
        plan: Its plan.
        steps: Number of steps of the full training.
        parts: Names of the parts of the objective.
        report_to: Called with each report; None for no reports.
    """

    def __init__(
        self,
        state: TrainState,
        plan: Plan,
        *,
        steps: int,
        parts: Sequence[str],
        report_to: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self._state, self._plan, self._steps, self._parts, self._report_to = state, plan, steps, parts, report_to
        self._started = self._reported = time.monotonic()
        self._seconds_before, self._first_step = state.seconds, state.step
        self._estimate = Estimate()

    def tick(self) -> None:
        """Set the seconds that the training took so far."""
        self._state.seconds = self._seconds_before + time.monotonic() - self._started

    def line(self) -> dict[str, Any]:
        """A line of the log.

        Returns:
            Means over the epoch so far, the learning rate and the speed.
        """
        state = self._state
        means = (state.totals[1:-1] / state.totals[-1]).tolist()
        pairs = (state.step - self._first_step) * self._plan.batch_size
        return {
            "epoch": state.epoch + (state.offset > 0),
            "step": state.step,
            "loss": state.mean_loss(),
            "parts": dict(zip(self._parts, means, strict=True)),
            "lr": max(group["lr"] for group in state.optimiser.param_groups),
            "pairs_per_second": round(pairs / max(time.monotonic() - self._started, 1e-9), 1),
            "seconds": round(state.seconds, 2),
        }

    def report(self, *, note: str | None = None, ended: float | None = None) -> None:
        """Report the progress.

        Args:
            note: A sentence for the user.
            ended: Mean loss of an epoch that has just ended; None between.
        """
        self._reported = time.monotonic()
        if self._report_to is None:
            return
        state = self._state
        self._report_to(
            TrainingProgress(
                epoch=min(state.epoch + 1, self._plan.epochs),
                epochs=self._plan.epochs,
                step=state.step,
                steps=self._steps,
                loss=state.mean_loss() if ended is None else ended,
                figures=dict(state.figures),
                seconds_left=self._estimate(state.step, self._steps),
                note=note,
                ended=None if ended is None else state.epoch,
            )
        )

    def report_if_due(self) -> None:
        """Report the progress, if the last report is long enough ago."""
        if time.monotonic() - self._reported >= REPORT_EVERY:
            self.report()


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Name -> number, of nested values too."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            yield prefix + name, float(value)
