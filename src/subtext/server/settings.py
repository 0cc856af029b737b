"""What a server is asked to do, as plain data that its processes can hand on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a server that listens to this machine alone may be called."""


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    body          bytes that it may bring                pixels   of a picture that it brings, or that is made small
    body_seconds  until all of it has to be there        answer_seconds   that an answer may take
    rate          requests a second and client, over time; 0 for no limit     burst  so many at once
    at_once       requests that are worked on or wait; beyond them a client is asked to come again
    kept          hits of earlier answers that are kept in memory
    """

    body: int = 20 * 2**20
    pixels: int = 50_000_000
    body_seconds: float = 15.0
    answer_seconds: float = 30.0
    rate: float = 20.0
    burst: int = 200
    at_once: int = 96
    kept: int = 20_000


@dataclass(frozen=True)
class Settings:
    """A server.

    indexes     folders and addresses of databases, the first of which answers where none is named
    run, features, device   of the first index, as for `subtext search`
    host, port  where it listens; port 0 for any free one
    names       host names that it answers to; empty for any where it listens to other machines
    token       that a request for a change has to bring; "" refuses all changes
    read_token  that every request has to bring; "" for none
    pictures    folders beside the indexes' own whose pictures may be shown
    keep        a folder in which indexes that are no folders have one each, by their names; "" for none
    log         "index" keeps a log in the first index, "-" writes to standard output, "" keeps none
    log_private keeps words that were asked for, and addresses of clients, in the log as well
    shared      folder in which the processes of one server count together
    """

    indexes: tuple[str, ...]
    run: str | None = None
    features: str | None = None
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    workers: int = 1
    token: str = ""
    read_token: str = ""
    pictures: tuple[str, ...] = ()
    keep: str = ""
    log: str = "index"
    log_private: bool = False
    behind_proxy: bool = False
    shared: str = ""
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> str:
        """For the processes that this one starts."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """What `to_json` wrote.

        >>> Settings.from_json(Settings(("library",), names=("a.example",)).to_json()).names
        ('a.example',)
        """
        found: Mapping[str, Any] = json.loads(text)
        values = {f.name: found[f.name] for f in fields(Settings)}
        several = {name: tuple(values[name]) for name in ("indexes", "names", "pictures")}
        return Settings(**{**values, **several, "limits": Limits(**values["limits"])})
