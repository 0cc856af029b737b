"""`subtext.delete_from_index`, `compact_index`, `index_info`, `verify_index`, `calibrate_index` and so on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from subtext.api.load import EvaluationSubject, LoadedRun, ModelSource, open_subject, read_data_of_run
from subtext.api.options import DEFAULTS, IndexArgument, IndexPretrained, IndexRun, ModelOptions
from subtext.data.config import DataConfig
from subtext.data.objects import Rows
from subtext.errors import ArgumentError, DataError, RequirementError, SearchIndexError, Setting
from subtext.report.text_table import Report, table
from subtext.settings import Flag, Interval, Metavar, OptionGroup, command
from subtext.text_helpers import counted, size

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.models.checkpoint import Record
    from subtext.retrieval.calibration import Calibration
    from subtext.retrieval.manifest import Manifest
    from subtext.retrieval.ranker import Ranker
    from subtext.retrieval.stores.store import Store, View


MANY = 32
"""Segments beyond which a compaction is advised: each is searched on its own."""
DEAD = 0.2
"""Share of rows of deleted items beyond which it is."""

_ITEMS = OptionGroup("Items")
_INDEX = OptionGroup("Index")
_HELD_OUT_PAIRS = OptionGroup("Held-out pairs")


@dataclass(frozen=True, repr=False)
class IndexInfo(Report):
    """The contents of an index.

    Attributes:
        path: The index: a folder, or an address without password.
        manifest: Its model and data.
        counts: Images and texts.
        bytes: Its size on disk.
        fields: Metadata fields of each side.
        facts: Details of its store, such as segments, lists or graphs.
        jobs: The journal.
        advice: Recommended next step.
        calibrated: The data of its calibration, and whether the calibration is still valid; "" without calibration.
        evidence: What taught the weights of evidence, and the weights; "" without a ranker.
        vectors: Shape of the vectors, as text.
        further_data: Data sets that were added to the first one, which the manifest names.
        compared: Texts that the sentence encoder compares; the others say that they are in a language it does not read,
            or have no words.
    """

    path: str
    manifest: Mapping[str, Any]
    counts: Mapping[str, int]
    bytes: int
    fields: Mapping[str, list[str]]
    facts: Mapping[str, Any]
    jobs: tuple[Mapping[str, Any], ...]
    advice: tuple[str, ...] = ()
    calibrated: str = ""
    evidence: str = ""
    vectors: str = ""
    further_data: tuple[str, ...] = ()
    compared: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            The manifest, counts, bytes, facts, fields, jobs, advice and further data.
        """
        content = {**self.manifest, "index": self.path, "counts": dict(self.counts), "bytes": self.bytes, **self.facts}
        content |= {"fields": dict(self.fields), "jobs": [dict(job) for job in self.jobs], "advice": list(self.advice)}
        content["further_data"] = list(self.further_data)
        content |= {"evidence": self.evidence} if self.evidence else {}
        return content | ({"calibrated": self.calibrated} if self.calibrated else {})

    def _lines(self) -> list[str]:
        from subtext.data.languages import MANY, named

        data: Mapping[str, Any] = self.manifest["data"]
        codes: Sequence[str] = self.manifest.get("languages", ())
        reads = "many" if MANY in codes else named(codes) if codes else "not known"
        pretrained: Mapping[str, str] = self.manifest.get("pretrained", {})
        facts = [[name.replace("_", " "), _fact(value)] for name, value in self.facts.items()]
        rows = [
            ["images", f"{self.counts['images']:,}"],
            ["texts", f"{self.counts['texts']:,}"],
            ["vectors", self.vectors],
            ["size", size(self.bytes)],
            *[row for row in facts if row[1]],
            ["fields of images", ", ".join(self.fields["images"]) or "-"],
            ["fields of texts", ", ".join(self.fields["texts"]) or "-"],
            ["run", self.manifest["run"] or "-"],
            ["model", self.manifest["model_name"] or "-"],
            ["sentence encoder", _encoder_shown(self.manifest.get("encoder"), self.compared, self.counts["texts"])],
            ["languages", reads],
            *[[name.replace("_", " "), value] for name, value in pretrained.items() if name != "name" and value],
            ["fingerprint", self.manifest["fingerprint"]],
            *[[name, str(data.get(name, "-"))] for name in ("data", "split")],
            *[["further data", name] for name in self.further_data],
            *[[name.replace("_", " "), str(data[name])] for name in ("features", "text_features") if data.get(name)],
            *([["calibrated", self.calibrated]] if self.calibrated else []),
            *([["evidence", self.evidence]] if self.evidence else []),
            ["changes", f"{self.manifest['generation']:,}"],
            ["created", f"{self.manifest['created']} by Subtext {self.manifest['version']}"],
        ]
        for job in self.jobs:
            if job["damaged"]:
                rows.append(["damaged record", f"job {job['number']}; `subtext index verify` says more"])
            if job["finished"] is None:
                done = f"{job['done']:,} of {job['total']:,} items, started {job['started']}"
                rows.append([f"unfinished {job['verb']}", f"{done}; run the same command again to resume"])
        return [table(["index", self.path], rows), *self.advice]

    def __repr__(self) -> str:
        return f"IndexInfo({self.path!r}, {dict(self.counts)})"


