"""Everything that is reported of COCO's 5K test set from one score matrix, beside `eccv_caption` on full lists.

Recall of the five 1K folds and of the whole, of Crisscrossed Captions and of ECCV Caption, R-Precision and mAP@R, both
directions. Ours reads the matrix; the peer is given what it asks for, a ranked list of ids a query, and the building of
these lists counts, as there is no other way to it. Positives are the peer's own files. --quick measures the first 1,000
pictures with their texts as the whole set, in five folds of 200.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eccv_caption
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common import interleaved, options, report
from subtext.data.dataset import Dataset, Items
from subtext.evaluation import Protocol, evaluate_matrix, gallery_of
from subtext.evaluation.metrics import AveragePrecision, Recall, RPrecision, default_metrics
from subtext.evaluation.relevance.judgements import Kind, read_eccv
from subtext.evaluation.relevance.match import Match

KS = (1, 5, 10)
ASKED = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_rprecision", "eccv_map_at_r")
SIDES = {"i2t": "image_to_text", "t2i": "text_to_image"}


def gallery(metrics: Any, pictures: int) -> Dataset:
    """The first so many pictures of the test set, in its order, with their texts; the peer's truth is cut to them."""
    texts = [int(one) for one in metrics.coco_ids][: 5 * pictures]
    owner = [metrics.coco_gts["t2i"][text][0] for text in texts]
    images = list(dict.fromkeys(owner))
    row = {image: place for place, image in enumerate(images)}
    groups = np.array([row[image] for image in owner], dtype=np.int64)
    known = {"i2t": (set(images), set(texts)), "t2i": (set(texts), set(images))}
    for gts in (metrics.coco_gts, metrics.cxc_gts, metrics.eccv_gts):
        for side, (asking, answering) in known.items():
            cut = {q: [c for c in right if c in answering] for q, right in gts[side].items() if q in asking}
            gts[side] = {query: right for query, right in cut.items() if right}
    metrics.coco_ids = np.array(texts)

    def items(names: list[int], of: NDArray[np.int64]) -> Items:
        return Items([str(name) for name in names], [None] * len(names), of, np.array(["test"] * len(names)))

    links = np.stack([groups, np.arange(len(texts))], axis=1)
    return Dataset(items(images, np.arange(len(images))), items(texts, groups), links, Path())


def made(pairs: Dataset, truths: dict[str, Match]) -> NDArray[np.float32]:
    """Noise with partners raised. What is right under any truth stands between steps of the noise: no wrong one ties
    with it, so sorting, which breaks ties as it likes, has one right answer.
    """
    g = np.random.default_rng(0)
    texts = np.arange(len(pairs.texts))
    scores = g.standard_normal((len(pairs.images), len(texts)), dtype=np.float32)
    scores[pairs.texts.groups, texts] += 3
    np.rint(scores * np.float32(2**19), out=scores)
    scores *= np.float32(2.0**-19)
    right = np.zeros(scores.shape, dtype=bool)
    right[pairs.texts.groups, texts] = True
    for match in truths.values():
        right[match.image_to_text.expand()] = True
        right[match.text_to_image.expand()[::-1]] = True
    scores[right] += np.float32(2.0**-20)
    return scores


def truths_of(folder: Path, pairs: Dataset) -> dict[str, Match]:
    """The positives of ECCV Caption and of Crisscrossed Captions among these."""
    kinds: tuple[Kind, ...] = ("eccv", "cxc")
    return {kind: read_eccv(folder, kind).match(pairs.images.ids, pairs.texts.ids) for kind in kinds}


def figures(result: dict[str, float], fold: str) -> dict[str, float]:
    """Our figures under the peer's names, as shares."""
    found = {}
    for mine, theirs in SIDES.items():
        for k in KS:
            found[f"coco_1k_r{k}/{mine}"] = result[f"{theirs}/recall@{k}{fold}"]
            found[f"coco_5k_r{k}/{mine}"] = result[f"{theirs}/recall@{k}"]
            found[f"cxc_r{k}/{mine}"] = result[f"{theirs}/recall@{k}(cxc)"]
        found[f"eccv_r1/{mine}"] = result[f"{theirs}/recall@1(eccv)"]
        found[f"eccv_rprecision/{mine}"] = result[f"{theirs}/r_precision(eccv)"]
        found[f"eccv_map_at_r/{mine}"] = result[f"{theirs}/map@r(eccv)"]
    return {name: value / 100 for name, value in found.items()}


def main() -> None:
    """Measure and print."""
    asked = options("COCO's figures from a matrix, beside eccv_caption", repeats=3, quick_repeats=2)
    metrics = eccv_caption.Metrics()
    pairs = gallery(metrics, 1_000 if asked.quick else 5_000)
    folder = Path(eccv_caption.__file__).parent / "data"
    scores = made(pairs, truths_of(folder, pairs))
    found: dict[str, dict[str, float]] = {}
    fold = "(1k)" if len(pairs.images) == 5_000 else "(5 folds)"

    def ours() -> None:
        truths = truths_of(folder, pairs)
        metrics = [*default_metrics(), RPrecision(), AveragePrecision()]
        for name in truths:
            metrics += [Recall(*KS, against=name), RPrecision(against=name), AveragePrecision(against=name)]
        protocol = Protocol(fold_sizes=(len(pairs.images), len(pairs.images) // 5), bootstrap=0)
        whole = gallery_of(pairs, truths=truths)
        result = evaluate_matrix(torch.from_numpy(scores), whole, metrics=metrics, protocol=protocol)
        found["ours"] = figures(result.figures, fold)

    def peer() -> None:
        names = [np.array([int(name) for name in side.ids]) for side in (pairs.images, pairs.texts)]
        lists = {}
        for side, matrix, asking, answering in (("i2t", scores, *names), ("t2i", scores.T, *names[::-1])):
            order = np.argsort(-matrix, axis=1)
            lists[side] = {int(query): answering[row].tolist() for query, row in zip(asking, order, strict=True)}
        told = metrics.compute_all_metrics(lists["i2t"], lists["t2i"], target_metrics=ASKED, Ks=KS)
        found["peer"] = {f"{name}/{side}": float(value) for name, both in told.items() for side, value in both.items()}

    timings = interleaved({"ours": ours, "peer": peer}, repeats=asked.repeats if asked.quick else 1)
    shared = sorted(found["ours"].keys() & found["peer"].keys())
    gaps = {name: abs(found["ours"][name] - found["peer"][name]) for name in shared}
    facts = {
        "name": "coco5k",
        "peer": "eccv_caption on full lists, their building included",
        "size": f"{len(pairs.images)} x {len(pairs.texts)} float32, both directions",
        "max_difference": max(gaps.values()),
        "compared": shared,
        "figures": {name: round(value, 6) for name, value in found["ours"].items()},
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"])


if __name__ == "__main__":
    main()
