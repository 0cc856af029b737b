"""SCAN's scores: the card's numbers (B6), made by the authors' code, and one pair at a time in plain loops."""

from __future__ import annotations

import pytest
import torch
from plain_similarities import scan_slowly
from regions_and_words import card_items, random_pairs
from scenes import cast

from subtext.models.similarity.cross_attention import CrossAttention

pytestmark = pytest.mark.golden

CARD = {
    ("text_to_image", "lse"): [[1.13354439, 0.83784985, 1.10286018], [1.06384397, 1.12866769, 1.10982083]],
    ("text_to_image", "mean"): [[0.87591063, 0.62920516, 0.9870327], [0.75583048, 0.94475238, 0.99421682]],
    ("image_to_text", "lse"): [[1.00296737, 0.90758943, 1.02600821], [0.99369541, 1.01928198, 0.6310046]],
    ("image_to_text", "mean"): [[0.82043237, 0.63265986, 0.88595316], [0.7248013, 0.83779411, 0.2388264]],
}


@pytest.mark.parametrize(("attending", "pooling"), CARD)
def test_scores_equal_worked_values(attending: str, pooling: str) -> None:
    scores = CrossAttention(attending=attending, pooling=pooling)(*card_items())
    torch.testing.assert_close(scores, torch.tensor(CARD[attending, pooling], dtype=torch.float64), atol=1e-8, rtol=0)


@pytest.mark.parametrize(("attending", "pooling"), CARD)
def test_pair_scores_equal_plain_loops(attending: str, pooling: str) -> None:
    images, texts, alone = random_pairs()
    scores = CrossAttention(attending=attending, pooling=pooling)(images, texts)
    for i, t, regions, words in alone:
        assert float(scores[i, t]) == pytest.approx(scan_slowly(regions, words, attending, pooling), abs=1e-6)


@pytest.mark.parametrize("attending", ["text_to_image", "image_to_text"])
def test_bfloat16_needs_hardware_and_inference(attending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, _ = random_pairs(64)
    images, texts = cast(images, torch.float32), cast(texts, torch.float32)
    exact, half = CrossAttention(attending=attending)(images, texts), CrossAttention(attending=attending, bf16=True)
    for has, learns in ((False, False), (True, True), (True, False)):
        monkeypatch.setattr("subtext.ops.numerics.supported", lambda device="cpu", has=has: has)
        with torch.set_grad_enabled(learns):
            scores = half(images, texts)
        assert scores.dtype == torch.float32
        assert torch.equal(scores, exact) is not (has and not learns)
        torch.testing.assert_close(scores, exact, atol=2e-2, rtol=0)