@dataclass(frozen=True, repr=False)
class VerifyResult(Report):
    """Damage of an index.

    Attributes:
        path: The index: a folder, or an address without password.
        problems: (place, description) of each problem; empty for an intact index.
    """

    path: str
    problems: tuple[tuple[str, str], ...]

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            index, intact and problems.
        """
        problems = [{"where": where, "what": what} for where, what in self.problems]
        return {"index": self.path, "intact": self.intact, "problems": problems}

    def _lines(self) -> list[str]:
        if self.intact:
            return [f"{self.path}: intact"]
        lines = [f"{self.path}: {counted(len(self.problems), 'problem')}"]
        lines += [f"  {where}: {what}" for where, what in self.problems]
        return [*lines, "restore a backup (subtext index restore), or build again"]


@dataclass(frozen=True, repr=False)
class IndexReport(Report):
    """The result of a command on an index, as text and as numbers.

    Attributes:
        path: The index: a folder, or an address without password.
        lines: Sentences that say what was done.
        numbers: The same in numbers.
    """

    path: str
    lines: tuple[str, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)

    def _lines(self) -> list[str]:
        return [f"{self.path}: {self.lines[0]}", *self.lines[1:]]


@command
def delete_from_index(
    index: IndexArgument,
    ids: Annotated[tuple[str, ...], "Ids of items, or paths of images.", _ITEMS, Metavar("IDS")] = (),
    *,
    ids_from: Annotated[str | Path | None, "A text file of ids, one per line.", _ITEMS, Metavar("FILE")] = None,
    where: Annotated[
        tuple[str, ...], "Delete the items that satisfy a condition: 'year < 1950'.", _ITEMS, Metavar("CONDITION")
    ] = (),
    texts: Annotated[bool, "IDS and --where name texts, not images.", _ITEMS] = False,
    keep_texts: Annotated[bool, "Keep the texts that have no other image.", _ITEMS] = False,
    dry_run: Annotated[bool, "List the items that would be deleted, and delete none.", _ITEMS] = False,
    confirm: Callable[[str], bool] | None = None,
) -> IndexReport:
    """Delete images from an index, and the texts that have no other image.

    Deleted items disappear from results immediately, with their metadata, thumbnails, cached files and log lines.
    `compact` removes their vectors from the disk. `index update` does not add deleted items again; `index add
    --restore-deleted` does.

    Give an interrupted deletion again to finish it: ids that the same request has deleted are passed over.

    Args:
        index: Folder of an index, or its address.
        ids: Ids of items, or paths of images.
        ids_from: A text file of ids, one per line.
        where: Delete the items that satisfy a condition: 'year < 1950'.
        texts: IDS and `where` name texts, not images.
        keep_texts: Keep the texts that have no other image.
        dry_run: List the items that would be deleted, and delete none.
        confirm: Called before the items of a condition are deleted, with a sentence of their number; the command line
            asks.

    Returns:
        Number of deleted items of each side.

    Raises:
        RequirementError: If no item is named, and for an id that is not in the index. Then nothing is deleted.
        DataError: If the file of ids cannot be read.
    """
    from subtext.retrieval.condition import matching, parse
    from subtext.retrieval.journal import journal
    from subtext.retrieval.neighbours import refresh
    from subtext.retrieval.query import ids_of
    from subtext.retrieval.stores.item import SIDES, deletion_hash
    from subtext.retrieval.stores.registry import open_store
    from subtext.retrieval.stores.store import keys_after

    store, side = open_store(index), SIDES[int(texts)]
    names = list(ids)
    if ids_from is not None:
        try:
            lines = Path(ids_from).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise DataError(
                f"ids_from needs a text file of ids, one per line; {ids_from} cannot be read: {problem}",
                field="ids_from",
            ) from problem
        names += [line for line in lines if line.strip()]
    if not names and not where:
        raise RequirementError(
            "a deletion needs ids, a file of them (", Setting("ids_from"), "), or a condition (", Setting("where"), ")"
        )
    conditions = [parse(text) for text in where]
    # The journal knows the request by a digest, as it must not keep the ids of deleted items.
    request = json.dumps([side, sorted(names), list(where), keep_texts]).encode()
    source = {"request": hashlib.blake2b(request, digest_size=16).hexdigest()}

    def chosen(view: View) -> list[str]:
        """The ids of the items to delete."""
        again = any(job.verb == "delete" and job.source == source for job in journal(view))
        known = ids_of(view, side, names)
        absent = sorted(set(names) - set(known))
        hashes = {name: deletion_hash(side, name) for name in absent} if again else {}
        before = view.deleted_among(list(hashes.values()))
        missing = [name for name in absent if hashes.get(name) not in before]
        if missing:
            raise RequirementError(
                f"a deletion needs ids that are in the index, or paths of its images; {len(missing)} of {len(names)} "
                f"are not, the first is '{missing[0]}'; nothing was deleted"
            )
        if not where:
            return [known.get(name, name) for name in names]
        # The first time, a field that no item has is a mistake; then it may be gone with the items.
        keys = matching(view, side, conditions, strict=not again)
        fulfilling = [item.id for item in view.items(side, keys_after(keys, -1, len(keys)))]
        return [name for name in known.values() if name in set(fulfilling)] if names else fulfilling

    if dry_run or (where and confirm is not None):
        with store.reading() as view:
            found = chosen(view)
        number = counted(len(found), side.removesuffix("s"))
        if dry_run:
            return IndexReport(str(store.path), (f"{number} would be deleted", *found), {side: len(found)})
        if confirm is not None and not confirm(f"Delete {number} with {' and '.join(where)}?"):
            return IndexReport(str(store.path), ("nothing was deleted",), {side: 0})
    with store.writing("delete") as writer:
        with store.reading() as view:
            names = chosen(view)
        job = writer.begin("delete", source=source, total=len(names))
        counts = writer.delete(side, names, keep_texts=keep_texts)
        complete = refresh(writer)
        writer.finish(job)
    line = f"{items_counted(counts)} deleted"
    if sum(counts.values()):
        line += "; `subtext index compact` removes their vectors from the disk"
    if not complete:
        line += "; others change the index: neighbours of some images are computed by the next command"
    return IndexReport(str(store.path), (line, *advice(store)), dict[str, int](counts.items()))


@command
def compact_index(
    index: IndexArgument,
    *,
    seed: Annotated[int, "Seed of the sample that lists are trained on.", _INDEX] = 0,
    recall: Annotated[
        float | None,
        "Share of the ten nearest items that searches of a large index find. Default: as before, at first 0.98.",
        Interval(0.1, 1),
        _INDEX,
    ] = None,
    by_hand: Annotated[
        str | None,
        "Numbers that are set, not chosen, such as probes=64,candidates=40; '' to choose all again. A folder has lists "
        "and probes, LanceDB bits and candidates as well.",
        Metavar("NAME=NUMBER,..."),
        _INDEX,
    ] = None,
    cache_size: Annotated[
        int | None,
        "Megabytes of lists that each reader of an index in LanceDB keeps in memory. Default: that of the index, at "
        "first 256.",
        Interval(1, 2**20),
        Metavar("MEGABYTES"),
        _INDEX,
    ] = None,
) -> IndexReport:
    """Remove deleted vectors from the disk, merge segments, and sort a large index into lists.

    With more than 200,000 vectors per modality, a query searches only some lists. Their number is chosen for a measured
    recall@10. In PostgreSQL, an HNSW graph is built from 20,000 vectors on, and its candidates are chosen likewise (m,
    ef_search and graph in the address change it); in LanceDB, lists of codes from 50,000 on. Where nothing finds enough
    for less than comparing every vector, every vector is compared, and `subtext index info` says so.

    Args:
        index: Folder of an index, or its address.
        seed: Seed of the sample that lists are trained on.
        recall: Share of the ten nearest items that searches of a large index find; kept in the index.
        by_hand: Numbers of lists and searches that are set, not chosen; kept in the index until another recall is
            asked.
        cache_size: Megabytes of lists that each reader of an index in LanceDB keeps in memory; kept in the index.

    Returns:
        What was done, and the size before and after.

    Raises:
        ArgumentError: For numbers that the store of this index does not have, or out of their range.
    """
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    before = store.bytes
    with store.writing("compact") as writer:
        manifest = writer.manifest
        if recall is not None:
            manifest = replace(manifest, recall=recall, by_hand={})
        if by_hand is not None:
            manifest = replace(manifest, by_hand=_set_by_hand(store, by_hand))
        if cache_size is not None:
            if not store.caches_lists:
                raise ArgumentError(f"cache_size is of an index in LanceDB; {store.path} leaves that to the system")
            manifest = replace(manifest, cache=cache_size * 2**20)
        if manifest != writer.manifest:
            writer.change_manifest(manifest)
        lines = writer.compact(seed=seed)
    if recall is not None:
        lines = [*lines, *_searched_exactly(store)]
    after = store.bytes
    numbers = {"bytes_before": before, "bytes": after}
    return IndexReport(str(store.path), (f"{size(before)} are now {size(after)}", *lines), numbers)


def _searched_exactly(store: Store) -> list[str]:
    """A sentence on the sides that are too small for lists, of which a search finds all."""
    most = store.manifest.exact_up_to
    with store.reading() as view:
        rows = {side: view.counts[side] * store.manifest.views_of(side) for side in ("images", "texts")}
    small = [side for side, number in rows.items() if 0 < number <= most]
    if not small:
        return []
    return [f"{' and '.join(small)}: searched exactly, with a recall of 1, as they have at most {most:,} vectors"]


def _set_by_hand(store: Store, text: str) -> dict[str, int]:
    """Numbers of lists and searches as they are written.

    Raises:
        ArgumentError: For a name that the store has not, and for a number out of range.
    """
    numbers = dict[str, int]()
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        least, most = store.settable.get(name, (1, 0))
        number = int(value) if re.fullmatch("[0-9]{1,9}", value) else -1
        if not least <= number <= most:
            known = ", ".join(f"{own}={low:,} to {high:,}" for own, (low, high) in store.settable.items())
            raise ArgumentError(
                f"by_hand takes {known or 'nothing, as this store has m and ef_search in its address'}; it got {part!r}"
            )
        numbers[name] = number
    if "bits" in numbers and store.manifest.width % 8:
        raise ArgumentError(
            f"by_hand takes bits where vectors have a multiple of 8 numbers; those of {store.path} have "
            f"{store.manifest.width}; leave bits out"
        )
    return numbers


@command
def index_info(index: IndexArgument) -> IndexInfo:
    """Show the contents of an index: items, vectors, size, fields, model, and interrupted jobs.

    Args:
        index: Folder of an index, or its address.

    Returns:
        Items, vectors, size, fields, model, jobs and advice.
    """
    from subtext.retrieval.calibration import STALE, changed_since, stored_calibration
    from subtext.retrieval.journal import journal
    from subtext.retrieval.ranker import is_stale, stored_ranker
    from subtext.retrieval.stores.item import SIDES
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    with store.reading() as view:
        stats, counts, jobs = view.stats(), view.counts, journal(view)
        fields = {str(side): view.fields(side) for side in SIDES}
        ranker = stored_ranker(view)
        compared = view.space_counts.get("sentences", 0)
        evidence = "" if ranker is None else ranker.summary
        evidence += "; stale: more than a tenth of the items have changed" if ranker and is_stale(view, ranker) else ""
        calibrated, calibration = "", stored_calibration(view)
        if calibration is not None:
            images, changed = counted(calibration.data["images"], "image"), changed_since(view, calibration)
            calibrated = f"{calibration.created}, by {images} of split {calibration.data['split']}"
            calibrated += f"; stale: {100 * changed:.0f} % were added or deleted since" if changed > STALE else ""
    manifest = json.loads(store.manifest.to_json())
    recorded = recorded_sources(store)
    if manifest["data"].get("data") and recorded:
        manifest["data"] |= {"data": str(recorded[0][0].data), "split": recorded[0][1]}
    return IndexInfo(
        path=str(store.path),
        manifest=manifest,
        counts=dict[str, int](counts.items()),
        bytes=stats.bytes,
        fields=fields,
        facts=stats.facts,
        jobs=tuple(asdict(job) for job in jobs),
        advice=tuple(advice(store)),
        calibrated=calibrated,
        evidence=evidence,
        vectors=vector_shape(store.manifest),
        further_data=tuple(str(sources.data) for sources, _ in recorded[1:]),
        compared=compared,
    )


def recorded_sources(store: Store) -> list[tuple[DataConfig, str]]:
    """The data sets and splits that an index is made of, each once.

    An update from a new place replaces the earlier one.

    Args:
        store: The index.

    Returns:
        Data sets with their splits; those in memory, which cannot be read again, are not among them.
    """
    from subtext.retrieval.journal import journal

    with store.reading() as view:
        jobs = journal(view)
    sources, replacing = list[tuple[DataConfig, str]](), list[tuple[DataConfig, str]]()
    for job in jobs:
        if job.source is None or not job.source.get("data"):
            continue
        source = DataConfig.from_json(job.source), job.source.get("split") or "all"
        former = job.source.get("instead_of")
        if former is None:
            sources.append(source)
        elif job.finished is not None:
            replacing.append(source)
            if former:  # The last data set of the update: its place is taken over at once, or not at all.
                others = [earlier for earlier in sources if str(earlier[0].data) not in former]
                sources = [new for new in replacing if new[0].data == source[0].data] + others
    # What a path was first read as stays: uploads to a server are recorded without it.
    forms = {known.data: known.form for known, _ in reversed(sources) if known.form is not None}
    return list(dict.fromkeys((replace(known, form=forms.get(known.data)), split) for known, split in sources))


@command
def verify_index(index: IndexArgument) -> VerifyResult:
    """Read every byte of an index, compare checksums, and list the damage.

    The exit code of the command is 1 if there is any damage.

    Args:
        index: Folder of an index, or its address.

    Returns:
        The damage; empty for an intact index.
    """
    from subtext.retrieval.stores.registry import is_address, open_store
    from subtext.retrieval.verification import verify

    problems = verify(index)
    path = str(open_store(index).path) if is_address(index) else str(index)
    return VerifyResult(path, tuple((problem.where, problem.what) for problem in problems))


@command
def backup_index(
    index: IndexArgument, out: Annotated[str | Path, "New folder of the backup.", _INDEX, Metavar("BACKUP")]
) -> IndexReport:
    """Copy an index into a new folder; others can search and change the index during the copy.

    Args:
        index: Folder of an index, or its address.
        out: New folder of the backup.

    Returns:
        What was copied.
    """
    from subtext.retrieval.stores.folder import Folder, backup

    _require_folder(index)
    _require_path(out)
    copy = backup(Folder(index), Path(out))
    line = f"a copy of {index} as of change {copy.manifest.generation:,}, {size(copy.bytes)}, checked file by file"
    return IndexReport(str(out), (line,))


@command
def restore_index(
    backup: Annotated[str | Path, "Folder of a backup.", _INDEX, Metavar("BACKUP")], index: IndexArgument
) -> IndexReport:
    """Verify a backup, and restore it to a new index folder.

    Args:
        backup: Folder of a backup.
        index: Folder of an index, or its address.

    Returns:
        What was restored.

    Raises:
        SearchIndexError: If the backup is damaged, naming what is, or the folder holds something.
    """
    from subtext.retrieval.stores.folder import Folder, backup as copied
    from subtext.retrieval.verification import verify

    _require_folder(index)
    _require_path(backup)
    copy, out = Path(backup), Path(index)
    Folder.require_free(out)
    if problems := verify(copy):
        parts = "; ".join(f"{problem.where}: {problem.what}" for problem in problems[:3])
        raise SearchIndexError(f"{copy} is damaged and cannot be restored; {parts}; take another backup")
    store = copied(Folder(copy), out)
    return IndexReport(str(index), (f"restored from {backup}, {size(store.bytes)}",))


def items_counted(counts: Mapping[Any, int]) -> str:
    """Numbers of images and texts, in words.

    Args:
        counts: Number of "images" and "texts".

    Returns:
        A phrase such as "1 image and 2 texts".
    """
    return f"{counted(counts['images'], 'image')} and {counted(counts['texts'], 'text')}"


def advice(store: Store, *, pictures: bool = True) -> list[str]:
    """Recommended steps for an index.

    Args:
        store: The index.
        pictures: Whether each image is looked for that cannot be shown.

    Returns:
        A sentence per recommended step; empty if there is none.
    """
    from subtext.retrieval.pictures import missing_pictures
    from subtext.retrieval.stores.item import SIDES

    with store.reading() as view:
        stats = view.stats()
    reasons = [
        f"{stats.unindexed[side]:,} vectors of {side} are all compared at every search"
        for side in SIDES
        if stats.unindexed[side] > store.manifest.exact_up_to
    ]
    facts = stats.facts
    if "segments" in facts:
        for side in facts["rows"]:
            if facts["dead_rows"][side] > DEAD * max(1, facts["rows"][side]):
                reasons.append(f"{counted(facts['dead_rows'][side], 'vector')} of deleted {side} still on the disk")
            if facts["segments"][side] > MANY:
                reasons.append(f"{side} lie in {facts['segments'][side]} segments")
        if facts["earlier_stores"] and os.access(store.path, os.W_OK):
            reasons.append(f"vectors of an earlier model are still there ({', '.join(facts['earlier_stores'])})")
    shown = missing_pictures(store).sentence if pictures else ""
    command = f"`subtext index compact {shlex.quote(str(store.path))}`"
    steps = [f"{command} is worth while: {'; '.join(reasons)}"] if reasons else []
    return [*steps, *([shown] if shown else [])]


def vector_shape(manifest: Manifest) -> str:
    """The vectors of an index: K views and width.

    Args:
        manifest: Describes the index: model, width and views of the vectors, root of the paths.

    Returns:
        Such as "512" or "4 x 512".
    """
    images, texts = manifest.views["images"], manifest.views["texts"]
    views = f"{images} x " if images == texts and images > 1 else f"{images} and {texts} x " if images != texts else ""
    return f"{views}{manifest.width}{' in float16' if manifest.numbers == 'float16' else ''}"


def _encoder_shown(encoder: Mapping[str, Any] | None, compared: int, texts: int) -> str:
    """The sentence encoder of an index, and how many texts it leaves to their words."""
    if encoder is None:
        return "none: texts are compared by the model and by their words alone"
    reads = f", reads {' '.join(encoder['languages'])}" if encoder["languages"] else ""
    left = f"; {texts - compared:,} of {texts:,} texts are left to their words" if compared < texts else ""
    return f"{encoder['name']}, {encoder['width']} numbers{reads}{left}"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_fact(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _require_folder(index: str | Path) -> None:
    """Raise RequirementError for an index in a database, which has its own tools for backups."""
    from subtext.retrieval.stores.registry import is_address

    if is_address(index):
        raise RequirementError(
            "backups of an index in PostgreSQL are made by PostgreSQL's own tools, while it is in use: pg_dump "
            "--format=custom --schema=NAME --file=COPY DATABASE, and pg_restore --dbname=DATABASE COPY; one in LanceDB "
            "is backed up by a copy of its folder or bucket, while nobody writes to it or compacts it"
        )


def _require_path(backup: str | Path) -> None:
    """Raise RequirementError for an address in the place of a backup; only its scheme is shown."""
    from subtext.retrieval.stores.registry import is_address

    if is_address(backup):
        raise RequirementError(
            f"BACKUP needs to be a folder on this machine; it got an address of {str(backup).partition('://')[0]}://; "
            "name a folder, and copy it there by the tools of that storage"
        )


LONG = 10
"""Words from which a text is recognised by its words alone: shorter ones are said of many images."""
ALLOWED = 0.01
"""Share of images, or of texts, that may be in the training data: names and sentences coincide."""
DIRECTIONS = {"images": "text to image", "texts": "image to text"}


@dataclass(frozen=True, repr=False)
class CalibrationReport(Report):
    """The calibration of an index.

    Attributes:
        path: The index.
        plot: The path of its reliability plot.
        calibration: Directions, pairs, and the measurements of each direction.
        ranker: How evidence is weighed by these pairs; None where too few of their images are in the index.
    """

    path: str
    plot: str
    calibration: Calibration
    ranker: Ranker | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            index, plot, the calibration, and the ranker.
        """
        ranker = None if self.ranker is None else json.loads(self.ranker.to_json())
        return {"index": self.path, "plot": self.plot, **json.loads(self.calibration.to_json()), "ranker": ranker}

    def _lines(self) -> list[str]:
        data = self.calibration.data
        images, texts = counted(data["images"], "image"), counted(data["texts"], "text")
        split = f"split {data['split']} of {data['data']}"
        lines = [f"{self.path}: calibrated by {images} and {texts} of {split}; one half fitted, the other measured"]
        for side, direction in self.calibration.directions.items():
            measured = direction.metrics
            lines.append(
                f"  {DIRECTIONS[side]}: calibration error {measured['calibration_error']:.3f} (in bins of equal counts "
                f"{measured['calibration_error_equal_counts']:.3f}, of first hits "
                f"{measured['calibration_error_first']:.3f}); {measured['hits']:,.0f} hits, "
                f"{100 * measured['correct']:.1f} % right; nothing is said to match for "
                f"{100 * measured['false_no_match']:.1f} % of queries with an answer"
            )
        pairs = self.calibration.pairs
        error = f"calibration error {pairs['calibration_error']:.3f}"
        lines.append(f"  single pairs: {error}, {pairs['pairs']:,} right pairs")
        if self.ranker is None:
            lines.append("  evidence: weighed as before; too few of these images are in the index")
        else:
            measured = {} if self.ranker.direction is None else self.ranker.direction.metrics
            said = f"calibration error {measured['calibration_error']:.3f}" if measured else self.ranker.about["note"]
            lines.append(f"  evidence: weighed by {self.ranker.about['queries']:,} of these texts{said and '; '}{said}")
        return [*lines, f"plot: {self.plot}"]


