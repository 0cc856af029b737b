"""How often a search finds the image that a text belongs to, with what is in the box: no network, nothing trained.

    SUBTEXT_DATA=... python -m benchmarks.answers --data flickr8k --json

`flickr8k`: 300 photographs of val become a folder without texts, and `subtext index build --model starter` an index.
Each photograph's first caption is a query; it is answered if the photograph is among the first ten. The cache of
encoders' outputs is empty at the start, in a folder of its own: the time to build is that of a newcomer. Also: whether
"nothing here fits" could be told on such a folder by the level of a query alone, against the levels of 200 everyday
captions, whichever the photographs are; captions of COCO about rooms and food, without people, have no right answer.

    SUBTEXT_DATA=... python -m benchmarks.answers --data openstax --json

`openstax`: photographs and artworks of textbooks. A model is trained as `subtext train` does it, with the captions of
train. The archive has the images of val and test, with their alt texts, which say what can be seen; a caption of test
is the query, and its image among the 371 of test the answer. Then half of the alt texts are taken away, and all; the
images of train are there with their captions in both: they lend texts, and are no answers. Files have neutral names.

Each is measured: every signal alone, fixed weights, reciprocal ranks, and the ranker as it was fitted by queries made
of the texts (the default), and by given pairs, the captions of val.

    SUBTEXT_DATA=... python -m benchmarks.answers --data icons --json

`icons`: single words. The archive has the 1,046 icons of test without any text, and every fourth icon of train with its
tags, which lend them. A query is one tag of an icon of test (300 of them); all icons of test that have it are right.

    python -m benchmarks.answers --data made --json

`made`: 100,000 images with a text each, of made words and vectors of 384 numbers: what evidence adds to a warm search.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, SEED = 300, 0
DEPTHS = (1, 5, 10)
SOFTNESSES = (0.5, 1.0, 1.5, 2.0, 4.0)
"""Temperatures of a level, in standard deviations of the scores of everyday captions."""
MADE = 100_000
"""Images of the made index."""
RESAMPLED = 2000
"""Bootstrap samples of the queries, for the intervals."""


def flickr8k(folder: Path, place: Path) -> dict[str, Any]:
    """A bare folder of photographs, searched by the starter towers."""
    import subtext as st

    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    val = [row for row in rows if row["split"] == "val"][:IMAGES]
    photos = place / "photos"
    photos.mkdir()
    for row in val:
        (photos / row["image"]).symlink_to((folder / "images" / row["image"]).resolve())
    started = time.perf_counter()
    command = [sys.executable, "-m", "subtext", "index", "build", str(place / "lib"), str(photos), "--model", "starter"]
    # No network: the hub is not asked even for what a cache might have.
    subprocess.run(
        [*command, "--quiet"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    built = time.perf_counter() - started
    index = st.open_index(place / "lib")
    ranks, seconds = [], []
    for row in val:
        started = time.perf_counter()
        hits = index.search(row["captions"][0], top=max(DEPTHS)).hits
        seconds.append(time.perf_counter() - started)
        names = [Path(hit.id).name for hit in hits]
        ranks.append(names.index(row["image"]) + 1 if row["image"] in names else 0)
    found = recalls(np.array(ranks))
    coco = folder.parent / "coco5k_text" / "karpathy_test_5k.jsonl"
    return {
        "nothing fits": _nothing_fits(index, [row["captions"][0] for row in val], coco),
        "images": len(val),
        "chance": {f"recall@{depth}": round(100 * depth / len(val), 1) for depth in DEPTHS},
        "starter, pixels alone": found,
        "build_seconds": round(built, 1),
        "query_ms": round(1000 * float(np.median(seconds)), 2),
    }


def _nothing_fits(index: Any, right: list[str], coco: Path) -> dict[str, Any]:
    """How well the level of a query tells captions of the photographs from captions of something else."""
    from reproduce.studies.nothing_fits import ALIVE, FOOD, ROOMS
    from subtext.data.words import tokenise
    from subtext.ops.roc import auc
    from subtext.retrieval.everyday import EVERYDAY, level_of

    lines = coco.read_text(encoding="utf-8").splitlines()
    captions = [text for line in lines for text in json.loads(line)["captions"]]
    about, alive = {*ROOMS.split(), *FOOD.split()}, set(ALIVE.split())
    wrong = [text for text in captions if about & (own := set(tokenise(text))) and not alive & own][::10]
    with index.store.reading() as view:
        pictures = view.vectors("images", view.keys("images"))[:, 0]
    scores = [index.model.embed_texts(texts).vectors[:, 0].numpy() @ pictures.T for texts in (right, wrong, EVERYDAY)]
    result: dict[str, Any] = {"right": len(right), "wrong": len(wrong)}
    for softness in SOFTNESSES:
        temperature = softness * float(scores[2].std(axis=1).mean())
        levels = [level_of(own, temperature) for own in scores]
        flags = np.repeat([1.0, 0.0], [len(right), len(wrong)])
        told: dict[str, Any] = {
            "AUC of right against wrong": round(float(auc(np.concatenate(levels[:2]), flags > 0)), 3)
        }
        for share in (0.1, 0.25, 0.5):
            limit = np.quantile(levels[2], share)
            refused = [round(100 * float((own < limit).mean()), 1) for own in levels[:2]]
            told[f"below {share:.0%} of the everyday levels: right, wrong, %"] = refused
        limit = np.quantile(levels[0], 0.05)
        told["wrong noticed where 5 % of right ones are refused, %"] = round(100 * float((levels[1] < limit).mean()), 1)
        result[f"temperature of {softness} deviations"] = told
    return result


def openstax(folder: Path, place: Path) -> dict[str, Any]:
    """Captions that say what an image stands for, and alt texts that say what it shows."""
    import subtext as st

    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["kind"] in ("photo", "artwork")]
    for number, row in enumerate(rows):
        row["id"] = f"i{number:05d}"
        (place / f"{row['id']}.jpg").symlink_to((folder / row["image"]).resolve())
        row["image"] = f"{row['id']}.jpg"

    def written(name: str, texts: Callable[[int, dict[str, Any]], list[str] | None]) -> Path:
        """A data set with some texts of each image; None leaves the image out."""
        kept = [(row, own) for number, row in enumerate(rows) if (own := texts(number, row)) is not None]
        file = place / f"{name}.jsonl"
        file.write_text(
            "".join(
                json.dumps({**{key: row[key] for key in ("id", "image", "split")}, "captions": own}) + "\n"
                for row, own in kept
            ),
            encoding="utf-8",
        )
        return file

    captions = written("captions", lambda _, row: row["captions"])
    st.train(data=st.DataConfig(captions), out=place / "run", quiet=True)
    given = written("given", lambda _, row: row["captions"][:1] if row["split"] == "val" else None)
    alt_texts: dict[str, Callable[[int, dict[str, Any]], list[str] | None]] = {
        "all alt texts": lambda _, row: None if row["split"] == "train" else [row["literal"]],
        "half of them": lambda number, row: (
            row["captions"] if row["split"] == "train" else [row["literal"]][number % 2 :]
        ),
        "none": lambda _, row: row["captions"] if row["split"] == "train" else [],
    }
    test = [row for row in rows if row["split"] == "test"]
    result: dict[str, Any] = {"images": len(test)}
    for name, texts in alt_texts.items():
        index, data = place / name.replace(" ", "-"), written(name.replace(" ", "-"), texts)
        started = time.perf_counter()
        st.build_index(index, data, run=place / "run", split="all", quiet=True)
        result[name] = {"build_seconds": round(time.perf_counter() - started, 1), **_fits(index, given, test)}
    return result


def icons(folder: Path, place: Path) -> dict[str, Any]:
    """Icons that have no texts of their own, searched by one word."""
    import subtext as st

    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    test = [row for row in rows if row["split"] == "test"]
    lenders = [row for row in rows if row["split"] == "train"][::4]
    for number, row in enumerate([*test, *lenders]):
        row["id"] = f"i{number:05d}"
        (place / f"{row['id']}.png").symlink_to((folder / "images" / row["image"]).resolve())
    data = place / "icons.jsonl"
    data.write_text(
        "".join(
            json.dumps(
                {
                    "id": row["id"],
                    "image": f"{row['id']}.png",
                    "split": row["split"],
                    "captions": row["captions"] if row["split"] == "train" else [],
                }
            )
            + "\n"
            for row in [*test, *lenders]
        ),
        encoding="utf-8",
    )
    started = time.perf_counter()
    st.build_index(place / "index", data, model="starter", split="all", quiet=True)
    built = time.perf_counter() - started
    tagged: dict[str, set[str]] = {}
    for row in test:
        for tag in row["tags"]:
            if len(tag.split()) == 1:
                tagged.setdefault(tag, set()).add(row["id"])
    names = sorted(tagged)
    asked = [names[row] for row in np.random.default_rng(SEED).permutation(len(names))[:IMAGES]]
    engine = st.open_index(place / "index").with_model()
    result: dict[str, Any] = {"icons": len(test), "lenders": len(lenders), "build_seconds": round(built, 1)}
    ways: dict[str, dict[str, Any]] = {"default": {}, "pixels": {"signals": ["pixels"]}}
    for name, options in {**ways, "neighbours": {"signals": ["neighbours"]}}.items():
        ranks, gains = [], []
        for tag in asked:
            hits = engine.search(tag, top=max(DEPTHS), where=["split = test"], **options).hits
            right = np.array([hit.id in tagged[tag] for hit in hits], dtype=float)
            discounts = 1 / np.log2(np.arange(2, 2 + max(DEPTHS)))
            ideal = discounts[: min(len(tagged[tag]), max(DEPTHS))].sum()
            gains.append(float((right * discounts[: len(right)]).sum() / ideal))
            ranks.append(int(right.argmax()) + 1 if right.any() else 0)
        result[name] = {"nDCG@10": round(100 * float(np.mean(gains)), 1), **recalls(np.array(ranks))}
    return result


def _fits(index: Path, given: Path, test: list[dict[str, Any]]) -> dict[str, Any]:
    """Every way to rank the images of test for their captions."""
    import subtext as st
    from subtext.retrieval.condition import as_conditions, matching
    from subtext.retrieval.evidence import Gatherer
    from subtext.retrieval.ranker import FIXED, SIGNALS, stored_ranker

    engine, where = st.open_index(index), ["split = test"]
    ranks, seconds = [], {"all evidence": [], "pixels": []}
    right_by_level: dict[str, list[bool]] = {}
    for row in test:
        for name, options in (("all evidence", {}), ("pixels", {"signals": ["pixels"]})):
            started = time.perf_counter()
            hits = engine.search(row["captions"][0], where=where, top=max(DEPTHS), **options).hits
            seconds[name].append(time.perf_counter() - started)
            if name == "all evidence":
                names = [hit.id for hit in hits]
                ranks.append(names.index(row["id"]) + 1 if row["id"] in names else 0)
                for hit in hits:
                    right_by_level.setdefault(str(hit.level), []).append(hit.id == row["id"])
    deviations: dict[str, list[np.ndarray]] = {}
    with engine.store.reading() as view:
        ranker = stored_ranker(view)
        among = matching(view, "images", as_conditions(where))
        keys, own = view.keys("images"), view.keys_of("images", [row["id"] for row in test])
        rows = np.searchsorted(keys, among)
        truth = np.searchsorted(among, [own[row["id"]] for row in test])
        for row in test:
            part = engine.part_of_text(view, "images", row["captions"][0])
            found = Gatherer(view, "images", FIXED).gather([part], count=len(keys)).parts[0]
            for signal in SIGNALS:
                values, moments = found.values.get(signal), found.moments.get(signal)
                missing = values is None or moments is None
                # A query without a signal has the same value for all: none of them is found by it.
                line = np.zeros(len(rows)) if missing else (values[rows] - moments.mean) / moments.deviation
                deviations.setdefault(signal, []).append(line * found.shares.get(signal, 1.0))
    # Where no image of test has texts, they are missing: the other signals have the weights of such images.
    stacked = {signal: np.array(lines) for signal, lines in deviations.items() if np.array(lines).any()}
    ways = {
        f"{signal} alone": np.nan_to_num(values, nan=-1e9)
        for signal, values in stacked.items()
        if np.nan_to_num(values).any()
    }
    singles = list(ways)
    places = [(-values).argsort(axis=1, kind="stable").argsort(axis=1) for values in ways.values()]
    ways["reciprocal ranks of these"] = np.sum([1 / (61 + own) for own in places], axis=0)
    ways["fixed weights"] = FIXED.score(stacked)
    st.calibrate_index(index, data=given, split="val", skip_leak_check=True)  # Val has chosen the epoch.
    with st.open_index(index).store.reading() as view:
        taught = stored_ranker(view)
    assert ranker is not None and taught is not None
    ways["given pairs"] = taught.weights.score(stacked)
    positions = {name: _positions(values, truth) for name, values in ways.items()}
    positions[f"default: {ranker.fit}"] = np.array(ranks)
    default = positions[f"default: {ranker.fit}"]
    result: dict[str, Any] = {name: recalls(own) for name, own in positions.items()}
    for depth in DEPTHS:
        best = max(singles, key=lambda name: _right(positions[name], depth).mean())
        difference = _right(default, depth).astype(float) - _right(positions[best], depth)
        result[f"default minus {best}, recall@{depth}"] = _interval(100 * difference)
    result["weights"] = {own.fit: {**own.weights.full} for own in (ranker, taught)}
    result["right hits in per cent, of how many, by level"] = {
        level: [round(100 * float(np.mean(right)), 1), len(right)] for level, right in sorted(right_by_level.items())
    }
    result["query_ms"] = {name: round(1000 * float(np.median(own)), 1) for name, own in seconds.items()}
    return result


def _positions(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Ranks from 1 of the right images; equal scores count against them."""
    right = scores[np.arange(len(scores)), truth]
    return (scores >= right[:, None]).sum(axis=1)


