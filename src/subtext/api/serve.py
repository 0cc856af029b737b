"""`subtext serve`: what was asked for becomes a server, if what it needs is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subtext.errors import RequirementError


def serve_indexes(
    indexes: Sequence[Path | str],
    options: Mapping[str, Any],
    *,
    body: int,
    pixels: int,
    rate: float,
    quiet: bool = False,
) -> None:
    """Serve until it is ended.

    options  fields of `Settings` besides its indexes and limits
    body, pixels, rate   see `Limits`

    Raises RequirementError when a package is missing, and what starting raises.
    """
    try:
        from subtext.server.launch import serve
    except ModuleNotFoundError as problem:
        raise RequirementError(
            f"serving needs the package '{problem.name}', which is not installed; pip install 'subtext[serve]'"
        ) from problem
    from subtext.server.settings import Limits, Settings

    log = options["log"]
    named = tuple(index if isinstance(index, str) else str(index.expanduser().resolve()) for index in indexes)
    limits = Limits(body=body, pixels=pixels, rate=rate)
    settings = Settings(named, limits=limits, **{**options, "log": "" if log == "none" else log})
    serve(settings, quiet=quiet)
