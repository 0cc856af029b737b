"""Losses of ranks in a training: a batch comes with its relevance, and shares of it add up to the whole."""

from __future__ import annotations

import numpy as np
import pytest
import small_training
import torch
from scenes import random_items

from subtext.core import DIRECTIONS, Epoch
from subtext.data.inputs import Draw
from subtext.evaluation.relevance import tfidf
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.daa import DAA
from subtext.objectives.losses.smooth_ap import SmoothAP
from subtext.objectives.mining import Cosines
from subtext.objectives.objective import Objective, Term
from subtext.objectives.scene import Relevance, compose
from subtext.recipes.methods.daa.relevance import SharedWords
from subtext.training.step import StepReader

pytestmark = pytest.mark.identity

SHARES = ([0, 1], [2, 3, 4], [5])
GROUPS = torch.tensor([0, 0, 1, 2, 1, 3])


def graded_relevance(pairs):
    """(I T) by the function that measures whole data sets."""
    texts = [str(value) for value in pairs.texts.values]
    return tfidf.products(texts, pairs.texts.groups, texts).all()[pairs.images.groups]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("processes", [1, 3])
def test_reading_contains_relevance_of_its_queries(together, processes):
    data, rows = small_training.pairs(), small_training.pairs().links[np.array([3, 50, 2, 9, 51, 8, 70])]
    whole, related = graded_relevance(data), SharedWords().open(data)
    found = []
    for rank in range(processes):
        given = {"together": together, "processes": processes, "rank": rank, "related": related}
        reading = StepReader(small_training.setup().model, data, Draw(0, 0), **given)(rows)
        assert reading.relevance.scale == "tfidf1"
        found.append((reading.images["ids"].numpy(), reading.texts["ids"].numpy(), reading.relevance))
    for rank, (images, texts, relevance) in enumerate(found):
        others = [each for place, each in enumerate(found) if place != rank]
        all_images, all_texts = (
            np.concatenate([own, *(each[k] for each in others)]) for k, own in enumerate((images, texts))
        )
        np.testing.assert_allclose(relevance.images, whole[images][:, all_texts], atol=1e-6)
        np.testing.assert_allclose(relevance.texts, whole[all_images][:, texts].T, atol=1e-6)


def test_relevance_is_not_read_unless_requested():
    assert (
        StepReader(small_training.setup().model, small_training.pairs(), None)(
            small_training.pairs().links[:4]
        ).relevance
        is None
    )


@pytest.mark.parametrize("loss", [DAA(0.1), DAA(0.1, draws=True), SmoothAP(0.1)])
@pytest.mark.parametrize("positives", ["group", "pair"])
def test_shares_add_up_to_whole_batch(loss, positives):
    objective = Objective({side: Term(loss, side, mining=Cosines(side)) for side in DIRECTIONS})
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    drawn = torch.rand(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = [side.vectors.requires_grad_() for side in (images, texts)]

    def value(own, rest):
        both = torch.tensor(own + rest)
        mine, order = torch.tensor(own), (drawn[torch.tensor(own)][:, both], drawn.T[torch.tensor(own)][:, both])
        other = torch.tensor(rest, dtype=torch.int64)
        scene = compose(
            Cosine(scale=5.0, shift=-1.0),
            images[mine],
            texts[mine],
            GROUPS[mine],
            positives=positives,
            gathered=(images[other], texts[other], GROUPS[other]) if rest else None,
            relevance=Relevance(*order, "made"),
        )
        return objective(scene, Epoch(0, 0), share=len(own) / 6)[0]

    whole = value(list(range(6)), [])
    parts = torch.stack([value(own, [row for row in range(6) if row not in own]) for own in SHARES]).sum()
    torch.testing.assert_close(parts, whole)
    for one, other in zip(*(torch.autograd.grad(each, leaves) for each in (parts, whole)), strict=True):
        torch.testing.assert_close(one, other)


def test_mined_cosines_ignore_similarity_scale():
    images, texts = random_items(4, seed=1), random_items(4, seed=2)
    scene = compose(Cosine(scale=7.0, shift=-2.0), images, texts, torch.arange(4))
    for side in DIRECTIONS:
        mined = Cosines(side)(scene, Epoch(0, 0))
        torch.testing.assert_close(mined.scores, (scene.comparison(side).scores + 2) / 7)
        assert mined.truth is scene.comparison(side).truth
