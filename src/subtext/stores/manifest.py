"""What an index says about itself: its format, the model whose vectors it holds, and where its items came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from subtext.errors import IndexError_

FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""


@dataclass(frozen=True)
class Manifest:
    """One index in words and numbers.

    fingerprint      of the model that made the vectors; another model's queries are refused
    run              folder or name of that model
    host             its recipe
    width            D of every vector
    scale, shift     the model's score is scale * cosine + shift
    counts, views    "images" and "texts" -> items, and K vectors an item
    root             folder that relative picture paths start from
    data             where the items came from: path, split, and whatever names them again
    created, version, format   UTC time; version of Subtext; version of this layout
    """

    fingerprint: str
    run: str
    host: str
    width: int
    scale: float = 1.0
    shift: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    views: Mapping[str, int] = field(default_factory=dict)
    root: str = "."
    data: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """The manifest as indented JSON."""
        return json.dumps({"kind": "subtext index", **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Manifest:
        """The manifest again.

        Raises IndexError_, naming `where`, for other JSON, missing or wrong fields, and a newer format.
        """
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise IndexError_(f"{where} needs to be JSON; {problem}; build the index again") from problem
        if not isinstance(found, dict) or found.pop("kind", None) != "subtext index":
            raise IndexError_(
                f"{where} is not the manifest of a Subtext index; name a folder that `subtext index build` wrote"
            )
        written = found.get("format")
        if not isinstance(written, int) or written > FORMAT:
            raise IndexError_(
                f"{where} has format {written}; this version of Subtext reads formats up to {FORMAT}; use a newer "
                "Subtext, or build the index again"
            )
        known = {f.name for f in fields(Manifest)}
        found = {name: value for name, value in found.items() if name in known}
        lack = _wrong(found)
        if lack:
            raise IndexError_(f"{where} {lack}; build the index again")
        return Manifest(**found)


def _wrong(found: Mapping[str, Any]) -> str:
    """What is missing or of another type; empty when nothing is."""
    wanted: dict[str, type | tuple[type, ...]] = {
        "fingerprint": str, "run": str, "host": str, "width": int, "scale": (int, float), "shift": (int, float),
        "counts": dict, "views": dict, "root": str, "data": dict,
    }  # fmt: skip
    for name, kind in wanted.items():
        if not isinstance(found.get(name), kind):
            return f"needs '{name}'; it has {found.get(name)!r}"
    for name in ("counts", "views"):
        if not all(isinstance(found[name].get(side), int) for side in ("images", "texts")):
            return f"needs '{name}' of images and texts; it has {found[name]!r}"
    return ""
