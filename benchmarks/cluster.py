"""An index of 2,000 (--quick: 400) made images, built by one process a core and by two workers of Ray on this machine.

Two processes build an index of half of the images each, at the same time; two workers on two nodes build one index of
all: in LanceDB, where they write, and in a folder, where the command writes. Once a worker is killed in its work. All
have built a small index before, so that the start of Ray, and of torch, is not among the seconds of `build`; `start` is
that of the nodes, of the connection and of the small index. Seconds depend on what else the machine does; `processor`
is the time of the processor that all processes of a way took together, and `memory_mb` the most that the command held.
Every index of all images is compared with that of one process: items, links and vectors, bit for bit.

The model is a random CLIP of the shape of ViT-B/32 (--quick: two layers at a width of 192). Workers have the niceness
of this process, where Ray gives them 15 more: their machine is taken to be theirs.

    OMP_NUM_THREADS=1 python -m benchmarks.cluster [--quick] [--repeats N] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"RAY_worker_niceness": "0", "SUBTEXT_CACHE_LIMIT": "0"}  # Each way encodes everything itself.

import numpy as np
import ray
from PIL import Image
from ray.cluster_utils import Cluster

import subtext as st
from benchmarks.common import Timing, options, report
from benchmarks.embed import model
from subtext.retrieval import build, cluster as clusters
from subtext.retrieval.stores.item import SIDES
from subtext.retrieval.stores.registry import open_store

SIZE = (160, 120)
MEMORY = 10**9
"""Bytes of a node for what its workers exchange."""
PROCESSES = 2
SMALL = 8
"""Images of the index that each way builds before."""


def archive(folder: Path, numbers: range) -> None:
    """Images with a text each; each from its own seed."""
    folder.mkdir(parents=True)
    rows = list[str]()
    for number in numbers:
        pixels = np.random.default_rng(number).integers(0, 256, (8, 10, 3), dtype=np.uint8)
        coarse = Image.fromarray(pixels).resize(SIZE, Image.Resampling.BICUBIC)
        coarse.save(folder / f"{number}.jpg", quality=88)
        rows.append(json.dumps({"file_name": f"{number}.jpg", "id": f"i{number}", "captions": [f"a {number}"]}))
    (folder / "metadata.jsonl").write_text("\n".join(rows))


def contents(index: str) -> list[Any]:
    """Items in their order, with their links and vectors; keys count what is derived of texts, too."""
    found: list[Any] = []
    with open_store(index).reading() as view:
        names: dict[int, str] = {}
        for side in SIDES:
            keys = view.keys(side)
            rows = sorted(view.rows(side, keys=keys.tolist(), links=True), key=lambda row: row.key)
            found += [replace(row, key=0, digest=b"", links=()) for row in rows]
            found += [sorted(names[key] for key in row.links) for row in rows if side == "texts"]
            found.append(view.vectors(side, keys).tobytes())
            names = {row.key: row.id for row in rows}
    return found


def processor(number: int) -> float:
    """Seconds of the processor that a process, and those that it has waited for, have taken."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / float(os.sysconf("SC_CLK_TCK"))


