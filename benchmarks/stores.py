"""The stores of an index side by side, on the same 100,000 (--quick: 10,000) rows of 512: folder, PostgreSQL, LanceDB.

PostgreSQL is a server of its own (the extra "dev"), with its settings as they come but for the memory that a graph is
made in; LanceDB is a table in a folder. Measured is what `Index.nearest` does: a snapshot, the filter, the nearest, and
the ten best items; of all stores in turn, one query at a time. The folder compares every row. So that the others search
as they do where an index is large, PostgreSQL walks a graph and LanceDB an IVF index from a fifth of the rows on.

    --rows N               so many rows
    --without-postgresql   leaves out that one, whose graph takes minutes
    --without-lance        leaves out the folder of LanceDB
    --also ADDRESS         one more store, such as s3://archive/measured, removed at the end; credentials and endpoint
                           are those of the environment (AWS_ENDPOINT_URL and others)

What a store took is told step by step, with the processor time of this process, which is not that of a server.

Beside it: seconds and bytes an item; recall@10 against the folder's exact answer, of the default search and with
filters that 5 % and 50 % of the items pass, and how far the scores differ; adding and deleting 1,000 items; changes of
one item each; compacting after these, and all answers again; the memory of a process that reads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Options, Timing, options, peak_megabytes, postgresql, report
from benchmarks.search_engine import PIECE, TOP, WIDTH, Drawn, entries, in_turn, milliseconds, recall
from subtext.retrieval.condition import matching
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.item import Change
from subtext.retrieval.stores.registry import create_store, open_store
from subtext.retrieval.stores.store import Store

SMALL, LARGE, QUERIES = 10_000, 100_000, 60
SINGLE, AGAIN = 100, 20
"""Changes of one item each, and queries that are asked again after all changes."""
WAYS: dict[str, tuple[list[Condition], bool]] = {
    "search": ([], False),
    "exact": ([], True),
    "filter_5_percent": ([Condition("shelf", "=", 3)], False),
    "filter_50_percent": ([Condition("shelf", "<", 10)], False),
}
"""Name of a search -> its filter, and whether every row is compared."""


Answer = dict[str, float]
"""Id -> score of each of the best."""


def taken(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a piece of work, and those of the processor in this process."""
    started, worked = time.perf_counter(), time.process_time()
    work()
    return {"seconds": round(time.perf_counter() - started, 3), "processor": round(time.process_time() - worked, 3)}


def filled(store: Store, drawn: Drawn, count: int) -> dict[str, Any]:
    """Put the rows in; seconds for them, and for lists or graphs, and bytes an item."""

    def put() -> None:
        for start in range(0, count, PIECE):
            piece = min(PIECE, count - start)
            writer.put(Change("images", entries(start, piece), drawn.rows(piece, seed=start)[:, None]))

    with store.writing("build") as writer:
        found = {"put": taken(put), "compact": taken(writer.compact)}
    return {**found, "bytes_an_item": round(store.bytes / count)}


def asked(store: Store, query: NDArray[np.float32], where: list[Condition], *, exact: bool = False) -> Answer:
    """The ten best, best first."""
    with store.reading() as view:
        among = matching(view, "images", where) if where else None
        (found,) = view.nearest("images", query[None, None], top=TOP, among=among, exact=exact)
        items = view.items("images", found.keys)
        return {item.id: float(score) for item, score in zip(items, found.scores, strict=True)}


def compared(answers: list[Answer], truth: list[Answer]) -> dict[str, float]:
    """Recall, and the largest difference of the scores of items that both have."""
    shared = [
        (own[name], wanted[name])
        for own, wanted in zip(answers, truth, strict=True)
        for name in own.keys() & wanted.keys()
    ]
    return {
        "recall": round(recall([list(own) for own in answers], [list(wanted) for wanted in truth]), 4),
        "score_difference": max(abs(one - other) for one, other in shared),
    }


