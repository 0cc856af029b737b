"""Looseness that follows topics: what is paired anew, and when a data set is worth a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command import call
from made_data import EACH, TOPICS, write_topics

import subtext as st
from subtext.curation.topics import accept, cluster, image_vectors
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.data.noise import Planted, plant, plant_topics
from subtext.errors import ArgumentError, DataError, RequirementError

SIZES = {"topics": TOPICS, "visual_clusters": TOPICS, "neighbours": EACH // 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("made"))


def read(folder: Path) -> tuple[Dataset, FeatureFile]:
    return st.read(folder / "pairs.jsonl", images=folder), FeatureFile.open(folder / "features.npz")


def planted(dataset: Dataset, features: FeatureFile, seed: int = 0) -> tuple[Planted, np.ndarray, np.ndarray]:
    """With the topic that each text of the original has, and the visual cluster of each image."""
    found = cluster(dataset, image_vectors(dataset, features), topics=TOPICS, visual=TOPICS, seed=seed)
    return plant_topics(dataset, found.topics, found.visual, found.centres, seed=seed), found.topics, found.visual


def test_an_abstract_topic_has_a_few_visual_kinds_and_the_same_in_all_splits(made: Path) -> None:
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


def test_what_is_drawn_follows_names_and_seed_alone(made: Path) -> None:
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


def test_weights_can_know_of_topics_and_not_of_exchanged_texts(made: Path) -> None:
    """The toy behind reproduce/notes/planted_noise.md: DIVERSITY of an item reads its neighbours, and never itself."""
    dataset, features = read(made)
    vectors = image_vectors(dataset, features)
    aucs = {}
    for kind in ("topic", "mismatch"):
        result = planted(dataset, features)[0]
        if kind == "mismatch":
            first = dataset.subset(
                np.arange(len(dataset.images)), np.unique(dataset.texts.groups, return_index=True)[1]
            )
            result = plant(first, {"mismatch": 0.2})
        train = result.dataset.split("train")
        rows = [dataset.images.ids.index(name) for name in train.images.ids]
        loose = result.kinds[result.dataset.texts.splits == "train"] != ""
        aucs[kind] = accept(train, vectors[rows], loose, neighbours=EACH // 2).auc
    assert aucs["topic"]["diversity/image"] > 0.9
    for score in ("diversity/image", "diversity/text", "discrepancy/text"):
        assert aucs["mismatch"][score] == pytest.approx(0.5, abs=0.06)


def test_the_command_says_whether_the_set_is_accepted(made: Path, tmp_path: Path) -> None:
    words = [item for name, value in SIZES.items() for item in (f"--{name.replace('_', '-')}", value)]
    source = [made / "pairs.jsonl", "--images", made, "--by", "topic", *words, "--features"]
    out = [tmp_path / "topics.jsonl", tmp_path / "topics.json"]
    screen = call("data", "corrupt", *source, made / "features.npz", "--out", out[0], "--labels", out[1]).stdout
    assert "4 of 20 topics are abstract" in screen and "\naccepted\n" in screen
    labels = json.loads(out[1].read_text())
    assert labels["settings"]["acceptance"]["accepted"] and labels["loose"][0].keys() == {
        "text",
        "kind",
        "from",
        "topic",
    }
    assert (
        min(labels["settings"]["acceptance"]["auc"][f"{score}/image"] for score in ("diversity", "discrepancy")) > 0.7
    )
    assert "topic" not in json.loads(out[0].read_text().splitlines()[0]), "training never reads the labels"
    plain, out = write_topics(tmp_path, visual=False), [tmp_path / "plain.jsonl", tmp_path / "plain.json"]
    screen = call("data", "corrupt", *source, plain / "features.npz", "--out", out[0], "--labels", out[1]).stdout
    assert "\nnot accepted: AUC of diversity of images 0." in screen and "\naccepted" not in screen


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, RequirementError, "looseness by topic needs features of the images"),
        ({"features": "features.npz", "graph": "g"}, ArgumentError, "graph has no effect with by=topic; leave it out"),
        ({"by": "pair", "topics": 7}, ArgumentError, "topics has no effect with by=pair; leave it out"),
        ({"features": "features.npz", "noise_rate": 0.001}, DataError, "a share of 0.001 of 60 topics makes 0 abstr"),
        ({"features": "features.npz", "topics": 2000}, DataError, "2000 clusters need as many texts"),
        ({"features": "features.npz", "visual_clusters": 400}, DataError, "visual clusters with room for"),
    ],
)
def test_what_does_not_fit_is_refused(
    made: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    if "features" in options:
        options = {**options, "features": made / "features.npz"}
    with pytest.raises(error, match=message):
        st.corrupt(made / "pairs.jsonl", images=made, **{"by": "topic", **options})


def test_effective_size_is_that_of_the_weights() -> None:
    from subtext.curation.topics import PUBLISHED, SHARP, effective_size

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
