"""`subtext.build_index`, `add_to_index`, `update_index`, `watch_index`, `move_index`: data becomes an index.

`subtext.import_index` makes one of vectors that were computed elsewhere, with the ids of their items.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, cast

from subtext.api.index.maintain import (
    IndexReport,
    advice,
    items_counted,
    names_learnt,
    names_of,
    recorded_sources,
    vector_shape,
)
from subtext.api.load import (
    EvaluationSubject,
    LoadedRun,
    ModelSource,
    cache_shown,
    choose_device,
    open_subject,
    read_data_of_run,
    require_features,
    with_features,
)
from subtext.api.options import (
    DEFAULTS,
    AnyPath,
    DataOptions,
    IndexArgument,
    IndexData,
    IndexPretrained,
    IndexRun,
    ModelOptions,
    OnProgress,
    OptionalRun,
    Pretrained,
    TextPrompt,
)
from subtext.data.addresses import as_path, is_address, is_https, joined_path
from subtext.data.config import DataConfig
from subtext.data.objects import Arrays, Rows
from subtext.errors import (
    ArgumentError,
    DataError,
    OutputError,
    RequirementError,
    SearchIndexError,
    Setting,
    StoreError,
    SubtextError,
)
from subtext.report.progress import each_once, meter, say, with_progress
from subtext.report.text_table import Report
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.settings import Interval, Metavar, OptionGroup, command
from subtext.text_helpers import counted, listed, size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from subtext.api.embed import EmbeddedDataset
    from subtext.data.changes import Changes
    from subtext.data.config import Verify
    from subtext.data.dataset import Dataset, RowIssue
    from subtext.data.unchanged import Unchanged
    from subtext.evaluation.compare import Compared
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model
    from subtext.retrieval.build import WriteCounts
    from subtext.retrieval.cluster import Cluster
    from subtext.retrieval.image_stream import First, ImageStream, Target
    from subtext.retrieval.manifest import EncoderRecord, Manifest
    from subtext.retrieval.sentences import SentenceVectors
    from subtext.retrieval.stores.item import Side, StoredRow
    from subtext.retrieval.stores.store import Store, Writer


IndexSplit = Annotated[str, "Split of the data; all: the complete data set.", OptionGroup("Data")]
TextEncoder = Annotated[
    str | Path | None,
    "Sentence encoder that compares texts with texts: starter, a folder, or none. Default: starter where it is "
    "installed and there are texts.",
    Metavar("NAME_OR_FOLDER"),
    OptionGroup("Index"),
]
NumbersOfVectors = Annotated[
    Literal["float32", "float16"] | None,
    "Numbers of the stored vectors: float16 takes half the disk. Default: float32.",
    OptionGroup("Index"),
]
RecordedData = Annotated[
    "str | Path | Dataset | Rows | None", "Data set: a file or folder. Default: that of the index.", OptionGroup("Data")
]
KeepMissing = Annotated[bool, "Do not delete items that are missing from the data.", OptionGroup("Index")]
AllowDeleting = Annotated[
    int | None,
    "Delete up to so many missing items; an image and its text are two. Default: 9, or a tenth of the index if that is "
    "more.",
    Interval(0),
    Metavar("NUMBER"),
    OptionGroup("Index"),
]
ChangesFile = Annotated[
    "str | Path | Rows | None",
    'Read changes instead of the data: JSON lines of changed rows and of {"id": ..., "deleted": true}; - for standard '
    "input.",
    Metavar("FILE"),
    OptionGroup("Data"),
]
VerifyFiles = Annotated[
    bool, "Read all image files again, not only those with another size or time.", OptionGroup("Index")
]


@dataclass(frozen=True, repr=False)
class IndexChange(Report):
    """The changes of an index.

    Attributes:
        path: The index: a folder, or an address without password.
        verb: "build", "add", "update" or "move".
        counts: Images and texts in the index now.
        vectors: Their shape, as text.
        bytes: Size on disk.
        embedded: Items that were new or had changed content.
        unchanged: Items that were in the index.
        amended: Items with changed paths, texts or metadata only.
        deleted: Items missing from the data.
        left_out: Items that were deleted before and stay deleted.
        unread: Ids of images that the data names and that could not be read: they stay as they were.
        unusable: Rows and images of the data that cannot be used and are no items, as with `on_error` "skip".
        withheld: Items missing from data of which some rows could not be read: they stay, as they may be those rows.
        unknown: Of changes: ids to delete that the index does not have.
        problems: Of changes: a sentence for each line that was left out, with its number.
        renamed: Items with new names and known content: they keep their vectors.
        run: Of a move: the new model.
        advice: Recommended next step.
        compared: Of a move: the comparison that allowed it, as a table.
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
    renamed: int = 0
    unread: tuple[str, ...] = ()
    unusable: int = 0
    withheld: int = 0
    unknown: int = 0
    problems: tuple[str, ...] = ()
    run: str = ""
    advice: tuple[str, ...] = ()
    compared: str = ""

    def _lines(self) -> list[str]:
        items = items_counted(self.counts)
        of_data = "1 row or image" if self.unusable == 1 else f"{self.unusable:,} rows or images"
        of_data = counted(self.unusable, "line") if self.problems else of_data
        unusable = [f"{of_data} that cannot be used left out"] if self.unusable else []
        if self.verb == "build":
            command = f'subtext search {shlex.quote(self.path)} "words"'
            built = [f"{self.path}: {items}", f"vectors of {self.vectors}", size(self.bytes), *unusable]
            return [", ".join(built), "next:", f"  {command}"]
        if self.verb == "move":
            note = f"{self.path}: {items} now have vectors of {self.run}"
            note += "; clients that have the old index open must reconnect; `subtext index compact` frees space"
            return [*filter(None, [self.compared]), note]
        parts = [f"{counted(self.embedded, 'item')} embedded", f"{self.unchanged:,} unchanged"]
        parts += [f"{self.amended:,} with other metadata"] if self.amended else []
        parts += [f"{self.renamed:,} renamed"] if self.renamed else []
        parts += [f"{self.deleted:,} deleted"] if self.deleted else []
        restore = "as they were deleted before (`subtext index add --data DATA --restore-deleted` brings them back)"
        parts += [f"{self.left_out:,} left out, {restore}"] if self.left_out else []
        unread = f"{len(self.unread):,} could not be read and {_stay(len(self.unread))} as before"
        parts += [f"{unread} ({listed(self.unread)})"] if self.unread else []
        allow = f"`subtext index update {shlex.quote(self.path)} --allow-deleting {self.withheld}` deletes them"
        missing = (
            f"{self.withheld:,} missing from data with unreadable rows {_stay(self.withheld)}, as they may be these"
        )
        parts += [f"{missing} ({allow})"] if self.withheld else []
        parts += [f"{counted(self.unknown, 'id')} to delete not in the index"] if self.unknown else []
        return [f"{self.path}: {', '.join([*parts, *unusable])}", *self.advice]


def _stay(number: int) -> str:
    return "stays" if number == 1 else "stay"


@command(defaults=DEFAULTS)
@with_progress
def build_index(
    index: IndexArgument,
    data: IndexData = None,
    *,
    run: OptionalRun = None,
    model: Pretrained = None,
    text_prompt: TextPrompt = None,
    split: IndexSplit = "all",
    ray: Annotated[
        str | None,
        "Embed on a Ray cluster. HOST:PORT: its address; auto: a cluster that runs here; local: start one here.",
        OptionGroup("Index"),
        Metavar("ADDRESS"),
    ] = None,
    text_encoder: TextEncoder = None,
    vectors: NumbersOfVectors = None,
    cache: Annotated[
        str | Path | None,
        "Folder of cached outputs of frozen encoders, as of `train --cache`. Default: the user's cache.",
        Metavar("FOLDER"),
        OptionGroup("Index"),
    ] = None,
    progress: OnProgress = None,
    **options: Unpack[ModelOptions],
) -> IndexChange:
    """Embed images and texts with a run or a pretrained model, and store them in a new search index.

    Without DATA, the data set of the run is used. The index records its model and refuses queries of other models. The
    model must give each item a vector of its own. Models that only score pairs are refused. Run the command again to
    resume an interrupted build.

    Args:
        index: Folder of an index, or its address.
        data: Data set: a file or folder. Default: that of the run, or of an interrupted add.
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter, a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        split: Split of the data; all: the complete data set.
        ray: Embed on a Ray cluster. HOST:PORT: its address; auto: a cluster that runs here; local: start one here.
        text_encoder: Sentence encoder that compares a query with texts, whatever the model: starter, the folder of a
            sentence encoder, or none. Default: starter where it is installed.
        vectors: Numbers of the stored vectors: float32 or float16. Scores are computed in float32 of either.
        cache: Folder of cached outputs of frozen encoders, as `train` takes one; None for the user's cache.
        progress: Called with the numbers of finished items and of all, in each part of the work: checking images,
            embedding.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        Number of items embedded, and the shape and size of the index.

    Raises:
        RequirementError: If the model only scores pairs, or if Ray has no cluster at this address.
        SearchIndexError: If the path INDEX is in use, but not by an interrupted build.
        ArgumentError: For `ray` together with `cache`.
    """
    from subtext.retrieval.cluster import Cluster

    if ray is not None and cache is not None:
        raise ArgumentError("a cluster (ray) runs the encoders on its own machines; it got cache, too; leave one out")
    work = EvaluationSubject.of(ModelSource.of(run, model, text_prompt), split, data=data, **options)
    with ExitStack() as stack:
        cluster = None if ray is None else stack.enter_context(Cluster(ray))
        return _build(index, work, cluster, text_encoder=text_encoder, numbers=vectors, cache=cache)


def _require_numbers(store: Store, numbers: str | None) -> None:
    """Raise SearchIndexError where an index has vectors of other numbers than are asked."""
    if numbers not in (None, store.manifest.numbers):
        raise SearchIndexError(
            f"{store.path} has vectors of {store.manifest.numbers}, which stay as they are; it got {numbers}; build or "
            "import into a new index, or leave that out"
        )


