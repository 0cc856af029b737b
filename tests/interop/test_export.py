"""An exported model gives the model's vectors, by the library that it was written for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import coloured_images
import numpy as np
import pytest
import tiny_models
import torch
from command import call
from transformers import AutoModel, AutoTokenizer

import subtext
from subtext.api.load import load, open_run, save_pretrained
from subtext.errors import CheckpointError
from subtext.interop.onnx import Exportable
from subtext.models.checkpoint import Record, load_record, save_run
from subtext.recipes.build import build
from subtext.training.setup import BuildContext


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    coloured_images.write(folder / "data")
    coloured_images.run(folder / "data", folder / "gru", text="gru")
    coloured_images.run(folder / "data", folder / "pooled", host="vse_infinity")
    (folder / "weights").mkdir()
    defaults = {"min_count": 2, "word_dim": 0}
    coloured_images.run(folder / "data", folder / "bert", text=str(tiny_models.bert(folder / "weights")), **defaults)
    return folder


def dual(folder: Path, make: object, *, lora: int = 0) -> Path:
    """A run over a small CLIP or SigLIP whose weights, scale and adapters moved."""
    source = folder / "source"
    source.mkdir(parents=True)
    make(source)  # type: ignore[operator]
    arguments = {"model": str(source), "lora_rank": lora}
    model = build("clip", arguments, context=BuildContext()).model
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    save_run(folder / "run", model.eval(), Record(model="clip", arguments=arguments, status="finished"))
    return folder / "run"


def test_exported_run_is_loadable_folder(place: Path, tmp_path: Path) -> None:
    answer = call("export", place / "gru", "--hf", tmp_path / "hf")
    assert "checked on random inputs and 8 items of the data" in answer.stdout
    assert "subtext.load" in answer.stdout
    texts = ["a red square", "words never seen 🚣🏽"]
    again, model = subtext.load(tmp_path / "hf"), load(place / "gru")
    assert torch.equal(again.embed_texts(texts).vectors, model.embed_texts(texts).vectors)
    assert {path.name for path in (tmp_path / "hf").iterdir()} == {
        "run.json", "config.json", "model.safetensors", "README.md", "assets",
    }  # fmt: skip
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model"] == "dual"
    assert load_record(tmp_path / "hf").data.data == Path("data"), "no folder of this machine goes along"
    assert str(place) not in "".join(
        path.read_text() for path in (tmp_path / "hf").rglob("*") if path.suffix in (".json", ".md")
    )


@pytest.mark.parametrize(
    ("make", "lora"),
    [(tiny_models.clip, 0), (tiny_models.clip, 2), (tiny_models.siglip, 0)],
    ids=["clip", "lora", "siglip"],
)
def test_exported_dual_encoder_is_transformers_folder(tmp_path: Path, make: object, lora: int) -> None:
    run = dual(tmp_path, make, lora=lora)
    answer = call("export", run, "--hf", tmp_path / "hf")
    assert "AutoModel.from_pretrained" in answer.stdout
    model = load(run)
    texts = ["a dog runs", "two red boats in water"]
    batch = next(iter(_text_batches(model, texts)))
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    whole = AutoModel.from_pretrained(tmp_path / "hf").eval()
    mask = {} if "siglip" in whole.config.model_type else {"attention_mask": batch["mask"].long()}
    with torch.inference_mode():
        found = whole(input_ids=batch["tokens"], pixel_values=pixels, **mask)
        images = model.image({"pixels": pixels, "ids": torch.arange(2)})
        own = model.compare(images, model.embed_texts(texts))
    np.testing.assert_allclose(found.text_embeds, model.embed_texts(texts).vectors[:, 0], atol=1e-5)
    np.testing.assert_allclose(found.image_embeds, images.vectors[:, 0], atol=1e-5)
    np.testing.assert_allclose(found.logits_per_image, own, atol=1e-3)
    assert AutoTokenizer.from_pretrained(tmp_path / "hf")("a dog")["input_ids"]
    numbers = json.loads((tmp_path / "hf" / "preprocessor_config.json").read_text())
    assert numbers["image_mean"] == [0.5, 0.4, 0.3] and numbers["crop_size"] == {"height": 32, "width": 32}


def test_failed_export_check_leaves_no_folder(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(model: object, record: object, folder: Path) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(1.0)  # type: ignore[attr-defined]
        write(model, record, folder)
        with torch.no_grad():
            next(model.parameters()).sub_(1.0)  # type: ignore[attr-defined]

    write = save_pretrained
    monkeypatch.setattr("subtext.api.export.save_pretrained", spoilt)
    with pytest.raises(CheckpointError, match="opened again, differs by"):
        subtext.export_run(place / "gru", hf=tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run", ["gru", "pooled"])
def test_onnx_stand_ins_equal_original_modules(place: Path, run: str) -> None:
    model = open_run(place / run).model
    batch = next(iter(_text_batches(model, ["a", "a red square", "ein Quadrat, blue and a green one"])))
    with torch.inference_mode():
        found = Exportable(model.text, ["tokens", "mask"]).eval()(batch["tokens"], batch["mask"])
        np.testing.assert_allclose(found, model.text(batch).vectors, atol=1e-6)
        pixels = {"pixels": torch.randn(3, 3, 32, 32), "ids": torch.arange(3)}
        found = Exportable(model.image, ["pixels"]).eval()(pixels["pixels"])
        np.testing.assert_allclose(found, model.image(pixels).vectors, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["gru", "pooled", "bert"])
def test_onnx_vectors_equal_model_vectors(place: Path, tmp_path: Path, run: str) -> None:
    """In a process of its own: the exporter traces, and the checks of signatures would be traced with it."""
    import onnxruntime

    words = [sys.executable, "-m", "subtext.cli", "export", str(place / run), "--onnx", str(tmp_path / "onnx")]
    code = "import sys; from subtext.cli import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *words[3:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "checked on random inputs and 8 items of the data; largest difference image" in done.stdout
    told = json.loads((tmp_path / "onnx" / "subtext.json").read_text())
    assert told["text"]["inputs"]["tokens"] == {"type": "int64", "axes": ["items", "length"]}
    assert told["image"]["inputs"]["pixels"]["axes"] == ["items", 3, 32, 32]
    words = "subwords" if run == "bert" else "vocabulary"
    assert (tmp_path / "onnx" / "assets" / "text" / f"{words}.json").is_file()
    written = (tmp_path / "onnx" / "README.md").read_text().replace("FOLDER", str(tmp_path / "onnx"))
    named: dict[str, Any] = {}
    exec(written.partition("```python")[2].partition("```")[0], named)
    assert named["scores"].shape == (2, 2) and np.isfinite(named["scores"]).all()
    model = load(place / run)
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "text.onnx"))
    for texts in (["red"], ["a red square", "ein Quadrat", "one two three four five six seven eight"] * 6):
        batch = next(iter(_text_batches(model, texts)))
        found = session.run(None, {name: batch[name].numpy() for name in ("tokens", "mask")})[0]
        np.testing.assert_allclose(found, model.embed_texts(texts).vectors, atol=1e-5)


def test_command_line_rejects_invalid_arguments(place: Path, tmp_path: Path) -> None:
    assert "either --hf DIR or --onnx DIR" in call("export", place / "gru", code=2).stderr
    assert "either --hf DIR or --onnx DIR" in call("export", place / "gru", "--hf", "a", "--onnx", "b", code=2).stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    for form in ("--hf", "--onnx"):
        assert "holds something" in call("export", place / "gru", form, tmp_path / "full", code=1).stderr
    assert "needs to be the folder of a run" in call("export", tmp_path, "--hf", tmp_path / "new", code=1).stderr


def _text_batches(model: object, texts: list[str]) -> list[dict[str, torch.Tensor]]:
    from subtext.data.inputs import InputBatch

    rows = np.arange(len(texts), dtype=np.int64)
    return [model.text.input_spec(InputBatch(texts, texts, rows, rows, Path()))]  # type: ignore[attr-defined]
