"""Ray: a connection to a cluster, or one on this machine that ends with what needed it, and the workers that search.

What goes to workers and comes back is plain data: names, numbers, arrays, and the dataclasses of an index. Whoever
reaches the ports of a Ray cluster can have it run any program: one that is started here is closed to all who do not
know its token, which is drawn anew each time; others are for their administrator to guard.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from subtext.data.atomic import written_to
from subtext.errors import IndexError_, RequirementError, SubtextError
from subtext.search.stores.shards.keeper import Keeper

LOCAL = "local"
"""The address of a cluster that is started on this machine."""
MEMORY = 256 * 2**20
"""Bytes that a Ray which is started here keeps of what is on its way between processes; more goes to the disk."""
PATIENCE = 10
"""Seconds that are waited for a cluster to answer."""
RESTART = 120
"""Seconds that the successor of a worker that has died may take to answer."""
AGAIN = 3
"""How often a question is put again to the successor of a worker that has died."""
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
"""What a Ray that is started here is told: to report to nobody, and to answer nobody without the token."""


def require_ray() -> None:
    """Raise RequirementError without the extra. Nothing is imported."""
    if importlib.util.find_spec("ray") is None:
        raise RequirementError(
            "an index in shards is built and searched by Ray, which is not installed; install the extra: "
            "pip install 'subtext[ray]'"
        )


class WorkerAway(IndexError_):
    """A worker of a cluster died, and its successor does not answer yet: it can be asked again."""


class Cluster:
    """A connection to a Ray cluster.

    index    the folder of an index, in which a Ray that is started here keeps all its files, and removes them
    address  of a cluster ("auto" for the one on this machine, or HOST:PORT), or "local" to start one

    A process that is connected already, to whatever cluster, stays so. Raises RequirementError where there is no such
    cluster, OutputError where nothing may be written in the index.
    """

    def __init__(self, index: Path, address: str) -> None:
        require_ray()
        self.place: Path | None = None
        self._before: dict[str, str | None] = {}
        self._descriptor = -1
        if address == LOCAL and "ray" not in sys.modules:
            # Ray reads these when it is imported.
            self._tell({**OURS, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        self.ray = importlib.import_module("ray")
        self._mine = not self.ray.is_initialized()
        if not self._mine:
            return
        try:
            if address == LOCAL:
                self._start(index)
            else:
                _require_reachable(address)
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            _tell_elsewhere()
        except (ConnectionError, RuntimeError, OSError, ValueError) as problem:
            self.close()
            raise RequirementError(
                f"this needs the Ray cluster '{address}', which cannot be had: {str(problem).splitlines()[0]}; start "
                "one (ray start --head --disable-usage-stats --include-dashboard=false) and name its address, or say "
                "'local'"
            ) from problem

    def close(self) -> None:
        """End the connection, where it was made here; end a Ray that was started here, and remove its files."""
        if not self._mine:
            return
        self._mine = False
        self.ray.shutdown()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self.place is not None:
            shutil.rmtree(self.place, ignore_errors=True)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _tell(self, told: Mapping[str, str]) -> None:
        """Set variables until this is closed."""
        self._before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)

    def _start(self, index: Path) -> None:
        """Start a Ray on this machine, all of whose files lie in the index."""
        _tidy(index)
        with written_to(index):
            self.place = Path(tempfile.mkdtemp(prefix=_prefix(os.getpid()), dir=index))
            self._descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        # The name of a Unix socket may have 107 letters, and Ray adds some 64 to the name of its folder: hardly any
        # index lies at so short a path. As long as this process holds the folder open it has a short name for all
        # processes of this user, and that is as long as this Ray lasts.
        short = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        if not self._before:
            # Somebody has imported Ray: it has to be told to read them again.
            self._tell({**OURS, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
            inside = importlib.import_module("ray._raylet")
            inside.AuthenticationTokenLoader.instance().reset_cache()
            inside.Config.initialize("")
        self.ray.init(
            address=LOCAL,
            include_dashboard=False,
            object_store_memory=MEMORY,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=short,
            _plasma_directory=short,
        )


class Workers:
    """Workers of a cluster that keep the shards of an index open between them, and are asked side by side.

    They ask for no processor of their own: a search does not wait until a building has ended. One that dies, or whose
    machine does, is started again elsewhere, and asked again.
    """

    def __init__(self, index: Path, shards: int, address: str) -> None:
        self.index = index.resolve()
        self.cluster = Cluster(self.index, address)
        self.ray = self.cluster.ray
        count = max(1, min(shards, sum(processors(self.ray))))
        made = self.ray.remote(Keeper).options(
            num_cpus=0, max_restarts=-1, max_task_retries=AGAIN, scheduling_strategy="SPREAD"
        )
        self.workers = [made.remote(str(self.index), list(range(own, shards, count))) for own in range(count)]

    def ask(self, seen: dict[int, int] | None, what: str, *words: Any) -> list[Any]:
        """The answer of each worker; see `Keeper.ask`.

        Raises what the question raises, and IndexError_ when a worker has died too often.
        """
        large = [self.ray.put(word) if getattr(word, "nbytes", 0) > 2**20 else word for word in words]
        until = time.monotonic() + RESTART
        while True:
            answers = [worker.ask.remote(seen, what, *large) for worker in self.workers]
            try:
                return list(got(self.ray, answers, self.index))
            except WorkerAway:
                # Ray's own tries are over before a worker is up again. A question changes nothing: it is put again.
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def close(self) -> None:
        """End the workers, and the cluster where it was started for them."""
        if self.ray.is_initialized():
            for worker in self.workers:
                self.ray.kill(worker)
        self.cluster.close()


def got(ray: Any, answers: Any, index: Path) -> Any:
    """What workers have answered, or one of them.

    Raises what a worker raised on purpose, and IndexError_ when one died, or the cluster went away.
    """
    try:
        return ray.get(answers)
    except ray.exceptions.RayTaskError as problem:
        if isinstance(problem.cause, SubtextError | KeyError):
            raise problem.cause from None
        raise
    except ray.exceptions.RayError as problem:
        kind = WorkerAway if isinstance(problem, ray.exceptions.ActorUnavailableError) else IndexError_
        raise kind(
            f"{index} needs the workers of its Ray cluster, one of which died, again and again, or went away with the "
            f"cluster: {str(problem).strip().splitlines()[0]}; look to their memory and to the folder, which all "
            "machines have to see, and do it again"
        ) from problem


def processors(ray: Any) -> list[int]:
    """Processors of each machine of the cluster that is there."""
    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]


def _require_reachable(address: str) -> None:
    """Raise OSError where nobody answers at HOST:PORT: Ray itself would try for minutes, and then end the process."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _tell_elsewhere() -> None:
    """Let Ray tell on standard error what it has to tell of workers that died: answers go to standard output.

    It prints that to standard output, whatever it is told of logs, and has no setting for it.
    """
    worker = importlib.import_module("ray._private.worker")
    plain = getattr(worker, "print_to_stdstream", None)
    if plain is not None and not hasattr(plain, "func"):
        worker.print_to_stdstream = partial(_to_standard_error, plain)  # type: ignore[attr-defined]


def _to_standard_error(plain: Any, data: dict[str, Any], ignore_prefix: bool) -> None:
    plain({**data, "is_err": True}, ignore_prefix)


def _prefix(process: int) -> str:
    """How the folder of a Ray begins that this process of this machine has started."""
    return f"ray-{zlib.crc32(socket.gethostname().encode()):08x}-{process}-"


def _tidy(index: Path) -> None:
    """Remove what Rays have left that were killed together with whoever started them, on this machine."""
    for place in index.glob("ray-*-*-*"):
        process = place.name.split("-")[2]
        if process.isdecimal() and place.name.startswith(_prefix(int(process))) and not Path("/proc", process).exists():
            shutil.rmtree(place, ignore_errors=True)
