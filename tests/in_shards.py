"""The shards of a small data set, made in this process as the workers of a cluster make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext.api.index import sharding
from subtext.api.index.embedder import Embedder
from subtext.api.job import Sources, Work
from subtext.search import Engine, Order, Query
from subtext.search.stores.condition import parse
from subtext.search.stores.shards.manifest import write_shards

BATCH = 3
"""Items embedded together: as many as make each batch the same in one folder and in four shards, to the last bit."""


def work(runs: Path, name: str = "run", **sources: object) -> Work:
    own = Sources(**{"data": runs / "data", **sources})  # type: ignore[arg-type]
    return Work(run=runs / name, model=None, sources=own, split="all", batch_size=BATCH, workers=0, quiet=True)


def given(runs: Path, name: str = "run") -> list[object]:
    """What `subtext index build` is told for an index in one folder that is the same to the last bit."""
    return ["--run", runs / name, "--data", runs / "data", "--quiet", "--batch-size", BATCH]


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


def assert_same_answers(mine: Engine, theirs: Engine, data: Path) -> None:
    """Assert that every kind of question has the same answer from both, to the last bit."""
    picture = data / "blue.png"
    asked: list[tuple[Query, dict[str, object]]] = [
        (Query("a pink square"), {}),
        (Query("a pink square"), {"target": "texts", "top": 30}),
        (Query(image=picture), {"why": True}),
        (Query("red", image=picture, like=["cyan"], unlike=["pink"], without="black"), {}),
        (Query("a green square"), {"where": [parse("split = train"), parse("place < 5")]}),
        (Query("a green square"), {"order": Order(hubs="csls", diversity=0.3)}),
    ]
    for query, more in asked:
        got, wanted = (engine.answer(query, **more) for engine in (mine, theirs))  # type: ignore[arg-type]
        assert got.hits == wanted.hits and got.hits, (query, got.hits, wanted.hits)
        assert got.unit == wanted.unit, (query, got.unit, wanted.unit)
