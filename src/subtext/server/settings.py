"""The settings of a server, as plain data that its processes pass on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Host names of a server that listens to this machine alone."""


@dataclass(frozen=True)
class Limits:
    """The cost that a request may have.

    Attributes:
        body: Bytes are decoded at one time.
        pixels: Of an image that is uploaded, and of all that.
        body_seconds: Time to send it.
        answer_seconds: Time to answer it.
        rate: Requests per second and client, on average; 0 for no limit.
        burst: Requests at once.
        max_requests: Requests in work or waiting; more are refused with 503.
        cached_hits: Hits of earlier answers that are kept in memory.
    """

    body: int = 20 * 2**20
    pixels: int = 50_000_000
    body_seconds: float = 15.0
    answer_seconds: float = 30.0
    rate: float = 20.0
    burst: int = 200
    max_requests: int = 96
    cached_hits: int = 20_000


@dataclass(frozen=True)
class Settings:
    """The settings of a server, as plain data that its processes pass on; see `serve`.

    Attributes:
        token: Of a change, which "" refuses.
        read_token: Of every request, where "" asks for none.
        storage_dir: "" for none.
        log: "index" writes into the first index, "-" to standard output, "" nowhere.
    """

    indexes: tuple[str, ...]
    run: str | None = None
    model: str | None = None
    features: str | None = None
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    workers: int = 1
    token: str = ""
    read_token: str = ""
    image_folders: tuple[str, ...] = ()
    storage_dir: str = ""
    log: str = "index"
    log_private: bool = False
    trust_proxy: bool = False
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> str:
        """For the processes that this one starts."""
        return json.dumps(asdict(self))
