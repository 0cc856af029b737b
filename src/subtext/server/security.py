"""What protects a server: refusals as HTTP answers, rate limits, and checks of host and size before every request."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, no_type_check

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from subtext.errors import DataError, IndexError_, OutputError, RequirementError, SubtextError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from subtext.server.state import ServerState

RETRY_SECONDS = 1
"""Seconds after which a refused client may try again."""
CLIENTS = 10_000
"""Clients whose rates are remembered; the least recent is forgotten first."""
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
"""Headers of every answer: the page loads nothing from elsewhere, and cannot be framed."""
ALWAYS_ANSWERED = ("/healthz", "/metrics")
"""Answered however busy the server is."""
CHEAP, CHEAP_COST = ("/", "/thumbnail", "/healthz", "/metrics"), 0.05
"""Paths, beside /page/..., that count little: a page of results requests an image per hit."""
FORMER_PARAMETERS = {
    b"unlike": b"not_like",
    b"without": b"not_text",
    b"by_words": b"lexical",
    b"hubs": b"hubness",
    b"why": b"explain",
}
"""Former name of a parameter of /search -> its name now; both work."""


class Refusal(SubtextError):
    """A request that is refused.

    status  of HTTP          retry   seconds after which it may be tried again; None where that would not help
    """

    def __init__(self, status: int, sentence: str, *, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status = int(status)
        self.retry = retry

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {} if self.retry is None else {"Retry-After": str(self.retry)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else headers


def error_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as {"error": "...", "status": 422}."""
    return JSONResponse({"error": sentence, "status": status}, status_code=status, headers=dict(headers or {}))


def etag_response(request: Request, data: bytes, media_type: str, *, cache: str = "no-cache") -> Response:
    """The data, or 304 where the client has it already. `cache` is the Cache-Control header."""
    tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": cache}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(data, media_type=media_type, headers=headers)


def refusal_of(error: SubtextError) -> Refusal:
    """The refusal for an error of the library. Server errors tell no paths.

    >>> refusal_of(RequirementError("a condition needs a field")).status
    422
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequirementError | DataError):
        return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    if isinstance(error, IndexError_):
        sentence = "this library cannot be read just now; its log says why"
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=5)
    if isinstance(error, OutputError):
        return Refusal(HTTPStatus.INSUFFICIENT_STORAGE, "this library cannot be written; nothing was changed")
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the server made a mistake; its log says which")


def handle_errors(app: FastAPI) -> None:
    """Answer every error in the form of `error_response`."""

    def library_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, SubtextError)
        refusal = refusal_of(error)
        if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, Refusal):
            log_facts(request, {"error": f"{type(error).__name__}: {error}"})
        return error_response(refusal.status, str(refusal), refusal.headers)

    def validation_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # Values are not echoed: they may be long, or not text at all.
        parts = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()[:3]]
        return error_response(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(parts))

    def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return error_response(error.status_code, str(error.detail), error.headers)

    app.add_exception_handler(SubtextError, library_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)


def log_facts(request: Request, facts: Mapping[str, Any]) -> None:
    """Add facts to the request's line in the log."""
    request.scope.setdefault("subtext.log", {}).update(facts)


class RateLimit:
    """A token bucket per client.

    rate   tokens per second; 0 for no limit     burst  tokens of a full bucket
    clock  seconds
    """

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = float(burst)
        self.clock = clock
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, *, cost: float = 1.0) -> int:
        """Take `cost` tokens; 0, or the seconds after which there will be as many.

        >>> limit = RateLimit(2, 1, clock=lambda: 0.0)
        >>> limit.wait("a"), limit.wait("a"), limit.wait("b")
        (0, 1, 0)
        """
        if self.rate <= 0:
            return 0
        now = self.clock()
        tokens, since = self.buckets.pop(client, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate)
        enough = tokens >= cost
        self.buckets[client] = (tokens - cost if enough else tokens, now)
        while len(self.buckets) > CLIENTS:
            self.buckets.popitem(last=False)
        return 0 if enough else max(1, math.ceil((cost - tokens) / self.rate))


