"""What every metric must do. Metrics are found by walking the package, each in every combination of its switches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from find_parts import classes, instances
from scenes import KINDS, comparison, take

from subtext.errors import RequirementError
from subtext.evaluation import Metric, metrics

pytestmark = pytest.mark.contract

CASES = [case for case in instances("evaluation.metrics") if isinstance(case.values[0], Metric)]
every_metric = pytest.mark.parametrize("metric", CASES)
every_kind = pytest.mark.parametrize("kind", KINDS)
several_or_ignored = pytest.mark.parametrize("kind", ["several", "ignored"])


def test_metrics_are_discovered():
    names = {part.__name__ for part in classes("evaluation.metrics")}
    assert {"Recall", "BestRank", "CWay", "ASP", "NDCG", "RPrecision"} <= names


def test_metric_is_found_by_its_figure_name():
    assert {part.__name__ for part in classes("evaluation.metrics")} <= set(metrics.__all__)
    for case in CASES:
        metric = case.values[0]
        if not isinstance(metric, metrics.SampledCWay):
            assert type(metrics.metric_named(metric.name)) is type(metric)


@pytest.mark.parametrize("metric", classes("evaluation.metrics"))
def test_metric_is_frozen_dataclass(metric):
    assert dataclasses.is_dataclass(metric) and metric.__dataclass_params__.frozen


def metric_reads_relevance(metric):
    """What reads degrees of relevance has a value for a query without a positive; it refuses a truth without any."""
    bare = comparison("pairs")
    bare = dataclasses.replace(bare, truth=dataclasses.replace(bare.truth, relevance=None, scale=None))
    try:
        metric(bare)
    except RequirementError as error:
        assert f"{type(metric).__name__} needs graded relevance" in str(error)
        return True
    return False


def reads_scores(metric):
    """A metric with a call of its own reads scores; others read what `ops.rank` made of their order."""
    return metric.reads == Metric.reads


@every_metric
@every_kind
def test_one_value_per_query_nan_without_positive_or_negative(metric, kind):
    whole = comparison(kind)
    values = metric(whole)
    assert values.shape == (len(whole.scores),)
    if metric_reads_relevance(metric):
        assert values.isfinite().all()
        return
    # What reads scores themselves may need a negative to compare with.
    least = 1 if reads_scores(metric) else getattr(metric, "c", 1) - 1
    enough = whole.truth.match.any(dim=1) & (whole.truth.negative.sum(dim=1) >= least)
    assert values[enough].isfinite().all()
    assert values[~whole.truth.match.any(dim=1)].isnan().all()


@every_metric
@several_or_ignored
def test_metric_is_invariant_to_candidate_order(metric, kind):
    whole = comparison(kind)
    order = torch.randperm(whole.scores.shape[1])
    torch.testing.assert_close(metric(take(whole, candidates=order)), metric(whole), equal_nan=True)


@every_metric
@several_or_ignored
def test_metric_follows_query_order(metric, kind):
    whole = comparison(kind)
    order = torch.randperm(whole.scores.shape[0])
    torch.testing.assert_close(metric(take(whole, queries=order)), metric(whole)[order], equal_nan=True)


@every_metric
@several_or_ignored
def test_float32_and_float64_agree(metric, kind):
    whole = comparison(kind)
    single = dataclasses.replace(whole, scores=whole.scores.float())
    torch.testing.assert_close(metric(single), metric(whole), equal_nan=True)
    for half in (torch.float16, torch.bfloat16):
        rounded = whole.scores.to(half)
        same = [metric(dataclasses.replace(whole, scores=scores)) for scores in (rounded, rounded.double())]
        torch.testing.assert_close(*same, equal_nan=True)


@every_metric
def test_ignored_cells_do_not_affect_metric(metric):
    whole = comparison("ignored")
    assert whole.truth.ignored is not None and whole.truth.ignored.any()
    for far in (-50.0, 50.0):
        changed = dataclasses.replace(whole, scores=whole.scores.masked_fill(whole.truth.ignored, far))
        torch.testing.assert_close(metric(changed), metric(whole), equal_nan=True)


@every_metric
@several_or_ignored
def test_metric_depends_on_score_order_alone(metric, kind):
    if reads_scores(metric):
        pytest.skip("it reads scores themselves, and no order")
    whole = comparison(kind)
    stretched = dataclasses.replace(whole, scores=5 * whole.scores.exp())
    torch.testing.assert_close(metric(stretched), metric(whole), equal_nan=True)
