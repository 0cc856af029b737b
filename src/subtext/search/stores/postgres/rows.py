"""Rows of the tables as they are put in, changed and taken out, inside a writer's transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.stores.item import SIDES, Entry, Side, facets
from subtext.search.stores.postgres.connection import Connection
from subtext.search.stores.postgres.layout import VECTORS
from subtext.search.stores.postgres.words import as_vector, words
from subtext.search.stores.rows import Known, forgotten_hash

_ITEM = (
    "COPY items (key, side, id, folded_id, path, text, metadata, content, stamp, digest, vectors_digest, words, "
    "length) FROM STDIN"
)
_FACET = "COPY facets (key, side, name, number, word, folded) FROM STDIN"
_AMEND = (
    "UPDATE items SET path = %s, text = %s, metadata = %s, content = %s, stamp = %s, digest = %s, "
    "words = %s::tsvector, length = %s WHERE key = %s"
)


def state(connection: Connection, name: str) -> int:
    """One number of the store's state."""
    found = connection.execute("SELECT value FROM state WHERE name = %s", (name,)).fetchone()
    assert found is not None
    return int(found[0])


def known(connection: Connection, side: Side, ids: Sequence[str]) -> dict[str, Known]:
    """Those of these ids that are there."""
    statement = "SELECT id, key, content, stamp, path, digest FROM items WHERE side = %s AND id = ANY(%s::text[])"
    found = connection.execute(statement, (SIDES.index(side), holdable(ids)))
    return {name: Known(*row) for name, *row in found}


def holdable(ids: Sequence[str]) -> list[str]:
    """Those of these ids that a database can hold: others are not there."""
    return [name for name in ids if _is_held(name)]


def require_held(entries: Sequence[Entry]) -> None:
    """Raise IndexError_ for an item of which PostgreSQL cannot hold something."""
    for entry in entries:
        found = [text for facet in facets(json.loads(entry.metadata_json)) for text in facet if isinstance(text, str)]
        told = [entry.id, entry.path or "", entry.text or "", entry.metadata_json, entry.stamp or "", *found]
        if not all(_is_held(text) for text in told):
            raise IndexError_(
                "an index in PostgreSQL needs names, texts and metadata without the sign NUL and without halves of "
                f"signs; item {entry.id!r} has such; take them out of the data, or keep the index in a folder"
            )


def put(
    connection: Connection, side: Side, first: int, entries: Sequence[Entry], vectors: NDArray[np.float32]
) -> list[int]:
    """Put new items and their (N K D) vectors in, with keys from `first`; gives the keys."""
    number, keys = SIDES.index(side), list(range(first, first + len(entries)))
    if not keys:
        return keys
    said = [_words(entry) for entry in entries]
    with connection.cursor() as cursor:
        with cursor.copy(_ITEM) as copy:
            for key, entry, own, text in zip(keys, entries, vectors, said, strict=True):
                digests = (entry.digest(number, key), vectors_digest(own))
                copy.write_row((key, number, entry.id, entry.id.casefold(), *_kept(entry), *digests, *_placed(text)))
        table = sql.SQL("COPY {} (key, view, vector) FROM STDIN (FORMAT BINARY)").format(VECTORS[side])
        with cursor.copy(table) as copy:
            copy.set_types(["int8", "int2", "vector"])
            for key, own in zip(keys, vectors, strict=True):
                for view, vector in enumerate(own):
                    copy.write_row((key, view, vector))
    _put_facets(connection, number, keys, entries)
    _count_words(connection, said, 1)
    count(connection, side, len(entries))
    return keys


