"""`subtext data prepare`, `dedup` and `loosen`: a data set becomes another one, in a file."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subtext import __version__
from subtext.api.load import Sources
from subtext.api.neighbours import read_texts
from subtext.data.dataset import Dataset
from subtext.data.dedup import near_copies
from subtext.data.fingerprint import fingerprint
from subtext.data.planted import write_labels
from subtext.data.planting import Near, Planted, plant
from subtext.data.prepare import cut_sentences, draw_anew, keep_texts, only_longer
from subtext.data.write import ENDINGS, write_pairs
from subtext.errors import DataError, RequirementError, counted
from subtext.neighbours.graph import Graph
from subtext.report.progress import meter


@dataclass(frozen=True)
class Looseness:
    """What `subtext data loosen` was asked for.

    kind    "neighbour", "mismatch", or "mixed": half of each       share  of the pairs of each split
    ranks   of neighbours whose texts may be given, from 1, both included       graph  where neighbours stand
    """

    kind: str
    share: float
    ranks: tuple[int, int]
    graph: Path | None
    splits: tuple[str, ...]
    seed: int

    @property
    def shares(self) -> dict[str, float]:
        """Share by kind."""
        if self.kind == "mixed":
            return {"neighbour": self.share / 2, "mismatch": self.share / 2}
        return {self.kind: self.share}


def prepare(sources: Sources, out: Path, *, sentences: int | None, longer_than: int | None, resplit: bool) -> str:
    """Write a data set whose texts are cut or left out, or whose splits are drawn anew; what was done, in words."""
    pairs = _read(sources, out)
    before = pairs
    if longer_than is not None:
        pairs = only_longer(pairs, longer_than)
    if sentences is not None:
        pairs = cut_sentences(pairs, sentences)
    if resplit:
        pairs = draw_anew(pairs, seed=sources.split_seed or 0)
    write_pairs(pairs, out)
    return _told(pairs, before, out)


def dedup(sources: Sources, out: Path, *, threshold: float, words: int, quiet: bool = False) -> str:
    """Write a data set without the texts that are nearly copies of another's; what was done, in words."""
    pairs = _read(sources, out)
    with meter("comparing texts", len(pairs.texts), quiet=quiet) as told:
        copies = near_copies(pairs, threshold=threshold, words=words, told=told)
    left = keep_texts(pairs, copies.stays)
    write_pairs(left, out)
    most = Counter(copies.copy_of[~copies.stays].tolist()).most_common(3)
    lines = [f"  {count:,} times: {str(pairs.texts.values[row])[:100]!r}" for row, count in most]
    return "\n".join([_told(left, pairs, out), *(["most often copied:", *lines] if lines else [])])


def loosen(sources: Sources, out: Path, labels: Path, asked: Looseness) -> str:
    """Write a data set of which a known share is loose, and which pairs those are to another file; in words.

    Raises RequirementError where neighbours are asked for and there is no graph, and for a share that is no text at
    all; DataError for a file that is there.
    """
    _require_new(labels, out)
    graph = None
    if asked.kind != "mismatch":
        if asked.graph is None:
            raise RequirementError(
                f"--kind {asked.kind} needs a graph of neighbours (--graph GRAPH); build one with "
                "`subtext neighbours build`, or take --kind mismatch"
            )
        graph = Graph.load(asked.graph)
    pairs = _read(sources, out)
    near = None if graph is None else _near(graph, pairs, asked)
    planted = plant(pairs, asked.shares, near=near, splits=asked.splits, seed=asked.seed)
    settings = {
        "kind": asked.kind,
        "share": asked.share,
        "ranks": list(asked.ranks) if graph is not None else None,
        "graph": None if graph is None else {"fingerprint": graph.fingerprint, "space": dict(graph.space)},
        "splits": list(asked.splits),
        "seed": asked.seed,
        "of": fingerprint(pairs),
        "version": __version__,
    }
    total = int(np.isin(pairs.texts.splits, asked.splits).sum())
    kinds = Counter(planted.kinds[planted.kinds != ""].tolist())
    if not kinds:
        raise RequirementError(
            f"--share {asked.share:g} of {counted(total, 'text')} of {', '.join(asked.splits)} is none; ask for more"
        )
    _write_both(planted, out, labels, settings)
    listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    lines = [
        f"{out}: {kinds.total():,} of {counted(total, 'text')} of {', '.join(asked.splits)} are loose now ({listed})"
    ]
    if near is not None:
        apart = planted.distances[np.isfinite(planted.distances)]
        low, half, high = np.quantile(apart, (0.05, 0.5, 0.95))
        lines.append(f"distance of a neighbour's words: median {half:.3g}, 5 % below {low:.3g}, 5 % above {high:.3g}")
    lines += [f"labels: {labels} (for measuring; nothing that trains reads them)", _next(planted.pairs, out)]
    return "\n".join(lines)


