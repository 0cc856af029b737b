"""A semantic graph of the small data: texts are near that share words."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import small_training

from subtext.data.dataset import Dataset
from subtext.graphs.graph import Graph, group_labels
from subtext.recipes.methods.neighbourhoods import neighbourhoods
from subtext.training.plan import Plan
from subtext.training.setup import Setup


def graph(pairs: Dataset, count: int = 6) -> Graph:
    """The `count` texts of other pictures that share most words with each text."""
    words = [set(str(text).split()) for text in pairs.texts.values]
    shared = np.array([[len(one & other) for other in words] for one in words], dtype=np.float32)
    shared[pairs.texts.groups[:, None] == pairs.texts.groups] = -1
    order = np.argsort(-shared, axis=1, kind="stable")[:, :count].astype(np.int32)
    distances = 9 - np.take_along_axis(shared, order, axis=1)
    return Graph(
        list(pairs.texts.ids),
        group_labels(pairs.texts),
        order,
        distances,
        {"name": "words"},
        {"candidate_split": "train", "same_image": "drop"},
    )


def save(pairs: Dataset, folder: Path, count: int = 6) -> Path:
    """The same in a folder."""
    graph(pairs, count).save(folder)
    return folder


def setup(folder: Path, plan: Plan | None = None, *, dropout: float = 0.1, **options: object) -> Setup:
    """The small setup with the method, of a pool of 4."""
    return neighbourhoods(small_training.setup(plan, dropout=dropout), graph=str(folder), **{"pool_size": 4, **options})


def made(folder: Path, **options: object) -> object:
    """For `small_training.run`: a plan -> the setup."""
    return partial(setup, folder, **options)
