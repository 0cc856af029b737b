"""Marks beside an option's help: what the option requires, which numbers it takes, and its default before it existed.

An option that nothing would read is refused and not ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Facts = Mapping[str, Sequence[str]]
"""What was chosen, or what a built model turned out to have: name -> values, the first as messages call it."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes: `least` and more, but less than `below`."""

    least: float
    below: float = math.inf

    def __str__(self) -> str:
        return f"a number in [{self.least:g}, {self.below:g})" if self.below < math.inf else f"{self.least:g} or more"


@dataclass(frozen=True)
class IsPath:
    """The option is a file or folder. Its absolute path is stored, so that a run opens from everywhere."""


@dataclass(frozen=True)
class DefaultBefore:
    """The value that held before the option existed, where that is not its default."""

    value: object


@dataclass(frozen=True)
class Requires:
    """A choice that the option needs before anything reads it.

    fact     an option, or something that a built model has: image, text (what encodes them), body (what is pretrained)
    values   one of them has to be chosen; with `negated` none of them may be
    needs    the same in words, for a message; `fact=value|value` where it is left out
    """

    fact: str
    values: tuple[str, ...]
    needs: str = ""
    negated: bool = False

    def holds(self, facts: Facts) -> bool:
        """Whether the option is read; True as long as the fact is unknown."""
        chosen = facts.get(self.fact)
        return chosen is None or bool(set(self.values) & set(chosen)) is not self.negated

    @property
    def words(self) -> str:
        """What the option needs, for a message."""
        return self.needs or f"{self.fact}={'|'.join(self.values)}"

    @property
    def prefix(self) -> str:
        """What stands before the option's help: "gru, bag: "; nothing where `needs` says it in a sentence."""
        return "" if self.needs or self.negated else f"{', '.join(self.values)}: "
