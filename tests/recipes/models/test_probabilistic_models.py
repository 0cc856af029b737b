"""PCME, PCME++ and DSRAN as a user trains, evaluates, audits, embeds and indexes them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import made_data
import numpy as np
import pyarrow.parquet as pq
import pytest
import small_training
import torch
from click.testing import CliRunner
from command import call

from subtext.api.load import open_run
from subtext.api.search import open_index
from subtext.cli import main
from subtext.core import DIRECTIONS
from subtext.data.read import read
from subtext.errors import RecipeError, TrainingError
from subtext.evaluation import embed_pairs
from subtext.models.heads.gaussian import Gaussian, Spread
from subtext.models.model import Branch, Model
from subtext.models.similarity.probabilistic import MatchProbability
from subtext.objectives.losses.soft_contrastive import SoftContrastive
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import KL, Uniformity
from subtext.recipes.methods.daa import daa
from subtext.recipes.models.pcme_plus.mixing import Mixing
from subtext.training.plan import Plan, RunConfig
from subtext.training.setup import Setup

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
HOSTS: dict[str, list[object]] = {
    "pcme": ["--samples", 3, "--init-log-std", -3, "--init-scale", 5, "--init-shift", 5],
    "pcme_plus": ["--weight-average", "none"],
    "dsran": ["--grid-cells", 1, "--dropout", 0],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of a cell of the whole and two to four regions, of which two show what the texts name."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(3)
    shown = made_data.write_shown(folder, rng)
    grid = np.zeros((len(shown.names), 5, made_data.WIDTH), dtype=np.float32)
    for place, things in enumerate(shown.things):
        several = 3 + place % 3
        grid[place, :several] = 0.3 * rng.normal(size=(several, made_data.WIDTH))
        grid[place, 0] += shown.topics[things].mean(axis=0)
        grid[place, 1:3] += shown.topics[things]
    np.savez(folder / "regions.npz", names=shown.names, grid=grid)
    return folder


def given(made: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]


@pytest.fixture(scope="module")
def runs(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each host."""
    folder = tmp_path_factory.mktemp("runs")
    for host, told in HOSTS.items():
        call("train", host, *given(made), "--out", folder / host, *SMALL, *told)
    return {host: folder / host for host in HOSTS}


def log(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "epoch"]


@pytest.mark.parametrize("host", HOSTS)
def test_loss_falls_and_recall_rises(host: str, runs: dict[str, Path]) -> None:
    epochs = log(runs[host])
    assert epochs[-1]["loss"] < 0.95 * epochs[0]["loss"]
    assert max(line["figures"]["rsum"] for line in epochs) > epochs[0]["figures"]["rsum"] + 10


@pytest.mark.parametrize("host", HOSTS)
def test_evaluation_is_deterministic_and_audit_passes(
    host: str, runs: dict[str, Path], made: Path, tmp_path: Path
) -> None:
    found = []
    for size, name in ((128, "first"), (5, "second")):
        file = tmp_path / f"{name}.json"
        call("evaluate", runs[host], *given(made), "--split", "val", "--batch-size", size, "--json", file)
        told = json.loads(file.read_text())
        found.append({name: value for name, value in told.items() if isinstance(value, float)})
    assert found[0] == found[1] and "rsum" in found[0]
    answer = call("audit", runs[host], *given(made), "--split", "test", "-q")
    assert "none fails" in answer.stdout.splitlines()[-1]


@pytest.mark.parametrize("host", HOSTS)
def test_model_embeds_with_uncertainty_and_builds_index(
    host: str, runs: dict[str, Path], made: Path, tmp_path: Path
) -> None:
    run, vectors = runs[host], tmp_path / "vectors.npz"
    call("embed", run, *given(made), "--out", vectors)
    probabilistic = host != "dsran"
    with np.load(vectors) as found:
        assert found["text_vectors"].shape[1:] == (24,)
        np.testing.assert_allclose(np.linalg.norm(found["image_vectors"], axis=1), 1, atol=1e-5)
        assert ("image_uncertainty" in found) == ("text_uncertainty" in found) == probabilistic
        if probabilistic:
            assert found["text_uncertainty"].shape == found["text_ids"].shape
            assert (found["text_uncertainty"] > 0).all() and found["text_uncertainty"].std() > 0
    table = tmp_path / "vectors.parquet"
    call("embed", run, *given(made), "--out", table)
    assert ("uncertainty" in pq.read_table(table).column_names) == probabilistic
    call("index", "build", tmp_path / "index", "--run", run, *given(made))
    hits = open_index(tmp_path / "index").search("a dog and a cat", top=3, signals=("pixels",))
    assert len(hits) == 3 and -1.001 <= hits[0].score <= 1.001
    answer = call("search", tmp_path / "index", "a dog and a cat", "--signals", "pixels")
    assert hits[0].id in answer.stdout


