"""`python -m reproduce.gallery compare`: the results of two runs for the same queries, side by side on one page.

With a graph also the semantic neighbours that each run has moved together, relative to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.command import Text
from subtext.api.options import DEFAULTS, DataOptions, Seed, Split
from subtext.core import Embeddings
from subtext.data import atomic
from subtext.data.dataset import fingerprint
from subtext.data.image_files import thumbnail
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.graphs.graph import Graph, image_of_text
from subtext.ops import draw
from subtext.report import page
from subtext.settings import Interval, Metavar, OptionGroup, command

RARE, COMMON = 2, 0.05
"""A word is sampled from those in at least so many texts, and in at most this share of them."""
_AT_A_TIME = 512
NOTHING = 1e-6
"""Added to a distance before it divides."""
_GALLERY = OptionGroup("Gallery")


@command(defaults=DEFAULTS)
def compare(
    first: Annotated[str | Path, "Folder of a run.", OptionGroup("Runs"), Metavar("FIRST")],
    second: Annotated[str | Path, "Folder of another run.", OptionGroup("Runs"), Metavar("SECOND")],
    *,
    out: Annotated[str | Path, "The page, HTML.", OptionGroup("Output"), Metavar("FILE")],
    word: Annotated[
        tuple[str, ...], "Query for images; repeatable. Default: sampled words.", _GALLERY, Metavar("TEXT")
    ] = (),
    count: Annotated[int, "Sampled words and images.", Interval(1), _GALLERY] = 4,
    top: Annotated[int, "Results per query.", Interval(1), _GALLERY] = 5,
    graph: Annotated[
        str | Path | None,
        "A graph of this split's texts (subtext neighbours build), for neighbours that moved together.",
        _GALLERY,
    ] = None,
    pairs: Annotated[int, "Pairs of neighbours sampled from the graph.", Interval(2), _GALLERY] = 10_000,
    seed: Seed = 0,
    split: Split = None,
    **options: Unpack[DataOptions],
) -> Text:
    """Show the results of two runs for the same words and images, side by side.

    With --graph the page also shows, for each run, the neighbours that it moved together most in comparison with the
    other run: texts, and images of such texts, with the smallest ratio of their distances in the two runs.

    Raises RequirementError when a run only scores pairs or the runs remember different data; what opening, reading and
    the graph raise.
    """
    path = Path(out)
    atomic.require_file(path)
    neighbours = None if graph is None else Graph.load(Path(graph).expanduser())
    paths = Path(first), Path(second)
    # The folders' names; their paths where those are the same.
    names = [run.name if paths[0].name != paths[1].name else str(run) for run in paths]
    sides = [Side.of(name, run, split, options) for name, run in zip(names, paths, strict=True)]
    if fingerprint(sides[0].dataset) != fingerprint(sides[1].dataset):
        raise RequirementError(
            "two runs are compared on the same pairs; these remember different ones; name them (--data, --split)"
        )
    words = word or (() if any(side.reads_features for side in sides) else _sampled_words(sides, count, seed))
    if word and any(side.reads_features for side in sides):
        raise RequirementError("words need runs that read words; one of these reads features; leave --word out")
    images = draw.permutation(len(sides[0].dataset.images), seed=seed, epoch=0, purpose="gallery images")[:count]
    sections = _searches(sides, words, images.tolist(), top)
    if neighbours is not None:
        sections += _moved(neighbours.restrict_to(sides[0].dataset.texts), sides, count=pairs, seed=seed, top=top)
    data = options.get("data")
    name = Path(data if isinstance(data, str | Path) else sides[0].run.record.data.name).name
    atomic.write_text(path, page.render(_page(sides, name, sections, seed)))
    return Text(f"{path}: {sides[0].name} and {sides[1].name} on the split {sides[0].split}")


@dataclass(frozen=True)
class Side:
    """A run with the embeddings of all images and texts of a split; `model` compares by means."""

    name: str
    run: st.Run
    model: st.Model
    split: str
    embedded: st.EmbeddedDataset

    @staticmethod
    def of(name: str, path: Path, split: str | None, options: DataOptions) -> Side:
        """Open a run and embed the split; None for its validation split."""
        run = st.open_run(path, device=options.get("device", "auto"))
        split = split or run.record.data.val_split or "val"
        return Side(name, run, run.model.to_means("a gallery"), split, st.embed(path, split=split, **options))

    @property
    def dataset(self) -> st.Dataset:
        """The pairs of the split."""
        return self.embedded.dataset

    @property
    def texts(self) -> list[str]:
        """Each text, or its name where only its features are available."""
        texts = self.dataset.texts
        return [name if value is None else str(value) for name, value in zip(texts.ids, texts.values, strict=True)]

    @property
    def reads_features(self) -> bool:
        """Whether texts are features to this run, not words."""
        return self.run.record.data.text_features is not None

    def image(self, row: int) -> str | None:
        """A thumbnail of an image."""
        return thumbnail(self.dataset.images.values[row], self.dataset.root)


@dataclass(frozen=True)
class NeighbourPairs:
    """Sampled pairs of neighbours.

    first, second  (M) rows of texts, or of images
    distance     of each run (M): of the vectors, which have unit length; 0 to 2
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distance: tuple[NDArray[np.float64], NDArray[np.float64]]

    def ratio(self, run: int) -> NDArray[np.float64]:
        """(M) distance in a run, 0 or 1, divided by that in the other; 1 where both are 0."""
        own, other = self.distance[run], self.distance[1 - run]
        return (own + NOTHING) / (other + NOTHING)