def changing(store: Store, drawn: Drawn, count: int) -> dict[str, Any]:
    """Seconds for 1,000 more items, stored durably and found; for deleting 1,000 of the others; for changes of one."""
    new, rows = entries(count, 1000), drawn.rows(1000, seed=count)[:, None]
    old = [entry.id for entry in entries(0, count)[:: count // 1000][:1000]]
    single = drawn.rows(SINGLE, seed=count + 1000)[:, None]
    seconds = list[float]()

    def add() -> None:
        writer.put(Change("images", new, rows))
        assert next(iter(asked(store, rows[3, 0], []))) == f"item{count + 3}"

    with store.writing("add") as writer:
        found = {"add_1000": taken(add), "delete_1000": taken(partial(writer.delete, "images", old))}
        for number, vector in enumerate(single):
            started = time.perf_counter()
            writer.put(Change("images", entries(count + 1000 + number, 1), vector[None]))
            seconds.append(time.perf_counter() - started)
        first, last = (float(np.median(part)) for part in (seconds[:20], seconds[-20:]))
        found["add_1"] = {"first_20": round(first, 4), "last_20": round(last, 4)}
        found["compact_again"] = taken(writer.compact)
    return found


def reader_megabytes(address: str) -> float:
    """Memory of a process that searches, above what it has after its imports; pages of mapped files count."""
    words = [sys.executable, "-m", "benchmarks.stores", "--reader", address]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def reader(address: str) -> None:
    """Search twenty times, and print the peak of memory above what the process had before, in MB."""
    with open_store(address).reading():
        pass  # Imports of the store.
    queries = Drawn.of(1000).rows(20, seed=1)

    def search() -> None:
        store = open_store(address)
        for query in queries:
            asked(store, query, [])

    print(round(peak_megabytes(search)))


def measured(
    place: Path, count: int, queries: int, given: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, Timing]]:
    """All figures."""
    drawn = Drawn.of(1000)
    manifest = Manifest(fingerprint="0" * 32, run="", model_name="", width=WIDTH, exact_up_to=min(200_000, count))
    addresses = {"folder": str(place / "folder")}
    if not given.without_lance:
        addresses["lance"] = f"lance://{place / 'lance'}"
    if given.also:
        addresses[given.also.partition(":")[0]] = given.also
    with ExitStack() as servers:
        if not given.without_postgresql:
            addresses["postgresql"] = servers.enter_context(postgresql(place))
        stores = dict[str, Store]()
        for name, address in addresses.items():
            own = manifest if name == "folder" else replace(manifest, exact_up_to=count // 5)
            stores[name] = create_store(address, own)
            if address == given.also:
                servers.callback(stores[name].remove)
        facts: dict[str, dict[str, Any]] = {name: {} for name in stores}

        def note(name: str, found: dict[str, Any]) -> None:
            facts[name] |= found
            print(name, found, file=sys.stderr, flush=True)

        for name, store in stores.items():
            note(name, filled(store, drawn, count))
        asks = drawn.rows(queries, seed=-1 % 2**32)
        answers: dict[str, list[Answer]] = {f"{name} {way}": [] for way in WAYS for name in stores}

        def answer(
            asker: str, store: Store, query: NDArray[np.float32], where: list[Condition], *, exact: bool
        ) -> None:
            answers[asker].append(asked(store, query, where, exact=exact))

        timings = dict[str, Timing]()
        for way, (where, exact) in WAYS.items():
            turns = {
                f"{name} {way}": partial(answer, f"{name} {way}", store, where=where, exact=exact)
                for name, store in stores.items()
            }
            timings |= in_turn(asks, turns)
            truth = (
                answers[f"folder {way}"]
                if count <= manifest.exact_up_to
                else [asked(stores["folder"], query, where, exact=True) for query in asks]
            )
            for name in stores:
                note(name, {way: milliseconds(timings[f"{name} {way}"]) | compared(answers[f"{name} {way}"], truth)})
        for name, store in stores.items():
            note(name, changing(store, drawn, count))
            note(name, {"reader_megabytes": reader_megabytes(addresses[name])})
            timings[f"{name} search"].peak_mb = peak_megabytes(partial(asked, store, asks[0], []))
        truth = [asked(stores["folder"], query, [], exact=True) for query in asks[:AGAIN]]
        for name, store in stores.items():
            for way, (_, exact) in list(WAYS.items())[:2]:
                found = [asked(store, query, [], exact=exact) for query in asks[:AGAIN]]
                note(name, {f"{way}_after_changes": compared(found, truth)})
    return facts, timings


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--reader"]:
        reader(sys.argv[2])
        return
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--without-postgresql", action="store_true")
    parser.add_argument("--without-lance", action="store_true")
    parser.add_argument("--also", default="")
    chosen, sys.argv[1:] = parser.parse_known_args()
    given: Options = options("the stores of an index side by side", repeats=QUERIES, quick_repeats=20)
    count = chosen.rows or (SMALL if given.quick else LARGE)
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # Where root measures the server is another user's.
        found, timings = measured(Path(place), count, given.repeats + 5, chosen)
    others = [name for name in found if name != "folder"]
    facts = {
        "name": "stores",
        "peer": "the folder store, every row compared",
        "size": f"{count:,} x {WIDTH} float32, top {TOP}, one query at a time; metadata and texts of the answer read",
        "max_difference": max(found[name]["exact"]["score_difference"] for name in others),
        "compared": "scores of the folder's and the others' ten nearest, where they compare every row",
        "same_hits": all(found[name]["exact"]["recall"] == 1 for name in others),
        **found,
    }
    report(given, facts, timings[f"{others[-1]} search"], timings["folder search"])


if __name__ == "__main__":
    main()
