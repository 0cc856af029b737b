"""`subtext.show_cache`: what the cache of the outputs of frozen encoders holds, and how to empty it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from subtext.report.text_table import Report, table
from subtext.settings import command
from subtext.text_helpers import counted, size


@dataclass(frozen=True, repr=False)
class CacheReport(Report):
    """What the cache holds.

    Attributes:
        folder: Its folder; "" where there is none.
        bytes: Its size.
        limit: The largest size.
        entries: One mapping per encoder: encoder, items and bytes.
    """

    folder: str
    bytes: int
    limit: int
    entries: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data.

        Returns:
            Its attributes by name.
        """
        return {**vars(self), "entries": list(self.entries)}

    def _lines(self) -> list[str]:
        from subtext.data.output_cache import LIMIT, PLACE

        if not self.folder:
            return [f"no cache: {LIMIT} is 0, or this user has no folder for one; {PLACE} names a folder"]
        head = ["encoder", "items", "size"]
        rows: list[list[Any]] = [[entry["encoder"], entry["items"], size(entry["bytes"])] for entry in self.entries]
        total = f"{self.folder}: {size(self.bytes)} of at most {size(self.limit)}"
        return [total, *([table(head, rows)] if rows else []), f"{PLACE} and {LIMIT} place and limit it"]

    def __repr__(self) -> str:
        return f"CacheReport({self.folder!r}, {counted(len(self.entries), 'encoder')})"


@command
def show_cache(*, clear: Annotated[bool, "Remove everything that is in it."] = False) -> CacheReport:
    """Show the cache of the outputs of frozen encoders, which training, evaluation, search and curation share.

    It is in `subtext` in the user's cache folder. The environment variable SUBTEXT_CACHE names another place, and
    SUBTEXT_CACHE_LIMIT its largest size (10GB by default; 0 to keep nothing). Above the limit, what was not used for
    longest is removed.

    Args:
        clear: Remove everything that is in it.

    Returns:
        Its place, its size, and what it has of each encoder.

    Raises:
        ArgumentError: If the limit in the environment is no size.
    """
    from subtext.data.output_cache import user_cache

    cache = user_cache()
    if cache is None:
        return CacheReport("", 0, 0, ())
    if clear:
        cache.clear()
    encoders = cache.encoders()
    entries = tuple(
        {"encoder": str(each.about.get("encoder", "")).partition("(")[0], "items": each.items, "bytes": each.size}
        for each in encoders
    )
    return CacheReport(str(cache.folder), sum(each.size for each in encoders), cache.limit or 0, entries)
