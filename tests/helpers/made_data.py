"""A small made data set on disk: features of pictures that show two of twelve things, and texts that name them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

THINGS = ("red", "blue", "green", "black", "dog", "cat", "bird", "car", "tree", "house", "boat", "horse")
SPLITS = {"train": 40, "val": 12, "test": 8}
WIDTH = 16


def write(folder: Path) -> tuple[Path, Path]:
    """Write pairs.jsonl and features.npz; gives both paths."""
    rng = np.random.default_rng(5)
    topics = rng.normal(size=(len(THINGS), WIDTH))
    combinations = [(a, b) for a in range(len(THINGS)) for b in range(a)]
    splits = [name for name, count in SPLITS.items() for _ in range(count)]
    chosen = rng.permutation(len(combinations))[: len(splits)]
    rows, vectors = [], []
    for number, (split, place) in enumerate(zip(splits, chosen, strict=True)):
        a, b = combinations[place]
        texts = [f"a {THINGS[a]} and a {THINGS[b]}", f"the {THINGS[b]} is near the {THINGS[a]}"]
        rows.append({"image": f"photo{number:03d}.jpg", "captions": texts, "split": split})
        vectors.append(topics[a] + topics[b] + 0.05 * rng.normal(size=WIDTH))
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "pairs.jsonl", rows)
    order = rng.permutation(len(rows))
    names = np.array([rows[row]["image"] for row in order])
    np.savez(folder / "features.npz", names=names, pooled=np.asarray(vectors, dtype=np.float32)[order])
    return folder / "pairs.jsonl", folder / "features.npz"


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Shown:
    """What regions of the pictures of `write` are made from: what their captions name.

    names   of the pictures        topics  (T W) a vector of each thing
    things  (N) for each picture the two things that its texts name
    """

    names: np.ndarray
    topics: np.ndarray
    things: list[list[int]]


def write_shown(folder: Path, rng: np.random.Generator) -> Shown:
    """Write as `write` does; gives what to make regions from."""
    rows_file, _ = write(folder)
    topics = rng.normal(size=(len(THINGS), WIDTH))
    rows = [json.loads(line) for line in rows_file.read_text(encoding="utf-8").splitlines()]
    words = [row["captions"][0].split() for row in rows]
    things = [[THINGS.index(one[1]), THINGS.index(one[4])] for one in words]
    return Shown(np.array([row["image"] for row in rows]), topics, things)


def write_regions(folder: Path, *, noise: float = 0.3) -> None:
    """Write as `write` does, and regions.npz: three regions a picture, of which two show what its texts name.

    noise  the standard deviation of what is drawn for every region; the third is nothing else
    """
    rng = np.random.default_rng(3)
    shown = write_shown(folder, rng)
    grid = noise * rng.normal(size=(len(shown.names), 3, WIDTH)).astype(np.float32)
    for place, things in enumerate(shown.things):
        grid[place, :2] += shown.topics[things]
    np.savez(folder / "regions.npz", names=shown.names, grid=grid, pooled=grid.mean(axis=1))


TOPICS, EACH = 20, 40
"""Topics of `write_topics`, and pairs of each."""


def write_topics(folder: Path, *, visual: bool = True) -> Path:
    """Write pairs.jsonl and features.npz of topics: their texts share words, and their images lie around one point.

    visual  False: images lie anywhere
    """
    generator, width = np.random.default_rng(0), 24
    centres = generator.normal(size=(TOPICS, width))
    rows, features = [], []
    for pair in range(TOPICS * EACH):
        topic = pair % TOPICS
        split = {0: "val", 1: "test"}.get(pair // TOPICS % 8, "train")
        words = [f"topic{topic}word{word}" for word in generator.choice(6, size=4, replace=False)]
        texts = [" ".join([*words, f"filler{generator.integers(40)}"]) for _ in range(1 + pair % 2)]
        (folder / f"{pair}.jpg").touch()
        rows.append({"image": f"{pair}.jpg", "captions": texts, "split": split})
        features.append(visual * 3 * centres[topic] + generator.normal(size=width))
    write_rows(folder / "pairs.jsonl", rows)
    names = [row["image"] for row in rows]
    np.savez(folder / "features.npz", names=names, pooled=np.array(features, dtype=np.float32))
    return folder
