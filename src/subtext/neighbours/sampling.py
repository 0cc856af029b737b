"""One neighbour for every pair of a batch, drawn anew in every epoch (Thomas and Kovashka 2020, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError, counted
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw

Side = Literal["image", "text"]
SIDES: tuple[Side, Side] = ("image", "text")
Negatives = Literal["anchors", "neighbours", "both"]
"""As in `subtext.objectives.scene`."""


@dataclass(frozen=True)
class NeighbourDraw:
    """What every pair of a batch is read with: one neighbour of its image, of its text, or of both.

    sides        whose neighbours are read
    graph        folder of a `Graph`; None for another text of the same image in the place of a neighbour
    image_graph  folder of another graph for the images; None for the same neighbour as the text's
    pool_size    a neighbour is drawn from the nearest so many; 200 in the paper, 10 in its code
    negatives    what a query and its neighbour are compared with: the batch's own items (the paper's code), the other
                 items' neighbours, or both
    strangers    whether every pair also comes with a text drawn from all: what the paper's code takes for wrong beside
                 images and beside texts, in the place of the batch's; then `sides` may be empty
    """

    sides: tuple[Side, ...] = ("image", "text")
    graph: Path | None = None
    image_graph: Path | None = None
    pool_size: int = 200
    negatives: Negatives = "anchors"
    strangers: bool = False

    def __post_init__(self) -> None:
        none = not self.sides and not self.strangers
        if none or not set(self.sides) <= {"image", "text"} or len(set(self.sides)) < len(self.sides):
            raise RequirementError(f"neighbours are drawn for 'image', 'text' or both; it got {self.sides}")
        if self.pool_size < 1:
            raise RequirementError(f"a neighbour needs a pool of 1 or more to be drawn from; it got {self.pool_size}")
        if self.graph is None and "image" in self.sides:
            raise RequirementError("an image needs a graph to have neighbours; name one (graph=GRAPH)")


class Sampler:
    """Draws the neighbours of one side; what it gives is a function of (seed, epoch, pair) alone.

    choices  (T E) rows of texts that may be drawn for each text, nearest first, -1 at the end of a shorter list

    A pair whose list is empty gets any text of another group. Raises DataError when there is no other group.
    """

    def __init__(self, pairs: Dataset, choices: Int[np.ndarray, "t e"]) -> None:
        self._pairs = pairs
        self._choices = choices
        self._counts = (choices >= 0).sum(axis=1).astype(np.int64)
        self.pictures = pictures_of_texts(pairs)
        # Texts of a group stand together, so that all but them are two stretches of rows.
        linked = np.flatnonzero(self.pictures >= 0)
        self._ordered = linked[np.argsort(pairs.texts.groups[linked], kind="stable")]
        self._groups = pairs.texts.groups[self._ordered]
        if len(self._groups) == 0 or self._groups[0] == self._groups[-1]:
            raise DataError("drawing neighbours needs texts of two groups or more; all texts are of one")

    @property
    def without(self) -> int:
        """Texts that have an image and nothing to draw from."""
        return int((self._counts[self._ordered] == 0).sum())

    def __call__(self, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int) -> Int[np.ndarray, "b"]:
        """(B) text rows for (B 2) image row and text row."""
        texts = links[:, 1]
        draws = _uniform(self._pairs, links, seed=seed, epoch=epoch, purpose="neighbour")
        counts = self._counts[texts]
        index = np.minimum((draws * counts).astype(np.int64), np.maximum(counts - 1, 0))
        rows = np.asarray(self._choices[texts, index]).astype(np.int64)
        if (without := counts == 0).any():
            # Any text of another group: all but the stretch of the own one.
            groups, others = self._pairs.texts.groups[texts[without]], draws[without]
            first = np.searchsorted(self._groups, groups, side="left")
            group_size = np.searchsorted(self._groups, groups, side="right") - first
            remaining = len(self._groups) - group_size
            index = np.minimum((others * remaining).astype(np.int64), remaining - 1)
            rows[without] = self._ordered[index + np.where(index >= first, group_size, 0)]
        return rows


class Strangers:
    """Draws for each pair one of all texts that have an image, its own among them; of (seed, epoch, pair) alone."""

    def __init__(self, pairs: Dataset) -> None:
        self._pairs = pairs
        self._texts = np.flatnonzero(pictures_of_texts(pairs) >= 0).astype(np.int64)

    def __call__(self, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int) -> Int[np.ndarray, "b"]:
        """(B) text rows for (B 2) image row and text row."""
        draws = _uniform(self._pairs, links, seed=seed, epoch=epoch, purpose="stranger")
        return self._texts[np.minimum((draws * len(self._texts)).astype(np.int64), len(self._texts) - 1)]


def _uniform(
    pairs: Dataset, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int, purpose: str
) -> Float[np.ndarray, "b"]:
    """(B) numbers in [0, 1), one a pair."""
    images = draw.uniform(pairs.images.keys[links[:, 0]], seed=seed, epoch=epoch, purpose=f"{purpose}/image")
    texts = draw.uniform(pairs.texts.keys[links[:, 1]], seed=seed, epoch=epoch, purpose=f"{purpose}/text")
    return ((images + texts) % 1.0)[:, 0]


@dataclass(frozen=True)
class Samplers:
    """The samplers of a training.

    by_side      whose neighbours are read
    strangers    draws a text beside each pair, where they are asked for
    fingerprint  of the graphs; another word where there is none
    notes        what there is to say before it begins
    """

    by_side: dict[Side, Sampler]
    negatives: Negatives
    fingerprint: str
    notes: tuple[str, ...] = ()
    strangers: Strangers | None = None


def open_samplers(request: NeighbourDraw, pairs: Dataset) -> Samplers:
    """What draws the neighbours of these pairs: they alone are ever drawn.

    Raises DataError when a graph cannot be read, was built for other data, or has fewer neighbours than the pool; and
    when no image has two texts, where other texts of the same image are asked for.
    """
    strangers = Strangers(pairs) if request.strangers else None
    if not request.sides:
        return Samplers({}, request.negatives, "strangers", strangers=strangers)
    if request.graph is None:
        return Samplers({"text": Sampler(pairs, _captions(pairs))}, request.negatives, "captions")
    paths: dict[Side, Path] = {"image": request.image_graph or request.graph, "text": request.graph}
    opened: dict[Path, tuple[Sampler, str]] = {}
    notes: list[str] = []
    for path in dict.fromkeys(paths[side] for side in request.sides):
        graph = Graph.load(path.expanduser())
        sampler = Sampler(pairs, _nearest(graph, pairs, request.pool_size, path))
        opened[path] = (sampler, graph.fingerprint)
        if sampler.without:
            notes.append(
                f"{counted(sampler.without, 'text')} without a neighbour in {path}: a random other pair stands for it"
            )
    return Samplers(
        {side: opened[paths[side]][0] for side in request.sides},
        request.negatives,
        "-".join([*(fingerprint for _, fingerprint in opened.values()), *(["strangers"] if request.strangers else [])]),
        tuple(notes),
        strangers,
    )


def _nearest(graph: Graph, pairs: Dataset, pool: int, path: Path) -> Int[np.ndarray, "t e"]:
    """The nearest `pool` texts that have an image, among the texts of these pairs."""
    if graph.width < pool:
        raise DataError(
            f"pool_size={pool} needs a graph of {pool} neighbours or more; {path} has {graph.width} for each text; use "
            f"a smaller one (pool_size={graph.width}), or build a wider graph (subtext neighbours build)"
        )
    if len(pairs.texts) <= pool:
        raise DataError(
            f"pool_size={pool} needs more than {pool} texts; it got {len(pairs.texts):,}; use a smaller one"
        )
    cut = graph.within(pairs.texts)
    pictures = np.append(pictures_of_texts(pairs), -1)
    choices = np.where(pictures[cut.neighbours] >= 0, cut.neighbours, -1)
    front = np.argsort(choices < 0, axis=1, kind="stable")
    return np.ascontiguousarray(np.take_along_axis(choices, front, axis=1)[:, :pool], dtype=np.int32)


def _captions(pairs: Dataset) -> Int[np.ndarray, "t e"]:
    """The other texts of each text's image; an image's only text stands for itself."""
    of_picture: dict[int, list[int]] = {}
    for image, text in pairs.links.tolist():
        of_picture.setdefault(image, []).append(text)
    longest = max(map(len, of_picture.values()), default=0)
    if longest < 2:
        raise DataError(
            "other texts of the same image need images with two texts or more; every image has one; draw "
            "neighbours instead (graph=GRAPH)"
        )
    choices = np.full((len(pairs.texts), longest - 1), -1, dtype=np.int32)
    for text, image in enumerate(pictures_of_texts(pairs).tolist()):
        if image >= 0:
            siblings = [sibling for sibling in of_picture[image] if sibling != text] or [text]
            choices[text, : len(siblings)] = siblings
    return choices
