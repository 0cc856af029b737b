"""Images behind https: their states, and their bytes. A redirection leads from a public host to public ones."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from hashlib import blake2b
from http.client import HTTPException, HTTPMessage, HTTPSConnection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from subtext.data.addresses import is_https, shown
from subtext.errors import DataError

ANSWER = 30
"""Seconds in which a host has to go on with an answer."""
WHOLE = 300.0
"""Seconds that are spent, in all, on waiting for what a host sends."""
UNSAID = 2**24
"""Bytes that an image is taken to have where its host does not say how many."""
REDIRECTIONS = 5
"""Other places that an https address may lead to, one after the other."""
SILENT, AGAIN = 3, 60.0
"""Failures of a host, one after the other, after which it is not asked for some seconds."""


class State(NamedTuple):
    """What changes with an image at an address.

    Attributes:
        size: Bytes.
        time: Of the last change, nanoseconds; 0 where its host tells none.
        tag: Changes with the content where a host tells no time, or always where it tells nothing; else 0.
    """

    size: int
    time: int
    tag: int = 0


def key_of(text: str) -> int:
    """64 bits that stand for a text.

    Args:
        text: Any text.

    Returns:
        The number.
    """
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class AbsentError(DataError):
    """Nothing lies at an address."""


def absent(address: str) -> AbsentError:
    """Make the error of an address where nothing is.

    Args:
        address: The address.

    Returns:
        The error.
    """
    return AbsentError(f"image {shown(address)} is not there; correct its address, or add it")


def require_small(address: str, size: int, most: int | None) -> None:
    """Require that an image has no more bytes than it may.

    Args:
        address: Of the image.
        size: Its bytes.
        most: Bytes that it may have; None for no limit.

    Raises:
        DataError: If it has more.
    """
    if most is not None and size > most:
        raise DataError(
            f"image {shown(address)} has {size:,} bytes, above the limit of {most:,}; make it smaller, or allow more "
            "where there is memory for it (--max-pixels)"
        )


class _PrivateError(Exception):
    """A host of a private network, where a public one is needed."""


class _Request(Request):
    """A request that may need a public host.

    Attributes:
        public: Whether the host needs to be public.
        was_public: Whether it was.
    """

    public, was_public = False, True


class _Connection(HTTPSConnection):
    """A connection to the very host that was looked at: a name may lead elsewhere the next time."""

    def __init__(self, host: str, *, about: _Request, **options: Any) -> None:
        super().__init__(host, **options)
        self._about = about

    def connect(self) -> None:
        tunnel: str | None = self._tunnel_host  # type: ignore[attr-defined]
        if tunnel:
            self._require_public(_numeric(tunnel))  # The proxy decides where a name leads.
            super().connect()
            return
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        self._require_public(found)
        failed: OSError | None = None
        for place in found:
            try:
                plain = socket.create_connection((str(place[4][0]), self.port), self.timeout)
            except OSError as problem:
                failed = problem
                continue
            try:
                self.sock = self._context.wrap_socket(plain, server_hostname=self.host)  # type: ignore[attr-defined]
            except OSError:
                plain.close()
                raise
            return
        raise failed or OSError("its name leads nowhere")

    def _require_public(self, found: list[Any]) -> None:
        """Require public places where they are needed. One public place among private ones makes a host public."""
        public = [_is_public(str(place[4][0])) for place in found]
        self._about.was_public = any(public) or not public
        if self._about.public and not all(public):
            raise _PrivateError


def _numeric(host: str) -> list[Any]:
    """The place of an address in numbers; none for a name, which is not looked up."""
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return []


class _Socket(ssl.SSLSocket):
    """Bounds the time that a host takes in all: one that sends a little at a time would hold the room of others."""

    _waited = 0.0

    def recv_into(self, *args: Any, **options: Any) -> int:
        if self._waited > WHOLE:
            raise OSError(f"its host took more than {WHOLE:g} seconds to send it")
        begun = time.monotonic()
        try:
            return super().recv_into(*args, **options)
        finally:
            self._waited += time.monotonic() - begun


def _is_public(host: str) -> bool:
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        # Some addresses of IPv6 lead to one of IPv4.
        translated = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        inner = address.ipv4_mapped or address.sixtofour or translated
        return address.is_global if inner is None else inner.is_global
    return address.is_global


_NAT64 = ip_network("64:ff9b::/96")


class _Handler(HTTPSHandler):
    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(_Connection, about=req, context=_trusted()), req)  # type: ignore[arg-type]


@lru_cache(1)
def _trusted() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.sslsocket_class = _Socket
    return context


class _Redirects(HTTPRedirectHandler):
    """Follows an address to other https hosts; from a public one to public ones alone."""

    max_redirections = REDIRECTIONS

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The request of the next host."""
        assert isinstance(req, _Request)
        if not is_https(newurl):
            fp.close()
            raise URLError("it leads to an address that is not https")
        # The other headers, such as Host, are of the host that was asked.
        made = _Request(newurl, headers=dict(req.headers), method=req.get_method())
        made.public = req.public or req.was_public
        return made