def neighbour_pairs(
    graph: Graph,
    runs: Sequence[tuple[nn.Module, Embeddings]],
    *,
    images: NDArray[np.int64] | None = None,
    count: int = 10_000,
    seed: int = 0,
) -> NeighbourPairs:
    """At most `count` different pairs of neighbours of the graph, and their distances in two runs.

    runs    similarity and embeddings of the graph's texts, of one run and the other; of the images with `images`
    images  (N) of each text, below 0 for none: pairs are then of images whose texts are neighbours

    Raises DataError when the graph has no neighbours among its texts, or these have no images.
    """
    rows, ranks = np.nonzero(np.asarray(graph.neighbours) >= 0)
    first, second = rows.astype(np.int64), np.asarray(graph.neighbours)[rows, ranks].astype(np.int64)
    if images is not None:
        first, second = images[first], images[second]
        valid = (first >= 0) & (second >= 0) & (first != second)
        first, second = first[valid], second[valid]
    if not len(first):
        kind = "texts" if images is None else "texts of different images"
        raise DataError(
            f"this graph has no neighbours among these {kind}; build one of them (--split, --candidate-split)"
        )
    # Two items that are neighbours of each other are one pair.
    unique = np.unique(np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1), axis=0)
    order = draw.permutation(len(unique), seed=seed, epoch=0, purpose="gallery neighbours")[:count]
    first, second = unique[order].T
    cosines = [_cosines(similarity, embeddings, first, second) for similarity, embeddings in runs]
    ours, theirs = (np.sqrt(np.maximum(2 - 2 * values, 0)) for values in cosines)
    return NeighbourPairs(first, second, (ours, theirs))


