"""Models that look at regions and words together, as a user trains and evaluates them."""

from __future__ import annotations

import json
from pathlib import Path

import made_data
import numpy as np
import pytest
from command import call

from subtext.api.load import open_run
from subtext.core import DIRECTIONS
from subtext.evaluation.scoring import Embedded, Matrix
from subtext.models.similarity.cross_attention import CrossAttention
from subtext.models.similarity.sgraf import _Nodes

SMALL = [
    "--embed-dim",
    "24",
    "--word-dim",
    "16",
    "--batch-size",
    "16",
    "--lr",
    "5e-3",
    "--epochs",
    "6",
    "--workers",
    "0",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two to four regions, of which two show what the texts name; padded with zeros."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(3)
    shown = made_data.write_shown(folder, rng)
    grid = np.zeros((len(shown.names), 4, made_data.WIDTH), dtype=np.float32)
    for place, things in enumerate(shown.things):
        several = 2 + place % 3
        grid[place, :several] = 0.3 * rng.normal(size=(several, made_data.WIDTH))
        grid[place, :2] += shown.topics[things]
    np.savez(folder / "regions.npz", names=shown.names, grid=grid)
    return folder


def given(made: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]


@pytest.mark.parametrize("host", ["scan", "chan"])
def test_pair_model_trains_evaluates_and_cannot_build_index(host: str, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    call("train", host, *given(made), "--out", out, *SMALL)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    # From the second epoch on the loss is the same one: chan's first counts all negatives.
    assert epochs[-1]["loss"] < 0.95 * epochs[1]["loss"]
    assert max(line["figures"]["rsum"] for line in epochs) > epochs[0]["figures"]["rsum"] + 20
    answer = call("evaluate", out, *given(made), "--split", "val")
    assert "recall@10" in answer.stdout or "R@10" in answer.stdout
    refused = call("index", "build", tmp_path / "index", "--run", out, *given(made), code=1)
    assert "only scores pairs; use two stages: index a dual encoder" in refused.output


def test_large_pair_matrix_is_scored_once(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    call("train", "scan", *given(made), "--out", out, *SMALL[:-4], "--epochs", 1, "--workers", 0)
    run = open_run(out)
    calls: list[int] = []
    forward = CrossAttention.forward

    def counted(self: CrossAttention, images: object, texts: object, *made: object) -> object:
        calls.append(1)
        return forward(self, images, texts, *made)

    monkeypatch.setattr(CrossAttention, "forward", counted)
    rng = np.random.default_rng(0)
    pictures = [rng.normal(size=(3, made_data.WIDTH)).astype(np.float32) for _ in range(5)]
    images, texts = run.model.embed_images(pictures), run.model.embed_texts(["a red dog", "the cat", "a boat"])
    whole = Embedded(run.model.similarity, images, texts, stored_bytes=1).part(np.arange(5), np.arange(3))
    once = len(calls)
    assert isinstance(whole, Matrix)
    assert [len(list(whole.blocks(side))) for side in ("image_to_text", "text_to_image")] == [1, 1]
    assert len(calls) == once


@pytest.mark.slow
def test_daa_trains_saf_sgr_and_their_ensemble(made: Path, tmp_path: Path) -> None:
    for reasoning in ("saf", "sgr"):
        told = ["--reasoning", reasoning, "--similarity-dim", "6", "--select", "last", "-q"]
        call("train", "sgraf", *given(made), "--out", tmp_path / reasoning, *SMALL, *told, "--with", "daa")
        lines = map(json.loads, (tmp_path / reasoning / "log.jsonl").read_text().splitlines())
        epochs = [line["parts"] for line in lines if line["event"] == "epoch"]
        for side in DIRECTIONS:
            assert epochs[-1][f"daa {side}"] < 0.95 * epochs[0][f"daa {side}"]
        assert [name for name, _ in open_run(tmp_path / reasoning).record.methods] == ["daa"]
    # A loss of its own falls for other reasons, too: what counts is the order, beside that of a run without.
    call("train", "sgraf", *given(made), "--out", tmp_path / "alone", *SMALL, *told)
    assert in_order(tmp_path / "sgr", made) > in_order(tmp_path / "alone", made) + 2
    call("ensemble", tmp_path / "saf", tmp_path / "sgr", "--out", tmp_path / "both")
    found = json.loads(call("evaluate", tmp_path / "both", *given(made), "--json", "-", "-q").stdout)
    assert found["rsum"] > 0 and found["model"]["model"] == "ensemble"
    model = open_run(tmp_path / "both").model
    model.score_in_bf16()
    assert [part.bf16 for part in model.modules() if isinstance(part, _Nodes)] == [True, True]


def in_order(run: Path, made: Path) -> float:
    """ASP of the training pairs, mean of both directions: how far candidates are in the order of their words."""
    words = ["--split", "train", "--relevance", "tfidf1", "--bootstrap", "0", "--json", "-", "-q"]
    found = json.loads(call("evaluate", run, *given(made), *words).stdout)
    return sum(found[f"{side}/asp(tfidf1)"] for side in DIRECTIONS) / 2


@pytest.mark.parametrize("host", ["imram", "ascl"])
def test_bfloat16_is_enabled_by_option(host: str, made: Path, tmp_path: Path) -> None:
    call("train", host, *given(made), "--out", tmp_path / "run", *SMALL, "--epochs", "1", "--bf16", "-q")
    assert open_run(tmp_path / "run").model.similarity.bf16 is True
