"""The semantic graph: the nearest texts of every text, saved in a folder with its space and its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.core import Truth
from subtext.data import atomic
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError
from subtext.text_helpers import json_text
from subtext.version import FORMAT, require_format

_MANIFEST, _IDS = "graph.json", "ids.json"
_ARRAYS = {"marks": np.int64, "neighbours": np.int32, "distances": np.float32}


@dataclass(frozen=True)
class Graph:
    """The neighbours of every text (Psi of Thomas and Kovashka 2020, section 3.1), nearest first.

    A row is a text of a data set. A pair of image and text takes its text's row, and both modalities share it: the
    neighbours of an image are the images of its text's neighbours (`image_of_text`), one per neighbouring text.

    Attributes:
        ids: (N) ids of the texts, in the order of Dataset.texts.
        marks: (N) int64, a hash of each text's id and words: tells other data sets apart.
        neighbours: (N E) rows of this graph; -1 at the end of a list that is shorter than E.
        distances: (N E) to them in the space, rising, in its distance (L2, or 1 - cosine); infinite where there is no
            neighbour.
        space: "name" of the space, and its settings.
        settings: How neighbours were chosen: candidate_split, search, same_image, distance.
        source: Where the texts came from, for people and for `subtext neighbours show`.
    """

    ids: list[str]
    marks: Int[np.ndarray, "n"]
    neighbours: Int[np.ndarray, "n e"]
    distances: Float[np.ndarray, "n e"]
    space: Mapping[str, Any]
    settings: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """N, the number of texts."""
        return len(self.ids)

    @property
    def width(self) -> int:
        """E, the number of neighbours that was requested."""
        return int(self.neighbours.shape[1])

    @cached_property
    def counts(self) -> Int[np.ndarray, "n"]:
        """(N) int64, number of neighbours of each text, 0 to E."""
        return (self.neighbours >= 0).sum(axis=1).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change with any text, its id, their order, the space or the settings."""
        content = json.dumps([dict(self.space), dict(self.settings), self.width], sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(content.encode() + self.marks.astype("<i8").tobytes(), digest_size=16).hexdigest()

    def require(self, texts: Items) -> None:
        """Check that the graph's rows are these texts, in this order, word for word.

        Args:
            texts: Of a data set.

        Raises:
            DataError: If they are not.
        """
        marks = group_labels(texts)
        if len(marks) == len(self) and bool((marks == self.marks).all()):
            return
        matching = int(np.isin(marks, self.marks).sum())
        if matching == len(marks):
            hint = "they are part of it, or in another order: Graph.restrict_to cuts it"
        else:
            hint = "it was built for other data: build one for this data (subtext neighbours build)"
        raise DataError(
            f"this graph needs the {len(self):,} texts that it was built for; it got {len(marks):,}, of which it knows "
            f"{matching:,}; {hint}"
        )

    def restrict_to(self, texts: Items) -> Graph:
        """The graph among some of its texts, whose rows are those of `texts`.

        Neighbours that are not among them are left out, and lists grow shorter.

        Args:
            texts: M of the graph's texts.

        Returns:
            The graph, with M rows.

        Raises:
            DataError: If one of them is not in the graph.
        """
        order = np.argsort(self.marks, kind="stable")
        rows_of = group_labels(texts)
        positions = np.minimum(np.searchsorted(self.marks[order], rows_of), len(self) - 1)
        rows = order[positions]
        strange = np.flatnonzero(self.marks[rows] != rows_of)
        if len(strange):
            raise DataError(
                f"this graph was built for other data: it knows {len(rows_of) - len(strange):,} of {len(rows_of):,} "
                f"texts, and not {texts.ids[int(strange[0])]!r}; build one for this data (subtext neighbours build)"
            )
        new = np.full(len(self) + 1, -1, dtype=np.int32)
        new[rows] = np.arange(len(rows), dtype=np.int32)
        neighbours = new[self.neighbours[rows]]
        gone = neighbours < 0
        front = np.argsort(gone, axis=1, kind="stable")
        return replace(
            self,
            ids=list(texts.ids),
            marks=rows_of,
            neighbours=np.take_along_axis(neighbours, front, axis=1),
            distances=np.take_along_axis(np.where(gone, np.float32(np.inf), self.distances[rows]), front, axis=1),
        )

    def truth(self, start: int, stop: int) -> Truth:
        """Some rows against all rows: neighbours are positive, a row itself is ignored.

        Args:
            start: First row.
            stop: Row after the last; at most N.

        Returns:
            The Truth (stop - start, N).
        """
        stop = min(stop, len(self))
        neighbours = np.asarray(self.neighbours[start:stop])
        rows, columns = np.nonzero(neighbours >= 0)
        match = torch.zeros(stop - start, len(self), dtype=torch.bool)
        match[torch.from_numpy(rows), torch.from_numpy(neighbours[rows, columns].astype(np.int64))] = True
        return Truth(match=match, ignored=torch.arange(start, stop)[:, None] == torch.arange(len(self)))

    def save(self, folder: Path) -> None:
        """Write a folder of arrays and JSON, in one step.

        Args:
            folder: New or empty.

        Raises:
            DataError: If it holds something.
            OutputError: If it cannot be written.
        """
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise DataError(f"a graph needs a new or empty folder; {folder} holds something; name another or remove it")
        manifest = {
            "kind": "subtext graph", "format": FORMAT, "texts": len(self), "neighbours": self.width,
            "fingerprint": self.fingerprint, "space": dict(self.space), "settings": dict(self.settings),
            "source": dict(self.source), "arrays": self._digest(),
        }  # fmt: skip

        def fill(target: Path) -> None:
            for name, kind in _ARRAYS.items():
                np.save(target / f"{name}.npy", getattr(self, name).astype(kind), allow_pickle=False)
            (target / _IDS).write_text(json.dumps(self.ids, ensure_ascii=False), encoding="utf-8")
            text = json_text(manifest, indent=2) + "\n"
            (target / _MANIFEST).write_text(text, encoding="utf-8")

        atomic.write_folder(folder, fill)

    @staticmethod
    def load(folder: Path) -> Graph:
        """Read what `save` wrote.

        Neighbours and distances are memory-mapped, and read once to verify their checksum.

        Args:
            folder: Of a graph.

        Returns:
            The graph.

        Raises:
            DataError: If the folder is no graph, is damaged, or has another format.
        """
        manifest = _manifest(folder)
        try:
            arrays = {
                name: np.load(folder / f"{name}.npy", allow_pickle=False, mmap_mode=None if name == "marks" else "r")
                for name in _ARRAYS
            }
            ids = json.loads((folder / _IDS).read_text(encoding="utf-8"))
            graph = Graph(
                ids=ids, **arrays, space=manifest["space"], settings=manifest["settings"], source=manifest["source"]
            )
        except (OSError, ValueError, KeyError) as problem:
            raise DataError(f"{folder} is a damaged graph: {problem}; build it again") from problem
        shape = (manifest.get("texts"), manifest.get("neighbours"))
        lengths = {len(ids), len(graph.marks), len(graph.neighbours), len(graph.distances), shape[0]}
        if len(lengths) != 1 or graph.neighbours.shape != shape or graph.distances.shape != shape:
            raise DataError(f"{folder} is a damaged graph: its arrays are not {shape}; build it again")
        intact = manifest.get("arrays") == graph._digest()
        if graph.fingerprint != manifest.get("fingerprint") or not intact:
            raise DataError(f"{folder} is a damaged graph: its arrays are not those of its manifest; build it again")
        return graph

    def _digest(self) -> str:
        """Of neighbours and distances, as they are written."""
        digest = hashlib.blake2b(digest_size=16)
        for name in ("neighbours", "distances"):
            digest.update(np.ascontiguousarray(getattr(self, name), dtype=_ARRAYS[name]).data)
        return digest.hexdigest()


def group_labels(texts: Items) -> NDArray[np.int64]:
    """A number for each text, made from its id and its words.

    Args:
        texts: N texts.

    Returns:
        (N) int64.
    """
    texts_of = (
        f"{name}\n{words!s}".encode("utf-8", "surrogatepass")
        for name, words in zip(texts.ids, texts.values, strict=True)
    )
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts_of)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def image_of_text(pairs: Dataset) -> NDArray[np.int64]:
    """The image row of each text: the first of its links.

    Args:
        pairs: A data set of T texts.

    Returns:
        (T) int64; -1 for a text without an image.
    """
    images = np.full(len(pairs.texts), -1, dtype=np.int64)
    images[pairs.links[::-1, 1]] = pairs.links[::-1, 0]
    return images


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / _MANIFEST
    if not file.is_file():
        reason = "is not there" if not folder.exists() else f"has no {_MANIFEST}"
        raise DataError(f"{folder} needs to be a folder that `subtext neighbours build` wrote; it {reason}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise DataError(f"{file} needs to be JSON; {problem}; build the graph again") from problem
    if not isinstance(manifest, dict) or manifest.get("kind") != "subtext graph":
        raise DataError(f"{file} is not the manifest of a graph; name a folder that `subtext neighbours build` wrote")
    require_format(manifest.get("format"), file, "neighbours build", DataError)
    return manifest
