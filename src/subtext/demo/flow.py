"""`subtext.run_demo`: images, training, evaluation, index, searches and a page, step by step."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.index.build import build_index, interrupted_build
from subtext.api.load import open_run
from subtext.api.options import Device, Quiet, Workers
from subtext.api.search import open_index
from subtext.api.train import flat_arguments, train
from subtext.errors import CheckpointError, RequirementError
from subtext.report.progress import meter, say
from subtext.report.text_table import Report, duration
from subtext.settings import Interval, OptionGroup, command
from subtext.text_helpers import json_text
from subtext.version import __version__

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.demo.queries import AcceptedQuery
    from subtext.evaluation import Result
    from subtext.models.model import Model
    from subtext.report.page import Figure, HtmlPage, PageSearch
    from subtext.retrieval.index import Index

MARK = "demo.json"
MODEL = "dual"
ARGUMENTS: dict[str, Any] = {
    "image": "starter",
    "image_size": 128,
    "resize": "squash",
    "text": "starter",
    "embed_dim": 512,
    "text_mlp": True,
    "dropout": 0.1,
    "image_dropout": 0.3,
}
PLAN: dict[str, Any] = {
    "epochs": 24,
    "batch_size": 1536,
    "lr": 4e-3,
    "weight_decay": 0.05,
    "weight_average": "ema",
    "patience": 0,
}
"""The options of the recommended recipe for a few thousand drawings; chosen on the validation split."""
SCRATCH_ARGUMENTS: dict[str, Any] = {
    "image": "tiny",
    "image_size": 32,
    "resize": "squash",
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
SCRATCH_PLAN: dict[str, Any] = {
    "epochs": 8,
    "batch_size": 768,
    "lr": 4e-3,
    "weight_decay": 0.05,
    "weight_average": "none",
}
"""A rival: a small network and a bag of words, both from random weights."""
WITH_TEXTS: dict[str, Any] = {}
UNSEEN: dict[str, Any] = {"signals": ["pixels"], "where": ["split = test"]}
"""Options of a search in all items, by their pixels and their texts, and of one in held-out items, by pixels alone."""
SHOWN = 10
"""Every how many queries one is shown."""
MAIN = "emoji by English name"
"""The figure of the verdict."""

_DEMONSTRATION = OptionGroup("Demonstration")


@dataclass(frozen=True, repr=False)
class Demonstration(Report):
    """The result of a demonstration.

    Attributes:
        summary: Its summary.
        stopped: Whether the training was interrupted.
    """

    summary: tuple[str, ...]
    stopped: bool = False

    def _lines(self) -> tuple[str, ...]:
        return self.summary


@command
def run_demo(
    *,
    out: Annotated[str | Path, "Folder for data, run, index and page.", _DEMONSTRATION] = "demo",
    seed: Annotated[int, "Seed of every random choice.", _DEMONSTRATION] = 0,
    epochs: Annotated[
        int | None, "Epochs of training; fewer epochs are faster but less accurate.", Interval(1), _DEMONSTRATION
    ] = None,
    limit: int | None = None,
    device: Device = "cpu",
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Demonstration:
    """Run every step on a small example: emoji with names in six languages, and icons with tags of their designers.

    The command draws 5,657 images, trains the recommended model with pretrained encoders, and evaluates it on unseen
    concepts. It then builds an index, asks it 60 queries that name no item, asks three rivals the same, and writes a
    page with the results. This takes some minutes and needs the extra "demo" (pip install '.[demo]' in a clone of
    Subtext). Run the command again to resume an interrupted demonstration.

    Args:
        out: Folder for data, run, index and page.
        seed: Seed of every random choice.
        epochs: Epochs of training; fewer epochs are faster but less accurate.
        limit: Use only N drawings, for tests.
        device: cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.
        workers: Threads that load data.
        quiet: Show no progress.

    Returns:
        The summary.

    Raises:
        RequirementError: If packages are missing, or if the folder holds something else.
    """
    from subtext.data.atomic import write_text
    from subtext.data.read import read
    from subtext.demo import emoji, icons
    from subtext.demo.drawings import write_drawings
    from subtext.demo.queries import accepted_queries
    from subtext.evaluation.result import figures_table
    from subtext.report.page import render

    folder, started = Path(out), time.monotonic()
    names = ("data", "run", "scratch", "index", "page.html", "cache")
    data, run, scratch, index, page, cache = (folder / name for name in names)
    plans = [plan if epochs is None else {**plan, "epochs": epochs} for plan in (PLAN, SCRATCH_PLAN)]
    running: dict[str, Any] = {"device": device, "workers": workers, "quiet": quiet}
    drawings, queries = [*emoji.emoji(), *icons.icons()], accepted_queries()
    first_items = {
        entry.id for entry in drawings if any(query.starts_with(entry.symbol, entry.id) for query in queries)
    }
    if limit is not None:
        # A third of those that a query asks for, and others of both sets.
        others = [entry for entry in drawings if entry.id not in first_items]
        queried = [entry for entry in drawings if entry.id in first_items]
        drawings = queried[:: max(1, 3 * len(queried) // limit)][: limit // 3]
        drawings += others[:: len(others) // limit][: limit - len(drawings)]
    _enter(folder, {"seed": seed, "limit": limit, "arguments": ARGUMENTS, "plan": plans[0]})
    with _step(1, f"images and texts -> {data}", quiet=quiet):
        if data.is_dir():
            say("      already there", quiet=quiet)
        else:
            with meter("drawing", len(drawings), quiet=quiet) as progress:
                write_drawings(
                    data,
                    drawings,
                    seed=seed,
                    credit=f"{emoji.CREDIT}\nNames: Unicode CLDR, through the Python package `emoji`.\n{icons.CREDIT}",
                    held_out=lambda entry: entry.id in first_items,
                    left_out={query.query.casefold() for query in queries},
                    progress=progress,
                )
    pairs = read(data)
    # The images were drawn a moment ago: each training would decode all of them once more, to see whether it can.
    parts = {"train_data": pairs.split("train"), "val_data": pairs.split("val")}
    options = {"data": data, "seed": seed, **parts, **running}
    with _step(2, f"training, with pretrained encoders -> {run}", quiet=quiet):
        if not _trained(run, {**options, **ARGUMENTS, **plans[0], "cache": cache}):
            return Demonstration(("stopped; run the command again to resume",), stopped=True)
    with _step(3, f"training a rival from scratch -> {scratch}", quiet=quiet):
        if not _trained(scratch, {**options, **SCRATCH_ARGUMENTS, **plans[1]}):
            return Demonstration(("stopped; run the command again to resume",), stopped=True)
    with _step(4, f"index of all images -> {index}", quiet=quiet):
        if index.is_dir() and interrupted_build(index) is None:
            say("      already there", quiet=quiet)
        else:
            build_index(index, run=run, cache=cache, **running)
        shutil.rmtree(cache, ignore_errors=True)
        opened = open_index(index, device=device)
    with _step(5, "evaluating on held-out concepts", quiet=quiet):
        results = {name: _evaluated(opened, part) for name, part in _parts(pairs).items()}
        figures = {name: result.to_json() for name, result in results.items()}
        write_text(folder / "figures.json", json_text(figures, indent=2) + "\n")
    with _step(6, f"{len(queries)} queries, and three rivals -> {page}", quiet=quiet):
        shares = _shares(opened, open_run(scratch, device=device).model, pairs, queries)
        answered = {figure.name: [figure.value, figure.chance] for figure in shares}
        write_text(folder / "answered.json", json_text(answered, indent=2) + "\n")
        searches = [_searches(opened, queries[::SHOWN], options) for options in (WITH_TEXTS, UNSEEN)]
        write_text(page, render(_page(folder, opened, results, shares, *searches)))
        for search in searches[0]:
            titles = ", ".join(hit.title for hit in search.hits[:3])
            say(f'      "{search.query}": {titles}. {search.remark}', quiet=quiet)
    say(f"all in {duration(time.monotonic() - started)}", quiet=quiet)
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    result = results[MAIN]
    table = figures_table(result.figures, result.chance, result.intervals)
    lines = [f"{figure.name:<60} {figure.value:5.1f} %   chance {figure.chance:.1f} %" for figure in shares]
    command = f"{opener} {shlex.quote(str(page))}"
    return Demonstration((*table, "", _verdict(result), "", *lines, "", "open the page:", f"  {command}"))


def _trained(run: Path, options: dict[str, Any]) -> bool:
    """Train a run, or finish it; whether it is finished."""
    from subtext.models.checkpoint import load_record

    try:
        is_trained = load_record(run).status == "finished"
    except CheckpointError:
        is_trained = False  # Nothing was begun, or not as far as a record: training resumes from its checkpoints.
    if is_trained:
        say("      already trained", quiet=options["quiet"])
    arguments = flat_arguments(MODEL, {"out": run, "resume": run.exists(), **options})
    return is_trained or train(MODEL, **arguments).record.status != "stopped"


def _parts(pairs: Dataset) -> dict[str, Dataset]:
    """The held-out pairs by what is measured on them. A name is the first English text of an emoji, not an alias."""
    import numpy as np

    test = pairs.split("test")
    emoji, language = test.images.metadata["emoji"], test.texts.metadata["language"]
    named: dict[int, int] = {}
    for image, text in test.links.tolist():
        if language[text] == "en":
            named.setdefault(image, text)
    of_emoji = np.array([bool(emoji[image]) for image in test.links[:, 0]])
    english = np.array([named.get(image) == text for image, text in test.links.tolist()])
    return {
        MAIN: test.select(np.flatnonzero(of_emoji & english)),
        "emoji by name, six languages": test.select(np.flatnonzero(of_emoji)),
        "icons by name or tag": test.select(np.flatnonzero(~of_emoji)),
    }


def _evaluated(index: Index, pairs: Dataset) -> Result:
    """The figures of pairs, by the vectors that the index has of their items."""
    import torch

    from subtext.core import Embeddings
    from subtext.evaluation import evaluate_embeddings
    from subtext.models.similarity.cosine import Cosine
    from subtext.retrieval.stores.item import SIDES

    with index.store.reading() as view:
        vectors = [
            torch.from_numpy(view.vectors_of(side, items.ids))
            for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True)
        ]
    images, texts = (Embeddings(rows, torch.arange(len(rows))) for rows in vectors)
    result = evaluate_embeddings(Cosine(), images, texts, pairs)
    return replace(result, about={"index": str(index.store.path), "split": "test", "split_role": "held out"})


@contextmanager
def _step(number: int, text: str, *, quiet: bool) -> Iterator[None]:
    say(f"[{number}/6] {text}", quiet=quiet)
    started = time.monotonic()
    yield
    say(f"      {duration(time.monotonic() - started)}", quiet=quiet)


def _enter(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or see that it is this demonstration's."""
    from subtext.data.atomic import write_text

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
    write_text(mark, json.dumps({"settings": settings, "version": __version__}, indent=2) + "\n")


