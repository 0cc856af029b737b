"""An index in shards, opened to be searched: by workers of a Ray cluster side by side, or in this process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from subtext.errors import RequirementError
from subtext.search.stores.calibration import CALIBRATION, PLOT, Calibration, read_calibration, write_calibration
from subtext.search.stores.lock import writer_lock
from subtext.search.stores.shards.keeper import Keeper
from subtext.search.stores.shards.manifest import FOLDER, read_shards
from subtext.search.stores.shards.questions import Facts
from subtext.search.stores.shards.view import View

ADDRESS = "RAY_ADDRESS"
"""The variable that names the Ray cluster which searches, as for any program that uses Ray."""


@runtime_checkable
class Keepers(Protocol):
    """All that keep shards open."""

    def ask(self, seen: dict[int, int] | None, what: str, *words: Any) -> list[Any]:
        """The answer of each to a question; see `Keeper.ask`."""

    def close(self) -> None:
        """Let go of them."""


class Here:
    """All shards, kept open in this process: what needs no cluster, and tests."""

    def __init__(self, index: Path) -> None:
        self.keeper = Keeper(str(index))

    def ask(self, seen: dict[int, int] | None, what: str, *words: Any) -> list[Any]:
        """The answer to a question; see `Keeper.ask`."""
        return [self.keeper.ask(seen, what, *words)]

    def close(self) -> None:
        """Let go of this thread's connections."""
        self.keeper.close()


class Sharded:
    """An index in shards; of use by several threads.

    here     answers in this process instead of asking a cluster
    address  of the Ray cluster, or "local" for one on this machine that ends with the index; by default what the
             variable RAY_ADDRESS says, else "local"

    Nothing is started before something is asked. Raises IndexError_ when it is no such index, or not whole.
    """

    def __init__(self, path: Path, *, here: bool = False, address: str | None = None) -> None:
        self.path = path
        self.listed = read_shards(path)
        self.manifest = self.listed.manifest
        self._here = here
        self._address = address or os.environ.get(ADDRESS) or "local"
        self._starting = threading.Lock()
        self._keepers: list[Keepers] = []
        weakref.finalize(self, _let_go, self._keepers)

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(file.stat().st_size for file in (self.path / FOLDER).rglob("*") if file.is_file())

    @property
    def counts(self) -> dict[str, int]:
        """Pictures and texts that are in it now."""
        with self.reading() as view:
            return view.counts

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The index at one moment: a shard that is changed inside the block is noticed, and raises IndexError_."""
        keepers = self._asked()
        facts: dict[int, Facts] = {}
        for own in keepers.ask(None, "facts"):
            facts |= own
        seen = {number: own.generation for number, own in facts.items()}
        yield View.of(partial(keepers.ask, seen), facts.values(), self.manifest)

    def writing(self, verb: str) -> NoReturn:
        """Nobody may change it as a whole. Raises RequirementError, which says what to do instead."""
        raise RequirementError(unchangeable(self.path))

    def calibration(self) -> Calibration | None:
        """What its scores are worth; None where that was not measured."""
        return read_calibration(self.path)

    def calibration_mark(self) -> float:
        """When the calibration was written; 0 where there is none."""
        file = self.path / CALIBRATION
        return float(file.stat().st_mtime_ns) if file.is_file() else 0.0

    def keep_calibration(self, calibration: Calibration, plot: str) -> str:
        """Keep a calibration and its plot, an SVG document; says where the plot is."""
        with writer_lock(self.path, "calibrate"):
            write_calibration(self.path, calibration, plot)
        return str(self.path / PLOT)

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        return read_shards(self.path).manifest.fingerprint != self.manifest.fingerprint

    def gone(self) -> list[str]:
        """Trace names of what was deleted and has not come again: what others keep of it has to go as well."""
        return sorted({name for own in self._asked().ask(None, "gone") for name in own})

    def close(self) -> None:
        """Let go of whoever keeps the shards open; the next question starts others."""
        _let_go(self._keepers)

    def _asked(self) -> Keepers:
        """Whoever keeps the shards open, started where nobody does yet."""
        with self._starting:
            if not self._keepers:
                if self._here:
                    self._keepers.append(Here(self.path))
                else:
                    from subtext.search.stores.shards.cluster import Workers

                    self._keepers.append(Workers(self.path, len(self.listed.shards), self._address))
            return self._keepers[0]


def unchangeable(path: Path) -> str:
    """That an index in shards is not changed as a whole, and what to do."""
    return (
        f"{path} is an index in shards, which is built and searched as a whole, and changed shard by shard; give one "
        f"of them ({path / FOLDER / '0000'}, ...) to this command, or build the index again"
    )


def _let_go(keepers: list[Keepers]) -> None:
    while keepers:
        keepers.pop().close()
