"""Recall by length of a table's cells, where a split has more texts than are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import subtext
from reproduce.tables import measures
from reproduce.tables.config import DataPaths, TableConfig
from reproduce.tables.material import TableData
from reproduce.tables.specification import tables
from subtext.data.dataset import Dataset, Items
from subtext.evaluation.evaluate import words
from subtext.ops import draw

PICTURES, EACH, DRAWN = 20, 4, 30
SIZES = (3, 12, 17, 30)
"""Words of a picture's texts: one of each length that is told apart."""


def made() -> tuple[Dataset, torch.Tensor]:
    """Dataset, and scores by which some texts find their picture first."""
    owner = np.repeat(np.arange(PICTURES), EACH)

    def items(kind: str, groups: np.ndarray) -> Items:
        texts: list[str | bytes | None] = ["word " * SIZES[row % EACH] for row in range(len(groups))]
        names = [f"{kind}{row}" for row in range(len(groups))]
        return Items(names, texts, groups, np.array(["test"] * len(groups)), {})

    links = np.stack([owner, np.arange(len(owner))], axis=1)
    scores = torch.from_numpy(np.random.default_rng(0).standard_normal((PICTURES, len(owner))))
    scores[owner, np.arange(len(owner))] += 2.0
    return Dataset(items("image", np.arange(PICTURES)), items("text", owner), links, Path()), scores


def test_recall_by_length_uses_sampled_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pairs, scores = made()

    file = tmp_path / "scores.npz"
    np.savez(file, scores=scores.numpy(), image_ids=pairs.images.ids, text_ids=pairs.texts.ids)
    evaluate = subtext.evaluate

    def scored(run: Path, data: subtext.DataConfig, **options: Any) -> subtext.Result:
        return evaluate(None, data.data, scores=run, **options)

    monkeypatch.setattr(subtext, "evaluate", scored)
    monkeypatch.setattr(measures, "TEXTS", DRAWN)
    config = TableConfig(
        "ascl2024_figure5", tables()["ascl2024_figure5"], (), tmp_path, {"mine": DataPaths(file)}, quiet=True
    )
    found = measures.measure("lengths", measures.Subject(file, "mine", config, TableData(pairs, pairs, pairs, pairs)))
    drawn = draw.permutation(len(pairs.texts), seed=0, epoch=0, purpose="texts by length")[:DRAWN]
    ranks = (scores > scores.gather(0, torch.arange(PICTURES).repeat_interleave(EACH)[None])).sum(dim=0).numpy()
    seen = 0
    for place, label in enumerate(words()):
        own = [text for text in drawn if text % EACH == place]
        seen += len(own)
        assert found.figures[f"texts({label})"] == len(own) > 0
        for k in measures.RECALLS:
            name = f"text_to_image/recall@{k}({label})"
            assert found.figures[name] == pytest.approx(np.mean(ranks[own] < k), abs=1e-12)
            assert sorted(found.clusters[name].tolist()) == sorted(text // EACH for text in own)
    assert seen == DRAWN
