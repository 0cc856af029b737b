"""COCO's figures, beside the `eccv_caption` package on the first pictures of the test set."""

from __future__ import annotations

from pathlib import Path

import eccv_caption
import numpy as np
import pytest
import torch

from benchmarks.coco5k import ASKED, KS, figures, gallery, made, truths_of
from subtext.evaluation import Protocol, evaluate_matrix, gallery_of
from subtext.evaluation.metrics import AveragePrecision, Recall, RPrecision

pytestmark = pytest.mark.golden

PICTURES = 200


@pytest.fixture(scope="module")
def measured() -> tuple[dict[str, float], eccv_caption.Metrics, dict[str, dict[int, list[int]]]]:
    metrics = eccv_caption.Metrics()
    pairs = gallery(metrics, PICTURES)
    truths = truths_of(Path(eccv_caption.__file__).parent / "data", pairs)
    scores = made(pairs, truths)
    asked = [Recall(*KS)]
    for name in truths:
        asked += [Recall(*KS, against=name), RPrecision(against=name), AveragePrecision(against=name)]
    result = evaluate_matrix(
        torch.from_numpy(scores),
        gallery_of(pairs, truths=truths),
        metrics=asked,
        protocol=Protocol(fold_sizes=(PICTURES, PICTURES // 5), bootstrap=0),
    )
    lists = {}
    for side, matrix, asking, answering in (
        ("i2t", scores, pairs.images.ids, pairs.texts.ids),
        ("t2i", scores.T, pairs.texts.ids, pairs.images.ids),
    ):
        ids = np.array([int(name) for name in answering])
        lists[side] = {int(name): ids[np.argsort(-row)].tolist() for name, row in zip(asking, matrix, strict=True)}
    return figures(result.figures, "(5 folds)"), metrics, lists


def test_figures_equal_package_figures(measured) -> None:
    ours, metrics, lists = measured
    told = metrics.compute_all_metrics(lists["i2t"], lists["t2i"], target_metrics=ASKED, Ks=KS)
    theirs = {f"{name}/{side}": value for name, both in told.items() for side, value in both.items()}
    assert theirs.keys() == ours.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-12), name
    assert 0 < ours["eccv_map_at_r/i2t"] < ours["eccv_rprecision/i2t"] < 1


def test_known_bugs_of_package_still_exist(measured) -> None:
    """Version 0.1.0 gives nothing for R-Precision alone, and too little for 1K recall from lists that were cut."""
    ours, metrics, lists = measured
    assert metrics.compute_all_metrics(lists["i2t"], lists["t2i"], target_metrics=["eccv_rprecision"]) == {}
    cut = {side: {query: ranked[:12] for query, ranked in each.items()} for side, each in lists.items()}
    told = metrics.compute_all_metrics(cut["i2t"], cut["t2i"], target_metrics=["coco_1k_recalls"], Ks=(10,))
    assert told["coco_1k_r10"]["t2i"] < ours["coco_1k_r10/t2i"] - 0.01
