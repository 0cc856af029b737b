"""Clusters of topics and of kinds of images, and how uneven weights are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_data import TOPICS, write_topics

import subtext as st
from reproduce.topics import PUBLISHED, SHARP, cluster, effective_size, image_vectors
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError


def test_clusters_are_fitted_on_the_training_split_and_too_many_raise(tmp_path: Path) -> None:
    made = write_topics(tmp_path)
    dataset, features = st.read(made / "pairs.jsonl", images=made), FeatureFile.open(made / "features.npz")
    vectors = image_vectors(dataset, features)
    found = cluster(dataset, vectors, topics=TOPICS, visual=TOPICS)
    train = dataset.split("train")
    rows = np.isin(dataset.images.ids, train.images.ids), np.isin(dataset.texts.ids, train.texts.ids)
    texts_left = np.flatnonzero(rows[1] | (np.arange(len(rows[1])) % 2 == 0))
    fewer = dataset.subset(np.flatnonzero(rows[0] | (np.arange(len(rows[0])) % 2 == 0)), texts_left)
    again = cluster(fewer, image_vectors(fewer, features), topics=TOPICS, visual=TOPICS)
    np.testing.assert_allclose(again.centres, found.centres, atol=1e-6)  # float32
    assert (again.topics == found.topics[texts_left]).all()
    with pytest.raises(DataError, match="2000 clusters need as many texts"):
        cluster(dataset, vectors, topics=2000, visual=TOPICS)


def test_effective_size_equals_that_of_weights() -> None:
    generator = np.random.default_rng(3)
    image, text = generator.normal(scale=0.05, size=(2, 64))
    alone = np.exp(-20 * image)
    inner = [196 * torch.softmax(torch.from_numpy(-side[:32]), 0) for side in (image, text)]
    both = torch.softmax((inner[0] - inner[1]).abs(), 0).numpy()
    assert effective_size(image, text, SHARP, batch=64) == pytest.approx(size(alone))
    assert effective_size(image[:32], text[:32], PUBLISHED) == pytest.approx(size(both))
    assert effective_size(np.full(64, 0.3), text, SHARP) == pytest.approx(1.0)


def size(weights: np.ndarray) -> float:
    """Effective sample size as a share."""
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))
