"""What smaller vectors and chosen lists give: disk, requests, bytes and recall, of vectors with and without clusters.

    --items N         images and texts together, half of each (default 20,000)
    --store KIND      folder (default), lance, s3 or postgres, as in `scale.py`
    --vectors KIND    clusters, even, or both (default), as in `scale.py`
    --recall R        that is asked (default 0.95)
    --numbers KIND    float32, float16, or both (default)
    --plain           items of an id and a year alone
    --cache-size MB   of a reader of LanceDB (default 256), as of `index compact`

Vectors of 512 numbers are put in without images. An image has an id of nine letters, a path, the size and times of a
file, a year, a place and the number of its box; its text has a caption of 60 letters and the same fields, and is linked
with it. Each index is compacted with lists or graphs from a fifth of the vectors of a side on. Then 20 searches for the
ten nearest images, by the default and exactly, with the rows and the texts of these; recall is that of the ten nearest
to those of a loop in float32, which are also those of `--numbers float32` for exact searches. The first search reads
what a reader keeps; the figures of others are means. Requests and bytes are counted on s3 alone. Bytes an item are
those on the disk without the vectors themselves, and are of the index before and after it is compacted.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.scale import BOX, PLACES, QUERIES, TOP, WIDTH, Meter, Vectors, places, recall
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.item import Change, IndexEntry, Side
from subtext.retrieval.stores.registry import create_store, open_store

PIECE = 20_000
WORDS = (Path(__file__).parents[1] / "README.md").read_text("utf-8").lower().split()
"""What captions are made of."""


def measure(
    place: str, count: int, vectors: Vectors, meter: Meter, numbers: str, asked: float, *, plain: bool, cache: int
) -> None:
    """Build an index, and print what it costs."""
    settings = {"numbers": numbers, "recall": asked, "exact_up_to": count // 10, "cache": cache * 2**20}
    manifest = Manifest("f" * 32, "", "none", WIDTH, **settings)
    store = create_store(place, manifest)
    try:
        rows = []
        with store.writing("build") as writer:
            for side in ("images", "texts"):
                for start in range(0, count // 2, PIECE):
                    drawn = vectors.rows(min(PIECE, count // 2 - start), seed=start + (side == "texts"))
                    rows += [drawn] if side == "images" else []
                    writer.put(_change(side, start, drawn, plain=plain))
            before = store.bytes
            meter.take("compact", lambda: print("   ", *writer.compact(), sep="\n    "))
        held = count * WIDTH * (2 if numbers == "float16" else 4)
        print(f"    compacted in {meter.found['compact']['seconds']:.0f} s")
        beside = [(size - held) / count for size in (before, store.bytes)]
        print(f"    bytes an item beside the vectors: {beside[0]:,.0f}, and with lists or graphs {beside[1]:,.0f}")
        every, queries = np.concatenate(rows), vectors.rows(QUERIES + 1, seed=2**31)
        truth = [[f"p{row:08d}" for row in np.argsort(-(every @ query), kind="stable")[:TOP]] for query in queries[1:]]
        store = open_store(place)
        for name, exact in (("search", False), ("exact search", True)):
            found: list[list[str]] = []

            def ask(query: np.ndarray, exact: bool = exact, found: list[list[str]] = found) -> None:
                with store.reading() as view:
                    (hits,) = view.nearest("images", query[None, None], top=TOP, exact=exact)
                    found.append([item.id for item in view.items("images", hits.keys)])

            meter.take(f"first {name}", lambda: ask(queries[0]))
            found.clear()
            meter.take(name, lambda: [ask(query) for query in queries[1:]], times=QUERIES)
            meter.found[name]["recall"] = recall(found, truth)
            for what in (f"first {name}", name):
                told = ", ".join(f"{unit} {value:g}" for unit, value in meter.found[what].items())
                print(f"    {what}: {told}")
    finally:
        store.remove()


def _change(side: Side, start: int, drawn: np.ndarray, *, plain: bool) -> Change:
    of_both, draws, entries, links = random.Random(start), random.Random(f"{side} {start}"), [], []
    for row in range(start, start + len(drawn)):
        image, content = f"p{row:08d}", draws.randbytes(16)
        name = image if side == "images" else f"{image}#0"
        if plain:
            entries.append(IndexEntry(name, content, metadata={"year": 1850 + row % 170}))
            continue
        fields = {"year": of_both.randrange(1850, 2020), "place": of_both.choice(PLACES), "box": row // BOX}
        if side == "images":
            times = f"{draws.randrange(10**17) + 16 * 10**17} {draws.randrange(10**17) + 17 * 10**17}"
            path, stamp = f"images/{row // 1000:05d}/{row:08d}.jpg", f"{draws.randrange(10**5, 10**7)} {times}"
            entries.append(IndexEntry(name, content, path=path, metadata=fields, stamp=stamp))
        else:
            caption = " ".join(draws.choices(WORDS, k=10))[:60]
            entries.append(IndexEntry(name, content, text=caption, metadata=fields))
            links.append((image, name))
    return Change(side, entries, drawn[:, None], links=links)


def main() -> None:
    """Measure each kind of vectors and of numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--store", choices=["folder", "lance", "s3", "postgres"], default="folder")
    parser.add_argument("--vectors", choices=["clusters", "even", "both"], default="both")
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--numbers", choices=["float32", "float16", "both"], default="both")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--cache-size", type=int, default=256)
    asked = parser.parse_args()
    with ExitStack() as servers:
        home = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        home.chmod(0o755)
        place, server = places(asked.store, home, servers)
        for kind in ("clusters", "even") if asked.vectors == "both" else (asked.vectors,):
            for numbers in ("float32", "float16") if asked.numbers == "both" else (asked.numbers,):
                print(f"{asked.items:,} vectors, {kind}, {numbers}, recall {asked.recall:g}, {asked.store}", flush=True)
                measure(
                    place,
                    asked.items,
                    Vectors(kind),
                    Meter(server),
                    numbers,
                    asked.recall,
                    plain=asked.plain,
                    cache=asked.cache_size,
                )


if __name__ == "__main__":
    main()
