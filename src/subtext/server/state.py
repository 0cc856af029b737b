"""All that a server has open, and the dependencies by which routes get it: to read, or to change."""

from __future__ import annotations

import hmac
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from subtext.api.search import open_index
from subtext.errors import IndexError_, RequirementError
from subtext.search import Index
from subtext.search.stores.store import name_of
from subtext.server.library import Library
from subtext.server.monitoring import Metrics, RequestLog
from subtext.server.schemas import Refused
from subtext.server.security import Refusal
from subtext.server.settings import LOOPBACK, Settings


class ServerState:
    """The libraries, metrics and log of a server.

    Raises what opening an index raises, and RequirementError for two indexes of one name.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.libraries: dict[str, Library] = {}
        for number, index in enumerate(settings.indexes):
            name = name_of(index)
            if name in self.libraries:
                raise RequirementError(f"libraries need names of their own; two are called '{name}'; rename one")
            self.libraries[name] = Library(
                name,
                lambda index=index, first=number == 0: _open(settings, index, first=first),  # type: ignore[misc]
                limits=settings.limits,
                metrics=self.metrics,
                image_folders=[Path(folder) for folder in settings.image_folders],
                storage_dir=Path(settings.storage_dir) / name if settings.storage_dir else None,
            )
        storage = next(iter(self.libraries.values())).storage
        self.log = RequestLog((storage or "-") if settings.log == "index" else settings.log)
        local = LOOPBACK if settings.host in ("127.0.0.1", "::1", "localhost") else ()
        self.allowed_hosts = frozenset((*local, *settings.allowed_hosts))

    def library(self, name: str | None) -> Library:
        """The library of that name, by default the first. Raises Refusal where there is none."""
        if name is None:
            return next(iter(self.libraries.values()))
        if name not in self.libraries:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such library here; there are {', '.join(self.libraries)}")
        return self.libraries[name]

    def authorise(self, token: str | None, *, writes: bool) -> None:
        """Raise Refusal unless a request with this token may read, or write."""
        settings = self.settings
        if writes and not settings.token:
            raise Refusal(HTTPStatus.FORBIDDEN, "this server changes nothing; start it with --token-file to allow that")
        accepted = [settings.token]
        if not writes:
            accepted = [settings.token, settings.read_token] if settings.read_token else []
        if not accepted:
            return
        # Every token is compared in full, so the time taken reveals nothing.
        matches = [hmac.compare_digest((token or "").encode(), each.encode()) for each in accepted if each]
        if not any(matches):
            which = "needs a token" if token is None else "needs another token"
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"this {which} (Authorization: Bearer ...)")

    def item_counts(self) -> dict[tuple[str, str], int]:
        """(library, side) -> items, without libraries whose database is away."""
        counts: dict[tuple[str, str], int] = {}
        for name, library in self.libraries.items():
            with suppress(IndexError_):
                counts |= {(name, side): count for side, count in library.store.counts.items()}
        return counts

    def close(self) -> None:
        """Finish the queries that wait, and close files."""
        for library in self.libraries.values():
            library.close()
        self.log.close()


def _open(settings: Settings, index: str, *, first: bool) -> Index:
    """An index; `run` and `features` of the settings belong to the first."""
    run, features = (settings.run, settings.features) if first else (None, None)
    return open_index(index, run=run, features=features, device=settings.device)


BEARER = HTTPBearer(auto_error=False, description="The token that the server was started with.")
Token = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


def _state(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


def _reader(request: Request, token: Token) -> ServerState:
    _state(request).authorise(None if token is None else token.credentials, writes=False)
    return _state(request)


def _writer(request: Request, token: Token) -> ServerState:
    _state(request).authorise(None if token is None else token.credentials, writes=True)
    return _state(request)


Open = Annotated[ServerState, Depends(_state)]
"""The state for a request that needs no token."""
Reading = Annotated[ServerState, Depends(_reader)]
"""The state for a request that may read; else it is refused."""
Writing = Annotated[ServerState, Depends(_writer)]
"""The state for a request that may change something; else it is refused."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused, "description": description}
    for status, description in {
        400: "not a readable request",
        401: "a token is missing or wrong",
        403: "the server takes no changes",
        404: "no such library, item or image",
        408: "the request came too slowly",
        409: "the id exists",
        413: "too many bytes or pixels",
        415: "not an image, or more than an image",
        422: "a value that cannot be used",
        429: "too many requests; Retry-After names the seconds to wait",
        503: "the server is busy; Retry-After names the seconds to wait",
    }.items()
}
"""Answers that refuse, for the OpenAPI description of every route."""
