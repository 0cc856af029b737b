"""Errors of a store that go away by themselves, and damage of an index."""

from __future__ import annotations

from dataclasses import dataclass

from subtext.errors import SearchIndexError


class IndexLockedError(SearchIndexError):
    """Another process is writing to the index: try again."""


class IndexMovedError(SearchIndexError):
    """The server of an index cannot be reached, or went away: try again."""


@dataclass(frozen=True)
class IndexIssue:
    """Damage of an index: the file, table or part, and what is wrong there."""

    where: str
    what: str
