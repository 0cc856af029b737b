"""What an index costs by its number of items, and what Subtext's layer costs above the store that it stands on.

    --items N        images and texts together, half of each (default 200,000, at least 20,000); a tenth is measured too
    --store KIND     folder (default), lance, s3, postgres, or the address of a place, without what stands alone
    --vectors KIND   clusters, even, or both (default)
    --listing        nothing but what a listing costs: bytes and seconds of an item that is read, of one that is built
                     (vectors of eight numbers), and of one unchanged
    --json           print nothing but one JSON object

The data are N / 2 images of 8 x 8 pixels, a thousand to a folder, and a table of JSON lines: an id, a caption, a year,
a place, and the number of its box; a box has 200 images. The model is an untrained tower whose work is left out, as it
would be most of a build; its vectors of 512 numbers are drawn. `clusters` are 1,000 of unequal size, as in
`search_engine.py`; `even` vectors are normal numbers at unit length, for which no list and no graph is of much help.
There is no sentence encoder.

Measured in one process, one after the other, and printed to standard error as soon as it is there: the table is read as
a build reads it, and its images as a folder without a table (half of the items); a build from the table; `compact`; a
first search, and 20 more, by default and exactly; a box alone, and the ten nearest in that box; an update where nothing
changed, by ten changes, and where all files have another time of change; deleting a hundredth of the images; `compact`
again. Of each the seconds, the seconds of this process's processor, the memory above what it held before, and on S3 the
requests and the bytes of their answers. Recall is that of the ten nearest to those of a loop over all vectors in
float32.

Beside it the store alone on the same vectors of images: FAISS, LanceDB's own IVF index, or pgvector's HNSW graph, each
with the defaults that its documents name. `s3` is the server of the tests, unless AWS_ENDPOINT_URL leads to another
one, whose requests are not counted; it shares the processor. `postgres` is a server of its own (the extra "dev").

A slope is the difference of two sizes by the difference of their items: what an item costs, without what every command
costs. What is written of larger archives is this slope times their items, and was not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import peak_megabytes, postgresql
from benchmarks.search_engine import WIDTH, Drawn
from subtext.api.index.build import build_index, update_index
from subtext.core import Embeddings
from subtext.data.config import DataConfig
from subtext.data.read import read
from subtext.data.unchanged import Unchanged
from subtext.models.checkpoint import Record, save_run
from subtext.recipes.build import build
from subtext.retrieval import build as building
from subtext.retrieval.condition import matching
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.training.setup import BuildContext

ITEMS, LEAST, SMALLER, CHANGED = 200_000, 20_000, 10, 10
"""Items, and the fewest; the smaller size is that share of them; images that a list of changes names."""
KINDS = ("folder", "lance", "s3", "postgres")
LARGE = (100_000_000, 1_000_000_000)
PLACES = ("Paris", "Wien", "Łódź", "Zürich", "北京")
BOX, QUERIES, TOP = 200, 20, 10
FEW = 8
"""Numbers of a vector where the listing alone is measured."""

Measures = dict[str, dict[str, float]]
"""What was done -> what it took."""


@dataclass
class Vectors:
    """Vectors of either kind, and all that were drawn of images, in the order of the table."""

    kind: str
    width: int = WIDTH
    clusters: Drawn = field(default_factory=lambda: Drawn.of(1000))
    images: list[NDArray[np.float32]] = field(default_factory=list)
    drawn: int = 0

    def rows(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """(count D) unit rows."""
        if self.kind == "clusters":
            return self.clusters.rows(count, seed=seed)
        rows = np.random.default_rng(seed).standard_normal((count, self.width), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def in_place_of_a_model(self, model: Any, branch: Any, items: Any, *words: Any, **options: Any) -> Embeddings:
        """Vectors in the place of those that a model would make."""
        self.drawn += 1
        rows = self.rows(len(items), seed=self.drawn)
        if branch is model.image and self.width == WIDTH:
            self.images.append(rows)
        return Embeddings(torch.from_numpy(rows[:, None]), torch.arange(len(items)))


@dataclass
class Meter:
    """Takes the measures; counts requests where a server does."""

    server: str = ""
    found: Measures = field(default_factory=dict)

    def counted(self) -> NDArray[np.int64]:
        """Requests and bytes of answers since the server began."""
        if not self.server:
            return np.zeros(2, dtype=np.int64)
        with urllib.request.urlopen(f"{self.server}/counted") as answer:
            return np.array(json.load(answer), dtype=np.int64)

    def take(self, name: str, work: Callable[[], Any], *, times: int = 1) -> None:
        """Measure a piece of work that does the same so many times: the figures are those of one."""
        taken, before = dict[str, float](), self.counted()

        def timed() -> None:
            started, worked = time.perf_counter(), time.process_time()
            work()
            taken["seconds"] = (time.perf_counter() - started) / times
            taken["processor"] = (time.process_time() - worked) / times

        taken["megabytes"] = peak_megabytes(timed, every=0.01)
        if self.server:
            requests, read = (self.counted() - before) / times
            taken |= {"requests": float(requests), "megabytes_read": float(read) / 2**20}
        self.found[name] = {key: round(value, 4) for key, value in taken.items()}
        print(f"{name}: {self.found[name]}", file=sys.stderr, flush=True)


def write_data(folder: Path, images: int) -> Path:
    """Write images and their table; gives the table."""
    draws, file = random.Random(0), folder / "data.jsonl"
    with file.open("w", encoding="utf-8") as table:
        for number in range(images):
            name = f"images/{number // 1000:05d}/{number:08d}.png"
            if number % 1000 == 0:
                (folder / name).parent.mkdir(parents=True)
            colours = draws.randbytes(192)
            Image.frombytes("RGB", (8, 8), colours).save(folder / name, compress_level=1)
            row = {"image": name, "id": f"p{number:08d}", "caption": f"the {number}th picture of a {colours.hex()[:9]}"}
            facts = {"year": 1850 + number % 170, "place": PLACES[number % 5], "box": number % -(-images // BOX)}
            table.write(json.dumps({**row, **facts}) + "\n")
    return file


def write_run(folder: Path, table: Path, width: int) -> Path:
    """Write a run of an untrained model; gives its folder."""
    head = folder / "head.jsonl"
    head.write_text("".join(f"{line}\n" for line in table.read_text(encoding="utf-8").splitlines()[:50]), "utf-8")
    options = {"image": "tiny", "image_size": 32, "embed_dim": width, "word_dim": 8, "min_count": 1}
    texts = tuple(str(text) for text in read(head).texts.values)
    model = build("dual", options, context=BuildContext(texts=texts * 10, seed=0)).model
    record = Record(model="dual", arguments=options, seed=0, status="finished", data=DataConfig(head))
    save_run(folder / "run", model.eval(), record)
    return folder / "run"


def recall(found: list[list[str]], truth: list[list[str]]) -> float:
    """Mean share of the true ten that were found."""
    shares = [len(set(own) & set(right)) / len(right) for own, right in zip(found, truth, strict=True)]
    return round(statistics.mean(shares), 4)


def searches(store: Store, vectors: Vectors, meter: Meter) -> None:
    """Searches by vectors, of all images and of a box."""
    queries = vectors.rows(QUERIES + 1, seed=2**31)
    rows = np.concatenate(vectors.images)
    ids = [f"p{number:08d}" for number in range(len(rows))]
    truth = [[ids[row] for row in np.argsort(-(rows @ query), kind="stable")[:TOP]] for query in queries[1:]]
    boxes = np.arange(len(rows)) % -(-len(rows) // BOX)
    asked = np.arange(QUERIES) % (boxes.max() + 1)
    found: list[list[str]] = []

    def ask(query: NDArray[np.float32], *, exact: bool = False, box: int | None = None) -> None:
        with store.reading() as view:
            among = None if box is None else matching(view, "images", [Condition("box", "=", box)])
            (nearest,) = view.nearest("images", query[None, None], top=TOP, among=among, exact=exact)
            found.append([item.id for item in view.items("images", nearest.keys)])

    def ask_all(**options: Any) -> Callable[[], None]:
        return lambda: [ask(query, **options) for query in queries[1:]] and None

    meter.take("first search", lambda: ask(queries[0]))
    for name, options in (("search", {}), ("exact search", {"exact": True})):
        found.clear()
        meter.take(name, ask_all(**options), times=QUERIES)
        meter.found[name]["recall"] = recall(found, truth)

    def boxed() -> None:
        for box in asked:
            with store.reading() as view:
                assert len(matching(view, "images", [Condition("box", "=", int(box))])) == np.sum(boxes == box)

    with store.reading() as view:
        matching(view, "images", [Condition("box", "=", 0)])
    meter.take("a filter of 200 images", boxed, times=QUERIES)
    found.clear()
    meter.take(
        "search in 200 images",
        lambda: [ask(query, box=int(box)) for box, query in zip(asked, queries[1:], strict=True)],
        times=QUERIES,
    )
    own = [np.flatnonzero(boxes == box) for box in asked]
    true = [
        [ids[row] for row in rows_of[np.argsort(-(rows[rows_of] @ query), kind="stable")[:TOP]]]
        for rows_of, query in zip(own, queries[1:], strict=True)
    ]
    meter.found["search in 200 images"]["recall"] = recall(found, true)


def read_for_index(data: Path) -> None:
    """Read and check a listing as a build does."""
    read(data, verify=True, unchanged=Unchanged((), Path(), count=0, verify_files=False))


def one_size(
    folder: Path, table: Path, run: Path, place: str, vectors: Vectors, meter: Meter, *, listing: bool
) -> Measures:
    """All measurements of an archive; its index is removed again."""
    building.embed_items = vectors.in_place_of_a_model
    quiet: dict[str, Any] = {"quiet": True, "workers": 0}
    meter.found = {}
    for data in (table, folder / "images"):
        meter.take(f"read the {'table' if data == table else 'folder'}", partial(read_for_index, data))
    meter.take("build", lambda: build_index(place, table, run=run, text_encoder="none", **quiet))
    try:
        store = open_store(place)
        if listing:
            update_index(place, **quiet)
            meter.take("update, nothing changed", lambda: update_index(place, **quiet))
            return meter.found

        def compact() -> None:
            with store.writing("compact") as writer:
                writer.compact()

        meter.take("compact", compact)
        meter.found["on the disk"] = {"megabytes": round(store.bytes / 2**20, 1)}
        searches(store, vectors, meter)
        update_index(place, **quiet)
        meter.take("update, nothing changed", lambda: update_index(place, **quiet))
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()[:CHANGED]]
        changes = folder / "changes.jsonl"
        changes.write_text("".join(json.dumps({**row, "year": 1}) + "\n" for row in rows), "utf-8")
        meter.take("update by 10 changes", lambda: update_index(place, changes=changes, **quiet))
        meter.take("the same changes again", lambda: update_index(place, changes=changes, **quiet))
        for file in (folder / "images").rglob("*.png"):
            times = file.stat().st_atime_ns, file.stat().st_mtime_ns
            os.utime(file, ns=times)  # Another time of change alone.
        meter.take("update, other times of change", lambda: update_index(place, **quiet))
        gone = [f"p{number:08d}" for number in range(0, store.counts["images"], 100)]

        def delete() -> None:
            with store.writing("delete") as writer:
                writer.delete("images", gone)

        meter.take("delete a hundredth", delete)
        meter.take("compact after it", compact)
    finally:
        open_store(place).remove()
    return meter.found


def alone(kind: str, place: str, vectors: Vectors, meter: Meter) -> Measures:
    """The store alone, on the vectors of the images: put, index, searches, and bytes where they can be had."""
    rows = np.concatenate(vectors.images)
    queries = vectors.rows(QUERIES + 1, seed=2**31)
    truth = [[str(row) for row in np.argsort(-(rows @ query), kind="stable")[:TOP]] for query in queries[1:]]
    meter.found = {}
    with {"folder": _faiss, "postgres": _pgvector}.get(kind, _lance)(place, rows, meter) as (search, megabytes):
        search(queries[0])
        found: list[list[str]] = []
        meter.take("search", lambda: found.extend(search(query) for query in queries[1:]), times=QUERIES)
        meter.found["search"]["recall"] = recall(found, truth)
        if (size := megabytes()) is not None:
            meter.found["on the disk"] = {"megabytes": round(size, 1)}
    return meter.found


Search = Callable[[NDArray[np.float32]], list[str]]


@contextmanager
def _faiss(place: str, rows: NDArray[np.float32], meter: Meter) -> Iterator[tuple[Search, Callable[[], float | None]]]:
    """A flat FAISS index in memory."""
    import faiss

    index = faiss.IndexFlatIP(WIDTH)
    meter.take("build", lambda: index.add(rows))
    yield (
        lambda query: [str(row) for row in index.search(query[None], TOP)[1][0]],
        lambda: rows.nbytes / 2**20,
    )


@contextmanager
def _lance(place: str, rows: NDArray[np.float32], meter: Meter) -> Iterator[tuple[Search, Callable[[], float | None]]]:
    """A Lance table with an IVF index: a list for 4,096 rows, 20 of them looked at."""
    import lance
    import pyarrow as pa

    address = f"{place.removeprefix('lance://')}-alone.lance"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), WIDTH)
    table = pa.table({"id": pa.array(map(str, range(len(rows)))), "vector": vectors})

    meter.take("build", lambda: lance.write_dataset(table, address))
    lists = max(1, len(rows) // 4096)
    meter.take(
        "index",
        lambda: lance.dataset(address).create_index("vector", "IVF_FLAT", num_partitions=lists, metric="dot"),
    )
    opened = lance.dataset(address)

    def search(query: NDArray[np.float32]) -> list[str]:
        near = {"column": "vector", "q": query, "k": TOP, "nprobes": 20, "metric": "dot"}
        return list(opened.to_table(columns=["id", "_distance"], nearest=near)["id"].to_pylist())

    def megabytes() -> float | None:
        if "://" in address:
            return None
        return sum(file.stat().st_size for file in Path(address).rglob("*") if file.is_file()) / 2**20

    yield search, megabytes


@contextmanager
def _pgvector(
    place: str, rows: NDArray[np.float32], meter: Meter
) -> Iterator[tuple[Search, Callable[[], float | None]]]:
    """A table of pgvector with an HNSW graph, m 16, and 40 candidates in a search."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(place.partition("&index=")[0], autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        connection.execute(f"CREATE TABLE alone (id int PRIMARY KEY, vector vector({WIDTH}))")

        def put() -> None:
            with connection.cursor().copy("COPY alone FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.set_types(["int4", "vector"])
                for number, row in enumerate(rows):
                    copy.write_row((number, row))

        meter.take("build", put)
        graph = "CREATE INDEX alone_graph ON alone USING hnsw (vector vector_ip_ops)"
        meter.take("index", lambda: connection.execute(graph))

        def search(query: NDArray[np.float32]) -> list[str]:
            asked = "SELECT id FROM alone ORDER BY vector <#> %s LIMIT %s"
            return [str(row[0]) for row in connection.execute(asked, (query, TOP))]

        def megabytes() -> float:
            (size,) = connection.execute("SELECT pg_total_relation_size('alone')").fetchone() or (0,)
            return float(size) / 2**20

        yield search, megabytes
        connection.execute("DROP TABLE alone")


def places(kind: str, folder: Path, servers: ExitStack) -> tuple[str, str]:
    """The address of the index, and that of a server that counts its requests."""
    if kind == "s3":
        server = ""
        if "AWS_ENDPOINT_URL" not in os.environ:
            helper = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "helpers" / "s3_server.py"))
            os.environ |= servers.enter_context(helper["served"]())
            server = os.environ["AWS_ENDPOINT_URL"]
        return "s3://archive/measured", server
    if kind == "postgres":
        return servers.enter_context(postgresql(folder)), ""
    return {"folder": f"{folder}/library", "lance": f"lance://{folder}/library"}.get(kind, kind), ""