def _build(
    index: str | Path,
    work: EvaluationSubject,
    cluster: Cluster | None,
    *,
    text_encoder: str | Path | None,
    numbers: str | None,
    cache: str | Path | None,
) -> IndexChange:
    """Build an index, in this process or on a cluster."""
    from subtext.retrieval.build import require_readable
    from subtext.retrieval.image_stream import Target
    from subtext.retrieval.journal import unfinished
    from subtext.retrieval.stores.registry import create_store, store_class

    interrupted = interrupted_build(index)
    if interrupted is None:
        store_class(index).require_free(str(index))
    else:
        work = replace(work, sources=_as_first_read(interrupted, work.sources))
        if cluster is not None:
            # Before the cluster checks all images: nobody else builds it.
            with interrupted.writing("build") as writer:
                if (parts := writer.parts) is not None:
                    parts.require_free(partial(say, quiet=work.quiet))
    made: Store | None = interrupted

    def require_resumable(source: Mapping[str, Any]) -> None:
        """Require that an interrupted build is of the same data, encoder and numbers."""
        if interrupted is None:
            return
        if not all(_is_read_alike(job.source, source) for job in unfinished(interrupted)):
            raise SearchIndexError(
                f"{interrupted.path} holds an interrupted build of other data; remove it, or name another location"
            )
        require_same_encoder(interrupted, text_encoder)
        _require_numbers(interrupted, numbers)

    def create(opened: LoadedRun, source: Mapping[str, Any], texts: Sequence[object], *, quiet: bool) -> Store:
        """Create the index; its encoder does not depend on the texts, but a note on it does."""
        encoder = _encoder_of(index, text_encoder, texts, opened.model, quiet=quiet)
        manifest = new_manifest_of(work, opened, source, encoder=encoder)
        return create_store(index, replace(manifest, numbers=numbers or manifest.numbers))

    def begin(first: First, source: dict[str, Any]) -> Target:
        nonlocal made
        require_resumable(source)
        if made is None:
            made = create(_one_pair(first), source, (), quiet=True)
        writer = streaming.enter_context(made.writing("build"))
        if stream is not None:
            streaming.callback(stream.flush)
        return Target(writer, writer.begin("build", source=source))

    complete = False
    try:
        with ExitStack() as streaming:
            stream = None if cluster is not None else _stream_into(work, begin, cache=cache)
            opened, source = open_source(work, interrupted, cluster=cluster, stream=stream)
        if cluster is not None:
            require_readable(opened.model)
        require_resumable(source)
        if made is None:
            made = create(opened, source, opened.pairs.texts.values, quiet=work.quiet)
        elif interrupted is None:
            _encoder_of(index, text_encoder, opened.pairs.texts.values, opened.model, quiet=work.quiet)
        store = made
        with store.writing("build") as writer:
            written = _ingest(
                writer, opened, work, verb="build", source=source, cluster=cluster, cache=cache, taken=stream
            )
            if cluster is not None:
                cluster.close()
            for job in unfinished(store):
                writer.finish(job.number)  # That of an attempt which took broken images otherwise.
            writer.compact_large()
            refresh_spaces(writer, quiet=work.quiet)
            refresh_ranker(writer, opened, work.sources, quiet=work.quiet)
            writer.compact_large()
        complete = True
    finally:
        if not complete and interrupted is None and made is not None:
            with suppress(SubtextError):  # What went wrong is said, and not that its storage is gone as well.
                if made.is_bare:
                    made.remove()  # Nothing was acknowledged: no empty index is left behind.
                else:
                    kept = f"{made.path} keeps what was embedded; the same command goes on with it"
                    say(f"note: {kept}", quiet=work.quiet)
    return _change(store, "build", written, problems=opened.pairs.problems)


@command(defaults=DEFAULTS)
def add_to_index(
    index: IndexArgument,
    data: IndexData = None,
    *,
    restore_deleted: Annotated[bool, "Bring back items that were deleted before.", OptionGroup("Index")] = False,
    split: IndexSplit = "all",
    run: IndexRun = None,
    model: IndexPretrained = None,
    **options: Unpack[ModelOptions],
) -> IndexChange:
    """Add the new items of a data set to an index, and update items with a changed image or text.

    Unchanged items are not embedded again. Without DATA, this resumes an interrupted add or build.

    Args:
        index: Folder of an index, or its address.
        data: Data set: a file or folder. Default: that of the run, or of an interrupted add.
        restore_deleted: Bring back items that were deleted before.
        split: Split of the data; all: the complete data set.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        Number of items embedded, changed, unchanged and left out.

    Raises:
        SearchIndexError: If another model made the index.
        IndexLockedError: While another process writes to it.
        RequirementError: If there is nothing to add.
        DataError: If ids of the data name other files in the index.
    """
    from subtext.retrieval.build import conflicting_ids, restamp
    from subtext.retrieval.journal import unfinished
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    work = EvaluationSubject.of(_source(store, run, model), split, data=data, **options)
    name, sources = "add", work.sources
    if sources.data is None:
        jobs = [
            (job.verb, job.source)
            for job in unfinished(store)
            if job.source and job.source.get("data") and job.verb in ("build", "add")
        ]
        if not jobs:
            raise RequirementError(
                "an add needs a data set (", Setting("data"), "); no interrupted add can be resumed here"
            )
        name, recorded = jobs[-1]
        sources, split = DataConfig.from_json(recorded), recorded.get("split") or "all"
    work = replace(work, sources=_as_first_read(store, sources), split=split)
    with store.writing("add") as writer:
        known = None if restore_deleted else _known(store)
        if known is not None and any(job.verb in ("build", "add") for job in unfinished(store)):
            known.passes = False  # Images may be there, and their texts not yet.
        opened, source = open_source(work, store, known)
        if taken := conflicting_ids(writer, opened.pairs):
            item, before, after = taken[0]
            raise DataError(
                f"an add needs ids that name no other file in the index; {counted(len(taken), 'image')} of "
                f"{sources.name} would replace another, first '{item}': {before} by {after}; index the folder above "
                "both, or give the files other ids (a column `id`); an update from a new place is index update --data"
            )
        written = _ingest(writer, opened, work, verb=name, source=source, again=restore_deleted)
        if known is not None:
            restamp(writer, known.touched)
            written = replace(written, unchanged=written.unchanged + known.finish())
        refresh_spaces(writer, quiet=work.quiet)
        refresh_ranker(writer, opened, work.sources, quiet=work.quiet)
    return _change(store, "add", written, problems=opened.pairs.problems)


@command(defaults=DEFAULTS)
def update_index(
    index: IndexArgument,
    *,
    data: RecordedData = None,
    changes: ChangesFile = None,
    keep_missing: KeepMissing = False,
    allow_deleting: AllowDeleting = None,
    verify_files: VerifyFiles = False,
    run: IndexRun = None,
    model: IndexPretrained = None,
    **options: Unpack[ModelOptions],
) -> IndexChange:
    """Read the data of an index again; embed new and changed items, and delete missing items.

    If the index has several data sets, all of them are read. Another DATA takes the place of a single one.

    A folder stays what it was when it was indexed: a table that is put into a folder of photos does not take their
    place. If 10 items or more, and over a tenth of the index, are missing from the data, nothing is changed: a table
    may be half written, or a disk not mounted. The message names the number to allow.

    With `changes`, the data is not read: the index follows the lines, and the work grows with their number. A line is
    an object. It has the columns of the data set's table, and says all of its image: texts that it does not name are
    deleted; or it is {"id": ..., "deleted": true}. Of two lines about one id the last one counts. Lines that cannot be
    used are named, and the others are done; with `on_error` "raise", nothing is.

    Args:
        index: Folder of an index, or its address.
        data: Data set: a file or folder. Default: that of the index.
        changes: A file of JSON lines; "-" for standard input; or rows that are mappings.
        keep_missing: Do not delete items that are missing from the data.
        allow_deleting: Delete up to so many missing items; an image and its text are two. Default: 9, or a tenth of the
            index if that is more.
        verify_files: Read all image files again, not only those with another size or time.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        Number of items embedded, changed, unchanged and deleted.

    Raises:
        SearchIndexError: Like `add_to_index`.
        IndexLockedError: Like `add_to_index`.
        RequirementError: For an index without a data set, and for DATA that is none of several.
        DataError: If a data set of the index is not there, or more is missing from it than may be deleted; and if no
            line of the changes can be used.
        ArgumentError: For `changes` together with `data` or `keep_missing`.
    """
    if changes is not None:
        if data is not None or keep_missing:
            raise ArgumentError(
                "changes take the place of the data; it got ",
                Setting("data" if data is not None else "keep_missing"),
                ", too; leave one of them out",
                field="changes",
            )
        work = _work_on(index, run, model, **options)
        return _update_by(index, work, changes, allowed=allow_deleting, verify_files=verify_files)
    work = _work_on(index, run, model, data=data, **options)
    return _update(index, work, keep_missing=keep_missing, allowed=allow_deleting, verify_files=verify_files)


@command(defaults=DEFAULTS)
def watch_index(
    index: IndexArgument,
    *,
    data: RecordedData = None,
    interval: Annotated[float, "Seconds between two checks of the data.", Interval(0), OptionGroup("Index")] = 30.0,
    max_checks: Annotated[
        int | None, "Number of checks. Default: until you stop it.", Interval(1), OptionGroup("Index")
    ] = None,
    keep_missing: KeepMissing = False,
    run: IndexRun = None,
    model: IndexPretrained = None,
    wait: Callable[[float], None] | None = None,
    **options: Unpack[ModelOptions],
) -> int:
    """Update an index now and after each change of its data, until you stop the command.

    Items that cannot be read stay as they are; the others are updated. If nothing can be updated, because the data
    cannot be read, too much of it is missing (see `update`), or somebody else writes to the index, this is reported
    once, and later checks try again.

    Args:
        index: Folder of an index, or its address.
        data: Data set: a file or folder. Default: that of the index.
        interval: Seconds between two checks of the data; 0 or more.
        max_checks: Number of checks. Default: until you stop it; 1 or more.
        keep_missing: Do not delete items that are missing from the data.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        wait: Sleeps for N seconds; for tests.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        The number of checks.
    """
    quiet = bool(options.get("quiet"))
    options["on_error"] = options.get("on_error") or "skip"
    before: bytes | None = None
    checks, tried, advised, opened, said, unread = 0, 0, False, False, set[str](), tuple[str, ...]()
    while max_checks is None or checks < max_checks:
        if checks:
            (wait or time.sleep)(interval)
        checks += 1
        try:
            now = _file_states(index)
            if now == before and (not tried or checks - tried < PATIENCE):
                continue
            # Opened each time: the index may have been moved to another model.
            work, opened = _work_on(index, run, model, data=data, **options), True
            with each_once(said) as notes:
                change = _update(index, work, keep_missing=keep_missing)
            # Advice stays true until it is taken, and what cannot be read until it can: once is enough.
            shown = replace(change, advice=() if advised else change.advice)
            say(str(replace(shown, unread=()) if change.unread == unread else shown), quiet=quiet)
            advised, unread, said = bool(change.advice), change.unread, notes
            before, tried = now, checks if unread or change.withheld else 0
        except IndexLockedError as problem:
            with each_once(said) as notes:
                say(f"not updated yet: {problem}")
            said |= notes
        except (DataError, StoreError, OutputError, SearchIndexError) as problem:
            if not opened and not isinstance(problem, DataError | StoreError):
                raise
            with each_once(said) as notes:
                say(f"not updated: {problem}")
            said |= notes
            before, tried = now if opened else None, checks
    return checks


