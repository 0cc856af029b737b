"""Regions by an object detector: what it gives of a picture, and a run that reads pictures through one."""

from __future__ import annotations

import json
from pathlib import Path

import coloured_images
import pytest
import tiny_models
import torch
from command import call
from transformers import AutoModelForObjectDetection

from subtext.api.load import load
from subtext.errors import RequirementError
from subtext.models.encoders.vision import Detector

NAMES = ("detr", "yolos", "rt_detr")
SMALL = ["--embed-dim", 8, "--word-dim", 8, "--batch-size", 8, "--image-size", 32, "--epochs", 2, "--workers", 0, "-q"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models.detectors(tmp_path_factory.mktemp("detectors"))


def pixels(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NAMES)
def test_top_boxes_equal_plain_loops(name: str, folders: dict[str, Path]) -> None:
    body = AutoModelForObjectDetection.from_pretrained(folders[name]).eval()
    with torch.no_grad():
        plain = body(pixel_values=pixels())
    detector = Detector.open(str(folders[name]), regions=4).train()
    found = detector({"pixels": pixels()})
    assert found.parts is not None and found.mask is not None and found.pooled is not None
    assert found.parts.shape == (3, 4, 20) and detector.parts_width == 20 and found.mask.all()
    for picture in range(3):
        sure = []
        for query in range(7):
            logits = plain.logits[picture, query]
            each = logits.sigmoid() if name == "rt_detr" else logits.softmax(dim=0)[:5]
            sure.append(float(each.max()))
        chosen = sorted(range(7), key=lambda query: -sure[query])[:4]
        assert len({round(sure[query], 4) for query in chosen}) == 4
        states = plain.last_hidden_state[picture, -7:]
        for place, query in enumerate(chosen):
            torch.testing.assert_close(found.parts[picture, place, :16], states[query])
            x, y, width, height = plain.pred_boxes[picture, query].tolist()
            edges = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
            wanted = [min(1.0, max(0.0, edge)) for edge in edges]
            assert found.parts[picture, place, 16:].tolist() == pytest.approx(wanted, abs=1e-6)
        torch.testing.assert_close(found.pooled[picture], states[chosen].mean(dim=0))
        # Boxes differ, or nothing would be tested.
        assert plain.pred_boxes[picture].std(dim=0).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_low_confidence_boxes_are_masked_except_one(name: str, folders: dict[str, Path]) -> None:
    all_ = Detector.open(str(folders[name]), regions=100)({"pixels": pixels()})
    assert all_.parts is not None and all_.parts.shape[1] == 7
    few = Detector.open(str(folders[name]), min_confidence=1.0)({"pixels": pixels()})
    assert few.mask is not None and few.parts is not None and few.pooled is not None
    assert few.mask.sum(dim=1).tolist() == [1, 1, 1] and few.mask[:, 0].all()
    torch.testing.assert_close(few.pooled, few.parts[:, 0, :16])


def test_detector_has_no_trainable_weights(folders: dict[str, Path]) -> None:
    detector = Detector.open(str(folders["detr"])).train()
    assert not detector.body.training and not any(each.requires_grad for each in detector.parameters())


@pytest.mark.parametrize("name", ["detr", "rt_detr"])
def test_run_reads_images_through_detector(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    data, run = coloured_images.write(tmp_path / "data"), tmp_path / "run"
    told = ["--image", f"detector:{folders[name]}", "--max-regions", 5]
    call("train", "scan", "--data", data, "--out", run, *told, *SMALL)
    notes = [json.loads(line).get("note", "") for line in (run / "log.jsonl").read_text().splitlines()]
    record = json.loads((run / "run.json").read_text())
    assert record["arguments"]["max_regions"] == 5
    assert any("the frozen image encoder" in str(note) for note in notes) or not (run / "cache").exists()
    # The detector's folder is not needed any more.
    before = load(run)
    folders[name].rename(folders[name].with_name("elsewhere"))
    try:
        pictures = [str(data / f"{colour}.png") for colour in ("red", "blue")]
        again = load(run).embed_images(pictures)
    finally:
        folders[name].with_name("elsewhere").rename(folders[name])
    assert again.parts is not None and again.parts.shape == (2, 5, 8)
    assert torch.equal(again.parts, before.embed_images(pictures).parts)
    figures = json.loads(call("evaluate", run, "--split", "test", "--json", "-", "-q").stdout)
    assert "rsum" in figures


def test_detector_input_is_full_image(folders: dict[str, Path], tmp_path: Path) -> None:
    data = coloured_images.write(tmp_path / "data")
    call("train", "scan", "--data", data, "--out", tmp_path / "run", "--image", f"detector:{folders['yolos']}", *SMALL)
    input_spec = load(tmp_path / "run").image.input_spec
    assert input_spec.resize == "squash" and input_spec.crop_share == 1.0 and input_spec.size == 32


def test_model_that_is_no_detector_raises(folders: dict[str, Path], tmp_path: Path) -> None:
    vit = tiny_models.vit(tmp_path / "vit")
    with pytest.raises(RequirementError, match=r"needs config\.json and model\.safetensors to be read"):
        Detector.open(str(vit))
    with pytest.raises(RequirementError, match="1 region or more; it got 0"):
        Detector.open(str(folders["detr"]), regions=0)
    data = coloured_images.write(tmp_path / "data")
    words = [
        "train",
        "scan",
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--image",
        "tiny",
        "--max-regions",
        "5",
        *SMALL,
    ]
    assert "--max-regions needs --image detector:NAME" in " ".join(call(*words, code=1).output.split())
