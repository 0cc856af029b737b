"""Connections that the readers of one process share: as many as are asked for at once, up to a bound."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

from subtext.search.stores.postgres import layout
from subtext.search.stores.postgres.address import Address
from subtext.search.stores.postgres.connection import Connection, closed_on_failure, to_read

MOST = 24
"""Connections of one process at a time: a server of ours has a hundred threads, and PostgreSQL, as it comes, a hundred
connections for everybody."""


class Pool:
    """Connections to one index, for any number of threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._taking = threading.Lock()
        self._room = threading.Semaphore(MOST)
        self._own = threading.local()
        weakref.finalize(self, _let_go, self._idle)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection that this thread alone has; inside another such block of the thread, the same one.

        Who finds all `MOST` of them taken waits for one. Raises StoreGone when there is no server, IndexError_ where
        there is no index, or one of another layout.
        """
        held: Connection | None = getattr(self._own, "connection", None)
        if held is not None:
            yield held
            return
        with self._room:
            connection = self._own.connection = self._taken()
            try:
                yield connection
            finally:
                self._own.connection = None
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close the connections that nobody uses at this moment."""
        _let_go(self._idle)

    def _taken(self) -> Connection:
        """A connection that answers: that a server was restarted is noticed before it is asked."""
        while True:
            with self._taking:
                found = self._idle.pop() if self._idle else None
            if found is None:
                break
            if _answers(found):
                return found
            found.close()
        found = to_read(self.address)
        with closed_on_failure(found):
            layout.require_layout(found, self.address)
        return found


def _answers(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _let_go(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()
