"""Protection of a server: refusals as HTTP answers, rate limits, and checks of host and size before every request."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, no_type_check

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from subtext.errors import DataError, OutputError, RequirementError, SearchIndexError, SubtextError
from subtext.server.connection import network
from subtext.server.refusal import RETRY_SECONDS, Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from subtext.server.state import ServerState

BODIES, CLIENT_BODIES = 8, 4
"""Bodies of the largest size that a process holds at one time, in bytes; and of one client."""
SMALL_BODIES = {"/score": 2**18, "/delete": 2**21, "/lists": 2**22}
"""Bytes of a body, for routes that need few: a hundred, and a thousand, of the longest ids; 5,000 of common ones."""
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
UNLIMITED = ("/healthz",)
"""Answered however often a client asks: it costs nearly nothing."""
PUBLIC = ("/", "/healthz", "/readyz")
"""What needs no token, beside the files of the page, /page/...: it holds nothing of a library."""
CHANGES = ("/add", "/delete")
"""What needs the token for changes; of `LISTS`, whatever is no GET."""
LISTS = "/lists"
"""Saved lists; behind it, and a slash, stands the link of one."""
CHEAP, CHEAP_COST = ("/", "/thumbnail", "/readyz", "/metrics"), 0.05
"""Paths, beside /page/..., that count little: a page of results requests an image per hit."""


def error_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as {"error": "...", "status": 422}.

    Args:
        status: HTTP status.
        sentence: What went wrong.
        headers: Further headers.

    Returns:
        The response.
    """
    return JSONResponse({"error": sentence, "status": status}, status_code=status, headers=dict(headers or {}))


def etag_response(request: Request, data: bytes, media_type: str, *, cache: str = "no-cache") -> Response:
    """The data, or 304 where the client has it already. `cache` is the Cache-Control header.

    Args:
        request: The request.
        data: Bytes of the body.
        media_type: Content type.
        cache: Value of the Cache-Control header.

    Returns:
        The response: 200 with the body, or 304 without.
    """
    tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": cache}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(data, media_type=media_type, headers=headers)


def library_error(request: Request, error: SubtextError) -> JSONResponse:
    """The answer for an error of the library. Server errors tell no paths; the log does.

    Args:
        request: The request.
        error: The error.

    Returns:
        The response.
    """
    if isinstance(error, Refusal):
        refusal = error
    elif isinstance(error, RequirementError | DataError):
        refusal = Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    elif isinstance(error, SearchIndexError):
        sentence = "this library cannot be read just now; its log says why"
        refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=5)
    elif isinstance(error, OutputError):
        sentence = "this library cannot be written; nothing was changed"
        refusal = Refusal(HTTPStatus.INSUFFICIENT_STORAGE, sentence)
    else:
        refusal = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the server made a mistake; its log says which")
    if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR and refusal is not error:
        log_facts(request, {"error": f"{type(error).__name__}: {error}"})
    return error_response(refusal.status, str(refusal), refusal.headers)


def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
    """The answer for values that cannot be used. They are not echoed: they may be long, or not text at all.

    Args:
        request: The request.
        error: The errors of the validator.

    Returns:
        The response, 422.
    """
    return error_response(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(map(_sentence, error.errors()[:3])))


_NEEDS = {
    "missing": "is missing", "int_parsing": "needs a whole number", "int_from_float": "needs a whole number",
    "int_type": "needs a whole number", "float_parsing": "needs a number", "float_type": "needs a number",
    "bool_parsing": "needs true or false", "bool_type": "needs true or false", "string_type": "needs a text",
    "list_type": "needs a list", "dict_type": "needs an object", "model_attributes_type": "needs a JSON object",
    "model_type": "needs a JSON object", "json_invalid": "is no JSON", "literal_error": "needs {expected}",
    "less_than_equal": "needs {le} or less", "greater_than_equal": "needs {ge} or more",
    "greater_than": "needs more than {gt}", "string_too_long": "needs {max_length} characters or fewer",
    "string_too_short": "needs {min_length} characters or more",
    "too_long": "needs {max_length} or fewer", "too_short": "needs {min_length} or more",
    "string_pattern_mismatch": "has characters that it cannot have", "extra_forbidden": "is not accepted here",
}  # fmt: skip
"""Kind of a validator's error -> the rest of a sentence about the value; others keep the validator's words."""


