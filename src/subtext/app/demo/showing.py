"""The demonstration's three searches, and its page."""

from __future__ import annotations

import shlex
from pathlib import Path

from subtext import __version__
from subtext.app.demo.findings import Answer, Findings
from subtext.app.demo.prepare import CREDIT
from subtext.app.table import duration
from subtext.checkpoint import Record, load_record, write_text
from subtext.opening import open_engine
from subtext.report.page import Figure, Found, Page, Search, Section, render
from subtext.report.thumbnail import thumbnail
from subtext.search import Engine, Hit

QUERIES = (
    ("cat with a smile", "Plain English words, which are no emoji's name."),
    ("flag for Brazil", "An alias: the emoji's name in English is “Brazil”."),
    ("femme pilote peau foncée", "French, a second language: “woman pilot, dark skin”."),
)
"""The same for every seed, whether or not the model answers them well."""

TOP = 10
_SPLITS = {"train": "learnt from", "val": "held out", "test": "held out"}


def show(out: Path, findings: Findings, page: Path) -> str:
    """Ask the index, write the page, and give the answers in words."""
    engine = open_engine(out / "index")
    answered = [(query, remark, engine.search(text=query, top=TOP)) for query, remark in QUERIES]
    write_text(page, render(_page(out, findings, engine, answered)))
    lines = []
    for query, remark, hits in answered:
        lines.append(f'      "{query}"   ({remark})')
        lines += [f"        {hit.score:.2f}  {_symbol(hit)}  {hit.captions[0]}" for hit in hits[:3]]
    return "\n".join(lines)


def _page(out: Path, findings: Findings, engine: Engine, answered: list[tuple[str, str, list[Hit]]]) -> Page:
    record = load_record(out / "run")
    held_out = len(findings.held_out.images)
    return Page(
        title="Emoji, found by words",
        lead=f"A model trained from nothing on drawings of emoji and their names in six languages. It looks at pixels "
        f"and words alone. All {len(engine):,} pictures can be searched.",
        verdict=findings.verdict,
        figures=_figures(findings),
        figures_text=f"{held_out:,} pictures and {len(findings.held_out.texts):,} texts of whole emoji that were held "
        "out: neither their pictures nor their texts, nor those of another skin tone or gender, were learnt from. The "
        "orange line is what guessing gives; the dark line is a 95 % interval.",
        sections=(
            Section(
                "Three searches in all pictures",
                "The number is the cosine, which orders what is found. Each picture says whether the model learnt from "
                "it. The queries are fixed, however well the model answers them.",
                [Search(query, _found(hits, query), remark) for query, remark, hits in answered],
            ),
            Section(
                "Held-out texts, drawn at random",
                f"Each is asked of the {held_out:,} held-out pictures alone, as in the figures above. They come from "
                f"the {findings.share_known:.0f} % of held-out texts that share a word with those learnt from: of the "
                "others, which the figures count too, a model of words can know nothing.",
                [_sample(findings, answer) for answer in findings.answers],
            ),
        ),
        facts=_facts(record, engine),
        commands=_commands(out),
        credit=f"{CREDIT}. Names: Unicode CLDR, through the Python package emoji.",
    )


def _figures(findings: Findings) -> list[Figure]:
    named = {"text_to_image": "words → picture", "image_to_text": "picture → words"}
    figures = []
    for direction, words in named.items():
        for k in (1, 5, 10):
            name = f"{direction}/recall@{k}"
            low, high = findings.result.intervals.get(name, (None, None))
            value, chance = findings.result.figures[name], findings.result.chance[name]
            figures.append(Figure(f"{words}, first {k}" if k > 1 else f"{words}, first", value, chance, low, high))
    return figures


def _found(hits: list[Hit], query: str) -> list[Found]:
    return [
        Found(
            title=hit.captions[0],
            score=hit.score,
            picture=None if hit.path is None else thumbnail(hit.path),
            notes=[_SPLITS.get(hit.metadata.get("split", ""), "")],
            right=query.casefold() in {caption.casefold() for caption in hit.captions},
        )
        for hit in hits
    ]


def _sample(findings: Findings, answer: Answer) -> Search:
    images, texts = findings.held_out.images, findings.held_out.texts
    first: dict[int, str] = {}
    for image, text in findings.held_out.links.tolist():
        first.setdefault(image, str(texts.values[text]))
    found = [
        Found(first[row], score, thumbnail(images.values[row], findings.held_out.root), right=row == answer.own)
        for row, score in zip(answer.rows, answer.scores, strict=True)
    ]
    return Search(answer.text, found, f"Its own picture is at place {answer.place:,} of {len(images):,}.")


def _facts(record: Record, engine: Engine) -> list[tuple[str, str]]:
    parameters = sum(parameter.numel() for parameter in engine.model.parameters())
    return [
        ("recipe", f"{record.host}: a small convolutional network and a GRU, both from random weights"),
        ("parameters", f"{parameters:,}"),
        ("training", f"{record.epochs} epochs in {duration(record.seconds)}; epoch {record.best_epoch} kept"),
        ("index", f"{len(engine):,} pictures, vectors of {engine.folder.manifest.width}, searched exactly"),
        ("seed", str(record.seed)),
        ("versions", f"Subtext {__version__}, PyTorch {record.versions.get('torch', '?')}"),
    ]


def _commands(out: Path) -> list[str]:
    index, run = shlex.quote(str(out / "index")), shlex.quote(str(out / "run"))
    return [
        f'subtext search {index} "herz"',
        f"subtext search {index} --image {shlex.quote(str(out / 'data' / 'pictures' / '1F44B.png'))} --for texts",
        f"subtext evaluate {run} --split test",
        f"subtext data check {shlex.quote(str(out / 'data'))}",
    ]


def _symbol(hit: Hit) -> str:
    return str(hit.metadata.get("emoji", " "))
