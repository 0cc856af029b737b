"""The sets of the experiment: Flickr8k with planted topics, and OpenStax by thirds.

Each is a folder, made once: pairs.jsonl, vectors of images and texts, what is known of each text, and the graph of the
training texts' neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce import topics
from reproduce.studies.common import data_folder, starter_features
from subtext.data import atomic
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.graphs.spaces import LsaSpace
from subtext.ops import draw

HELD_OUT, NEIGHBOURS, FOLDS = 500, 200, 5
TOPICS, VISUAL, ABSTRACT = 60, 30, 0.25
"""Clusters of the texts and of the images, and the least share of the training texts whose topics are abstract."""
KINDS = (2, 4, 8)
"""Numbers of visual kinds of an abstract topic, in turn."""
MISMATCHED = 0.2
ORACLE = 3.2
"""Times that a complementary pair counts in the oracle's weights."""
SHARES = {"topics-25": None, "topics-5": 0.05, "topics-100": 1.0, "topics-25-mismatched": None}
"""Set -> share of abstract training pairs; None for all that were planted."""
OPENSTAX = "openstax"
FILES = ("pairs.jsonl", "images.npz", "texts.npz", "known.npz")


@dataclass(frozen=True)
class Known:
    """What is known of each text of a set, in the order of its file, and what no training may read.

    split      train, select or test
    abstract   whether it is complementary to its image: planted, or of that third
    literal    whether it is literal; of OpenStax a middle third is neither
    kinds      number of visual kinds of its abstract topic; 0 for a literal one
    exchanged  whether its pair was exchanged at random
    written    number of the image that it was written for
    """

    split: NDArray[np.str_]
    abstract: NDArray[np.bool_]
    literal: NDArray[np.bool_]
    kinds: NDArray[np.int64]
    exchanged: NDArray[np.bool_]
    written: NDArray[np.int64]

    def of(self, split: str) -> Known:
        """What is known of the texts of a split."""
        return Known(**{name: values[self.split == split] for name, values in vars(self).items()})

    @property
    def oracle(self) -> NDArray[np.float64]:
        """(N) weights that know what was planted, before they are scaled; nothing for an exchanged pair."""
        if self.abstract.all():
            weights = self.kinds.astype(np.float64)
        else:
            weights = np.where(self.abstract, ORACLE, 1.0)
        return np.where(self.exchanged, 0.0, weights)


@dataclass(frozen=True)
class TrainingSet:
    """A set, or one fold of it, as hosts train on it.

    name    of the set      folder  of its files     fold  number, of a set in folds
    """

    name: str
    folder: Path

    @property
    def data(self) -> Path:
        """The pairs."""
        return self.folder / "pairs.jsonl"

    @property
    def images(self) -> Path:
        """Vectors of the images."""
        return self.folder / "images.npz"

    @property
    def texts(self) -> Path:
        """Vectors of the texts."""
        return self.folder / "texts.npz"

    @cached_property
    def known(self) -> Known:
        """What is known of each text."""
        with np.load(self.folder / "known.npz", allow_pickle=False) as arrays:
            return Known(**{name: arrays[name] for name in Known.__dataclass_fields__})

    @cached_property
    def pairs(self) -> st.Dataset:
        """The data set."""
        return st.read(self.data, need_images=False)

    def graph(self, kind: str = "texts") -> Path:
        """Neighbours of the training texts, built once: by texts, or by random vectors of their images, a control."""
        folder = self.folder / f"graph-{kind}"
        if not folder.is_dir():
            space = "lsa" if kind == "texts" else f"features:{self._drawn()}"
            rest: dict[str, Any] = {"dim": topics.TEXT_WIDTH} if kind == "texts" else {}
            st.build_neighbours(folder, data=self.data, split="train", neighbours=NEIGHBOURS, space=space, **rest)
        return folder

    def _drawn(self) -> Path:
        file = self.folder / "random.npz"
        if not file.is_file():
            names = np.array(self.pairs.images.ids)
            vectors = np.random.default_rng(0).standard_normal((len(names), 8), dtype=np.float32)
            np.savez(file, allow_pickle=False, names=names, pooled=vectors)
        return file


def make(name: str, out: Path) -> list[TrainingSet]:
    """The folds of a set below `out`, made where they are not there yet: five of OpenStax, one of the others.

    Raises:
        DataError: For an unknown name.
    """
    if name == OPENSTAX:
        return openstax(out)
    if name not in SHARES:
        raise DataError(f"a set is one of {', '.join([*SHARES, OPENSTAX])}; got {name!r}")
    return [planted(name, out)]


@dataclass(frozen=True)
class Moved:
    """Where each text goes.

    image  (T) number of its image       kinds  (T) visual kinds of its abstract topic, 0 for a literal one
    """

    image: NDArray[np.int64]
    kinds: NDArray[np.int64]


