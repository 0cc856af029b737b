"""One audit over every model that scores pairs: what a score depends on, to the bit where `scoring` makes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureShape
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.inputs import Draw
from subtext.evaluation import Protocol, embed_pairs, evaluate_embeddings, scoring
from subtext.evaluation.checks.audit import CHECKS, Sample, caption_positions, finite, shuffled_truth, ties
from subtext.models.ensemble import build_ensemble
from subtext.models.model import Model
from subtext.recipes.build import build
from subtext.training.setup import BuildContext
from subtext.training.step import StepReader

WIDTH, PICTURES, EACH = 10, 67, 2
"""More pictures than a tile has, so that a second one is padded."""
WORDS = ["red", "blue", "green", "black", "dog", "cat", "bird", "car", "tree", "house", "boat", "horse"]
SMALL: dict[str, object] = {"embed_dim": 16, "word_dim": 8}
HOSTS: dict[str, tuple[str, dict[str, object]]] = {
    "scan, words ask, lse": ("scan", {"cross_attention": "text_to_image", "pooling": "lse"}),
    "scan, words ask, mean": ("scan", {"cross_attention": "text_to_image", "pooling": "mean"}),
    "scan, regions ask, lse": ("scan", {"cross_attention": "image_to_text", "pooling": "lse"}),
    "scan, regions ask, mean": ("scan", {"cross_attention": "image_to_text", "pooling": "mean"}),
    "saf": ("sgraf", {"reasoning": "saf", "similarity_dim": 8}),
    "sgr": ("sgraf", {"reasoning": "sgr", "similarity_dim": 8}),
    "chan": ("chan", {}),
    "chan, mean": ("chan", {"pooling": "mean"}),
    "imram": ("imram", {}),
    "imram, words ask": ("imram", {"attention_mode": "text"}),
    "imram, regions ask": ("imram", {"attention_mode": "image"}),
    "ascl": ("ascl", {"heads": 2}),
    "ascl, no attention": ("ascl", {"attention": False}),
    "ascl, mean fusion": ("ascl", {"heads": 2, "fusion": "mean"}),
    "ascl, no fusion, shared": ("ascl", {"heads": 2, "fusion": "none", "direction_weights": "shared"}),
    "pcme": ("pcme", {"samples": 2}),
    "pcme_plus": ("pcme_plus", {}),
    "pcme_plus, wasserstein": ("pcme_plus", {"distance": "wasserstein"}),
}
ENSEMBLE = "sgraf"
LONG = {
    "scan, words ask, mean",
    "scan, regions ask, lse",
    "chan, mean",
    "imram, words ask",
    "imram, regions ask",
    "ascl, no attention",
    "ascl, mean fusion",
    "ascl, no fusion, shared",
    "pcme_plus, wasserstein",
    ENSEMBLE,
}
"""Further forms of a model, left to the slow tests."""


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    """Texts of two to eight words; what they name is in the regions, weakly."""
    rng = np.random.default_rng(1)
    names = [f"p{place:03d}" for place in range(PICTURES)]
    groups = np.arange(PICTURES, dtype=np.int64)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(2, 9))) for _ in range(EACH * PICTURES)]
    owners = np.repeat(groups, EACH)
    return Dataset(
        images=Items(names, [None] * PICTURES, groups, np.array(["test"] * PICTURES)),
        texts=Items([f"t{row}" for row in range(len(texts))], texts, owners, np.array(["test"] * len(texts))),
        links=np.stack([owners, np.arange(len(texts), dtype=np.int64)], axis=1),
        root=Path(),
    )


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    """Pictures of two to five regions, padded with zeros."""
    rng = np.random.default_rng(2)
    grid = rng.normal(size=(PICTURES, 5, WIDTH)).astype(np.float32)
    for place in range(PICTURES):
        grid[place, 2 + place % 4 :] = 0
    file = tmp_path_factory.mktemp("features") / "regions.npz"
    names = np.array([f"p{place:03d}" for place in range(PICTURES)])
    np.savez(file, names=names, grid=grid, pooled=grid.mean(axis=1))
    return FeatureFile.open(file)


def built(name: str, pairs: Dataset, features: FeatureFile) -> Model:
    """A model of random weights whose norms have seen one batch, in eval mode."""
    if name == ENSEMBLE:
        return build_ensemble([built(part, pairs, features) for part in ("saf", "sgr")])
    host, options = HOSTS[name]
    shape = FeatureShape(pooled=WIDTH, grid=WIDTH)
    model = build(
        host,
        {**SMALL, **options},
        context=BuildContext(image_features=shape, texts=tuple(map(str, pairs.texts.values))),
    ).model
    input_spec = model.image.input_spec
    assert isinstance(input_spec, FeatureInput)
    model.image.input_spec = input_spec.with_file(features)
    with torch.no_grad():
        batch = StepReader(model, pairs, Draw(0, 0))(pairs.links[:16])
        model.similarity(*model.train()(batch.images, batch.texts))
    return model.eval()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in (*HOSTS, ENSEMBLE)],
)
def model(request: pytest.FixtureRequest, pairs: Dataset, features: FeatureFile) -> Model:
    return built(request.param, pairs, features)


@pytest.fixture(scope="module")
def items(model: Model, pairs: Dataset) -> tuple[Embeddings, Embeddings]:
    return embed_pairs(model, pairs, workers=0)


def joined(similarity: nn.Module, images: Embeddings, texts: Embeddings, way: Direction, block_bytes: int) -> Tensor:
    both = (images, texts) if way == "image_to_text" else (texts, images)
    whole = torch.cat([scores for _, _, scores in scoring.blocks(similarity, *both, way, block_bytes, exact=True)])
    return whole if way == "image_to_text" else whole.T


def test_pair_score_is_bit_identical_in_any_block(model: Model, items: tuple[Embeddings, Embeddings]) -> None:
    images, texts = items
    similarity = model.similarity
    wanted = scoring.matrix(similarity, images, texts, exact=True)
    assert wanted.isfinite().all() and wanted.std() > 0
    for way in DIRECTIONS:
        for block_bytes in (1, 2**22):
            assert torch.equal(joined(similarity, images, texts, way, block_bytes), wanted)
    rows, columns = torch.randperm(len(images)), torch.randperm(len(texts))
    assert torch.equal(scoring.matrix(similarity, images[rows], texts[columns], exact=True), wanted[rows][:, columns])
    assert torch.equal(scoring.matrix(similarity, images[9:10], texts[40:41], exact=True), wanted[9:10, 40:41])
    half = scoring.matrix(similarity, images[::2], texts[1::3], exact=True)
    assert torch.equal(half, wanted[::2, 1::3])
    # Rows, by which partners could be told, are hidden.
    blank = [replace(each, ids=torch.zeros_like(each.ids)) for each in items]
    assert torch.equal(scoring.matrix(similarity, *blank, exact=True), wanted)


def test_pair_model_passes_audit(model: Model, pairs: Dataset, items: tuple[Embeddings, Embeddings]) -> None:
    base = Sample.drawn(model, pairs, size=24, seed=0, batch_size=16)
    found = {check.name: check for check in [*map(base.check, CHECKS), shuffled_truth(base)]}
    assert set(found) == {*CHECKS, "truth"}
    assert {name: check.outcome for name, check in found.items()} == dict.fromkeys(found, "pass"), [
        check.found for check in found.values() if check.outcome != "pass"
    ]
    result = evaluate_embeddings(model.similarity, *items, pairs, protocol=Protocol(bootstrap=0))
    scores = scoring.matrix(model.similarity, *items)
    told: list[Any] = [caption_positions(result, pairs), ties(result), finite(result, *items, scores)]
    assert [check.outcome for check in told] == ["pass"] * 3, [check.found for check in told]