def amend(connection: Connection, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
    """Change what is known of items whose vectors stay."""
    if not keys:
        return
    number, said = SIDES.index(side), [_words(entry) for entry in entries]
    _uncount_words(connection, keys)
    with connection.cursor() as cursor:
        cursor.executemany(
            _AMEND,
            [
                (*_kept(entry), entry.digest(number, key), *_placed(text), key)
                for key, entry, text in zip(keys, entries, said, strict=True)
            ],
        )
    _drop_facets(connection, keys)
    _put_facets(connection, number, keys, entries)
    _count_words(connection, said, 1)


def take_out(connection: Connection, side: Side, keys: Sequence[int]) -> int:
    """Take items out, with their vectors and facets; links stay, for one that is put in again. Gives how many."""
    if not keys:
        return 0
    _uncount_words(connection, keys)
    _drop_facets(connection, keys)
    gone = connection.execute("DELETE FROM items WHERE key = ANY(%s::bigint[])", (list(keys),)).rowcount
    count(connection, side, -gone)
    return gone


def forget(connection: Connection, side: Side, keys: Sequence[int], *, remember: bool) -> int:
    """Take items out for good: their links as well.

    remember  keeps a hash of each, so that a source which still has it does not bring it back unasked
    """
    found = connection.execute("SELECT id FROM items WHERE key = ANY(%s::bigint[])", (list(keys),)).fetchall()
    ids = [name for (name,) in found]
    connection.execute(_UNLINK[side], (ids,))
    if remember:
        hashes = [forgotten_hash(side, name) for name in ids]
        connection.execute(
            "INSERT INTO forgotten SELECT unnest(%s::bytea[]) ON CONFLICT DO NOTHING",
            (hashes,),
        )
    return take_out(connection, side, keys)


_UNLINK = {
    "images": "DELETE FROM links WHERE image = ANY(%s::text[])",
    "texts": "DELETE FROM links WHERE text = ANY(%s::text[])",
}


def link(connection: Connection, pairs: Sequence[tuple[str, str]]) -> None:
    """Join pictures and texts, by id, of which both are there."""
    held = [pair for pair in pairs if _is_held(pair[0]) and _is_held(pair[1])]
    if held:
        connection.execute(
            "INSERT INTO links SELECT p.image, p.text FROM unnest(%s::text[], %s::text[]) AS p(image, text) "
            "WHERE EXISTS (SELECT 1 FROM items i WHERE i.side = 0 AND i.id = p.image) "
            "AND EXISTS (SELECT 1 FROM items t WHERE t.side = 1 AND t.id = p.text) ON CONFLICT DO NOTHING",
            ([image for image, _ in held], [text for _, text in held]),
        )


def unlink_texts(connection: Connection, texts: Sequence[str], but: Sequence[tuple[str, str]]) -> None:
    """Take away the links of these texts, but for those named."""
    connection.execute(
        "DELETE FROM links l WHERE l.text = ANY(%s::text[]) AND NOT EXISTS (SELECT 1 FROM "
        "unnest(%s::text[], %s::text[]) AS p(image, text) WHERE p.image = l.image AND p.text = l.text)",
        (holdable(texts), [image for image, _ in but], [text for _, text in but]),
    )


def orphans(connection: Connection, images: Sequence[int]) -> list[int]:
    """Keys of the texts that have no picture but these: they go with them."""
    statement = (
        "WITH gone AS (SELECT id FROM items WHERE key = ANY(%s::bigint[])) "
        "SELECT DISTINCT t.key FROM gone JOIN links l ON l.image = gone.id "
        "JOIN items t ON t.side = 1 AND t.id = l.text "
        "WHERE NOT EXISTS (SELECT 1 FROM links m WHERE m.text = l.text AND m.image NOT IN (SELECT id FROM gone))"
    )
    return [int(key) for (key,) in connection.execute(statement, (list(images),))]


def vectors_digest(own: NDArray[np.float32]) -> bytes:
    """16 bytes of an item's (K D) vectors: what `verify` compares."""
    return hashlib.blake2b(np.ascontiguousarray(own, dtype="<f4").tobytes(), digest_size=16).digest()


def facet_rows(side: int, key: int, entry_json: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the facets of an item."""
    for name, value in sorted(facets(json.loads(entry_json)), key=str):
        if isinstance(value, str):
            yield key, side, name, None, value, value.casefold()
        else:
            # PostgreSQL knows no zero below zero.
            yield key, side, name, Decimal(value or 0), None, None


def count(connection: Connection, name: str, more: int) -> None:
    """Add to one number of the state."""
    if more:
        connection.execute("UPDATE state SET value = value + %s WHERE name = %s", (more, name))


def _put_facets(connection: Connection, side: int, keys: Sequence[int], entries: Sequence[Entry]) -> None:
    total = 0
    with connection.cursor() as cursor, cursor.copy(_FACET) as copy:
        for key, entry in zip(keys, entries, strict=True):
            for row in facet_rows(side, key, entry.metadata_json):
                copy.write_row(row)
                total += 1
    count(connection, "facets", total)


def _drop_facets(connection: Connection, keys: Sequence[int]) -> None:
    gone = connection.execute("DELETE FROM facets WHERE key = ANY(%s::bigint[])", (list(keys),)).rowcount
    count(connection, "facets", -gone)


def _kept(entry: Entry) -> tuple[Any, ...]:
    return entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp


def _words(entry: Entry) -> list[str] | None:
    return None if entry.text is None else words(entry.text)


def _placed(text: list[str] | None) -> tuple[str | None, int | None]:
    return (None, None) if text is None else (as_vector(text), len(text))


def _count_words(connection: Connection, said: Sequence[list[str] | None], sign: int) -> None:
    own = [len(text) for text in said if text is not None]
    count(connection, "worded", sign * len(own))
    count(connection, "words", sign * sum(own))


def _uncount_words(connection: Connection, keys: Sequence[int]) -> None:
    statement = "SELECT count(length), coalesce(sum(length), 0) FROM items WHERE key = ANY(%s::bigint[])"
    found = connection.execute(statement, (list(keys),)).fetchone()
    assert found is not None
    count(connection, "worded", -int(found[0]))
    count(connection, "words", -int(found[1]))


def _is_held(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)
