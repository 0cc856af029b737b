"""`subtext gallery compare`: what two runs find for the same queries, side by side on one page.

Which semantic neighbours one run has pulled together, relative to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subtext.api.load import Work, open_work
from subtext.core import Embeddings
from subtext.data.atomic import require_file, write_text
from subtext.data.dataset import Dataset, fingerprint
from subtext.data.features import FeatureInput
from subtext.data.image_files import thumbnail
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.evaluation import embed_pairs
from subtext.models.checkpoint import Record
from subtext.models.model import Model
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw
from subtext.report.page import Found, Page, Search, Section, render
from subtext.report.progress import meter

_AT_A_TIME = 512


@dataclass(frozen=True)
class Pulled:
    """Sampled pairs of neighbours.

    left, right  (M) rows of texts, or of pictures
    near         of each run (M): the cosine, in standard deviations above random pairs of the same run
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    near: tuple[NDArray[np.float64], NDArray[np.float64]]


def pulled_pairs(
    graph: Graph,
    runs: Sequence[tuple[nn.Module, Embeddings]],
    *,
    pictures: NDArray[np.int64] | None = None,
    count: int = 10_000,
    seed: int = 0,
) -> Pulled:
    """At most `count` pairs of neighbours of the graph, each once, and how near they lie in two runs.

    runs      similarity and embeddings of the graph's texts, of one run and the other; of the pictures with `pictures`
    pictures  (N) of each text, below 0 for none: pairs are then of pictures whose texts are neighbours

    Raises DataError when the graph knows no neighbours among its texts, or these have no pictures.
    """
    rows, places = np.nonzero(np.asarray(graph.neighbours) >= 0)
    left, right = rows.astype(np.int64), np.asarray(graph.neighbours)[rows, places].astype(np.int64)
    if pictures is not None:
        left, right = pictures[left], pictures[right]
        known = (left >= 0) & (right >= 0) & (left != right)
        left, right = left[known], right[known]
    if not len(left):
        what = "texts" if pictures is None else "texts of different pictures"
        raise DataError(f"this graph knows no neighbours among these {what}; build one of them (--split, --among)")
    # Two items that are each other's neighbours are one pair.
    once = np.unique(np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1), axis=0)
    order = draw.permutation(len(once), seed=seed, epoch=0, purpose="gallery neighbours")[:count]
    left, right = once[order].T
    there = len(runs[0][1])
    some = np.arange(min(count, 4 * there), dtype=np.int64)
    ends = draw.integers(some, there, seed=seed, epoch=0, purpose="gallery random pairs", count=2)
    apart = ends[:, 0] != ends[:, 1]
    near = []
    for similarity, items in runs:
        by_chance = _cosines(similarity, items, ends[apart, 0], ends[apart, 1])
        spread = by_chance.std() or 1.0
        near.append((_cosines(similarity, items, left, right) - by_chance.mean()) / spread)
    return Pulled(left, right, (near[0], near[1]))


