"""Pictures with all their texts in one batch: each is read once, and the objective is that of its definition."""

from __future__ import annotations

import numpy as np
import pytest
import small_training
import torch

from subtext.core import DIRECTIONS, Epoch
from subtext.data.inputs import Draw
from subtext.errors import RecipeError
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.objective import Objective, Term
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.step import Stepper, StepReader

pytestmark = pytest.mark.identity

OBJECTIVE = Objective({direction: Term(InfoNCE(), direction, weight=0.5) for direction in DIRECTIONS})


def test_image_is_read_once_with_all_its_texts() -> None:
    made, data = small_training.setup(dropout=0.0), small_training.pairs(5, captions=3)
    model = made.model.train()
    reading = StepReader(model, data, Draw(0, 0), together=True)(data.links)
    assert len(reading.images["ids"]) == 5
    assert len(reading.texts["ids"]) == 15
    assert reading.share == {"image_to_text": 1.0, "text_to_image": 1.0}
    loss, _ = Stepper(model, OBJECTIVE, Plan(batch_size=15), Processes("cpu"))(
        reading, Epoch(number=0, seed=0), name="step 0"
    )
    with torch.no_grad():
        images, texts = model(reading.images, reading.texts)
        scores = model.similarity(images, texts).double()
    expected = _by_loops(scores)
    assert float(loss) == pytest.approx(sum(expected) / 2, rel=1e-5)


def _by_loops(scores: torch.Tensor) -> tuple[float, float]:
    """InfoNCE of each direction: each positive against the negatives alone, averaged over positives and queries."""
    found = []
    for table in (scores, scores.T):
        values = []
        for query in range(len(table)):
            right = [c for c in range(table.shape[1]) if (query // 3 == c if table is not scores else c // 3 == query)]
            wrong = [c for c in range(table.shape[1]) if c not in right]
            against = [float(table[query, c].exp()) for c in wrong]
            each = [
                -np.log(float(table[query, p].exp()) / (float(table[query, p].exp()) + sum(against))) for p in right
            ]
            values.append(np.mean(each))
        found.append(float(np.mean(values)))
    return found[0], found[1]


def test_text_of_two_images_is_read_once() -> None:
    made, data = small_training.setup(dropout=0.0), small_training.pairs(5, captions=3)
    links = np.concatenate([data.links, [[4, 0]]])
    reading = StepReader(made.model, data, None, together=True)(links)
    assert len(reading.texts["ids"]) == 15


def test_process_shares_cover_images_and_texts() -> None:
    made, data = small_training.setup(dropout=0.0), small_training.pairs(5, captions=3)
    readings = [
        StepReader(made.model, data, None, together=True, processes=2, rank=rank)(data.links) for rank in range(2)
    ]
    assert [len(reading.groups.images) for reading in readings] == [2, 3]
    assert [len(reading.groups.texts) for reading in readings] == [7, 8]
    assert [reading.share["image_to_text"] for reading in readings] == [0.4, 0.6]
    assert sum(reading.share["text_to_image"] for reading in readings) == pytest.approx(1)


def test_pair_positives_with_all_texts_raise() -> None:
    with pytest.raises(RecipeError, match="caption_sampling=together needs positives=group"):
        Plan(caption_sampling="together", positives="pair")
