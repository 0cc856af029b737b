"""A folder of images in an object store: every image below it is an item, as in a folder of a disk (`images`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from subtext.data.addresses import is_address
from subtext.data.dataset import RowIssue
from subtext.data.embedded import FIELDS, SIDECAR, TEXT_FIELDS
from subtext.data.folders import IMAGES, SYSTEM, TABLES, Listing, families_of, suffix_of
from subtext.data.object_store import list_store, release
from subtext.data.readers.images import fields_inside, left_out
from subtext.data.rows import Columns, Row, Source, require_columns
from subtext.data.sidecars import Sidecars
from subtext.errors import DataError, Setting

PRIORITY = -2
LOOKS_FOR = "a folder of images in an object store (s3://, gs://, az://)"


def recognises(path: Path) -> bool:
    """Recognise a place in a store; nothing is asked.

    Args:
        path: A path.

    Returns:
        Whether it is such a place.
    """
    return is_address(path)


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """Read one item per image; its id is its path from the folder, with "/" between the parts.

    Args:
        path: The folder, or a whole bucket.
        images: None: the images lie there.
        columns: Role -> fields of `embedded`; its texts are `headline` and `caption` where no others are named.

    Returns:
        The rows, with the metadata inside the images, and a note on what is left out.

    Raises:
        DataError: If it is a table, or has one.
        StoreError: If it cannot be listed.
    """
    columns = {"text": TEXT_FIELDS, **(columns or {})}
    require_columns(columns, FIELDS, "an image")
    files = [] if suffix_of(path.name) in (*TABLES, ".tar") else list_store(path)
    named = [path.name] if not files else [name for name in files if "/" not in name]
    if table := next((name for name in named if suffix_of(name) in (*TABLES, ".tar")), None):
        raise DataError(
            f"a data set in a store is a folder of images alone; {path} has {table}; download that file, and name it (",
            Setting("data"),
            ") and the folder of its images (",
            Setting("images"),
            ")",
        )
    return Source(_rows(path, files, columns), Path())


def _rows(folder: Path, files: list[str], columns: Columns) -> Iterator[Row | RowIssue]:
    listing, others, unused = Listing(), Counter[str](), list[str]()
    for name in files:
        parts = name.split("/")
        if system := next(filter(SYSTEM.fullmatch, parts), None):
            listing.system[system] += suffix_of(name) in IMAGES
        elif any(part.startswith(".") for part in parts):
            listing.hidden += [name] * (suffix_of(name) in IMAGES)
        else:
            listing.files.append(name)
    yield from listing.notes(folder)
    for names in families_of(listing.files):
        sidecars, own = Sidecars(folder, names), [name for name in names if suffix_of(name) in IMAGES]
        stems = {*own, *(name.removesuffix(Path(name).suffix) for name in own)}
        for name in names:
            if name in own:
                yield Row(
                    f"image {name}",
                    f"{folder}/{name}",
                    name,
                    [],
                    metadata=dict(columns),
                    inside=lambda name=name, sidecars=sidecars: _inside(folder, name, sidecars, columns),  # type: ignore[misc]
                )
            elif suffix_of(name) != SIDECAR:
                others[suffix_of(name) or "no suffix"] += 1
            elif name[: -len(SIDECAR)] not in stems:
                unused.append(name)
    yield from left_out(folder, unused, others)


def _inside(folder: Path, name: str, sidecars: Sidecars, columns: Columns) -> Iterator[Row | RowIssue]:
    """The row of an image by what is written inside it, and in its sidecar."""
    sidecar, notes = sidecars.of(name)
    for row in fields_inside(folder, name, sidecar, notes, columns):
        yield replace(row, image=f"{folder}/{name}", image_id=name) if isinstance(row, Row) else row
    release([f"{folder}/{sidecar}"] if sidecar is not None else [])
