"""Connections to a database: how they are set up and shared, and what its errors mean."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, errors, sql
from psycopg.pq import TransactionStatus

from subtext.errors import IndexError_, OutputError
from subtext.search.stores.lock import StoreGone, WriterBusy
from subtext.search.stores.postgres.address import Address

Connection = psycopg.Connection[tuple[Any, ...]]

NEEDED = (0, 8)
"""The first pgvector that goes on looking where a filter leaves too few (iterative scan)."""
PATIENCE = "300s"
"""How long a writer waits for another one's change."""
MOST = 24
"""Connections of one process at a time: a Subtext server has a hundred threads, and PostgreSQL by default a hundred
connections for all its clients."""

_EXTENSION = (
    "SELECT e.extversion, n.nspname FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)


def connect(address: Address) -> Connection:
    """A connection that keeps each statement by itself, unless it stands in a transaction.

    Raises StoreGone when there is no server, or it lets nobody in.
    """
    with translated(address):
        # Statements are planned anew each time: how many items fulfil a filter decides how it is best searched.
        return psycopg.connect(**address.parameters, autocommit=True, prepare_threshold=None)


def ready(connection: Connection, address: Address) -> Connection:
    """The same connection, which finds the index's tables by their names and knows vectors.

    Raises IndexError_ where pgvector is missing, or too old.
    """
    with translated(address):
        found = connection.execute(_EXTENSION).fetchone()
        if found is None:
            raise IndexError_(
                f"{address} needs pgvector {_dotted(NEEDED)} or later; the database has none; an administrator puts it "
                "in by CREATE EXTENSION vector"
            )
        version, schema = found
        if tuple(int(part) for part in version.split(".")[:2]) < NEEDED:
            raise IndexError_(
                f"{address} needs pgvector {_dotted(NEEDED)} or later; the database has {version}; an administrator "
                "renews it by ALTER EXTENSION vector UPDATE"
            )
        path = sql.SQL("SET search_path TO {}, {}").format(sql.Identifier(address.name), sql.Identifier(schema))
        connection.execute(path)
        register_vector(connection)
    return connection


def to_read(address: Address) -> Connection:
    """A connection whose transactions see one state and change nothing."""
    connection = connect(address)
    with closed_on_failure(connection):
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        return ready(connection, address)


def to_write(address: Address) -> Connection:
    """A connection whose changes are on the server's disk when they are acknowledged."""
    connection = connect(address)
    with closed_on_failure(connection), translated(address):
        ready(connection, address)
        connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (PATIENCE,))
    return connection


@contextmanager
def closed_on_failure(connection: Connection) -> Iterator[None]:
    """Inside the block a connection is made ready; it is closed again where that fails."""
    with ExitStack() as stack:
        stack.callback(connection.close)
        yield
        stack.pop_all()


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Inside the block what PostgreSQL refuses becomes one of the project's errors, without anything secret."""
    try:
        yield
    except psycopg.Error as problem:
        raise _translate(problem, address) from None


def _translate(problem: psycopg.Error, address: Address) -> Exception:
    said = address.without_secrets((problem.diag.message_primary or str(problem)).strip().replace("\n", "; "))
    if isinstance(problem, errors.DiskFull):
        return OutputError(
            f"{address} needs space to be written, and the server has none: {said}; what stood there before still "
            "stands; free some and do it again"
        )
    if isinstance(problem, errors.LockNotAvailable | errors.DeadlockDetected | errors.SerializationFailure):
        return WriterBusy(f"{address} is being changed by somebody else: {said}; nothing was kept; do it again")
    if isinstance(problem, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return OutputError(
            f"{address} needs rights that this user lacks: {said}; an administrator gives them (GRANT), or makes the "
            "schema and CREATE EXTENSION vector"
        )
    if isinstance(problem, errors.UndefinedTable | errors.InvalidSchemaName):
        return IndexError_(
            f"{address} needs to be an index that `subtext index build` made, with all its tables: {said}; name "
            "another, or restore a backup"
        )
    if isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreGone(
            f"{address} needs its server, which cannot be reached or went away: {said}; no change is half kept; look "
            "to the server and do it again"
        )
    return IndexError_(f"{address} cannot be used: {said}; `subtext index verify` says what is wrong")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Pool:
    """Connections to one index, for any number of threads.

    check  raises IndexError_ for a new connection to an index that cannot be read
    """

    def __init__(self, address: Address, check: Callable[[Connection, Address], None]) -> None:
        self.address = address
        self._check = check
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._free = threading.Semaphore(MOST)
        self._thread = threading.local()
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of this thread alone; inside another such block of the thread, the same one.

        Waits while all `MOST` of them are in use. Raises StoreGone when there is no server, IndexError_ where
        there is no index, or one of another layout.
        """
        current: Connection | None = getattr(self._thread, "connection", None)
        if current is not None:
            yield current
            return
        with self._free:
            connection = self._thread.connection = self._acquired()
            try:
                yield connection
            finally:
                self._thread.connection = None
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close the connections that nobody uses at this moment."""
        _close_all(self._idle)

    def _acquired(self) -> Connection:
        """A connection that answers: a restart of the server is noticed here."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if _answers(connection):
                return connection
            connection.close()
        connection = to_read(self.address)
        with closed_on_failure(connection):
            self._check(connection, self.address)
        return connection


def _answers(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()
