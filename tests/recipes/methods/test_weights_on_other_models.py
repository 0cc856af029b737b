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
    ("dual", "mithun:hardest_only=no", []),
    ("dual", "distance:loss=margin", []),
    ("pcme", "mithun:hardest_only=no", ["--samples", 2]),
    ("pcme", "diversity:graph={graph},views=mean", ["--samples", 2]),
    ("pcme", "discrepancy:graph={graph}", ["--samples", 2]),
    ("pcme_plus", "combined:graph={graph}", []),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    data, _ = made_data.write(folder)
    near = ["--space", "lsa", "--dim", 4, "--neighbours", 3, "-q"]
    call("neighbours", "build", folder / "graph", "--data", data, *near)
    return folder


def losses(made: Path, run: Path, *words: object) -> list[float]:
    """The loss of each epoch of a training."""
    data = ["--data", made / "pairs.jsonl", "--features", made / "features.npz"]
    call("train", *words, *data, *WORDS, "--out", run)
    lines = (json.loads(line) for line in (run / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "epoch"]


@pytest.fixture(scope="module")
def plain(made: Path) -> dict[str, list[float]]:
    """The losses of each host without a method."""
    hosts = {host: more for host, _, more in CASES}
    return {host: losses(made, made / host, host, *more) for host, more in hosts.items()}


@pytest.mark.parametrize(("host", "method", "more"), CASES)
def test_weighted_training_changes_loss_after_first_epoch(
    host: str, method: str, more: list[object], made: Path, plain: dict[str, list[float]], tmp_path: Path
) -> None:
    method = method.replace("{graph}", str(made / "graph"))
    weighted = losses(made, tmp_path / "run", host, *more, "--with", method)
    assert len(weighted) == 2 and all(map(math.isfinite, weighted))
    # The second epoch's weights are those of the first one's embeddings.
    assert weighted[1] != plain[host][1]