@pytest.mark.parametrize("host", ["pcme", "pcme_plus"])
def test_space_is_measured_on_means(host: str, runs: dict[str, Path], made: Path) -> None:
    words = [*given(made), "--split", "val", "--alignment-uniformity", "--bootstrap", "0", "-q"]
    answer = call("evaluate", runs[host], *words)
    assert "alignment" in answer.stdout and "image/uncertainty" in answer.stdout
    told = json.loads(call("evaluate", runs[host], *words, "--json", "-").stdout)
    pairs = read(made / "pairs.jsonl", need_images=False).split("val")
    model = open_run(runs[host]).model
    images, texts = embed_pairs(model.to_means("a test"), pairs, workers=0)
    apart = (images.vectors[pairs.links[:, 0], 0] - texts.vectors[pairs.links[:, 1], 0]).norm(dim=1)
    assert told["alignment"] == pytest.approx(apart.mean().item(), abs=1e-5)
    assert images.uncertainty is not None
    assert told["image/uncertainty"] == pytest.approx(images.uncertainty.mean().item(), rel=1e-4)
    assert told["text/uncertainty"] > 0 and told["text/uncertainty_deviation"] > 0


@pytest.mark.parametrize("host", ["pcme", "pcme_plus"])
def test_pairs_are_curated_and_scored(host: str, runs: dict[str, Path], made: Path, tmp_path: Path) -> None:
    call("curate", *given(made)[1:], "--run", runs[host], "--out", tmp_path / "curated", "-q")
    rows = pq.read_table(tmp_path / "curated" / "pairs.parquet").to_pylist()
    assert len(rows) == 120 and all(row["image_uncertainty"] > 0 and -1 <= row["cosine"] <= 1.001 for row in rows)
    scored = json.loads(
        call("score", made / "pairs.jsonl", "--features", made / "regions.npz", "--run", runs[host], "--json").stdout
    )["pairs"]
    first = scored[0]
    assert first["text_uncertainty"] == pytest.approx(
        next(row["text_uncertainty"] for row in rows if row["text"] == first["text"]), rel=1e-3
    )
    call("index", "build", tmp_path / "index", "--run", runs[host], *given(made), "--split", "all", "-q")
    hits = open_index(tmp_path / "index").search(first["caption"], top=60, signals=("pixels",))
    own = next(hit for hit in hits if hit.id == first["image"])
    assert first["similarity"] == pytest.approx(own.score, abs=1e-5)
    assert (own.uncertainty is not None) == (host == "pcme_plus")


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_means_are_exported(host: str, runs: dict[str, Path], tmp_path: Path) -> None:
    # In a process of its own: what checks shapes while testing takes no symbols for numbers.
    words = [sys.executable, "-m", "subtext", "export", runs[host], "--onnx", tmp_path / "onnx", "-q"]
    answer = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
    assert "largest difference" in answer.stdout


def test_embed_returns_uncertainty(runs: dict[str, Path]) -> None:
    model = open_run(runs["pcme"]).model
    found = model.embed_texts(["a dog and a cat", "the boat"])
    assert found.vectors.shape == (2, 3, 24)
    assert found.uncertainty is not None and found.uncertainty.shape == (2,)
    alone = model.embed_texts(["a dog and a cat"])
    torch.testing.assert_close(alone.vectors[0], found.vectors[0], atol=1e-6, rtol=0)


def drawing(plan: Plan | None = None) -> Setup:
    """The small model with gaussian heads, draws and all terms that pcme has."""
    made = small_training.setup(plan)
    heads = (
        Gaussian(made.model.image.head, Spread(16, 8, pooled_width=16, start=-2.0), 8, draws=3),
        Gaussian(made.model.text.head, Spread(8, 8, recurrent=True, start=-2.0), 8, draws=3, side="text"),
    )
    sides = (made.model.image, made.model.text)
    branches = [Branch(side.input_spec, side.encoder, head) for side, head in zip(sides, heads, strict=True)]
    parts = {side: Term(SoftContrastive(), on=side, reduction="sum") for side in DIRECTIONS}
    penalties = {"divergence": Penalty(KL(), 1e-3), "uniformity": Penalty(Uniformity(), 0.1)}
    model = Model(branches[0], branches[1], MatchProbability(scale=5.0, shift=5.0))
    return Setup(model, Objective({**parts, **penalties}), made.plan)


