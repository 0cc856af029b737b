"""The server on loopback: 100,000 items of 512, text queries encoded for real, by 1, 8 and 64 clients at a time.

The model is a bag of words without training: what it costs to encode a query is real, what it means is not looked at.
Each client keeps one connection and asks its next question when it has the answer to the last; every question is
another one, so that no answer comes from memory; pictures and the page are left out. The peer is the same application
asked one question at a time in its own process, without a network: the engine's own `search`.

Then more clients than the server takes at once ask without pause: every answer has to be 200, 429 or 503, and those
that refuse have to say when to come again. --minutes N asks for so long, and tells by how much memory grew after the
first tenth of that.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from benchmarks.common import Options, Timing, report

ITEMS, WIDTH, TOP, PIECE = 100_000, 512, 10, 20_000
WORDS = 5_000
CLIENTS = (1, 8, 64)
AT_ONCE = 48
"""What the server takes at once while it is overloaded."""

SERVE = """
import sys
from subtext.server.settings import Limits, Settings
from subtext.server.serve import start
# The cache is full within 200 answers: what grows later is a leak.
limits = Limits(rate=0, max_requests=int(sys.argv[3]), client_requests=10**6, cached_hits=2000)
start(Settings((sys.argv[1],), port=int(sys.argv[2]), log="", limits=limits), quiet=True)
"""


@dataclass
class Asked:
    """What clients saw: seconds of each answer, how many of each status, refusals that name no time."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    silent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, status: int, seconds: float, again: str | None) -> None:
        """Count one answer."""
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 200:
                self.seconds.append(seconds)
            elif status not in (429, 503) or again is None:
                self.silent += 1


def made(place: Path) -> Path:
    """An index of random vectors, by a run that was never trained."""
    from subtext.models.checkpoint import Record, save_run
    from subtext.recipes.build import build
    from subtext.retrieval.build import model_fingerprint
    from subtext.retrieval.manifest import Manifest
    from subtext.retrieval.stores.folder import Folder
    from subtext.retrieval.stores.item import Change, IndexEntry
    from subtext.training.setup import BuildContext

    names = [f"word{number}" for number in range(WORDS)]
    options: dict[str, object] = {"image": "tiny", "image_size": 32, "embed_dim": WIDTH, "min_count": 1, "text": "bag"}
    model = build("dual", options, context=BuildContext(texts=tuple(names))).model.eval()
    save_run(place / "run", model, Record(model="dual", arguments=options, status="finished"))
    manifest = Manifest(fingerprint=model_fingerprint(model), run=str(place / "run"), model_name="dual", width=WIDTH)
    folder = Folder.create(place / "index", manifest)
    generator = np.random.default_rng(0)
    with folder.writing("build") as writer:
        for start in range(0, ITEMS, PIECE):
            rows = generator.standard_normal((PIECE, 1, WIDTH), dtype=np.float32)
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            entries = [
                IndexEntry(f"item{n}", n.to_bytes(8, "little"), metadata={"shelf": n % 20, "title": f"picture {n}"})
                for n in range(start, start + PIECE)
            ]
            writer.put(Change("images", entries, rows))
    return place / "index"


def client(port: int, asked: Asked, until: float, seed: int) -> None:
    """Ask one question after the other on one connection."""
    generator = np.random.default_rng(seed)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as line:
        while time.perf_counter() < until:
            words = " ".join(f"word{n}" for n in generator.integers(0, WORDS, 8))
            started = time.perf_counter()
            line.request("GET", "/search?" + urlencode({"q": words, "top": TOP}))
            answer = line.getresponse()
            answer.read()
            asked.add(answer.status, time.perf_counter() - started, answer.getheader("Retry-After"))


