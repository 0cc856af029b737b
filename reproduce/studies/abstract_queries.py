"""Whether abstract queries find more when moved towards literal texts, as ACT does (Talon and others, CVPR 2025).

    SUBTEXT_DATA=... python -m reproduce.studies.abstract_queries --out DIR [--ratings CSV] [--column NAME]

The shift is fitted on OpenStax's training figures, which have a caption (abstract) and an alt text (literal): vectors a
and c of the text tower of `--model starter`. Its settings are chosen by the mean reciprocal rank of val's captions
among val's images. Reported are test's captions among test's images, and single tags among the test icons, in thirds by
a published rating of how concrete a word is. Nothing else is learnt.

    mean           unit(q + l (mean c - mean a))
    translate      unit(mean c + (q - mean a) M), M by ridge regression of centred c on centred a
    bias alone     <q, x> + l <mean c - mean a, x>: what a constant shift adds to an image, whatever the query
    csls           2 <q, x> minus the mean of the ten largest cosines of x with the training captions
    random         as mean, with a random direction of the same length; the mean over draws

Five minutes on one core where no output of the towers is cached.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext as st
from reproduce.studies.common import data_folder, options

Rows = NDArray[np.float32]
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
RIDGE = (0.01, 0.1, 1.0)
"""Relative to the mean of the squared singular values."""
DRAWS, RESAMPLED, TAGS, NEAREST = 20, 2000, 300, 10


def unit(rows: Rows) -> Rows:
    """Rows of unit length."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def ranks(scores: Rows) -> NDArray[np.int64]:
    """(Q) rank of image q for query q, from 1; equal scores count as worse."""
    return np.asarray((scores >= np.diag(scores)[:, None]).sum(axis=1))


class Ways:
    """Scores of queries and images, (Q N), by each way; fitted on training texts."""

    def __init__(self, abstract: Rows, literal: Rows) -> None:
        self.abstract, self.literal = abstract, literal
        self.mean_a, self.mean_c = abstract.mean(axis=0), literal.mean(axis=0)
        self.shift = self.mean_c - self.mean_a
        a, c = abstract - self.mean_a, literal - self.mean_c
        scale = float((a**2).sum() / a.shape[1])
        grams = {r: a.T @ a + r * scale * np.eye(a.shape[1], dtype=np.float32) for r in RIDGE}
        self.maps = {r: np.linalg.solve(gram, a.T @ c) for r, gram in grams.items()}

    def settings(self) -> dict[str, list[Any]]:
        """Way -> the settings to choose from."""
        return {"none": [None], "mean": [*FACTORS], "translate": [*RIDGE], "bias alone": [*FACTORS], "csls": [None]}

    def scores(self, way: str, setting: Any, queries: Rows, images: Rows, *, direction: Rows | None = None) -> Rows:
        """Scores by a way; `direction` takes the place of the shift."""
        shift = self.shift if direction is None else direction
        if way == "mean":
            return unit(queries + setting * shift) @ images.T
        if way == "translate":
            return unit(self.mean_c + (queries - self.mean_a) @ self.maps[setting]) @ images.T
        plain = queries @ images.T
        if way == "bias alone":
            return np.asarray(plain + setting * (images @ shift))
        if way == "csls":
            near = np.sort(images @ self.abstract.T, axis=1)[:, -NEAREST:].mean(axis=1)
            return np.asarray(2 * plain - near)
        return plain


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean of differences, and its interval of 95 % over resampled queries."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), size=(RESAMPLED, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def randomly(
    ways: Ways, setting: float, measure: Callable[[Rows], NDArray[np.float64]], q: Rows, x: Rows
) -> NDArray[np.float64]:
    """The mean of a measure of each query over random directions of the shift's length."""
    rng, length = np.random.default_rng(1), float(np.linalg.norm(ways.shift))
    drawn = unit(rng.standard_normal((DRAWS, len(ways.shift))).astype(np.float32)) * length
    return np.mean([measure(ways.scores("mean", setting, q, x, direction=own)) for own in drawn], axis=0)


