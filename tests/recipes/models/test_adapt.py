"""`subtext train adapt`: a frozen dual encoder, adapters that start as the identity, and epoch 0 in the selection."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import tiny_models
import torch
from command import call
from PIL import Image
from torch import nn

import subtext as st
from subtext.api.interpolate import scale_updates
from subtext.api.train import flat_arguments
from subtext.core import Encoded
from subtext.errors import RecipeError, RequirementError
from subtext.models.heads.mean import Adapter
from subtext.ops.numerics import unit

WIDTH = 12
COUNTS = {"train": 120, "val": 40}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of a dual encoder on an archive whose texts mean something else: in a part of the space, mirrored."""
    folder = tmp_path_factory.mktemp("archive")
    rng = np.random.default_rng(0)
    count = sum(COUNTS.values())
    images = rng.normal(size=(count, WIDTH)).astype(np.float32)
    mirror = np.where(np.arange(WIDTH) < WIDTH // 3, -1.0, 1.0)
    texts = (images * mirror + 0.6 * rng.normal(size=images.shape)).astype(np.float32)
    splits = [split for split, number in COUNTS.items() for _ in range(number)]
    rows = [{"image": f"{n}.jpg", "captions": [f"text {n}"], "split": split} for n, split in enumerate(splits)]
    made_data.write_rows(folder / "pairs.jsonl", rows)
    names = np.array([row["image"] for row in rows])
    np.savez(folder / "images.npz", names=names, pooled=images)
    np.savez(folder / "texts.npz", names=np.array([f"{name}#0" for name in names]), pooled=texts)
    return folder


def adapted(archive: Path, out: Path, **options: Any) -> st.Run:
    common: dict[str, Any] = {"features": archive / "images.npz", "text_features": archive / "texts.npz"}
    common |= {"model": "features", "epochs": 3, "quiet": True, "workers": 0, "device": "cpu"}
    return st.train(
        "adapt", **flat_arguments("adapt", {"data": archive / "pairs.jsonl", "out": out, **common | options})
    )


def test_adapter_starts_as_identity_plus_mlp() -> None:
    head = Adapter(5, 3).eval()
    x = torch.randn(4, 5)
    torch.testing.assert_close(head(Encoded(pooled=x), torch.arange(4)).vectors[:, 0], unit(x))
    down, up = head.perceptron[1], head.perceptron[3]
    assert isinstance(down, nn.Linear) and isinstance(up, nn.Linear)
    nn.init.normal_(up.weight)
    for row, found in zip(x, head(Encoded(pooled=x), torch.arange(4)).vectors[:, 0], strict=True):
        u = row / row.norm()
        by_hand = u + up.weight @ (down.weight @ u + down.bias).clamp(min=0)
        torch.testing.assert_close(found, by_hand / by_hand.norm())


def test_embed_output_serves_as_features_of_both_sides(archive: Path, tmp_path: Path) -> None:
    run = adapted(archive, tmp_path / "run", epochs=1)
    st.embed(run.path, out=tmp_path / "vectors.npz", quiet=True)
    by_two = {}
    with np.load(tmp_path / "vectors.npz") as arrays:
        for side in ("image", "text"):
            by_two[side] = tmp_path / f"{side}.npz"
            np.savez(by_two[side], names=arrays[f"{side}_ids"], pooled=arrays[f"{side}_vectors"])
    apart = adapted(archive, tmp_path / "two", features=by_two["image"], text_features=by_two["text"], epochs=1)
    one = tmp_path / "vectors.npz"
    again = adapted(archive, tmp_path / "one", features=one, text_features=one, epochs=1)
    assert again.record.best == apart.record.best and again.record.start == apart.record.start


@pytest.mark.parametrize("seed", range(5))
def test_selected_epoch_is_never_worse_than_start(archive: Path, tmp_path: Path, seed: int) -> None:
    """By a rate that learns, and by one that only spoils."""
    good = adapted(archive, tmp_path / "good", seed=seed, epochs=8, lr=0.02)
    record = good.record
    assert record.best["rsum"] > record.start["rsum"] and record.best_epoch is not None and record.best_epoch > 0
    spoilt = adapted(archive, tmp_path / "spoilt", seed=seed, lr=50.0, max_grad_norm=0.0)
    assert spoilt.record.best_epoch == 0 and spoilt.record.best == spoilt.record.start == record.start
    assert not spoilt.model.image.head.perceptron[3].weight.any(), "the weights are those of the start"
    again = st.evaluate(tmp_path / "spoilt", split="val", quiet=True)
    assert again.figures["rsum"] == record.start["rsum"]


def test_move_compares_models_on_held_out_pairs(archive: Path, tmp_path: Path) -> None:
    archive = shutil.copytree(archive, tmp_path / "archive")
    rows = [json.loads(line) for line in (archive / "pairs.jsonl").read_text().splitlines()]
    made_data.write_rows(archive / "pairs.jsonl", [row | {"split": "test"} for row in rows[:30]] + rows[30:])
    spoilt = adapted(archive, tmp_path / "spoilt", lr=50.0, max_grad_norm=0.0, select="last")
    adapted(archive, tmp_path / "good", epochs=8, lr=0.02)
    index = tmp_path / "index"
    st.build_index(index, run=spoilt, quiet=True)
    moved = call("index", "move", index, "--run", tmp_path / "good", "-q").stdout
    assert "30 held-out images" in moved, "what selected the epoch is left out where enough is left"
    line = next(line for line in moved.splitlines() if line.startswith("text_to_image/recall@1 "))
    before, after, difference, low, high = map(float, re.findall(r"[-+]?\d+\.\d", line))
    assert after > before and difference == pytest.approx(after - before, abs=0.11) and low <= difference <= high
    worse = ["index", "move", index, "--run", tmp_path / "spoilt", "-q"]
    refused = call(*worse, code=1).stderr
    assert (
        "is, and" in refused and "--even-if-worse embeds nothing again" in refused and f"{-difference:.1f}" in refused
    )
    assert st.index_info(index).manifest["run"] == str(tmp_path / "good")
    st.delete_from_index(index, [f"{number}.jpg" for number in [*range(30), *range(120, 160)]])
    # What either learnt from is no evidence.
    few = call(*worse, code=1).stderr
    assert "10 or more images with texts that neither was trained on; of 90 in" in few and "0 are left" in few
    assert f"have vectors of {tmp_path / 'spoilt'}" in call(*worse, "--even-if-worse").stdout


def test_result_reports_paired_difference_to_start(archive: Path, tmp_path: Path) -> None:
    run = adapted(archive, tmp_path / "run", epochs=8, lr=0.02)
    compared = st.compare(tmp_path / "run" / "kept.json", tmp_path / "run" / "start.json", metric=("recall@10",))
    line = compared.lines[0]
    assert line.first == run.record.best[line.name] and line.second == run.record.start[line.name]
    assert line.low <= line.difference <= line.high
    rows = [text.split() for text in run.summary.splitlines() if text.startswith(line.name)]
    interval = [f"{line.low:+.1f}", "to", f"{line.high:+.1f}"]
    assert rows == [[line.name, f"{line.second:.1f}", f"{line.first:.1f}", f"{line.difference:+.1f}", *interval]]
    assert "split val, which selected the epoch" in run.summary
    finished = adapted(archive, tmp_path / "run", epochs=8, lr=0.02, resume=True)
    assert finished.record.start == run.record.start and line.name in finished.summary


@pytest.mark.parametrize("rank", [0, 2])
def test_pretrained_folder_is_embedded_once_and_equals_epoch_0(tmp_path: Path, rank: int) -> None:
    folder = tiny_models.processed("clip", tmp_path / "clip")[0]
    rng = np.random.default_rng(1)
    rows = []
    for number in range(40):
        Image.fromarray(rng.integers(0, 255, (36, 40, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
        split = "train" if number < 20 else "val"
        rows.append({"image": f"{number}.png", "captions": [f"a dog on beach {number}"], "split": split})
    made_data.write_rows(tmp_path / "pairs.jsonl", rows)
    words = ["--data", tmp_path / "pairs.jsonl", "--text-prompt", "two {}", "--out", tmp_path / "run", "--epochs", 1]
    answer = call("train", "adapt", "--model", folder, *words, "--workers", 0, "--lora-rank", rank, "--select", "last")
    assert "epoch 0 of 1: before training; recall@10" in answer.stderr
    # Towers with adapters inside learn, and run in every epoch.
    assert answer.stderr.count("encoder was run once; its outputs are read from") == (0 if rank else 2)
    state = st.load(tmp_path / "run").state_dict()
    assert any("lora_B" in name and value.any() for name, value in state.items()) is bool(rank)
    zero_shot = st.evaluate(
        folder,
        tmp_path / "pairs.jsonl",
        split="val",
        protocol=st.Protocol(bootstrap=0),
        config=st.ComputeConfig(text_prompt="two {}"),
        quiet=True,
    )
    start = st.open_run(tmp_path / "run").record.start
    assert {name: zero_shot.figures[name] for name in start} == pytest.approx(start)
    call("index", "build", tmp_path / "library", "--run", tmp_path / "run", "-q")


def test_last_epoch_is_kept_without_validation(archive: Path, tmp_path: Path) -> None:
    run = adapted(archive, tmp_path / "run", val_split="none")
    assert run.record.start == {} and run.record.epochs == 3
    last = adapted(archive, tmp_path / "last", select="last", lr=50.0, max_grad_norm=0.0)
    assert last.record.best_epoch == 3 and last.record.start["rsum"] > last.record.best["rsum"]


def test_unsuitable_models_or_features_raise(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="text_prompt, lora_rank and the options of images need a pretr"):
        adapted(archive, tmp_path / "a", text_prompt="a {}")
    with pytest.raises(RecipeError, match="text_prompt, lora_rank and the options of images need a pretr"):
        adapted(archive, tmp_path / "a", lora_rank=2)
    with pytest.raises(
        RecipeError, match="adapter_dim needs adapters after the towers; lora_rank is 2; leave adapter_dim out"
    ):
        adapted(archive, tmp_path / "a", model="some/clip", lora_rank=2, adapter_dim=4)
    with pytest.raises(RecipeError, match="features needs model=features; model is some/clip"):
        adapted(archive, tmp_path / "b", model="some/clip")
    np.savez(tmp_path / "narrow.npz", **{**np.load(archive / "texts.npz"), "pooled": np.ones((160, 5), np.float32)})
    with pytest.raises(RequirementError, match="one space; their vectors have 12 and 5 numbers"):
        adapted(archive, tmp_path / "c", text_features=tmp_path / "narrow.npz")


@pytest.mark.golden
def test_share_of_an_adapter_is_on_the_straight_line_of_the_card() -> None:
    head = Adapter(2, 2).eval()
    first, last = head.perceptron[1], head.perceptron[3]
    first.weight.data, last.weight.data = (
        torch.tensor([[1.0, -1.0], [0.5, 1.0]]),
        torch.tensor([[0.2, 0.0], [-0.4, 0.6]]),
    )
    first.bias.data.zero_()
    model = nn.ModuleDict({"head": head})
    trained = last.weight.detach().clone()
    expected = {0.25: [0.5280199, 0.849232], 0.5: [0.46896472, 0.8832169], 0.75: [0.42039067, 0.9073432]}
    for share, vector in expected.items():
        last.weight.data.copy_(trained)
        scale_updates(model, share)
        found = head(Encoded(pooled=torch.tensor([[0.6, 0.8]])), torch.arange(1)).vectors[0, 0]
        assert found.tolist() == pytest.approx(vector, abs=1e-6)


@pytest.mark.golden
def test_low_rank_update_is_scaled_once() -> None:
    """A share of 0.4 of W + B A, not of both factors."""
    update = nn.ModuleDict({"lora_A": nn.ModuleDict({"default": nn.Linear(2, 1, bias=False)})})
    update["lora_B"] = nn.ModuleDict({"default": nn.Linear(1, 2, bias=False)})
    update["lora_A"]["default"].weight.data = torch.tensor([[0.5, 0.25]])
    update["lora_B"]["default"].weight.data = torch.tensor([[1.0], [-1.0]])
    scale_updates(nn.ModuleDict({"layer": update}), 0.4)
    merged = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    merged = merged + update["lora_B"]["default"].weight @ update["lora_A"]["default"].weight
    torch.testing.assert_close(merged, torch.tensor([[1.2, 2.1], [-0.2, 0.9]]))


def test_interpolated_run_is_best_on_validation_and_one_like_any_other(archive: Path, tmp_path: Path) -> None:
    run = adapted(archive, tmp_path / "run", select="last", epochs=12, lr=3e-2)
    found = st.interpolate_run(run.path, out=tmp_path / "between", quiet=True)
    shares = [row["share"] for row in found.curve]
    assert shares == [step / 10 for step in range(11)]
    best = max(row["rsum"] for row in found.curve)
    chosen = next(row for row in found.curve if row["rsum"] == best)
    assert found.share == chosen["share"] and found.curve[0]["rsum"] == pytest.approx(run.record.start["rsum"])
    assert found.curve[-1]["rsum"] == pytest.approx(run.record.best["rsum"])
    again = st.evaluate(found.run.path, split="val", protocol=st.Protocol(bootstrap=0), quiet=True)
    assert again.figures["rsum"] == pytest.approx(best)
    kept = found.run.record.best
    assert kept.keys() == run.record.best.keys()
    assert {name: again.figures[name] for name in kept} == pytest.approx(kept)
    written = json.loads((tmp_path / "between" / "interpolation.json").read_text())
    assert written["share"] == found.share and written["curve"] == list(found.curve)
    assert f"keeps {found.share:g} of what was learnt" in str(found)
    with pytest.raises(RequirementError, match="reads features; leave it out"):
        st.interpolate_run(run.path, out=tmp_path / "other", general=archive / "pairs.jsonl")


def test_interpolating_a_run_of_another_model_raises(archive: Path, tmp_path: Path) -> None:
    data = st.DataConfig(
        archive / "pairs.jsonl", features=archive / "images.npz", text_features=archive / "texts.npz", val_split=None
    )
    run = st.train("vse", data=data, out=tmp_path / "vse", plan=st.Plan(epochs=1), quiet=True)
    with pytest.raises(RecipeError, match="interpolate needs a run of adapt"):
        st.interpolate_run(run.path, out=tmp_path / "between")
