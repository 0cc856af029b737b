"""What every metric promises, found by walking the package."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable

import pytest
import torch

import subtext.metrics
from subtext.core import Comparison, Embeddings, Truth


def every() -> list[type]:
    found = []
    for module in pkgutil.iter_modules(subtext.metrics.__path__):
        loaded = importlib.import_module(f"subtext.metrics.{module.name}")
        found += [
            value
            for value in vars(loaded).values()
            if dataclasses.is_dataclass(value) and value.__module__ == loaded.__name__ and "__call__" in vars(value)
        ]
    return found


METRICS = every()
named = pytest.mark.parametrize("metric", [metric() for metric in METRICS], ids=[m.__name__ for m in METRICS])


def comparison(queries: int = 9, candidates: int = 24, dtype: torch.dtype = torch.float32) -> Comparison:
    g = torch.Generator().manual_seed(3)
    scores = torch.randn(queries, candidates, generator=g).to(dtype)
    match = torch.zeros(queries, candidates, dtype=torch.bool)
    for query in range(queries):
        match[query, torch.randperm(candidates, generator=g)[: 1 + query % 3]] = True
    ignored = (torch.rand(queries, candidates, generator=g) < 0.1) & ~match
    ids = torch.arange(100, 100 + queries)
    return Comparison(scores, Truth(match, ignored), Embeddings(torch.zeros(queries, 1, 2), ids))


def reordered(whole: Comparison, rows: torch.Tensor, columns: torch.Tensor) -> Comparison:
    assert whole.queries is not None
    assert whole.truth.ignored is not None
    truth = Truth(whole.truth.match[rows][:, columns], whole.truth.ignored[rows][:, columns])
    return Comparison(whole.scores[rows][:, columns], truth, whole.queries[rows])


def test_they_are_found() -> None:
    assert {"Recall", "BestRank", "ReciprocalRank", "CWay", "CWayRank", "SampledCWay"} <= {m.__name__ for m in METRICS}


@named
def test_one_finite_value_a_query(metric: Callable[[Comparison], torch.Tensor]) -> None:
    values = metric(comparison())
    assert values.shape == (9,)
    assert values.dtype == torch.float64
    assert torch.isfinite(values).all()
    assert metric(comparison(queries=1)).shape == (1,)


@named
def test_the_order_of_candidates_does_not_matter_and_that_of_queries_follows(
    metric: Callable[[Comparison], torch.Tensor],
) -> None:
    whole = comparison()
    rows, columns = torch.randperm(9), torch.randperm(24)
    assert torch.equal(metric(reordered(whole, rows, columns)), metric(whole)[rows])


@named
def test_what_is_ignored_might_as_well_not_be_there(metric: Callable[[Comparison], torch.Tensor]) -> None:
    whole = comparison()
    assert whole.queries is not None
    assert whole.truth.ignored is not None
    for query in range(9):
        kept = ~whole.truth.ignored[query]
        cut = Comparison(
            whole.scores[query : query + 1, kept],
            Truth(whole.truth.match[query : query + 1, kept]),
            whole.queries[query : query + 1],
        )
        assert metric(cut)[0] == metric(whole)[query]


@named
def test_any_precision_and_any_rising_change_of_scores(metric: Callable[[Comparison], torch.Tensor]) -> None:
    whole = comparison()
    assert torch.equal(metric(whole), metric(comparison(dtype=torch.float64)))
    stretched = Comparison(whole.scores * 4 - 1, whole.truth, whole.queries)
    assert torch.equal(metric(stretched), metric(whole))


@named
def test_no_value_without_positives(metric: Callable[[Comparison], torch.Tensor]) -> None:
    empty = Comparison(torch.zeros(2, 8), Truth(torch.zeros(2, 8, dtype=torch.bool)))
    assert metric(empty).isnan().all()


@named
def test_a_better_score_of_a_positive_never_hurts(metric: Callable[[Comparison], torch.Tensor]) -> None:
    whole = comparison()
    raised = Comparison(whole.scores + 0.5 * whole.truth.match, whole.truth, whole.queries)
    before, after = metric(whole), metric(raised)
    is_rank = (before > 1).any()
    assert bool((after <= before).all() if is_rank else (after >= before).all())


@named
def test_it_is_a_frozen_value(metric: object) -> None:
    assert metric == type(metric)()
    with pytest.raises(dataclasses.FrozenInstanceError):
        metric.ties = "optimistic"
