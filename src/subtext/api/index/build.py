"""`subtext.build_index`, `add_to_index`, `update_index`, `watch_index` and `move_index`: data becomes an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from subtext.api.options import (
    BatchSize,
    Data,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Range,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)

if TYPE_CHECKING:
    from subtext.api.load import Opened, Sources, Work
    from subtext.search.build import Grown
    from subtext.search.stores.item import Side
    from subtext.search.stores.manifest import Manifest
    from subtext.search.stores.store import Store, Writer

IndexArgument = Annotated[str | Path, "Folder of an index, or its address.", Section("Index"), Metavar("INDEX")]
IndexRun = Annotated[str | Path | None, "Folder of the index's run, if it has moved.", Section("Run"), Metavar("RUN")]
NewRun = Annotated[str | Path, "Run whose model embeds.", Section("Index"), Metavar("RUN")]
IndexSplit = Annotated[str, "Split of the data; all for the complete set.", Section("Data")]
KeepMissing = Annotated[bool, "Delete nothing that the data no longer contains.", Section("Index")]


@dataclass(frozen=True, repr=False)
class IndexChange:
    """What became of an index.

    path      the index, a folder or an address without anything secret
    counts    images and texts in the index now
    vectors   their shape, as text; bytes: size on disk
    embedded  items that were new or whose content had changed          unchanged  items that were in the index
    amended   items of which only paths, texts or metadata had changed  deleted    items that the data no longer has
    left_out  items that were deleted before, and stay deleted
    advice    what is worth doing next
    """

    path: str
    verb: str
    counts: Mapping[str, int]
    vectors: str = ""
    bytes: int = 0
    embedded: int = 0
    unchanged: int = 0
    amended: int = 0
    deleted: int = 0
    left_out: int = 0
    run: str = ""
    advice: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "counts": dict(self.counts), "advice": list(self.advice)}

    def __str__(self) -> str:
        import shlex

        from subtext.errors import counted
        from subtext.report.text_table import size

        items = f"{counted(self.counts['images'], 'image')} and {counted(self.counts['texts'], 'text')}"
        if self.verb == "build":
            command = f'subtext search {shlex.quote(self.path)} "words"'
            return f"{self.path}: {items}, vectors of {self.vectors}, {size(self.bytes)}\nnext:\n  {command}"
        if self.verb == "move":
            note = f"{self.path}: {items} now have vectors of {self.run}"
            return f"{note}; clients that have the old index open must reconnect; `subtext index compact` frees space"
        parts = [f"{counted(self.embedded, 'item')} embedded", f"{self.unchanged:,} unchanged"]
        parts += [f"{self.amended:,} with other metadata"] if self.amended else []
        parts += [f"{self.deleted:,} deleted"] if self.deleted else []
        restore = "as they were deleted before (--restore-deleted brings them back)"
        parts += [f"{self.left_out:,} left out, {restore}"] if self.left_out else []
        return "\n".join([f"{self.path}: {', '.join(parts)}", *self.advice])

    def __repr__(self) -> str:
        return f"IndexChange({self.path!r}, {self.verb}, {dict(self.counts)})"


@verb
def build_index(
    index: IndexArgument,
    *,
    run: NewRun,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: IndexSplit = "all",
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> IndexChange:
    """Embed images and texts with a run, and store them in a new search index.

    The data is the run's own unless --data names another. The index records which model made it: queries of another
    model are refused, and so is a model that only scores pairs. Run the command again to resume an interrupted build.

    Raises RequirementError for a model that only scores pairs, and IndexError_ when the location holds something else.
    """
    from subtext.errors import IndexError_
    from subtext.search.stores.store import create_store, require_free

    work = _work(
        run, data, images, features, text_features, split_seed, on_error, split, device, batch_size, workers, quiet
    )
    begun = interrupted_build(index)
    if begun is None:
        require_free(index)
    opened, source = open_source(work)
    if begun is not None and [job.source for job in _unfinished(begun)] != [source]:
        raise IndexError_(f"{begun.path} holds an interrupted build of other data; remove it, or name another location")
    store = create_store(index, new_manifest_of(work, opened, source)) if begun is None else begun
    complete = False
    try:
        with store.writing("build") as writer:
            grown = _grow(writer, opened, work, verb="build", source=source)
            writer.compact_large()
        complete = True
    finally:
        if not complete and begun is None and not sum(store.counts.values()):
            store.remove()  # Nothing was acknowledged: no empty index is left behind.
    return _change(store, "build", grown)


@verb
def add_to_index(
    index: IndexArgument,
    *,
    restore_deleted: Annotated[bool, "Bring back items that were deleted before.", Section("Index")] = False,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: IndexSplit = "all",
    run: IndexRun = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> IndexChange:
    """Add the items of a data set to an index: those that are new, or whose image or text has changed.

    Unchanged items are not embedded again. Without --data an interrupted add or build is resumed.

    Raises IndexError_ when another model made the index, WriterBusy while somebody else writes to it, and
    RequirementError where there is nothing to add.
    """
    from dataclasses import replace

    from subtext.errors import RequirementError
    from subtext.search.stores.store import open_store

    store = open_store(index)
    work = _work(
        run, data, images, features, text_features, split_seed, on_error, split, device, batch_size, workers, quiet
    )
    name = "add"
    if data is None:
        jobs = [job for job in _unfinished(store) if job.source is not None and job.verb in ("build", "add")]
        if not jobs:
            raise RequirementError("an add needs a data set (--data); no interrupted add can be resumed here")
        name, (sources, split) = jobs[-1].verb, _sources_of(jobs[-1].source)
        work = replace(work, sources=sources, split=split)
    work = replace(work, run=_run(work, store.manifest))
    with store.writing("add") as writer:
        opened, source = open_source(work)
        grown = _grow(writer, opened, work, verb=name, source=source, again=restore_deleted)
    return _change(store, "add", grown)


@verb
def update_index(
    index: IndexArgument,
    *,
    keep_missing: KeepMissing = False,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    run: IndexRun = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> IndexChange:
    """Read the data of an index again: embed what is new or changed, and delete what is gone.

    Raises as `add_to_index`, and RequirementError for an index that was made of no data set.
    """
    work = _work(
        run, data, images, features, text_features, split_seed, on_error, "all", device, batch_size, workers, quiet
    )
    return _update(index, work, keep_missing=keep_missing)


@verb
def watch_index(
    index: IndexArgument,
    *,
    interval: Annotated[float, "Seconds between two checks of the data.", Range(0), Section("Index")] = 30.0,
    max_checks: Annotated[
        int | None, "Number of checks. Default: until you stop it.", Range(1), Section("Index")
    ] = None,
    keep_missing: KeepMissing = False,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    run: IndexRun = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
    wait: Callable[[float], None] | None = None,
) -> int:
    """Update an index now, and whenever its data changes, until you stop it.

    Data that cannot be read is reported, and read again at a later check: a data set may be half written. Returns the
    number of checks.

    wait  sleeps for so many seconds; for tests
    """
    import time

    from subtext.errors import DataError
    from subtext.report.progress import say

    work = _work(
        run, data, images, features, text_features, split_seed, on_error, "all", device, batch_size, workers, quiet
    )
    before: dict[str, tuple[int, int]] | None = None
    checks = 0
    while max_checks is None or checks < max_checks:
        if checks:
            (wait or time.sleep)(interval)
        now = _file_states(index)
        if now != before:
            try:
                say(str(_update(index, work, keep_missing=keep_missing)), quiet=quiet)
                before = now
            except DataError as problem:
                say(f"not updated: {problem}")
        checks += 1
    return checks


@verb
def move_index(
    index: IndexArgument,
    *,
    run: NewRun,
    drop_missing: Annotated[bool, "Drop items that are in no data set any more.", Section("Index")] = False,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> IndexChange:
    """Embed all items of an index with another run; the old vectors stay in use until the new ones are complete.

    Run the command again to resume an interrupted move.

    Raises as `add_to_index`, and RequirementError where items are in no data set that the index was made of.
    """
    from dataclasses import replace

    from subtext.errors import RequirementError, counted
    from subtext.search.build import prune
    from subtext.search.stores.item import SIDES
    from subtext.search.stores.store import open_store

    work = _work(
        run, data, images, features, text_features, split_seed, on_error, "all", device, batch_size, workers, quiet
    )
    store = open_store(index)
    with store.writing("move") as writer:
        only: dict[Side, set[str]] = {side: set(writer.ids(side)) for side in SIDES}
        generation = writer.manifest.generation
    new: Store | None = None
    for remembered in _sources(store):
        sources, split = _sources_of(remembered)
        sources = work.sources.over(replace(sources, features=None, text_features=None))
        step = replace(work, sources=sources, split=split)
        opened, source = open_source(step)
        if new is None:
            manifest = new_manifest_of(step, opened, source)
            if manifest.fingerprint == store.manifest.fingerprint:
                raise RequirementError(f"{store.path} has the vectors of this model already")
            root, exact_up_to = store.manifest.root, store.manifest.exact_up_to
            new = store.beside(replace(manifest, root=root, exact_up_to=exact_up_to))
        with new.writing("move") as writer:
            _grow(writer, opened, step, verb="add", source=source, only=only)
    if new is not None:
        with new.writing("move") as writer:
            prune(writer, only)  # What was deleted since an interrupted move began.
    missing = sum(map(len, only.values())) - (0 if new is None else sum(new.counts.values()))
    if new is None or (missing and not drop_missing):
        raise RequirementError(
            f"a move embeds the data of the index again; {counted(missing, 'item')} of {store.path} are in no data set "
            "that it was made of; add them again from one, or drop them (--drop-missing)"
        )
    with new.writing("move") as writer:
        writer.compact_large()
    return _change(store.swap(new, generation=generation), "move", None, run=str(run))


def open_source(work: Work, *, decoded: bool = True) -> tuple[Opened, dict[str, Any]]:
    """The model and the data that items come from, and the source as the journal records it.

    decoded  checks every image first; else one that cannot be decoded is noticed when it is embedded

    Raises RequirementError for a model that only scores pairs.
    """
    from dataclasses import replace

    from subtext.api.load import open_work, remembered
    from subtext.data.features import FeatureInput

    opened = open_work(work, decoded=decoded).indexed("an index")
    assert opened.record is not None
    files = [
        branch.input_spec.file.path
        if isinstance(branch.input_spec, FeatureInput) and branch.input_spec.file is not None
        else None
        for branch in (opened.model.image, opened.model.text)
    ]
    sources = work.sources.over(remembered(opened.record.data))
    sources = replace(sources, features=files[0], text_features=files[1])
    return opened, {**sources.to_json(), "split": work.split}


def new_manifest_of(work: Work, opened: Opened, source: Mapping[str, Any]) -> Manifest:
    """The manifest of a new index; one item of each side is embedded, which shows the shape of the vectors."""
    import numpy as np

    from subtext.evaluation.embedding import embed_items
    from subtext.search.build import new_manifest
    from subtext.search.stores.item import SIDES

    model, pairs = opened.model, opened.pairs
    assert work.run is not None and opened.record is not None
    first = np.zeros(1, dtype=np.int64)
    sides = ((model.image, pairs.images), (model.text, pairs.texts))
    vectors = [embed_items(model, branch, items.take(first), pairs.root, reading=(1, 0)) for branch, items in sides]
    return new_manifest(
        model,
        views={side: own.views for side, own in zip(SIDES, vectors, strict=True)},
        width=vectors[0].width,
        root=pairs.root,
        run=str(work.run.expanduser().resolve()),
        host=opened.record.model,
        source=source,
    )


def interrupted_build(index: str | Path) -> Store | None:
    """The index of an interrupted build; None where there is no index, or a finished one."""
    from subtext.search.stores.store import exists, open_store

    if not exists(index):
        return None
    store = open_store(index)
    return store if any(job.verb == "build" for job in _unfinished(store)) else None


def _work(
    run: str | Path | None,
    data: Any,
    images: Any,
    features: Any,
    text_features: Any,
    split_seed: int | None,
    on_error: Any,
    split: str,
    device: str,
    batch_size: int,
    workers: int,
    quiet: bool,
) -> Work:
    from subtext.api.load import Sources, Work

    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    return Work(None if run is None else Path(run), None, sources, split, device, batch_size, workers, quiet)


def _update(index: str | Path, work: Work, *, keep_missing: bool) -> IndexChange:
    from dataclasses import replace

    from subtext.errors import RequirementError
    from subtext.search.build import Grown, prune
    from subtext.search.stores.store import open_store

    store = open_store(index)
    sources = _sources(store)
    if not sources:
        raise RequirementError(f"{store.path} was made of no data set that could be read again; use add or delete")
    total = Grown()
    keep: dict[Side, set[str]] = {"images": set(), "texts": set()}
    with store.writing("update") as writer:
        for remembered in sources:
            own, split = _sources_of(remembered)
            step = replace(work, run=_run(work, store.manifest), sources=work.sources.over(own), split=split)
            opened, source = open_source(step)
            keep["images"] |= set(opened.pairs.images.ids)
            keep["texts"] |= set(opened.pairs.texts.ids)
            total += _grow(writer, opened, step, verb="update", source=source, exact=len(sources) == 1)
        if not keep_missing:
            total += prune(writer, keep)
    return _change(store, "update", total)


def _grow(
    writer: Writer,
    opened: Opened,
    work: Work,
    *,
    verb: str,
    source: Mapping[str, Any],
    exact: bool = False,
    again: bool = False,
    only: Mapping[Side, set[str]] | None = None,
) -> Grown:
    from subtext.report.progress import meter
    from subtext.search.build import grow

    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as progress:
        return grow(
            writer,
            opened.model,
            pairs,
            verb=verb,
            source=source,
            exact=exact,
            again=again,
            only=only,
            batch_size=work.batch_size,
            workers=work.workers,
            progress=progress,
        )


def _change(store: Store, verb: str, grown: Grown | None, *, run: str = "") -> IndexChange:
    from subtext.api.index.maintain import advice, vector_shape

    with store.reading() as view:
        counts, size = view.counts, view.stats().bytes
    numbers = {} if grown is None else asdict(grown)
    return IndexChange(
        str(store.path),
        verb,
        cast(Mapping[str, int], counts),
        vector_shape(store.manifest),
        size,
        run=run,
        advice=tuple(advice(store)),
        **numbers,
    )


def _unfinished(store: Store) -> list[Any]:
    with store.reading() as view:
        return [job for job in view.jobs() if job.finished is None]


def _sources(store: Store) -> list[Mapping[str, Any]]:
    """The data sets that an index was made of, each once, in order."""
    sources: list[Mapping[str, Any]] = []
    with store.reading() as view:
        for job in view.jobs():
            if job.source is not None and job.source.get("data") and job.source not in sources:
                sources.append(job.source)
    return sources


def _sources_of(source: Mapping[str, Any] | None) -> tuple[Sources, str]:
    from subtext.api.load import Sources

    values = dict(source or {})
    return Sources.from_json(values), cast(str, values.get("split") or "all")


def _run(work: Work, manifest: Manifest) -> Path:
    """The run that embeds: the one that was named, or the index's own."""
    from subtext.errors import RequirementError

    if work.run is not None:
        return work.run
    if not manifest.run or not Path(manifest.run).is_dir():
        raise RequirementError(
            f"this needs the run that made the index; {manifest.run or 'none'} is not there; name it (--run RUN)"
        )
    return Path(manifest.run)


def _file_states(index: str | Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file that an index was made of: what changes when its data changes."""
    from subtext.search.stores.store import open_store

    store = open_store(index)
    paths: list[Path] = []
    for source in _sources(store):
        paths += [Path(source[name]) for name in ("data", "images", "features", "text_features") if source.get(name)]
    store.close()
    states: dict[str, tuple[int, int]] = {}
    for path in dict.fromkeys(paths):
        for file in [path, *(path.rglob("*") if path.is_dir() else [])]:
            try:
                stat = file.stat()
            except OSError:
                continue  # Deleted since it was listed: the next check sees that.
            states[str(file)] = (stat.st_size, stat.st_mtime_ns)
    return states
