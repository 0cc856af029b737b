"""What an index needs to know of a model and of a data set: the model's fingerprint, and what is kept of each item."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.data.features import FeatureInput
from subtext.errors import DataError
from subtext.models.checkpoint import fingerprint
from subtext.models.model import Branch, Model
from subtext.search.stores.item import SIDES, Change, Entry, Row, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.store import Store, create_store, require_free
from subtext.version import __version__


def model_fingerprint(model: Model) -> str:
    """32 hexadecimal digits that change with any weight, and with how pictures and texts are read.

    A file of features is not part of it: it is the data's, not the model's.
    """
    digest = hashlib.blake2b(fingerprint(model.state_dict()).encode(), digest_size=16)
    for branch in (model.image, model.text):
        if not isinstance(branch.input_spec, FeatureInput):
            digest.update(branch.input_spec.fingerprint.encode())
    return digest.hexdigest()


def new_manifest(
    model: Model,
    *,
    views: Mapping[str, int],
    width: int,
    root: Path,
    run: str = "",
    host: str = "",
    source: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of an index that is to hold vectors of this model."""
    similarity = model.similarity
    return Manifest(
        fingerprint=model_fingerprint(model),
        run=run,
        host=host,
        width=width,
        scale=_number(similarity, "scale", 1.0),
        shift=_number(similarity, "shift", 0.0),
        views=dict(views),
        root=str(root.resolve()),
        data=dict(source or {}),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def build_index(
    out: Path | str,
    model: Model,
    pairs: Dataset,
    *,
    embeddings: tuple[Embeddings, Embeddings],
    run: str = "",
    host: str = "",
    source: Mapping[str, Any] | None = None,
) -> Store:
    """Write the index of a data set whose vectors are at hand.

    embeddings  of the pictures and of the texts of `pairs`, in their order, by `model`
    run, host   the folder and the recipe of the model, for the manifest
    source      where the pairs came from, as plain data

    Raises RequirementError for a model that only scores pairs; IndexError_ when `out` holds something.
    """
    model.require_indexable("an index")
    require_free(out)
    images, texts = embeddings
    views = {"images": images.views, "texts": texts.views}
    manifest = new_manifest(model, views=views, width=images.width, root=pairs.root, run=run, host=host, source=source)
    folder = create_store(out, manifest)
    with folder.writing("build") as writer:
        job = writer.begin("build", source=source, total=len(images) + len(texts))
        for side, found in zip(SIDES, (images, texts), strict=True):
            items, branch = side_of(pairs, model, side)
            rows = np.arange(len(items), dtype=np.int64)
            entries = entries_of(items, rows, side, branch, roots=(pairs.root, Path(manifest.root)))
            links = links_of(pairs) if side == "texts" else []
            writer.put(Change(side, entries, found.vectors.float().numpy(), links=links), job=job)
        writer.finish(job)
    return folder


def side_of(pairs: Dataset, model: Model, side: Side) -> tuple[Items, Branch]:
    """The items of a side, and the branch that embeds them."""
    return (pairs.images, model.image) if side == SIDES[0] else (pairs.texts, model.text)


def links_of(pairs: Dataset, texts: NDArray[np.int64] | None = None) -> list[tuple[str, str]]:
    """(picture id, text id) of each link, or of those of the chosen text rows."""
    links = pairs.links if texts is None else pairs.links[np.isin(pairs.links[:, 1], texts)]
    return [(pairs.images.ids[image], pairs.texts.ids[text]) for image, text in links.tolist()]


def entries_of(
    items: Items,
    rows: NDArray[np.int64],
    side: Side,
    branch: Branch,
    *,
    roots: tuple[Path, Path],
    known: Mapping[str, Row] | None = None,
) -> list[Entry]:
    """What an index keeps of the chosen items.

    roots  that the items' paths start from, and the index's
    known  of items that are there already: a file of the same path, size and time is not read again

    Raises DataError when a picture's file, or an item's features, cannot be read.
    """
    features = _digests(branch.input_spec, items, rows) if isinstance(branch.input_spec, FeatureInput) else None
    own, root = (place.resolve() for place in roots)
    entries = []
    for place, row in enumerate(rows.tolist()):
        value, name = items.values[row], items.ids[row]
        text = path = stamp = None
        content = b"" if features is None else features[place]
        if isinstance(value, str) and side == "texts":
            text = value
            content = content or _digest(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, str):
            path = value if own == root else _against(own / value, root)
            if features is None:
                content, stamp = _of_file(own / value, path, (known or {}).get(name))
        elif isinstance(value, bytes) and features is None:
            content = _digest(value)
        metadata = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
        metadata = {"split": str(items.splits[row]), **metadata}
        entries.append(Entry(name, content, path=path, text=text, metadata=metadata, stamp=stamp))
    return entries


def _digests(input_spec: FeatureInput, items: Items, rows: NDArray[np.int64]) -> list[bytes]:
    """Of each chosen item the digest of its features."""
    found = input_spec.rows([items.ids[row] for row in rows], [items.values[row] for row in rows])
    digests = [hashlib.blake2b(digest_size=16) for _ in rows]
    for rows_of_part in input_spec.taken(found).values():
        for digest, row in zip(digests, rows_of_part, strict=True):
            digest.update(np.ascontiguousarray(row).tobytes())
    return [digest.digest() for digest in digests]


def _of_file(file: Path, path: str, known: Row | None) -> tuple[bytes, str]:
    """The digest of a file's bytes, and its stamp; the known one where path, size and time are the same."""
    try:
        about = file.stat()
        stamp = f"{about.st_size} {about.st_mtime_ns}"
        if known is not None and known.stamp == stamp and known.path == path:
            return known.content, stamp
        return _digest(file.read_bytes()), stamp
    except OSError as problem:
        raise DataError(f"a picture of the data set cannot be read: {file}: {problem.strerror or problem}") from problem


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _against(file: Path, root: Path) -> str:
    """A path against the index's root where it lies inside it, else in full."""
    full = file.resolve()
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else str(full)


def _number(similarity: torch.nn.Module, name: str, default: float) -> float:
    value = getattr(similarity, name, None)
    if isinstance(value, torch.Tensor):
        value = value.detach().item()
    return default if value is None else float(value)
