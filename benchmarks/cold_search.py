"""One `subtext search` from a cold start: processor and wall time, by part, each run in a process of its own.

    python -m benchmarks.cold_search INDEX "QUERY" [--repeats 5] [--json]

"command" is the command line as a user types it; "command, by the model" names the model as well, which is then opened
with torch, as for an index without its text side as plain arrays. The parts are the same work, step by step in one
process: those "by the model" with torch, the others without. Both are measured in turn. The median of the repeats is
printed, and the processor time of the fastest; what the parts do not cover is the start of Python.
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

BEGIN = """
import json, sys, time
parts, before = {}, [time.process_time(), time.perf_counter()]
def part(name):
    now = [time.process_time(), time.perf_counter()]
    parts[name] = [now[0] - before[0], now[1] - before[1]]
    before[:] = now
"""
WITH_TORCH = """
import torch; part("import torch, by the model")
"""
IMPORTS = """
import subtext.cli.command, subtext.retrieval.index, subtext.api.search
import subtext.retrieval.stores.folder; part("import subtext")
from subtext.retrieval.index import Index, Query
from subtext.retrieval.stores.registry import open_store
store = open_store(sys.argv[1]); part("open the index")
"""
BY_ARRAYS = """
from subtext.retrieval.text_side import TextSide
index = Index(store, None, TextSide.open(store.text_side, store.manifest.fingerprint)); part("open the text side")
"""
BY_MODEL = """
from subtext.api.load import ModelSource
model = ModelSource.of_index(store.manifest, None, None, index=sys.argv[1]).open()[0]; part("open the model")
index = Index(store, model); part("compare the model with the index, by the model")
"""
END = """
str(index.answer(Query(text=sys.argv[2]))); part("embed the query, search and print")
parts["imported"] = [name for name in ("torch", "transformers") if name in sys.modules]
print(json.dumps(parts))
"""


def command(index: str, query: str, *options: str) -> tuple[float, float]:
    """Seconds of the processor, and of the clock, of one search on the command line."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "subtext", "search", index, query, *options],
        check=True,
        capture_output=True,
        env=os.environ,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - started


def parts_of(index: str, query: str, *, by_model: bool) -> dict[str, list[float]]:
    """The same of each part."""
    code = BEGIN + (WITH_TORCH + IMPORTS + BY_MODEL if by_model else IMPORTS + BY_ARRAYS) + END
    run = subprocess.run([sys.executable, "-c", code, index, query], check=True, capture_output=True, text=True)
    measured: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    mark = ", by the model" if by_model else ""
    return {name if name.endswith(mark) else f"{name}{mark}": seconds for name, seconds in measured.items()}


def main() -> None:
    """Measure in turn, and print a line a part."""
    from subtext.retrieval.stores.registry import open_store

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("query")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    asked = parser.parse_args()
    manifest = open_store(asked.index).manifest
    named = ("--run", manifest.run) if manifest.run else ("--model", manifest.pretrained["name"])
    runs: dict[str, list[list[float]]] = {}
    imported: dict[str, object] = {}
    for _ in range(asked.repeats):
        measured = {"command": list(command(asked.index, asked.query))}
        measured["command, by the model"] = list(command(asked.index, asked.query, *named))
        for by_model in (False, True):
            parts = parts_of(asked.index, asked.query, by_model=by_model)
            imported |= {name: parts.pop(name) for name in list(parts) if name.startswith("imported")}
            measured |= parts
        for name, seconds in measured.items():
            runs.setdefault(name, []).append(seconds)
    found = {
        name: {
            "processor": round(statistics.median(used for used, _ in seconds), 3),
            "processor_fastest": round(min(used for used, _ in seconds), 3),
            "wall": round(statistics.median(wall for _, wall in seconds), 3),
        }
        for name, seconds in runs.items()
    }
    ratios = {
        kind: round(found["command, by the model"][kind] / found["command"][kind], 2) for kind in found["command"]
    }
    facts = {"name": "cold_search", "repeats": asked.repeats, **imported, "ratio": ratios, "seconds": found}
    if not asked.json:
        for name, row in found.items():
            print(f"{name:50} " + "  ".join(f"{kind} {value:6.3f}" for kind, value in row.items()))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