def _cosines(
    similarity: nn.Module, items: Embeddings, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(M) cosine of each item with its own partner."""
    cosine = getattr(similarity, "cosine", similarity)
    found = []
    with torch.inference_mode():
        for start in range(0, len(left), _AT_A_TIME):
            rows = slice(start, start + _AT_A_TIME)
            one, other = (items[torch.from_numpy(side[rows])] for side in (left, right))
            found.append(cosine(one, other).diagonal().double())
    return torch.cat(found).numpy()


RARE, COMMON = 2, 0.05
"""A word is drawn from those in at least so many texts, and in at most this share of them."""


@dataclass(frozen=True)
class GalleryConfig:
    """Two runs on a data set, and what the page shows.

    works  one per run        words  queries; sampled where there are none        count  sampled words and images
    top    results per query  graph  of the split's texts                         pairs  sampled from it
    """

    works: tuple[Work, ...]
    out: Path
    words: tuple[str, ...] = ()
    count: int = 4
    top: int = 5
    graph: Path | None = None
    pairs: int = 10_000
    seed: int = 0


@dataclass(frozen=True)
class Side:
    """A run with the embeddings of all pictures and texts."""

    name: str
    model: Model
    record: Record
    images: Embeddings
    texts: Embeddings


def write_page(config: GalleryConfig) -> str:
    """Write the page; gives what to say of it.

    Raises RequirementError when a run's vectors do not decide its scores, or the runs remember different data; and what
    opening, reading and the graph raise.
    """
    require_file(config.out)
    graph = None if config.graph is None else Graph.load(config.graph.expanduser())
    sides, pairs, split = _opened(config)
    moved = [] if graph is None else _moved(graph.within(pairs.texts), sides, pairs, config)
    sections = [*_searches(config, sides, pairs), *moved]
    write_text(config.out, render(_page(config, sides, pairs, split, sections)))
    return f"{config.out}: {sides[0].name} and {sides[1].name} on the split {split}"


def _opened(config: GalleryConfig) -> tuple[list[Side], Dataset, str]:
    sides: list[Side] = []
    known: list[tuple[Dataset, str]] = []
    names = _names(*(work.run for work in config.works if work.run is not None))
    for name, work in zip(names, config.works, strict=True):
        opened = open_work(work).by_mean("a gallery")
        assert opened.record is not None
        items = len(opened.pairs.images) + len(opened.pairs.texts)
        with meter(f"embedding, {name}", items, quiet=work.quiet) as told:
            images, texts = embed_pairs(
                opened.model, opened.pairs, batch_size=work.batch_size, workers=work.workers, progress=told
            )
        sides.append(Side(name, opened.model, opened.record, images, texts))
        known.append((opened.pairs, opened.split))
    if fingerprint(known[0][0]) != fingerprint(known[1][0]):
        raise RequirementError(
            "two runs are compared on the same pairs; these remember different ones; name them (--data, --split)"
        )
    return sides, *known[0]


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' names; their paths where those are the same."""
    if first.name != second.name:
        return first.name, second.name
    return str(first), str(second)


def _searches(config: GalleryConfig, sides: Sequence[Side], pairs: Dataset) -> list[Section]:
    sections = []
    if not any(isinstance(side.model.text.input_spec, FeatureInput) for side in sides):
        told = "Marked where the word is in a text of the picture. The number is the run's own score: it orders."
        words = config.words or _drawn_words(_texts(pairs), config.count, config.seed)
        found = [_by_word(side, word, pairs, config.top) for word in words for side in sides]
        sections.append(Section("Words to pictures", told, found, len(sides)))
    elif config.words:
        raise RequirementError("words need runs that read words; one of these reads features; leave --word out")
    told = "Marked where the text is one of the picture's own. The number is the run's own score: it orders."
    rows = draw.permutation(len(pairs.images), seed=config.seed, epoch=0, purpose="gallery pictures")[: config.count]
    found = [_by_picture(side, row, pairs, config.top) for row in rows.tolist() for side in sides]
    return [*sections, Section("Pictures to texts", told, found, len(sides))]


def _by_word(side: Side, word: str, pairs: Dataset, top: int) -> Search:
    scores = side.model.compare(side.images, side.model.embed_texts([word]))[:, 0].numpy()
    texts, cards = _texts(pairs), []
    for row in _best(scores, top):
        own = [texts[text] for text in np.flatnonzero(pairs.texts.groups == pairs.images.groups[row])]
        having = [text for text in own if word.lower() in tokenise(text)]
        # A text that has the word stands below the picture, if there is one, and else its first.
        title = (having or own or [pairs.images.ids[row]])[0]
        picture = thumbnail(pairs.images.values[row], pairs.root)
        cards.append(Found(title, float(scores[row]), picture, right=bool(having)))
    return Search(word, cards, side.name)


def _by_picture(side: Side, row: int, pairs: Dataset, top: int) -> Search:
    scores = side.model.compare(side.images[row : row + 1], side.texts)[0].numpy()
    texts, own = _texts(pairs), pairs.texts.groups == pairs.images.groups[row]
    cards = [Found(texts[text], float(scores[text]), "", right=bool(own[text])) for text in _best(scores, top)]
    return Search(pairs.images.ids[row], cards, side.name, thumbnail(pairs.images.values[row], pairs.root))


def _texts(pairs: Dataset) -> list[str]:
    """What each text says; its name where only its features are known."""
    return [
        name if value is None else str(value) for name, value in zip(pairs.texts.ids, pairs.texts.values, strict=True)
    ]


def _drawn_words(texts: Sequence[str], count: int, seed: int) -> tuple[str, ...]:
    """Words that are neither rare nor common, the same for the same texts and seed."""
    seen = Counter(word for text in texts for word in set(tokenise(text)) if len(word) > 2)
    most = max(RARE, COMMON * len(texts))
    words = sorted(word for word, times in seen.items() if RARE <= times <= most) or sorted(seen)
    if not words:
        raise DataError("a gallery needs texts with words; there are none; name some (--word WORD)")
    drawn = draw.uniform(draw.keys(words), seed=seed, epoch=0, purpose="gallery words")[:, 0]
    return tuple(words[place] for place in np.argsort(drawn, kind="stable")[:count])


def _best(scores: NDArray[np.float32], top: int) -> list[int]:
    return [int(row) for row in np.argsort(-scores, kind="stable")[:top]]


def _moved(graph: Graph, sides: Sequence[Side], pairs: Dataset, config: GalleryConfig) -> list[Section]:
    """Which texts that are neighbours each run has pulled closest, and which pictures of such texts."""
    owners, texts = pictures_of_texts(pairs), _texts(pairs)
    first = np.full(len(pairs.images), -1, dtype=np.int64)
    first[pairs.links[::-1, 0]] = pairs.links[::-1, 1]

    def text(row: int, score: float) -> Found:
        return Found(texts[row], score, None if owners[row] < 0 else _shown(pairs, int(owners[row])))

    def picture(row: int, score: float) -> Found:
        return Found(pairs.images.ids[row] if first[row] < 0 else texts[first[row]], score, _shown(pairs, row))

    by_text = [(side.model.similarity, side.texts) for side in sides]
    by_picture = [(side.model.similarity, side.images) for side in sides]
    moved = pulled_pairs(graph, by_text, count=config.pairs, seed=config.seed)
    found = _closest("texts", moved, sides, pairs.texts.ids, text, config.top)
    if np.unique(owners[owners >= 0]).size < 2:
        return found
    moved = pulled_pairs(graph, by_picture, pictures=owners, count=config.pairs, seed=config.seed)
    return [*found, *_closest("pictures", moved, sides, pairs.images.ids, picture, config.top)]


def _shown(pairs: Dataset, picture: int) -> str | None:
    return thumbnail(pairs.images.values[picture], pairs.root)


def _closest(
    what: Literal["texts", "pictures"],
    pulled: Pulled,
    sides: Sequence[Side],
    names: Sequence[str],
    card: Callable[[int, float], Found],
    top: int,
) -> list[Section]:
    """For each run the pairs that lie nearer in it than in the other."""
    change = pulled.near[1] - pulled.near[0]
    whose = "" if what == "texts" else "of pictures whose texts are "
    sections = []
    for place, side in enumerate(sides):
        order = np.argsort(change if place == 0 else -change, kind="stable")[:top]
        searches = []
        for pair in order.tolist():
            left, right = int(pulled.left[pair]), int(pulled.right[pair])
            told = ", ".join(f"{one.name} {values[pair]:+.1f}" for one, values in zip(sides, pulled.near, strict=True))
            cards = [card(row, float(pulled.near[place][pair])) for row in (left, right)]
            searches.append(Search(names[left], cards, told))
        sections.append(
            Section(
                f"Neighbours that {side.name} has pulled closest: {what}",
                f"Of {len(change):,} pairs {whose}{'of ' if what == 'texts' else ''}neighbours in the graph, those "
                f"whose {what} lie nearer in {side.name} than in the other run: the cosine, in standard deviations "
                "above random pairs of the same run.",
                searches,
                2,
            )
        )
    return sections


def _page(
    config: GalleryConfig, sides: Sequence[Side], pairs: Dataset, split: str, sections: Sequence[Section]
) -> Page:
    facts = [
        (
            side.name,
            f"{side.record.model}{''.join(f' + {name}' for name, _ in side.record.methods)}, seed {side.record.seed}, "
            f"epoch {side.record.best_epoch} of {side.record.epochs}",
        )
        for side in sides
    ]
    data = config.works[0].sources.data or Path(sides[0].record.data.data)
    return Page(
        title=f"{sides[0].name} beside {sides[1].name}",
        lead=f"{len(pairs.images):,} pictures and {len(pairs.texts):,} texts, the split {split} of {data.name}.",
        verdict="",
        figures=(),
        figures_text="",
        sections=sections,
        facts=[*facts, ("drawn by seed", str(config.seed))],
    )
