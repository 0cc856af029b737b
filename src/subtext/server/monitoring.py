"""The metrics of a server, for Prometheus, and its log: one JSON line per request."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from subtext.retrieval.traces import LOGS
from subtext.text_helpers import json_text

PATHS = frozenset(
    {
        "/", "/page", "/search", "/similar", "/score", "/items", "/item", "/thumbnail", "/fields", "/add", "/delete",
        "/lists", "/libraries", "/healthz", "/readyz", "/metrics", "/openapi.json",
    }
)  # fmt: skip
"""Paths that are counted by name; all others count as "other"."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)
EVENTS = {
    "cache_hits": "Answers taken from the cache.",
    "cache_misses": "Answers that were not in the cache.",
    "queries": "Queries that were computed.",
    "batches": "Batches of queries.",
    "thumbnails_made": "Thumbnails that were made.",
    "items_added": "Items that clients added.",
    "items_deleted": "Items that clients deleted.",
}
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder of the counts of all processes of a server; set before prometheus_client is imported."""
LOG_DAYS = 30
"""Days that a log is kept."""

prometheus.disable_created_metrics()


class Metrics:
    """The counts of this process, or of all processes of its server."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        labels = ["route", "method"]
        self.requests = prometheus.Counter("subtext_http_requests", "Requests.", [*labels, "status"], **own)
        self.seconds = prometheus.Histogram(
            "subtext_http_request_duration_seconds", "Time to answer.", labels, buckets=SECONDS, **own
        )
        self.running = prometheus.Gauge(
            "subtext_http_requests_in_progress", "Requests that are computed.", multiprocess_mode="livesum", **own
        )
        self.batch_size = prometheus.Histogram("subtext_batch_queries", "Queries per batch.", buckets=SIZES, **own)
        self.events = {name: prometheus.Counter(f"subtext_{name}", text, **own) for name, text in EVENTS.items()}

    def request(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            path: Path of the request.
            method: Method of the request; one that no route has counts as "other".
            status: HTTP status of the answer.
            seconds: Time until the answer.
        """
        labels = path if path in PATHS else "other", method if method in METHODS else "other"
        self.requests.labels(*labels, str(status)).inc()
        self.seconds.labels(*labels).observe(seconds)

    def batch(self, size: int) -> None:
        """Count queries that were answered as one batch.

        Args:
            size: Number of queries.
        """
        self.batch_size.observe(size)
        self.event("batches")
        self.event("queries", size)

    def event(self, name: str, count: int = 1) -> None:
        """Count one of EVENTS.

        Args:
            name: One of `EVENTS`.
            count: Number to add.
        """
        self.events[name].inc(count)

    def text(self, items: Mapping[tuple[str, str], int]) -> str:
        """All metrics in Prometheus' text format, with the memory of this process.

        Args:
            items: (library, side) -> number of items now.

        Returns:
            The text that /metrics answers.
        """
        registry = self.registry
        if MULTIPROCESS in os.environ:
            registry = prometheus.CollectorRegistry()
            MultiProcessCollector(registry)
        current = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=current)
        current.register(_Items(items))
        return (prometheus.generate_latest(registry) + prometheus.generate_latest(current)).decode()


class _Items(Collector):
    """The items of each library, as a gauge."""

    def __init__(self, items: Mapping[tuple[str, str], int]) -> None:
        self.items = items

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauge."""
        gauge = GaugeMetricFamily("subtext_items", "Items of a library.", labels=["library", "side"])
        for labels, count in self.items.items():
            gauge.add_metric(labels, count)
        return [gauge]


class RequestLog:
    """Writes lines to INDEX/logs/serve-DAY-PROCESS.jsonl, to standard output, or nowhere.

    Deleting an item replaces a log file by one without the item's lines: the handler then opens the new one.

    Args:
        target: An index's folder, "-" for standard output, "" for nowhere.
    """

    def __init__(self, target: Path | str) -> None:
        self.target = target
        self._lock = threading.RLock()
        self._file: WatchedFileHandler | None = None
        for file in (target / LOGS).glob("serve-*.jsonl") if isinstance(target, Path) else ():
            # Another process may have removed it, or the folder be closed to this user.
            with suppress(OSError):
                if file.stat().st_mtime < time.time() - LOG_DAYS * 86_400:
                    file.unlink()

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write one line. A log that cannot be written stops no answer: it is reported once, then logging ends.

        Args:
            facts: Name -> value of what is logged.
        """
        if self.target == "":
            return
        now = datetime.now(UTC)
        text = json_text({"at": now.isoformat(timespec="milliseconds"), **facts}, default=str)
        with self._lock:
            if not isinstance(self.target, Path):
                print(text, file=sys.stdout, flush=True)
                return
            path = (self.target / LOGS / f"serve-{now:%Y-%m-%d}-{os.getpid()}.jsonl").absolute()
            try:
                if path.is_symlink():
                    raise OSError(f"{path} is a symbolic link")
                if self._file is None or self._file.baseFilename != str(path):
                    self.close()
                    self.target.mkdir(parents=True, exist_ok=True)
                    path.parent.mkdir(exist_ok=True)
                    self._file = WatchedFileHandler(path, encoding="utf-8", errors="replace")
                if not self.target.exists():
                    return  # The index is away, perhaps until another one takes its place: no folder is left there.
                path.parent.mkdir(exist_ok=True)
                self._file.reopenIfNeeded()
                print(text, file=self._file.stream, flush=True)
            except OSError as problem:
                print(f"no log is kept: {problem}", file=sys.stderr, flush=True)
                self.target = ""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
