"""All that a server has open: its libraries, its counts and its log."""

from __future__ import annotations

import hmac
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from subtext.api.load import open_engine
from subtext.errors import IndexError_, RequirementError
from subtext.search import Engine
from subtext.search.stores.opened import name_of
from subtext.server.library import Library
from subtext.server.log import Log
from subtext.server.metrics import Metrics, resident_bytes
from subtext.server.refusals import Refusal
from subtext.server.settings import LOOPBACK, Settings


class Served:
    """What requests are answered with.

    Raises what opening an index raises, and RequirementError for two indexes of one name.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(Path(settings.shared) if settings.shared else None)
        self.libraries: dict[str, Library] = {}
        further = [Path(folder) for folder in settings.pictures]
        for place, index in enumerate(settings.indexes):
            name = name_of(index)
            if name in self.libraries:
                raise RequirementError(f"indexes are told apart by their names; two are called '{name}'; rename one")
            self.libraries[name] = Library(
                name,
                lambda index=index, first=place == 0: _opened(settings, index, first=first),  # type: ignore[misc]
                limits=settings.limits,
                metrics=self.metrics,
                pictures=further,
                keep=Path(settings.keep) / name if settings.keep else None,
            )
        first = next(iter(self.libraries.values()))
        self.log = Log((first.place or "-") if settings.log == "index" else settings.log)

    @property
    def names(self) -> frozenset[str]:
        """Host names that are answered to; empty for any."""
        local = LOOPBACK if self.settings.host in ("127.0.0.1", "::1", "localhost") else ()
        return frozenset((*local, *self.settings.names)) if local or self.settings.names else frozenset()

    def library(self, name: str | None) -> Library:
        """The library of that name, by default the first. Raises Refusal where there is none."""
        if name is None:
            return next(iter(self.libraries.values()))
        if name not in self.libraries:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such library here; there are {', '.join(self.libraries)}")
        return self.libraries[name]

    def require(self, token: str | None, *, writes: bool) -> None:
        """Raise Refusal unless a request that brings this token may read, or write."""
        own = self.settings
        if writes and not own.token:
            raise Refusal(HTTPStatus.FORBIDDEN, "this server changes nothing; start it with --token-file to allow that")
        wanted = [own.token] if writes else [own.token, own.read_token] if own.read_token else []
        if not wanted:
            return
        given = (token or "").encode()
        # Each is compared in full: how long that takes tells nothing of them.
        fits = [hmac.compare_digest(given, one.encode()) for one in wanted if one]
        if not any(fits):
            which = "needs a token" if token is None else "needs another token"
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"this {which} (Authorization: Bearer ...)")

    def gauges(self) -> dict[str, float]:
        """What is so at this moment, for the counts."""
        found: dict[str, float] = {"subtext_resident_bytes": float(resident_bytes())}
        for name, library in self.libraries.items():
            quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            # The server of a database may be away: all the rest is told meanwhile.
            with suppress(IndexError_):
                for side, count in library.store.counts.items():
                    found[f'subtext_items{{library="{quoted}",side="{side}"}}'] = float(count)
        return found

    def close(self) -> None:
        """Finish what waits, and let go of files."""
        for library in self.libraries.values():
            library.close()
        self.log.close()


def _opened(settings: Settings, index: str, *, first: bool) -> Engine:
    """The engine of an index; where its run and features are now is said of the first alone."""
    run, features = (settings.run, settings.features) if first else (None, None)
    return open_engine(index, run=run, features=features, device=settings.device)
