"""ConSE: an image is a mixture of the names of its most probable classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from subtext.core import Encoded
from subtext.data.output_cache import OutputCache, user_cache
from subtext.models.checkpoint import fingerprint
from subtext.models.encoders import conse, language
from subtext.models.encoders.conse import CLASSES, MOST, TEMPERATURE, Conse
from subtext.models.encoders.lite import EfficientNetLite2, LiteVision

WIDTH = 384
COMPUTE = conse.name_vectors.__wrapped__
"""The function that the fixture replaces, without what it remembers."""


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.Tensor]:
    """Made vectors of the names, for this test alone."""
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(len(CLASSES), WIDTH)).astype(np.float32))
    monkeypatch.setattr(conse, "name_vectors", lambda: vectors)
    conse._centred.cache_clear()
    yield vectors
    conse._centred.cache_clear()


def test_names_are_those_of_the_classifier_in_its_order() -> None:
    assert len(CLASSES) == 1000
    assert [CLASSES[row] for row in (0, 207, 999)] == [
        "tench, Tinca tinca",
        "golden retriever",
        "toilet tissue, toilet paper, bathroom tissue",
    ]


@pytest.mark.identity
def test_mixture_equals_a_plain_loop(names: torch.Tensor) -> None:
    encoder = Conse(EfficientNetLite2()).eval()
    pooled = torch.rand(3, 1280)
    with torch.no_grad():
        mixed = encoder.finish(Encoded(pooled=pooled)).pooled
    mean = names.double().mean(dim=0)
    for row in range(3):
        logits = (encoder.classifier(pooled[row]) / TEMPERATURE).detach().double()
        shares = torch.exp(logits - logits.max()) / torch.exp(logits - logits.max()).sum()
        expected = torch.zeros(WIDTH, dtype=torch.float64)
        for number in sorted(range(1000), key=lambda number: -float(shares[number]))[:MOST]:
            expected += shares[number] * (names[number].double() - mean)
        torch.testing.assert_close(mixed[row].double(), expected, rtol=1e-4, atol=1e-6)


def test_output_of_the_network_is_that_of_the_image_tower() -> None:
    body = EfficientNetLite2()
    pixels = {"pixels": torch.rand(2, 3, 64, 64)}
    mixing, tower = Conse(body).eval(), LiteVision(body).eval()
    with torch.no_grad():
        assert torch.equal(mixing.run_body(pixels).pooled, tower.run_body(pixels).pooled)
        assert torch.equal(tower(pixels).pooled, tower.finish(tower.run_body(pixels)).pooled)
        torch.testing.assert_close(tower(pixels).pooled.norm(dim=1), torch.ones(2))
        assert mixing(pixels).pooled.shape == (2, WIDTH)


def test_other_settings_are_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint({"about": Conse(EfficientNetLite2()).about})
    monkeypatch.setattr(conse, "TEMPERATURE", 3.0)
    assert fingerprint({"about": Conse(EfficientNetLite2()).about}) != before


def test_gradients_pass_where_the_first_image_came_without_them() -> None:
    encoder = Conse(EfficientNetLite2()).eval()
    pooled = torch.rand(2, 1280)
    with torch.inference_mode():
        encoder.finish(Encoded(pooled=pooled))
    encoder.finish(Encoded(pooled=pooled.requires_grad_())).pooled.sum().backward()
    assert pooled.grad is not None and bool(pooled.grad.abs().sum() > 0)


def test_vectors_of_names_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    class Made:
        def __init__(self, model: str) -> None:
            assert model == "starter"

        def __call__(self, texts: tuple[str, ...]) -> np.ndarray:
            computed.append(len(texts))
            return np.random.default_rng(1).normal(size=(len(texts), 4)).astype(np.float32)

    monkeypatch.setattr(language, "SentenceEncoder", Made)
    first, second = (COMPUTE() for _ in range(2))
    cache = user_cache()
    assert computed == [1000] and torch.equal(first, second) and isinstance(cache, OutputCache)
    torch.testing.assert_close(first.norm(dim=1), torch.ones(1000))
    for file in cache.folder.rglob("parts.npy"):
        file.write_bytes(b"damaged")
    assert torch.equal(COMPUTE(), first) and len(computed) == 2
