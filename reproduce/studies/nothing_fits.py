"""What scores mean, and whether "nothing here fits" is detected: Flickr8k's validation images as an index.

    SUBTEXT_DATA=... python -m reproduce.studies.nothing_fits RUN [RUN ...] --out DIR

Each RUN was trained and selected on other images (`studies.flickr8k` leaves such runs). An index of the 1,000 images of
`val` and their texts is built below DIR and calibrated: one half is fitted on, the other measured. The tables show the
calibration errors, and the area under the ROC curve of three scores, of queries with an answer (the measured half's
captions) against two kinds of queries without one:

* captions of another domain: those of COCO's test set that name a room's things or food, and nobody who lives;
* the same captions with their own image taken out of the index.

"best" is the best score, "level" a soft maximum over all scores, and "standing" what `subtext search` decides by. Also:
how many of each are refused at its limit. Everything is written below DIR, and existing results are used again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext as st
from reproduce.studies.common import data_folder
from subtext.data.words import tokenise
from subtext.evaluation import embed_pairs
from subtext.ops.roc import auc
from subtext.retrieval.confidence import BEST, Background, Confidence, Evidence, HeldOutPairs, Observations, observe

ROOMS = """kitchen bathroom bedroom toilet sink refrigerator stove oven couch furniture counter fireplace desk bed
bathtub shower microwave"""
FOOD = """pizza sandwich food plate cake broccoli salad banana bananas fruit vegetables donut donuts meal soup bread
cheese meat apple apples oranges"""
ALIVE = """man woman men women person people boy boys girl girls child children kid kids dog dogs cat lady guy baby
toddler he she his her couple group crowd player players someone chef family hand"""
KINDS = ("rooms", "food", "taken out")

Scores = dict[str, NDArray[np.float64]]
"""The three scores of each query."""


def main() -> None:
    """Print a row for each run, then the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    config = parser.parse_args()
    config.out.mkdir(parents=True, exist_ok=True)
    results = [measure(run, config.out) for run in config.runs]
    (config.out / "nothing_fits.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("| run | calibration error (equal counts; first hits) | pictures for texts | single pairs |")
    print("|---|---|---|---|")
    for result in results:
        texts, images, pairs = result["words for pictures"], result["a picture for texts"], result["pairs"]
        print(f"| {result['run']} | {errors(texts)} | {errors(images)} | {pairs['calibration_error']:.3f} |")
    print("\n| against | questions | area: best | level | standing | refused at the limit |\n|---|---|---|---|---|---|")
    for kind in ("rooms and food", *KINDS):
        rows = [result["areas"][kind] for result in results]
        cells = [f"{np.mean([row[name] for row in rows]):.3f}" for name in ("best", "level", "standing")]
        refused = f"{100 * np.mean([row['refused'] for row in rows]):.0f} %"
        print(f"| {kind} | {rows[0]['questions']:,} | {' | '.join(cells)} | {refused} |")
    refused_answers = 100 * np.mean([result["areas"]["refused with an answer"] for result in results])
    print(f"\nOf questions with an answer {refused_answers:.1f} % are refused. Means of {len(results)} runs.")


def errors(figures: Mapping[str, float]) -> str:
    """The three calibration errors of a direction."""
    names = ("calibration_error", "calibration_error_equal_counts", "calibration_error_first")
    first, second, third = (f"{figures[name]:.3f}" for name in names)
    return f"{first} ({second}; {third})"


def measure(run: Path, out: Path) -> dict[str, Any]:
    """Index, calibration and areas of one run."""
    folder, questions_file = data_folder("flickr8k"), data_folder("coco5k_text") / "karpathy_test_5k.jsonl"
    captions, images = folder / "captions.jsonl", folder / "images"
    index = out / f"{run.name}-index"
    if not index.is_dir():
        st.build_index(index, run=run, split="val", data=captions, images=images)
        st.calibrate_index(index, split="val", data=captions, images=images)
    engine = st.open_index(index, run=run)
    with engine.store.reading() as view:
        calibration = Confidence(view).calibration
    assert calibration is not None
    direction = calibration.directions["images"]
    pairs = st.read(captions, need_images=False).split("val")
    held_out = HeldOutPairs(pairs, *embed_pairs(st.load(run), pairs))
    with engine.store.reading() as view:
        observed = observe(view, held_out, "images")
        background, same_side = Background.of(view, "images"), Background.of(view, "texts")
    questions, kinds = foreign_questions(questions_file)
    vectors = engine.model.embed_texts(questions).vectors.float().numpy()
    foreign = []
    for scores, own_scores in zip(background.scores(vectors), same_side.scores(vectors), strict=True):
        top = np.argsort(-scores, kind="stable")[:BEST]
        foreign.append(Evidence.collect(background.keys[top], scores[top], background, scores, own_scores))

    def scores_of(evidence: Sequence[Evidence]) -> Scores:
        return {
            "best": np.array([float(query.scores[0]) for query in evidence]),
            "level": np.array([query.level(direction.temperature) for query in evidence]),
            "standing": np.array([query.percentile(direction) for query in evidence]),
        }

    return {
        "run": run.name,
        "words for pictures": dict(direction.metrics),
        "a picture for texts": dict(calibration.directions["texts"].metrics),
        "pairs": {name: value for name, value in calibration.pairs.items() if name not in ("xs", "ys")},
        "temperature": direction.temperature,
        "areas": areas(observed, foreign, kinds, scores_of, direction.threshold),
    }


def areas(
    observed: Observations,
    foreign: Sequence[Evidence],
    kinds: NDArray[Any],
    scores_of: Callable[[Sequence[Evidence]], Scores],
    limit: float,
) -> dict[str, Any]:
    """Areas under the ROC curve of each score against each kind of query without an answer.

    limit  percentile ("standing") below which a query is refused
    """
    rows = np.flatnonzero(~observed.fitted)
    answered = scores_of([observed.evidence[row] for row in rows])
    taken_out = scores_of([without(observed.evidence[row], observed.correct[row]) for row in rows])
    unanswered = scores_of(foreign)
    results: dict[str, Any] = {"refused with an answer": float((answered["standing"] < limit).mean())}
    sets = {"rooms and food": unanswered}
    sets |= {kind: {name: values[kinds == kind] for name, values in unanswered.items()} for kind in KINDS[:2]}
    for kind, scores in {**sets, "taken out": taken_out}.items():
        results[kind] = {"questions": len(scores["best"]), "refused": float((scores["standing"] < limit).mean())}
        for name, values in scores.items():
            marked = np.arange(len(answered[name]) + len(values)) < len(answered[name])
            results[kind][name] = auc(np.concatenate([answered[name], values]), marked)
    return results


def without(evidence: Evidence, correct: NDArray[np.bool_]) -> Evidence:
    """The evidence but for the true matches; a true match below the best few is too weak to matter."""
    total = evidence.total - int(correct.sum())
    return replace(evidence, keys=evidence.keys[~correct], scores=evidence.scores[~correct], total=total)


def foreign_questions(file: Path) -> tuple[list[str], NDArray[Any]]:
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
