"""`subtext search`: an index is asked, and what it finds is told in words or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from subtext.app.opened import choose_device
from subtext.app.progress import say
from subtext.app.table import Cell, table
from subtext.opening import open_engine
from subtext.search import Hit
from subtext.stores.condition import parse

WIDTH = 72
"""Longest cell of a caption in the table."""
SHOWN = 8
"""Words that a warning lists before it counts the others; the JSON lists all."""


@dataclass(frozen=True)
class Places:
    """Where things are now, and what computes: None is what the index remembers."""

    run: Path | None = None
    features: Path | None = None
    device: str = "cpu"


def ask(
    index: Path,
    *,
    text: str | None,
    image: Path | None,
    top: int,
    target: Literal["images", "texts"],
    where: Sequence[str] = (),
    places: Places,
    as_json: bool,
) -> str:
    """What the index finds for words or for a picture; words that the model does not know are told on standard error.

    Raises what opening and searching raise.
    """
    device = choose_device(places.device)
    conditions = [parse(condition) for condition in where]
    engine = open_engine(index, run=places.run, features=places.features, device=device)
    hits = engine.search(text=text, image=image, top=top, target=target, where=conditions)
    known = None if text is None else engine.words(text)
    warning = None if known is None else _warning(known)
    if warning is not None:
        say(f"warning: {warning}")
    if not as_json:
        return _table(hits, target)
    found = {
        "query": {"text": text} if text is not None else {"image": str(image), "features_of": engine.named(image)},
        "unknown_words": [word for word, knows in (known or {}).items() if not knows],
        "warning": warning,
        "for": target,
        "where": list(where),
        "index": str(index),
        "hits": [hit.to_json() for hit in hits],
    }
    return json.dumps(found, indent=2, ensure_ascii=False)


def _warning(known: Mapping[str, bool]) -> str | None:
    """What is to be said before an answer to these words is believed; None where the model knows them all."""
    unknown = [word for word, knows in known.items() if not knows]
    if not any(known.values()):
        which = f": {_listed(unknown)}" if unknown else "; there is none in it"
        return f"the model knows no word of the query{which}; this answer means nothing"
    return f"the model does not know {_listed(unknown)}; the answer rests on the other words" if unknown else None


def _listed(words: Sequence[str]) -> str:
    """Words in quotation marks, the first few of many."""
    more = f" and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
    return ", ".join(f"'{word[:WIDTH]}'" for word in words[:SHOWN]) + more


def _table(hits: list[Hit], target: str) -> str:
    if not hits:
        return f"the index holds no such {'pictures' if target == 'images' else target}"
    rows: list[list[Cell]] = []
    for place, hit in enumerate(hits, start=1):
        words = " | ".join(hit.captions) or "-"
        shown = words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
        where = (hit.path or hit.id) if target == "images" else ", ".join(hit.metadata.get("images", [])[:3]) or hit.id
        rows.append([str(place), f"{hit.score:.3f}", shown, where])
    return table(["", "cosine", "texts" if target == "images" else "text", "picture"], rows)