def test_resumed_training_gives_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    plan = Plan(epochs=3, batch_size=16, lr=1e-2)
    whole = small_training.run(tmp_path / "whole", plan=plan, made=drawing)
    options = RunConfig(device="cpu", workers=0)
    part = small_training.run(
        tmp_path / "parts", plan=plan, made=drawing, options=options, report=small_training.Interrupt(4)
    )
    assert part.record.status == "stopped"
    small_training.run(tmp_path / "parts", plan=plan, made=drawing, options=replace(options, resume=True))
    first, second = (open_weights(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert whole.record.status == "finished"


def test_gradient_cache_draws_equal_samples(tmp_path: Path) -> None:
    found = []
    for chunk in (0, 5):
        plan = Plan(epochs=1, batch_size=16, lr=1e-2, grad_cache_chunk=chunk)
        small_training.run(tmp_path / str(chunk), plan=plan, made=drawing_plainly)
        found.append(open_weights(tmp_path / str(chunk)))
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, atol=1e-4, rtol=1e-3)


def drawing_plainly(plan: Plan | None = None) -> Setup:
    """The same without dropout, which chunks draw apart."""
    made = drawing(plan)
    for module in made.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return made


def test_daa_orders_samples_by_relevance(made: Path, tmp_path: Path) -> None:
    told = [*SMALL, *HOSTS["pcme"], "--samples", 2, "--select", "last", "-q"]
    for name, more in (("run", ["--with", "daa"]), ("alone", [])):
        call("train", "pcme", *given(made), "--out", tmp_path / name, *told, *more)
    epochs = [line["parts"] for line in log(tmp_path / "run")]
    for side in DIRECTIONS:
        assert epochs[-1][f"daa {side}"] < 0.97 * epochs[0][f"daa {side}"]
    assert in_order(tmp_path / "run", made) > in_order(tmp_path / "alone", made) + 1
    assert [name for name, _ in open_run(tmp_path / "run").record.methods] == ["daa"]


def in_order(run: Path, made: Path) -> float:
    """ASP of the training pairs, mean of both directions: how far candidates are in the order of their words."""
    words = ["--split", "train", "--relevance", "tfidf1", "--bootstrap", "0", "--json", "-", "-q"]
    found = json.loads(call("evaluate", run, *given(made), *words).stdout)
    return sum(found[f"{side}/asp(tfidf1)"] for side in DIRECTIONS) / 2


def mixed(plan: Plan | None = None) -> Setup:
    made = small_training.setup_with_pixels(plan)
    terms = {side: Term(SoftContrastive(pseudo=0.1, smoothing=1e-4), on=side) for side in DIRECTIONS}
    return Setup(made.model, Objective(terms), made.plan, mixing=Mixing(0.5))


def test_mixed_images_train_and_resume(tmp_path: Path) -> None:
    data = small_training.with_pictures(small_training.pairs(16, captions=1), tmp_path)
    plan = Plan(epochs=3, batch_size=8, lr=1e-2)
    told = {"plan": plan, "made": mixed, "train": data, "val": None}
    first = small_training.run(tmp_path / "first", **told)
    second = small_training.run(tmp_path / "second", **told, options=RunConfig(device="cpu", workers=2))
    assert first.record.status == "finished"
    states = [open_weights(tmp_path / name) for name in ("first", "second")]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    assert second.record.status == "finished"


def open_weights(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(run / "model.safetensors")


def test_invalid_mixing_raises(made: Path, tmp_path: Path) -> None:
    answer = call("train", "pcme_plus", *given(made), "--out", tmp_path / "run", *SMALL, "--mix-prob", 0.5, code=1)
    assert "--mix-prob needs --image tiny or a backbone" in answer.output
    with pytest.raises(RecipeError, match=r"daa needs images that are not mixed; this model mixes them"):
        daa(mixed())
    together = Plan(epochs=1, batch_size=8, caption_sampling="together")
    data = small_training.with_pictures(small_training.pairs(8), tmp_path)
    with pytest.raises(TrainingError, match=r"mixed images need pairs, .* caption_sampling is together"):
        small_training.run(tmp_path / "run", plan=together, made=mixed, train=data, val=None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pcme", "--samples", 0], "samples needs"),
        (["pcme", "--embed-dim", 23], "an even"),
        (["pcme_plus", "--label-smoothing", 0.5], "smoothing needs"),
        (["pcme_plus", "--init-scale", "nan"], "finite scale"),
        (["dsran", "--grid-cells", 9], "this head needs 9 cells and then regions per image; it got"),
        (["dsran", "--joint-layers", 3], "joint-layers needs"),
    ],
)
def test_bad_settings_raise(words: list[object], said: str, made: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        main, [str(word) for word in ("train", words[0], *given(made), "--out", tmp_path / "run", *SMALL, *words[1:])]
    )
    assert answer.exit_code in (1, 2)
    assert said in answer.output.replace("\n", " "), answer.output