def move_captions(
    written: NDArray[np.int64],
    splits: NDArray[np.str_],
    topic: NDArray[np.int64],
    visual: NDArray[np.int64],
    centres: NDArray[np.float64],
    *,
    seed: int = 0,
) -> Moved:
    """Make topics abstract until a quarter of the training texts has one: their texts get images of several kinds.

    A topic has two, four or eight visual clusters far apart, the same in all splits; its texts get images of these in
    turn, of their own split, never the image that they were written for.

    Args:
        written: (T) image that each text was written for.
        splits: (T) of each text; an image and its texts are in one.
        topic: (T) of each text, from 0; -1 for none.
        visual: (I) cluster of each image.
        centres: (V D) of these.
        seed: Of the topics, clusters and images.

    Returns:
        The image of each text, and how many kinds its topic has.
    """
    count = int(topic.max()) + 1
    drawn = draw.uniform(np.arange(count), seed=seed, epoch=0, purpose="experiment: topics", count=2)
    image, kinds = written.copy(), np.zeros(len(written), dtype=np.int64)
    train = splits == "train"
    images_of = {split: np.unique(written[splits == split]) for split in np.unique(splits).tolist()}
    common = np.all(
        [
            np.bincount(visual[own], minlength=len(centres)) >= len(own) / (4 * len(centres))
            for own in images_of.values()
        ],
        axis=0,
    )
    for number, chosen in enumerate(np.argsort(drawn[:, 0], kind="stable").tolist()):
        if (kinds[train] > 0).mean() >= ABSTRACT:
            break
        size = KINDS[number % len(KINDS)]
        views = topics.far_apart(centres, common, size, float(drawn[chosen, 1]))
        for split, own in images_of.items():
            rows = np.flatnonzero((topic == chosen) & (splits == split))
            order = draw.uniform(rows, seed=seed, epoch=chosen, purpose="experiment: texts")[:, 0]
            rows = rows[np.argsort(order, kind="stable")]
            for turn, row in enumerate(rows.tolist()):
                pool = own[(visual[own] == views[turn % size]) & (own != written[row])]
                at = draw.integers(np.array([row]), len(pool), seed=seed, epoch=turn, purpose="experiment: images")
                image[row], kinds[row] = pool[int(at[0, 0])], size
    return Moved(image, kinds)


def planted(name: str, out: Path) -> TrainingSet:
    """Flickr8k with abstract topics."""
    made = TrainingSet(name, out / name)
    if _complete(made.folder):
        return made
    source = data_folder("flickr8k")
    whole = st.read(source / "captions.jsonl", images=source / "images")
    vectors = topics.image_vectors(whole, FeatureFile.open(source / "mobilenet_pooled.npz"))
    places = LsaSpace(topics.TEXT_WIDTH, 0)(whole, (whole.texts.splits == "train").astype(bool))
    clusters = topics.cluster(whole, vectors, topics=TOPICS, visual=VISUAL)
    written = np.empty(len(whole.texts), dtype=np.int64)
    written[whole.links[:, 1]] = whole.links[:, 0]
    splits = _splits(whole)
    moved = move_captions(written, splits, clusters.topics, clusters.visual, clusters.centres)
    image, abstract = moved.image.copy(), moved.kinds > 0
    train = splits == "train"
    keep = np.ones(len(written), dtype=bool)
    share = SHARES[name]
    if share == 1.0:
        keep = ~train | abstract
    elif share is not None:
        literal = int((train & ~abstract).sum())
        rows = np.flatnonzero(train & abstract)
        order = np.argsort(draw.uniform(rows, seed=0, epoch=0, purpose="experiment: share")[:, 0], kind="stable")
        keep[rows[order[round(share / (1 - share) * literal) :]]] = False
    exchanged = np.zeros(len(written), dtype=bool)
    if name.endswith("mismatched"):
        rows = np.flatnonzero(train & keep)
        order = np.argsort(draw.uniform(rows, seed=0, epoch=0, purpose="experiment: mismatches")[:, 0], kind="stable")
        rows = rows[order[: round(MISMATCHED * len(rows))]]
        image[rows] = np.roll(image[rows], 1)
        exchanged[rows] = image[rows] != moved.image[rows]
    known = Known(splits, abstract, ~abstract, moved.kinds, exchanged, written)
    _write(made, whole, image, keep, known, vectors, places.vectors)
    return made


def _splits(whole: st.Dataset) -> NDArray[np.str_]:
    """(T) the last 500 images of train select, val is test."""
    train = np.flatnonzero(whole.images.splits == "train")
    of_image = np.where(whole.images.splits == "train", "train", "test").astype("<U6")
    of_image[train[-HELD_OUT:]] = "select"
    of_text = np.empty(len(whole.texts), dtype="<U6")
    of_text[whole.links[:, 1]] = of_image[whole.links[:, 0]]
    return of_text