def _cosines(
    similarity: nn.Module, items: Embeddings, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(M) cosine of each item with its own partner."""
    cosine = getattr(similarity, "cosine", similarity)
    values = []
    with torch.inference_mode():
        for start in range(0, len(first), _AT_A_TIME):
            rows = slice(start, start + _AT_A_TIME)
            sides = (items[torch.from_numpy(side[rows])] for side in (first, second))
            values.append(cosine(*sides).diagonal().double())
    return torch.cat(values).numpy()


def _searches(sides: Sequence[Side], words: Sequence[str], images: Sequence[int], top: int) -> list[page.PageSection]:
    sections = []
    note = "The number is the run's own score: it orders."
    if words:
        text = f"Marked where the word is in a text of the image. {note}"
        searches = [_by_word(side, word, top) for word in words for side in sides]
        sections.append(page.PageSection("Words to images", text, searches, len(sides)))
    text = f"Marked where the text is one of the image's own. {note}"
    searches = [_by_image(side, row, top) for row in images for side in sides]
    return [*sections, page.PageSection("Images to texts", text, searches, len(sides))]


def _by_word(side: Side, word: str, top: int) -> page.PageSearch:
    pairs, texts, cards = side.dataset, side.texts, []
    scores = side.model.compare(side.embedded.image_vectors, side.model.embed_texts([word]))[:, 0].numpy()
    for row in _best(scores, top):
        captions = [texts[text] for text in np.flatnonzero(pairs.texts.groups == pairs.images.groups[row])]
        matches = [text for text in captions if word.lower() in tokenise(text)]
        # A text that has the word stands below the image, if there is one, and else its first.
        title = (matches or captions or [pairs.images.ids[row]])[0]
        cards.append(page.PageHit(title, float(scores[row]), side.image(row), right=bool(matches)))
    return page.PageSearch(word, cards, side.name)


def _by_image(side: Side, row: int, top: int) -> page.PageSearch:
    pairs, texts = side.dataset, side.texts
    scores = side.model.compare(side.embedded.image_vectors[row : row + 1], side.embedded.text_vectors)[0].numpy()
    captions = pairs.texts.groups == pairs.images.groups[row]
    cards = [
        page.PageHit(texts[text], float(scores[text]), "", right=bool(captions[text])) for text in _best(scores, top)
    ]
    return page.PageSearch(pairs.images.ids[row], cards, side.name, side.image(row))


def _sampled_words(sides: Sequence[Side], count: int, seed: int) -> tuple[str, ...]:
    """Words that both runs know and that are neither rare nor common, the same for the same texts and seed."""
    texts = sides[0].texts
    # A model of subwords has no vocabulary: it knows every word.
    inputs = [side.model.text.input_spec for side in sides]
    vocabularies = [set(reads.vocabulary.tokens) for reads in inputs if hasattr(reads, "vocabulary")]
    words_of = (word for text in texts for word in set(tokenise(text)) if len(word) > 2)
    counts = Counter(word for word in words_of if all(word in tokens for tokens in vocabularies))
    most = max(RARE, COMMON * len(texts))
    words = sorted(word for word, times in counts.items() if RARE <= times <= most) or sorted(counts)
    if not words:
        raise DataError("a gallery needs texts with words; there are none; name some (--word WORD)")
    order = np.argsort(draw.uniform(draw.keys(words), seed=seed, epoch=0, purpose="gallery words")[:, 0], kind="stable")
    return tuple(words[row] for row in order[:count])


def _best(scores: NDArray[np.float32], top: int) -> list[int]:
    return [int(row) for row in np.argsort(-scores, kind="stable")[:top]]


def _moved(graph: Graph, sides: Sequence[Side], *, count: int, seed: int, top: int) -> list[page.PageSection]:
    """Which texts that are neighbours each run has moved closest, and which images of such texts."""
    side = sides[0]
    image_of, texts, image_ids = image_of_text(side.dataset), side.texts, side.dataset.images.ids
    first_text = np.full(len(image_ids), -1, dtype=np.int64)
    first_text[side.dataset.links[::-1, 0]] = side.dataset.links[::-1, 1]

    def text(row: int, score: float) -> page.PageHit:
        return page.PageHit(texts[row], score, None if image_of[row] < 0 else side.image(int(image_of[row])))

    def image(row: int, score: float) -> page.PageHit:
        title = image_ids[row] if first_text[row] < 0 else texts[first_text[row]]
        return page.PageHit(title, score, side.image(row))

    runs = [(side.model.similarity, side.embedded.text_vectors) for side in sides]
    moved = neighbour_pairs(graph, runs, count=count, seed=seed)
    sections = _closest("texts", moved, sides, side.dataset.texts.ids, text, top)
    if np.unique(image_of[image_of >= 0]).size < 2:
        return sections
    runs = [(side.model.similarity, side.embedded.image_vectors) for side in sides]
    moved = neighbour_pairs(graph, runs, images=image_of, count=count, seed=seed)
    return [*sections, *_closest("images", moved, sides, image_ids, image, top)]


def _closest(
    modality: Literal["texts", "images"],
    pairs: NeighbourPairs,
    sides: Sequence[Side],
    ids: Sequence[str],
    card: Callable[[int, float], page.PageHit],
    top: int,
) -> list[page.PageSection]:
    """For each run the pairs with the smallest ratio of the distance in it to that in the other."""
    kind = "neighbours" if modality == "texts" else "images whose texts are neighbours"
    sections = []
    for number, side in enumerate(sides):
        searches, ratio = [], pairs.ratio(number)
        for pair in np.argsort(ratio, kind="stable")[:top].tolist():
            rows = int(pairs.first[pair]), int(pairs.second[pair])
            values = zip(sides, pairs.distance, strict=True)
            note = ", ".join(f"{run.name} {distance[pair]:.3f}" for run, distance in values)
            cards = [card(row, float(ratio[pair])) for row in rows]
            searches.append(page.PageSearch(ids[rows[0]], cards, note))
        sections.append(
            page.PageSection(
                f"Neighbours that {side.name} has moved closest: {modality}",
                f"Of {len(ratio):,} pairs of {kind} in the graph, those with the smallest ratio of the distance of "
                f"their {modality} in {side.name} to that in the other run, as in figure 5 of Thomas and Kovashka "
                "(2020). The number is the ratio.",
                searches,
                2,
            )
        )
    return sections


def _page(sides: Sequence[Side], data: str, sections: Sequence[page.PageSection], seed: int) -> page.HtmlPage:
    facts, pairs = [], sides[0].dataset
    for side in sides:
        record = side.run.record
        recipe = " + ".join([record.model, *(name for name, _ in record.methods)])
        facts.append((side.name, f"{recipe}, seed {record.seed}, epoch {record.best_epoch} of {record.epochs}"))
    return page.HtmlPage(
        title=f"{sides[0].name} beside {sides[1].name}",
        lead=f"{len(pairs.images):,} images and {len(pairs.texts):,} texts, the split {sides[0].split} of {data}.",
        verdict="",
        figures=(),
        figures_text="",
        sections=sections,
        facts=[*facts, ("sampled by seed", str(seed))],
    )
