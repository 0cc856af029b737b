"""`subtext neighbours build`: a data set becomes a graph of its texts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from subtext import __version__
from subtext.api.load import Sources, choose_device
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.data.read import read_pairs
from subtext.errors import DataError, RequirementError
from subtext.neighbours.build import Choice, build_graph
from subtext.neighbours.doc2vec import Doc2Vec
from subtext.neighbours.given import Features
from subtext.neighbours.graph import Graph
from subtext.neighbours.lsa import Lsa
from subtext.neighbours.sentence import Sentence
from subtext.neighbours.space import Space
from subtext.report.progress import meter


@dataclass(frozen=True)
class Asked:
    """What `subtext neighbours build` was asked for, by the names of its options."""

    space: str
    neighbours: int
    search: Any
    same_picture: Any
    distance: Any
    width: int
    min_count: int
    space_epochs: int | None
    sentences: int | None
    seed: int
    device: str
    split: str
    among: str | None
    quiet: bool

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Asked:
        """The choices among a command's options."""
        return Asked(**{f.name: values[f.name] for f in fields(Asked)})

    @property
    def choice(self) -> Choice:
        """How neighbours are to be chosen."""
        among = self.among or ("train" if self.split == "all" else self.split)
        return Choice(self.neighbours, among, self.search, self.same_picture, self.distance)


def build(asked: Asked, sources: Sources, out: Path) -> str:
    """Read the data, place its texts, find their neighbours, and write the graph; says what is in it.

    Raises DataError when `out` holds something, and what reading, the space and building raise.
    """
    assert sources.data is not None
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise DataError(f"a graph needs a new or empty folder; {out} holds something; name another or remove it")
    space = open_space(asked)
    pairs = read_texts(sources).split(asked.split)
    total = len(pairs.texts)
    with (
        meter("placing texts", total, quiet=asked.quiet) as placed,
        meter("comparing texts", total, quiet=asked.quiet) as compared,
    ):
        graph = build_graph(
            pairs,
            space,
            asked.choice,
            source={**sources.to_json(), "split": asked.split, "version": __version__},
            placed=placed,
            compared=compared,
        )
    graph.save(out)
    quoted = shlex.quote(str(out))
    return (
        f"{out}: {told_in_words(graph)}\nnext:\n  subtext neighbours show {quoted} --item {shlex.quote(graph.ids[0])}"
    )


def open_space(asked: Asked) -> Space:
    """The space that a word of the command line names.

    Raises RequirementError for another word, and what opening a file of features raises.
    """
    name, _, rest = asked.space.partition(":")
    if name == "doc2vec" and not rest:
        return Doc2Vec(
            width=asked.width,
            min_count=asked.min_count,
            epochs=asked.space_epochs,
            sentences=asked.sentences,
            seed=asked.seed,
        )
    if name == "lsa" and not rest:
        return Lsa(width=asked.width, seed=asked.seed)
    if name == "sentence" and rest:
        return Sentence(rest, device=choose_device(asked.device))
    if name in ("features", "text-features") and rest:
        return Features(FeatureFile.open(Path(rest).expanduser()), of="images" if name == "features" else "texts")
    raise RequirementError(
        f"--space needs doc2vec, lsa, sentence:NAME, features:FILE or text-features:FILE; it got '{asked.space}'"
    )


def read_texts(sources: Sources) -> Dataset:
    """The data set of a graph; its pictures need not be there.

    Raises DataError when it cannot be read.
    """
    assert sources.data is not None
    return read_pairs(
        sources.data.expanduser(),
        images=sources.images,
        seed=sources.split_seed or 0,
        bad=sources.bad or "refuse",
        need_images=False,
    ).pairs


def told_in_words(graph: Graph) -> str:
    """A graph in a line."""
    counts = np.asarray(graph.counts)
    short = int((counts < graph.width).sum())
    lists = f"{graph.width} neighbours each"
    if short:
        alone = int((counts == 0).sum())
        lists += f", {short:,} of them fewer ({alone:,} none{', without a place in the space' if alone else ''})"
    settings = graph.settings
    return (
        f"{len(graph):,} texts, {lists}, by {settings['distance']} in {graph.space['name']}, {settings['search']}, "
        f"among {settings['among']}"
    )
