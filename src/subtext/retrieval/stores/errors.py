"""Errors of a store that go away by themselves, and damage of an index."""

from __future__ import annotations

from dataclasses import dataclass

from subtext.errors import SearchIndexError


class IndexLockedError(SearchIndexError):
    """Another process writes to the index; try again."""


class IndexMovedError(SearchIndexError):
    """The storage of an index cannot be reached, or the index was removed or moved; try again or open it again."""


class MissingBucketError(SearchIndexError):
    """The bucket of an index does not exist: trying again does not help."""


@dataclass(frozen=True)
class IndexIssue:
    """Damage of an index.

    Attributes:
        where: The file, table or part that is damaged.
        what: What is wrong there.
    """

    where: str
    what: str