@command(defaults=DEFAULTS)
def calibrate_index(
    index: IndexArgument,
    data: Annotated[
        str | Path | Dataset | Rows, "Data set of the held-out pairs.", Flag("--data"), _HELD_OUT_PAIRS, Metavar("DATA")
    ],
    *,
    split: Annotated[str, "A split used neither for training nor for model selection.", _HELD_OUT_PAIRS],
    skip_leak_check: Annotated[
        bool, "Do not check whether the pairs were used for training or model selection.", _HELD_OUT_PAIRS
    ] = False,
    seed: Annotated[int, "Seed of the halves and of random pairs.", _HELD_OUT_PAIRS] = 0,
    run: IndexRun = None,
    model: IndexPretrained = None,
    **options: Unpack[ModelOptions],
) -> CalibrationReport:
    """Calibrate an index: turn its scores into probabilities of a match, with pairs that its model has not seen.

    The calibration is fitted on one half of the pairs; its error is measured on the other half. The index stores the
    calibration and its reliability plot. Then `subtext search` shows probabilities, accepts --min-probability, and
    reports when nothing matches well. Calibrate again when more than a tenth of the items were added or deleted.

    Args:
        index: Folder of an index, or its address.
        data: Data set of the held-out pairs.
        split: A split used neither for training nor for model selection.
        skip_leak_check: Do not check whether the pairs were used for training or model selection.
        seed: Seed of the halves and of random pairs.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        **options: Options of reading the data and of embedding; see `ModelOptions`.

    Returns:
        The calibration with its measurements, and the place of the plot.

    Raises:
        RequirementError: For pairs that the model was trained on, or if this cannot be checked.
        SearchIndexError: If another model made the index.
    """
    from subtext.retrieval.stores.registry import open_store

    store = open_store(index)
    model_source = ModelSource.of_index(store.manifest, run, model, index=str(store.path))
    from subtext.report.plots import ReliabilityDiagram, reliability_diagrams
    from subtext.retrieval.build import require_model
    from subtext.retrieval.calibration import store_calibration
    from subtext.retrieval.confidence import HeldOutPairs, fit_calibration

    work = EvaluationSubject.of(model_source, split, data=data, **options)
    opened = open_subject(work)
    require_model(store, store.manifest, opened.model)
    if not skip_leak_check:
        _require_unseen(opened, work.sources)
    source = {"data": work.sources.name, "split": opened.split, "checked": not skip_leak_check}
    calibration = fit_calibration(store, HeldOutPairs(opened.pairs, *opened.embed(work)), data=source, seed=seed)
    diagrams = [
        ReliabilityDiagram(
            DIRECTIONS[side],
            f"calibration error {direction.metrics['calibration_error']:.3f}, {direction.metrics['hits']:,.0f} hits",
            direction.bins["predicted"],
            direction.bins["came_true"],
            direction.bins["counts"],
        )
        for side, direction in calibration.directions.items()
    ]
    plot = store_calibration(store, calibration, reliability_diagrams(diagrams))
    return CalibrationReport(
        str(store.path), plot, calibration, _teach(store, opened, work.sources, calibration, source, seed)
    )


