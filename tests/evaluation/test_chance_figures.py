"""The chance line that ends a training is the one that an evaluation of the same pairs states."""

from __future__ import annotations

from pathlib import Path

import made_data
import numpy as np
import pytest
import torch

from subtext.core import Embeddings
from subtext.data.read import read
from subtext.evaluation import Protocol, evaluate_embeddings
from subtext.evaluation.evaluate import chance_figures
from subtext.evaluation.result import figures_table
from subtext.models.similarity.cosine import Cosine

pytestmark = pytest.mark.identity


def drawn(count: int, seed: int) -> Embeddings:
    vectors = torch.randn(count, 1, 4, generator=torch.Generator().manual_seed(seed))
    return Embeddings(vectors=vectors, ids=torch.arange(count))


@pytest.mark.parametrize("split", ["val", "all"])
def test_training_chance_equals_evaluation_chance(tmp_path: Path, split: str) -> None:
    made_data.write(tmp_path)
    pairs = read(tmp_path / "pairs.jsonl", need_images=False).split(split)
    result = evaluate_embeddings(
        Cosine(), drawn(len(pairs.images), 1), drawn(len(pairs.texts), 2), pairs, protocol=Protocol()
    )
    ours = chance_figures(pairs)
    assert set(ours) <= set(result.chance)
    for name, value in ours.items():
        np.testing.assert_allclose(value, result.chance[name], err_msg=name)
    table = "\n".join(figures_table(result.figures, ours, result.intervals))
    assert table.count("chance") == 3 and f"(chance {ours['rsum']:.1f})" in table
