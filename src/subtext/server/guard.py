"""What stands before every request: its host, its pace and its size; and after it: headers, counts and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, no_type_check

from subtext.server.rate import Rate
from subtext.server.refusals import AGAIN, Refusal, told

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from subtext.server.served import Served

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
"""What the answers tell a browser: this page loads nothing from elsewhere, and nobody frames it."""

FREE = ("/healthz", "/metrics")
"""Answered however busy the server is."""
CHEAP, CHEAP_COST = ("/thumbnail", "/page", "/healthz", "/metrics"), 0.05
"""A page of results asks for a picture a hit: these count for little."""


class Guard:
    """Middleware of the server: refuses what is too much before anything is read or computed."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self.app = app
        self.served = served
        limits = served.settings.limits
        self.rate = Rate(limits.rate, limits.burst)
        self.running = 0

    @no_type_check  # Shape checks of the tests take a coroutine for a wrong answer.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, path, seen = time.perf_counter(), str(scope["path"]), {"status": 500}
        facts: dict[str, Any] = scope.setdefault("subtext.log", {})

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                known = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in known)]
            await send(message)

        self.running += 1
        try:
            refusal = self._refusal(scope, path)
            body = b"" if refusal is not None else await self._body(scope, receive)
            if isinstance(body, Refusal):
                refusal = body
            if refusal is not None:
                # The rest of a body that is not wanted is not read: the connection ends with the answer.
                headers = {**refusal.headers, "Connection": "close"}
                await told(refusal.status, str(refusal), headers)(scope, receive, sent)
            else:
                await self.app(scope, _replayed(body, receive), sent)
        finally:
            self.running -= 1
            seconds = time.perf_counter() - started
            place = "/page" if path.startswith("/page/") else path
            self.served.metrics.request(place, seen["status"], seconds)
            self._log(scope, {"status": seen["status"], "ms": round(1000 * seconds, 1), **facts})

    def _refusal(self, scope: Scope, path: str) -> Refusal | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        names = self.served.names
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if names and _without_port(host) not in names:
            return Refusal(HTTPStatus.BAD_REQUEST, "this server does not answer to that host name (--name adds one)")
        length = headers.get(b"content-length", b"0")
        limit = self.served.settings.limits.body
        if not length.isdigit() or int(length) > limit:
            return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may bring {limit:,} bytes; this is more")
        if path in FREE:
            return None
        if self.running > self.served.settings.limits.at_once:
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server is busy; ask again in a moment", again=AGAIN)
        client = (scope.get("client") or ("",))[0]
        cheap = path in CHEAP or path == "/" or path.startswith("/page/")
        wait = self.rate.wait(str(client), cost=CHEAP_COST if cheap else 1.0)
        if wait:
            return Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"so many requests at once; ask again in {wait} s", again=wait)
        return None

    @no_type_check
    async def _body(self, scope: Scope, receive: Receive) -> bytes | Refusal:
        """All that a request brings, unless it is too much or comes too slowly."""
        limits, pieces, total = self.served.settings.limits, [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return Refusal(HTTPStatus.BAD_REQUEST, "the request was not finished")
                    pieces.append(message.get("body", b""))
                    total += len(pieces[-1])
                    if total > limits.body:
                        sentence = f"a request may bring {limits.body:,} bytes; this is more"
                        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            return Refusal(HTTPStatus.REQUEST_TIMEOUT, f"a request has to be there within {limits.body_seconds:g} s")

    def _log(self, scope: Scope, facts: dict[str, Any]) -> None:
        line = {"method": scope["method"], "path": scope["path"][:200], **facts}
        if self.served.settings.log_private:
            line["client"] = (scope.get("client") or ("",))[0]
        else:
            line.pop("words", None)
        self.served.log.line(line)


def _without_port(host: str) -> str:
    """A host name alone.

    >>> _without_port("localhost:8000"), _without_port("[::1]:80"), _without_port("a.example")
    ('localhost', '[::1]', 'a.example')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read already, then what comes after it."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    @no_type_check
    async def again() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return again