def ndcg(scores: Rows, relevant: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(Q) nDCG of the first ten."""
    gains = 1 / np.log2(np.arange(NEAREST) + 2)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :NEAREST]
    found = np.take_along_axis(relevant, best, axis=1) @ gains
    ideal = np.array([gains[: min(NEAREST, int(count))].sum() for count in relevant.sum(axis=1)])
    return np.asarray(found / ideal)


def compared(measured: Mapping[str, NDArray[np.float64]]) -> list[list[str]]:
    """Rows of a table: way, mean in percent, difference to none with its interval."""
    rows = []
    for way, values in measured.items():
        mean, low, high = interval(100 * (values - measured["none"]))
        rows.append(
            [way, f"{100 * values.mean():.1f}", "-" if way == "none" else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"]
        )
    return rows


def openstax(model: Any, folder: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Rows]]]:
    """Photographs and artworks with an alt text, by split; and their vectors."""
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] in ("photo", "artwork") and row["literal"]]
    splits = {name: [row for row in rows if row["split"] == name] for name in ("train", "val", "test")}
    vectors: dict[str, dict[str, Rows]] = {}
    for name, own in splits.items():
        texts = {"abstract": [row["captions"][0] for row in own], "literal": [row["literal"] for row in own]}
        vectors[name] = {side: unit(model.embed_texts(some).vectors[:, 0].numpy()) for side, some in texts.items()}
        if name != "train":
            files = [str(folder / row["image"]) for row in own]
            vectors[name]["images"] = unit(model.embed_images(files).vectors[:, 0].numpy())
    return splits, vectors


def tags_of(rows: Sequence[Mapping[str, Any]], ratings: Mapping[str, float]) -> list[str]:
    """Rated tags of one word that two icons or more have; drawn where there are more than `TAGS`."""
    counts: dict[str, int] = {}
    for row in rows:
        for tag in set(row["tags"]):
            counts[tag] = counts.get(tag, 0) + 1
    chosen = sorted(tag for tag, count in counts.items() if count > 1 and tag in ratings)
    drawn = np.random.default_rng(0).permutation(len(chosen))[:TAGS]
    return [chosen[number] for number in sorted(drawn.tolist())]


def main() -> None:
    """Print both tables, and write them to OUT/abstract_queries.json."""
    parser = options(__doc__)
    parser.add_argument("--ratings", type=Path, help="CSV of words and how concrete they are; without it no icons")
    parser.add_argument("--column", default="Concreteness", help="column of the ratings (default: %(default)s)")
    given = parser.parse_args()
    model = st.load(model="starter")
    _, vectors = openstax(model, data_folder("openstax"))
    ways, val, test = Ways(vectors["train"]["abstract"], vectors["train"]["literal"]), vectors["val"], vectors["test"]

    def reciprocal(way: str, setting: Any) -> float:
        return float((1 / ranks(ways.scores(way, setting, val["abstract"], val["images"]))).mean())

    chosen = {way: max(some, key=partial(reciprocal, way)) for way, some in ways.settings().items()}
    result: dict[str, Any] = {
        "settings": chosen,
        "shift": float(np.linalg.norm(ways.shift)),
        "openstax": {},
        "icons": {},
    }
    for depth in (1, 10):

        def recall(scores: Rows, depth: int = depth) -> NDArray[np.float64]:
            return (ranks(scores) <= depth).astype(np.float64)

        q, x = test["abstract"], test["images"]
        measured = {way: recall(ways.scores(way, own, q, x)) for way, own in chosen.items()}
        measured["random"] = randomly(ways, chosen["mean"], recall, q, x)
        measured["literal text as query"] = recall(test["literal"] @ x.T)
        result["openstax"][f"recall@{depth}"] = compared(measured)
    if given.ratings is not None:
        with given.ratings.open(encoding="utf-8", newline="") as stream:
            ratings = {row["Word"].lower(): float(row[given.column]) for row in csv.DictReader(stream)}
        folder = data_folder("icons")
        rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if row["split"] == "test"]
        tags = sorted(tags_of(rows, ratings), key=lambda tag: ratings[tag])
        q = unit(model.embed_texts(tags).vectors[:, 0].numpy())
        x = unit(model.embed_images([str(folder / "images" / row["image"]) for row in rows]).vectors[:, 0].numpy())
        relevant = np.array([[tag in row["tags"] for row in rows] for tag in tags])
        thirds = np.array_split(np.arange(len(tags)), 3)
        for name, some in zip(("abstract third", "middle", "concrete third"), thirds, strict=True):

            def quality(scores: Rows, some: NDArray[np.int64] = some) -> NDArray[np.float64]:
                return ndcg(scores, relevant[some])

            measured = {way: quality(ways.scores(way, own, q[some], x)) for way, own in chosen.items()}
            measured["random"] = randomly(ways, chosen["mean"], quality, q[some], x)
            result["icons"][f"{name}, {len(some)} tags, nDCG@10"] = compared(measured)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "abstract_queries.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"settings {chosen}; length of the shift {result['shift']:.2f}")
    for title, table in {**result["openstax"], **result["icons"]}.items():
        print(f"\n{title}\n" + "\n".join("| " + " | ".join(row) + " |" for row in table))


if __name__ == "__main__":
    main()