def slope(small: dict[str, float], large: dict[str, float], more: int) -> dict[str, float]:
    """What a million items more take of everything but a share."""
    return {name: round(1e6 * (large[name] - small[name]) / more, 2) for name in large if name != "recall"}


def main() -> None:
    """Measure two sizes, and print their slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--store", default="folder")
    parser.add_argument("--vectors", choices=["clusters", "even", "both"], default="both")
    parser.add_argument("--listing", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.items < LEAST:
        parser.error(f"--items needs {LEAST:,} or more, of which a tenth is measured as well; it got {asked.items:,}")
    torch.set_num_threads(1)
    sizes = (asked.items // SMALLER, asked.items)
    kinds = ["even"] if asked.listing else ["clusters", "even"] if asked.vectors == "both" else [asked.vectors]
    width = FEW if asked.listing else WIDTH
    measured: dict[str, list[Measures]] = {kind: [] for kind in kinds}
    peers: dict[str, list[Measures]] = {kind: [] for kind in kinds}
    with ExitStack() as servers:
        home = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        home.chmod(0o755)  # Where root measures, the server of PostgreSQL is another user's.
        place, server = places(asked.store, home, servers)
        for size in sizes:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                table = write_data(folder, size // 2)
                run = write_run(folder, table, width)
                for kind in kinds:
                    print(f"{size:,} items, {kind}", file=sys.stderr, flush=True)
                    vectors, meter = Vectors(kind, width), Meter(server)
                    one = one_size(folder, table, run, place, vectors, meter, listing=asked.listing)
                    measured[kind].append(one)
                    if not asked.listing and asked.store in KINDS:
                        peers[kind].append(alone(asked.store, f"{place}-{size}-{kind}", vectors, meter))
    slopes = {
        kind: {what: slope(small[what], large[what], sizes[1] - sizes[0]) for what in large}
        for kind, (small, large) in measured.items()
    }
    shown = asked.listing and not asked.json
    for what in ("read the table", "read the folder", "build", "update, nothing changed") if shown else ():
        own = slopes[kinds[0]][what]
        each = {name: value * (2 if "folder" in what else 1) / 1e6 for name, value in own.items()}
        print(
            f"{what}: {each['megabytes'] * 2**20:,.0f} bytes an item, "
            f"{1 / each['processor']:,.0f} items a second of a core"
        )
    if not (asked.json or asked.listing):
        for kind in kinds:
            both = {f"{kind}, Subtext": measured[kind], f"{kind}, alone": peers[kind]}
            for title, (small, large) in ((title, own) for title, own in both.items() if own):
                print(f"{title}: {sizes[0]:,} and {sizes[1]:,} items")
                for what in large:
                    told = ", ".join(f"{name} {small[what][name]:g} {large[what][name]:g}" for name in large[what])
                    print(f"    {what:<30} {told}")
            print(f"{kind}: extrapolated by the slopes, not measured:")
            for size in LARGE:
                own, millions = slopes[kind], size / 1e6
                disk = own["on the disk"]["megabytes"] * millions / 1024
                built, hours = (own[what]["seconds"] * millions / 3600 for what in ("build", "update, nothing changed"))
                memory = own["update, nothing changed"]["megabytes"] * millions / 1024
                print(
                    f"    {size:,} items: {disk:,.0f} GB of disk; a build {built:,.1f} h without a model; an update "
                    f"{hours:,.1f} h and {memory:,.2f} GB of memory"
                )
    told = {"items": sizes, "store": asked.store, "measured": measured, "alone": peers, "slopes": slopes}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