def _verdict(result: Result) -> str:
    """The one sentence to take away: how far above chance."""
    name = "text_to_image/recall@10"
    value, chance = result.figures[name], result.chance[name]
    low, high = result.intervals.get(name, (value, value))
    gain = f"{value / chance:.0f} times chance" if low > chance else "not above chance, which the interval contains"
    interval = f" (95 %: {low:.1f} to {high:.1f})" if low < high else ""
    return (
        f"For {value:.1f} %{interval} of the unseen English emoji names, the right emoji is among the first ten of "
        f"{result.protocol['gallery']['images']:,}. Chance is {chance:.1f} %. The result is {gain}."
    )


def _shares(index: Index, scratch: Model, pairs: Dataset, queries: Sequence[AcceptedQuery]) -> list[Figure]:
    """The shares of queries that are answered among the first ten, of the index and its rivals."""
    from subtext.demo.queries import TOP, DemoGallery, by_pixels, by_sentences, by_words
    from subtext.report.page import Figure

    def answers_of(options: dict[str, Any]) -> dict[str, list[str]]:
        return {query.query: [hit.id for hit in index.search(query.query, top=TOP, **options)] for query in queries}

    test = pairs.split("test")
    every, held_out = DemoGallery.of(pairs), DemoGallery.of(test)
    # A few drawings, in tests, may hold out no item of some queries.
    askable = [query for query in queries if held_out.accepted(query)]
    unseen, with_texts = "queries, unseen items, pixels alone", "queries, all items with their texts"
    return [
        Figure(name, gallery.share(answers, chosen), gallery.chance(chosen))
        for gallery, chosen, name, answers in (
            (held_out, askable, f"{unseen}: Subtext", answers_of(UNSEEN)),
            (held_out, askable, f"{unseen}: from scratch", by_pixels(scratch, test, askable)),
            (every, queries, f"{with_texts}: Subtext", answers_of(WITH_TEXTS)),
            (every, queries, f"{with_texts}: BM25", by_words(index, queries)),
            (every, queries, f"{with_texts}: MiniLM, no images", by_sentences(pairs, queries)),
        )
    ]


