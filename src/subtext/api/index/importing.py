"""`subtext.import_index`: vectors that were computed elsewhere, with the ids of their items, become an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.index.build import IndexArgument
from subtext.api.index.maintain import IndexReport, advice
from subtext.api.options import Metavar, Section, verb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from subtext.data.dataset import Dataset
    from subtext.search.stores.item import Side
    from subtext.search.stores.manifest import Manifest
    from subtext.search.stores.store import Writer

BLOCK = 65_536
"""Items that are put in and acknowledged at a time."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file.

    ids      of each side its items' ids; empty for a side that the file does not have
    vectors  (N K D) float32
    groups   an image and a text of one group are linked; only where the file has groups
    """

    ids: dict[Side, list[str]]
    vectors: dict[Side, NDArray[np.float32]]
    groups: dict[Side, NDArray[np.int64]]


@verb
def import_index(
    index: IndexArgument,
    vectors: Annotated[str | Path, "An .npz or .parquet of vectors.", Section("Index"), Metavar("VECTORS")],
    *,
    data: Annotated[
        str | Path | None, "Data set with paths, texts and metadata of the ids.", Section("Items"), Metavar("DATA")
    ] = None,
    images: Annotated[str | Path | None, "Folder that image paths start from.", Section("Items")] = None,
    run: Annotated[
        str | Path | None,
        "Run whose model computed the vectors. Without it the index cannot be searched by words.",
        Section("Model"),
        Metavar("RUN"),
    ] = None,
) -> IndexReport:
    """Import vectors that were computed elsewhere into a new index, or into one of the same model.

    The file is laid out as `subtext embed` writes it: image_ids, image_vectors, text_ids, text_vectors, and optionally
    image_groups and text_groups: images and texts of equal groups are linked.

    Raises DataError when the file is laid out otherwise, or its ids are not unique or not in the data; IndexError_
    when the index is of another model or width.
    """
    from subtext.data.read import read
    from subtext.errors import IndexError_, counted
    from subtext.search.stores.item import SIDES
    from subtext.search.stores.store import create_store, exists, open_store

    file = Path(vectors)
    content = read_vectors(file)
    dataset = None
    if data is not None:
        folder = None if images is None else Path(images)
        dataset = read(Path(data).expanduser(), images=folder, need_images=False)
    manifest = _manifest(content, None if run is None else Path(run), dataset, file)
    if exists(index):
        store = open_store(index)
        if store.manifest.fingerprint != manifest.fingerprint:
            raise IndexError_(
                f"{store.path} needs vectors of the model that made it ({store.manifest.fingerprint[:12]}); these are "
                f"said to be of another ({manifest.fingerprint[:12]}); name its run (--run), or a new folder"
            )
    else:
        store = create_store(index, manifest)
    with store.writing("import") as writer:
        total = sum(map(len, content.ids.values()))
        job = writer.begin("import", source={"file": str(file.resolve())}, total=total)
        for side in SIDES:
            _put(writer, side, content, dataset, job)
        writer.finish(job)
        writer.compact_large()
    counts = {str(side): len(content.ids[side]) for side in SIDES}
    line = f"vectors of {counted(counts['images'], 'image')} and {counted(counts['texts'], 'text')} put in"
    return IndexReport(str(store.path), (line, *advice(store)), counts)


def read_vectors(file: Path) -> VectorFile:
    """The vectors of an .npz or .parquet that `subtext embed` wrote, or that is laid out like one."""
    import numpy as np

    from subtext.errors import DataError
    from subtext.search.stores.item import SIDES

    if not file.is_file():
        raise DataError(f"an import needs a file of vectors; {file} is not there")
    if file.suffix == ".npz":
        columns = _npz(file)
    elif file.suffix == ".parquet":
        columns = _parquet(file)
    else:
        raise DataError(f"an import needs an .npz or a .parquet as `subtext embed` writes them; it got {file.name}")
    ids: dict[Side, list[str]] = {"images": [], "texts": []}
    vectors: dict[Side, NDArray[np.float32]] = {}
    groups: dict[Side, NDArray[np.int64]] = {}
    for side, prefix in zip(SIDES, ("image", "text"), strict=True):
        if f"{prefix}_ids" not in columns:
            continue
        ids[side] = [str(name) for name in columns[f"{prefix}_ids"]]
        array = np.asarray(columns[f"{prefix}_vectors"], dtype=np.float32)
        vectors[side] = array[:, None] if array.ndim == 2 else array
        if vectors[side].ndim != 3 or len(vectors[side]) != len(ids[side]):
            raise DataError(
                f"{file} needs one vector, or K, for each id; {side} have {len(ids[side])} and {array.shape}"
            )
        if len(set(ids[side])) < len(ids[side]):
            raise DataError(f"{file} needs each id once on a side; some of the {side} are there twice")
        if f"{prefix}_groups" in columns:
            groups[side] = np.asarray(columns[f"{prefix}_groups"], dtype=np.int64)
    widths = {array.shape[2] for array in vectors.values()}
    if len(widths) != 1:
        raise DataError(
            f"{file} needs image_ids and image_vectors, or text_ids and text_vectors, of one width; it has "
            f"{', '.join(columns) or 'nothing'}"
        )
    return VectorFile(ids, vectors, groups)


def _npz(file: Path) -> dict[str, Any]:
    import numpy as np

    from subtext.data.arrays import open_npz

    names = tuple(f"{prefix}_{part}" for prefix in ("image", "text") for part in ("ids", "vectors", "groups"))
    found = open_npz(file, names)
    return {n: np.asarray(v, dtype=np.float32) if n.endswith("vectors") else np.asarray(v) for n, v in found.items()}


def _parquet(file: Path) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from subtext.errors import DataError

    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as problem:
        raise DataError(f"{file} needs to be a whole Parquet file; {problem}") from problem
    if not {"modality", "id", "vector"} <= set(table.column_names):
        raise DataError(f"{file} needs columns modality, id and vector; it has {', '.join(table.column_names)}")
    found: dict[str, Any] = {}
    for modality in ("image", "text"):
        own = table.filter(pa.compute.equal(table["modality"], modality))
        if not own.num_rows:
            continue
        found[f"{modality}_ids"] = own["id"].to_pylist()
        found[f"{modality}_vectors"] = np.asarray(own["vector"].to_pylist(), dtype=np.float32)
        if "group" in own.column_names:
            found[f"{modality}_groups"] = own["group"].to_numpy()
    return found


def _manifest(found: VectorFile, run: Path | None, pairs: Dataset | None, file: Path) -> Manifest:
    """The manifest that an index of these vectors has."""
    import hashlib
    from datetime import UTC, datetime

    from subtext.errors import RequirementError
    from subtext.search.stores.item import SIDES
    from subtext.search.stores.manifest import Manifest
    from subtext.version import __version__

    width = next(iter(found.vectors.values())).shape[2]
    views: dict[str, int] = {side: found.vectors[side].shape[1] if side in found.vectors else 1 for side in SIDES}
    if run is None:
        # No model is known: vectors of the same width are taken to be of one.
        unknown = hashlib.blake2b(f"unknown {width}".encode(), digest_size=16).hexdigest()
        root = Path() if pairs is None else pairs.root
        return Manifest(
            fingerprint=unknown,
            run="",
            host="",
            width=width,
            views=views,
            root=str(root.resolve()),
            data={"file": str(file.resolve())},
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
        )
    from subtext.api.load import open_run
    from subtext.models.similarity.probabilistic import ClosedFormDistance
    from subtext.search.build import new_manifest

    opened = open_run(run)
    if isinstance(opened.model.similarity, ClosedFormDistance):
        raise RequirementError(
            "an import needs the vectors that the run's own index holds, with the variances in them; `subtext embed` "
            "writes means beside uncertainties; build the index from the run (subtext index build)"
        )
    return new_manifest(
        opened.model.indexed("an index"),
        views=views,
        width=width,
        root=Path() if pairs is None else pairs.root,
        run=str(run.expanduser().resolve()),
        host=opened.record.model,
        source={"file": str(file.resolve())},
    )


def _put(writer: Writer, side: Side, content: VectorFile, dataset: Dataset | None, job: int) -> None:
    import hashlib

    import numpy as np

    from subtext.search.stores.item import SIDES, Change, Entry

    ids, about = content.ids[side], _about(side, content.ids[side], dataset)
    links = _links(content, dataset) if side == "texts" else []
    for start in range(0, len(ids), BLOCK):
        block, vectors = ids[start : start + BLOCK], content.vectors[side][start : start + BLOCK]
        stored = writer.rows_of(side, block)
        new, amended, rows = list[Entry](), list[Entry](), list[int]()
        for row, name in enumerate(block):
            path, text, metadata = about.get(name, (None, None, {}))
            digest = hashlib.blake2b(np.ascontiguousarray(vectors[row]).tobytes(), digest_size=16).digest()
            entry, before = Entry(name, digest, path=path, text=text, metadata=metadata), stored.get(name)
            if before is None or before.content != digest:
                new.append(entry)
                rows.append(row)
            elif before.digest != entry.digest(SIDES.index(side), before.key):
                amended.append(entry)
        own = set(block)
        chosen = [pair for pair in links if pair[1] in own]
        writer.put(Change(side, new, vectors[rows], amended, chosen), job=job, done=start + len(block))


def _about(
    side: Side, ids: list[str], dataset: Dataset | None
) -> dict[str, tuple[str | None, str | None, dict[str, Any]]]:
    """Path, words and metadata of each id, from the data set."""
    if dataset is None:
        return {}
    items = dataset.images if side == "images" else dataset.texts
    about = {}
    for row, (name, value) in enumerate(zip(items.ids, items.values, strict=True)):
        metadata = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
        text = value if isinstance(value, str) else None
        own = (text, None) if side == "images" else (None, text)
        about[name] = (*own, {"split": str(items.splits[row]), **metadata})
    missing = [name for name in ids if name not in about]
    if missing:
        from subtext.errors import RequirementError

        raise RequirementError(
            f"the data set needs to know the ids of the vectors; {len(missing)} of {len(ids)} {side} are not in it, "
            f"first '{missing[0]}'; name the data that was embedded"
        )
    return about


def _links(content: VectorFile, dataset: Dataset | None) -> list[tuple[str, str]]:
    """Links of images and texts: those of the data set, else by the groups of the file."""
    if dataset is not None:
        return [(dataset.images.ids[image], dataset.texts.ids[text]) for image, text in dataset.links.tolist()]
    if not {"images", "texts"} <= set(content.groups):
        return []
    of_group: dict[int, list[str]] = {}
    for name, group in zip(content.ids["images"], content.groups["images"].tolist(), strict=True):
        of_group.setdefault(group, []).append(name)
    texts = zip(content.ids["texts"], content.groups["texts"].tolist(), strict=True)
    return [(image, text) for text, group in texts for image in of_group.get(group, [])]
