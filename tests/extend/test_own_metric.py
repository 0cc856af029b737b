"""A metric from outside the package: one file, and one line that names it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch

from subtext.errors import RequirementError
from subtext.evaluation import Protocol, evaluate_matrix, gallery_of, metric
from subtext.evaluation.compare import compare, measured_of
from subtext.evaluation.metrics import CWay, Recall, default_metrics, metric_named

FILE = '''
from dataclasses import dataclass

import torch

from subtext.core import Comparison
from subtext.evaluation import Metric


@dataclass(frozen=True)
class Margin(Metric):
    """By how much the best positive is ahead of the best negative."""

    name = "rank_margin"
    percent = False

    def __call__(self, comparison: Comparison) -> torch.Tensor:
        scores, match = comparison.scores.double(), comparison.truth.match
        best, other = (scores.masked_fill(~of, -torch.inf).amax(dim=1) for of in (match, ~match))
        return torch.where(match.any(dim=1), best - other, torch.nan)


@dataclass(frozen=True)
class BestRelevance(Metric):
    """Relevance of the first candidate."""

    name = "best_relevance"
    truth = "relevance"
    reads = ("gains",)
    k = 1

    def of(self, gains):
        return gains.by_score[:, 0]
'''


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "margin_of_mine.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(metric, "_REGISTERED", [])
    import margin_of_mine

    metric.register(margin_of_mine.Margin)
    metric.register(margin_of_mine.BestRelevance)
    del sys.modules["margin_of_mine"]


@pytest.mark.usefixtures("registered")
def test_own_metric_is_in_result() -> None:
    from subtext.evaluation.relevance.graded import Graded

    pairs = small_training.pairs(20)
    scores = torch.rand(20, 40, generator=torch.Generator().manual_seed(0))
    graded = Graded("made", scores.numpy().astype(np.float32))
    metrics = [*default_metrics(), *metric.registered("relevance", "made")]
    gallery = gallery_of(pairs, relevances=(graded,))
    result = evaluate_matrix(scores, gallery, metrics=metrics, protocol=Protocol(fold_sizes=(20, 10)))
    plain = evaluate_matrix(scores, pairs, protocol=Protocol())
    right = torch.arange(20)[:, None] == torch.arange(40) // 2
    best = scores.masked_fill(~right, -torch.inf).amax(dim=1) - scores.masked_fill(right, -torch.inf).amax(dim=1)
    assert plain.figures["image_to_text/rank_margin"] == pytest.approx(float(best.mean()), abs=1e-6)
    assert len(plain.intervals["image_to_text/rank_margin"]) == 2
    assert plain.to_json()["metrics"]["rank_margin"] == {
        "percent": False,
        "digits": 1,
        "lower_is_better": False,
        "compared": True,
    }
    assert result.figures["image_to_text/rank_margin"] == plain.figures["image_to_text/rank_margin"]
    assert result.figures["image_to_text/best_relevance(made)"] > 90, "per cent; scores are the relevance"
    assert "image_to_text/rank_margin(2 folds)" in result.figures
    assert metric_named("rank-margin").name == "rank_margin" and metric_named("best_relevance:made").against == "made"
    assert "rank margin" in str(plain) and json.loads(plain.json_text())["text_to_image/rank_margin"] is not None


@pytest.mark.usefixtures("registered")
def test_compare_tests_own_metric_in_its_scale() -> None:
    pairs = small_training.pairs(20)
    generator = torch.Generator().manual_seed(0)
    noise = [torch.rand(20, 40, generator=generator) for _ in range(2)]
    right = (torch.arange(20)[:, None] == torch.arange(40) // 2).float()
    better, worse = (evaluate_matrix(each + bonus * right, pairs) for each, bonus in zip(noise, (3, 0), strict=True))
    contrast = compare([measured_of(better)], [measured_of(worse)], figures=("rank_margin",))
    line = next(line for line in contrast.lines if line.name == "image_to_text/rank_margin")
    assert line.better == "first" and line.first == pytest.approx(better.figures[line.name])


def test_metric_object_needs_no_registration() -> None:
    class Constant(metric.Metric):
        name = "constant"
        percent = False
        reads = ("best_rank",)

        def of(self, counts):
            return np.ones(len(counts))

    result = evaluate_matrix(torch.rand(20, 40), small_training.pairs(20), metrics=[Recall(1), Constant()])
    assert result.figures["text_to_image/constant"] == 1.0 and "text_to_image/mean_rank" not in result.figures


def test_two_metrics_of_one_name_raise() -> None:
    with pytest.raises(RequirementError, match=r"'5_way@1' is that of CWay\(\) and of CWay\(again=True\); rename one"):
        evaluate_matrix(torch.rand(20, 40), small_training.pairs(20), metrics=[CWay(5), CWay(5, again=True)])