def _searches(index: Index, queries: Sequence[AcceptedQuery], options: dict[str, Any]) -> list[PageSearch]:
    """The hits of each query, by the options of a search."""
    from subtext.data.image_files import thumbnail
    from subtext.report.page import PageHit, PageSearch

    searches = []
    for query in queries:
        cards = [
            PageHit(
                hit.captions[0],
                hit.score,
                None if hit.path is None else thumbnail(hit.path),
                right=query.accepts(str(hit.metadata["emoji"]), hit.id),
            )
            for hit in index.search(query.query, **options)
        ]
        right = sum(card.right for card in cards)
        accepted = f"{right} of {len(cards)} results are accepted" if right else "No result is accepted"
        searches.append(PageSearch(query.query, cards, f"A {query.level} query. {accepted}."))
    return searches


def _page(
    folder: Path,
    index: Index,
    results: dict[str, Result],
    shares: Sequence[Figure],
    with_texts: Sequence[PageSearch],
    unseen: Sequence[PageSearch],
) -> HtmlPage:
    from subtext.data.starter import STARTER
    from subtext.demo import emoji, icons
    from subtext.models.checkpoint import load_record
    from subtext.report.page import Figure, HtmlPage, PageSection

    record, scratch = load_record(folder / "run"), load_record(folder / "scratch")
    name = "text_to_image/recall@10"
    figures = [
        Figure(f"unseen {part}", result.figures[name], result.chance[name], *result.intervals.get(name, (None, None)))
        for part, result in results.items()
    ]
    data, run, library = (shlex.quote(str(folder / part)) for part in ("data", "run", "index"))
    return HtmlPage(
        title="Search drawings by what they stand for",
        lead="A model learned from drawings of emoji with their names in six languages, and from icons with the tags "
        "that their designers wrote: a gavel has the tags “law” and “judgment”. It starts from two pretrained encoders "
        f"that were never trained together. The index holds {len(index):,} images.",
        verdict=_verdict(results[MAIN]),
        figures=[*figures, *shares],
        figures_text="Each bar is the share of texts for which a right image is among the first ten. The orange line "
        "shows chance; the dark line is a 95 % interval. Unseen: the training had no image or text of the concept, of "
        "its variants, nor of an icon or emoji of the same name. The 60 queries were written before the training and "
        "name no item; the items that are right were listed with them. “Pixels alone”: the search sees no text of the "
        "items. "
        f"“From scratch” is a small network without pretrained encoders, trained for {scratch.epochs} "
        "epochs. BM25 and MiniLM search the texts of the items, and see no image. MiniLM's training texts include "
        "captions of COCO and Flickr30k.",
        sections=(
            PageSection(
                "Six of the 60 queries, all items with their texts",
                "Every tenth query of the list, whether its results are good or bad. The search reads the items' own "
                "texts beside their pixels. The number is the cosine; a green frame is a right result.",
                with_texts,
            ),
            PageSection(
                "The same six, unseen items, pixels alone",
                "The model never saw these concepts, and the search reads no text of them.",
                unseen,
            ),
        ),
        facts=[
            ("recipe", f"{record.model}: {STARTER['image'].model} and {STARTER['text'].model}, both frozen"),
            ("training", f"{record.epochs} epochs in {duration(record.seconds)}; epoch {record.best_epoch} kept"),
            ("index", f"{len(index):,} images, vectors of {index.store.manifest.width} numbers, exact search"),
            ("seed", str(record.seed)),
            ("versions", f"Subtext {__version__}, PyTorch {record.versions.get('torch', '?')}"),
        ],
        commands=[
            f'subtext search {library} "the ruling stands"',
            f"subtext search {library} --image {data}/images/1F44B.png --target texts",
            f"subtext evaluate {run} --split test",
            f"subtext data check {data}",
        ],
        credit=f"{emoji.CREDIT}. Names: Unicode CLDR, through the Python package emoji. {icons.CREDIT}.",
    )
