"""Programs that run as several gloo processes on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

PATIENCE = 600
"""Seconds that a process may take; on a machine where much else runs, three minutes were too few."""


def started(program: Path, out: Path, count: int) -> Path:
    """Run a program as `count` processes that know each other, to the end; gives the folder that it wrote to."""
    port = free_port()
    running = []
    for rank in range(count):
        paths = os.pathsep.join(filter(None, [str(program.parent), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
        if count > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "ACCELERATE_USE_CPU": "true"}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(program), str(out)]
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        told = [process.communicate(timeout=PATIENCE)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert [process.returncode for process in running] == [0] * count, "\n".join(told)
    return out


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
