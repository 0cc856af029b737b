"""Weights and draws on hosts without a triplet loss, and on items that are distributions: they learn."""

from __future__ import annotations

import json
import math
from pathlib import Path

import made_data
import pytest
from command import call

WORDS = ["--embed-dim", 8, "--epochs", 2, "--batch-size", 8, "--workers", 0, "--device", "cpu", "-q", "--lr", 0.01]
CASES = [
    ("dual", "mithun:hard=no", []),
    ("dual", "distance:loss=margin", []),
    ("pcme", "mithun:hard=no", ["--draws", 2]),
    ("pcme", "diversity:graph={graph},views=mean", ["--draws", 2]),
    ("pcme", "discrepancy:graph={graph}", ["--draws", 2]),
    ("pcme_plus", "combined:graph={graph}", []),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    data, _ = made_data.write(folder)
    near = ["--space", "lsa", "--width", 4, "--neighbours", 3, "-q"]
    call("neighbours", "build", folder / "graph", "--data", data, *near)
    return folder


@pytest.mark.parametrize(("host", "method", "more"), CASES)
def test_they_train(host: str, method: str, more: list[object], made: Path, tmp_path: Path) -> None:
    data = ["--data", made / "pairs.jsonl", "--features", made / "features.npz"]
    method = method.replace("{graph}", str(made / "graph"))
    runs = {}
    for name, with_ in (("with", ["--with", method]), ("plain", [])):
        call("train", host, *data, *WORDS, *more, *with_, "--out", tmp_path / name)
        lines = (json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines())
        runs[name] = [line["loss"] for line in lines if line["event"] == "epoch"]
    assert len(runs["with"]) == 2 and all(map(math.isfinite, runs["with"]))
    # The second epoch's weights are those of the first one's embeddings.
    assert runs["with"][1] != runs["plain"][1]
