"""Check: one check of an audit and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["pass", "fail", "not applicable"]
"""How a check ended."""


@dataclass(frozen=True)
class Check:
    """One check of an audit.

    Attributes:
        name: Short and stable; `skip` takes it.
        did: What was done, so that a reader can repeat it.
        outcome: "not applicable" where nothing could be said; `found` then says why.
        found: The result in a sentence, with its numbers.
        figures: The numbers behind it, as JSON can hold them.
    """

    name: str
    did: str
    outcome: Outcome
    found: str
    figures: Mapping[str, Any] = field(default_factory=dict)
