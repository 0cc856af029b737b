"""ASP on the real test captions of COCO: what the card measured there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from subtext.data.read import read
from subtext.evaluation.metrics.asp import among_first
from subtext.evaluation.relevance.graded import graded
from subtext.ops.compiled.semantic_rank import agreement, ranks

DATA = os.environ.get("SUBTEXT_DATA")

pytestmark = [
    pytest.mark.golden,
    pytest.mark.slow,
    pytest.mark.data,
    pytest.mark.skipif(DATA is None, reason="SUBTEXT_DATA is not set"),
]


def test_asp_of_perfect_scores_on_1000_coco_images() -> None:
    """99.09 (ordinal), 98.60 (min), 99.30 (average): relevance ties, and scores that follow it with noise do not."""
    pairs = read(Path(str(DATA)) / "coco5k_text" / "karpathy_test_5k.jsonl", need_images=False, verify=False)
    whole = graded(pairs, "tfidf1")
    values = np.ascontiguousarray(whole.values[:1000, :5000])
    noisy = values + 1e-7 * np.random.default_rng(0).random(values.shape)
    best = ranks(values, "min")
    for ties, expected in (("ordinal", 99.09), ("min", 98.60), ("average", 99.30)):
        found = 100 * agreement(noisy, ranks(values, ties), ties).mean()
        assert found == pytest.approx(expected, abs=0.1)
        assert 100 * among_first(best, (best.shape[1],), ties)[1][:, 0].mean() == pytest.approx(found, abs=0.02)
    own_first = np.random.default_rng(1).random(values.shape, dtype=np.float32)
    own_first[np.arange(5000) // 5, np.arange(5000)] += 1
    assert 100 * agreement(own_first, ranks(values)).mean() == pytest.approx(50.11, abs=0.1)
    assert 100 * among_first(best, (best.shape[1],))[0].mean() == pytest.approx(50.01, abs=0.001)
