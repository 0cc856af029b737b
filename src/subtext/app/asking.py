"""`subtext search`: an index is asked, and what it finds is told in words or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from subtext.app.opened import choose_device
from subtext.app.table import Cell, table
from subtext.opening import open_engine
from subtext.search import Hit

WIDTH = 72
"""Longest cell of a caption in the table."""


def ask(
    index: Path,
    *,
    text: str | None,
    image: Path | None,
    top: int,
    target: Literal["images", "texts"],
    run: Path | None,
    device: str,
    as_json: bool,
) -> str:
    """What the index finds for words or for a picture.

    Raises what opening and searching raise.
    """
    engine = open_engine(index, run=run, device=choose_device(device))
    hits = engine.search(text=text, image=image, top=top, target=target)
    if not as_json:
        return _table(hits, target)
    query: dict[str, Any] = {"text": text} if text is not None else {"image": str(image)}
    found = {"query": query, "for": target, "index": str(index), "hits": [hit.to_json() for hit in hits]}
    return json.dumps(found, indent=2, ensure_ascii=False)


def _table(hits: list[Hit], target: str) -> str:
    if not hits:
        return f"the index holds no {target}"
    rows: list[list[Cell]] = []
    for place, hit in enumerate(hits, start=1):
        words = " | ".join(hit.captions) or "-"
        shown = words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
        where = (hit.path or hit.id) if target == "images" else ", ".join(hit.metadata.get("images", [])[:3]) or hit.id
        rows.append([str(place), f"{hit.score:.3f}", shown, where])
    return table(["", "cosine", "texts" if target == "images" else "text", "picture"], rows)
