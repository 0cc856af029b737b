"""Somebody who changes an index in PostgreSQL: every change is one transaction, kept for good when it returns.

Any number of processes may write at once. They embed side by side and take turns for the moments of their changes: each
change begins by counting it, and holds that one row until it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from subtext.errors import IndexError_
from subtext.search.stores.change import Change, checked
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres import journal, rows
from subtext.search.stores.postgres.address import Address
from subtext.search.stores.postgres.connection import Connection, told
from subtext.search.stores.postgres.shelf import Shelf
from subtext.search.stores.rows import Known, forgotten_hash


class Writer:
    """Changes an index; made by `Database.writing`.

    Every method that changes something returns when the change is on the server's disk. What fails leaves the state
    before it.
    """

    def __init__(self, connection: Connection, address: Address, manifest: Manifest) -> None:
        self.connection = connection
        self.address = address
        self.manifest = manifest

    def known(self, side: Side, ids: Sequence[str]) -> dict[str, Known]:
        """What is known of those ids that are there."""
        with told(self.address):
            return rows.known(self.connection, side, ids)

    def forgotten(self, side: Side, ids: Sequence[str]) -> set[str]:
        """Those of these ids that were deleted once, and not put in again by the user's own wish."""
        hashes = {forgotten_hash(side, name): name for name in ids}
        with told(self.address):
            found = self.connection.execute(
                "SELECT hash FROM forgotten WHERE hash = ANY(%s::bytea[])", (list(hashes),)
            ).fetchall()
        return {hashes[bytes(own)] for (own,) in found}

    def put(self, change: Change, *, job: int | None = None, done: int = 0) -> None:
        """Put items in, all or none; those of the same id are replaced.

        job, done  of the journal, whose progress is kept with the change

        Items whose metadata was to change, and which another writer has deleted meanwhile, stay deleted. Raises
        IndexError_ for vectors that are not finite or of another shape, an id twice, or a text that PostgreSQL cannot
        hold; OutputError when the server's disk is full; StoreGone when the server is.
        """
        vectors = checked(change, self.manifest)
        rows.require_held([*change.entries, *change.amended])
        with told(self.address):
            if not change.entries and not change.amended and not self._joins(change):
                return
        side = change.side
        with self.changing():
            before = rows.known(self.connection, side, [entry.id for entry in (*change.entries, *change.amended)])
            rows.take_out(
                self.connection, side, [before[entry.id].key for entry in change.entries if entry.id in before]
            )
            rows.put(self.connection, side, self._keys(len(change.entries)), change.entries, vectors)
            amended = [entry for entry in change.amended if entry.id in before]
            rows.amend(self.connection, side, [before[entry.id].key for entry in amended], amended)
            if change.exact_texts:
                rows.unlink_texts(self.connection, sorted(change.exact_texts), change.links)
            rows.link(self.connection, change.links)
            self.connection.execute(
                "DELETE FROM forgotten WHERE hash = ANY(%s::bytea[])",
                ([forgotten_hash(side, entry.id) for entry in change.entries],),
            )
            if job is not None:
                journal.advance(self.connection, job, done)

    def ids(self, side: Side) -> list[str]:
        """The ids of a side, in the order that they came in."""
        with told(self.address):
            found = self.connection.execute("SELECT id FROM items WHERE side = %s ORDER BY key", (SIDES.index(side),))
            return [name for (name,) in found]

    def delete(
        self, side: Side, ids: Sequence[str], *, keep_texts: bool = False, remember: bool = True
    ) -> dict[str, int]:
        """Delete items, all or none; gives how many of each side.

        keep_texts  keeps the texts that have no other picture; by default they go with their pictures
        remember    keeps a hash of each, so that a source which still has it does not bring it back unasked

        Rows, words, filters and vectors are no longer found at once; the server overwrites them when the index is
        compacted. Ids that are not there are passed over.
        """
        with self.changing():
            keys = [found.key for found in rows.known(self.connection, side, ids).values()]
            gone: dict[Side, list[int]] = {side: keys}
            if side == "images" and not keep_texts:
                gone["texts"] = rows.orphans(self.connection, keys)
            counts = {name: rows.forget(self.connection, name, own, remember=remember) for name, own in gone.items()}
        return {name: counts.get(name, 0) for name in SIDES}

    def begin(self, verb: str, *, source: Mapping[str, Any] | None = None, total: int = 0) -> int:
        """Note a job in the journal; its number."""
        with self.changing():
            return journal.begin(self.connection, verb, source=source, total=total)

    def finish(self, job: int) -> None:
        """Note that a job is done."""
        with self.changing():
            journal.finish(self.connection, job)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change, whole; whoever else changes the index waits until it is kept.

        Raises IndexError_ when the index has gone to another model since it was opened.
        """
        with told(self.address), self.connection.transaction():
            counted = self.connection.execute(
                "UPDATE state SET value = value + 1 WHERE name = 'generation' RETURNING value"
            ).fetchone()
            written = self.connection.execute("SELECT json FROM manifest").fetchone()
            if counted is None or written is None:
                raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
            now = Manifest.from_json(written[0], where=str(self.address))
            if now.fingerprint != self.manifest.fingerprint:
                raise IndexError_(f"{self.address} was made anew by another model meanwhile; open it again")
            yield
        self.manifest = replace(self.manifest, generation=int(counted[0]))

    def shelf(self, side: Side) -> Shelf:
        """The vectors of a side as they are now."""
        with told(self.address):
            return shelf_of(self.connection, self.manifest, side, rows.state(self.connection, side), {})

    def _keys(self, count: int) -> int:
        """The first of so many keys that no item had before; inside a change."""
        row = self.connection.execute(
            "UPDATE state SET value = value + %s WHERE name = 'key' RETURNING value", (count,)
        ).fetchone()
        assert row is not None
        return int(row[0]) - count + 1

    def _joins(self, change: Change) -> bool:
        """Whether the links of a change are others than those that are there."""
        texts = rows.holdable(sorted({*change.exact_texts, *(text for _, text in change.links)}))
        if not texts:
            return False
        found = self.connection.execute("SELECT image, text FROM links WHERE text = ANY(%s::text[])", (texts,))
        have = set(found.fetchall())
        more = {(image, text) for image, text in have if text in change.exact_texts} - set(change.links)
        return bool(set(change.links) - have or more)


def shelf_of(connection: Connection, manifest: Manifest, side: Side, count: int, kept: dict[str, Any]) -> Shelf:
    """The vectors of a side, as a connection sees them."""
    return Shelf(connection, side, count, manifest.views[side], manifest.width, manifest.exact_up_to, kept)