def workers() -> list[int]:
    """Processes of Ray that do tasks, or wait for one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_text().startswith(("ray::subtext", "ray::IDLE")):
                    found.append(int(folder.name))
            except OSError:
                continue  # It has ended meanwhile.
    return found


CHILD = """
import os, sys, time, resource
import subtext as st
small, data, clip, index = sys.argv[1:]
st.build_index(f"{index} small", small, model=clip, quiet=True)
print("ready", flush=True)
sys.stdin.readline()
before, wall = time.process_time(), time.perf_counter()
st.build_index(index, data, model=clip, quiet=True)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - wall, time.process_time() - before, peak, flush=True)
"""


def by_processes(place: Path, parts: list[Path], clip: Path, address: str) -> dict[str, Any]:
    """Build an index of each part in a process of its own, all at the same time."""
    start, running = time.perf_counter(), list[Any]()
    for number, part in enumerate(parts):
        words = [sys.executable, "-c", CHILD, place / "small", part, clip, f"{address} {number}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(list(map(str, words)), text=True, **pipes))
    for each in running:
        assert each.stdout.readline() == "ready\n"
    begun = time.perf_counter()
    for each in running:
        each.stdin.write("\n")
        each.stdin.flush()
    figures = [list(map(float, each.stdout.readline().split())) for each in running]
    seconds = time.perf_counter() - begun
    for each in running:
        each.communicate()
    return {
        "seconds": seconds,
        "start": round(begun - start, 1),
        "processor": round(sum(own for _, own, _ in figures), 1),
        "memory_mb": round(max(peak for *_, peak in figures)),
    }


class FatalOnce:
    """Kills the worker that has a part, once."""

    def __init__(self, work: Any, flag: str) -> None:
        self.work, self.flag = work, flag

    def __call__(self, chunk: Any) -> Any:
        """Do the part, or end."""
        import os
        import signal

        if chunk.rows[0] >= 2 * len(chunk.rows) and not os.path.exists(self.flag):  # noqa: PTH110
            os.close(os.open(self.flag, os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work(chunk)


def by_workers(place: Path, clip: Path, address: str, *, kill: bool) -> dict[str, Any]:
    """Build one index of all images on a node for each core."""
    with ExitStack() as stack:
        start = time.perf_counter()
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
        stack.callback(nodes.shutdown)
        for _ in range(PROCESSES - 1):
            nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
        ray.init(address=nodes.address, log_to_driver=False)
        stack.callback(ray.shutdown)
        st.build_index(f"{address} small", place / "small", model=clip, ray="auto", quiet=True)
        begun = time.perf_counter()
        if kill:
            plain, flag = clusters.Cluster.map, f"{place}/killed {len(list(place.iterdir()))}"

            def mapped(self: clusters.Cluster, work: Any, *words: Any, **more: Any) -> Iterator[Any]:
                is_embedding = isinstance(work, build._OnCluster)
                yield from plain(self, FatalOnce(work, flag) if is_embedding else work, *words, **more)

            clusters.Cluster.map = mapped  # type: ignore[method-assign,assignment]
            stack.callback(setattr, clusters.Cluster, "map", plain)
        before = {number: processor(number) for number in workers()}
        Path("/proc/self/clear_refs").write_text("5")  # The most memory is counted anew.
        own = time.process_time()
        st.build_index(address, place / "data", model=clip, ray="auto", quiet=True)
        seconds, own = time.perf_counter() - begun, time.process_time() - own
        used = sum(processor(number) - before.get(number, 0.0) for number in workers())
        return {
            "seconds": seconds,
            "start": round(begun - start, 1),
            "processor": round(own + used, 1),
            "of_the_command": round(own, 1),
            "memory_mb": round(peak()),
        }


def peak() -> float:
    """The most memory of this process since it was counted anew, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """Measure and print."""
    asked = options("an index by the workers of a cluster beside one process a core", repeats=1, quick_repeats=1)
    count = 400 if asked.quick else 2000
    facts: dict[str, Any] = {}
    # Its code travels with it: a worker does not import this script.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        clip, parts = place / "clip", [place / f"part {number}" for number in range(PROCESSES)]
        archive(place / "data", range(count))
        archive(place / "small", range(SMALL))
        for number, part in enumerate(parts):
            archive(part, range(count)[number * count // PROCESSES : (number + 1) * count // PROCESSES])
        model(clip, quick=asked.quick, layers=2 if asked.quick else 12)
        # In a process of its own: this one holds no more than a command that drives workers.
        facts["one process"] = [by_processes(place, [place / "data"], clip, f"lance://{place}/one process")]
        one = f"lance://{place}/one process 0"
        ways = {"lance": False, "folder": False, "one killed": True}
        expected, turns = contents(one), range(asked.repeats)
        for turn in turns:
            found = by_processes(place, parts, clip, f"lance://{place}/processes {turn}")
            facts.setdefault("one process a core", []).append(found)
            print("one process a core", {**found, "seconds": round(found["seconds"], 1)}, flush=True)
            for way, kill in ways.items():
                address = f"{place}/{way} {turn}" if way == "folder" else f"lance://{place}/{way} {turn}"
                found = by_workers(place, clip, address, kill=kill)
                found["same"] = contents(address) == expected
                facts.setdefault(f"two workers, {way}", []).append(found)
                print(f"two workers, {way}", {**found, "seconds": round(found["seconds"], 1)}, flush=True)
    timings = {name: Timing([each["seconds"] for each in found]) for name, found in facts.items()}
    same = all(each.get("same", True) for found in facts.values() for each in found)
    facts |= {
        "name": "cluster",
        "peer": "one process a core",
        "size": f"{count:,} JPEGs of {SIZE[0]} x {SIZE[1]} with a text each, {PROCESSES} cores",
        "max_difference": 0.0 if same else float("nan"),
        "compared": "items, links and vectors of the indexes of all images, bit for bit; nan where any differ",
    }
    report(asked, facts, timings["two workers, lance"], timings["one process a core"])


if __name__ == "__main__":
    main()
