"""Topics planted as loosely aligned: which pairs change, and when a data set is accepted for training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from made_data import EACH, TOPICS, write_topics

import subtext as st
from reproduce.topics import (
    PUBLISHED,
    SHARP,
    Acceptance,
    PlantedTopics,
    accept,
    cluster,
    corrupt_topics,
    effective_size,
    image_vectors,
    plant_topics,
)
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.data.noise import Planted, plant, read_labels
from subtext.errors import DataError

SIZES = {"topics": TOPICS, "visual_clusters": TOPICS, "neighbours": EACH // 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("made"))


def read(folder: Path) -> tuple[Dataset, FeatureFile]:
    return st.read(folder / "pairs.jsonl", images=folder), FeatureFile.open(folder / "features.npz")


def planted(dataset: Dataset, features: FeatureFile, seed: int = 0) -> tuple[PlantedTopics, np.ndarray, np.ndarray]:
    """With the topic that each text of the original has, and the visual cluster of each image."""
    found = cluster(dataset, image_vectors(dataset, features), topics=TOPICS, visual=TOPICS, seed=seed)
    return plant_topics(dataset, found.topics, found.visual, found.centres, seed=seed), found.topics, found.visual


def test_abstract_topic_has_few_visual_kinds_in_all_splits(made: Path) -> None:
    dataset, features = read(made)
    result, topics, visual = planted(dataset, features)
    pairs, loose = result.dataset, result.kinds == "topic"
    assert len(result.views) == TOPICS // 5 and all(3 <= len(set(views)) <= 5 for views in result.views.values())
    assert len(pairs.images) == len(pairs.texts) == len(pairs.links), "one text an image"
    assert set(pairs.texts.splits[loose].tolist()) == {"train", "val", "test"}
    image_row = {name: row for row, name in enumerate(dataset.images.ids)}
    kinds_of: dict[int, set[int]] = {}
    for image, text in pairs.links.tolist():
        origin, row = result.source[text], image_row[pairs.images.ids[image]]
        assert pairs.texts.values[text] == dataset.texts.values[origin]
        assert dataset.texts.splits[origin] == pairs.images.splits[image]
        assert (dataset.texts.groups[origin] == dataset.images.groups[row]) != loose[text], "literal pairs stay"
        assert (int(topics[origin]) in result.views) == loose[text]
        if loose[text]:
            assert result.topics[text] == topics[origin] and visual[row] in result.views[int(topics[origin])]
            kinds_of.setdefault(int(topics[origin]), set()).add(int(visual[row]))
    assert all(len(kinds) >= 3 for kinds in kinds_of.values())


def test_planting_depends_on_names_and_seed_alone(made: Path) -> None:
    dataset, features = read(made)
    first, topics, visual = planted(dataset, features)
    found = cluster(dataset, image_vectors(dataset, features), topics=TOPICS, visual=TOPICS)
    order = np.random.default_rng(1).permutation(len(dataset.images))
    rows = np.random.default_rng(2).permutation(len(dataset.texts))
    again = plant_topics(dataset.subset(order, rows), topics[rows], visual[order], found.centres)

    def words(result: Planted) -> dict[str, tuple[object, str]]:
        texts = result.dataset.texts
        return {
            name: (value, str(kind)) for name, value, kind in zip(texts.ids, texts.values, result.kinds, strict=True)
        }

    assert words(first) == words(again)
    assert words(first) != words(plant_topics(dataset, topics, visual, found.centres, seed=1))


def test_weights_detect_topics_but_not_exchanged_texts(made: Path) -> None:
    """The toy behind reproduce/notes/planted_noise.md: DIVERSITY of an item reads its neighbours, and never itself."""
    dataset, features = read(made)
    vectors = image_vectors(dataset, features)
    first = dataset.subset(np.arange(len(dataset.images)), np.unique(dataset.texts.groups, return_index=True)[1])

    def auc(result: Planted | PlantedTopics) -> dict[str, float]:
        train = result.dataset.split("train")
        rows = [dataset.images.ids.index(name) for name in train.images.ids]
        loose = result.kinds[result.dataset.texts.splits == "train"] != ""
        return accept(train, vectors[rows], loose, neighbours=EACH // 2).auc

    assert auc(planted(dataset, features)[0])["diversity/image"] > 0.9
    # One draw of 120 exchanged texts of 600 has a standard error of 0.03: the mean of six is asked.
    exchanged = [auc(plant(first, {"mismatch": 0.2}, seed=seed)) for seed in range(6)]
    for score in ("diversity/image", "diversity/text", "discrepancy/text"):
        assert np.mean([each[score] for each in exchanged]) == pytest.approx(0.5, abs=0.06)


def test_acceptance_is_reported_and_written_with_labels(made: Path, tmp_path: Path) -> None:
    def planted_files(folder: Path, name: str) -> tuple[Path, Path, Acceptance]:
        out, labels = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.json"
        accepted = corrupt_topics(
            made / "pairs.jsonl", images=made, features=folder / "features.npz", out=out, labels=labels, **SIZES
        )
        return out, labels, accepted

    out, labels, acceptance = planted_files(made, "topics")
    assert acceptance.accepted and acceptance.lines()[-1] == "accepted"
    assert min(acceptance.auc[f"{score}/image"] for score in ("diversity", "discrepancy")) > 0.7
    written = read_labels(labels)
    assert written.settings["acceptance"] == acceptance.to_json() and len(written.settings["views"]) == TOPICS // 5
    assert set(written.kinds.values()) == {"topic"}
    written.require(st.read(out, images=made))
    assert "topic" not in json.loads(out.read_text().splitlines()[0]), "training never reads the labels"
    (tmp_path / "plain").mkdir()
    _, _, plain = planted_files(write_topics(tmp_path / "plain", visual=False), "plain")
    assert plain.lines()[-1].startswith("not accepted: AUC of diversity of images 0.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.001}, "a share of 0.001 of 60 topics makes 0 abstr"),
        ({"topics": 2000}, "2000 clusters need as many texts"),
        ({"visual_clusters": 400}, "visual clusters with room for"),
    ],
)
def test_unsuitable_clusters_raise(made: Path, tmp_path: Path, options: dict[str, object], message: str) -> None:
    files = {"features": made / "features.npz", "out": tmp_path / "out.jsonl", "labels": tmp_path / "labels.json"}
    with pytest.raises(DataError, match=message):
        corrupt_topics(made / "pairs.jsonl", images=made, **files, **options)
    assert not any(tmp_path.iterdir())


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
