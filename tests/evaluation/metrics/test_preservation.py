"""How much of a graph a run keeps: the paper's worked example, plain loops, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import made_data
import numpy as np
import pytest
import small_training
import torch
import word_graph
from command import call
from scenes import items, random_items

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.evaluation import Protocol, evaluate_embeddings
from subtext.evaluation.checks.space import with_preservation
from subtext.graphs.graph import Graph, group_labels
from subtext.models.similarity.cosine import Cosine

QUIET = Protocol(bootstrap=0)

FIGURES = ("image/neighbours_kept", "text/neighbours_kept")


def _measured(pairs: Dataset, images: Embeddings, texts: Embeddings, graph: Graph) -> dict[str, float]:
    result = evaluate_embeddings(Cosine(), images, texts, pairs, protocol=QUIET)
    result = with_preservation(result, Cosine(), (images, texts), pairs, graph, protocol=QUIET)
    assert set(FIGURES) <= set(result.chance)
    return {name: result.figures[name] for name in FIGURES}


def test_worked_example() -> None:
    """Points on a line, here as angles so small that the nearest by cosine are the nearest on the line."""
    pairs = small_training.pairs(5, captions=1)
    near_in_words = np.array([[1, 2], [0, 2], [1, 3], [2, 1], [3, 2]], dtype=np.int32)
    graph = Graph(
        pairs.texts.ids,
        group_labels(pairs.texts),
        near_in_words,
        np.ones((5, 2), np.float32),
        {"name": "line"},
        {"same_image": "drop"},
    )
    angles = torch.tensor([0, 5, 1, 1.5, 4], dtype=torch.float64) / 10
    found = items(torch.stack([angles.cos(), angles.sin()], dim=1))
    kept = _measured(pairs, found, found, graph)
    assert kept == pytest.approx(dict.fromkeys(FIGURES, 40.0))


def _by_loops(pairs: Dataset, images: Embeddings, texts: Embeddings, graph: Graph) -> list[float]:
    def share(near_ones: set[int], scores: torch.Tensor, without: set[int]) -> float:
        order = [row for row in scores.argsort(descending=True, stable=True).tolist() if row not in without]
        return len(near_ones & set(order[: len(near_ones)])) / len(near_ones)

    owner = dict(pairs.links[:, ::-1].tolist())
    first = {image: min(text for text, other in owner.items() if other == image) for image in set(owner.values())}
    of_images, of_texts = [], []
    for image in range(len(images)):
        near_ones = {owner[text] for text in graph.neighbours[first[image]].tolist()} - {image}
        of_images.append(share(near_ones, Cosine()(images[image : image + 1], images)[0], {image}))
    for text in range(len(texts)):
        own = {other for other in owner if owner[other] == owner[text]}
        near_ones = set(graph.neighbours[text].tolist())
        of_texts.append(share(near_ones, Cosine()(texts[text : text + 1], texts)[0], own))
    return [100 * sum(values) / len(values) for values in (of_images, of_texts)]


def test_preservation_equals_plain_loops_on_several_views() -> None:
    pairs = small_training.pairs(12)
    graph = word_graph.graph(pairs, 5)
    images, texts = (replace(random_items(count, seed=count), parts=None, mask=None) for count in (12, 24))
    kept = _measured(pairs, images, texts, graph)
    assert [kept[name] for name in FIGURES] == pytest.approx(_by_loops(pairs, images, texts, graph))


def test_graph_of_other_texts_raises() -> None:
    pairs = small_training.pairs(12)
    images, texts = random_items(12), random_items(24)
    with pytest.raises(DataError, match="built for other data"):
        _measured(pairs, images, texts, word_graph.graph(small_training.pairs(12, "val")))
    empty = replace(word_graph.graph(pairs), neighbours=np.full((24, 6), -1, dtype=np.int32))
    with pytest.raises(DataError, match="has no neighbours among the 24 texts"):
        _measured(pairs, images, texts, empty)


def test_evaluate_command_measures_preservation(tmp_path: Path) -> None:
    data, features = made_data.write(tmp_path)
    graph, run = tmp_path / "graph", tmp_path / "run"
    build = ["neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 8, "--neighbours", 5, "-q"]
    call(*build, "--split", "val", "--candidate-split", "val")
    words = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--epochs", 1]
    call(*words, "--out", run, "--workers", 0, "--device", "cpu", "-q")
    told = call("evaluate", run, "--graph", graph, "-q", "--json", tmp_path / "figures.json").output
    assert "semantic neighbours kept" in told
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(0 <= figures[name] <= 100 and figures["chance"][name] > 0 for name in FIGURES)
    assert figures["protocol"]["graph"]["neighbours"] == 5
    assert "it knows 0 of" in call("evaluate", run, "--split", "test", "--graph", graph, "-q", code=1).output
