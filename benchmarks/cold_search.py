"""One `subtext search` from a cold start: processor and wall time, by part, each run in a process of its own.

    python -m benchmarks.cold_search INDEX "QUERY" [--repeats 5] [--json]

"command" is the command line as a user types it. The parts are the same work, step by step in one process: imports, the
index, its model, the vector of the query, and the search with its table. The median of the repeats is printed, and the
processor time of the fastest; what the parts do not cover is the start of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PARTS = """
import json, os, sys, time
parts, before = {}, [time.process_time(), time.perf_counter()]
def part(name):
    now = [time.process_time(), time.perf_counter()]
    parts[name] = [now[0] - before[0], now[1] - before[1]]
    before[:] = now
import torch; part("import torch")
import subtext.cli.command, subtext.search, subtext.api.search; part("import subtext")
from subtext.api.load import ModelSource
from subtext.search import Index, Query
from subtext.search.stores.store import open_store
store = open_store(sys.argv[1]); part("open the index")
model = ModelSource.of_index(store.manifest, None, None, index=sys.argv[1]).open()[0]; part("open the model")
index = Index(store, model); part("compare the model with the index")
index.embed_text(sys.argv[2]); part("embed the query")
str(index.answer(Query(sys.argv[2]))); part("search and print")
parts["transformers imported"] = "transformers" in sys.modules
print(json.dumps(parts))
"""


def command(index: str, query: str) -> tuple[float, float]:
    """Seconds of the processor, and of the clock, of one search on the command line."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "subtext", "search", index, query], check=True, capture_output=True, env=os.environ
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - started


def parts_of(index: str, query: str) -> dict[str, list[float]]:
    """The same of each part."""
    run = subprocess.run([sys.executable, "-c", PARTS, index, query], check=True, capture_output=True, text=True)
    measured: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Measure in turn, and print a line a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("query")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    asked = parser.parse_args()
    runs: dict[str, list[list[float]]] = {}
    loaded = False
    for _ in range(asked.repeats):
        measured = parts_of(asked.index, asked.query)
        loaded = bool(measured.pop("transformers imported"))
        for name, seconds in {"command": list(command(asked.index, asked.query)), **measured}.items():
            runs.setdefault(name, []).append(seconds)
    found = {
        name: {
            "processor": round(statistics.median(used for used, _ in seconds), 3),
            "processor_fastest": round(min(used for used, _ in seconds), 3),
            "wall": round(statistics.median(wall for _, wall in seconds), 3),
        }
        for name, seconds in runs.items()
    }
    facts = {"name": "cold_search", "repeats": asked.repeats, "transformers_imported": loaded, "seconds": found}
    if not asked.json:
        for name, row in found.items():
            print(f"{name:34} " + "  ".join(f"{kind} {value:6.3f}" for kind, value in row.items()))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
