"""`subtext index info` and `verify`: what an index holds, in what state it is, and whether it is whole."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from subtext.errors import counted
from subtext.report.text_table import Cell, size, table
from subtext.search.stores.calibration import STALE
from subtext.search.stores.folder import PENDING, Folder, measured, stores_left
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.opened import is_address
from subtext.search.stores.store import Store, changed_since
from subtext.search.stores.verification import verify as problems_of

MANY = 32
"""Segments beyond which a compaction is advised: each is searched on its own."""
_FILES = ("features", "text_features")
DEAD = 0.2
"""Share of rows of deleted items beyond which it is."""


def info(index: Path | str, *, as_json: bool) -> str:
    """What an index holds, as a table or as JSON.

    Raises IndexError_ when it cannot be read.
    """
    if is_address(index):
        from subtext.api.index.database import info as told

        return told(str(index), as_json=as_json)
    folder = Folder(Path(index))
    manifest = folder.manifest
    with folder.reading() as view:
        counts, recalls, done = view.counts, measured(view.connection), view.jobs()
        rows = {side: view.shelves[side].rows for side in SIDES}
        parts = {side: len(view.shelves[side].segments) for side in SIDES}
        deleted = {side: len(view.shelves[side].deleted) for side in SIDES}
        fields = {side: view.fields(side) for side in SIDES}
    unfinished = [job for job in done if job.finished is None]
    if as_json:
        found: dict[str, Any] = json.loads(manifest.to_json())
        found |= {"counts": counts, "bytes": folder.bytes, "rows": rows, "segments": parts, "deleted": deleted}
        found |= {"fields": fields, "lists": recalls, "jobs": [asdict(job) for job in done], "advice": advice(folder)}
        found |= calibrated(folder)
        return json.dumps(found, indent=2, ensure_ascii=False)
    lines: list[list[Cell]] = [
        ["pictures", f"{counts['images']:,}"],
        ["texts", f"{counts['texts']:,}"],
        ["vectors", shape(manifest)],
        ["size", size(folder.bytes)],
        ["segments", f"{parts['images']} and {parts['texts']}"],
        ["deleted, still on disk", f"{deleted['images']:,} and {deleted['texts']:,}"],
        *pairs_of({f"lists of {side}": _lists(own) for side, own in recalls.items()}),
        *origin(manifest, fields),
        *pairs_of({name.replace("_", " "): str(manifest.data[name]) for name in _FILES if manifest.data.get(name)}),
        *pairs_of(calibrated(folder)),
        ["changes", f"{manifest.generation:,}"],
        ["made", f"{manifest.created} by Subtext {manifest.version}"],
        *pairs_of({f"unfinished {job.verb}": job_told(job) for job in unfinished}),
    ]
    return "\n".join([table(["index", str(index)], lines), *advice(folder)])


def verify(index: Path | str, *, as_json: bool) -> tuple[str, bool]:
    """Whether an index is whole, in words or as JSON, and as a truth value.

    Raises IndexError_ where there is no index.
    """
    if is_address(index):
        from subtext.api.index.database import problems

        found, place = problems(str(index))
    else:
        found, place = problems_of(Path(index)), str(index)
    if as_json:
        answer = {"index": place, "whole": not found, "problems": [asdict(each) for each in found]}
        return json.dumps(answer, indent=2, ensure_ascii=False), not found
    if not found:
        return f"{place}: whole", True
    lines = [f"{place}: {counted(len(found), 'problem')}", *[f"  {each.where}: {each.what}" for each in found]]
    return "\n".join([*lines, "restore a backup (subtext index restore), or build again"]), False


def advice(store: Store) -> list[str]:
    """What the user may do for the index; empty where nothing is worth while."""
    with store.reading() as view:
        loose = {side: view.shelves[side].loose for side in SIDES}
    most = store.manifest.exact_up_to
    why = [f"{n:,} vectors of {side} are all compared at every search" for side, n in loose.items() if n > most]
    why += _on_disk(store) if isinstance(store, Folder) else []
    place = shlex.quote(str(store.path))
    return [f"`subtext index compact {place}` is worth while: {'; '.join(why)}"] if why else []


def _on_disk(folder: Folder) -> list[str]:
    """What lies in a folder that nobody needs."""
    with folder.reading() as view:
        shelves = view.shelves
    why = []
    for side in SIDES:
        shelf = shelves[side]
        dead = sum(int(mask.sum()) for mask in shelf.dead if mask is not None)
        if dead > DEAD * max(1, shelf.rows):
            why.append(f"{dead:,} vectors of deleted {side} are still on the disk")
        if len(shelf.segments) > MANY:
            why.append(f"{side} lie in {len(shelf.segments)} segments")
    left = [place for place in stores_left(folder.path) if not (place / PENDING).is_file()]
    if left and os.access(folder.path, os.W_OK):
        why.append(f"vectors of an earlier model are still there ({', '.join(place.name for place in left)})")
    return why


def calibrated(folder: Store) -> dict[str, str]:
    """By what the index was calibrated, and whether that still holds; empty where it was not."""
    found = folder.calibration()
    if found is None:
        return {}
    with folder.reading() as view:
        most = changed_since(found, view)
    told = f"{found.created}, by {counted(found.data['pictures'], 'picture')} of split {found.data['split']}"
    return {"calibrated": f"{told}; stale: {100 * most:.0f} % came or went since" if most > STALE else told}


def shape(manifest: Manifest) -> str:
    """The vectors of an index: K views and width."""
    images, texts = manifest.views["images"], manifest.views["texts"]
    views = f"{images} x " if images == texts and images > 1 else f"{images} and {texts} x " if images != texts else ""
    return f"{views}{manifest.width}"


def origin(manifest: Manifest, fields: Mapping[Side, Sequence[str]]) -> list[list[Cell]]:
    """What items can be filtered by, and the model and the data that they came from."""
    return [
        ["fields of pictures", ", ".join(fields["images"]) or "-"],
        ["fields of texts", ", ".join(fields["texts"]) or "-"],
        ["run", manifest.run or "-"],
        ["host", manifest.host or "-"],
        ["fingerprint", manifest.fingerprint],
        ["data", str(manifest.data.get("data", "-"))],
        ["split", str(manifest.data.get("split", "-"))],
    ]


def pairs_of(rows: dict[str, str]) -> list[list[Cell]]:
    """Rows of a table."""
    return [[name, value] for name, value in rows.items()]


def _lists(own: dict[str, float | int]) -> str:
    recalls = [f"{value:.3f} for {name.removeprefix('recall_of_')}" for name, value in own.items() if name != "probes"]
    return f"a query looks at {own['probes']}; recall@10 {' and '.join(recalls)}"


def job_told(job: Job) -> str:
    """How far a job got that was cut off."""
    return f"{job.done:,} of {job.total:,} items, begun {job.started}; the same command goes on"
