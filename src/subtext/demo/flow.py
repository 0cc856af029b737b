"""`subtext.demo`: images, training, evaluation, index, searches and a page, step by step."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.evaluate import evaluate
from subtext.api.index.build import build_index, interrupted_build
from subtext.api.options import Device, Quiet, Range, Section, Workers, verb
from subtext.api.search import open_index
from subtext.api.train import train
from subtext.errors import CheckpointError, RequirementError
from subtext.report.progress import meter, say
from subtext.report.text_table import duration
from subtext.version import __version__

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.evaluation import Result
    from subtext.report.page import Page, Search
    from subtext.search import Hit, Index

MARK = "demo.json"
MODEL = "dual"
ARGUMENTS: dict[str, Any] = {
    "image": "tiny",
    "image_size": 32,
    "min_crop_area": 0.8,
    "embed_dim": 256,
    "min_count": 1,
    "token_mask": 0.1,
    "temperature": 0.07,
    "text": "bag",
    "word_dim": 256,
    "embedding_dropout": 0.2,
    "dropout": 0.2,
    "image_dropout": 0.2,
    "mlp": False,
    "learn_temperature": True,
}
PLAN: dict[str, Any] = {
    "epochs": 16,
    "batch_size": 768,
    "caption_sampling": "together",
    "lr": 4e-3,
    "weight_decay": 0.05,
    "weight_average": "none",
}
"""The options of the recommended recipe for a few thousand small drawings; chosen on emoji of the training split."""


QUERIES = (
    ("flag for Brazil", "An alias: the emoji's name in English is “Brazil”."),
    ("chat noir", "French, a second language: “black cat”."),
    ("cat with a smile", "English words that are no emoji's name."),
)
"""The same for every seed. Of the usual one, 0: an image that was learnt from, one that was held out, and neither."""
SAMPLES, TOP = 6, 10
"""Held-out texts whose answers are shown; images of an answer."""
_SPLITS = {"train": "learnt from", "val": "held out", "test": "held out"}


_DEMONSTRATION = Section("Demonstration")


@dataclass(frozen=True)
class Demonstration:
    """The summary of a demonstration; `stopped` if the training was interrupted before."""

    text: str
    stopped: bool = False

    def __str__(self) -> str:
        return self.text


@verb
def demo(
    *,
    out: Annotated[str | Path, "Folder for data, run, index and page.", _DEMONSTRATION] = "demo",
    seed: Annotated[int, "Seed of every random choice.", _DEMONSTRATION] = 0,
    epochs: Annotated[
        int | None, "Epochs of the training; fewer are faster and worse.", Range(1), _DEMONSTRATION
    ] = None,
    limit: int | None = None,
    device: Device = "cpu",
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Demonstration:
    """Show every step on a small example, in minutes: some 3,900 emoji with their names in six languages.

    It writes the emoji as a data set, trains a small model, evaluates it on emoji that it has not seen, builds an
    index, answers three searches, and writes a page with the results. It needs the extra "demo"
    (pip install 'subtext[demo]'). Run the command again to resume an interrupted demonstration.

    limit  use only the first so many emoji

    Raises RequirementError when packages are missing, or the folder is not this demonstration's.
    """
    from subtext.demo.emoji import emoji, write_emoji
    from subtext.evaluation.results import figures_table
    from subtext.models.checkpoint import load_record

    folder, started = Path(out), time.monotonic()
    data, run, index, page = (folder / name for name in ("data", "run", "index", "page.html"))
    plan = PLAN if epochs is None else {**PLAN, "epochs": epochs}
    running: dict[str, Any] = {"device": device, "workers": workers, "quiet": quiet}
    _enter(folder, {"seed": seed, "limit": limit, "arguments": ARGUMENTS, "plan": plan})
    with _step(1, f"images and texts of emoji -> {data}", quiet=quiet):
        if data.is_dir():
            say("      already there", quiet=quiet)
        else:
            with meter("drawing", len(emoji()[:limit]), quiet=quiet) as progress:
                write_emoji(data, seed=seed, limit=limit, progress=progress)
    with _step(2, f"training from scratch -> {run}", quiet=quiet):
        try:
            is_trained = load_record(run).status == "finished"
        except CheckpointError:
            is_trained = False  # Nothing was begun, or not as far as a record: training resumes from its checkpoints.
        if is_trained:
            say("      already trained", quiet=quiet)
        else:
            options = {**running, **ARGUMENTS, **plan}
            trained = train(MODEL, data=data, out=run, resume=run.exists(), seed=seed, **options)
            if trained.record.status == "stopped":
                return Demonstration("stopped; the same command goes on from there", stopped=True)
    with _step(3, "evaluating on emoji that were held out", quiet=quiet):
        result = evaluate(run, split="test", json=folder / "figures.json", **running)
    with _step(4, f"index of all images -> {index}", quiet=quiet):
        if index.is_dir() and interrupted_build(index) is None:
            say("      already there", quiet=quiet)
        else:
            build_index(index, run=run, **running)
    with _step(5, f"three searches -> {page}", quiet=quiet):
        say(_write_page(page, folder, result, seed), quiet=quiet)
    say(f"all in {duration(time.monotonic() - started)}", quiet=quiet)
    opener = {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")
    figures = figures_table(result.figures, result.chance, result.intervals)
    command = f"{opener} {shlex.quote(str(page))}"
    return Demonstration(f"{figures}\n\n{_verdict(result)}\n\nopen the page:\n  {command}")


@contextmanager
def _step(number: int, text: str, *, quiet: bool) -> Iterator[None]:
    say(f"[{number}/5] {text}", quiet=quiet)
    started = time.monotonic()
    yield
    say(f"      {duration(time.monotonic() - started)}", quiet=quiet)


def _enter(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or see that it is this demonstration's."""
    from subtext.data.atomic import write_text
    from subtext.demo.emoji import emoji

    mark = folder / MARK
    if mark.is_file():
        recorded = json.loads(mark.read_text(encoding="utf-8")).get("settings")
        if recorded != settings:
            raise RequirementError(
                f"{folder} holds a demonstration of other settings ({recorded}); name another folder with --out, or "
                "remove this one"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequirementError(
            f"the demonstration needs a new or empty folder; {folder} holds something; name another with --out"
        )
    emoji()  # Missing packages are reported before a folder is made.
    write_text(mark, json.dumps({"settings": settings, "version": __version__}, indent=2) + "\n")


def _verdict(result: Result) -> str:
    """The one sentence to take away: how far above chance."""
    name = "text_to_image/recall@10"
    value, chance = result.figures[name], result.chance[name]
    low, high = result.intervals.get(name, (value, value))
    gain = f"{value / chance:.0f} times chance" if low > chance else "which is not above chance: the interval holds it"
    interval = f" (95 %: {low:.1f} to {high:.1f})" if low < high else ""
    return (
        f"Of texts of emoji that it never saw, {value:.1f} %{interval} find their picture among the first ten of "
        f"{result.protocol['gallery']['images']:,}; chance gives {chance:.1f} %: {gain}."
    )


def _write_page(file: Path, folder: Path, result: Result, seed: int) -> str:
    """Search the index, write the page, and return the answers in words."""
    from subtext.data.atomic import write_text
    from subtext.report.page import render

    index = open_index(folder / "index")
    lines, searches = [], []
    for query, remark in QUERIES:
        hits = index.search(query, top=len(index)).hits
        remark = described(query, remark, hits)
        searches.append(_search(query, remark, hits, [hit.id for hit in hits if _is_named(hit, query)]))
        lines.append(f'      "{query}"   {remark}')
        lines += [
            f"        {hit.score:.2f}  {hit.metadata.get('emoji', ' ')}  {hit.captions[0]} ({_split_note(hit)})"
            for hit in hits[:3]
        ]
    write_text(file, render(_page(folder, index, result, searches, seed)))
    return "\n".join(lines)


def described(query: str, remark: str, hits: Sequence[Hit]) -> str:
    """The remark on a query, and the rank of the image that has the query as a text."""
    for rank, hit in enumerate(hits, start=1):
        if _is_named(hit, query):
            return f"{remark} Its picture was {_split_note(hit)}; place {rank:,} of {len(hits):,}."
    return remark


def _is_named(hit: Hit, query: str) -> bool:
    return query.casefold() in {caption.casefold() for caption in hit.captions}


def _split_note(hit: Hit) -> str:
    return _SPLITS.get(str(hit.metadata.get("split")), "")


def _search(query: str, remark: str, hits: Sequence[Hit], right: Collection[str]) -> Search:
    """The first hits as cards; `right` are the ids of the images that were searched for."""
    from subtext.data.image_files import thumbnail
    from subtext.report.page import Found, Search

    cards = [
        Found(
            title=hit.captions[0],
            score=hit.score,
            picture=None if hit.path is None else thumbnail(hit.path),
            notes=[_split_note(hit)],
            right=hit.id in right,
        )
        for hit in hits[:TOP]
    ]
    return Search(query, cards, remark)


def _samples(index: Index, pairs: Dataset, seed: int) -> tuple[list[Search], float]:
    """Answers to held-out texts that share a word with the training texts, and the share of such texts in per cent."""
    from subtext.data.text import UNKNOWN, WordInput, tokenise
    from subtext.ops import draw

    spec, texts = index.model.text.input_spec, [str(text) for text in pairs.texts.values]
    assert isinstance(spec, WordInput)
    has_word = [any(code != UNKNOWN for code in spec.vocabulary.encode(tokenise(text))) for text in texts]
    shuffled = draw.permutation(len(texts), seed=seed, epoch=0, purpose="demo samples").tolist()
    image_of = dict(pairs.links[:, ::-1].tolist())
    searches = []
    for row in [row for row in shuffled if has_word[row]][:SAMPLES]:
        hits, name = index.search(texts[row], top=len(index), where=["split = test"]).hits, image_of[row]
        rank = [hit.id for hit in hits].index(pairs.images.ids[name]) + 1
        remark = f"Its own picture is at place {rank:,} of {len(hits):,}."
        searches.append(_search(texts[row], remark, hits, [pairs.images.ids[name]]))
    return searches, 100 * sum(has_word) / len(has_word)


def _page(folder: Path, index: Index, result: Result, searches: Sequence[Search], seed: int) -> Page:
    from subtext.data.read import read
    from subtext.demo.emoji import CREDIT
    from subtext.models.checkpoint import load_record
    from subtext.report.page import Figure, Page, Section

    record, pairs = load_record(folder / "run"), read(folder / "data").split("test")
    samples, share = _samples(index, pairs, seed)
    figures = []
    for direction, words in (("text_to_image", "words → picture"), ("image_to_text", "picture → words")):
        for k in (1, 5, 10):
            name, title = f"{direction}/recall@{k}", f"{words}, first {k}" if k > 1 else f"{words}, first"
            low, high = result.intervals.get(name, (None, None))
            figures.append(Figure(title, result.figures[name], result.chance[name], low, high))
    data, run, library = (shlex.quote(str(folder / name)) for name in ("data", "run", "index"))
    return Page(
        title="Emoji, found by words",
        lead=f"A model trained from nothing on drawings of emoji and their names in six languages. It looks at pixels "
        f"and words alone. All {len(index):,} pictures can be searched.",
        verdict=_verdict(result),
        figures=figures,
        figures_text=f"{len(pairs.images):,} pictures and {len(pairs.texts):,} texts of whole emoji that were held "
        "out: neither their pictures nor their texts, nor those of another skin tone or gender, were learnt from. The "
        "orange line is what guessing gives; the dark line is a 95 % interval.",
        sections=(
            Section(
                "Three searches in all pictures",
                "The number is the cosine, which orders the results. The model learnt from most of these pictures, "
                "and should know them; those that are held out it never saw, and can at best guess from words that it "
                "knows. The queries are fixed, however well the model answers them.",
                searches,
            ),
            Section(
                "Held-out texts, sampled at random",
                f"Each searches the {len(pairs.images):,} held-out pictures alone, as in the figures above. They come "
                f"from the {share:.0f} % of held-out texts that share a word with those learnt from: of the others, "
                "which the figures count too, a model of words can know nothing.",
                samples,
            ),
        ),
        facts=[
            ("recipe", f"{record.model}: a small convolutional network and a bag of words, both from random weights"),
            ("parameters", f"{sum(parameter.numel() for parameter in index.model.parameters()):,}"),
            ("training", f"{record.epochs} epochs in {duration(record.seconds)}; epoch {record.best_epoch} kept"),
            ("index", f"{len(index):,} pictures, vectors of {index.store.manifest.width}, searched exactly"),
            ("seed", str(record.seed)),
            ("versions", f"Subtext {__version__}, PyTorch {record.versions.get('torch', '?')}"),
        ],
        commands=[
            f'subtext search {library} "herz"',
            f"subtext search {library} --image {data}/pictures/1F44B.png --target texts",
            f"subtext evaluate {run} --split test",
            f"subtext data check {data}",
        ],
        credit=f"{CREDIT}. Names: Unicode CLDR, through the Python package emoji.",
    )