def openstax(out: Path) -> list[TrainingSet]:
    """The photographs and artworks of OpenStax, in five folds: one tests, an eighth of the others selects."""
    folds = [TrainingSet(OPENSTAX, out / OPENSTAX / f"fold-{fold}") for fold in range(FOLDS)]
    if all(_complete(fold.folder) for fold in folds):
        return folds
    source = data_folder("openstax")
    lines = (source / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] in ("photo", "artwork")]
    scratch = out / OPENSTAX
    scratch.mkdir(parents=True, exist_ok=True)
    one = [{"image": row["image"], "captions": row["captions"][:1], "split": row["split"]} for row in rows]
    atomic.write_text(scratch / "all.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in one))
    whole = st.read(scratch / "all.jsonl", images=source)
    with np.load(starter_features(whole, scratch), allow_pickle=False) as file:
        images = file["pooled"].astype(np.float32)
    captions = _sentences([row["captions"][0] for row in rows])
    literal = _sentences([row["literal"] for row in rows])
    third = thirds([row["word_overlap"] for row in rows], (captions * literal).sum(axis=1))
    # Rows with equal captions stay together, as in the splits of the set.
    texts, group = np.unique([row["captions"][0] for row in rows], return_inverse=True)
    fold_of = draw.integers(np.arange(len(texts)), FOLDS, seed=0, epoch=0, purpose="experiment: folds")[:, 0][group]
    selects = draw.uniform(np.arange(len(texts)), seed=0, epoch=0, purpose="experiment: selects")[:, 0][group] < 1 / 8
    book = np.unique([row["book"] for row in rows], return_inverse=True)[1].astype(np.int64)
    for number, fold in enumerate(folds):
        split = np.where(fold_of == number, "test", np.where(selects, "select", "train")).astype("<U6")
        nothing = np.zeros(len(rows), dtype=np.int64)
        known = Known(split, third == 0, third == 2, nothing, nothing.astype(bool), book)
        order = np.arange(len(rows))
        _write(fold, whole, order, np.ones(len(rows), dtype=bool), known, images, captions, literal)
    return folds


def thirds(overlap: Sequence[float | None], cosine: NDArray[np.float32]) -> NDArray[np.int64]:
    """The third of each pair by the mean rank of two likenesses of its caption and its description.

    Args:
        overlap: (N) share of words in common; None where a caption has no word to count, such as a name: it has none.
        cosine: (N) of their vectors.

    Returns:
        (N) 0 for complementary pairs, 1, or 2 for literal ones.

    Raises:
        ValueError: If a value is NaN.
    """
    rank = sum(
        rankdata(values, nan_policy="raise") for values in (np.array([value or 0.0 for value in overlap]), cosine)
    )
    return np.argsort(np.argsort(rank, kind="stable"), kind="stable") * 3 // len(overlap)


def _sentences(texts: Sequence[str]) -> NDArray[np.float32]:
    """(N 384) unit vectors by MiniLM."""
    from subtext.graphs.spaces import unit_rows
    from subtext.models.encoders.language import SentenceEncoder

    return unit_rows(SentenceEncoder("starter")(texts))


def _complete(folder: Path) -> bool:
    return all((folder / file).is_file() for file in FILES)


def _write(
    made: TrainingSet,
    whole: st.Dataset,
    image: NDArray[np.int64],
    keep: NDArray[np.bool_],
    known: Known,
    images: NDArray[np.float32],
    texts: NDArray[np.float32],
    literal: NDArray[np.float32] | None = None,
) -> None:
    """Write a set: its texts by image, in the order in which a reader numbers them.

    image    (T) of each text of `whole`         keep   (T) which texts are in the set
    literal  (T D) vectors of the literal descriptions, where there are any
    """
    made.folder.mkdir(parents=True, exist_ok=True)
    order = np.flatnonzero(keep)
    order = order[np.argsort(image[order], kind="stable")]
    rows: dict[int, dict[str, Any]] = {}
    for text in order.tolist():
        number = int(image[text])
        row = rows.setdefault(number, {"image": f"{number}", "captions": [], "split": str(known.split[text])})
        row["captions"].append(whole.texts.values[text])
    atomic.write_text(made.data, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()))
    pairs = made.pairs
    if len(pairs.texts) != len(order):
        raise DataError(f"{made.data} needs {len(order):,} texts; it is read as {len(pairs.texts):,}")
    numbers = np.array([int(name) for name in pairs.images.ids])
    _vectors(made.images, pairs.images.ids, images[numbers])
    _vectors(made.texts, pairs.texts.ids, texts[order])
    if literal is not None:
        _vectors(made.folder / "literal.npz", pairs.texts.ids, literal[order])
    fields: Mapping[str, NDArray[Any]] = {name: values[order] for name, values in vars(known).items()}
    np.savez(made.folder / "known.npz", allow_pickle=False, **fields)


def _vectors(file: Path, names: Sequence[str], vectors: NDArray[np.float32]) -> None:
    np.savez(file, allow_pickle=False, names=np.array(names), pooled=vectors.astype(np.float32))