PATIENCE = 10
"""Checks after which a watch tries again what failed, although no file has changed: a disk may have been away."""


@command(defaults=DEFAULTS)
def move_index(
    index: IndexArgument,
    *,
    data: RecordedData = None,
    run: OptionalRun = None,
    model: Pretrained = None,
    text_prompt: TextPrompt = None,
    drop_missing: Annotated[bool, "Drop items that are missing from all data sets.", OptionGroup("Index")] = False,
    even_if_worse: Annotated[
        bool, "Move without a comparison on held-out pairs, or against its result.", OptionGroup("Index")
    ] = False,
    **options: Unpack[ModelOptions],
) -> IndexChange:
    """Embed all items of an index with another model; searches use the old vectors until the new ones are complete.

    The index is moved only if the new model is not worse on held-out pairs: images of the index that neither model was
    trained on (nor selected by, where ten or more are left), with their texts. The sum of recall@1 and recall@10 in
    both directions must not be lower, and none of the four surely lower (see `compare`).

    Run the command again to resume an interrupted move.

    Raises the errors of `update_index`.

    Args:
        index: Folder of an index, or its address.
        data: Data set: a file or folder. Default: that of the index.
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter, a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        drop_missing: Drop items that are missing from all data sets.
        even_if_worse: Move without a comparison on held-out pairs, or against its result.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        The new model, and the comparison that allowed the move.

    Raises:
        RequirementError: If items are missing from all data sets of the index, for a model that is worse, and without
            held-out pairs.
    """
    work = EvaluationSubject.of(ModelSource.of(run, model, text_prompt), "all", data=data, **options)
    from subtext.retrieval.build import prune
    from subtext.retrieval.lists import copy_lists
    from subtext.retrieval.machine_texts import copy_machine_texts
    from subtext.retrieval.stores.item import SIDES
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    held_out = [] if even_if_worse else _held_out(store, work)
    with store.writing("move") as writer:
        only: dict[Side, set[str]] = {side: set(writer.ids(side)) for side in SIDES}
        since = writer.manifest.revision
    new: Store | None = None
    for sources, split in _steps(store, work, features=False)[0]:
        step = replace(work, sources=sources, split=split)
        opened, source = open_source(step)
        if new is None:
            manifest = new_manifest_of(step, opened, source)
            if manifest.fingerprint == store.manifest.fingerprint:
                raise RequirementError(f"{store.path} has the vectors of this model already")
            encoder = _encoder_after_move(store, opened.model, manifest)
            new = store.create_replacement(replace(manifest.with_settings_of(store.manifest), encoder=encoder))
        with new.writing("move") as writer:
            only = _present(store, only)
            # Also what an earlier attempt of this move saw deleted, and was restored since.
            _ingest(writer, opened, step, verb="add", source=source, only=only, again=True, former=store)
    if new is not None:
        with new.writing("move") as writer:
            only = _present(store, only)
            copy_machine_texts(store, writer, opened.model)
            # What was deleted since an interrupted move began.
            prune(writer, {side: [name for name in writer.ids(side) if name not in only[side]] for side in SIDES})
    missing = sum(map(len, only.values())) - (0 if new is None else sum(new.counts.values()))
    if new is None or (missing and not drop_missing):
        raise RequirementError(
            f"a move embeds the data of the index again; {counted(missing, 'item')} of {store.path} are in no data set "
            "that it was made of; add them again from one, or drop them (",
            Setting("drop_missing"),
            ")",
        )
    with new.writing("move") as writer:
        copy_lists(store, writer)
        writer.compact_large()
        refresh_spaces(writer, quiet=work.quiet)
        refresh_ranker(writer, opened, step.sources, quiet=work.quiet)
        writer.compact_large()
    table = ""
    if not even_if_worse:
        compared = _compare(new, store, held_out)
        table = compared.gains(f"{counted(len(held_out), 'held-out image')}", "before", "after")
        sums = sum(line.difference for line in compared.lines)
        if sums < 0 or any(line.better == "second" for line in compared.lines):
            raise RequirementError(
                f"a move needs a model that is not worse on held-out pairs; {work.model.label} is, and {store.path} "
                "keeps the old one; train longer, or insist: the same command with ",
                Setting("even_if_worse"),
                f" embeds nothing again\n{table}",
            )
    return replace(_change(store.replace_with(new, since=since), "move", None, run=work.model.label), compared=table)


def _held_out(store: Store, work: EvaluationSubject) -> list[str]:
    """Ids of the images with texts that neither model learnt from; without those that selected an epoch, if it can be.

    Raises:
        RequirementError: If there are too few, or nobody can say.
    """
    from subtext.models.checkpoint import load_record
    from subtext.ops import draw

    learnt, selected = set[str](), set[str]()
    advice = "insist (--even-if-worse)"
    for source in (ModelSource.of_index(store.manifest, None, None, index=str(store.path)), work.model):
        if source.run is None:
            continue
        record = load_record(source.run)
        try:
            dataset = read_data_of_run(record, work.sources)
        except (DataError, RequirementError) as problem:
            raise RequirementError(
                f"a move compares both models on pairs that neither was trained on, and the data of {source.run} "
                f"cannot be read ({problem}); put it back, or {advice}"
            ) from problem
        for used, split in ((learnt, record.data.train_split), (selected, record.data.val_split)):
            if split == "all" or split in dataset.counts():
                used |= names_of(dataset.split(split))
    with store.reading() as view:
        items = [item for item in view.items("images", view.keys("images")) if item.own_texts]

    def without(used: set[str]) -> list[str]:
        return [item.id for item in items if used.isdisjoint([item.id, item.path or "", *item.own_texts])]

    images = without(learnt | selected)
    images = images if len(images) >= LEAST else without(learnt)
    if len(images) < LEAST:
        raise RequirementError(
            f"a move compares both models on {LEAST} or more images with texts that neither was trained on; of "
            f"{len(items):,} in {store.path} {len(images)} are left; add such pairs (subtext index add), or {advice}"
        )
    chosen = draw.permutation(len(images), seed=0, epoch=0, purpose="move: held-out images")[:MOST]
    return [images[row] for row in sorted(chosen.tolist())]


def _present(store: Store, names: Mapping[Side, set[str]]) -> dict[Side, set[str]]:
    """Those of the items that have not been deleted meanwhile."""
    with store.reading() as view:
        return {side: set(view.keys_of(side, sorted(ids))) for side, ids in names.items()}


def open_source(
    work: EvaluationSubject,
    store: Store | None = None,
    known: Unchanged | None = None,
    *,
    cluster: Cluster | None = None,
    stream: ImageStream | None = None,
) -> tuple[LoadedRun, dict[str, Any]]:
    """The model and the data that items come from, and the source as the journal records it.

    Args:
        work: Model, data and split.
        store: An index with some of the items: files that have not changed since are not decoded again to check them.
        known: The images of that index: where all splits are read, rows that say what it has are passed over.
        cluster: Decodes the images; None for this process.
        stream: Puts images of stores in while they are read, where all splits are; None for none.

    Returns:
        The model with its data, and the source as plain data.

    Raises:
        RequirementError: If a model only scores pairs.
    """
    from subtext.data.features import FeatureInput
    from subtext.data.unchanged import Unchanged

    if store is not None and known is None:
        known = _known(store)
        known.passes = False
    # A part of a data set without splits of its own is drawn of all its rows.
    passing = known if known is not None and work.split == "all" else Unchanged((), Path(), count=0, verify_files=False)
    verify: Verify = True if known is None else known.is_other
    if cluster is not None:
        from subtext.retrieval.cluster import ImageCheck

        verify = ImageCheck(cluster, verify)
    elif stream is not None and work.split == "all":
        stream.leave_to(verify)
        passing.taker = verify = stream
    opened = open_subject(work, need_pairs=False, verify=verify, unchanged=passing, stream=stream)
    opened = opened.to_indexable("an index")
    files: list[Any] = [
        branch.input_spec.file if isinstance(branch.input_spec, FeatureInput) else None
        for branch in (opened.model.image, opened.model.text)
    ]
    files = [file.path if file is not None and not file.in_memory else file for file in files]
    return opened, _source_of(work, opened.record, opened.pairs.form, files)


def _source_of(
    work: EvaluationSubject, record: Record | None, form: str, files: Sequence[Any] = (None, None)
) -> dict[str, Any]:
    """The source as the journal records it; `files` are those of features of images and of texts."""
    sources = work.sources if record is None else work.sources.over(record.data)
    form = form if isinstance(sources.data, Path) else ""
    sources = replace(sources, features=files[0], text_features=files[1], form=form or None)
    return {**sources.to_json(), "split": work.split}


def _stream_into(
    work: EvaluationSubject,
    begin: Callable[[First, dict[str, Any]], Target],
    *,
    cache: str | Path | None = None,
) -> ImageStream:
    """What puts images of stores into an index while they are read; `begin` gets the source, too."""
    from subtext.data.output_cache import OutputCache
    from subtext.retrieval.image_stream import ImageStream

    return ImageStream(
        lambda first: begin(first, _source_of(work, first.record, first.form)),
        reading=(work.batch_size, work.workers),
        cache=None if cache is None else OutputCache(Path(cache).expanduser()),
        note=lru_cache(partial(say, quiet=work.quiet)),
    )


