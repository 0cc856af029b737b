"""A model that looks at regions and words is asked about each pair once, however often its scores are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from regions_and_words import of_parts
from torch import Tensor, nn
from torch.nn.functional import normalize

from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items, Judgements
from subtext.evaluation import Protocol, evaluate_embeddings, gallery_of, scoring
from subtext.evaluation.metrics import HumanAgreement, default_metrics
from subtext.evaluation.scoring import Embedded, Matrix, scored_once
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import CrossAttention

pytestmark = pytest.mark.identity

PICTURES, EACH = 256, 2


class Counting(nn.Module):
    """SCAN, and how many scores it was asked for; what a tile is padded with is among them."""

    indexable = False

    def __init__(self) -> None:
        super().__init__()
        self.scan, self.cells = CrossAttention().eval(), 0

    def forward(self, images: Embeddings, texts: Embeddings) -> Tensor:
        self.cells += len(images) * len(texts)
        return self.scan(images, texts)


def made() -> tuple[Embeddings, Embeddings, Dataset]:
    """Items of which a fold of 64 pictures and 128 texts fills its tiles."""
    g = torch.Generator().manual_seed(0)
    regions = normalize(torch.randn(PICTURES, 4, 6, generator=g), dim=-1)
    owners = np.repeat(np.arange(PICTURES), EACH)
    words = normalize(regions[owners][:, :2] + torch.randn(len(owners), 2, 6, generator=g), dim=-1)
    pictures, texts = ([f"{letter}{row}" for row in range(count)] for letter, count in (("p", PICTURES), ("t", 512)))
    pairs = Dataset(
        Items(pictures, [None] * PICTURES, np.arange(PICTURES), np.array(["val"] * PICTURES)),
        Items(texts, ["a"] * len(texts), owners, np.array(["val"] * len(texts))),
        np.stack([owners, np.arange(len(owners))], axis=1),
        Path(),
    )
    return of_parts(regions), of_parts(words), pairs


SETS = [((1,), 1), ((1, 4), 1), ((1, 2, 4), 1), ((4,), 1 / 4), ((2, 4), 3 / 4)]
"""Numbers of folds, and the share of all pairs that is scored."""


@pytest.mark.parametrize(("counts", "share"), SETS)
def test_folds_are_sliced_from_one_score_matrix(counts: tuple[int, ...], share: float) -> None:
    images, texts, pairs = made()
    counting = Counting()
    asked = Protocol(bootstrap=0, fold_sizes=[PICTURES // count for count in counts])
    result = evaluate_embeddings(counting, images, texts, pairs, protocol=asked)
    assert counting.cells == share * PICTURES * PICTURES * EACH
    for count in counts:
        label = "" if count == counts[0] else f"({count} folds)"
        alone = evaluate_embeddings(
            CrossAttention().eval(), images, texts, pairs, protocol=Protocol(bootstrap=0, folds=count)
        )
        for way in ("image_to_text", "text_to_image"):
            name = f"{way}/mean_rank"
            np.testing.assert_array_equal(result.per_query[f"{name}{label}"], alone.per_query[name])


def test_human_judgements_reuse_the_same_scores() -> None:
    images, texts, pairs = made()
    counting = Counting()
    human = Judgements(np.array([0, 1, 5]), np.array([3, 2, 9]), np.array([1.0, 4.0, 2.0], dtype=np.float32))
    asked, metrics = Protocol(bootstrap=0), [*default_metrics(), HumanAgreement()]
    gallery = gallery_of(pairs, ratings=human)
    result = evaluate_embeddings(counting, images, texts, gallery, metrics=metrics, protocol=asked)
    assert result.figures["human/pairs"] == 3 and counting.cells == PICTURES * PICTURES * EACH


def test_large_score_matrix_is_stored_in_file(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, _ = made()
    in_file: list[object] = []
    make = scoring.matrix

    def spy(*given: object, **named: object) -> Tensor:
        in_file.append(named["in_file"])
        return make(*given, **named)

    monkeypatch.setattr(scoring, "matrix", spy)
    small, large = (Embedded(CrossAttention().eval(), images, texts, stored_bytes=size) for size in (2**20, 2**10))
    kept = [scored_once(source, 1.2) for source in (small, large)]
    assert in_file == [False, True] and all(isinstance(one, Matrix) for one in kept)
    assert torch.equal(kept[0].scores, kept[1].scores)
    assert scored_once(large, 1.0) is large and scored_once(kept[0], 9.0) is kept[0]
    vectors = Embedded(Cosine(), images, texts)
    assert scored_once(vectors, 9.0) is vectors, "vectors are compared again sooner than read"
