"""The shards of a small data set, made in this process as the workers of a cluster make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext.app.indexing import sharding
from subtext.app.indexing.embedder import Embedder
from subtext.app.job import Sources, Work
from subtext.stores.shards.manifest import write_shards

BATCH = 3
"""Items embedded together: as many as make each batch the same in one folder and in four shards, to the last bit."""


def work(runs: Path, name: str = "run", **sources: object) -> Work:
    own = Sources(**{"data": runs / "data", **sources})  # type: ignore[arg-type]
    return Work(run=runs / name, model=None, sources=own, split="all", batch_size=BATCH, workers=0, quiet=True)


def built(
    runs: Path, out: Path, *, name: str = "run", count: int = 4, only: int | None = None, skip: Sequence[int] = ()
) -> sharding.Plan:
    """Shards of the data, or the first of them, without Ray; those that are done already are skipped."""
    plan = sharding.planned(work(runs, name), out, count)
    if not out.exists():
        out.mkdir()
        write_shards(out, plan.listed)
    embedder = Embedder(plan.task)
    for number, share in enumerate(plan.shares[:only]):
        if number not in skip:
            embedder.shard(number, plan.pairs.subset(share.images, share.texts))
    if only is None:
        sharding.finish(out, plan.listed)
    return plan
