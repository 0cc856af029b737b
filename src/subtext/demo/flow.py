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
from subtext.api.load import load
from subtext.api.options import Device, Quiet, Workers
from subtext.api.search import open_index
from subtext.api.train import flat_arguments, train
from subtext.errors import CheckpointError, RequirementError, Setting
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
    from subtext.report.page import HtmlPage, PageSearch
    from subtext.retrieval.index import Index
    from subtext.retrieval.ranker import Signal

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
WITH_TEXTS: dict[str, Any] = {}
UNSEEN: dict[str, Any] = {"signals": ["pixels"], "where": ["split = test"]}
"""Options of a search in all items, by their pixels and their texts, and of one in held-out items, by pixels alone."""
SHOWN, HITS = 8, 5
"""Every how many queries one is shown beside a search by words, and how many hits of both."""
SINGLE_TAGS = 300
"""Tags of unseen icons that are queries."""
OWN_PHOTOS = ("subtext index build library PHOTOS --model starter", "subtext serve library")
"""What makes a folder of photographs searchable, without a network and without training."""
TAGS = "single tags of unseen icons"
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
    names = ("data", "run", "index", "page.html", "cache")
    data, run, index, page, cache = (folder / name for name in names)
    plan = PLAN if epochs is None else {**PLAN, "epochs": epochs}
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
    _enter(folder, {"seed": seed, "limit": limit, "arguments": ARGUMENTS, "plan": plan})
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
    # The images were drawn a moment ago: the training would decode all of them once more, to see whether it can.
    parts = {"train_data": pairs.split("train"), "val_data": pairs.split("val")}
    options = {"data": data, "seed": seed, **parts, **running, **ARGUMENTS, **plan, "cache": cache}
    with _step(2, f"training, with pretrained encoders -> {run}", quiet=quiet):
        if not _trained(run, options):
            return Demonstration(("stopped; run the command again to resume",), stopped=True)
    with _step(3, f"index of all images -> {index}", quiet=quiet):
        if index.is_dir() and interrupted_build(index) is None:
            say("      already there", quiet=quiet)
        else:
            build_index(index, run=run, cache=cache, **running)
        shutil.rmtree(cache, ignore_errors=True)
        opened = open_index(index, device=device)
    with _step(4, "evaluating on held-out concepts", quiet=quiet):
        results = {name: _evaluated(opened, part) for name, part in _parts(pairs).items()}
        figures = {name: result.to_json() for name, result in results.items()}
        write_text(folder / "figures.json", json_text(figures, indent=2) + "\n")
    with _step(5, f"{len(queries)} queries, and three rivals -> {page}", quiet=quiet):
        shares = _answers(opened, load(model="starter", device=device), pairs, queries)
        tags = _single_tags(opened, pairs, seed=seed)
        answered = {**{share.name: share.to_json() for share in shares}, TAGS: tags}
        write_text(folder / "answered.json", json_text(answered, indent=2) + "\n")
        write_text(page, render(_page(folder, opened, results, shares, tags, queries)))
    say(f"all in {duration(time.monotonic() - started)}", quiet=quiet)
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    result = results[MAIN]
    table = figures_table(result.figures, result.chance, result.intervals)
    lines = [f"{share.name:<60} {share.value:5.1f} %   chance {share.chance:.1f} %" for share in shares]
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
    say(f"[{number}/5] {text}", quiet=quiet)
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
                f"{folder} holds a demonstration of other settings ({recorded}); name another folder with ",
                Setting("out"),
                ", or remove this one",
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequirementError(
            f"the demonstration needs a new or empty folder; {folder} holds something; name another with ",
            Setting("out"),
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


@dataclass(frozen=True)
class _Answers:
    """What one way of searching answers to the queries.

    name     of the way      of  what is searched     value, chance  share of queries with a right item among ten, in %
    levels   level of queries -> that share           hits  query -> ids of the items, best first
    """

    name: str
    of: str
    value: float
    chance: float
    levels: dict[str, float]
    hits: dict[str, list[str]]

    @property
    def is_rival(self) -> bool:
        return not self.name.endswith(": Subtext")

    def to_json(self) -> dict[str, Any]:
        return {"answered": self.value, "chance": self.chance, "levels": self.levels}


def _answers(index: Index, untrained: Model, pairs: Dataset, queries: Sequence[AcceptedQuery]) -> tuple[_Answers, ...]:
    """The answers of the index and its rivals, and the shares of queries that are answered among the first ten."""
    from subtext.demo.queries import DEPTH, DemoGallery, by_pixels, by_sentences, by_words

    def of_index(options: dict[str, Any]) -> dict[str, list[str]]:
        return {query.query: [hit.id for hit in index.search(query.query, top=DEPTH, **options)] for query in queries}

    test = pairs.split("test")
    every, held_out = DemoGallery.of(pairs), DemoGallery.of(test)
    # A few drawings, in tests, may hold out no item of some queries.
    askable = [query for query in queries if held_out.accepted(query)]
    unseen, with_texts = "unseen items, pixels alone", "all items with their texts"
    found = []
    for gallery, chosen, searched, name, answers in (
        (every, queries, with_texts, "Subtext", of_index(WITH_TEXTS)),
        (every, queries, with_texts, "words (BM25)", by_words(index, queries)),
        (every, queries, with_texts, "MiniLM, no images", by_sentences(pairs, queries)),
        (held_out, askable, unseen, "Subtext", of_index(UNSEEN)),
        (held_out, askable, unseen, "nothing trained", by_pixels(untrained, test, askable)),
    ):
        levels = {
            level: gallery.share(answers, own)
            for level in dict.fromkeys(query.level for query in chosen)
            if (own := [query for query in chosen if query.level == level])
        }
        share, chance = gallery.share(answers, chosen), gallery.chance(chosen)
        hits = {query.query: gallery.distinct(answers[query.query]) for query in chosen}
        found.append(_Answers(f"{searched}: {name}", searched, share, chance, levels, hits))
    return tuple(found)


def _single_tags(index: Index, pairs: Dataset, *, seed: int) -> dict[str, float]:
    """Share of single tags that find an unseen icon with that tag among ten, without any text of the icon itself.

    Its neighbours' texts may have the word.
    """
    from subtext.ops import draw

    test = pairs.split("test")
    icons = [row for row, emoji in enumerate(test.images.metadata["emoji"]) if not emoji]
    tagged: dict[str, set[str]] = {}
    first = set[int]()
    for image, text in test.links.tolist():
        word = str(test.texts.values[text]).casefold()
        if image in icons and image in first and " " not in word:
            tagged.setdefault(word, set()).add(test.images.ids[image])
        first.add(image)
    words = sorted(tagged)
    chosen = [words[row] for row in draw.permutation(len(words), seed=seed, epoch=0, purpose="demo: single tags")]
    found = {}
    ways: dict[str, Sequence[Signal]] = {
        "pixels": ["pixels"], "pixels and texts of similar images": ["pixels", "neighbours"],
    }  # fmt: skip
    for name, signals in ways.items():
        where = ["split = test", "set = lucide"]
        right = [
            bool(tagged[word] & {hit.id for hit in index.search(word, top=10, signals=signals, where=where)})
            for word in chosen[:SINGLE_TAGS]
        ]
        found[name] = 100 * sum(right) / max(1, len(right))
    return found


def _searches(
    index: Index, answers: _Answers, queries: Sequence[AcceptedQuery], *, top: int, by: str = ""
) -> list[PageSearch]:
    """The items of some answers as cards."""
    from subtext.data.image_files import thumbnail
    from subtext.report.page import PageHit, PageSearch

    searches = []
    for query in queries:
        ids = answers.hits[query.query][:top]
        with index.store.reading() as view:
            root = Path(index.store.manifest.root)
            items = {item.id: item for item in view.items("images", list(view.keys_of("images", ids).values()))}
        cards = [
            PageHit(
                item.captions[0],
                None,
                None if item.path is None else thumbnail(root / item.path),
                right=query.accepts(str(item.metadata["emoji"]), id),
            )
            for id in ids
            if (item := items.get(id))
        ]
        searches.append(PageSearch(query.query, cards, by=by))
    return searches


def _with_reasons(index: Index, answers: _Answers, queries: Sequence[AcceptedQuery]) -> list[PageSearch]:
    """The items of all queries as cards that say why."""
    from subtext.data.image_files import thumbnail
    from subtext.demo.queries import DEPTH
    from subtext.report.page import PageHit, PageSearch
    from subtext.retrieval.answer import as_sentence

    searches = []
    for query in queries:
        shown = answers.hits[query.query]
        hits = {hit.id: hit for hit in index.search(query.query, top=DEPTH, explain=True, **WITH_TEXTS)}
        cards = [
            PageHit(
                hit.captions[0],
                None,
                None if hit.path is None else thumbnail(hit.path),
                notes=[as_sentence([reason for reason in hit.reasons if reason.share])],
                right=query.accepts(str(hit.metadata["emoji"]), id),
            )
            for id in shown
            if (hit := hits.get(id))
        ]
        right = sum(card.right for card in cards)
        told = f"{right} of {len(cards)} items are right." if right else "No item is right."
        searches.append(PageSearch(query.query, cards, f"A {query.level} query. {told}"))
    return searches


def _page(
    folder: Path,
    index: Index,
    results: dict[str, Result],
    answers: Sequence[_Answers],
    tags: dict[str, float],
    queries: Sequence[AcceptedQuery],
) -> HtmlPage:
    from subtext.data.starter import STARTER
    from subtext.demo import emoji, icons
    from subtext.models.checkpoint import load_record
    from subtext.report.page import Figure, HtmlPage, PageSection

    record = load_record(folder / "run")
    name = "text_to_image/recall@10"
    figures = [
        *(Figure(own.name, own.value, own.chance, rival=own.is_rival) for own in answers),
        *(
            Figure(
                f"unseen {part}", result.figures[name], result.chance[name], *result.intervals.get(name, (None, None))
            )
            for part, result in results.items()
        ),
    ]
    ours, words = answers[0], answers[1]
    shown = queries[::SHOWN]
    beside = zip(
        _searches(index, ours, shown, top=HITS, by="Subtext"),
        _searches(index, words, shown, top=HITS, by="a search by words"),
        strict=True,
    )
    right, by_words = (round(own.value * len(queries) / 100) for own in (ours, words))
    library = shlex.quote(str(folder / "index"))
    return HtmlPage(
        title="Search drawings by what they stand for",
        lead=f"{len(index):,} emoji and icons with the names and tags that their designers gave them. "
        f"{len(queries)} queries name none of them. Subtext finds a right item among the first ten for {right} of "
        f"{len(queries)}; a search by words for {by_words}.",
        verdict=_verdict(results[MAIN]),
        figures=figures,
        figures_text="Each bar is the share of texts for which a right item is among the first ten; rivals are grey. "
        "The orange line shows chance; the dark line is a 95 % interval. The queries were written before the training, "
        "and the items that are right were listed with them; variants of an emoji are one item. Unseen: the training "
        "had no image or text of the concept, of its variants, nor of an icon or emoji of the same name. “Pixels "
        "alone”: the search reads no text. “Nothing trained” is --model starter, the same encoders as they are "
        "installed. Words and MiniLM search the texts of the items, and see no image. MiniLM's training "
        f"texts include captions of COCO and Flickr30k. {_levels(answers)} {_of_tags(tags)}",
        first=(
            PageSection(
                f"{len(shown)} of the {len(queries)} queries",
                f"Every {SHOWN}th of the list, right or wrong, with the first {HITS} items. A green frame is right.",
                [search for pair in beside for search in pair],
                columns=2,
            ),
            PageSection(
                f"All {len(queries)} queries, and why",
                "Choose one. Below each item stands what speaks for it, by share.",
                _with_reasons(index, ours, queries),
                choose=True,
            ),
        ),
        sections=(
            PageSection(
                "Your own photographs",
                "Two commands make a folder of them searchable. No network is needed, and nothing is trained: "
                + "; ".join(OWN_PHOTOS),
                (),
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
            *OWN_PHOTOS,
            f'subtext search {library} "the ruling stands" --explain',
            f"subtext serve {library}",
        ],
        credit=f"{emoji.CREDIT}. Names: Unicode CLDR, through the Python package emoji. {icons.CREDIT}.",
    )


def _levels(answers: Sequence[_Answers]) -> str:
    """The shares by level, in a sentence."""
    told = (
        f"{own.name.rpartition(': ')[2]} {', '.join(f'{share:.0f} % {level}' for level, share in own.levels.items())}"
        for own in answers[:3]
    )
    return f"By level, all items with their texts: {'; '.join(told)}."


def _of_tags(tags: dict[str, float]) -> str:
    """What single tags find, in a sentence."""
    told = "; ".join(f"{share:.0f} % by {name}" for name, share in tags.items())
    return (
        f"Single tags of unseen icons, whose own texts are not read, find one of them among ten of the unseen: {told}."
    )