def _right(ranks: np.ndarray, depth: int) -> np.ndarray:
    return (ranks > 0) & (ranks <= depth)


def _interval(values: np.ndarray) -> dict[str, Any]:
    """Mean and 95 % interval over resampled queries."""
    drawn = np.random.default_rng(SEED).integers(len(values), size=(RESAMPLED, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
    return {"mean": round(float(values.mean()), 2), "95 %": [round(float(low), 2), round(float(high), 2)]}


def made(_: Path, place: Path) -> dict[str, Any]:
    """Milliseconds of a search by pixels alone, and by all evidence, in one process."""
    from subtext.retrieval.evidence import Gatherer, Part
    from subtext.retrieval.manifest import EncoderRecord, Manifest
    from subtext.retrieval.ranker import FIXED, SIGNALS
    from subtext.retrieval.stores.item import Change, DerivedRow, IndexEntry
    from subtext.retrieval.stores.registry import create_store

    random = np.random.default_rng(SEED)

    def vectors(count: int) -> np.ndarray:
        drawn = random.standard_normal((count, 1, 384)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=2, keepdims=True)

    def sentence() -> str:
        # Words are as frequent as in a language: the n-th one 1 / n as often as the first.
        return " ".join(f"word{min(int(number), 30_000)}" for number in random.zipf(1.2, 12))

    encoder = EncoderRecord("starter", "e" * 32, 384, ("en",))
    store = create_store(place / "index", Manifest("f" * 32, "", "made", 384, encoder=encoder))
    with store.writing("build") as writer:
        for start in range(0, MADE, 10_000):
            numbers = range(start, start + 10_000)
            images = [IndexEntry(f"p{n}", b"c%d" % n, f"{n}.jpg", metadata={"year": 1900 + n % 100}) for n in numbers]
            writer.put(Change("images", images, vectors(len(numbers))))
            texts = [IndexEntry(f"t{n}", b"d%d" % n, text=sentence()) for n in numbers]
            rows = {f"t{n}": DerivedRow(row[0]) for n, row in zip(numbers, vectors(len(numbers)), strict=True)}
            links = [(f"p{n}", f"t{n}") for n in numbers]
            writer.put(Change("texts", texts, vectors(len(numbers)), links=links, derived={"sentences": rows}))
            near = zip(numbers, vectors(len(numbers)), strict=True)
            lent = {f"p{n}": DerivedRow(row[0], farthest=-np.inf) for n, row in near}
            writer.apply(Change(derived={"neighbours": lent}))
    seconds: dict[str, list[float]] = {"pixels": [], "all evidence": [], "evidence without words": []}
    with store.reading() as view:
        for _number in range(22):
            part = Part(1.0, vectors(1)[0], "texts", text=sentence(), sentence=vectors(1)[0])
            started = time.perf_counter()
            view.nearest("images", part.vectors[None], top=10)
            seconds["pixels"].append(time.perf_counter() - started)
            for name, signals in (
                ("all evidence", SIGNALS),
                ("evidence without words", ("pixels", "texts", "neighbours")),
            ):
                started = time.perf_counter()
                Gatherer(view, "images", FIXED, signals).gather([part], count=10).best(10)
                seconds[name].append(time.perf_counter() - started)
    # The first two fill what is kept of the index.
    kept = {name: 1000 * np.array(own[2:]) for name, own in seconds.items()}
    result = {
        f"{name}, ms": {
            "median": round(float(np.median(own)), 1),
            "quartiles": [round(float(limit), 1) for limit in np.percentile(own, (25, 75))],
        }
        for name, own in kept.items()
    }
    medians = {name: float(np.median(own)) for name, own in kept.items()}
    added = {name: round(own - medians["pixels"], 1) for name, own in medians.items() if name != "pixels"}
    return {
        "images": MADE,
        **result,
        "added to pixels, ms": added,
        "ratio": round(medians["all evidence"] / medians["pixels"], 2),
    }


def recalls(ranks: np.ndarray) -> dict[str, Any]:
    """Recall in per cent at each depth with its 95 % interval; ranks from 1, 0 where it is not among the first."""
    drawn = np.random.default_rng(SEED).integers(len(ranks), size=(RESAMPLED, len(ranks)))
    result: dict[str, Any] = {}
    for depth in DEPTHS:
        right = _right(ranks, depth)
        low, high = np.percentile(right[drawn].mean(axis=1), (2.5, 97.5))
        result[f"recall@{depth}"] = round(100 * float(right.mean()), 1)
        result[f"recall@{depth} 95 %"] = [round(100 * float(low), 1), round(100 * float(high), 1)]
    return result


DATA: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "flickr8k": flickr8k,
    "openstax": openstax,
    "icons": icons,
    "made": made,
}
"""Name -> what is measured on the folder of that name in SUBTEXT_DATA, in a place for its files."""


def main() -> None:
    """Measure one data set, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    asked = parser.parse_args()
    if asked.data != "made" and "SUBTEXT_DATA" not in os.environ:
        sys.exit(f"this benchmark needs data: set SUBTEXT_DATA to the folder that holds {asked.data}/")
    with tempfile.TemporaryDirectory() as place:
        if asked.data == "flickr8k":
            os.environ["SUBTEXT_CACHE"] = str(Path(place, "cache"))
        result = {
            "data": asked.data,
            **DATA[asked.data](Path(os.environ.get("SUBTEXT_DATA", ""), asked.data), Path(place)),
        }
    if asked.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
