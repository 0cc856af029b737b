"""What an index costs by its number of items: an update where nothing changed, one by a list of changes, and a build.

    --items N        images and texts together, half of each (default 200,000; a twentieth is measured as well)
    --store KIND     folder (default), lance, or the address of a place for the index, which is removed at the end
    --json           print nothing but one JSON object

The data are N / 2 images of 8 x 8 pixels, a thousand to a folder, and a table of JSON lines: an id, a caption, a year
and a place. The model is an untrained tower whose work is left out, as it would be most of a build; its vectors are
drawn. There is no sentence encoder. Measured in one process, one size after the other, are the seconds, the seconds of
the processor, and the memory above what the process held before.

A slope is the difference of two sizes by the difference of their items: what an item costs, without what every command
costs. What is written of larger archives is this slope times their items, and was not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.common import peak_megabytes
from subtext.api.index.build import build_index, update_index
from subtext.core import Embeddings
from subtext.data.config import DataConfig
from subtext.data.read import read
from subtext.models.checkpoint import Record, save_run
from subtext.recipes.build import build
from subtext.retrieval import build as building
from subtext.retrieval.stores.registry import open_store
from subtext.training.setup import BuildContext

ITEMS, SMALLER, CHANGED, WIDTH = 200_000, 20, 10, 16
"""Items; the smaller size is that share of it; images that a list of changes names; numbers of a vector."""
LARGE = (1_000_000, 10_000_000, 100_000_000)
PLACES = ("Paris", "Wien", "Łódź", "Zürich", "北京")


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
            table.write(json.dumps({**row, "year": 1850 + number % 170, "place": PLACES[number % 5]}) + "\n")
    return file


def write_run(folder: Path, table: Path) -> Path:
    """Write a run of an untrained model; gives its folder."""
    head = folder / "head.jsonl"
    head.write_text("".join(f"{line}\n" for line in table.read_text(encoding="utf-8").splitlines()[:50]), "utf-8")
    options = {"image": "tiny", "image_size": 32, "embed_dim": WIDTH, "word_dim": 8, "min_count": 1}
    texts = tuple(str(text) for text in read(head).texts.values)
    model = build("dual", options, context=BuildContext(texts=texts * 10, seed=0)).model
    record = Record(model="dual", arguments=options, seed=0, status="finished", data=DataConfig(head))
    save_run(folder / "run", model.eval(), record)
    return folder / "run"


def drawn(model: Any, branch: Any, items: Any, *words: Any, **options: Any) -> Embeddings:
    """Vectors in the place of those that a model would make."""
    rows = np.random.default_rng(len(items)).standard_normal((len(items), 1, WIDTH)).astype(np.float32)
    return Embeddings(torch.from_numpy(rows), torch.arange(len(items)))


def measured(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds, seconds of the processor, and megabytes of a piece of work."""
    started, worked = time.perf_counter(), time.process_time()
    megabytes = peak_megabytes(work, every=0.01)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    return {"seconds": round(seconds, 3), "processor": round(processor, 3), "megabytes": round(megabytes, 1)}


def one_size(folder: Path, items: int, place: str) -> dict[str, dict[str, float]]:
    """All measurements of an archive of that size; its index is removed again."""
    table = write_data(folder, items // 2)
    run, found = write_run(folder, table), {}
    quiet: dict[str, Any] = {"quiet": True, "workers": 0}
    found["build"] = measured(lambda: build_index(place, table, run=run, text_encoder="none", **quiet))
    try:
        update_index(place, **quiet)
        found["update, nothing changed"] = measured(lambda: update_index(place, **quiet))
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()[:CHANGED]]
        changes = folder / "changes.jsonl"
        changes.write_text("".join(json.dumps({**row, "year": 1}) + "\n" for row in rows), "utf-8")
        found["update by 10 changes"] = measured(lambda: update_index(place, changes=changes, **quiet))
        found["the same changes again"] = measured(lambda: update_index(place, changes=changes, **quiet))
        for file in sorted((folder / "images").rglob("*.png")):
            times = file.stat().st_atime_ns, file.stat().st_mtime_ns
            os.utime(file, ns=times)  # Another time of change alone.
        found["update, other times of change"] = measured(lambda: update_index(place, **quiet))
        found["on the disk"] = {"megabytes": round(open_store(place).bytes / 2**20, 1)}
    finally:
        open_store(place).remove()
    return found


def main() -> None:
    """Measure two sizes, and print their slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--store", default="folder")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    building.embed_items = drawn
    sizes = (max(200, asked.items // SMALLER), asked.items)
    found: list[dict[str, dict[str, float]]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            kinds = {"folder": f"{folder}/library", "lance": f"lance://{folder}/library"}
            (folder / "data").mkdir()
            found.append(one_size(folder / "data", size, kinds.get(asked.store, asked.store)))
    slopes: dict[str, dict[str, Any]] = {}
    for what, large in found[1].items():
        small, more = found[0][what], sizes[1] - sizes[0]
        slopes[what] = {
            **{f"{name}_per_million": round(1e6 * (large[name] - small[name]) / more, 1) for name in large},
        }
        if "seconds" in large:
            slopes[what]["bytes_an_item"] = round(2**20 * (large["megabytes"] - small["megabytes"]) / more)
            worked = large["processor"] - small["processor"]
            slopes[what]["items_a_second_of_a_core"] = round(more / worked) if worked > 0.1 else None
    if not asked.json:
        for what, slope in slopes.items():
            print(f"{what}: {found[0][what]} at {sizes[0]:,}, {found[1][what]} at {sizes[1]:,}")
            print(f"    slope: {slope}")
        print("extrapolated from these slopes, not measured:")
        for size in LARGE:
            disk = slopes["on the disk"]["megabytes_per_million"] * size / 1e6 / 1024
            update = slopes["update, nothing changed"]
            memory = update["megabytes_per_million"] * size / 1e6 / 1024
            hours = update["processor_per_million"] * size / 1e6 / 3600
            print(f"    {size:,} items: {disk:,.1f} GB of disk; an update {memory:,.2f} GB and {hours:,.2f} h")
    print(json.dumps({"items": sizes, "store": asked.store, "measured": found, "slopes": slopes}))


if __name__ == "__main__":
    main()