def load(port: int, clients: int, seconds: float) -> tuple[Asked, float]:
    """What so many clients see in so many seconds; and how long that really took."""
    asked, started = Asked(), time.perf_counter()
    threads = [threading.Thread(target=client, args=(port, asked, started + seconds, n)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return asked, time.perf_counter() - started


def figures(asked: Asked, took: float) -> dict[str, Any]:
    """p50 and p95 in milliseconds, answers a second, and all statuses."""
    found: dict[str, Any] = {"statuses": asked.statuses, "refused_without_a_time": asked.silent}
    if asked.seconds:
        p50, p95 = np.percentile(asked.seconds, [50, 95]) * 1000
        found |= {"p50_ms": round(float(p50), 1), "p95_ms": round(float(p95), 1)}
    return found | {"per_second": round(len(asked.seconds) / took, 1)}


class Server:
    """A server in a process of its own."""

    def __init__(self, index: Path, port: int, at_once: int) -> None:
        self.port = port
        command = [sys.executable, "-c", SERVE, str(index), str(port), str(at_once)]
        self.process = subprocess.Popen(command)
        until = time.monotonic() + 180
        while time.monotonic() < until:
            try:
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as line:
                    line.request("GET", "/healthz")
                    with line.getresponse() as answer:
                        if answer.status == 200:
                            return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    @property
    def anonymous_mb(self) -> float:
        """Memory of its own, mapped pages apart."""
        told = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        return {line.split(":")[0]: int(line.split()[1]) for line in told}["Anonymous"] / 1024

    def close(self) -> None:
        """End it as an operator does."""
        self.process.terminate()
        self.process.wait(timeout=60)


def memory(server: Server, minutes: float) -> dict[str, float]:
    """Megabytes after a tenth of the time and at its end, under 8 clients."""
    load(server.port, 8, 6 * minutes)
    first = server.anonymous_mb
    asked, _ = load(server.port, 8, 54 * minutes)
    last = server.anonymous_mb
    return {
        "minutes": minutes, "answers": len(asked.seconds), "after_a_tenth_mb": round(first, 1),
        "at_the_end_mb": round(last, 1), "grown_percent": round(100 * (last / first - 1), 2),
    }  # fmt: skip


def alone(index: Path, seconds: float) -> Timing:
    """The engine in this process, one question after the other."""
    from subtext.api.search import open_index

    engine, timing, generator = open_index(index), Timing(), np.random.default_rng(1)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(timing.seconds) < 5:
        words = " ".join(f"word{n}" for n in generator.integers(0, WORDS, 8))
        started = time.perf_counter()
        engine.search(words, top=TOP)
        timing.seconds.append(time.perf_counter() - started)
    return timing


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the server under 1, 8 and 64 clients")
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    parser.add_argument("--quick", action="store_true", help="3 seconds a number of clients instead of 15")
    parser.add_argument("--minutes", type=float, default=0.0, help="of the look at memory; none by default")
    parser.add_argument("--port", type=int, default=8765)
    given = parser.parse_args()
    seconds = 3.0 if given.quick else 15.0
    with tempfile.TemporaryDirectory() as place:
        index = made(Path(place))
        peer = alone(index, seconds)
        server = Server(index, given.port, 96)
        load(given.port, 4, 1.0)
        found: dict[str, Any] = {}
        ours = Timing()
        for clients in CLIENTS:
            asked, took = load(given.port, clients, seconds)
            found[f"clients_{clients}"] = figures(asked, took)
            if clients == 1:
                ours.seconds = asked.seconds
        if given.minutes:
            found["memory"] = memory(server, given.minutes)
        server.close()
        server = Server(index, given.port, AT_ONCE)
        asked, took = load(given.port, 4 * AT_ONCE, seconds)
        found["overload"] = {"clients": 4 * AT_ONCE, "at_once": AT_ONCE, **figures(asked, took)}
        server.close()
    facts = {
        "name": "server",
        "peer": "Index.search in the same process, one question at a time",
        "size": f"{ITEMS:,} x {WIDTH}, top {TOP}, questions of 8 words, all different",
        "max_difference": 0,
        "compared": "one client's answers over HTTP with the engine's own",
        **found,
    }
    report(Options(json=given.json, quick=given.quick, repeats=len(ours.seconds)), facts, ours, peer)
    bad = [name for name, own in found.items() if set(own.get("statuses", {})) - {200, 429, 503}]
    if bad:
        raise SystemExit(f"answers that are neither 200 nor 429 or 503: {json.dumps(found[bad[0]])}")


if __name__ == "__main__":
    main()
