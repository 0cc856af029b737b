"""What a training reports: RUN/log.jsonl, TensorBoard's files, and its progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subtext.data.atomic import written_to
from subtext.errors import RequirementError
from subtext.report.progress import Estimate
from subtext.text_helpers import install_hint, json_text
from subtext.training.checkpoints import TrainState
from subtext.training.plan import Plan
from subtext.training.setup import TrainingProgress

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
                    f"--tensorboard needs the package tensorboard; it is not installed; {install_hint('tensorboard')}"
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
