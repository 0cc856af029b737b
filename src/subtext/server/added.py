"""Items that clients hand in: kept in INDEX/added as a data set of its own, so that `update` and `move` find them.

Of an index that is no folder they are kept in `added` inside the folder that the server was given (--keep).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from subtext.api.load import Sources
from subtext.data.atomic import write_file
from subtext.data.features import FeatureInput
from subtext.data.read import read
from subtext.errors import RequirementError
from subtext.search import Engine
from subtext.search.growing import Growing, Grown, grow
from subtext.search.stores.folder import Folder
from subtext.search.stores.lock import WriterBusy, writer_lock
from subtext.search.stores.store import Store, StoreWriter
from subtext.search.stores.traces import ADDED, ROWS, trace_name
from subtext.server.folder import place_of
from subtext.server.refusals import Refusal

SPLIT = "added"
TAKEN = ("id", "image", "file_name", "captions", "caption", "text", "text_id", "text_ids", "split", "group", "images")
"""Names that metadata cannot have: rows of a data set mean something else by them."""
PATIENCE = 3.0
"""Seconds that a change waits for another writer."""


@dataclass(frozen=True)
class Incoming:
    """One picture with its texts, as it is handed in; `ending` names its format."""

    id: str
    picture: bytes
    ending: str
    captions: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of its file, which goes when the item is deleted."""
        return trace_name("images", self.id) + self.ending

    @property
    def row(self) -> dict[str, Any]:
        """Its row in the data set of added items."""
        names = [f"{self.id}/{number}" for number in range(len(self.captions))]
        own = {"id": self.id, "file_name": self.file, "captions": list(self.captions), "text_ids": names}
        return {**own, "split": SPLIT, **self.metadata}


def add(engine: Engine, items: Sequence[Incoming], *, keep: Path | None = None) -> Grown:
    """Put items in: on the disk and searchable when this returns.

    keep  the folder that their pictures are kept in, of an index that is no folder

    Raises Refusal: 409 for an id that is there already, 422 for a model that reads no pictures, 503 while another
    process writes, 403 where there is no folder for pictures; DataError for what cannot be read. Then nothing is added.
    """
    store, kept = engine.folder, place_of(engine.folder, keep)
    if kept is None:
        sentence = "this server has no folder for pictures that are handed in; start it with --keep to allow that"
        raise Refusal(HTTPStatus.FORBIDDEN, sentence)
    if isinstance(engine.model.image.input_spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features; pictures are added to its data set")
    place = kept / ADDED
    with changing(store, "add", kept) as writer:
        _require_new(store, items)
        new = place / f".new-{os.getpid()}.jsonl"
        try:
            for item in items:
                write_file(place / item.file, lambda at, data=item.picture: _write(at, data))  # type: ignore[misc]
            _write_rows(new, [item.row for item in items])
            pairs = read(new, images=place)
            _write_rows(place / ROWS, [*rows(place), *(item.row for item in items)])
            source = {**Sources(data=place).to_json(), "split": "all"}
            return grow(writer, engine.model, pairs, how=Growing(source=source, again=True, batch_size=16, workers=0))
        finally:
            new.unlink(missing_ok=True)
            tidy(store, kept)


@contextmanager
def changing(store: Store, verb: str, place: Path | None) -> Iterator[StoreWriter]:
    """The writer, after a short wait for another one. Raises Refusal when that takes longer.

    place  the folder of an index that is none itself: only one at a time changes what is kept there
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with ExitStack() as stack:
                if place is not None and not isinstance(store, Folder):
                    place.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(writer_lock(place, verb))
                yield stack.enter_context(store.writing(verb))
            return
        except WriterBusy as problem:
            if time.monotonic() > until:
                sentence = "this library is being written by another process; nothing was changed; try again"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, again=5) from problem
            time.sleep(0.05)


def rows(place: Path) -> list[dict[str, Any]]:
    """The rows of the data set of added items."""
    file = place / ROWS
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def tidy(store: Store, index: Path) -> None:
    """Remove what was handed in and never came into the index: an addition failed, or was cut off. Needs the writer."""
    place = index / ADDED
    own = rows(place)
    with store.reading() as view:
        known = set(view.keys_of("images", [row["id"] for row in own]))
    kept = [row for row in own if row["id"] in known]
    if len(kept) < len(own):
        _write_rows(place / ROWS, kept)
    files = {row["file_name"] for row in kept} | {ROWS}
    for file in place.glob("*"):
        if file.is_file() and file.name not in files:
            file.unlink(missing_ok=True)


def _require_new(store: Store, items: Sequence[Incoming]) -> None:
    names = [item.id for item in items]
    texts = [name for item in items for name in item.row["text_ids"]]
    with store.reading() as view:
        there = [*view.keys_of("images", names), *view.keys_of("texts", texts)]
    if there or len(set(names)) < len(names):
        which = f"'{there[0]}' is there already" if there else "one is named twice"
        raise Refusal(HTTPStatus.CONFLICT, f"an addition needs ids that are new; {which}; delete it first, or rename")


def _write_rows(file: Path, found: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    write_file(file, lambda place: _write(place, text.encode()))


def _write(place: Path, data: bytes) -> None:
    place.write_bytes(data)
