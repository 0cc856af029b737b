"""`subtext index build`, `add`, `update` and `move`: data sets become items of an index."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from subtext.api.index.telling import advice, shape
from subtext.api.load import Opened, Sources, Work, open_work, remembered
from subtext.data.features import FeatureInput
from subtext.errors import IndexError_, RequirementError, counted
from subtext.evaluation.embedding import embed_items
from subtext.models.model import Branch
from subtext.report.progress import meter
from subtext.report.text_table import size
from subtext.search.growing import Growing, Grown, grow, prune
from subtext.search.making import new_manifest
from subtext.search.stores.folder import Folder
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.opened import (
    beside,
    create_store,
    exists,
    make_lists,
    open_store,
    remove_store,
    require_free,
    swap,
)
from subtext.search.stores.store import Store, StoreWriter


@dataclass(frozen=True)
class Read:
    """A source that was opened: the model and the pairs, and the source as the journal names it."""

    opened: Opened
    source: dict[str, Any]


def build(work: Work, out: Path | str) -> str:
    """Embed the split by the run and write the index; says what is in it. A build that was cut off goes on.

    Raises what opening and reading raise, RequirementError for a model that only scores pairs, and IndexError_ when
    `out` holds something else.
    """
    assert work.run is not None
    known = begun(out)
    if known is None:
        require_free(out)
    read = read_work(work)
    if known is None:
        folder = create_store(out, manifest_of(work, read))
    else:
        folder = known
        if [job.source for job in _unfinished(folder)] != [read.source]:
            raise IndexError_(
                f"{folder.path} holds a build of other data that was cut off; remove it, or name another folder"
            )
    whole = False
    try:
        with folder.writing("build") as writer:
            _grown(writer, read, work, Growing(verb="build"))
            make_lists(writer)
        whole = True
    finally:
        if not whole and known is None and not sum(folder.counts.values()):
            remove_store(folder)  # Nothing was acknowledged: no empty index is left behind.
    counts = folder.counts
    return (
        f"{folder.path}: {counted(counts['images'], 'picture')} and {counted(counts['texts'], 'text')}, vectors of "
        f"{shape(folder.manifest)}, {size(folder.bytes)}\nnext:\n  subtext search {shlex.quote(str(folder.path))} "
        '"words"'
    )


def add(work: Work, index: Path | str, *, again: bool = False) -> str:
    """Embed what is new or has changed in a data set, and put it in; says what became of it.

    Without a data set an add or a build that was cut off goes on. Raises what opening and reading raise, IndexError_
    when another model made the index or somebody else writes to it, RequirementError where there is nothing to add.
    """
    folder = open_store(index)
    verb, sources, split = "add", work.sources, work.split
    if sources.data is None:
        open_jobs = [job for job in _unfinished(folder) if job.source is not None and job.verb in ("build", "add")]
        if not open_jobs:
            raise RequirementError("an add needs a data set; no earlier one was cut off here; say where it is (--data)")
        verb, sources, split = open_jobs[-1].verb, *_of_source(open_jobs[-1].source)
    work = replace(work, run=_run(work, folder.manifest), sources=sources, split=split)
    with folder.writing("add") as writer:
        grown = _grown(writer, read_work(work), work, Growing(verb=verb, again=again))
    return "\n".join([f"{folder.path}: {told(grown)}", *advice(folder)])


def update(work: Work, index: Path | str, *, keep_missing: bool = False) -> str:
    """Read again all that the index was made of: put in what is new or changed, delete what is no longer there.

    keep_missing  deletes nothing

    Raises as `add`; RequirementError for an index that was made of no data set.
    """
    folder = open_store(index)
    sources = _sources(folder)
    if not sources:
        raise RequirementError(f"{folder.path} was made of no data set that could be read again; use add or delete")
    total = Grown()
    keep: dict[Side, set[str]] = {"images": set(), "texts": set()}
    with folder.writing("update") as writer:
        for source in sources:
            own, split = _of_source(source)
            step = replace(work, run=_run(work, folder.manifest), sources=work.sources.over(own), split=split)
            read = read_work(step)
            keep["images"] |= set(read.opened.pairs.images.ids)
            keep["texts"] |= set(read.opened.pairs.texts.ids)
            total += _grown(writer, read, step, Growing(verb="update", exact=len(sources) == 1))
        if not keep_missing:
            total += prune(writer, keep)
    return "\n".join([f"{folder.path}: {told(total)}", *advice(folder)])


def move(work: Work, index: Path | str, *, leave_out: bool = False) -> str:
    """Embed all items by another model beside the vectors that are there, which serve meanwhile; then change over.

    leave_out  items that are in no data set any more are left behind, instead of an error

    One that was cut off goes on. Raises as `add`; RequirementError where items cannot be found in the sources.
    """
    assert work.run is not None
    store = open_store(index)
    with store.writing("move") as writer:
        only: dict[Side, set[str]] = {side: set(writer.ids(side)) for side in SIDES}
        generation = writer.manifest.generation
    new: Store | None = None
    for source in _sources(store):
        own, split = _of_source(source)
        step = replace(work, sources=work.sources.over(replace(own, features=None, text_features=None)), split=split)
        read = read_work(step)
        if new is None:
            made = replace(manifest_of(step, read), root=store.manifest.root, exact_up_to=store.manifest.exact_up_to)
            if made.fingerprint == store.manifest.fingerprint:
                raise RequirementError(f"{store.path} has the vectors of this model already; nothing has to be moved")
            new = beside(store, made)
        with new.writing("move") as writer:
            _grown(writer, read, step, Growing(verb="add", only=only))
    if new is not None:
        with new.writing("move") as writer:
            prune(writer, only)  # What was deleted since a move began that was cut off.
    missing = sum(map(len, only.values())) - (0 if new is None else sum(new.counts.values()))
    if new is None or (missing and not leave_out):
        raise RequirementError(
            f"a move embeds again what the index was made of; {counted(missing, 'item')} of {store.path} can be found "
            "in no data set that it remembers; add them again from one, or leave them behind (--leave-out)"
        )
    with new.writing("move") as writer:
        make_lists(writer)
    counts = swap(store, new, generation=generation).counts
    after = "those who have it open are told to open it again"
    if isinstance(store, Folder):
        after = "servers go on with the old ones until they are opened again; `subtext index compact` removes them"
    items = f"{counted(counts['images'], 'picture')} and {counted(counts['texts'], 'text')}"
    return f"{store.path}: {items} now have vectors of {work.run}; {after}"


def told(grown: Grown) -> str:
    """What became of items, in words."""
    parts = [f"{counted(grown.embedded, 'item')} embedded", f"{grown.unchanged:,} unchanged"]
    parts += [f"{grown.amended:,} with other metadata"] if grown.amended else []
    parts += [f"{grown.deleted:,} deleted"] if grown.deleted else []
    left = f"{grown.left_out:,} left out, as they were deleted before (--again brings them back)"
    return ", ".join([*parts, *([left] if grown.left_out else [])])


def read_work(work: Work, *, decoded: bool = True) -> Read:
    """The model and the data that an index is to be made of.

    decoded  looks at every picture first; else one that cannot be decoded shows when it is embedded

    Raises what opening and reading raise, and RequirementError for a model that only scores pairs.
    """
    opened = open_work(work, decoded=decoded).indexed("an index")
    assert opened.record is not None
    sources = work.sources.over(remembered(opened.record.data))
    sources = replace(sources, features=_file(opened.model.image), text_features=_file(opened.model.text))
    return Read(opened, {**sources.to_json(), "split": work.split})


def manifest_of(work: Work, read: Read) -> Manifest:
    """The manifest of a new index; one item of each side is embedded to know the shape of its vectors."""
    model, pairs = read.opened.model, read.opened.pairs
    assert work.run is not None and read.opened.record is not None
    first = np.zeros(1, dtype=np.int64)
    sides = ((model.image, pairs.images), (model.text, pairs.texts))
    found = [embed_items(model, branch, items.take(first), pairs.root, reading=(1, 0)) for branch, items in sides]
    return new_manifest(
        model,
        views={side: each.views for side, each in zip(SIDES, found, strict=True)},
        width=found[0].width,
        root=pairs.root,
        run=str(work.run.expanduser().resolve()),
        host=read.opened.record.model,
        source=read.source,
    )


def _grown(writer: StoreWriter, read: Read, work: Work, how: Growing) -> Grown:
    pairs = read.opened.pairs
    how = replace(how, source=read.source, batch_size=work.batch_size, workers=work.workers)
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as heard:
        return grow(writer, read.opened.model, pairs, how=how, progress=heard)


def begun(out: Path | str) -> Store | None:
    """The index of a build that was cut off there; None where there is no index, or a finished one."""
    if not exists(out):
        return None
    folder = open_store(out)
    return folder if any(job.verb == "build" for job in _unfinished(folder)) else None


def _unfinished(folder: Store) -> list[Job]:
    with folder.reading() as view:
        return [job for job in view.jobs() if job.finished is None]


def _sources(folder: Store) -> list[Mapping[str, Any]]:
    """What the index was made of, each once, in order."""
    found: list[Mapping[str, Any]] = []
    with folder.reading() as view:
        for job in view.jobs():
            if job.source is not None and job.source.get("data") and job.source not in found:
                found.append(job.source)
    return found


def _of_source(source: Mapping[str, Any] | None) -> tuple[Sources, str]:
    found = dict(source or {})
    return Sources.from_json(found), cast(str, found.get("split") or "all")


def _run(work: Work, manifest: Manifest) -> Path:
    """The run that embeds: the one that was named, or the index's own."""
    if work.run is not None:
        return work.run
    if not manifest.run or not Path(manifest.run).is_dir():
        raise RequirementError(
            f"this needs the run that made the index; {manifest.run or 'none'} is not there; say where it is "
            "(--run RUN)"
        )
    return Path(manifest.run)


def _file(branch: Branch) -> Path | None:
    """The file of features that a branch has read: given, remembered by the run, or part of the data set."""
    return (
        branch.input_spec.file.path
        if isinstance(branch.input_spec, FeatureInput) and branch.input_spec.file is not None
        else None
    )
