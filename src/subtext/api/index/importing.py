"""`subtext index import`: vectors that were made elsewhere, with the ids of their items."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext import __version__
from subtext.api.index.telling import advice
from subtext.data.arrays import open_npz
from subtext.data.dataset import Dataset
from subtext.data.read import read
from subtext.errors import DataError, IndexError_, RequirementError, counted
from subtext.models.similarity.closed_form_distance import ClosedFormDistance
from subtext.search.stores.change import Change
from subtext.search.stores.item import SIDES, Entry, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.opened import create_store, exists, make_lists, open_store
from subtext.search.stores.store import StoreWriter

PIECE = 65_536
"""Items that are put in and acknowledged at a time."""


@dataclass(frozen=True)
class Imported:
    """Vectors of a file.

    ids      of each side its items' ids; empty for a side that the file has not
    vectors  (N K D) float32
    groups   what belongs together, where the file says it: a picture and a text of one group are joined
    """

    ids: dict[Side, list[str]]
    vectors: dict[Side, NDArray[np.float32]]
    groups: dict[Side, NDArray[np.int64]]


def import_vectors(
    index: Path | str, file: Path, *, run: Path | None = None, data: Path | None = None, images: Path | None = None
) -> str:
    """Put the vectors of a file into an index, or into a new one; says how many.

    file    .npz or .parquet as `subtext embed` writes them
    run     whose model made them; without one the index answers vectors alone, by `View`, and no words
    data    the data set that says more of the ids: paths, words, metadata and links

    Raises DataError when the file is none of these, its ids are not unique or are not in the data; IndexError_ when
    the index is of another model or width.
    """
    found = read_vectors(file)
    pairs = None if data is None else read(data.expanduser(), images=images, need_images=False)
    manifest = _manifest(found, run, pairs, file)
    if exists(index):
        folder = open_store(index)
        if folder.manifest.fingerprint != manifest.fingerprint:
            raise IndexError_(
                f"{folder.path} needs vectors of the model that made it ({folder.manifest.fingerprint[:12]}); these "
                f"are said to be of another ({manifest.fingerprint[:12]}); name its run (--run), or a new folder"
            )
    else:
        folder = create_store(index, manifest)
    with folder.writing("import") as writer:
        total = sum(map(len, found.ids.values()))
        job = writer.begin("import", source={"file": str(file.resolve())}, total=total)
        for side in SIDES:
            _put(writer, side, found, pairs, job)
        writer.finish(job)
        make_lists(writer)
    counts = [counted(len(found.ids[side]), noun) for side, noun in zip(SIDES, ("picture", "text"), strict=True)]
    return "\n".join([f"{folder.path}: vectors of {' and '.join(counts)} put in", *advice(folder)])


def read_vectors(file: Path) -> Imported:
    """The vectors of an .npz or .parquet that `subtext embed` wrote, or that is laid out like one."""
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
    return Imported(ids, vectors, groups)


def _npz(file: Path) -> dict[str, Any]:
    names = tuple(f"{prefix}_{part}" for prefix in ("image", "text") for part in ("ids", "vectors", "groups"))
    found = open_npz(file, names)
    return {n: np.asarray(v, dtype=np.float32) if n.endswith("vectors") else np.asarray(v) for n, v in found.items()}


def _parquet(file: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

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


def _manifest(found: Imported, run: Path | None, pairs: Dataset | None, file: Path) -> Manifest:
    """The manifest that an index of these vectors has."""
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
    from subtext.search.making import new_manifest

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


def _put(writer: StoreWriter, side: Side, found: Imported, pairs: Dataset | None, job: int) -> None:
    ids = found.ids[side]
    about = _about(side, ids, pairs)
    links = _links(found, pairs) if side == "texts" else []
    for start in range(0, len(ids), PIECE):
        vectors = found.vectors[side][start : start + PIECE]
        known = writer.known(side, ids[start : start + PIECE])
        fresh, amended, places = [], [], []
        for place, name in enumerate(ids[start : start + PIECE]):
            path, text, metadata = about.get(name, (None, None, {}))
            content = hashlib.blake2b(np.ascontiguousarray(vectors[place]).tobytes(), digest_size=16).digest()
            entry = Entry(name, content, path=path, text=text, metadata=metadata)
            before = known.get(name)
            if before is None or before.content != content:
                fresh.append(entry)
                places.append(place)
            elif before.digest != entry.digest(SIDES.index(side), before.key):
                amended.append(entry)
        own = set(ids[start : start + PIECE])
        chosen = [pair for pair in links if pair[1] in own]
        writer.put(Change(side, fresh, vectors[places], amended, chosen), job=job, done=start + len(own))


def _about(
    side: Side, ids: list[str], pairs: Dataset | None
) -> dict[str, tuple[str | None, str | None, dict[str, Any]]]:
    """Path, words and metadata of each id, from the data set."""
    if pairs is None:
        return {}
    items = pairs.images if side == "images" else pairs.texts
    found = {}
    for row, (name, value) in enumerate(zip(items.ids, items.values, strict=True)):
        metadata = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
        text = value if isinstance(value, str) else None
        own = (text, None) if side == "images" else (None, text)
        found[name] = (*own, {"split": str(items.splits[row]), **metadata})
    missing = [name for name in ids if name not in found]
    if missing:
        raise RequirementError(
            f"the data set needs to know the ids of the vectors; {len(missing)} of {len(ids)} {side} are not in it, "
            f"first '{missing[0]}'; name the data that was embedded"
        )
    return found


def _links(found: Imported, pairs: Dataset | None) -> list[tuple[str, str]]:
    """Which picture goes with which text: as the data set says, else by the groups of the file."""
    if pairs is not None:
        return [(pairs.images.ids[image], pairs.texts.ids[text]) for image, text in pairs.links.tolist()]
    if not {"images", "texts"} <= set(found.groups):
        return []
    of_group: dict[int, list[str]] = {}
    for name, group in zip(found.ids["images"], found.groups["images"].tolist(), strict=True):
        of_group.setdefault(group, []).append(name)
    texts = zip(found.ids["texts"], found.groups["texts"].tolist(), strict=True)
    return [(image, text) for text, group in texts for image in of_group.get(group, [])]
