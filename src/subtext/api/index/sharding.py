"""`subtext index build --ray`: a large data set is cut into shards, which the workers of a Ray cluster embed."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from subtext.api.index.embedder import Embedder, Task
from subtext.api.index.growth import manifest_of, read_work
from subtext.api.index.telling import shape
from subtext.api.job import Work
from subtext.data.dataset import Dataset
from subtext.errors import IndexError_, RequirementError, counted
from subtext.report.progress import meter
from subtext.report.text_table import size
from subtext.search.stores.folder import require_new
from subtext.search.stores.lock import writer_lock
from subtext.search.stores.opened import is_address
from subtext.search.stores.shards.cluster import AGAIN, Cluster, got, processors, require_ray
from subtext.search.stores.shards.cut import Share, cut
from subtext.search.stores.shards.manifest import (
    FOLDER,
    Shard,
    Shards,
    is_sharded,
    read_record,
    read_shards,
    write_shards,
)

EACH = 4
"""Processors of a worker, where a machine has so many: a model each, and as many threads as processors."""


@dataclass(frozen=True)
class Plan:
    """What is to come into which shard."""

    pairs: Dataset
    shares: Sequence[Share]
    listed: Shards
    task: Task


def build(work: Work, out: Path | str, *, address: str, shards: int) -> str:
    """Embed the split by the run, in so many shards, and write the index; says what is in it.

    address  of a Ray cluster, or "local" for one that is started on this machine

    A build that was cut off goes on: shards that are done are not looked at again. Raises what opening and reading
    raise, RequirementError without Ray, its cluster or the processors asked for, and IndexError_ when `out` holds
    something else.
    """
    if is_address(out):
        raise RequirementError(
            "shards are folders, and this index lies in PostgreSQL; leave --ray out, or name a folder; to embed for a "
            "database on many machines, give each its share of the data (subtext embed, subtext index import)"
        )
    require_ray()
    place = Path(out).expanduser().resolve()
    if not is_sharded(place):
        require_new(place)
    made = planned(work, place, shards)
    with _claimed(place, made.listed) as fresh:
        try:
            _embed(made, place, address, quiet=work.quiet)
        finally:
            if fresh and not _done(place, made.listed):
                # Nothing is done: no empty index is left behind.
                shutil.rmtree(place, ignore_errors=True)
        listed = finish(place, made.listed)
    images, texts = (sum(getattr(shard, side) for shard in listed.shards) for side in ("images", "texts"))
    taken = sum(file.stat().st_size for file in (place / FOLDER).rglob("*") if file.is_file())
    return (
        f"{out}: {counted(images, 'picture')} and {counted(texts, 'text')} in {counted(len(listed.shards), 'shard')}, "
        f"vectors of {shape(listed.manifest)}, {size(taken)}\nnext:\n  subtext search {shlex.quote(str(out))} "
        '"words"'
    )


def planned(work: Work, place: Path, shards: int) -> Plan:
    """What is to come into which shard of the index at `place`, and what its workers are told.

    Pictures are not decoded here, unless bad ones are to be skipped: each worker does that for its own. Raises what
    opening and reading raise, and RequirementError where the data cannot be cut into so many.
    """
    # The machine that begins a build embeds one item, and needs no GPU for it.
    read = read_work(replace(work, device="cpu"), decoded=False)
    pairs = read.opened.pairs
    shares = cut(pairs.links, images=len(pairs.images), texts=len(pairs.texts), count=shards)
    digest = hashlib.blake2b(digest_size=16)
    for share in shares:
        for items, rows in ((pairs.images, share.images), (pairs.texts, share.texts)):
            for row in rows.tolist():
                value = items.values[row]
                told = value if isinstance(value, str) else ""
                digest.update(f"{items.ids[row]}\0{told}\0".encode("utf-8", "surrogatepass"))
        digest.update(b"\1")
    names = [f"{FOLDER}/{number:04d}" for number in range(shards)]
    expected = [Shard(n, len(share.images), len(share.texts)) for n, share in zip(names, shares, strict=True)]
    manifest = manifest_of(work, read)
    task = Task(str(place), manifest.run, read.source, work.device, work.batch_size, work.workers)
    return Plan(pairs, shares, Shards(manifest, tuple(expected), digest.hexdigest(), whole=False), task)


def finish(place: Path, listed: Shards) -> Shards:
    """Name the shards for good, with what is in each, when all of them are done: from then on they are an index."""
    counts = [read_record(place, shard) for shard in listed.shards]
    done = [replace(s, images=own[0], texts=own[1]) for s, own in zip(listed.shards, counts, strict=True) if own]
    whole = replace(listed, shards=tuple(done), whole=True)
    write_shards(place, whole)
    for shard in whole.shards:
        (place / shard.record).unlink(missing_ok=True)
    return whole


@contextmanager
def _claimed(place: Path, listed: Shards) -> Iterator[bool]:
    """The folder of the index, for this build alone; whether it is a new one.

    Raises IndexError_ when it holds an index, or what was begun with other data, another model or other shards.
    """
    fresh = not is_sharded(place)
    place.mkdir(parents=True, exist_ok=True)
    with writer_lock(place, "build"):
        if fresh:
            write_shards(place, listed)
        else:
            begun = read_shards(place, whole=False)
            if begun.whole:
                raise IndexError_(f"{place} is an index in shards already; remove it, or name another folder")
            same = (begun.cut, begun.manifest.fingerprint, len(begun.shards)) == (
                listed.cut,
                listed.manifest.fingerprint,
                len(listed.shards),
            )
            if not same:
                raise IndexError_(
                    f"{place} holds a build that was cut off, of {counted(len(begun.shards), 'shard')} by "
                    f"{begun.manifest.run}, and of other data, another model or another number of shards than these; "
                    "give that one again, or remove the folder"
                )
        yield fresh


def _done(place: Path, listed: Shards) -> list[int]:
    return [number for number, shard in enumerate(listed.shards) if read_record(place, shard) is not None]


def _embed(made: Plan, place: Path, address: str, *, quiet: bool) -> None:
    """Let workers make the shards that are not done; those that are stay as they are."""
    done = set(_done(place, made.listed))
    left = deque(number for number in range(len(made.shares)) if number not in done)
    if not left:
        return
    sizes = [len(share.images) + len(share.texts) for share in made.shares]
    cluster = Cluster(place, address)
    workers: list[Any] = []
    try:
        with meter("embedding", sum(sizes), quiet=quiet) as told:
            finished = sum(sizes[number] for number in done)
            told(finished)
            workers += _workers(cluster.ray, made.task, len(left))
            for number in _made(cluster.ray, workers, made, left, place):
                finished += sizes[number]
                told(finished)
    finally:
        _end(cluster.ray, workers)
        cluster.close()


def _end(ray: Any, workers: Sequence[Any]) -> None:
    """End workers; on a cluster that goes on they would keep their processors."""
    with suppress(ray.exceptions.RayError):
        for worker in workers:
            ray.kill(worker)


def _made(ray: Any, workers: Sequence[Any], made: Plan, left: deque[int], place: Path) -> Iterator[int]:
    """The numbers of shards as they are done: whichever worker is free takes the next."""
    idle, running = list(workers), dict[Any, tuple[Any, int]]()
    while left or running:
        while left and idle:
            number, worker = left.popleft(), idle.pop()
            share = made.shares[number]
            running[worker.shard.remote(number, made.pairs.subset(share.images, share.texts))] = worker, number
        (answer, *_), _ = ray.wait(list(running), num_returns=1)
        worker, number = running.pop(answer)
        got(ray, answer, place)
        idle.append(worker)
        yield number


def _workers(ray: Any, task: Task, shards: int) -> list[Any]:
    """As many workers as the cluster has room for, and shards are left: a GPU each, or some processors.

    Raises RequirementError where the cluster has no processor, or no GPU where one is asked for.
    """
    machines = [count for count in processors(ray) if count]
    graphics = int(ray.cluster_resources().get("GPU", 0)) if task.device != "cpu" else 0
    if not machines or (task.device == "cuda" and not graphics):
        what = "a GPU (--device cuda)" if machines else "processors"
        raise RequirementError(
            f"this needs machines with {what}, and the Ray cluster has none; add one to it (ray start --address ...), "
            "or take --device cpu"
        )
    each = min(EACH, *machines)
    count = min(shards, graphics or sum(own // each for own in machines))
    options: dict[str, Any] = {"num_cpus": 0 if graphics else each, "num_gpus": 1 if graphics else 0}
    made: Callable[..., Any] = (
        ray.remote(Embedder).options(**options, max_restarts=-1, max_task_retries=AGAIN, scheduling_strategy="SPREAD")
    ).remote
    return [made(task) for _ in range(count)]