def _is_read_alike(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Whether two sources differ at most in what is done about rows that cannot be used."""
    return one is not None and {**one, "on_error": other.get("on_error")} == other


def _one_pair(first: First) -> LoadedRun:
    """The model with one image and a text, which show the shape of its vectors."""
    import numpy as np

    from subtext.data.dataset import Dataset, Items

    text = Items(["text"], ["a photo"], np.zeros(1, dtype=np.int64), np.array([""]))
    pairs = Dataset(first.images, text, np.zeros((0, 2), dtype=np.int64), root=first.root)
    return LoadedRun(first.model, pairs, "all", first.record)


def _as_first_read(store: Store, sources: DataConfig) -> DataConfig:
    """Data as an index has it already: what it was read as is not guessed again."""
    if sources.data is None or not isinstance(sources.data, Path):
        return sources
    recorded = (known for known, _ in recorded_sources(store) if _is_same(known.data, sources.data.resolve()))
    return replace(sources, form=next((known.form for known in recorded), None))


def _known(store: Store, *, verify_files: bool = False) -> Unchanged:
    """The images of an index, as hashes."""
    from subtext.data.unchanged import Unchanged

    with store.reading() as view:
        return Unchanged(
            view.known_images(), Path(store.manifest.root), count=view.counts["images"], verify_files=verify_files
        )


def new_manifest_of(
    work: EvaluationSubject, opened: LoadedRun, source: Mapping[str, Any], *, encoder: EncoderRecord | None = None
) -> Manifest:
    """The manifest of a new index; one item of each side is embedded, which shows the shape of the vectors.

    Args:
        work: Model, data and split.
        opened: The model with its data.
        source: Where the items come from, as plain data.
        encoder: The sentence encoder; None for none.

    Returns:
        The manifest.
    """
    import numpy as np

    from subtext.evaluation.embedding import embed_pairs
    from subtext.retrieval.build import new_manifest
    from subtext.retrieval.stores.item import SIDES

    model, pairs, run, pretrained = opened.model, opened.pairs, work.model.run, work.model.recorded()
    first = pairs.subset(*(np.arange(min(1, len(items)), dtype=np.int64) for items in (pairs.images, pairs.texts)))
    vectors = embed_pairs(model, first, batch_size=1, workers=0)
    return new_manifest(
        model,
        views={side: embeddings.views for side, embeddings in zip(SIDES, vectors, strict=True)},
        width=vectors[0].width,
        root=pairs.root,
        run="" if run is None else str(run.expanduser().resolve()),
        model_name=pretrained["name"] if opened.record is None else opened.record.model,
        pretrained=pretrained,
        source=source,
        encoder=encoder,
    )


def _encoder_of(
    index: str | Path, name: str | Path | None, texts: Sequence[object], model: Model | None, *, quiet: bool
) -> EncoderRecord | None:
    """The sentence encoder of a new index, and a note on the choice.

    Raises:
        RequirementError: For an encoder that cannot be opened, and for a store that keeps no vectors of one.
    """
    from subtext.data.languages import foreign_texts
    from subtext.retrieval.sentences import NONE, choose_encoder
    from subtext.retrieval.stores.registry import store_class

    kind, name = store_class(index), None if name is None else str(name)
    if not kind.keeps_spaces:
        if name in (None, NONE):
            say(f"note: sentence encoder: none, since {kind.__name__} keeps no vectors of one", quiet=quiet)
            return None
        raise RequirementError(
            Setting("text_encoder", name),
            f" needs a store that keeps the vectors of a sentence encoder; {kind.__name__} keeps none; leave it out",
        )
    record, why = choose_encoder(name, texts, model)
    foreign = "" if record is None else foreign_texts(texts, record.languages, encoder="sentence encoder")
    if foreign:
        foreign += "; a multilingual encoder is taken by --text-encoder FOLDER"
    for line in filter(None, (why, foreign)):
        say(f"note: {line}", quiet=quiet)
    return record


def require_same_encoder(store: Store, name: str | Path | None) -> None:
    """Require that an index has the sentence encoder that is named.

    Args:
        store: The index.
        name: "starter", a folder, or "none"; None for that of the index.

    Raises:
        SearchIndexError: If it has another, or none.
    """
    record = store.manifest.encoder
    own = "none" if record is None else record.name
    if name is not None and own != (str(Path(name).expanduser().resolve()) if Path(name).is_dir() else str(name)):
        raise SearchIndexError(
            f"{store.path} has the sentence encoder {own}; it got {name}; leave it out, or build another index"
        )


def _encoder_after_move(store: Store, model: Model, manifest: Manifest) -> EncoderRecord | None:
    """The sentence encoder of an index that is moved to a model: the same one, as the new index has it."""
    from subtext.retrieval.build import compared_width
    from subtext.retrieval.sentences import describe_encoder, open_recorded

    record = store.manifest.encoder
    if record is None:
        return None
    record = describe_encoder(record.name, open_recorded(record, store.path), model)
    return replace(record, compared=compared_width(model, manifest.width))


def refresh_spaces(writer: Writer, *, quiet: bool = False) -> None:
    """Bring what an index has of the neighbours of its images up to date, with a meter.

    Args:
        writer: Of the index.
        quiet: Whether no progress is shown.
    """
    from subtext.retrieval.neighbours import refresh, rows_due

    if total := rows_due(writer.store):
        with meter("neighbours", total, quiet=quiet) as progress:
            complete = refresh(writer, progress=progress)
        if not complete:
            say(
                "note: others change the index: neighbours of some images are computed by the next command", quiet=quiet
            )


def refresh_ranker(writer: Writer, opened: LoadedRun, sources: DataConfig, *, quiet: bool = False) -> None:
    """Fit the ranker of an index to its texts, where it has none of its own, or too much has changed since.

    One that given pairs have taught is fitted again by `calibrate` alone.

    Args:
        writer: Of the index.
        opened: The model of the index, with its record.
        sources: Where the data are that the index is changed by.
        quiet: Whether nothing is reported.
    """
    from subtext.data.features import FeatureInput
    from subtext.retrieval.learning import embedders_of, fit_everyday, fit_made
    from subtext.retrieval.ranker import is_stale, store_ranker, stored_ranker

    with writer.store.reading() as view:
        try:
            ranker = stored_ranker(view)
        except SearchIndexError as problem:
            say(f"note: {problem}; it is fitted again", quiet=quiet)
            ranker = None
        bare = not view.counts["texts"]
        is_other = ranker is not None and (ranker.fit == "everyday captions") != bare
        if ranker is not None and (ranker.fit == "given pairs" or not (is_other or is_stale(view, ranker))):
            return
        # A model that was trained here has pairs to calibrate with; an index of vectors alone has no model.
        if isinstance(opened.model.text.input_spec, FeatureInput) or (bare and opened.record is not None):
            return
        models = embedders_of(writer.store, opened.model)
        if bare:
            levels = fit_everyday(view, models)
        else:
            used, note = names_learnt(opened.record, sources)
            found = fit_made(view, models, used, note=note)
    if bare:
        if levels is not None:
            store_ranker(writer, levels)
            say("note: that nothing fits a query is told by everyday captions; given pairs tell it better", quiet=quiet)
        return
    store_ranker(writer, found)
    said = found.about.get("note", "")
    count = found.about.get("queries", 0)
    if found.fit == "made queries":
        say(f"note: evidence is weighed by {count:,} queries made of its texts{said and '; '}{said}", quiet=quiet)
    else:
        say(f"note: evidence has {said}", quiet=quiet)


def interrupted_build(index: str | Path) -> Store | None:
    """The index of an interrupted build; None where there is no index, or a finished one.

    Args:
        index: Folder or address of the index.

    Returns:
        The open index, or None.
    """
    from subtext.retrieval.journal import unfinished
    from subtext.retrieval.stores.registry import open_store, store_class

    if not store_class(index).exists(str(index)):
        return None
    store = open_store(index)
    return store if any(job.verb == "build" for job in unfinished(store)) else None


def _update(
    index: str | Path,
    work: EvaluationSubject,
    *,
    keep_missing: bool,
    allowed: int | None = None,
    verify_files: bool = False,
) -> IndexChange:
    from subtext.data.features import FeatureInput
    from subtext.retrieval.build import CHANGES, WriteCounts, find_missing, model_fingerprint, prune, restamp
    from subtext.retrieval.journal import journal
    from subtext.retrieval.stores.item import SIDES
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    steps, former = _steps(store, work)
    if not steps:
        raise RequirementError(
            f"{store.path} was made of no file that could be read again; name its data (",
            Setting("data"),
            "), or use add or delete",
        )
    with store.reading() as view:
        jobs = journal(view)
    in_memory = any(
        job.source and not job.source.get("data") and CHANGES not in job.source and job.verb not in ("import", "delete")
        for job in jobs
    )
    if in_memory and recorded_sources(store) and not keep_missing:
        raise RequirementError(
            "an update cannot read data in memory again; set ", Setting("keep_missing"), ", so that nothing is lost"
        )
    # What was cut off has put new names in already: whether an old name has one is told by the whole listing.
    unfinished = [job for job in jobs if job.finished is None and CHANGES not in (job.source or {})]
    cut_off = any(job.verb == "update" for job in unfinished)
    # Of what another command has begun, images may be there, and their texts not yet.
    whole = cut_off or any(job.verb in ("build", "add") for job in unfinished)
    if damaged := [str(job.number) for job in jobs if job.damaged]:
        keep_missing = True
        say(
            f"note: the record of job {', '.join(damaged)} is damaged, and the data that it names is unknown: items "
            "that are missing from the other data stay; `subtext index verify` says more"
        )
    if keep_missing and any(as_path(path).exists() for path in former):
        former = []  # Items of both places stay, and so do both places.
    with store.writing("update") as writer:
        readings = list[tuple[EvaluationSubject, LoadedRun, dict[str, Any]]]()
        known, passed = _known(store, verify_files=verify_files), 0
        for sources, split in steps:
            step = replace(work, sources=sources, split=split)
            known.passes = not whole
            opened, source = open_source(step, store, None if cut_off else known)
            passed += known.finish()
            if former and _is_same(sources.data, work.sources.data):
                source["instead_of"] = former if sources is steps[-1][0] else []
            if readings and model_fingerprint(opened.model) == model_fingerprint(readings[0][1].model):
                specs = (branch.input_spec for branch in (opened.model.image, opened.model.text))
                if not any(isinstance(spec, FeatureInput) for spec in specs):
                    opened = replace(opened, model=readings[0][1].model)  # One model for all data sets.
            readings.append((step, opened, source))
        problems = [it for _, opened, _ in readings for it in opened.pairs.problems if it.fatal]
        unread, unclear = _unread(store, {it.item for it in problems}), any(not it.item for it in problems)
        named = [opened.pairs for _, opened, _ in readings]
        keep = {
            side: chain(unread[side], *((it.images if side == "images" else it.texts).ids for it in named))
            for side in SIDES
        }
        models = [(opened.model, opened.pairs) for _, opened, _ in readings]
        missing = find_missing(writer, keep, models, unchanged=known, allowed=allowed)
        withheld = missing.count if unclear and allowed is None and not keep_missing else 0
        deletes = not keep_missing and not withheld
        if deletes:
            place = f" --data {shlex.quote(str(work.sources.data))}" if isinstance(work.sources.data, Path) else ""
            command = f"subtext index update {shlex.quote(str(store.path))}{place} --allow-deleting {missing.lost}"
            if work.sources.in_memory is not None:
                command = f"update_index(..., allow_deleting={missing.lost})"
            missing.require_allowed(allowed, str(store.path), command)
        total = WriteCounts(unchanged=passed)
        restamp(writer, known.touched)
        for step, opened, source in readings:
            total += _ingest(
                writer,
                opened,
                step,
                verb="update",
                source=source,
                exact=len(steps) == 1,
                renames=len(steps) == 1 and deletes,
                gone=missing.ids,
                unread=unread,
                verify_files=verify_files,
                finish=False,
            )
        if deletes:
            total += prune(writer, missing.ids)
            total = replace(total, deleted=total.deleted - total.renamed)
        for _, opened, source in readings:
            # Finished when the last item is deleted: an update that was cut off before knows its renamed items.
            writer.finish(
                writer.begin("update", source=source, total=len(opened.pairs.images) + len(opened.pairs.texts))
            )
        for job in unfinished:
            if job.verb in ("build", "add") and job.source and job.source.get("data"):
                writer.finish(job.number)  # All of its data was read.
        refresh_spaces(writer, quiet=work.quiet)
        if readings:
            refresh_ranker(writer, readings[0][1], work.sources, quiet=work.quiet)
    left = [problem for problem in problems if problem.item not in unread["images"]]
    # To look for each image that cannot be shown costs what the index has.
    change = _change(store, "update", total, problems=left, pictures=bool(total.embedded or total.amended))
    return replace(change, unread=tuple(sorted(unread["images"])), withheld=withheld)


def _update_by(
    index: str | Path, work: EvaluationSubject, changes: str | Path | Rows, *, allowed: int | None, verify_files: bool
) -> IndexChange:
    """Update an index by a list of changes; what the list does not name is not looked at."""
    from subtext.data.changes import STANDARD_INPUT, by_line, read_changes, unknown_id
    from subtext.data.rows import parse_columns
    from subtext.retrieval.build import CHANGES, Missing, WriteCounts, prune, require_model, unstored, without_renamed
    from subtext.retrieval.changes import consequences, relink
    from subtext.retrieval.stores.item import SIDES
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    recorded = recorded_sources(store)
    sources = work.sources.over(recorded[0][0]) if len(recorded) == 1 else work.sources
    found = read_changes(changes, parse_columns(sources.columns, sources.text_fields))
    with store.writing("update") as writer:
        model, record = work.model.open(
            features=sources.features, text_features=sources.text_features, device=choose_device(work.device)
        )
        root = _root_of_changes(writer, work, [earlier for earlier, _ in recorded])
        pairs = _changed_pairs(writer, model, work, found, root, verify_files=verify_files)
        opened = LoadedRun(model, pairs, "all", record)
        opened, pairs = opened.to_indexable("an index"), opened.pairs
        fatal = [problem for problem in found.problems if problem.fatal]
        if fatal and (work.sources.on_error == "raise" or not (len(pairs.images) or found.deleted)):
            raise DataError(f"nothing was changed: {'; '.join(by_line(fatal))}; correct these lines")
        after = consequences(writer, pairs, found.deleted, damaged={problem.item for problem in fatal})
        left = by_line([*fatal, *(unknown_id(found.deleted[name], name) for name in after.unknown)])
        for sentence in (*by_line([problem for problem in found.problems if not problem.fatal]), *left):
            say(f"note: {sentence}", quiet=work.quiet)
        missing = Missing(after.gone, sum(store.counts.values()), sum(map(len, after.gone.values())))
        if missing.count and len(pairs.images):
            known = {
                side: set(writer.rows_of(side, items.ids))
                for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True)
            }
            missing = without_renamed(writer, missing, [(opened.model, pairs)], known=known)
        named = shlex.quote(str(changes)) if isinstance(changes, str | os.PathLike) else STANDARD_INPUT
        command = (
            f"subtext index update {shlex.quote(str(store.path))} --changes {named} --allow-deleting {missing.lost}"
        )
        missing.require_allowed(allowed, str(store.path), command, named=True)
        number = len(pairs.images) + len(pairs.texts)
        if missing.count or after.links or unstored(writer, opened.model, pairs):
            source = {CHANGES: found.digest}
            job = writer.begin("update", source=source, total=number)
            written = _ingest(
                writer,
                opened,
                work,
                verb="update",
                source=source,
                renames=True,
                gone=after.gone,
                verify_files=verify_files,
                finish=False,
            )
            relink(writer, after.links)
            written += prune(writer, after.gone)
            written = replace(written, deleted=written.deleted - written.renamed)
            writer.finish(job)
            refresh_spaces(writer, quiet=work.quiet)
            refresh_ranker(writer, opened, work.sources, quiet=work.quiet)
        else:  # Nothing is written, not even to the journal: what readers have in memory stays valid.
            require_model(store, writer.manifest, opened.model)
            written = WriteCounts(unchanged=number)
    change = _change(store, "update", written, pictures=False)
    return replace(change, unusable=len(fatal), unknown=len(after.unknown), problems=left)


def _root_of_changes(writer: Writer, work: EvaluationSubject, recorded: Sequence[DataConfig]) -> Path:
    """The folder of relative paths: that of the images of the index, also if it is in a store, or --images."""
    if work.sources.images is not None:
        return as_path(work.sources.images)
    places = {as_path(str(known.data if known.images is None else known.images)) for known in recorded}
    in_store = len(places) == 1 and is_address(next(iter(places)))
    return places.pop() if in_store else Path(writer.manifest.root)


def _changed_pairs(
    writer: Writer, model: Model, work: EvaluationSubject, found: Changes, folder: Path, *, verify_files: bool
) -> Dataset:
    """The rows of changes as a data set, which may be empty; an image that an index has unchanged is not decoded."""
    import numpy as np

    from subtext.data.changes import changed_dataset
    from subtext.data.dataset import KnownImage, RowIssue
    from subtext.data.features import FeatureInput
    from subtext.data.unchanged import Unchanged
    from subtext.retrieval.changes import shared_texts

    root, by_features = Path(writer.manifest.root), isinstance(model.image.input_spec, FeatureInput)
    stored = writer.rows_of("images", list(found.rows))
    known = (KnownImage(row.key, row.id, row.path, row.stamp, row.content, ()) for row in stored.values())
    pairs = changed_dataset(
        found,
        folder,
        {name: str(joined_path(root, row.path)) for name, row in stored.items() if row.path},
        need_images=not by_features,
        verify=Unchanged(known, root, count=len(stored), verify_files=verify_files).is_other,
    )
    pairs = with_features(model, pairs, quiet=work.quiet)
    require_features(model, pairs)
    shared = shared_texts(writer, pairs, found.deleted)
    for image, (text, other) in shared.items():
        what = f"its text has the id '{text}', as a text of '{other}' has, which no line names; name that image, too"
        found.problems.append(RowIssue(found.rows[image].where, what, item=image))
    # What is left out keeps the texts that it has: they are of an image with a problem.
    images = [row for row, name in enumerate(pairs.images.ids) if name not in shared]
    taken = {text for text, _ in shared.values()}
    texts = [row for row, name in enumerate(pairs.texts.ids) if name not in taken]
    return pairs.subset(np.array(images, dtype=np.int64), np.array(texts, dtype=np.int64)) if shared else pairs


def _unread(store: Store, images: set[str]) -> dict[Side, set[str]]:
    """Those of some images that are in an index, and the texts that are linked with them there."""
    with store.reading() as view:
        keys = view.keys_of("images", sorted(images - {""}))
        linked = {key for own in view.partners("images", sorted(keys.values())).values() for key in own}
        return {"images": set(keys), "texts": {row.id for row in view.rows("texts", keys=sorted(linked))}}


def _ingest(
    writer: Writer,
    opened: LoadedRun,
    work: EvaluationSubject,
    *,
    verb: str,
    source: Mapping[str, Any],
    again: bool = False,
    exact: bool = False,
    renames: bool = False,
    gone: Mapping[Side, Sequence[str]] | None = None,
    unread: Mapping[Side, set[str]] | None = None,
    verify_files: bool = False,
    finish: bool = True,
    only: Mapping[Side, set[str]] | None = None,
    former: Store | None = None,
    cluster: Cluster | None = None,
    cache: str | Path | None = None,
    taken: ImageStream | None = None,
) -> WriteCounts:
    """Put the opened pairs into an index with a meter; the options are those of `ingest`.

    Args:
        writer: Changes the index.
        opened: The model and the pairs.
        work: Batch size, threads, and whether progress is shown.
        verb: "build", "add" or "update", for the journal.
        source: Where the data came from, as plain data.
        again: Also add items that were deleted before.
        exact: A text keeps no links but those of the data.
        renames: A new item takes over the vectors of a removed one with the same content.
        gone: Ids of the removed items, where they are known.
        unread: Ids of items that stay as they are, as they cannot be read now.
        verify_files: Read also files that look unchanged.
        finish: False leaves the job unfinished.
        only: Ids of each side to add; None for all.
        former: The index that is moved, whose sentence vectors are taken over.
        cluster: The Ray cluster that embeds; None for this process.
        cache: Folder of cached outputs of frozen encoders; None for the user's cache.
        taken: Images that were put in while the pairs were read.
    """
    from subtext.data.languages import foreign_texts
    from subtext.data.output_cache import OutputCache
    from subtext.retrieval.build import ingest

    model, pairs = opened.model, opened.pairs
    total = len(pairs.images) + len(pairs.texts)
    with cache_shown(quiet=work.quiet), meter("embedding", total, quiet=work.quiet) as progress:
        written = ingest(
            writer,
            model,
            pairs,
            verb=verb,
            source=source,
            again=again,
            exact=exact,
            renames=renames,
            gone=gone,
            unread=unread,
            verify_files=verify_files,
            finish=finish,
            only=only,
            former=former,
            cache=None if cache is None else OutputCache(Path(cache).expanduser()),
            note=lru_cache(partial(say, quiet=work.quiet)),
            batch_size=work.batch_size,
            workers=work.workers,
            cluster=cluster,
            taken=taken,
            progress=progress,
        )
    encoder, reads = writer.manifest.encoder, tuple(writer.manifest.languages)
    said = encoder is not None and encoder.languages == reads  # Of the sentence encoder.
    if verb == "build" and not said and (foreign := foreign_texts(pairs.texts.values, reads, encoder="model")):
        say(f"note: {foreign}", quiet=work.quiet)
    return written


def _change(
    store: Store,
    verb: str,
    written: WriteCounts | None,
    *,
    run: str = "",
    problems: Sequence[RowIssue] = (),
    pictures: bool = True,
) -> IndexChange:
    with store.reading() as view:
        counts, used = cast(Mapping[str, int], view.counts), view.stats().bytes
    numbers = {} if written is None else asdict(written)
    numbers["unusable"] = sum(problem.fatal for problem in problems)
    shape, next_steps = vector_shape(store.manifest), tuple(advice(store, pictures=pictures))
    return IndexChange(str(store.path), verb, counts, shape, used, run=run, advice=next_steps, **numbers)


def _steps(
    store: Store, work: EvaluationSubject, *, features: bool = True
) -> tuple[list[tuple[DataConfig, str]], list[str]]:
    """The data sets of an index and their splits as the work reads them; and the places that its data replaces.

    Uploads to a server are not replaced. Without `features`, the recorded files of features are left out.

    Raises:
        RequirementError: For data that is none of several data sets.
        DataError: For one that is not there.
    """
    from subtext.data.readers import readers
    from subtext.retrieval.traces import ADDED, ROWS

    recorded = [(earlier, split, as_path(str(earlier.data)).resolve()) for earlier, split in recorded_sources(store)]
    uploads, data = Path(store.path).resolve() / ADDED, work.sources.data
    if (uploads / ROWS).is_file() and not (uploads / ROWS).stat().st_size:
        recorded = [known for known in recorded if known[2] != uploads]  # All of them were deleted again.
    paths = list(dict.fromkeys(path for *_, path in recorded if path != uploads))
    named = data.resolve() if isinstance(data, Path) else None
    is_new = data is not None and named not in (*paths, uploads)
    if is_new and len(paths) > 1:
        raise RequirementError(
            f"{store.path} needs one of its data sets, {', '.join(map(str, paths))}; it got another, "
            f"{work.sources.name}; add that (subtext index add), or leave ",
            Setting("data"),
            " out, which reads all of them",
        )
    steps = [] if paths or not is_new else [(work.sources, work.split or "all")]
    for earlier, split, path in recorded:
        options = work.sources if data is None or path == named or (is_new and path != uploads) else DataConfig()
        sources = options.over(earlier if features else replace(earlier, features=None, text_features=None))
        if not _is_same(sources.data, data) and not (path.exists() or any(it.recognises(path) for it in readers())):
            moved = "if it was moved, name its new place (--data)"
            advice = moved if paths == [path] else "put it back, or a link to where it is now"
            raise DataError(f"{store.path} needs the data that it was made of; {path} is not there; {advice}")
        if is_new and path != uploads and named and named.is_dir() and (earlier.form or "").startswith("images"):
            sources = replace(sources, form=earlier.form)  # A folder of photos that was moved is one.
        # Rows that one skips are an error of another that does not: to read the data once is enough, as it was last.
        how = {"on_error": sources.on_error, "max_pixels": sources.max_pixels}
        alike = [(replace(before, **how), part) for before, part in steps]  # type: ignore[arg-type]
        if (sources, split) in alike:
            steps[alike.index((sources, split))] = sources, split
        else:
            steps.append((sources, split))
    former = [str(earlier.data) for earlier, _, path in recorded if is_new and named and path != uploads]
    return sorted(steps, key=lambda step: _is_same(step[0].data, data)), former


def _is_same(one: object, other: object) -> bool:
    """Whether two configurations name the same path, or the same data set in memory."""
    return one is other or (isinstance(one, Path) and one == other)


def _source(store: Store, run: AnyPath | None, model: AnyPath | None) -> ModelSource:
    return ModelSource.of_index(store.manifest, run, model, index=str(store.path))


def _work_on(
    index: str | Path, run: AnyPath | None, model: AnyPath | None, **options: Unpack[DataOptions]
) -> EvaluationSubject:
    """The work on all data of an index with its own model."""
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    source = _source(store, run, model)
    store.close()
    return EvaluationSubject.of(source, "all", **options)


def _file_states(index: str | Path) -> bytes:
    """A digest of size and times of an index's data and images: what an update looks at."""
    from subtext.data.folders import iter_files
    from subtext.data.image_files import file_stamp, image_stamp
    from subtext.data.object_store import begin, known_state, list_store, looked_up
    from subtext.data.readers.webdataset import shards
    from subtext.data.unchanged import file_part
    from subtext.retrieval.stores.registry import open_store

    begin()
    store = open_store(index)
    paths = [
        path for sources, _ in recorded_sources(store) for path in vars(sources).values() if isinstance(path, Path)
    ]
    states = hashlib.blake2b(digest_size=16)
    for path in dict.fromkeys(paths):
        if is_address(path):
            if not is_https(str(path)):
                states.update(repr([(name, known_state(f"{path}/{name}")) for name in list_store(path)]).encode())
            continue
        files = map(str, shards(path)) if not path.exists() else iter_files(path) if path.is_dir() else [str(path)]
        for name in files:
            # A file that is deleted since it was listed has no stamp.
            states.update(repr((os.path.join(path, name), image_stamp(name, path))).encode())  # noqa: PTH118
    root = Path(store.manifest.root)
    with store.reading() as view:
        # Those that a table names may lie elsewhere.
        for image in looked_up(view.known_images(), lambda image: image.path if is_address(image.path) else None):
            if image.path and image.stamp is not None:
                now = file_stamp(image.path, root)
                states.update(repr((image.id, now)).encode() if now != file_part(image.stamp) else b"")
    store.close()
    return states.digest()


def _compare(after: Store, before: Store, images: list[str]) -> Compared:
    """Recall by the vectors of two indexes, on those of these images that both have, and their texts."""
    import numpy as np
    import torch

    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset, Items
    from subtext.data.rows import components
    from subtext.evaluation import Protocol, evaluate_embeddings
    from subtext.evaluation.compare import compare, measured_of
    from subtext.models.similarity.cosine import Cosine
    from subtext.retrieval.stores.item import SIDES, machine_of

    with before.reading() as old, after.reading() as new:
        rows = old.rows("images", ids=list(new.keys_of("images", images)), links=True)
        texts = old.rows("texts", keys=sorted({key for row in rows for key in row.links}))
        texts = [text for text in texts if not machine_of(text.metadata)]
        text_rows = {text.key: number for number, text in enumerate(texts)}
        pairs = [(n, text_rows[key]) for n, row in enumerate(rows) for key in row.links if key in text_rows]
        links = np.array(pairs, dtype=np.int64)
        # What a text links is one group, as in a data set that was read.
        joined = components((image, len(rows) + text) for image, text in links.tolist())
        groups = np.array([joined.get(node, node) for node in range(len(rows) + len(texts))], dtype=np.int64)
        sides = [
            Items([row.id for row in side], [None] * len(side), of_side, np.full(len(side), "held out"))
            for side, of_side in ((rows, groups[: len(rows)]), (texts, groups[len(rows) :]))
        ]
        results = []
        for view in (new, old):
            embedded = []
            for side, items in zip(SIDES, sides, strict=True):
                vectors = view.vectors_of(side, items.ids)
                embedded.append(Embeddings(torch.from_numpy(vectors), torch.arange(len(vectors))))
            dataset = Dataset(sides[0], sides[1], links, Path())
            result = evaluate_embeddings(Cosine(), embedded[0], embedded[1], dataset, protocol=Protocol(bootstrap=0))
            results.append(result)
    return compare(*([measured_of(result)] for result in results), figures=("recall@1", "recall@10"))


LEAST, MOST = 10, 5000
"""Held-out images that a comparison of two models needs (fewer have no interval), and how many of more it takes."""
BLOCK = 65_536
"""Items that are put in and acknowledged at a time."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file.

    Attributes:
        ids: Of each side its items' ids; empty for a side that the file does not have.
        vectors: (N K D) float32.
        groups: An image and a text of one group are linked; only where the file has groups.
    """

    ids: dict[Side, list[str]] = field(default_factory=lambda: {"images": [], "texts": []})
    vectors: dict[Side, NDArray[np.float32]] = field(default_factory=dict)
    groups: dict[Side, NDArray[np.int64]] = field(default_factory=dict)


@command
def import_index(
    index: IndexArgument,
    vectors: Annotated[
        str | Path | EmbeddedDataset | Arrays,
        "An .npz or .parquet of vectors.",
        OptionGroup("Index"),
        Metavar("VECTORS"),
    ],
    *,
    data: Annotated[
        str | Path | Dataset | None,
        "Data set with paths, texts and metadata of the items.",
        OptionGroup("Items"),
        Metavar("DATA"),
    ] = None,
    images: Annotated[str | Path | None, "Folder of relative image paths.", OptionGroup("Items")] = None,
    split: Annotated[str, "Split of the data; all: the complete data set.", OptionGroup("Items")] = "all",
    run: Annotated[
        AnyPath | None, "Run whose model computed the vectors.", OptionGroup("Model"), Metavar("RUN")
    ] = None,
    model: Annotated[
        AnyPath | None,
        "Pretrained model that computed the vectors: a hub name or a folder, or open_clip:ARCHITECTURE/WEIGHTS.",
        OptionGroup("Model"),
        Metavar("NAME_OR_FOLDER"),
    ] = None,
    text_prompt: TextPrompt = None,
    text_encoder: TextEncoder = None,
    numbers: NumbersOfVectors = None,
) -> IndexReport:
    """Import vectors from a file into a new index, or into an index of the same model.

    The file has the layout of `subtext embed`: image_ids, image_vectors, text_ids, text_vectors. With image_groups and
    text_groups (optional), images and texts of the same group are linked. Without `run` and `model`, searches with
    words are not possible. The data set is recorded, as by `build`, and `update` follows it. In Python, `vectors` are
    also what `embed` returned, or arrays and tensors.

    Args:
        index: Folder of an index, or its address.
        vectors: An .npz or .parquet of vectors; or what `embed` returned, with its data; or arrays or tensors by the
            names of the file, {"image_ids": [...], "image_vectors": array}, also of both sides; or of images alone,
            (array, ids) or {id: vector}.
        data: Data set with paths, texts and metadata of the items.
        images: Folder of relative image paths.
        split: Split of the data that was embedded; all: the complete data set.
        run: Run whose model computed the vectors.
        model: Pretrained model that computed the vectors: a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        text_encoder: Sentence encoder that compares texts with texts, as of `build`; the data set has the texts.
        numbers: Of the stored vectors, float32 or float16, as `vectors` of `build`.

    Returns:
        Number of items put in.

    Raises:
        DataError: If the file has another layout, if its ids are not unique or not in the data, or if the model gives
            other vectors.
        SearchIndexError: If the index has another model or width.
        ArgumentError: For `images` or `split` without `data`.
    """
    from subtext.data.features import FeatureInput
    from subtext.retrieval.make_text_side import keep_text_side
    from subtext.retrieval.sentences import SentenceVectors
    from subtext.retrieval.stores.item import SIDES
    from subtext.retrieval.stores.registry import create_store, open_store, store_class

    file = Path(vectors) if isinstance(vectors, str | os.PathLike) else None
    named = None if run is None and model is None and text_prompt is None else ModelSource.of(run, model, text_prompt)
    dataset, sources = None, DataConfig()
    if file is not None:
        content = read_vectors(file)
    else:
        content = vectors_of(vectors)
        dataset = getattr(vectors, "dataset", None)
    if data is not None:
        sources = DataConfig.of(data, images)
        dataset = sources.read(need_pairs=False).split(split, need_pairs=False)
    elif images is not None or split != "all":
        field = "split" if images is None else "images"
        raise ArgumentError(f"{field} is of a data set; name that, too (", Setting("data", "DATA"), ")", field=field)
    opened, manifest = _manifest(content, named, dataset, file)
    source = _import_source(file, content, sources, split, dataset, opened)
    manifest = replace(manifest, data=source)
    if store_class(index).exists(str(index)):
        store = open_store(index)
        if store.manifest.fingerprint != manifest.fingerprint:
            raise SearchIndexError(
                f"{store.path} needs vectors of the model that made it ({store.manifest.fingerprint[:12]}); these are "
                f"said to be of another ({manifest.fingerprint[:12]}); name its run (",
                Setting("run"),
                ") or model (",
                Setting("model"),
                "), or a new folder",
            )
        require_same_encoder(store, text_encoder)
        _require_numbers(store, numbers)
    else:
        texts = () if dataset is None else dataset.texts.values
        encoder = _encoder_of(index, text_encoder, texts, opened, quiet=False)
        store = create_store(index, replace(manifest, encoder=encoder, numbers=numbers or manifest.numbers))
    with store.writing("import") as writer:
        total, record = sum(map(len, content.ids.values())), writer.manifest.encoder
        sentences = None if record is None else SentenceVectors(record, writer.store.path)
        job = writer.begin("import", source=source, total=total)
        by_features = opened is not None and isinstance(opened.image.input_spec, FeatureInput)
        for side in SIDES:
            _put(writer, side, content, dataset, job, sentences, stamps=not by_features)
        if sentences is not None:
            sentences.keep(writer, () if dataset is None else dataset.texts.values)
        if opened is not None:
            keep_text_side(writer, opened, () if dataset is None else dataset.texts.values)
        writer.finish(job)
        writer.compact_large()
        refresh_spaces(writer)
        writer.compact_large()
    counts = {str(side): len(content.ids[side]) for side in SIDES}
    lines = [f"vectors of {items_counted(counts)} put in"]
    if source.get("data") and dataset is not None and (more := len(dataset.images) + len(dataset.texts) - total) > 0:
        lines.append(f"the data has {counted(more, 'more item')}, which `subtext index update` embeds")
    return IndexReport(str(store.path), (*lines, *advice(store)), counts)


COLUMNS = tuple(f"{modality}_{column}" for modality in ("image", "text") for column in ("ids", "vectors", "groups"))
"""Arrays of a file of vectors."""


def _import_source(
    file: Path | None,
    content: VectorFile,
    sources: DataConfig,
    split: str,
    dataset: Dataset | None,
    model: Model | None,
) -> dict[str, Any]:
    """Where vectors come from, for the journal: data that can be read again as `build` records them, and the file.

    Of objects it is a digest of their ids, by which the job is known again.
    """
    from subtext.data.features import FeatureInput

    if file is not None:
        source: dict[str, Any] = {"file": str(file.resolve())}
    else:
        source = {"objects": hashlib.blake2b(json.dumps(content.ids).encode(), digest_size=16).hexdigest()}
    if dataset is None or not isinstance(sources.data, Path):
        return source
    files: dict[str, Any] = {}
    for name, branch in () if model is None else (("features", model.image), ("text_features", model.text)):
        if isinstance(branch.input_spec, FeatureInput) and (read := branch.input_spec.file) is not None:
            files[name] = read if read.in_memory else read.path
    recorded = replace(sources, form=dataset.form or None, **files)
    return {**recorded.to_json(), "split": split, **source}


def read_vectors(file: Path) -> VectorFile:
    """The vectors of an .npz or .parquet that `subtext embed` wrote, or that is laid out like one.

    Args:
        file: An .npz or .parquet file.

    Returns:
        Ids, vectors and groups of each side.

    Raises:
        DataError: If the file is missing or has another layout, or its vectors are zero or not finite numbers of one
            width.
    """
    from subtext.data.arrays import open_npz

    if not file.is_file():
        raise DataError(f"an import needs a file of vectors; {file} is not there")
    if file.suffix not in (".npz", ".parquet"):
        raise DataError(f"an import needs an .npz or a .parquet as `subtext embed` writes them; it got {file.name}")
    columns: dict[str, Any] = open_npz(file, COLUMNS) if file.suffix == ".npz" else _parquet(file)
    return _checked_vectors(columns, str(file))


def vectors_of(value: Any) -> VectorFile:
    """The vectors of what `embed` returned, or of arrays or tensors with ids.

    Args:
        value: See `import_index`.

    Returns:
        Ids, vectors and groups of each side.

    Raises:
        ArgumentError: If it is none of these.
        DataError: As `read_vectors`.
    """
    import numpy as np

    from subtext.data.objects import named_arrays, to_array

    if isinstance(value, Mapping) and (known := [name for name in value if name in COLUMNS]):
        if others := [str(name) for name in value if name not in COLUMNS]:
            raise ArgumentError(
                f"vectors needs arrays called {', '.join(COLUMNS)}; it got {', '.join(others)}, too; leave them out",
                field="vectors",
            )
        columns = {name: to_array(value[name], f"vectors: '{name}'", field="vectors") for name in known}
    else:
        columns = named_arrays(value, "vectors")
        if "vectors" in columns:
            if "ids" not in columns:
                raise ArgumentError(
                    "vectors needs the ids of its rows: (array, ids), {id: vector}, or {'image_ids': [...], "
                    "'image_vectors': array}; it got an array alone",
                    field="vectors",
                )
            columns = {"image_ids": columns["ids"], "image_vectors": columns["vectors"]}
        if (pairs := getattr(value, "dataset", None)) is not None:
            columns |= {"image_groups": pairs.images.groups, "text_groups": pairs.texts.groups}
    for name in ("image_ids", "text_ids"):
        if name in columns and columns[name].dtype.kind in "iu":
            columns[name] = columns[name].astype(str)
    return _checked_vectors({name: np.asarray(array) for name, array in columns.items()}, "vectors")


def _checked_vectors(columns: Mapping[str, Any], file: str) -> VectorFile:
    """The arrays of a file, or of objects; `file` is for messages.

    Raises:
        DataError: If they have another layout, or vectors are zero or not finite numbers of one width.
    """
    import numpy as np

    from subtext.data.arrays import LARGEST, NUMBERS, as_float32, ids_of_array, unusable
    from subtext.data.rows import id_error
    from subtext.retrieval.stores.item import SIDES, has_direction

    content = VectorFile()
    for side, modality in zip(SIDES, ("image", "text"), strict=True):
        if f"{modality}_ids" not in columns:
            continue
        content.ids[side] = ids = ids_of_array(np.asarray(columns[f"{modality}_ids"]), f"{file}: '{modality}_ids'")
        try:
            array = np.asarray(columns.get(f"{modality}_vectors", ()))
        except ValueError:
            raise DataError(f"{file} needs vectors of one width; those of {side} have several") from None
        if array.dtype.kind not in NUMBERS:
            raise DataError(
                f"{file} needs real numbers; its vectors of {side} are {array.dtype}; write them as float32"
            )
        array = as_float32(array)
        if array.ndim not in (2, 3) or len(array) != len(ids) or 0 in array.shape[1:]:
            raise DataError(f"{file} needs one vector, or K, for each id; {side} have {len(ids)} and {array.shape}")
        if (bad := unusable(array)) is not None:
            raise DataError(f"{file} needs finite numbers up to {LARGEST:.0e}; '{ids[bad[0]]}' has {bad[1]}")
        content.vectors[side] = array[:, None] if array.ndim == 2 else array
        if len(set(ids)) < len(ids):
            raise DataError(f"{file} needs each id once on a side; some of the {side} are there twice")
        if wrong := next(((name, reason) for name in ids if (reason := id_error(name))), None):
            raise DataError(f"{file} needs other ids: {wrong[0]!r} {wrong[1]}")
        if nothing := [ids[row] for row in np.flatnonzero(~has_direction(content.vectors[side]))]:
            raise DataError(
                f"{file} needs vectors that are not zero; {counted(len(nothing), 'vector')} of {side} "
                f"{'is' if len(nothing) == 1 else 'are'}: {listed(list(map(repr, nothing)))}; leave these items out"
            )
        if (groups := columns.get(f"{modality}_groups")) is not None:
            groups = np.asarray(groups)
            if groups.shape != (len(ids),) or groups.dtype.kind not in "iu" or groups.dtype == np.uint64:
                raise DataError(
                    f"{file} needs a whole number for each id in '{modality}_groups', the same for an image and its "
                    f"texts; it has {groups.dtype} of shape {groups.shape}; number the groups, or leave them out"
                )
            content.groups[side] = groups.astype(np.int64)
    if len({array.shape[2] for array in content.vectors.values()}) != 1:
        raise DataError(
            f"{file} needs image_ids and image_vectors, or text_ids and text_vectors, of one width; it has "
            f"{', '.join(columns) or 'nothing'}"
        )
    return content


def _parquet(file: Path) -> dict[str, Any]:
    """The columns of both modalities, called as in an .npz."""
    from subtext.data.external_outputs import read_table

    table = read_table(file, ("modality", "id", "vector"), optional="group")
    columns: dict[str, Any] = {}
    for modality in ("image", "text"):
        rows = [row for row, item_modality in enumerate(table["modality"]) if item_modality == modality]
        columns |= {f"{modality}_{name}s": [table[name][row] for row in rows] for name in table if rows}
    return columns


def _manifest(
    content: VectorFile, named: ModelSource | None, pairs: Dataset | None, file: Path | None
) -> tuple[Model | None, Manifest]:
    """The model that made these vectors, where it is named, and the manifest of an index of them."""
    from subtext.models.similarity.probabilistic import ClosedFormDistance
    from subtext.retrieval.build import new_manifest
    from subtext.retrieval.stores.item import SIDES

    width = next(iter(content.vectors.values())).shape[2]
    views: dict[str, int] = {side: content.vectors[side].shape[1] if side in content.vectors else 1 for side in SIDES}
    root = Path() if pairs is None else pairs.root
    if named is None:
        return None, new_manifest(None, views=views, width=width, root=root)
    opened, record = named.open()
    if isinstance(opened.similarity, ClosedFormDistance):
        raise RequirementError(
            "an import needs the vectors that the run's own index holds, with the variances in them; `subtext embed` "
            "writes means beside uncertainties; build the index from the run (subtext index build)"
        )
    model, pretrained = opened.to_indexable("an index"), named.recorded()
    _require_model(content, model, pairs, named, "vectors" if file is None else str(file))
    return model, new_manifest(
        model,
        views=views,
        width=width,
        root=root,
        run="" if named.run is None else str(named.run.expanduser().resolve()),
        model_name=pretrained["name"] if record is None else record.model,
        pretrained=pretrained,
    )


CHECKED, ALIKE = 16, 0.9
"""Texts that are compared, and the least cosine of an imported vector and the model's own."""


def _require_model(content: VectorFile, model: Model, pairs: Dataset | None, named: ModelSource, file: str) -> None:
    """Require that a model gives vectors of the width of those in a file, and the same ones for some of its texts."""
    import numpy as np

    from subtext.data.features import FeatureInput

    if isinstance(model.text.input_spec, FeatureInput):
        return  # It reads no words: neither here nor in a search.
    rows = {} if pairs is None else dict(zip(pairs.texts.ids, pairs.texts.values, strict=True))
    known = [(row, rows[name]) for row, name in enumerate(content.ids["texts"]) if isinstance(rows.get(name), str)]
    known = known[:: max(1, len(known) // CHECKED)]
    made = model.embed_texts([text for _, text in known] or ["a"]).vectors.float().numpy()
    width = next(iter(content.vectors.values())).shape[2]
    if made.shape[2] != width:
        raise DataError(
            f"{file} needs vectors of {named.label}, which have {made.shape[2]} numbers; these have {width}; name the "
            "model that made them (",
            Setting("run"),
            " or ",
            Setting("model"),
            ")",
        )
    if not known:
        return
    stored = content.vectors["texts"][[row for row, _ in known]]
    if stored.shape != made.shape:
        raise DataError(
            f"{file} needs vectors of {named.label}, {made.shape[1]} for each text; it has {stored.shape[1]}; name the "
            "model that made them (",
            Setting("run"),
            " or ",
            Setting("model"),
            ")",
        )
    lengths = np.linalg.norm(stored, axis=2) * np.linalg.norm(made, axis=2)
    cosines = np.median((stored * made).sum(axis=2) / np.maximum(lengths, np.finfo(np.float32).tiny))
    if not cosines >= ALIKE:
        raise DataError(
            f"{file} needs vectors of {named.label}; those of the first texts are others than it gives (a cosine of "
            f"{cosines:.2f}); name the model that made them (",
            Setting("run"),
            " or ",
            Setting("model"),
            "), and its prompt (",
            Setting("text_prompt"),
            ")",
        )


def _put(
    writer: Writer,
    side: Side,
    content: VectorFile,
    dataset: Dataset | None,
    job: int,
    sentences: SentenceVectors | None,
    *,
    stamps: bool,
) -> None:
    """Put in the items of a side, and with the texts their links: those of the data set, else by the file's groups.

    With `stamps`, the vectors are of the images' files, and size and times of those that are here are recorded.
    """
    from subtext.retrieval.stores.item import SIDES, Change, IndexEntry, vector_content

    ids, about = content.ids[side], _about(side, content.ids[side], dataset, Path(writer.manifest.root))
    links: list[tuple[str, str]] = []
    if side == "texts" and dataset is not None:
        links = [(dataset.images.ids[image], dataset.texts.ids[text]) for image, text in dataset.links.tolist()]
    elif side == "texts" and len(content.groups) == 2:
        of_group: dict[int, list[str]] = {}
        for name, group in zip(content.ids["images"], content.groups["images"].tolist(), strict=True):
            of_group.setdefault(group, []).append(name)
        text_groups = zip(ids, content.groups["texts"].tolist(), strict=True)
        links = [(image, text) for text, group in text_groups for image in of_group.get(group, [])]
    for start in range(0, len(ids), BLOCK):
        block, vectors = ids[start : start + BLOCK], content.vectors[side][start : start + BLOCK]
        stored = writer.rows_of(side, block)
        same = _with_same_vectors(writer, side, block, vectors, stored)
        new, amended, rows = list[IndexEntry](), list[IndexEntry](), list[int]()
        for row, name in enumerate(block):
            entry, before = IndexEntry(name, vector_content(vectors[row]), **about.get(name, {})), stored.get(name)
            if before is not None and name in same and before.path == entry.path:
                # What an update has learnt of the file stays.
                entry = replace(entry, content=before.content, stamp=before.stamp)
            elif entry.path is not None and stamps and dataset is not None:
                entry = replace(entry, stamp=_stamp_here(entry.path, Path(writer.manifest.root)))
            if before is None or before.content != entry.content or before.text != entry.text:
                new.append(entry)
                rows.append(row)
            elif before.digest != entry.digest(SIDES.index(side), before.key):
                amended.append(entry)
        names = set(block)
        block_links = [link for link in links if link[1] in names]
        change = Change(side, new, vectors[rows], amended, links=block_links)
        if sentences is not None and side == "texts" and new:
            change = replace(change, derived={"sentences": sentences(new)})
        writer.put(change, job=job, done=start + len(block))


def _with_same_vectors(
    writer: Writer, side: Side, ids: Sequence[str], vectors: NDArray[np.float32], stored: Mapping[str, StoredRow]
) -> set[str]:
    """Ids of the items that an index has with these vectors."""
    import numpy as np

    from subtext.retrieval.stores.item import is_of_vectors, vector_content

    rows = [row for row, name in enumerate(ids) if name in stored]
    same = {ids[row] for row in rows if stored[ids[row]].content == vector_content(vectors[row])}
    # Of those that an update has read, the digest is of the file.
    read = [row for row in rows if not is_of_vectors(stored[ids[row]].content)]
    if read:
        with writer.store.reading() as view:
            kept = view.vectors_of(side, [ids[row] for row in read])
        numbers = vectors[read].astype(writer.manifest.numbers).astype(np.float32)
        same |= {ids[row] for row, one, other in zip(read, kept, numbers, strict=True) if np.array_equal(one, other)}
    return same


def _stamp_here(path: str, root: Path) -> str | None:
    """Size and times of an image's file, as far as a look at this machine, or a listing that was read, tells them."""
    from subtext.data.image_files import file_stamp
    from subtext.data.object_store import known_state

    if is_address(path):
        return " ".join(map(str, known_state(path) or ())) or None
    return file_stamp(path, root) or None


def _about(side: Side, ids: list[str], dataset: Dataset | None, root: Path) -> dict[str, dict[str, Any]]:
    """Path or text, and metadata of each id, from the data set; paths start from the root of the index."""
    from subtext.retrieval.build import stored_path

    if dataset is None:
        return {}
    items, kind = (dataset.images, "path") if side == "images" else (dataset.texts, "text")
    roots = dataset.root.resolve(), root.resolve()
    about = {}
    for row, (name, value) in enumerate(zip(items.ids, items.values, strict=True)):
        metadata = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
        metadata = {**({"split": str(items.splits[row])} if dataset.own_splits else {}), **metadata}
        known = value if isinstance(value, str) else None
        known = stored_path(known, *roots) if known is not None and side == "images" else known
        about[name] = {kind: known, "metadata": metadata}
    if missing := [name for name in ids if name not in about]:
        raise RequirementError(
            f"the data set needs to know the ids of the vectors; {len(missing)} of {len(ids)} {side} are not in it, "
            f"first '{missing[0]}'; name the data that was embedded"
        )
    return about
