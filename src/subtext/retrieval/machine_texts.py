"""Texts of images that a machine wrote, as an index keeps them: rows of texts that say so (`stores.item.MACHINE`).

They are signals of their own in a search (`ranker.BY_MACHINES`), and are shown behind what wrote them. No training
reads them: a training reads a data set, and they lie in the index alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from subtext.data.features import FeatureInput
from subtext.errors import RequirementError
from subtext.models.model import Model
from subtext.retrieval.build import require_model
from subtext.retrieval.journal import deleted_before
from subtext.retrieval.sentences import SentenceVectors
from subtext.retrieval.stores.documents import READ_BY_OCR
from subtext.retrieval.stores.item import (
    MACHINE,
    Change,
    DerivedRow,
    DerivedSpace,
    IndexEntry,
    StoredRow,
    machine_of,
)
from subtext.retrieval.stores.store import Store, View, Writer


def put_machine_texts(writer: Writer, model: Model, texts: Mapping[str, Sequence[str]], machine: str) -> int:
    """Put the texts of images that a machine wrote in the place of its former ones.

    Args:
        writer: Changes the index.
        model: The model of the index.
        texts: Id of an image of the index -> its texts; none to remove the former ones.
        machine: What wrote them.

    Returns:
        Number of texts that are new or changed; those that somebody has deleted are left out.

    Raises:
        RequirementError: If the model embeds no words, or a text of people has the id of one of a machine.
    """
    require_words(model)
    named = {
        f"{machine}:{image}" + (f":{number}" if number > 1 else ""): (image, text)
        for image, own in texts.items()
        for number, text in enumerate(filter(str.strip, own), start=1)
    }
    with writer.store.reading() as view:
        deleted = deleted_before(view, "texts", list(named))
        images = view.rows("images", ids=list(texts), links=True)
        keys = sorted({key for row in images for key in row.links})
        former = {row.id: row for row in view.rows("texts", keys=keys) if machine_of(row.metadata) == machine}
        own = [row.id for row in view.rows("texts", ids=list(named)) if not machine_of(row.metadata)]
    if own:
        raise RequirementError(
            f"texts of machines need ids that no other text has; the index has a text '{own[0]}' that people wrote; "
            "give that another id"
        )
    links = [(image, name) for name, (image, _) in named.items() if name not in deleted]
    entries = [
        IndexEntry(name, _digest(text), text=text, metadata={MACHINE: machine})
        for name, (_, text) in named.items()
        if name not in deleted and (name not in former or former[name].text != text)
    ]
    vectors = _embedded(model, [str(entry.text) for entry in entries]) if entries else None
    if gone := [name for name in former if name not in named]:
        writer.delete("texts", gone, remember=False)
    new = {entry.id for entry in entries}
    change = Change(
        "texts",
        entries=entries,
        vectors=vectors,
        links=[link for link in links if link[1] in new],
        exact_texts=frozenset(new),
        derived=_derived(writer, entries),
    )
    writer.put(change)
    return len(entries)


def require_words(model: Model) -> None:
    """Require a model that embeds words.

    Args:
        model: Any model.

    Raises:
        RequirementError: If its texts are features.
    """
    if isinstance(model.text.input_spec, FeatureInput):
        raise RequirementError(
            "texts of machines need a model that embeds words; the texts of this one are features; build the index "
            "with a model that reads words"
        )


def machine_rows(view: View, images: set[str] | None = None) -> list[StoredRow]:
    """The texts of an index that a machine wrote, with their links.

    Args:
        view: The index at one moment.
        images: Ids of images; None for all.

    Returns:
        The rows of the texts of these images.
    """
    rows = view.rows("texts", keys=view.keys("texts").tolist(), links=True)
    rows = [row for row in rows if machine_of(row.metadata)]
    if images is None:
        return rows
    keys = set(view.keys_of("images", sorted(images)).values())
    return [row for row in rows if keys.intersection(row.links)]


BLOCK = 1024
"""Texts that are embedded and put in at a time."""


def copy_machine_texts(store: Store, writer: Writer, model: Model) -> None:
    """Copy the texts that machines wrote into an index of another model; texts that it has are not embedded again.

    Args:
        store: The index that has them.
        writer: Of the new index.
        model: The model of the new index.
    """
    with store.reading() as view:
        rows = machine_rows(view)
        names = {row.key: row.id for row in view.rows("images", keys=view.keys("images").tolist())} if rows else {}
        read, last = view.records(READ_BY_OCR), int(max(view.keys("images"), default=-1))
    present = set(writer.ids("texts"))
    rows = [row for row in rows if row.id not in present]
    if rows:
        require_words(model)
        require_model(writer.store, writer.manifest, model)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        vectors = _embedded(model, [row.text or "" for row in block])
        links = [(names[key], row.id) for row in block for key in row.links]
        entries = [row.entry() for row in block]
        derived = _derived(writer, entries, store)
        writer.put(Change("texts", entries=entries, vectors=vectors, links=links, derived=derived))
    if read and int(read[0][0]) >= last:  # Keys of the new index are others: where some are not read yet, all are.
        with writer.store.reading() as view:
            last = int(max(view.keys("images"), default=-1))
        writer.apply(Change("texts", documents={READ_BY_OCR: str(last)}))


def _derived(
    writer: Writer, entries: Sequence[IndexEntry], former: Store | None = None
) -> dict[DerivedSpace, Mapping[str, DerivedRow]]:
    """The sentence vectors of texts, where the index has a sentence encoder."""
    record = writer.manifest.encoder
    if record is None or not entries:
        return {}
    vectors = SentenceVectors(record, writer.store.path, former)
    vectors.keep(writer, [entry.text for entry in entries])
    return {"sentences": vectors(entries)}


def _embedded(model: Model, texts: Sequence[str]) -> NDArray[np.float32]:
    return np.asarray(model.embed_texts(texts).vectors.float().cpu(), dtype=np.float32)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
