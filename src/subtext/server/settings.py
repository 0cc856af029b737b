"""The settings of a server, as plain data that its processes pass on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Host names of a server that listens to this machine alone."""


@dataclass(frozen=True)
class Limits:
    """The cost that a request may have.

    body          bytes                              pixels   of an image that is uploaded, or shown as a thumbnail
    body_seconds  time to send it                    answer_seconds   time to answer it
    rate          requests per second and client, on average; 0 for no limit     burst  requests at once
    max_requests  requests in work or waiting; more are refused with 503
    cached_hits   hits of earlier answers that are kept in memory
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
    """The settings of a server.

    indexes     folders and addresses; the first one answers where a request names none
    run, features, device   of the first index, as for `subtext search`
    host, port  where it listens; port 0 for any free one
    allowed_hosts  host names that it answers to; empty for any where it listens to other machines
    token       that a request for a change must bring; "" refuses all changes
    read_token  that every request must bring; "" for none
    image_folders  folders beside the indexes' own whose images may be shown
    storage_dir    folder for the thumbnails, uploads and logs of indexes that are no folders; "" for none
    log         "index" writes into the first index, "-" to standard output, "" nowhere
    log_private    logs query texts and client addresses, too
    """

    indexes: tuple[str, ...]
    run: str | None = None
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

    @staticmethod
    def from_json(text: str) -> Settings:
        """The settings that `to_json` wrote.

        >>> Settings.from_json(Settings(("library",), allowed_hosts=("a.example",)).to_json()).allowed_hosts
        ('a.example',)
        """
        values: dict[str, Any] = json.loads(text)
        values = {f.name: values[f.name] for f in fields(Settings)}
        tuples = {name: tuple(values[name]) for name in ("indexes", "allowed_hosts", "image_folders")}
        return Settings(**{**values, **tuples, "limits": Limits(**values["limits"])})