def _sentence(part: Mapping[str, Any]) -> str:
    """One error of the validator in plain words: 'top' needs 200 or less."""
    name = ".".join(str(place)[:80] for place in part["loc"] if place not in ("query", "body"))
    if part["type"] == "value_error":
        return str(part["msg"]).removeprefix("Value error, ")
    known = _NEEDS.get(part["type"])
    needs = part["msg"] if known is None else known.format(**part.get("ctx", {}))
    # The place of what is no JSON is a number of characters.
    return f"'{name}' {needs}" if name and part["type"] != "json_invalid" else f"the body {needs}"


ERROR_HANDLERS: dict[int | type[Exception], Any] = {
    SubtextError: library_error,
    RequestValidationError: validation_error,
    HTTPException: lambda _, error: error_response(error.status_code, str(error.detail), error.headers),
}


def log_facts(request: Request, facts: Mapping[str, Any]) -> None:
    """Add facts to the request's line in the log.

    Args:
        request: The request.
        facts: Name -> value.
    """
    request.scope.setdefault("subtext.log", {}).update(facts)


def client_of(scope: Scope) -> str:
    """Whose request it is, as far as shares and rates are concerned.

    Args:
        scope: As in ASGI.

    Returns:
        See `network`.
    """
    return network(str((scope.get("client") or ("",))[0]))


