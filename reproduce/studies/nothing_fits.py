"""What scores are worth, and whether "nothing here fits" is told: Flickr8k's validation pictures as an index.

    SUBTEXT_DATA=... python -m reproduce.studies.nothing_fits RUN [RUN ...] --out DIR

Each RUN was trained and selected on other pictures (`studies.flickr8k` leaves such runs). An index of the 1,000
pictures of `val` and their texts is built below DIR and calibrated: one half is fitted on, the other measured. Told are
the calibration errors, and the area under the ROC curve of three scores, of questions with an answer (the measured
half's captions) against two kinds of questions without one:

* captions of another domain: those of COCO's test set that name a room's things or food, and nobody who lives;
* the same captions with their own picture taken out of the index.

"best" is the best score, "level" a soft maximum over all scores, and "standing" what `subtext search` decides by. Also:
how many of each are refused at its limit. Everything is written below DIR, and what is there is used again.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.studies.common import subtext
from subtext.api.load import open_run
from subtext.api.search import open_index
from subtext.data.words import tokenise
from subtext.evaluation import embed_pairs
from subtext.ops.roc import auc
from subtext.search.confidence import BEST, Background, Evidence, HeldOutPairs, Observations, observe
from subtext.search.stores.manifest import Way

ROOMS = """kitchen bathroom bedroom toilet sink refrigerator stove oven couch furniture counter fireplace desk bed
bathtub shower microwave"""
FOOD = """pizza sandwich food plate cake broccoli salad banana bananas fruit vegetables donut donuts meal soup bread
cheese meat apple apples oranges"""
ALIVE = """man woman men women person people boy boys girl girls child children kid kids dog dogs cat lady guy baby
toddler he she his her couple group crowd player players someone chef family hand"""
KINDS = ("rooms", "food", "taken out")


def main() -> None:
    """Print a row for each run, then the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    found = [measured(run, asked.out) for run in asked.runs]
    (asked.out / "nothing_fits.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("| run | calibration error (equal counts; first hits) | pictures for texts | single pairs |")
    print("|---|---|---|---|")
    for one in found:
        texts, pictures, pairs = one["words for pictures"], one["a picture for texts"], one["pairs"]
        print(f"| {one['run']} | {errors(texts)} | {errors(pictures)} | {pairs['calibration_error']:.3f} |")
    print("\n| against | questions | area: best | level | standing | refused at the limit |\n|---|---|---|---|---|---|")
    for kind in ("rooms and food", *KINDS):
        rows = [one["areas"][kind] for one in found]
        cells = [f"{np.mean([row[name] for row in rows]):.3f}" for name in ("best", "level", "standing")]
        refused = f"{100 * np.mean([row['refused'] for row in rows]):.0f} %"
        print(f"| {kind} | {rows[0]['questions']:,} | {' | '.join(cells)} | {refused} |")
    kept = 100 * np.mean([one["areas"]["refused with an answer"] for one in found])
    print(f"\nOf questions with an answer {kept:.1f} % are refused. Means of {len(found)} runs.")


def errors(way: dict[str, float]) -> str:
    """The three calibration errors of a way of asking."""
    names = ("calibration_error", "calibration_error_equal_counts", "calibration_error_first")
    first, second, third = (f"{way[name]:.3f}" for name in names)
    return f"{first} ({second}; {third})"


def measured(run: Path, out: Path) -> dict[str, Any]:
    """Index, calibration and areas of one run."""
    data = Path(os.environ["SUBTEXT_DATA"])
    captions = data / "flickr8k" / "captions.jsonl"
    more = ["--data", str(captions), "--images", str(data / "flickr8k" / "images")]
    index = out / f"{run.name}-index"
    if not index.is_dir():
        subtext(["index", "build", str(index), "--run", str(run), "--split", "val", *more])
        subtext(["index", "calibrate", str(index), "--split", "val", *more])
    engine = open_index(index, run=run)
    calibration = engine.store.calibration()
    assert calibration is not None
    way = calibration.ways["images"]
    held = embedded(run, captions)
    with engine.store.reading() as view:
        told = observe(view, held, "images")
        backgrounds = [Background.of(view, side) for side in ("images", "texts")]
    questions, kinds = elsewhere(data / "coco5k_text" / "karpathy_test_5k.jsonl")
    vectors = engine.model.embed_texts(questions).vectors.float().numpy()
    strange = [
        seen_of(scores, own, backgrounds[0])
        for scores, own in zip(*(b.scores(vectors) for b in backgrounds), strict=True)
    ]
    return {
        "run": run.name,
        "words for pictures": dict(way.measured),
        "a picture for texts": dict(calibration.ways["texts"].measured),
        "pairs": {name: value for name, value in calibration.pairs.items() if name not in ("xs", "ys")},
        "temperature": way.temperature,
        "areas": areas(told, strange, kinds, way),
    }


def areas(told: Observations, strange: list[Evidence], kinds: NDArray[Any], way: Way) -> dict[str, Any]:
    """Areas under the curve of each score against each kind of question without an answer."""
    rows = np.flatnonzero(~told.fitted)
    answered = table([told.evidence[row] for row in rows], way)
    gone = table([without(told.evidence[row], told.correct[row]) for row in rows], way)
    others = table(strange, way)
    found: dict[str, Any] = {"refused with an answer": float((answered["standing"] < way.refused).mean())}
    sets = {"rooms and food": others}
    sets |= {kind: {name: values[kinds == kind] for name, values in others.items()} for kind in KINDS[:2]}
    for kind, own in {**sets, "taken out": gone}.items():
        found[kind] = {"questions": len(own["best"]), "refused": float((own["standing"] < way.refused).mean())}
        for name, values in own.items():
            marked = np.arange(len(answered[name]) + len(values)) < len(answered[name])
            found[kind][name] = auc(np.concatenate([answered[name], values]), marked)
    return found


def table(seen: list[Evidence], way: Way) -> dict[str, NDArray[np.float64]]:
    """The three scores of each question."""
    return {
        "best": np.array([float(each.scores[0]) for each in seen]),
        "level": np.array([each.level(way.temperature) for each in seen]),
        "standing": np.array([each.percentile(way) for each in seen]),
    }


def without(seen: Evidence, right: NDArray[np.bool_]) -> Evidence:
    """What was shown but for the true matches; a true match below the first few is too weak to matter."""
    return replace(seen, keys=seen.keys[~right], scores=seen.scores[~right], total=seen.total - int(right.sum()))


def seen_of(scores: NDArray[np.float32], own: NDArray[np.float32], background: Background) -> Evidence:
    """What the index shows, from scores with all of it."""
    best = np.argsort(-scores, kind="stable")[:BEST]
    return Evidence.collect(background.keys[best], scores[best], background, scores, own)


def embedded(run: Path, captions: Path) -> HeldOutPairs:
    """The validation pairs, embedded."""
    from subtext.data.read import read

    opened = open_run(run)
    pairs = read(captions, need_images=False).split("val")
    return HeldOutPairs(pairs, *embed_pairs(opened.model, pairs))


def elsewhere(file: Path) -> tuple[list[str], NDArray[Any]]:
    """Captions of rooms and of food, and which they are of."""
    texts, kinds = [], []
    rooms, food, alive = (set(words.split()) for words in (ROOMS, FOOD, ALIVE))
    for line in file.read_text(encoding="utf-8").splitlines():
        for caption in json.loads(line)["captions"]:
            words = set(tokenise(caption))
            kind = "rooms" if words & rooms else "food" if words & food else None
            if kind is not None and not words & alive:
                texts.append(caption)
                kinds.append(kind)
    return texts, np.array(kinds)


if __name__ == "__main__":
    main()
