"""RUN/log.jsonl: one line of JSON per logged step and per epoch; and TensorBoard's files where they are asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from subtext.data.atomic import written_to
from subtext.errors import RequirementError

LOG, BOARD = "log.jsonl", "tensorboard"


@runtime_checkable
class Board(Protocol):
    """What is used of TensorBoard's writer."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """One number at a step."""

    def close(self) -> None:
        """Write what is left."""


class Journal:
    """Lines that say how a training went.

    When a training goes on, the log is cut back to what it was at the checkpoint: no step stands in it twice.
    Everything here raises OutputError when the file cannot be written.
    """

    def __init__(self, run: Path, *, length: int = 0, tensorboard: bool = False, step: int = 0) -> None:
        self._path = run / LOG
        with written_to(self._path):
            self._path.touch()
            if self._path.stat().st_size > length:
                os.truncate(self._path, length)
            self._file = self._path.open("a", encoding="utf-8")
        self._board = _board(run / BOARD, step) if tensorboard else None

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        """Append {"event": ..., **values}; finite numbers under "step" go to TensorBoard too."""
        with written_to(self._path):
            self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
            self._file.flush()
        if self._board is not None and "step" in values:
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, int(values["step"]))

    def settle(self) -> int:
        """Flush to the disk; gives the length in bytes, which a checkpoint remembers."""
        with written_to(self._path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Finish both."""
        with written_to(self._path):
            self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            found.append((prefix + name, float(value)))
    return found


def _board(folder: Path, step: int) -> Board:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise RequirementError(
            "--tensorboard needs the package tensorboard; it is not installed; pip install 'subtext[tensorboard]'"
        ) from problem
    return SummaryWriter(str(folder), purge_step=step or None)
