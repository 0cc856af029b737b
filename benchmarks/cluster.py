"""An index of 5,000 (--quick: 600) made images, embedded by one process and by workers of Ray on this machine.

One worker on one node; two workers on two nodes; and these two where one is killed after the first chunk was stored.
Every index is compared with that of one process: ids, keys and vectors, bit for bit. A build decodes all images once
before it embeds, in the command's own process: `seconds` is the whole build, `processor` what the workers took, up to
the last look at them. The model is a random CLIP, its tower of images two layers of a ViT/32 at a width of 192. Chunks
have the usual 2,048 items (--quick: 128), so that two workers share 5,000 images as 2,048 and 2,952. Workers have the
niceness of this process, where Ray gives them 15 more: their machine is taken to be theirs.

    OMP_NUM_THREADS=1 python benchmarks/cluster.py [--quick] [--repeats N] [--json]
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ |= {"RAY_worker_niceness": "0"}  # Its own spelling.

import numpy as np
import ray
from benchmarks.common import Timing, options, report
from benchmarks.embed import model
from PIL import Image
from ray.cluster_utils import Cluster

import subtext as st
from subtext.retrieval import build
from subtext.retrieval.stores.item import SIDES
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Writer

SIZE = (160, 120)
MEMORY = 2 * 10**8
"""Bytes of a node for what its workers exchange."""


def archive(folder: Path, count: int) -> None:
    """Images with a text each, from a fixed seed."""
    rng, rows = np.random.default_rng(0), list[str]()
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8))
        coarse.resize(SIZE, Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=88)
        rows.append(json.dumps({"file_name": f"{number}.jpg", "id": f"i{number}", "captions": [f"a {number}"]}))
    (folder / "metadata.jsonl").write_text("\n".join(rows))


def workers() -> dict[int, float]:
    """Process -> seconds of the processor, of the workers of Ray that embed."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_text().startswith("ray::MapWorker"):
                    # Time of the user and of the system, the 14th and 15th field.
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    found[int(folder.name)] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                continue  # It has ended meanwhile.
    return found


@contextmanager
def watched() -> Iterator[dict[int, float]]:
    """Inside the block: what the workers took so far, looked at five times a second."""
    before, found, stop = set(workers()), dict[int, float](), threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            found.update({number: seconds for number, seconds in workers().items() if number not in before})

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def contents(index: Path) -> list[Any]:
    """Ids, keys and vectors of an index."""
    found: list[Any] = []
    with open_store(index).reading() as view:
        for side in SIDES:
            keys = view.keys(side)
            rows = view.rows(side, keys=keys.tolist(), links=True)
            found += [keys.tolist(), sorted(map(str, rows)), view.vectors(side, keys).tobytes()]
    return found


def built(index: Path, data: Path, clip: Path, *, nodes: int, kill: bool) -> dict[str, Any]:
    """Build an index on so many nodes of one processor, none for this process; figures, and the seconds."""
    with ExitStack() as cluster, watched() as processor:
        if nodes:
            started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
            cluster.callback(started.shutdown)
            for _ in range(nodes - 1):
                started.add_node(num_cpus=1, object_store_memory=MEMORY)
            ray.init(address=started.address, log_to_driver=False)
            cluster.callback(ray.shutdown)
        killed, plain = list[int](), Writer.put

        def put(self: Writer, *words: Any, **more: Any) -> Any:
            if kill and not killed:
                # The one that has done most is at work on a chunk.
                killed.append(max(processor, key=lambda number: processor[number]))
                os.kill(killed[0], signal.SIGKILL)
            return plain(self, *words, **more)

        Writer.put = put  # type: ignore[method-assign]
        cluster.callback(setattr, Writer, "put", plain)
        wall, own = time.perf_counter(), time.process_time()
        st.build_index(index, data, model=clip, ray="auto" if nodes else None, quiet=True)
        seconds, own = time.perf_counter() - wall, time.process_time() - own
        return {
            "seconds": round(seconds, 1),
            "own_processor": round(own, 1),
            "workers_processor": [round(each, 1) for each in processor.values()],
            "killed": len(killed),
        }


def main() -> None:
    """Measure and print."""
    asked = options("embedding on a cluster beside one process", repeats=1, quick_repeats=1)
    count = 600 if asked.quick else 5000
    build.CHUNK = 128 if asked.quick else build.CHUNK
    ways = {"one process": (0, False), "one worker": (1, False), "two workers": (2, False), "one killed": (2, True)}
    facts: dict[str, Any] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as place:
        data, clip = Path(place) / "data", Path(place) / "clip"
        data.mkdir()
        archive(data, count)
        model(clip, quick=True, layers=2)
        for turn in range(asked.repeats):
            for way, (nodes, kill) in ways.items():
                index = Path(place) / f"{way} {turn}"
                found = built(index, data, clip, nodes=nodes, kill=kill)
                same = contents(index) == contents(Path(place) / f"one process {turn}")
                facts[way].append({**found, "images_a_second": round(count / found["seconds"], 1), "same": same})
                print(way, facts[way][-1], flush=True)
    same = all(each["same"] for way in ways for each in facts[way])
    timings = {way: Timing([each["seconds"] for each in facts[way]]) for way in ways}
    facts |= {
        "name": "cluster",
        "peer": "one process",
        "size": f"{count:,} JPEGs of {SIZE[0]} x {SIZE[1]} with a text each, chunks of {build.CHUNK:,}",
        "max_difference": 0.0 if same else float("nan"),
        "compared": "ids, keys, links and vectors of the indexes, bit for bit; nan where any differ",
    }
    report(asked, facts, timings["two workers"], timings["one process"])


if __name__ == "__main__":
    main()
