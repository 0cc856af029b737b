"""An audit: checks of one evaluation, each with what was done, what was found, and whether that is as it should be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Check:
    """One check.

    name     short and stable, what --skip is told        did      what was done, as a reader can repeat it
    outcome  "not applicable" where nothing could be said; `found` then says why
    found    in a sentence, with its numbers              figures  the numbers behind it, as JSON can hold them
    """

    name: str
    did: str
    outcome: Outcome
    found: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """All checks of a run on a split.

    checks   in the order in which they were made        figures  name -> recall and what goes with it, on the split
    about    run, data, split, sizes and settings, as JSON can hold them
    """

    checks: tuple[Check, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check fails."""
        return not self.named("fail")

    def named(self, outcome: Outcome) -> list[str]:
        """Names of the checks that ended so."""
        return [check.name for check in self.checks if check.outcome == outcome]

    @property
    def verdict(self) -> str:
        """One sentence: how many checks ended how, and which of them fail or say nothing."""
        passed, failed, void = (self.named(outcome) for outcome in ("pass", "fail", "not applicable"))
        told = [f"{len(failed)} of {len(self.checks)} checks fail ({', '.join(failed)})"] if failed else []
        told.append(f"{len(passed)} pass" if failed else f"{len(passed)} of {len(self.checks)} checks pass, none fails")
        if void:
            told.append(f"{len(void)} say nothing here ({', '.join(void)})")
        return "; ".join(told)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that there is not is null."""
        checks = [
            {"name": c.name, "outcome": c.outcome, "did": c.did, "found": c.found, "figures": _finite(c.figures)}
            for c in self.checks
        ]
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "checks": checks,
            "figures": _finite(self.figures),
            **_finite(self.about),
        }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
