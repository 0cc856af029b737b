"""From a data set and a space to the graph of its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.neighbours.approximate import approximate_rows
from subtext.neighbours.graph import Graph, marks_of, pictures_of_texts
from subtext.neighbours.space import Distance, Places, Space, Told, unit
from subtext.ops.nearest import NearestRows, nearest_rows


@dataclass(frozen=True)
class Choice:
    """How neighbours are chosen.

    neighbours    E, the paper's 200
    among         the split whose texts may be neighbours; texts of other splits get neighbours, and are none; "all"
    search        "exact", or "approximate"
    same_picture  "drop": a text of the same picture is no neighbour; "keep": it may be one
    distance      "l2" or "cosine"; None for the space's own

    A text is never its own neighbour, nor that of a text of the same words, or at the very same place.
    """

    neighbours: int = 200
    among: str = "train"
    search: Literal["exact", "approximate"] = "exact"
    same_picture: Literal["drop", "keep"] = "drop"
    distance: Distance | None = None


def build_graph(
    pairs: Dataset,
    space: Space,
    choice: Choice | None = None,
    *,
    source: Mapping[str, Any] | None = None,
    placed: Told | None = None,
    compared: Told | None = None,
) -> Graph:
    """The graph of all texts of `pairs`, in a space learnt from those that may be neighbours.

    source             where the pairs came from, kept in the graph
    placed, compared   hear how many texts have a place, and how many have neighbours

    Raises DataError when there are not more texts than neighbours asked for, when all texts are the same, and what the
    space raises.
    Cost the space's own, and that of `ops.nearest.nearest_rows`.
    """
    choice = choice or Choice()
    learn = np.ones(len(pairs.texts), dtype=bool) if choice.among == "all" else pairs.texts.splits == choice.among
    _require_enough(choice, int(learn.sum()), len(pairs.texts), "")
    places = space(pairs, learn.astype(bool), placed)
    candidates = learn & places.known
    _require_enough(choice, int(candidates.sum()), len(pairs.texts), " that the space has a place for")
    distance = choice.distance or space.distance
    vectors = unit(places.vectors) if distance == "cosine" else places.vectors
    found = _search(vectors, candidates, _groups(pairs, places, choice), choice, compared)
    rows, scores = found.rows, found.scores
    rows[~places.known], scores[~places.known] = -1, -np.inf
    if not (rows >= 0).any():
        raise DataError(
            f"a graph needs texts that differ; all {len(rows):,} are the same, or of one picture; look at them with "
            "`subtext data check`"
        )
    squared = np.maximum(-2 * scores, 0)
    return Graph(
        ids=list(pairs.texts.ids),
        marks=marks_of(pairs.texts),
        neighbours=rows,
        distances=(squared / 2 if distance == "cosine" else np.sqrt(squared)).astype(np.float32),
        space=dict(space.settings()),
        settings={
            "among": choice.among, "search": choice.search, "same_picture": choice.same_picture, "distance": distance,
        },
        source=dict(source or {}),
    )  # fmt: skip


def _search(
    vectors: NDArray[np.float32],
    candidates: NDArray[np.bool_],
    groups: NDArray[np.int64],
    choice: Choice,
    compared: Told | None,
) -> NearestRows:
    if choice.search == "exact":
        return nearest_rows(vectors, count=choice.neighbours, candidates=candidates, groups=groups, progress=compared)
    found = approximate_rows(vectors, count=choice.neighbours, candidates=candidates, groups=groups)
    if compared is not None:
        compared(len(vectors))
    return found


def _groups(pairs: Dataset, places: Places, choice: Choice) -> NDArray[np.int64]:
    """(G N) what a text shares with those that are no neighbours of it: its words, its place, its picture."""
    words: dict[str, int] = {}
    same_words = np.empty(len(pairs.texts), dtype=np.int64)
    for row, value in enumerate(pairs.texts.values):
        # A text that is known by its features alone has no words to share.
        same_words[row] = words.setdefault(f"#{row}" if value is None else f"={value!s}", len(words))
    rows = np.ascontiguousarray(places.vectors + 0.0)
    coded = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    lines = [same_words, np.unique(coded, return_inverse=True)[1].reshape(-1).astype(np.int64)]
    if choice.same_picture == "drop":
        pictures = pictures_of_texts(pairs)
        alone = len(pairs.images) + np.arange(len(pictures))
        lines.append(np.where(pictures < 0, alone, pictures))
    return np.stack(lines)


def _require_enough(choice: Choice, have: int, total: int, which: str) -> None:
    if choice.neighbours < 1:
        raise DataError(f"a graph needs 1 neighbour or more; it got {choice.neighbours}")
    if have <= choice.neighbours:
        split = "" if choice.among == "all" else f" of the split '{choice.among}'"
        advice = f"ask for at most {have - 1}" if have > 1 else "name another split with --among"
        raise DataError(
            f"{choice.neighbours} neighbours need more than {choice.neighbours} texts{split}{which}; "
            f"there are {have:,} among {total:,}; {advice}"
        )
