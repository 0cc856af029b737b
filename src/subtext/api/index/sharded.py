"""`subtext index info` and `verify` for an index in shards; both read the folders themselves, and need no Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subtext.api.index.telling import advice, calibrated, origin, pairs_of, shape
from subtext.errors import IndexError_
from subtext.report.text_table import Cell, size, table
from subtext.search.stores.folder import Folder
from subtext.search.stores.item import SIDES
from subtext.search.stores.manifest import SHARDS
from subtext.search.stores.shards.manifest import read_record, read_shards
from subtext.search.stores.shards.store import Sharded
from subtext.search.stores.verification import Problem
from subtext.search.stores.verification import verify as verify_folder


def info(index: Path, *, as_json: bool) -> str:
    """What an index in shards holds, as a table or as JSON. Raises IndexError_ when it cannot be read."""
    listed = read_shards(index, whole=False)
    if not listed.whole:
        return _begun(index, as_json=as_json)
    store = Sharded(index, here=True)
    with store.reading() as view:
        counts, generation = view.counts, view.generation
        fields = {side: view.fields(side) for side in SIDES}
    shards: list[dict[str, Any]] = []
    for shard in listed.shards:
        folder = Folder(index / shard.folder)
        shards.append({"folder": shard.folder, **folder.counts, "bytes": folder.bytes, "advice": advice(folder)})
        folder.close()
    if as_json:
        found: dict[str, Any] = json.loads(listed.manifest.to_json())
        found |= {"index": str(index), "counts": counts, "bytes": store.bytes, "shards": shards, "fields": fields}
        return json.dumps(found | {"generation": generation, **calibrated(store)}, indent=2, ensure_ascii=False)
    each = [own["images"] + own["texts"] for own in shards]
    lines: list[list[Cell]] = [
        ["shards", f"{len(shards):,}, of {min(each):,} to {max(each):,} items"],
        ["pictures", f"{counts['images']:,}"],
        ["texts", f"{counts['texts']:,}"],
        ["vectors", shape(listed.manifest)],
        ["size", size(store.bytes)],
        *origin(listed.manifest, fields),
        *pairs_of(calibrated(store)),
        ["changes", f"{generation:,}"],
        ["made", f"{listed.manifest.created} by Subtext {listed.manifest.version}"],
    ]
    return "\n".join([table(["index", str(index)], lines), *(line for own in shards for line in own["advice"])])


def problems(index: Path) -> list[Problem]:
    """Everything that is wrong with an index in shards: each of them is looked through, every byte."""
    try:
        listed = read_shards(index)
    except IndexError_ as problem:
        return [Problem(SHARDS, str(problem))]
    found = []
    for shard in listed.shards:
        try:
            own = verify_folder(index / shard.folder)
        except IndexError_ as problem:
            own = [Problem("manifest.json", str(problem))]
        found += [Problem(f"{shard.folder}/{each.where}", each.what) for each in own]
        if not own and Folder(index / shard.folder).manifest.fingerprint != listed.manifest.fingerprint:
            found.append(Problem(shard.folder, "has vectors of another model than the others"))
    return found


def _begun(index: Path, *, as_json: bool) -> str:
    """How far a build got that was cut off, or goes on."""
    listed = read_shards(index, whole=False)
    done = sum(read_record(index, shard) is not None for shard in listed.shards)
    if as_json:
        told = {"index": str(index), "whole": False, "shards": len(listed.shards), "done": done}
        return json.dumps({**told, "run": listed.manifest.run, "data": dict(listed.manifest.data)}, indent=2)
    return (
        f"{index}: {done:,} of {len(listed.shards):,} shards are done; `subtext index build` with the same options "
        "goes on with the others"
    )
