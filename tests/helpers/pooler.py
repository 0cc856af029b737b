"""PgBouncer in front of a test's PostgreSQL: Debian's package pgbouncer, which is no part of Subtext."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from database import Server
from gloo import free_port

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
needed = pytest.mark.skipif(
    PGBOUNCER is None and "CI" not in os.environ, reason="needs PgBouncer (apt-get install pgbouncer)"
)
"""A mark for tests behind a pooler: left out on a desk without PgBouncer, failed in CI."""


class Pooler:
    """A pooler that shares a few connections to the server among all its clients."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port

    def address(self, name: str, *, database: str = "postgres", **more: str) -> str:
        """The address of an index of the server, by way of the pooler."""
        direct = self.server.address(name, database=database, **more)
        begin, _, rest = direct.partition("?host=")
        return f"{begin.replace('@/', f'@127.0.0.1:{self.port}/')}?{rest.partition('&')[2]}"


@contextmanager
def started(server: Server, *, mode: str = "transaction", size: int = 2) -> Iterator[Pooler]:
    """A pooler with so many connections to the server, which are clients' for a transaction each."""
    assert PGBOUNCER is not None, "an index behind a pooler is tested with PgBouncer; apt-get install pgbouncer"
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        settings = Path(place) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={server.socket} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"default_pool_size = {size}\nquery_wait_timeout = 5\n"
        )
        # It refuses to run as root; the user of the server reaches its socket.
        as_user = [f"--user={Path(server.socket).owner()}"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [PGBOUNCER, *as_user, str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            until = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
                    time.sleep(0.05)
            yield Pooler(server, port)
        finally:
            process.terminate()
            process.communicate(timeout=30)
