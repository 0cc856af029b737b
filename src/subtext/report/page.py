"""One page of results that needs nothing but itself: searches with their images, and figures beside chance."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class PageHit:
    """One hit of a search: an image, or a text.

    Attributes:
        title: Its first text, or itself.
        score: Cosine, or distance; None to show its rank alone.
        image: Data URI; None where the image cannot be shown; empty for a text alone.
        notes: Small words below it.
        right: Whether it is a correct result.
    """

    title: str
    score: float | None
    image: str | None = None
    notes: Sequence[str] = ()
    right: bool = False


@dataclass(frozen=True)
class PageSearch:
    """A query, a remark on it, and its hits, best first.

    Attributes:
        query: The query, or its name.
        hits: The hits.
        remark: Sentence below the query.
        image: Data URI of the query, where it is an image.
        by: What answered, where several answers to a query stand side by side.
    """

    query: str
    hits: Sequence[PageHit]
    remark: str = ""
    image: str | None = None
    by: str = ""


@dataclass(frozen=True)
class Figure:
    """A share in per cent beside what chance gives, with the ends of its 95 % interval where there are some.

    Attributes:
        name: Name of the measure.
        value: Per cent.
        chance: Per cent.
        low: Lower end of the interval; None for none.
        high: Upper end of the interval; None for none.
        rival: Whether it is what others reach, shown in grey.
    """

    name: str
    value: float
    chance: float
    low: float | None = None
    high: float | None = None
    rival: bool = False


@dataclass(frozen=True)
class PageSection:
    """A heading, a sentence or two, and searches below them, or a drawing.

    Attributes:
        title: The heading.
        text: Sentences below it.
        searches: The searches.
        columns: How many searches stand side by side, where there is room.
        drawing: An SVG document of this package (`report.plots`), which is put in as it is.
        choose: Whether queries are buttons, and the hits of the one that is chosen are shown.
    """

    title: str
    text: str
    searches: Sequence[PageSearch]
    columns: int = 1
    drawing: str = ""
    choose: bool = False


@dataclass(frozen=True)
class HtmlPage:
    """Everything on the page.

    Attributes:
        title: Title of the page.
        lead: Sentence below the title.
        verdict: The one sentence to take away.
        figures: How well, beside chance.
        figures_text: Sentence below the figures.
        sections: Searches.
        first: Searches above the figures.
        facts: (name, value) of how it was made.
        commands: Lines for a terminal.
        credit: Whose images these are.
        language: Code of the language.
    """

    title: str
    lead: str
    verdict: str
    figures: Sequence[Figure]
    figures_text: str
    sections: Sequence[PageSection]
    facts: Sequence[tuple[str, str]] = ()
    commands: Sequence[str] = ()
    credit: str = ""
    language: str = field(default="en")
    first: Sequence[PageSection] = ()


def render(page: HtmlPage) -> str:
    """Render a page as one HTML document: no script, no other host, readable on a phone and in the dark.

    Every text is escaped; the document's own policy forbids it to load anything.

    Args:
        page: The page.

    Returns:
        The document.
    """
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in page.facts)
    commands = escape("\n".join(page.commands))
    code = f"<p>Ask further in a terminal:</p><pre><code>{commands}</code></pre>" if commands else ""
    body = [
        f"<header><h1>{escape(page.title)}</h1><p>{escape(page.lead)}</p></header>",
        "<main>",
        *[_section(section, f"a{number}") for number, section in enumerate(page.first)],
        _figures(page),
        *[_section(section, f"b{number}") for number, section in enumerate(page.sections)],
        f"<section><h2>How it was made</h2><dl>{facts}</dl>{code}</section>",
        "</main>",
        f"<footer><p>{escape(page.credit)}</p></footer>" if page.credit else "",
    ]
    return document(page.title, [part for part in body if part], language=page.language)


def document(title: str, body: Sequence[str], *, style: str = "", script: str = "", language: str = "en") -> str:
    """Assemble a complete HTML document, which may load nothing, and run nothing but its own script.

    Args:
        title: The title, not yet escaped.
        body: HTML of the body, line by line.
        style: Added to that of all pages.
        script: JavaScript of the page; "" for none.
        language: Code of the language.

    Returns:
        The document.
    """
    policy, ran = "default-src 'none'; img-src data:; style-src 'unsafe-inline'", ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy, ran = f"{policy}; script-src 'sha256-{digest}'", f"<script>{script}</script>"
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{escape(language)}"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>",
            *body,
            f"{ran}</body></html>\n",
        ]
    )


def _figures(page: HtmlPage) -> str:
    if not page.figures and not page.verdict:
        return ""
    rows = "".join(_figure(figure) for figure in page.figures)
    return (
        f'<section><h2>Accuracy</h2><p class="verdict">{escape(page.verdict)}</p>'
        f'<div class="figures">{rows}</div><p class="small">{escape(page.figures_text)}</p></section>'
    )


def _figure(figure: Figure) -> str:
    value, chance = _share(figure.value), _share(figure.chance)
    interval = ""
    if figure.low is not None and figure.high is not None:
        left, width = _share(figure.low), max(_share(figure.high) - _share(figure.low), 0.3)
        interval = f'<i class="interval" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
    words = f"{figure.name}: {figure.value:.1f} %, chance {figure.chance:.1f} %"
    rival = " rival" if figure.rival else ""
    return (
        f'<div class="figure{rival}"><span class="name">{escape(figure.name)}</span>'
        f'<span class="track" role="img" aria-label="{escape(words)}"><i class="bar" style="width:{value:.2f}%"></i>'
        f'{interval}<i class="chance" style="left:{chance:.2f}%"></i></span>'
        f'<span class="value">{figure.value:.1f} %</span>'
        f'<span class="against">chance {figure.chance:.1f} %</span></div>'
    )


def _section(section: PageSection, name: str) -> str:
    searches = "".join(_search(search) for search in section.searches)
    if section.choose:
        searches = _chooser(section.searches, name)
    elif section.columns > 1:
        searches = f'<div class="columns" style="--columns:{section.columns}">{searches}</div>'
    drawing = f'<div class="drawing">{section.drawing}</div>' if section.drawing else ""
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>{drawing}{searches}</section>"


def _chooser(searches: Sequence[PageSearch], name: str) -> str:
    """Buttons for queries, and the hits of the chosen one: radio buttons and styles alone, as pages run no script."""
    ids = [f"{name}-{number}" for number in range(len(searches))]
    buttons = "".join(
        f'<input type="radio" name="{name}" id="{id}"{" checked" if not number else ""}>'
        f'<label for="{id}">{escape(search.query)}</label>'
        for number, (id, search) in enumerate(zip(ids, searches, strict=True))
    )
    shown = ",".join(f"#{id}:checked~.answers>:nth-child({number})" for number, id in enumerate(ids, start=1))
    return (
        f"<style>{shown}{{display:block}}</style>"
        f'<div class="chooser" role="radiogroup" aria-label="queries">{buttons}'
        f'<div class="answers">{"".join(_search(search) for search in searches)}</div></div>'
    )


def _search(search: PageSearch) -> str:
    cards = "".join(_card(rank, hit) for rank, hit in enumerate(search.hits, start=1))
    remark = f'<p class="small">{escape(search.remark)}</p>' if search.remark else ""
    heading = ""
    if search.image is not None:
        heading = f'<img class="query" src="{escape(search.image)}" alt="{escape(search.query)}">'
    by = f' <span class="by">{escape(search.by)}</span>' if search.by else ""
    return f'<article><h3>“{escape(search.query)}”{by}</h3>{heading}{remark}<ol class="cards">{cards}</ol></article>'


def _card(rank: int, hit: PageHit) -> str:
    image = f'<img src="{escape(hit.image)}" alt="{escape(hit.title)}" loading="lazy">' if hit.image else ""
    if hit.image is None:
        image = '<span class="gone">no image</span>'
    notes = "".join(f'<span class="note">{escape(note)}</span>' for note in hit.notes)
    mark = ' class="right"' if hit.right else ""
    tick = '<span class="tick">right</span>' if hit.right else ""
    score = "" if hit.score is None else f" {hit.score:.2f}"
    return (
        f'<li{mark}>{image}<span class="score">{rank}.{score}</span>{tick}'
        f'<span class="title">{escape(hit.title)}</span>{notes}</li>'
    )


def _share(value: float) -> float:
    return min(100.0, max(0.0, value))


STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
"""Style of the pages of results: light and dark, from a phone to a desktop."""