class Guard:
    """Middleware: refuses a request that is too much before anything is computed; adds headers, metrics and the log."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state
        limits = state.settings.limits
        self.rate = RateLimit(limits.rate, limits.burst)
        self.running = 0

    @no_type_check  # The shape checks of the tests take a coroutine for a wrong result.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, path, answered = time.perf_counter(), str(scope["path"]), {"status": 500}
        facts: dict[str, Any] = scope.setdefault("subtext.log", {})

        async def send_secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
            await send(message)

        self.running += 1
        try:
            refusal = self._refusal(scope, path)
            body = b"" if refusal is not None else await self._body(scope, receive)
            if isinstance(body, Refusal):
                refusal = body
            if refusal is not None:
                # The rest of the body is not read: the connection ends with the answer.
                headers = {**refusal.headers, "Connection": "close"}
                await error_response(refusal.status, str(refusal), headers)(scope, receive, send_secured)
            else:
                if path == "/search":
                    scope["query_string"] = _current_parameters(scope["query_string"])
                await self.app(scope, _replay(body, receive), send_secured)
        finally:
            self.running -= 1
            seconds = time.perf_counter() - started
            counted = "/page" if path.startswith("/page/") else path
            self.state.metrics.request(counted, answered["status"], seconds)
            self._log(scope, {"status": answered["status"], "ms": round(1000 * seconds, 1), **facts})

    def _refusal(self, scope: Scope, path: str) -> Refusal | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        limits = self.state.settings.limits
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.state.allowed_hosts and _without_port(host) not in self.state.allowed_hosts:
            sentence = "this server does not answer to that host name (--allowed-host adds one)"
            return Refusal(HTTPStatus.BAD_REQUEST, sentence)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limits.body:
            return _too_large(limits.body)
        if path in ALWAYS_ANSWERED:
            return None
        if self.running > limits.max_requests:
            sentence = "the server is busy; try again in a moment"
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS)
        client = (scope.get("client") or ("",))[0]
        cheap = path in CHEAP or path.startswith("/page/")
        wait = self.rate.wait(str(client), cost=CHEAP_COST if cheap else 1.0)
        if wait:
            return Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"too many requests; try again in {wait} s", retry=wait)
        return None

    @no_type_check
    async def _body(self, scope: Scope, receive: Receive) -> bytes | Refusal:
        """The body of a request, unless it is too large or too slow."""
        limits, chunks, total = self.state.settings.limits, [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return Refusal(HTTPStatus.BAD_REQUEST, "the request was not finished")
                    chunks.append(message.get("body", b""))
                    total += len(chunks[-1])
                    if total > limits.body:
                        return _too_large(limits.body)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            return Refusal(HTTPStatus.REQUEST_TIMEOUT, f"a request must arrive within {limits.body_seconds:g} s")

    def _log(self, scope: Scope, facts: dict[str, Any]) -> None:
        line = {"method": scope["method"], "path": scope["path"][:200], **facts}
        if self.state.settings.log_private:
            line["client"] = (scope.get("client") or ("",))[0]
        else:
            line.pop("words", None)
        self.state.log.write(line)


def _too_large(limit: int) -> Refusal:
    sentence = f"a request may have {limit:,} bytes; this one has more"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)


def _current_parameters(query: bytes) -> bytes:
    """A query string with today's names of parameters.

    >>> _current_parameters(b"q=a&unlike=b&why=true")
    b'q=a&not_like=b&explain=true'
    """
    pairs = (pair.partition(b"=") for pair in query.split(b"&"))
    return b"&".join(FORMER_PARAMETERS.get(name, name) + equals + value for name, equals, value in pairs)


def _without_port(host: str) -> str:
    """A host name alone.

    >>> _without_port("localhost:8000"), _without_port("[::1]:80"), _without_port("a.example")
    ('localhost', '[::1]', 'a.example')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read already, then what follows."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    @no_type_check
    async def replayed() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return replayed
