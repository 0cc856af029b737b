"""Counts of a server for Prometheus; several processes count in files beside each other, and each tells their sum."""

from __future__ import annotations

import mmap
import os
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

PATHS = (
    "/", "/page", "/search", "/similar", "/score", "/items", "/item", "/thumbnail", "/fields", "/add", "/delete",
    "/libraries", "/healthz", "/metrics", "/openapi.json", "other",
)  # fmt: skip
STATUSES = (200, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 503, 507, 0)
"""0 stands for any other."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)
EVENTS = ("cache_hits", "cache_misses", "queries", "batches", "thumbnails_made", "items_added", "items_deleted")
_FILE = ".counts"


def _names() -> Iterator[str]:
    for path in PATHS:
        for status in STATUSES:
            yield f'subtext_requests_total{{path="{path}",status="{status or "other"}"}}'
    for edge in (*SECONDS, "+Inf"):
        yield f'subtext_request_seconds_bucket{{le="{edge}"}}'
    yield "subtext_request_seconds_sum"
    yield "subtext_request_seconds_count"
    for edge in (*SIZES, "+Inf"):
        yield f'subtext_batch_size_bucket{{le="{edge}"}}'
    yield "subtext_batch_size_sum"
    yield "subtext_batch_size_count"
    for event in EVENTS:
        yield f"subtext_{event}_total"


NAMES = tuple(_names())
_PLACE = {name: place for place, name in enumerate(NAMES)}
_TYPES = {
    "subtext_requests_total": "counter",
    "subtext_request_seconds": "histogram",
    "subtext_batch_size": "histogram",
    **{f"subtext_{event}_total": "counter" for event in EVENTS},
}


class Metrics:
    """What this process has counted.

    shared  folder in which the processes of one server keep their counts; None for a server of one process
    """

    def __init__(self, shared: Path | None = None) -> None:
        self.shared = shared
        self._lock = threading.Lock()
        size = 8 * len(NAMES)
        if shared is None:
            self._counts = memoryview(bytearray(size)).cast("d")
            return
        file = shared / f"{os.getpid()}{_FILE}"
        file.write_bytes(bytes(size))
        with file.open("r+b") as opened:
            self._counts = memoryview(mmap.mmap(opened.fileno(), size)).cast("d")

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        path = path if path in PATHS else "other"
        status = status if status in STATUSES else 0
        with self._lock:
            self._add(f'subtext_requests_total{{path="{path}",status="{status or "other"}"}}', 1)
            self._observe("subtext_request_seconds", SECONDS, seconds)

    def batch(self, size: int) -> None:
        """Count queries that were answered together."""
        with self._lock:
            self._observe("subtext_batch_size", SIZES, size)
            self._add("subtext_batches_total", 1)
            self._add("subtext_queries_total", size)

    def event(self, name: str, count: int = 1) -> None:
        """Count something that happened: one of EVENTS."""
        with self._lock:
            self._add(f"subtext_{name}_total", count)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counts of all processes, and what is so at this moment, as Prometheus reads it."""
        totals = self._totals()
        lines, seen = [], ""
        for name in NAMES:
            family = name.partition("{")[0]
            for ending in ("_bucket", "_sum", "_count"):
                family = family.removesuffix(ending)
            if family != seen:
                lines.append(f"# TYPE {family} {_TYPES[family]}")
                seen = family
            value = totals[_PLACE[name]]
            if value or not name.startswith("subtext_requests_total"):
                lines.append(f"{name} {value:.10g}")
        for name, value in sorted(gauges.items()):
            if not any(line.startswith(f"# TYPE {name.partition('{')[0]} ") for line in lines):
                lines.append(f"# TYPE {name.partition('{')[0]} gauge")
            lines.append(f"{name} {value:.10g}")
        return "\n".join(lines) + "\n"

    def _totals(self) -> array[float]:
        totals = array("d", bytes(8 * len(NAMES)))
        if self.shared is None:
            return array("d", self._counts.tolist())
        for file in self.shared.glob(f"*{_FILE}"):
            data = file.read_bytes()
            if len(data) == 8 * len(NAMES):
                for place, value in enumerate(memoryview(data).cast("d")):
                    totals[place] += value
        return totals

    def _observe(self, name: str, edges: tuple[float, ...], value: float) -> None:
        for edge in edges:
            if value <= edge:
                self._add(f'{name}_bucket{{le="{edge}"}}', 1)
        self._add(f'{name}_bucket{{le="+Inf"}}', 1)
        self._add(f"{name}_sum", value)
        self._add(f"{name}_count", 1)

    def _add(self, name: str, value: float) -> None:
        place = _PLACE[name]
        self._counts[place] = self._counts[place] + value


def resident_bytes() -> int:
    """Memory of this process, as the system counts it; 0 where it does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