@lru_cache(2)
def _opener(*, proxy: bool) -> OpenerDirector:
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(None if proxy else {}),
        _Handler(),
        _Redirects(),
        HTTPErrorProcessor(),
        HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


_silent: dict[str, tuple[int, float]] = {}
"""Host -> its failures, one after the other, and when the last one was."""


@contextmanager
def _answer(address: str, *, method: str = "GET", public: bool = False, part: str = "") -> Iterator[Any]:
    """The answer of a host.

    Raises:
        DataError: For one that is none, or says that the image cannot be had.
    """
    host, name = urlsplit(address).netloc.lower(), shown(address)
    failures, last = _silent.get(host, (0, 0.0))
    if failures >= SILENT and time.monotonic() - last < AGAIN:
        raise DataError(f"image {name} cannot be read: its host did not answer {failures} times, and is not asked now")
    request = _Request(quote(address.partition("#")[0], safe="%/:=&?~+!$,;'@()*[]"), method=method)
    request.add_header("User-Agent", "Subtext")
    if part:
        request.add_header("Range", part)
    request.public = public
    try:
        # Behind a proxy, nobody here sees where a name leads.
        with _opener(proxy=not public).open(request, timeout=ANSWER) as answer:
            _silent.pop(host, None)
            yield answer
    except HTTPError as problem:
        problem.close()
        _silent.pop(host, None)
        if problem.code in (404, 410):
            raise absent(address) from problem
        raise _RefusedError(f"image {name} is refused by its host: {problem.code} {problem.reason}") from problem
    except _PrivateError as problem:
        raise DataError(
            f"image {name} lies, or leads to, a host of a private network, which is not asked here"
        ) from problem
    except DataError:
        raise
    except (OSError, HTTPException, ValueError) as problem:
        reason = problem.reason if isinstance(problem, URLError) else problem
        if isinstance(reason, _PrivateError):
            raise DataError(f"image {name} leads to a host of a private network, which is not asked here") from problem
        if not isinstance(reason, str):
            _silent[host] = failures + 1, time.monotonic()
        said = "no answer in time" if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
        raise DataError(f"image {name} cannot be read: {said:.200}") from problem


class _RefusedError(DataError):
    """A host that refuses an address."""


def head(address: str) -> State:
    """Ask a host for the state of an image.

    Args:
        address: Of https.

    Returns:
        The state.

    Raises:
        DataError: If the host does not tell it; an `AbsentError` where nothing is.
    """
    try:
        with _answer(address, method="HEAD") as answer:
            return _said(answer.headers, answer.headers.get("Content-Length"))
    except _RefusedError:
        # Some hosts answer no HEAD, and a signed address is signed for one method.
        with _answer(address, part="bytes=0-0") as answer:
            whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
            return _said(answer.headers, whole or answer.headers.get("Content-Length"))


def _said(headers: HTTPMessage, length: str | None) -> State:
    """The state that the head of an answer tells."""
    changed, tag = 0, 0
    if (said := headers.get("Last-Modified")) is not None:
        try:
            changed = int(parsedate_to_datetime(said).replace(tzinfo=UTC).timestamp()) * 10**9
        except (ValueError, OverflowError):
            changed = 0
    if not changed and (mark := headers.get("ETag")):
        tag = key_of(mark) >> 1
    elif not changed:
        # It tells nothing: the content is compared each time.
        tag = time.time_ns()
    return State(int(length) if length and length.isdecimal() else 0, changed, tag)


def download(
    address: str,
    most: int | None,
    *,
    public: bool,
    hold: Callable[[int], AbstractContextManager[None]],
    take: Callable[[bytes], None] | None,
) -> tuple[State, bytes]:
    """Download an image.

    Args:
        address: Of https.
        most: Bytes that it may have; None for no limit.
        public: Whether a host of a private network is refused.
        hold: Waits until there is room for so many bytes, and holds it.
        take: Gets the bytes while the room is held; None for none.

    Returns:
        The state, and the bytes.

    Raises:
        DataError: If it cannot be had, is too large, a page, or cut off; an `AbsentError` where nothing is.
    """
    with _answer(address, public=public) as answer:
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind.startswith("text/"):
            raise DataError(f"image {shown(address)} is a page ({kind}), and no image; name the address of the image")
        said = answer.headers.get("Content-Length") or ""
        size = int(said) if said.isdecimal() else 0
        require_small(address, size, most)
        with hold(size or UNSAID):
            data: bytes = answer.read() if most is None else answer.read(most + 1)
            require_small(address, len(data), most)
            if len(data) < size:
                raise DataError(f"image {shown(address)} is cut off: its host sent {len(data):,} of {size:,} bytes")
            if take is not None:
                take(data)
        return _said(answer.headers, said or str(len(data))), data