def names_learnt(record: Record | None, sources: DataConfig) -> tuple[set[str] | None, str]:
    """Names of what a model was trained on.

    Args:
        record: Of its training; None for a pretrained model.
        sources: Where the data are now.

    Returns:
        The names, None for everything; and a note where nobody can say.
    """
    if record is None:
        return set(), ""
    try:
        return names_of(read_data_of_run(record, sources).split(record.data.train_split)), ""
    except (DataError, RequirementError) as problem:
        return None, f"the data of the model cannot be read ({problem}), so that all images count as trained on"


def _teach(
    store: Store,
    opened: LoadedRun,
    sources: DataConfig,
    calibration: Calibration,
    source: Mapping[str, Any],
    seed: int,
) -> Ranker | None:
    """Fit the ranker of an index by held-out pairs, and store it; None where too few of the images are in the index."""
    from subtext.data.features import FeatureInput
    from subtext.retrieval.learning import embedders_of, fit_given
    from subtext.retrieval.ranker import store_ranker

    if isinstance(opened.model.text.input_spec, FeatureInput):
        return None
    with store.reading() as view:
        used, note = names_learnt(opened.record, sources)
        ranker = fit_given(view, opened.pairs, embedders_of(store, opened.model), used, data=source, seed=seed)
    if ranker is None:
        return None
    ranker = replace(ranker, about={**ranker.about, "note": note})
    pixels = calibration.directions.get("images")
    if ranker.direction is not None and pixels is not None:
        errors = [own.metrics["calibration_error"] for own in (ranker.direction, pixels)]
        if errors[0] > errors[1]:
            note = (
                f"no probability: its calibration error would be {errors[0]:.3f}, and {errors[1]:.3f} by pixels alone"
            )
            ranker = replace(ranker, direction=None, about={**ranker.about, "note": note})
    with store.writing("calibrate") as writer:
        store_ranker(writer, ranker)
    return ranker


