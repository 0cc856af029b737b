"""Moving an index in PostgreSQL to another model: a second one beside it, which then takes its place in one step."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres.connection import to_write, told
from subtext.search.stores.postgres.database import Database, create, drop, exists

ENDING = "_moving"
"""What the name of the second index ends with: nobody else asks it."""
LONGEST = 63
"""Letters of a name in PostgreSQL."""


def beside(store: Database, manifest: Manifest) -> Database:
    """An index for the vectors of another model, in the same database; one that was begun for it is gone on with."""
    address = replace(store.address, name=store.address.name[: LONGEST - len(ENDING)] + ENDING)
    if exists(address):
        begun = Database(address)
        if begun.manifest.fingerprint == manifest.fingerprint:
            return begun
        begun.close()
        drop(begun)
    return create(address, manifest)


def swap(store: Database, new: Database, *, generation: int) -> Database:
    """Put `new` in the place of `store`, whose tables and vectors go; searches wait for it, and see either.

    generation  that `store` had when the move began

    Whoever has the old one open is told to open it again. Raises IndexError_ when it was changed since.
    """
    old, own = (sql.Identifier(each.address.name) for each in (store, new))
    new.close()
    connection = to_write(store.address)
    try:
        with told(store.address), connection.transaction():
            # Every reader and writer begins with this table: behind the lock nobody is in the midst of anything.
            connection.execute(sql.SQL("LOCK TABLE {}.state IN ACCESS EXCLUSIVE MODE").format(old))
            found = connection.execute(
                sql.SQL("SELECT value FROM {}.state WHERE name = 'generation'").format(old)
            ).fetchone()
            if found is None or int(found[0]) != generation:
                raise IndexError_(
                    f"{store.path} was changed while it was moved; give the move again: it embeds what is new, and "
                    "nothing else"
                )
            connection.execute(
                sql.SQL("INSERT INTO {}.forgotten SELECT hash FROM {}.forgotten ON CONFLICT DO NOTHING").format(
                    own, old
                )
            )
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(old))
            connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(own, old))
    finally:
        connection.close()
    return Database(store.address)
