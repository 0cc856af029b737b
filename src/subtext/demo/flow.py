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
from subtext.report.text_table import Printed, duration
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
    ("flag for Brazil", "An alias; the English name of the emoji is “Brazil”."),
    ("chat noir", "French for “black cat”."),
    ("cat with a smile", "English words that are not the name of an emoji."),
)
"""Fixed for every seed. With seed 0: the name of a training image, of a held-out image, and of no image."""
SAMPLES, TOP = 6, 10
"""Held-out texts whose answers are shown; images of an answer."""
_SPLITS = {"train": "training", "val": "held out", "test": "held out"}


_DEMONSTRATION = Section("Demonstration")


@dataclass(frozen=True, repr=False)
class Demonstration(Printed):
    """The summary of a demonstration; `stopped` if the training was interrupted."""

    summary: tuple[str, ...]
    stopped: bool = False

    def _lines(self) -> tuple[str, ...]:
        return self.summary


@verb
def demo(
    *,
    out: Annotated[str | Path, "Folder for data, run, index and page.", _DEMONSTRATION] = "demo",
    seed: Annotated[int, "Seed of every random choice.", _DEMONSTRATION] = 0,
    epochs: Annotated[
        int | None, "Epochs of training; fewer epochs are faster but less accurate.", Range(1), _DEMONSTRATION
    ] = None,
    limit: int | None = None,
    device: Device = "cpu",
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Demonstration:
    """Run every step on a small example: 3,944 emoji with their names in six languages.

    The command writes the emoji as a data set, trains a small model and evaluates it on unseen emoji. It then builds an
    index, runs three searches and writes a page with the results. This takes a few minutes and needs the extra "demo"
    (pip install 'subtext[demo]'). Run the command again to resume an interrupted demonstration.

    limit  use only the first N emoji

    Raises RequirementError when packages are missing, or when the folder holds something else.
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
                return Demonstration(("stopped; run the command again to resume",), stopped=True)
    with _step(3, "evaluating on held-out emoji", quiet=quiet):
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
    return Demonstration((*figures, "", _verdict(result), "", "open the page:", f"  {command}"))


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
    gain = f"{value / chance:.0f} times chance" if low > chance else "not above chance, which the interval contains"
    interval = f" (95 %: {low:.1f} to {high:.1f})" if low < high else ""
    return (
        f"For {value:.1f} %{interval} of the unseen texts, the right image is among the first ten of "
        f"{result.protocol['gallery']['images']:,}. Chance is {chance:.1f} %. The result is {gain}."
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
            return f"{remark} Its image ({_split_note(hit)}) has rank {rank:,} of {len(hits):,}."
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
        remark = f"The right image has rank {rank:,} of {len(hits):,}."
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
    for direction, words in (("text_to_image", "text → image"), ("image_to_text", "image → text")):
        for k in (1, 5, 10):
            name, title = f"{direction}/recall@{k}", f"{words}, first {k}" if k > 1 else f"{words}, first"
            low, high = result.intervals.get(name, (None, None))
            figures.append(Figure(title, result.figures[name], result.chance[name], low, high))
    data, run, library = (shlex.quote(str(folder / name)) for name in ("data", "run", "index"))
    return Page(
        title="Search emoji by their names",
        lead=f"A small model was trained from scratch on drawings of emoji and their names in six languages. Its only "
        f"input is pixels and words. The index holds {len(index):,} images.",
        verdict=_verdict(result),
        figures=figures,
        figures_text=f"Measured on {len(pairs.images):,} images and {len(pairs.texts):,} texts of held-out emoji. The "
        "training contained no image or text of these emoji, nor of their variants in skin tone and gender. The orange "
        "line shows chance; the dark line is a 95 % interval.",
        sections=(
            Section(
                "Three searches in all images",
                "The number is the cosine; a larger cosine ranks higher. Images marked “training” were in the training "
                "split. The model has never seen those marked “held out”. The three queries are the same for every "
                "model, whether its results are good or bad.",
                searches,
            ),
            Section(
                "Held-out texts, sampled at random",
                f"Each query searches only the {len(pairs.images):,} held-out images, as in the figures above. It is "
                f"one of the {share:.0f} % of held-out texts that share a word with the training texts. The model "
                "knows no word of the other texts; the figures above include them.",
                samples,
            ),
        ),
        facts=[
            ("recipe", f"{record.model}: a small convolutional network and a bag of words, both from random weights"),
            ("parameters", f"{sum(parameter.numel() for parameter in index.model.parameters()):,}"),
            ("training", f"{record.epochs} epochs in {duration(record.seconds)}; epoch {record.best_epoch} kept"),
            ("index", f"{len(index):,} images, vectors of {index.store.manifest.width} numbers, exact search"),
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