def names_of(pairs: Dataset) -> set[str]:
    """Names by which pairs are recognised: ids and paths of images, and texts that are long enough.

    Args:
        pairs: Images and texts.

    Returns:
        The names.
    """
    from subtext.data.text import tokenise

    values = [value for value in pairs.texts.values if isinstance(value, str)]
    paths = [value for value in pairs.images.values if isinstance(value, str)]
    return {*pairs.images.ids, *paths, *(value for value in values if len(tokenise(value)) >= LONG)}


def _require_unseen(opened: LoadedRun, sources: DataConfig) -> None:
    """Raise RequirementError where the run was trained on, or selected by, some of the pairs, or nobody can say.

    Images are compared by their names, longer texts by their words.
    """
    import numpy as np

    pairs, record = opened.pairs, opened.record
    if record is None:
        raise RequirementError(
            "calibration needs pairs used neither for training nor for model selection, and nothing here records what "
            "a pretrained model was trained on; give pairs of your own archive, and skip this check (",
            Setting("skip_leak_check"),
            ")",
        )
    try:
        dataset = read_data_of_run(record, sources)
    except (DataError, RequirementError) as problem:
        raise RequirementError(
            "calibration needs pairs used neither for training nor for model selection, and the run's own data "
            f"cannot be read ({problem}); put it back, or skip this check (",
            Setting("skip_leak_check"),
            ")",
        ) from problem
    for split in (record.data.train_split, record.data.val_split):
        if split is None or (split != "all" and split not in dataset.counts()):
            continue
        used = names_of(dataset.split(split))
        images = [
            name in used or (isinstance(value, str) and value in used)
            for name, value in zip(pairs.images.ids, pairs.images.values, strict=True)
        ]
        texts = [value in used for value in pairs.texts.values if isinstance(value, str)]
        for leaked, noun in ((images, "image"), (texts, "text")):
            if leaked and float(np.mean(leaked)) > ALLOWED:
                raise RequirementError(
                    "calibration needs pairs used neither for training nor for model selection; of "
                    f"{counted(len(leaked), noun)} {sum(leaked):,} are in split '{split}' of the run's data, which the "
                    "model was made with: its scores there are too good; give another split, or other data"
                )
