"""SCAN's scores: the card's numbers (B6), made by the authors' code, and one pair at a time in plain loops."""

from __future__ import annotations

import pytest
import torch
from pairs import card_items, random_pairs
from scenes import cast
from torch import Tensor

from subtext.models.similarity.cross_attention import CrossAttention

CARD = {
    ("text_to_image", "lse"): [[1.13354439, 0.83784985, 1.10286018], [1.06384397, 1.12866769, 1.10982083]],
    ("text_to_image", "mean"): [[0.87591063, 0.62920516, 0.9870327], [0.75583048, 0.94475238, 0.99421682]],
    ("image_to_text", "lse"): [[1.00296737, 0.90758943, 1.02600821], [0.99369541, 1.01928198, 0.6310046]],
    ("image_to_text", "mean"): [[0.82043237, 0.63265986, 0.88595316], [0.7248013, 0.83779411, 0.2388264]],
}


@pytest.mark.parametrize(("attending", "pooling"), CARD)
def test_the_cards_values(attending: str, pooling: str) -> None:
    scores = CrossAttention(attending=attending, pooling=pooling)(*card_items())
    torch.testing.assert_close(scores, torch.tensor(CARD[attending, pooling], dtype=torch.float64), atol=1e-8, rtol=0)


def slowly(regions: Tensor, words: Tensor, attending: str, pooling: str) -> float:
    """One pair: what asks is `ours`, what is attended to `theirs`; every sum is a loop."""
    ours, theirs = (words, regions) if attending == "text_to_image" else (regions, words)
    attention_scale, pooling_scale = (9, 6) if attending == "text_to_image" else (4, 20)
    fits = [[max(f := float(o @ t), 0.1 * f) for t in theirs] for o in ours]
    cosines = []
    lengths = [sum(row[k] ** 2 for row in fits) ** 0.5 + 1e-8 for k in range(len(theirs))]
    for one, row in zip(ours, fits, strict=True):
        raised = [float(torch.tensor(attention_scale * row[k] / lengths[k]).exp()) for k in range(len(theirs))]
        context = sum(r / sum(raised) * t for r, t in zip(raised, theirs, strict=True))
        cosines.append(float(one @ context / (one.norm() * context.norm())))
    if pooling == "mean":
        return sum(cosines) / len(cosines)
    return float((pooling_scale * torch.tensor(cosines, dtype=torch.float64)).exp().sum().log()) / pooling_scale


@pytest.mark.parametrize(("attending", "pooling"), CARD)
def test_one_pair_at_a_time_in_plain_loops(attending: str, pooling: str) -> None:
    images, texts, alone = random_pairs()
    scores = CrossAttention(attending=attending, pooling=pooling)(images, texts)
    for i, t, regions, words in alone:
        assert float(scores[i, t]) == pytest.approx(slowly(regions, words, attending, pooling), abs=1e-6)


@pytest.mark.parametrize("attending", ["text_to_image", "image_to_text"])
def test_half_precision_is_for_machines_that_have_it_and_never_for_learning(
    attending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
