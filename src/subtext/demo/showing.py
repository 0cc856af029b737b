"""The demonstration's three searches, and its page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from subtext.api.search import open_index
from subtext.data.atomic import write_text
from subtext.data.image_files import thumbnail
from subtext.demo.findings import Answer, Findings
from subtext.demo.prepare import CREDIT
from subtext.models.checkpoint import Record, load_record
from subtext.report.page import Figure, Found, Page, Search, Section, render
from subtext.report.text_table import duration
from subtext.search import Hit, Index
from subtext.version import __version__

QUERIES = (
    ("flag for Brazil", "An alias: the emoji's name in English is “Brazil”."),
    ("chat noir", "French, a second language: “black cat”."),
    ("cat with a smile", "English words that are no emoji's name."),
)
"""The same for every seed. Of the usual one, 0: a picture that was learnt from, one that was held out, and neither."""

TOP = 10
_SPLITS = {"train": "learnt from", "val": "held out", "test": "held out"}


@dataclass(frozen=True)
class Asked:
    """A query, what is to be known of it, and all pictures of the index, best first."""

    query: str
    remark: str
    hits: list[Hit]

    def is_right(self, hit: Hit) -> bool:
        """Whether a text of the picture is the query, letter for letter."""
        return self.query.casefold() in {caption.casefold() for caption in hit.captions}

    @property
    def told(self) -> str:
        """The remark, and where the picture stands that has the query as a text."""
        ranks = [rank for rank, hit in enumerate(self.hits, start=1) if self.is_right(hit)]
        if not ranks:
            return self.remark
        first = self.hits[ranks[0] - 1]
        return f"{self.remark} Its picture was {_part(first)}; place {ranks[0]:,} of {len(self.hits):,}."


def show(out: Path, findings: Findings, page: Path) -> str:
    """Ask the index, write the page, and give the answers in words."""
    index = open_index(out / "index")
    answered = [Asked(query, remark, index.search(text=query, top=len(index)).hits) for query, remark in QUERIES]
    write_text(page, render(_page(out, findings, index, answered)))
    lines = []
    for answer in answered:
        lines.append(f'      "{answer.query}"   {answer.told}')
        lines += [
            f"        {hit.score:.2f}  {_symbol(hit)}  {hit.captions[0]} ({_part(hit)})" for hit in answer.hits[:3]
        ]
    return "\n".join(lines)


def _page(out: Path, findings: Findings, index: Index, answered: list[Asked]) -> Page:
    record = load_record(out / "run")
    held_out = len(findings.held_out.images)
    return Page(
        title="Emoji, found by words",
        lead=f"A model trained from nothing on drawings of emoji and their names in six languages. It looks at pixels "
        f"and words alone. All {len(index):,} pictures can be searched.",
        verdict=findings.verdict,
        figures=_figures(findings),
        figures_text=f"{held_out:,} pictures and {len(findings.held_out.texts):,} texts of whole emoji that were held "
        "out: neither their pictures nor their texts, nor those of another skin tone or gender, were learnt from. The "
        "orange line is what guessing gives; the dark line is a 95 % interval.",
        sections=(
            Section(
                "Three searches in all pictures",
                "The number is the cosine, which orders what is found. The model learnt from most of these pictures, "
                "and should know them; those that are held out it never saw, and can at best guess from words that it "
                "knows. The queries are fixed, however well the model answers them.",
                [Search(asked.query, _found(asked), asked.told) for asked in answered],
            ),
            Section(
                "Held-out texts, drawn at random",
                f"Each is asked of the {held_out:,} held-out pictures alone, as in the figures above. They come from "
                f"the {findings.share_known:.0f} % of held-out texts that share a word with those learnt from: of the "
                "others, which the figures count too, a model of words can know nothing.",
                [_sample(findings, answer) for answer in findings.answers],
            ),
        ),
        facts=_facts(record, index),
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


def _found(answer: Asked) -> list[Found]:
    return [
        Found(
            title=hit.captions[0],
            score=hit.score,
            picture=None if hit.path is None else thumbnail(hit.path),
            notes=[_part(hit)],
            right=answer.is_right(hit),
        )
        for hit in answer.hits[:TOP]
    ]


def _sample(findings: Findings, answer: Answer) -> Search:
    images, texts = findings.held_out.images, findings.held_out.texts
    first: dict[int, str] = {}
    for image, text in findings.held_out.links.tolist():
        first.setdefault(image, str(texts.values[text]))
    hits = [
        Found(first[row], score, thumbnail(images.values[row], findings.held_out.root), right=row == answer.own)
        for row, score in zip(answer.rows, answer.scores, strict=True)
    ]
    return Search(answer.text, hits, f"Its own picture is at place {answer.place:,} of {len(images):,}.")


def _facts(record: Record, index: Index) -> list[tuple[str, str]]:
    parameters = sum(parameter.numel() for parameter in index.model.parameters())
    return [
        ("recipe", f"{record.model}: a small convolutional network and a bag of words, both from random weights"),
        ("parameters", f"{parameters:,}"),
        ("training", f"{record.epochs} epochs in {duration(record.seconds)}; epoch {record.best_epoch} kept"),
        ("index", f"{len(index):,} pictures, vectors of {index.store.manifest.width}, searched exactly"),
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


def _part(hit: Hit) -> str:
    return _SPLITS.get(str(hit.metadata.get("split")), "")
