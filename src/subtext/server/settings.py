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
        body: Bytes of a request.
        pixels: Pixels of an uploaded image, and of all images that are decoded at one time.
        body_seconds: Seconds in which the body must arrive.
        answer_seconds: Seconds in which a request is answered.
        rate: Requests per second and client, on average; 0 for no limit.
        burst: Requests at once.
        max_requests: Requests that are computed, or wait for that; more are refused with 503.
        client_requests: Requests that one client has at a time, from the end of the head to the answer.
        cached_hits: Number of hits of earlier answers in memory.
    """

    body: int = 20 * 2**20
    pixels: int = 50_000_000
    body_seconds: float = 15.0
    answer_seconds: float = 30.0
    rate: float = 20.0
    burst: int = 200
    max_requests: int = 96
    client_requests: int = 32
    cached_hits: int = 20_000


@dataclass(frozen=True)
class Settings:
    """The settings of a server, as plain data that its processes pass on; see `serve`.

    Attributes:
        indexes: Folders or addresses of the indexes.
        run: New folder of the run of the first index; None if it was not moved.
        model: New folder of the pretrained model of the first index; None if it was not moved.
        features: Precomputed image features of the first index; None for those that it names.
        rerank: Run of a second model, which re-ranks where a request says so; None for none.
        device: Device of torch.
        host: Address to listen on.
        port: Port to listen on.
        allowed_hosts: Host names of allowed requests, besides those of this machine.
        workers: Number of processes.
        where: Conditions on the metadata that every item meets; others are not there.
        token: Token for changes; "" allows none.
        read_token: Token for every request but those for the page's own files and for health; "" for no token.
        image_folders: Further folders whose images may be shown.
        storage_dir: Folder for thumbnails, uploads and log of indexes that are no folders; "" for none.
        log: "index" logs into the first index, "-" to standard output, "" nowhere.
        log_private: Also logs query texts and client addresses.
        trust_proxy: Trusts X-Forwarded-For from a local proxy.
        limits: The cost that a request may have.
    """

    indexes: tuple[str, ...] = field(repr=False)  # An address may hold a password.
    run: str | None = None
    model: str | None = None
    features: str | None = None
    rerank: str | None = None
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    workers: int = 1
    where: tuple[str, ...] = ()
    token: str = ""
    read_token: str = ""
    image_folders: tuple[str, ...] = ()
    storage_dir: str = ""
    log: str = "index"
    log_private: bool = False
    trust_proxy: bool = False
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> str:
        """The settings as JSON, for other processes of the server.

        Returns:
            JSON text.
        """
        return json.dumps(asdict(self))
