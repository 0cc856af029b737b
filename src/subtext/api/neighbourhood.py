"""`subtext neighbours show`: a graph is told in words, as JSON, or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subtext.api.graph_quality import CiderD
from subtext.api.load import Sources
from subtext.api.neighbours import read_texts, told_in_words
from subtext.data.atomic import write_text
from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.neighbours.quality import Quality, Tfidf, as_json, graph_quality
from subtext.report.page import Figure, Found, Page, Search, Section, render
from subtext.report.progress import say
from subtext.report.text_table import Cell, table
from subtext.report.thumbnail import thumbnail

WIDTH = 72
"""Longest cell of a text in the table."""


def show(path: Path, item: str | None, *, top: int = 10, page: Path | None = None, in_json: bool = False) -> str:
    """What a graph is, how good it is, and the neighbours of one item.

    item  a text's id, or a picture's (then its first text); None for the graph alone
    page  a file for the same with pictures

    Raises DataError when the graph or its data cannot be read, or do not belong together, or there is no such item.
    """
    graph = Graph.load(path)
    sources = Sources.from_json(graph.source)
    if sources.data is None:
        raise DataError(f"{path} does not say where its texts came from; it was built in Python: look at it there")
    pairs = read_texts(sources).split(str(graph.source.get("split", "all")))
    graph.require(pairs.texts)
    row = None if item is None else _row(pairs, item)
    qualities = _qualities(graph, pairs)
    found = [] if row is None else _neighbours(graph, pairs, row, top)
    own = None if row is None else _described(pairs, row)
    if page is not None:
        write_text(page, render(_page(path, graph, pairs, qualities, own, found)))
    if in_json:
        told: dict[str, Any] = {"graph": str(path), "texts": len(graph), "neighbours": graph.width}
        told |= {"fingerprint": graph.fingerprint, "space": graph.space, "settings": graph.settings}
        told |= {
            "short": int((graph.counts < graph.width).sum()),
            "quality": {quality.judge: as_json(quality) for quality in qualities},
        }
        return json.dumps(told | {"item": own, "found": found}, indent=2, ensure_ascii=False)
    lines = [f"{path}: {told_in_words(graph)}"]
    lines += map(_judged, qualities)
    if own is not None:
        lines.append(f"{own['id']}: {own['text']}")
        rows: list[list[Cell]] = [
            [str(place), f"{each['distance']:.3f}", _short(each["text"]), each["picture"]]
            for place, each in enumerate(found, start=1)
        ]
        lines.append(table(["", "distance", "text", "picture"], rows) if rows else "it has no neighbours")
    return "\n".join(lines + ([f"page: {page}"] if page is not None else []))


def _row(pairs: Dataset, item: str) -> int:
    if item in pairs.texts.ids:
        return pairs.texts.ids.index(item)
    if item in pairs.images.ids:
        texts = pairs.links[pairs.links[:, 0] == pairs.images.ids.index(item), 1]
        if len(texts):
            return int(texts[0])
    some = ", ".join(map(repr, [pairs.texts.ids[0], pairs.images.ids[0]]))
    raise DataError(f"--item needs a text or a picture of the graph's data; '{item}' is none; it knows {some}, ...")


def _described(pairs: Dataset, row: int) -> dict[str, Any]:
    """A text by its id and words, and the picture that goes with it."""
    picture = int(pictures_of_texts(pairs)[row])
    name = None if picture < 0 else pairs.images.ids[picture]
    words = pairs.texts.values[row]
    return {"id": pairs.texts.ids[row], "text": words if isinstance(words, str) else None, "picture": name}


def _neighbours(graph: Graph, pairs: Dataset, row: int, top: int) -> list[dict[str, Any]]:
    near = [(int(n), float(d)) for n, d in zip(graph.neighbours[row], graph.distances[row], strict=True) if n >= 0]
    return [{**_described(pairs, other), "distance": distance} for other, distance in near[:top]]


def _qualities(graph: Graph, pairs: Dataset) -> list[Quality]:
    """What each judge says of the graph; nothing where they cannot be asked."""
    try:
        return [graph_quality(graph, pairs.texts, judge) for judge in (Tfidf(), CiderD())]
    except DataError as problem:
        say(f"note: the graph is not judged: {problem}")
        return []


def _judged(quality: Quality) -> str:
    return (
        f"related by {quality.judge} of {quality.related:g} or more: {quality.neighbours:.1f} % of neighbours, "
        f"{quality.random:.1f} % of random pairs ({quality.pairs:,} of each)"
    )


def _short(text: str | None) -> str:
    words = text or "-"
    return words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"


def _page(
    path: Path,
    graph: Graph,
    pairs: Dataset,
    qualities: list[Quality],
    own: dict[str, Any] | None,
    found: list[dict[str, Any]],
) -> Page:
    value_of = dict(zip(pairs.images.ids, pairs.images.values, strict=True))

    def card(each: dict[str, Any], distance: float, *, asked: bool = False) -> Found:
        source = value_of.get(each["picture"])
        picture = None if source is None else thumbnail(source, pairs.root)
        return Found(each["text"] or each["id"], distance, picture, notes=[each["id"]], right=asked)

    sections = []
    if own is not None:
        cards = [card(own, 0.0, asked=True), *[card(each, each["distance"]) for each in found]]
        search = Search(own["text"] or own["id"], cards, "The first is the text itself; the number is the distance.")
        sections.append(Section("Neighbours of a text", "Each with the picture that it goes with.", [search]))
    figures = [Figure(f"related by {each.judge}", each.neighbours, each.random) for each in qualities]
    return Page(
        title=f"Neighbours in {path.name}",
        lead=told_in_words(graph),
        verdict="; ".join(map(_judged, qualities)),
        figures=figures,
        figures_text="The orange line is the share of random pairs of texts.",
        sections=sections,
        facts=[(name, str(value)) for name, value in {**graph.space, **graph.settings}.items()],
    )
