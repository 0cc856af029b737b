"""One page of results that needs nothing but itself: searches with their pictures, and figures beside chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from subtext.report.style import STYLE


@dataclass(frozen=True)
class Found:
    """One picture that a search found, or one text.

    title    its first text, or itself   score   cosine
    picture  data URI; None where the picture cannot be shown; empty for a text alone
    notes    small words below it        right   whether it is what was asked for
    """

    title: str
    score: float
    picture: str | None = None
    notes: Sequence[str] = ()
    right: bool = False


@dataclass(frozen=True)
class Search:
    """A query, a remark on it, and what was found, best first.

    picture  data URI of the query, where it is a picture
    """

    query: str
    found: Sequence[Found]
    remark: str = ""
    picture: str | None = None


@dataclass(frozen=True)
class Figure:
    """A share in per cent beside what chance gives, with the ends of its 95 % interval where there are some."""

    name: str
    value: float
    chance: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and searches below them, or a drawing.

    columns  how many searches stand side by side, where there is room
    drawing  an SVG document of this package (`report.curves`), which is put in as it is
    """

    title: str
    text: str
    searches: Sequence[Search]
    columns: int = 1
    drawing: str = ""


@dataclass(frozen=True)
class Page:
    """Everything on the page.

    verdict   the one sentence to take away      figures   how well, beside chance
    sections  searches                           facts     (name, value) of how it was made
    commands  lines for a terminal               credit    whose pictures these are
    """

    title: str
    lead: str
    verdict: str
    figures: Sequence[Figure]
    figures_text: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    commands: Sequence[str] = ()
    credit: str = ""
    language: str = field(default="en")


def render(page: Page) -> str:
    """The page as one HTML document: no script, no other host, readable on a phone and in the dark.

    Every text is escaped; the document's own policy forbids it to load anything.
    """
    body = [
        f"<header><h1>{escape(page.title)}</h1><p>{escape(page.lead)}</p></header>",
        "<main>",
        _figures(page),
        *[_section(section) for section in page.sections],
        _facts(page),
        "</main>",
        f"<footer><p>{escape(page.credit)}</p></footer>" if page.credit else "",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{escape(page.language)}"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">",
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(page.title)}</title><style>{STYLE}</style></head><body>",
            *filter(None, body),
            "</body></html>",
            "",
        ]
    )


def _figures(page: Page) -> str:
    if not page.figures and not page.verdict:
        return ""
    rows = "".join(_figure(figure) for figure in page.figures)
    return (
        f'<section><h2>How well it does</h2><p class="verdict">{escape(page.verdict)}</p>'
        f'<div class="figures">{rows}</div><p class="small">{escape(page.figures_text)}</p></section>'
    )


def _figure(figure: Figure) -> str:
    value, chance = _share(figure.value), _share(figure.chance)
    interval = ""
    if figure.low is not None and figure.high is not None:
        left, width = _share(figure.low), max(_share(figure.high) - _share(figure.low), 0.3)
        interval = f'<i class="interval" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
    words = f"{figure.name}: {figure.value:.1f} %, chance {figure.chance:.1f} %"
    return (
        f'<div class="figure"><span class="name">{escape(figure.name)}</span>'
        f'<span class="track" role="img" aria-label="{escape(words)}"><i class="bar" style="width:{value:.2f}%"></i>'
        f'{interval}<i class="chance" style="left:{chance:.2f}%"></i></span>'
        f'<span class="value">{figure.value:.1f} %</span>'
        f'<span class="against">chance {figure.chance:.1f} %</span></div>'
    )


def _section(section: Section) -> str:
    searches = "".join(_search(search) for search in section.searches)
    if section.columns > 1:
        searches = f'<div class="columns" style="--columns:{section.columns}">{searches}</div>'
    drawing = f'<div class="drawing">{section.drawing}</div>' if section.drawing else ""
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>{drawing}{searches}</section>"


def _search(search: Search) -> str:
    cards = "".join(_card(place, found) for place, found in enumerate(search.found, start=1))
    remark = f'<p class="small">{escape(search.remark)}</p>' if search.remark else ""
    asked = ""
    if search.picture is not None:
        asked = f'<img class="asked" src="{escape(search.picture)}" alt="{escape(search.query)}">'
    return f'<article><h3>“{escape(search.query)}”</h3>{asked}{remark}<ol class="cards">{cards}</ol></article>'


def _card(place: int, found: Found) -> str:
    picture = f'<img src="{escape(found.picture)}" alt="{escape(found.title)}" loading="lazy">' if found.picture else ""
    if found.picture is None:
        picture = '<span class="gone">no picture</span>'
    notes = "".join(f'<span class="note">{escape(note)}</span>' for note in found.notes)
    mark = ' class="right"' if found.right else ""
    tick = '<span class="tick">asked for</span>' if found.right else ""
    return (
        f'<li{mark}>{picture}<span class="score">{place}. {found.score:.2f}</span>{tick}'
        f'<span class="title">{escape(found.title)}</span>{notes}</li>'
    )


def _facts(page: Page) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in page.facts)
    commands = escape("\n".join(page.commands))
    code = f"<p>Ask further in a terminal:</p><pre><code>{commands}</code></pre>" if commands else ""
    return f"<section><h2>How it was made</h2><dl>{rows}</dl>{code}</section>"


def _share(value: float) -> float:
    return min(100.0, max(0.0, value))
