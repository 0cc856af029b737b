"""The queries of the demonstration, and what a person accepts for each; `queries.json` states their rules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from subtext.demo.emoji import base_of
from subtext.demo.icons import PREFIX

_FLAGS = range(0x1F1E6, 0x1F200)


@dataclass(frozen=True)
class AcceptedQuery:
    """A query, and the items that a person accepts for it.

    level  "literal", "related" or "figurative"
    items  emoji or names of icons; the concept of the first is held out. "national flags" stands for all of them
    """

    query: str
    level: str
    items: tuple[str, ...]

    def accepts(self, emoji: str, id: str) -> bool:
        """Whether an item is accepted, by its emoji, whose variants count alike, or by the id of its icon."""
        if not emoji:
            return id.removeprefix(PREFIX) in self.items
        return base_of(emoji) in self._bases or ("national flags" in self.items and ord(emoji[0]) in _FLAGS)

    def starts_with(self, emoji: str, id: str) -> bool:
        """Whether an item is the first of those that are accepted."""
        return AcceptedQuery(self.query, self.level, self.items[:1]).accepts(emoji, id)

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(base_of(item) for item in self.items if not item.isascii())


def accepted_queries() -> list[AcceptedQuery]:
    """The queries, in the order of their file."""
    rows = json.loads(Path(__file__).with_name("queries.json").read_text(encoding="utf-8"))["queries"]
    return [AcceptedQuery(row["query"], row["level"], tuple(row["items"])) for row in rows]
