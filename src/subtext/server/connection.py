"""The connection of a client: limits of its heads, its requests in advance, and the time that it takes to read answers.

uvicorn with httptools reads a request; what it does not bound is bounded here. A body needs a Content-Length (411):
a body in chunks of one byte costs a thousand times what its bytes do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import resource
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

CONNECTIONS = 512
"""Connections of a process at one time, at most."""
HEAD_SECONDS = 10.0
"""Seconds in which the head of a request must arrive."""
SEND_SECONDS = 20.0
"""Seconds in which a client must have read what it was sent."""
HEAD_BYTES, HEAD_LINES = 16_384, 100
"""Size of a request's head."""
HEAD_TOO_LARGE = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"the head of a request may have {HEAD_BYTES:,} bytes and {HEAD_LINES} lines; this one has more",
)
LINGER_SECONDS = 2.0
"""Seconds that a refused client has to read why."""
IN_ADVANCE = 8
"""Requests that a connection may send before the first of them is answered."""
UNREAD = 64 * 2**20
"""Bytes of answers that all clients together have not read yet."""


def most_connections() -> int:
    """Connections that a process has at one time: CONNECTIONS, or a third of the files that it may have open.

    Returns:
        1 or more.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, files // 3))


class ClientConnection(HttpToolsProtocol):
    """A connection that ends where the client sends too much, or takes too long to send a head or to read an answer.

    Where there are more than `most_connections`, the address with the most of them loses the one that has waited
    longest; where all answers that wait to be read are too large, the address with the most of them loses the oldest.
    """

    since = 0.0
    address = ""
    ended = deaf = begins = in_head = False
    refused: tuple[int, str] = (HTTPStatus.BAD_REQUEST, "this is no request that can be read")
    head_bytes = head_lines = 0
    head_timer: asyncio.TimerHandle | None = None
    send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and end another connection where there are too many.

        Args:
            transport: Transport of the connection.
        """
        super().connection_made(transport)
        # Then writing pauses while anything is unread, and resumes when all is read.
        transport.set_write_buffer_limits(high=0)
        self.since = self.loop.time()
        self.address = "" if self.client is None else network(self.client[0])
        self.head_timer = self.loop.call_later(HEAD_SECONDS, self.end)
        present = self._present()
        if len(present) > most_connections():
            self._crowd(present, Counter(one.address for one in present)).end()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the time for its head starts with its first byte.

        Args:
            data: Bytes of a request.
        """
        if self.ended or self.deaf:
            return
        self.begins = False
        super().data_received(data)
        # The parser keeps a line that does not end, and tells nothing of it.
        if self.in_head and not self.begins and not self.deaf:
            self.head_bytes += len(data)
            if self.head_bytes > HEAD_BYTES:
                self.refused = HEAD_TOO_LARGE
                self.send_400_response("")
        if self.running:
            self.head_timer = _stopped(self.head_timer)
        elif self.head_timer is None and not self.deaf:
            self.head_timer = self.loop.call_later(HEAD_SECONDS, self.end)

    def on_message_begin(self) -> None:
        """Begin to count the head of a request."""
        super().on_message_begin()
        self.head_bytes = self.head_lines = 0
        self.begins = self.in_head = True

    def on_url(self, url: bytes) -> None:
        """Count a part of the address.

        Args:
            url: Bytes of the address.
        """
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a line of the head.

        Args:
            name: Name of the header.
            value: Its value.
        """
        self.head_lines += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, or refuse a body without a length, and too many requests in advance."""
        if any(name == b"transfer-encoding" for name, _ in self.headers):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length; it cannot come in chunks")
        if len(self.pipeline) >= IN_ADVANCE:
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "a client waits for its answers before it asks for more")
        super().on_headers_complete()
        self.in_head = False
        self.since = self.loop.time()

    def on_response_complete(self) -> None:
        """Wait for another request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is being read, and end the connection.

        Args:
            msg: uvicorn's words, for which `refused` stands.
        """
        # What still comes is not read: a client that is closed at once may lose the answer, or come again at once.
        self.deaf = True
        self._unset_keepalive_if_required()
        self.loop.call_later(HEAD_SECONDS if self.running else LINGER_SECONDS, self.end)
        if self.running:
            # An answer to an earlier request is on its way, and nothing can be told before it.
            return
        status, sentence = self.refused
        body = json.dumps({"error": sentence, "status": int(status)}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[int(status)] + head + body)
        self.transport.write_eof()

    def pause_writing(self) -> None:
        """The client has to read what it was sent, within SEND_SECONDS."""
        super().pause_writing()
        self.send_timer = self.loop.call_later(SEND_SECONDS, self.end)
        unread = Counter[str]()
        present = [one for one in self._present() if one.send_timer is not None]
        for one in present:
            unread[one.address] += one.transport.get_write_buffer_size()
        if unread.total() > UNREAD:
            self._crowd(present, unread).end()

    def resume_writing(self) -> None:
        """The client has read it."""
        self.send_timer = _stopped(self.send_timer)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection.

        Args:
            exc: The error that ended it; None for none.
        """
        self.ended = True
        self.head_timer, self.send_timer = _stopped(self.head_timer), _stopped(self.send_timer)
        super().connection_lost(exc)

    @property
    def running(self) -> bool:
        """Whether a request has come whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def end(self) -> None:
        """Close at once, without waiting for a client that does not read."""
        self.ended = True
        self.transport.abort()

    def _present(self) -> list[ClientConnection]:
        return [one for one in self.connections if isinstance(one, ClientConnection) and not one.ended]

    def _crowd(self, present: Iterable[ClientConnection], shares: Counter[str]) -> ClientConnection:
        """Of the address with the largest share, the connection that waits longest, one without a request first."""
        address = shares.most_common(1)[0][0]
        return min((one for one in present if one.address == address), key=lambda one: (one.running, one.since))

    def _count(self, size: int) -> None:
        self.head_bytes += size
        if self.head_bytes > HEAD_BYTES or self.head_lines > HEAD_LINES:
            self._refuse(*HEAD_TOO_LARGE)

    def _refuse(self, status: int, sentence: str) -> None:
        """Stop the parser, which then calls `send_400_response`.

        Raises:
            ValueError: Always.
        """
        self.refused = (status, sentence)
        raise ValueError(sentence)


def network(address: str) -> str:
    """What stands for a client: its address; of IPv6 the network, of which a client has all addresses.

    Args:
        address: An address.

    Returns:
        The address, or its first 64 bits.

    Example:
        >>> network("192.0.2.7"), network("2001:db8:0:1:2:3:4:5"), network("2001:db8::5"), network("::ffff:192.0.2.7")
        ('192.0.2.7', '2001:db8:0:1::/64', '2001:db8::/64', '192.0.2.7')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer, in place of one that is cancelled."""
    if timer is not None:
        timer.cancel()
    return None
