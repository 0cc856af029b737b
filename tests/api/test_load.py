"""What was kept opens again as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import subtext
from subtext.api.load import open_run
from subtext.api.train import flat_arguments
from subtext.cli import main
from subtext.data.dataset import fingerprint
from subtext.data.features import FeatureInput
from subtext.data.read import read
from subtext.errors import CheckpointError, DataError, RecipeError, SearchIndexError
from subtext.evaluation import embed_pairs
from subtext.models.checkpoint import load_record

TEXTS = ["a dog and a boat", "the red is near the blue", "words that nobody wrote"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("opening")
    data, features = made_data.write(place)
    words = ["train", "pvse", "--data", data, "--features", features, "--out", place / "run", "--embed-dim", "16"]
    words += ["--word-dim", "8", "--batch-size", "16", "--epochs", "1", "--workers", "0", "-q"]
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return place


def test_run_loads_identically_and_keeps_rng_state(folder: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, second = subtext.load(folder / "run"), subtext.load(folder / "run")
    assert torch.equal(torch.rand(1), expected)
    assert not first.training
    ours, theirs = first.embed_texts(TEXTS), second.embed_texts(TEXTS)
    assert torch.equal(ours.vectors, theirs.vectors)
    pictures = [np.full(made_data.WIDTH, value, dtype=np.float32) for value in (0.5, -1.0)]
    assert first.compare(first.embed_images(pictures), ours).shape == (2, 3)


def test_loaded_run_reproduces_recorded_figures(folder: Path) -> None:
    from subtext.evaluation import evaluate_model

    run = open_run(folder / "run")
    pairs = read(folder / "pairs.jsonl", need_images=False).split("val")
    assert evaluate_model(run.model, pairs, workers=0).figures["rsum"] == pytest.approx(run.record.best["rsum"])


def test_run_restores_its_training_setup(folder: Path) -> None:
    run = open_run(folder / "run")
    setup = run.setup()
    assert vars(setup.plan) == {**vars(setup.plan), **run.record.plan} and setup.plan.epochs == 1
    assert set(setup.objective.parts) >= {"image_to_text", "text_to_image"}
    assert setup.model.state_dict().keys() == run.model.state_dict().keys()


def test_embedded_items_contain_their_dataset(folder: Path) -> None:
    embedded = subtext.embed(folder / "run", split="val", quiet=True)
    assert fingerprint(embedded.dataset) == fingerprint(read(folder / "pairs.jsonl", need_images=False).split("val"))
    assert embedded.images is embedded.dataset.images and len(embedded.text_vectors) == len(embedded.texts)


def test_pairs_in_memory_train_as_splits_do(folder: Path, tmp_path: Path) -> None:
    data, features = folder / "pairs.jsonl", folder / "features.npz"
    pairs = read(data, need_images=False)
    train, val = pairs.split("train"), pairs.split("val")
    options: dict[str, Any] = {"embed_dim": 16, "word_dim": 8, "batch_size": 16, "epochs": 1, "workers": 0}
    options |= {"data": data, "features": features, "val_data": val, "quiet": True}
    same = subtext.train("pvse", **flat_arguments("pvse", {"train_data": train, "out": tmp_path / "same", **options}))
    expected = open_run(folder / "run")
    assert same.record.data == expected.record.data
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(tensor, same.model.state_dict()[name])
    part = train.subset(np.arange(20), np.arange(40))
    methods = [("mithun", {"hardest_only": True})]
    smaller = subtext.train(
        "pvse", **flat_arguments("pvse", {"train_data": part, "methods": methods, "out": tmp_path / "part", **options})
    )
    assert smaller.record.fingerprint == f"{fingerprint(part)}-{fingerprint(val)}"
    assert smaller.record.data.data == data and smaller.record.methods[0][1]["hardest_only"] is True
    embedded = subtext.embed(tmp_path / "part", data=part, workers=0, quiet=True)
    assert (len(embedded.images), len(embedded.texts)) == (20, 40)


def test_saved_model_equals_run_without_log(folder: Path, tmp_path: Path) -> None:
    run = open_run(folder / "run")
    run.save_pretrained(tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "README.md",
        "assets",
        "model.safetensors",
        "run.json",
    ]
    again = subtext.from_pretrained(tmp_path / "kept")
    assert torch.equal(again.embed_texts(TEXTS).vectors, run.model.embed_texts(TEXTS).vectors)
    with pytest.raises(CheckpointError, match="holds something"):
        subtext.save_pretrained(run.model, run.record, tmp_path / "kept")


def test_features_path_is_remembered_and_replaceable(folder: Path, tmp_path: Path) -> None:
    pairs = read(folder / "pairs.jsonl", need_images=False).split("test")
    remembered = open_run(folder / "run").model
    assert isinstance(remembered.image.input_spec, FeatureInput) and remembered.image.input_spec.file is not None
    moved = shutil.copytree(folder / "run", tmp_path / "run")
    record = json.loads((moved / "run.json").read_text())
    record["data"]["features"] = "/nowhere/features.npz"
    (moved / "run.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"with the data \(features\)"):
        embed_pairs(open_run(moved).model, pairs)
    given = open_run(moved, features=folder / "features.npz").model
    assert torch.equal(embed_pairs(given, pairs)[0].vectors, embed_pairs(remembered, pairs)[0].vectors)
    with pytest.raises(
        RecipeError, match=r"text features need a model whose text side reads them; .*; leave the text features out"
    ):
        open_run(moved, text_features=folder / "features.npz")


def test_card_shows_recorded_values(folder: Path) -> None:
    card = (folder / "run" / "README.md").read_text()
    record = load_record(folder / "run")
    assert f"{record.best['text_to_image/recall@10']:.1f}" in card
    assert "pairs.jsonl" in card and str(folder) not in card, "a card is read by others: no paths of this machine"
    assert card.count("---\n") >= 2 and "pipeline_tag: feature-extraction" in card


def test_folder_without_run_raises(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"run\.json"):
        subtext.load(tmp_path)


def test_open_index_missing_run(folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder / "run", tmp_path / "run")
    subtext.build_index(tmp_path / "index", run=moved, split="all", workers=0, quiet=True)
    first = [hit.id for hit in subtext.open_index(tmp_path / "index").search(text=TEXTS[0], top=3)]
    shutil.rmtree(moved)
    with pytest.raises(SearchIndexError, match="run=RUN"):
        subtext.open_index(tmp_path / "index")
    engine = subtext.open_index(tmp_path / "index", run=folder / "run")
    assert [hit.id for hit in engine.search(text=TEXTS[0], top=3)] == first


def test_run_files_have_permissions_of_their_folder(folder: Path) -> None:
    wanted = (folder / "run" / "run.json").stat().st_mode
    assert (folder / "run" / "model.safetensors").stat().st_mode == wanted
