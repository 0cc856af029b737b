"""Captions that relevance is measured on: COCO's test set where SUBTEXT_DATA has it, else made ones of its size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PICTURES, EACH = 5_000, 5
_WORDS = 7_000


def captions(pictures: int) -> tuple[list[str], NDArray[np.int64], str]:
    """Texts, the picture of each, and what they are."""
    groups = np.repeat(np.arange(pictures), EACH)
    data = os.environ.get("SUBTEXT_DATA")
    file = None if data is None else Path(data) / "coco5k_text" / "karpathy_test_5k.jsonl"
    if file is None or not file.is_file():
        return made(pictures), groups, "made captions"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:pictures]]
    return [text for row in rows for text in row["captions"][:EACH]], groups, "captions of COCO's test set"


def made(pictures: int) -> list[str]:
    """Words as frequent as words are (Zipf), of which captions of one picture share some; 6 to 20 words each."""
    draw = np.random.default_rng(0)
    chances = 1 / np.arange(1, _WORDS + 1)
    chances /= chances.sum()
    texts = []
    for _ in range(pictures):
        topic = draw.choice(_WORDS, size=8, p=chances)
        for _ in range(EACH):
            own = draw.choice(_WORDS, size=draw.integers(3, 13), p=chances)
            words = draw.permutation(np.concatenate([own, draw.choice(topic, size=draw.integers(3, 8))]))
            texts.append(" ".join(f"w{word}" for word in words))
    return texts
