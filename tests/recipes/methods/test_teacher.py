"""What a teacher teaches by: mined lists by a plain loop, its temperature, and what a step reads of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from scenes import random_items
from torch.nn.functional import normalize

from subtext.core import DIRECTIONS, Embeddings, Epoch
from subtext.data.dataset import Dataset
from subtext.evaluation import embed_pairs
from subtext.models.model import Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.objective import Term
from subtext.objectives.scene import compose
from subtext.recipes.methods.distil.teacher import (
    LoadedTeacher,
    Mined,
    MinedNegatives,
    MinedNegativesBank,
    Teacher,
    fitted_temperature,
    nearest_negatives,
)

pytestmark = pytest.mark.identity


class Free(Teacher):
    """A teacher that asks nobody where it learnt."""

    def require(self, pairs: Dataset) -> None:
        """All pairs are fine."""


def teacher(temperature: float = 0.7) -> Teacher:
    def opened(run: Path, device: str) -> Model:
        return small_training.setup(dropout=0.0).model.eval()

    return Free(Path("nowhere"), opened, temperature=temperature)


def student(data: Dataset) -> tuple[Embeddings, Embeddings]:
    return (
        replace(random_items(len(data.images), seed=1), residuals=None, parts=None, mask=None),
        replace(random_items(len(data.texts), seed=2), residuals=None, parts=None, mask=None),
    )


def test_mined_nearest_negatives_equal_plain_loop() -> None:
    data = small_training.pairs(12, captions=2)
    images, texts = student(data)
    found = nearest_negatives(texts, images, (data.texts.groups, data.images.groups), 4)
    for text in range(24):
        scores = {}
        for image in range(12):
            if data.images.groups[image] != data.texts.groups[text]:
                fits = images.vectors[image] @ texts.vectors[text].T
                scores[image] = float(fits.max())
        assert found[text].tolist() == sorted(scores, key=lambda image: -scores[image])[:4]
    few = nearest_negatives(texts, images[:3], (data.texts.groups, data.images.groups[:3]), 4)
    assert few.shape == (24, 3) and few[0].tolist().count(-1) == 1 and -1 not in few[23]


def test_step_reads_mined_lists() -> None:
    data = small_training.pairs(12, captions=2)
    made = MinedNegativesBank(MinedNegatives(teacher(), 3), data, torch.device("cpu"))
    images, texts = student(data)
    made.on_epoch_start(epoch=0, seed=0, embed=lambda: (images, texts))
    assert made.table is None and made.tensors() == {}
    made.on_epoch_start(epoch=1, seed=0, embed=lambda: (images, texts))
    known = teacher().open(data)
    every = known(np.arange(12), np.arange(24))
    rows = torch.tensor([3, 7])
    now = Embeddings(normalize(torch.randn(2, 2, 5, dtype=torch.float64), dim=-1).requires_grad_(), rows)
    others = texts[rows * 2]
    scene = compose(Cosine(), now, others, rows)
    epoch = Epoch(1, 0, table=made.table, bank=made.bank)
    found = Mined("image_to_text")(scene, epoch)
    lists = nearest_negatives(images, texts, (data.images.groups, data.texts.groups), 3)
    for place, image in enumerate(rows.tolist()):
        candidates = [2 * image, *lists[image].tolist()]
        fits = [float((now.vectors[place].detach() @ texts.vectors[row].T).max()) for row in candidates]
        assert found.scores[place].tolist() == pytest.approx(fits)
        assert found.truth.relevance[place].tolist() == pytest.approx(every[image, candidates].tolist(), abs=1e-5)
    assert found.truth.match.tolist() == [[True, False, False, False]] * 2
    Term(Listwise(), "image_to_text", mining=Mined("image_to_text"))(scene, epoch).backward()
    assert now.vectors.grad is not None and now.vectors.grad.abs().sum() > 0
    again = MinedNegativesBank(MinedNegatives(teacher(), 3), data, torch.device("cpu"))
    again.restore(made.tensors())
    for side in DIRECTIONS:
        restored = Mined(side)(scene, Epoch(1, 0, table=again.table, bank=again.bank))
        assert torch.equal(restored.scores, Mined(side)(scene, epoch).scores)
    assert float(Term(Listwise(), "text_to_image", mining=Mined("text_to_image"))(scene, Epoch(1, 0))) == 0


def test_batch_contains_teacher_scores() -> None:
    data = small_training.pairs(12, captions=2)
    asked = teacher(2.0)
    model = small_training.setup(dropout=0.0).model.eval()
    images, texts = embed_pairs(model, data)
    found = asked.open(data)
    rows, columns = np.array([4, 2]), np.array([5, 9, 1])
    wanted = model.similarity(images[torch.from_numpy(rows)], texts[torch.from_numpy(columns)]) / 2
    assert found.name == "teacher"
    torch.testing.assert_close(found(rows, columns), wanted.detach())
    assert asked.open(data) is found


@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_fitted_temperature_removes_score_scale(scale: float) -> None:
    """Labels drawn from a softmax of some logits: the fit finds the scale that they were multiplied by."""
    data = small_training.pairs(200, captions=1)
    g = torch.Generator().manual_seed(0)
    width = 8
    images = normalize(torch.randn(200, 1, width, generator=g), dim=-1)
    texts = normalize(images + 0.6 * torch.randn(200, 1, width, generator=g), dim=-1)
    model = Model(small_training.setup().model.image, small_training.setup().model.text, Cosine(scale=1.0))

    class Scaled(torch.nn.Module):
        def forward(self, one: Embeddings, other: Embeddings) -> torch.Tensor:
            return scale * (one.vectors[:, 0] @ other.vectors[:, 0].T)

    model.similarity = Scaled()
    ids = torch.arange(200)
    found = fitted_temperature(LoadedTeacher(model, Embeddings(images, ids), Embeddings(texts, ids), 1.0), data) / scale
    losses = {}
    for tried in (found / 2, found, found * 2):
        logits = (images[:, 0] @ texts[:, 0].T) / tried
        losses[tried] = float(
            torch.nn.functional.cross_entropy(logits, ids) + torch.nn.functional.cross_entropy(logits.T, ids)
        )
    assert losses[found] == min(losses.values()) and 0.02 < found < 1
