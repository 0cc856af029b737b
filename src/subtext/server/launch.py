"""A server is started, tells where it is, and ends when it is asked to, after what it has begun."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import replace

import uvicorn

from subtext.errors import RequirementError
from subtext.report.progress import say
from subtext.search.stores.opened import name_of
from subtext.server.application import SETTINGS, build
from subtext.server.served import Served
from subtext.server.settings import Settings

ENDING = 20
"""Seconds that requests have to end in when the server is asked to."""
HEADERS = 16_384
"""Bytes of a request's head."""


def serve(settings: Settings, *, quiet: bool = False) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises what opening an index raises, and RequirementError where the address cannot be had.
    """
    _require_free(settings)
    shown = "localhost" if settings.host in ("127.0.0.1", "::1") else settings.host
    names = ", ".join(map(name_of, settings.indexes))
    if settings.workers == 1:
        app = build(settings)
        served: Served = app.state.served
        counts = ", ".join(f"{name}: {len(own.engine):,} pictures" for name, own in served.libraries.items())
        say(f"{counts}\nhttp://{shown}:{settings.port}/ (Ctrl-C ends it)", quiet=quiet)
        uvicorn.Server(uvicorn.Config(app, **_options(settings))).run()  # type: ignore[arg-type]
        return
    with tempfile.TemporaryDirectory(prefix="subtext-serve-") as shared:
        os.environ[SETTINGS] = replace(settings, shared=shared).to_json()
        say(f"{names}: {settings.workers} processes\nhttp://{shown}:{settings.port}/ (Ctrl-C ends it)", quiet=quiet)
        uvicorn.run(
            "subtext.server.application:from_environment",
            factory=True,
            workers=settings.workers,
            **_options(settings),  # type: ignore[arg-type]
        )


def _options(settings: Settings) -> dict[str, object]:
    return {
        "host": settings.host,
        "port": settings.port,
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
        "proxy_headers": settings.behind_proxy,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": ENDING,
        "h11_max_incomplete_event_size": HEADERS,
        "backlog": 512,
        "ws": "none",
    }


def _require_free(settings: Settings) -> None:
    """Raise RequirementError where somebody listens there already, before a model is loaded for nothing."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as problem:
            raise RequirementError(
                f"a server needs an address of its own; {settings.host}:{settings.port} cannot be had: "
                f"{problem.strerror or problem}; name another (--port)"
            ) from problem