def _require_new(labels: Path, out: Path) -> None:
    """Raise DataError unless the labels have a file to themselves, which is still to be written."""
    if labels.expanduser().resolve() == out.expanduser().resolve():
        raise DataError(f"labels need a file of their own, that training does not read; {labels} is that of the pairs")
    if labels.exists():
        raise DataError(
            f"--labels needs a new file; {labels} is there, and may be the only one that tells which pairs of another "
            "data set are loose; name another or remove it"
        )


def _write_both(planted: Planted, out: Path, labels: Path, settings: Mapping[str, object]) -> None:
    """Write labels, then pairs: loosened pairs that nobody has labels of never stand there."""
    write_labels(planted, labels, settings)
    try:
        write_pairs(planted.pairs, out)
    finally:
        if not out.exists():
            # The same command may then be given again.
            labels.unlink(missing_ok=True)


def _near(graph: Graph, pairs: Dataset, asked: Looseness) -> Near:
    """The graph's neighbours as rows of the whole data set; ranks count within a split."""
    first, last = asked.ranks
    if not 1 <= first <= last <= graph.width:
        raise DataError(
            f"ranks need to be FIRST-LAST from 1 to {graph.width}, what the graph has; got {first}-{last}; name "
            "others, or build a graph with more neighbours"
        )
    rows = np.full((len(pairs.texts), graph.width), -1, dtype=np.int64)
    distances = np.full((len(pairs.texts), graph.width), np.inf, dtype=np.float64)
    for split in asked.splits:
        own = np.flatnonzero(pairs.texts.splits == split).astype(np.int64)
        part = graph.within(pairs.texts.take(own))
        rows[own] = np.where(part.neighbours >= 0, own[part.neighbours], -1)
        distances[own] = part.distances
    return Near(rows, distances, first, last)


def _read(sources: Sources, out: Path) -> Dataset:
    """The data set; refused at once where it could not be written."""
    if out.suffix.lower() not in ENDINGS:
        raise DataError(f"--out needs a file that ends in {' or '.join(ENDINGS)}; it got {out}")
    if out.exists():
        raise DataError(f"--out needs a new file; {out} is there; name another or remove it")
    return read_texts(sources)


def _told(pairs: Dataset, before: Dataset, out: Path) -> str:
    splits = ", ".join(f"{name} {count:,}" for name, count in pairs.counts().items())
    gone = f" ({len(before.texts) - len(pairs.texts):,} texts left out)" if len(pairs.texts) < len(before.texts) else ""
    what = ", ".join(counted(len(items), noun) for items, noun in ((pairs.images, "picture"), (pairs.texts, "text")))
    return f"{out}: {what}{gone}; pictures by split: {splits}\n{_next(pairs, out)}"


def _next(pairs: Dataset, out: Path) -> str:
    """How to read what was written: its pictures lie where they lay."""
    there = pairs.root.resolve() == out.parent.resolve()
    images = "" if there else f" --images {shlex.quote(str(pairs.root))}"
    return f"next:\n  subtext data check {shlex.quote(str(out))}{images}"
