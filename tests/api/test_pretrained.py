"""Pretrained dual encoders as they are: indexed, searched, served and judged by every command that takes a run."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import served_index
import tiny_models
import torch
import transformers
from command import call, invoke
from PIL import Image
from safetensors.torch import load_file, save_file

import subtext as st
from subtext.errors import ArgumentError, RequirementError
from subtext.retrieval.stores.registry import open_store

SIDES = ("image", "text")
WORDS = ("two red boats", "a dog runs", "the cat sleeps", "man rides horse")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen images with a text each, on disk."""
    folder = tmp_path_factory.mktemp("photos")
    g = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for number in range(16):
        coarse = Image.fromarray(g.integers(0, 255, size=(5, 6, 3), dtype=np.uint8))
        coarse.resize((60, 50), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", "captions": [f"{WORDS[number % 4]} on beach {number}"], "split": "test"})
    made_data.write_rows(folder / "pairs.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.processed("clip", tmp_path_factory.mktemp("clip"))[0]


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.processed("siglip", tmp_path_factory.mktemp("siglip"))[0]


@pytest.fixture(scope="module")
def library(pictures: Path, clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = tmp_path_factory.mktemp("indexes") / "library"
    call("index", "build", index, pictures / "pairs.jsonl", "--model", clip, "--text-prompt", "a photo of {}", "-q")
    return index


def own_vectors(folder: Path, images: list[Path], texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """What `transformers` gives, by the model's own processor, of unit length."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    padding: dict[str, Any] = {"padding": "max_length", "max_length": 16} if "siglip" in model.config.model_type else {}
    with torch.inference_mode():
        pixels = processor.image_processor([Image.open(path) for path in images], return_tensors="pt")
        tokens = processor.tokenizer(texts, return_tensors="pt", **(padding or {"padding": True}))
        if padding:
            tokens.pop("attention_mask")
        tokens.pop("token_type_ids", None)
        found = model.get_image_features(**pixels), model.get_text_features(**tokens)
    image, text = (getattr(output, "pooler_output", output) for output in found)
    return torch.nn.functional.normalize(image, dim=1), torch.nn.functional.normalize(text, dim=1)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_vectors_equal_those_of_original_library(
    family: str, pictures: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(family)
    out = tmp_path / "vectors.npz"
    call("embed", "--model", folder, "--data", pictures / "pairs.jsonl", "--out", out, "--batch-size", 1, "-q")
    found = np.load(out)
    rows = [json.loads(line) for line in (pictures / "pairs.jsonl").read_text().splitlines()]
    own = own_vectors(folder, [pictures / row["image"] for row in rows], [row["captions"][0] for row in rows])
    np.testing.assert_allclose(found["image_vectors"], own[0], atol=1e-5)
    np.testing.assert_allclose(found["text_vectors"], own[1], atol=1e-5)
    model = st.load(model=folder)
    torch.testing.assert_close(model.embed_images([pictures / rows[3]["image"]]).vectors[0], own[0][3:4])


def test_copied_model_is_bit_identical(clip: Path) -> None:
    """As a worker of a cluster has one, and a run that is opened again."""
    model = st.load(model=clip)
    # Where products round by the place of weights, they need the place that memory of their own has.
    assert {weight.data_ptr() % 64 for weight in (*model.parameters(), *model.buffers())} == {0}
    texts = model.embed_texts(WORDS).vectors
    assert torch.equal(copy.deepcopy(model).embed_texts(WORDS).vectors, texts)


def test_untrained_model_index_is_searched_and_served(library: Path, clip: Path, pictures: Path) -> None:
    manifest = open_store(library).manifest
    assert manifest.pretrained == {"name": str(clip.resolve()), "revision": "", "text_prompt": "a photo of {}"}
    assert (manifest.run, manifest.model_name, manifest.width) == ("", str(clip), 12)
    answer = st.search(library, "two red boats", signals=("pixels",))
    image, text = own_vectors(clip, [pictures / f"{n}.png" for n in range(16)], ["a photo of two red boats"])
    scores = (image @ text.T)[:, 0]
    assert [hit.id for hit in answer.hits] == [f"{n}.png" for n in scores.argsort(descending=True)[:10].tolist()]
    np.testing.assert_allclose([hit.score for hit in answer.hits], scores.sort(descending=True)[0][:10], atol=1e-5)
    assert answer.words is None, "a model of subwords has no unknown words"
    info = call("index", "info", library).stdout
    assert str(clip) in info and "a photo of {}" in info
    with served_index.client(library) as client:
        hits = client.get("/search", params={"q": "two red boats", "signals": "pixels"}).json()["hits"]
    assert [hit["id"] for hit in hits][: len(answer)] == [hit.id for hit in answer.hits]


def test_index_rejects_other_model_and_finds_moved_one(
    library: Path, clip: Path, siglip: Path, pictures: Path, tmp_path: Path
) -> None:
    output = call("search", library, "a dog", "--model", siglip, code=1).output
    assert output.startswith("error: ") and "of 16 numbers where the index has 12" in output
    data = pictures / "pairs.jsonl"
    assert "needs the model that made it" in call("index", "add", library, data, "--model", siglip, code=1).output
    moved = shutil.copytree(clip, tmp_path / "moved")
    hits = [
        json.loads(call("search", library, "a dog", *named, "--json").stdout)["hits"]
        for named in ((), ("--model", moved))
    ]
    assert hits[0] and [hit["id"] for hit in hits[0]] == [hit["id"] for hit in hits[1]]
    scores = [[hit["score"] for hit in own] for own in hits]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)  # By plain arrays, and by the model.
    assert "0 items embedded, 32 unchanged" in call("index", "add", library, data, "--model", moved, "-q").stdout
    assert "0 items embedded, 32 unchanged" in call("index", "update", library, "-q").stdout
    # The same weights with other words around the texts are another model.
    plain = call("score", data, "--model", clip, "--index", library, "-q", code=1).output
    assert "needs the model that made it" in plain


def test_other_commands_accept_model_in_place_of_run(
    library: Path, clip: Path, siglip: Path, pictures: Path, tmp_path: Path
) -> None:
    data, prompt = pictures / "pairs.jsonl", ["--text-prompt", "a photo of {}"]
    scored = json.loads(call("score", data, "--model", clip, *prompt, "--json", "-q").stdout)
    assert scored["run"] == str(clip) and len(scored["pairs"]) == 16
    call("curate", data, "--model", clip, "--out", tmp_path / "curated", "-q")
    assert json.loads((tmp_path / "curated" / "report.json").read_text())["run"] == str(clip)
    # Random weights pass some checks and fail others.
    audited = invoke("audit", "--model", clip, *prompt, "--data", data, "--split", "test", "--json", "-", "-q")
    assert json.loads(audited.stdout)["kind"] == "pretrained model"
    refused = call("index", "calibrate", library, "--data", data, "--split", "test", "-q", code=1).output
    assert "nothing here records what a pretrained model was trained on" in refused
    few = call(
        "index", "calibrate", library, "--data", data, "--split", "test", "--skip-leak-check", "-q", code=1
    ).output
    assert "needs 100 held-out images with texts, or more; it got 16" in few
    copy = shutil.copytree(library, tmp_path / "library")
    moved = call("index", "move", copy, "--model", siglip, "-q", "--even-if-worse", "--even-if-worse").stdout
    assert f"now have vectors of {siglip}" in moved and open_store(copy).manifest.width == 16
    assert len(st.search(copy, "a dog").hits) == 10


def test_model_and_run_options_are_exclusive(library: Path, clip: Path, pictures: Path, tmp_path: Path) -> None:
    data = pictures / "pairs.jsonl"
    build = ["index", "build", tmp_path / "new", "-q"]
    assert "give one of these: --run RUN" in call(*build, data, code=2).output
    assert "give one of these: --run RUN" in call(*build, data, "--run", "x", "--model", clip, code=2).output
    assert "--model needs --data DATA" in call(*build, "--model", clip, code=2).output
    assert "name the same thing" in call(*build, data, "--data", data, "--model", clip, code=2).output
    assert "--text-prompt is for a pretrained model" in call(*build, "--run", "x", "--text-prompt", "{}", code=2).output
    wrong = call(*build, data, "--model", clip, "--text-prompt", "a photo", code=1).output
    assert "--text-prompt needs {} once, where the text stands" in wrong
    with pytest.raises(ArgumentError, match="is a run; give run="):
        (tmp_path / "run.json").write_text("{}")
        st.load(model=tmp_path)
    call(*build, "--data", data, "--model", clip)
    assert (tmp_path / "new").is_dir()


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "option"), [(tiny_models.vit, "image"), (tiny_models.bert, "text")], ids=["image", "text"]
    )
    def test_single_encoder_raises_with_train_hint(
        self, make: Callable[[Path], Path], option: str, tmp_path: Path
    ) -> None:
        folder = make(tmp_path)
        with pytest.raises(RequirementError, match=rf"encoder alone; train it .*subtext train --{option} {folder} "):
            st.load(model=folder)

    def test_missing_weights_raise(self, clip: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(clip, tmp_path / "half")
        weights = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in weights.items() if "text_projection" not in name}
        save_file(kept, folder / "model.safetensors")
        with pytest.raises(RequirementError, match=r"all of its weights; 1 are missing, first text_projection.weight"):
            st.load(model=folder)

    @pytest.mark.parametrize(
        ("file", "sentence"),
        [
            ("model.safetensors", "needs config.json and model.safetensors to be read; model.safetensors is not there"),
            ("config.json", "needs config.json and model.safetensors to be read; config.json is not there"),
            ("tokenizer.json", "needs tokenizer.json to be read; tokenizer.json is not there"),
            ("processor_config.json", "which say how images are read; it has neither"),
        ],
    )
    def test_incomplete_model_folder_raises(self, clip: Path, tmp_path: Path, file: str, sentence: str) -> None:
        folder = shutil.copytree(clip, tmp_path / "half")
        (folder / file).unlink()
        with pytest.raises(RequirementError, match=rf"^model={folder} needs .*") as caught:
            st.load(model=folder)
        assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_sentence_transformers_folder_uses_first_module(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "st"
    shutil.copytree(clip, folder / "0_CLIPModel")
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    expected = st.load(model=clip).embed_texts(WORDS).vectors
    torch.testing.assert_close(st.load(model=folder).embed_texts(WORDS).vectors, expected)
    modules.append({"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(RequirementError, match="it has Dense behind it"):
        st.load(model=folder)
    (folder / "modules.json").write_text("[{}]")
    with pytest.raises(RequirementError, match=r"needs a modules.json that lists its modules"):
        st.load(model=folder)


def test_any_transformers_dual_encoder_loads(clip: Path, pictures: Path, tmp_path: Path) -> None:
    """Of a family whose text tower has no pooled output of its own; each side keeps its own modules alone."""
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    vision = {**text, "image_size": 32, "patch_size": 8}
    shutil.copytree(clip, tmp_path, dirs_exist_ok=True)
    size = len(transformers.AutoTokenizer.from_pretrained(clip))
    config = transformers.ChineseCLIPConfig(
        text_config={**text, "vocab_size": size, "max_position_embeddings": 16}, vision_config=vision, projection_dim=12
    )
    torch.manual_seed(6)
    transformers.ChineseCLIPModel(config).save_pretrained(tmp_path)
    model = st.load(model=tmp_path)
    paths = [pictures / "0.png", pictures / "1.png"]
    own = own_vectors(tmp_path, paths, list(WORDS))
    torch.testing.assert_close(model.embed_images(paths).vectors[:, 0], own[0])
    torch.testing.assert_close(model.embed_texts(WORDS).vectors[:, 0], own[1], atol=1e-5, rtol=1e-4)
    names = {side: {name.split(".")[2] for name, _ in getattr(model, side).named_parameters()} for side in SIDES}
    assert names == {"image": {"vision_model", "visual_projection"}, "text": {"text_model", "text_projection"}}
