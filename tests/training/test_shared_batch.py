"""A batch that several processes share: what each computes of its own queries adds up to the whole.

The processes are played one after the other here; the gathered vectors carry their gradient.
"""

from __future__ import annotations

import pytest
import torch
from scenes import random_items

from subtext.core import DIRECTIONS, Embeddings, Epoch, Scene
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.sigmoid import Sigmoid
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD, ViewDiversity
from subtext.objectives.scene import compose
from subtext.objectives.weighting import Rank, Uniform

pytestmark = pytest.mark.identity

EPOCH = Epoch(number=0, seed=0)
GROUPS = torch.tensor([0, 0, 1, 2, 1, 3])
SHARES = ([0, 1], [2, 3, 4], [5])


def two_way(loss, reduction="mean", weighting=None) -> Objective:
    return Objective({d: Term(loss, d, reduction=reduction, weighting=weighting and weighting(d)) for d in DIRECTIONS})


OBJECTIVES = {
    "all negatives, mean over cells": two_way(Triplet(margin=0.3), "mean over cells"),
    "hardest, mean": two_way(Triplet(margin=0.3, negatives="hardest")),
    "all negatives, sum": two_way(Triplet(margin=0.3), "sum"),
    "InfoNCE": two_way(InfoNCE(label_smoothing=0.1)),
    "sigmoid": two_way(Sigmoid()),
    "rank weights": two_way(Triplet(negatives="hardest"), "sum", lambda d: Rank(direction=d)),
    "uniform weights": two_way(Triplet(), "mean", lambda d: Uniform(total=12.0, direction=d)),
    "penalties": Objective({"mmd": Penalty(MMD(), 0.5), "diversity": Penalty(ViewDiversity(), 0.5)}),
}


def share(images: Embeddings, texts: Embeddings, own: list[int], positives: str) -> Scene:
    mine = torch.tensor(own)
    rest = torch.tensor([row for row in range(len(GROUPS)) if row not in own])
    others = (images[rest], texts[rest], GROUPS[rest])
    return compose(Cosine(), images[mine], texts[mine], GROUPS[mine], positives=positives, gathered=others)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("positives", ["group", "pair"])
def test_shares_add_up_to_whole_batch(name, positives):
    objective = OBJECTIVES[name]
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    leaves = [value.requires_grad_() for side in (images, texts) for value in (side.vectors, side.residuals)]
    whole, _ = objective(compose(Cosine(), images, texts, GROUPS, positives=positives), EPOCH)
    parts = [objective(share(images, texts, own, positives), EPOCH, share=len(own) / len(GROUPS))[0] for own in SHARES]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)
    for one, other in zip(
        torch.autograd.grad(torch.stack(parts).sum(), leaves, allow_unused=True),
        torch.autograd.grad(whole, leaves, allow_unused=True),
        strict=True,
    ):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_share_scores_its_rows_as_whole_batch():
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    whole = compose(Cosine(), images, texts, GROUPS)
    first = share(images, texts, SHARES[0], "group")
    for direction in DIRECTIONS:
        torch.testing.assert_close(first.comparison(direction).scores, whole.comparison(direction).scores[:2])
        assert torch.equal(first.comparison(direction).truth.match, whole.comparison(direction).truth.match[:2])
