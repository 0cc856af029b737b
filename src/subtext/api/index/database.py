"""`subtext index info`, `verify`, `compact` and `migrate` for an index in PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from subtext.api.index.telling import advice, calibrated, job_told, origin, pairs_of, shape
from subtext.errors import counted
from subtext.report.text_table import Cell, size, table
from subtext.search.stores.item import SIDES
from subtext.search.stores.opened import database
from subtext.search.stores.verification import Problem


def info(address: str, *, as_json: bool) -> str:
    """What an index holds, as a table or as JSON. Raises IndexError_ when it cannot be read."""
    store = database().Database(address)
    manifest = store.manifest
    with store.reading() as view:
        counts, done = view.counts, view.jobs()
        graphs = {side: view.shelves[side].graph for side in SIDES}
        later = {side: view.shelves[side].loose for side in SIDES if graphs[side]}
        fields = {side: view.fields(side) for side in SIDES}
        server = store.server()
    if as_json:
        found: dict[str, Any] = json.loads(manifest.to_json())
        found |= {"index": store.path, "counts": counts, "bytes": store.bytes, "graphs": graphs, "server": server}
        found["after_the_graph"] = later
        found |= {"fields": fields, "jobs": [asdict(job) for job in done], "advice": advice(store), **calibrated(store)}
        return json.dumps(found, indent=2, ensure_ascii=False)
    lines: list[list[Cell]] = [
        ["pictures", f"{counts['images']:,}"],
        ["texts", f"{counts['texts']:,}"],
        ["vectors", shape(manifest)],
        ["size", size(store.bytes)],
        [
            "graphs",
            " and ".join(f"of {side}, {later[side]:,} vectors after it" for side in later)
            or "none: every vector is compared",
        ],
        *origin(manifest, fields),
        *pairs_of(calibrated(store)),
        ["changes", f"{manifest.generation:,}"],
        ["made", f"{manifest.created} by Subtext {manifest.version}"],
        *pairs_of(server),
        *pairs_of({f"unfinished {job.verb}": job_told(job) for job in done if job.finished is None}),
    ]
    return "\n".join([table(["index", store.path], lines), *advice(store)])


def problems(address: str) -> tuple[list[Problem], str]:
    """Everything that is wrong with an index, and its address without anything secret."""
    store = database().Database(address)
    from subtext.search.stores.postgres.verification import verify

    return verify(store), store.path


def compact(address: str) -> str:
    """Make graphs where a side is large, and give deleted rows' space back; says what was done."""
    store = database().Database(address)
    from subtext.search.stores.postgres.compaction import compact as compacted

    before = store.bytes
    with store.writing("compact") as writer:
        done = compacted(writer)
    told = [f"{store.path}: {size(before)} are now {size(store.bytes)}; rows of deleted items are overwritten"]
    told += [f"a graph of {side} was made" for side in done.made]
    told += [f"the graph of {side} was removed: so few are compared one by one" for side in done.removed]
    return "\n".join(told)


def migrate(address: str) -> str:
    """Lead an index of an earlier Subtext to this one's layout; says from where."""
    before, now = database().migrate(address)
    store = database().Database(address)
    steps = counted(now - before, "step")
    return (
        f"{store.path}: layout {now}; {steps} from {before}" if before < now else f"{store.path}: layout {now} already"
    )