class RateLimit:
    """A token bucket per client.

    Args:
        rate: Tokens per second; 0 for no limit.
        burst: Tokens of a full bucket.
        clock: Seconds.
    """

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = float(burst)
        self.clock = clock
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, *, cost: float = 1.0) -> int:
        """Take `cost` tokens; 0, or the seconds after which there will be as many.

        Args:
            client: Address of the client.
            cost: Number of tokens.

        Returns:
            Seconds; 0 where the tokens were taken.

        Example:
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
    """Middleware: refuses a request that is too much before anything is computed; adds headers, metrics and the log.

    First the head decides: host, rate, token, length and kind of the body. Then the body is read, within its time and
    the share of its client. Then the request takes one of the slots, until its answer begins: a client that sends
    slowly, or reads slowly, holds none.

    Args:
        app: The application behind the guard.
        state: The state of the server.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state
        limits = state.settings.limits
        self.rate = RateLimit(limits.rate, limits.burst)
        self.bodies = {"/search": limits.body, "/add": limits.body}
        self.bodies |= {path: min(limits.body, size) for path, size in SMALL_BODIES.items()}
        self.running = 0
        self.open: Counter[str] = Counter()
        self.held: Counter[str] = Counter()

    @no_type_check  # The shape checks of the tests take a coroutine for a wrong result.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it.

        Args:
            scope: As in ASGI.
            receive: As in ASGI.
            send: As in ASGI.
        """
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, path, answered = time.perf_counter(), str(scope["path"]), {"status": 500}
        share = client_of(scope)
        facts: dict[str, Any] = scope.setdefault("subtext.log", {})
        body, slots = bytearray(), 0

        async def send_secured(message: MutableMapping[str, Any]) -> None:
            nonlocal slots
            if message["type"] == "http.response.start":
                self.running -= slots
                slots = 0
                answered["status"] = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
            await send(message)

        self.open[share] += 1
        try:
            self._check(scope, path, share)
            length = self._body_length(scope, path)
            if length:
                await self._read(body, receive, share)
            if path not in ALWAYS_ANSWERED:
                if self.running >= self.state.settings.limits.max_requests:
                    raise _busy("the server is busy; try again in a moment")
                slots = 1
                self.running += 1
                self.state.metrics.running.set(self.running)
            scope["subtext.body"] = body
            await self.app(scope, receive, send_secured)
        except Refusal as refusal:
            # The rest of the body is not read: the connection ends with the answer.
            headers = {**refusal.headers, "Connection": "close"}
            await error_response(refusal.status, str(refusal), headers)(scope, receive, send_secured)
        finally:
            self.running -= slots
            for counts, count in ((self.open, 1), (self.held, len(body))):
                counts[share] -= count
                if not counts[share]:
                    del counts[share]
            seconds = time.perf_counter() - started
            self.state.metrics.request(_route(path), str(scope["method"]), answered["status"], seconds)
            self.state.metrics.running.set(self.running)
            line = {"method": scope["method"], "path": path[:200], "status": answered["status"]}
            line |= {"ms": round(1000 * seconds, 1), **facts}
            if self.state.settings.log_private:
                line["client"] = str((scope.get("client") or ("",))[0])
            else:
                line.pop("words", None)
            # What costs a client nothing must not fill the disk.
            if path not in UNLIMITED and answered["status"] != HTTPStatus.TOO_MANY_REQUESTS:
                self.state.log.write(line)

    def _check(self, scope: Scope, path: str, share: str) -> None:
        """Raise Refusal for another host or site, too many requests, and a token that is missing."""
        headers = dict(scope["headers"])
        limits, hosts = self.state.settings.limits, self.state.allowed_hosts
        host = re.sub(r":\d+$", "", headers.get(b"host", b"").decode("latin-1").lower())
        if hosts and host not in hosts:
            sentence = "this server does not answer to that host name (--allowed-host adds one)"
            raise Refusal(HTTPStatus.BAD_REQUEST, sentence)
        if path not in UNLIMITED:
            cheap = path in CHEAP or path.startswith("/page/")
            wait = self.rate.wait(share, cost=CHEAP_COST if cheap else 1.0)
            if wait:
                raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"too many requests; try again in {wait} s", retry=wait)
            if self.open[share] > limits.client_requests:
                raise _busy(f"a client may have {limits.client_requests} requests at a time; try again in a moment")
        if path in PUBLIC or path.startswith("/page/"):
            return
        # A page elsewhere may send its visitors' browsers here; it cannot read the answer, but it costs the same.
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Refusal(HTTPStatus.FORBIDDEN, "this server answers no page of another site")
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        writes = path in CHANGES or (_route(path) == LISTS and scope["method"] not in ("GET", "HEAD"))
        self.state.authorise(token.strip() if scheme.lower() == "bearer" else None, writes=writes)

    def _body_length(self, scope: Scope, path: str) -> int:
        """Bytes of the body; raises Refusal for one that is too large, or of another kind than the route takes."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        takes = scope["method"] == "POST" or (scope["method"] == "PUT" and _route(path) == LISTS)
        limit = self.bodies.get(_route(path), 0) if takes else 0
        # A number of more digits than the limit is larger; int() would read them all.
        if not length.isdigit() or len(length) > 20 or int(length) > limit:
            raise _too_large(limit)
        if limit:
            kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
            wanted = "image/" if path == "/search" else "application/json"
            # No kind that a page of another site may send without asking first.
            if not kind.startswith(wanted):
                name = "image/jpeg, or what the image is" if path == "/search" else wanted
                raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body needs a Content-Type of {name}")
        return int(length)

    @no_type_check
    async def _read(self, body: bytearray, receive: Receive, share: str) -> None:
        """Read the body of a request.

        Raises:
            Refusal: If it is too slow, or others are held.
        """
        limits = self.state.settings.limits
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(HTTPStatus.BAD_REQUEST, "the request was not finished")
                    part = message.get("body", b"")
                    body += part
                    self.held[share] += len(part)
                    if self.held.total() > BODIES * limits.body or self.held[share] > CLIENT_BODIES * limits.body:
                        raise _busy("the server is busy with other uploads; try again in a moment")
                    if not message.get("more_body", False):
                        return
        except TimeoutError as problem:
            sentence = f"a request must arrive within {limits.body_seconds:g} s"
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, sentence) from problem


def _route(path: str) -> str:
    """A path without what it names: a file of the page, or the link of a list."""
    first = "/".join(path.split("/")[:2])
    return first if first in ("/page", LISTS) else path


def _busy(sentence: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS)


def _too_large(limit: int) -> Refusal:
    sentence = f"a request may have {limit:,} bytes; this one has more" if limit else "this route takes no body"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
