"""What `subtext data detect-noise` scores pairs by, beside the definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
import word_graph

from subtext.core import Embeddings
from subtext.curation.kinds import baseline_scores, density_scores, graph_scores
from subtext.data.dataset import Dataset
from subtext.models.model import Model
from subtext.models.similarity.cosine import Cosine
from subtext.ops.numerics import unit
from subtext.training.plan import Plan


def embedded(pairs: Dataset, views: int) -> tuple[Embeddings, Embeddings]:
    """Random unit vectors."""
    generator = torch.Generator().manual_seed(views)
    images, texts = (
        Embeddings(unit(torch.randn(count, views, 8, generator=generator)), torch.arange(count))
        for count in (len(pairs.images), len(pairs.texts))
    )
    return images, texts


def test_rank_weight_equals_plain_loop() -> None:
    pairs = small_training.pairs()
    images, texts = embedded(pairs, 2)
    made = small_training.setup(Plan()).model
    found = baseline_scores(Model(made.image, made.text, Cosine()), pairs, images, texts, seed=0)["rank weight"]
    assert len(pairs.links) <= 256, "one block, so that all others are ranked"
    groups, cosine = pairs.images.groups[pairs.links[:, 0]], Cosine()(images, texts).numpy()
    for row in range(0, len(pairs.links), 7):
        (image, text), others = pairs.links[row], pairs.links[groups != groups[row]]
        own = cosine[image, text]
        behind = [sum(cosine[image, others[:, 1]] <= own), sum(cosine[others[:, 0], text] <= own)]
        assert found[row] == pytest.approx(np.mean([1 + 1 / (1 + count) for count in behind]), rel=1e-6)
    assert found.min() < 1.1 and found.max() > 1.2


def test_density_needs_more_pairs_than_neighbours() -> None:
    pairs = small_training.pairs()
    dense = density_scores(pairs, *embedded(pairs, 2))["density"]
    assert dense.shape == (len(pairs.links),) and dense.min() == 0 and dense.max() == 1
    few = pairs.subset(np.arange(2), np.flatnonzero(np.isin(pairs.texts.groups, pairs.images.groups[:2])))
    assert 0 < len(few.links) <= 10 and density_scores(few, *embedded(few, 2)) == {}


def test_combined_scores_are_sums_of_both(tmp_path: Path) -> None:
    pairs = small_training.pairs()
    graph = word_graph.save(pairs, tmp_path / "graph", count=5)
    found = graph_scores(graph, 4.0, 0.5, pairs, *embedded(pairs, 1))
    div, dis = (
        np.stack([found[f"{score}, {side}"] for side in ("image", "text")]) for score in ("diversity", "discrepancy")
    )
    assert found["combined 4:0.5"] == pytest.approx((4 * div + 0.5 * dis).mean(axis=0))
    by_statistics = div.mean(axis=0) * div.mean() * div.std() + dis.mean(axis=0) * dis.mean() * dis.std()
    assert found["combined by statistics"] == pytest.approx(by_statistics)
