"""What stands beside an option's help: which choice reads it, which numbers it takes, and what held before it.

An option that nothing would read is refused and not ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Facts = Mapping[str, Sequence[str]]
"""What has been chosen, or found once a model is built: name -> what it is, first as it is called in a message."""


@dataclass(frozen=True)
class Span:
    """Stands beside an option's help: the numbers that it takes, from `least` to what is less than `below`."""

    least: float
    below: float = math.inf

    def __str__(self) -> str:
        return f"a number in [{self.least:g}, {self.below:g})" if self.below < math.inf else f"{self.least:g} or more"


@dataclass(frozen=True)
class Place:
    """Stands beside an option's help: a file or folder. It is kept whole, so that it is found from everywhere."""


@dataclass(frozen=True)
class Before:
    """Stands beside an option's help: what held before there was the option, where that is not its default."""

    value: object


@dataclass(frozen=True)
class When:
    """Stands beside an option's help: what has to be chosen before anything reads it.

    fact    an option, or something found: image, text (what encodes them), body (what is pretrained)
    values  one of them has to be chosen; with `but` none of them may be
    needs   the same in words, for a message; `fact=value|value` where it is left out
    """

    fact: str
    values: tuple[str, ...]
    needs: str = ""
    but: bool = False

    def holds(self, facts: Facts) -> bool:
        """Whether the option is read; True as long as nothing is known of the fact."""
        found = facts.get(self.fact)
        return found is None or bool(set(self.values) & set(found)) is not self.but

    @property
    def words(self) -> str:
        """What the option needs."""
        return self.needs or f"{self.fact}={'|'.join(self.values)}"

    @property
    def prefix(self) -> str:
        """What stands before the option's help: "gru, bag: "; nothing where `needs` says it in a sentence."""
        return "" if self.needs or self.but else f"{', '.join(self.values)}: "
