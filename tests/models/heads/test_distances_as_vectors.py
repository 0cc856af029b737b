"""Distributions as vectors: the product of a picture's and a text's is what their closed-form distance says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.gaussian import DistanceVectors, Gaussian
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.probabilistic import ClosedFormDistance

pytestmark = pytest.mark.identity

F64 = torch.float64


class Given(nn.Module):
    """A head that gives what an encoder would: the first half is the mean, the second the log deviation."""

    def __init__(self, *, unit: bool = True, sure: bool = False) -> None:
        super().__init__()
        self.unit, self.sure = unit, sure

    def forward(self, encoded: Encoded, ids: Tensor) -> Embeddings:
        assert encoded.pooled is not None
        mean, log_std = encoded.pooled.chunk(2, dim=1)
        mean = nn.functional.normalize(mean, dim=1) if self.unit else mean
        return Embeddings(mean[:, None], ids, log_std=None if self.sure else log_std[:, None])


def made(count: int, *, seed: int, width: int = 6, unit: bool = True) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    pooled = torch.randn(count, 2 * width, generator=g, dtype=F64)
    pooled[:, width:] = 0.5 * pooled[:, width:] - 1
    return {"encoded": Encoded(pooled=pooled), "ids": torch.arange(count)}


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("kind", ["sampled", "wasserstein"])
def test_vector_products_equal_closed_form_distances(kind: Any, unit: bool) -> None:
    images, texts = made(5, seed=1), made(7, seed=2)
    rows = DistanceVectors(Given(unit=unit), side="image", kind=kind)(**images).vectors[:, 0]
    columns = DistanceVectors(Given(unit=unit), side="text", kind=kind)(**texts).vectors[:, 0]
    plain = [Given(unit=unit)(**each) for each in (images, texts)]
    for i in range(5):
        for t in range(7):
            (mean, other), (std, further) = (
                (each.vectors[row, 0] for each, row in zip(plain, (i, t), strict=True)),
                (each.log_std[row, 0].exp() for each, row in zip(plain, (i, t), strict=True)),
            )
            more = (std - further).square() if kind == "wasserstein" else std.square() + further.square()
            distance = ((mean - other).square() + more).sum()
            assert (rows[i] @ columns[t]).item() == pytest.approx(1 - distance.item() / 2, abs=1e-12)
    similarity = ClosedFormDistance(kind=kind).double()
    torch.testing.assert_close(rows @ columns.T, 1 - similarity.distance(*plain) / 2, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["sampled", "wasserstein"])
def test_vector_yields_uncertainty_and_mean(kind: Any) -> None:
    plain = Given()(**made(5, seed=1))
    for side in ("image", "text"):
        head = DistanceVectors(Given(), side=side, kind=kind)  # type: ignore[arg-type]
        vectors = head(**made(5, seed=1)).vectors.numpy()
        assert plain.uncertainty is not None
        np.testing.assert_allclose(head.uncertainty(vectors), plain.uncertainty.numpy(), rtol=1e-12)
        alone = head.means_alone(vectors)
        np.testing.assert_allclose(alone[:, 0] @ vectors[:, 0].T, (plain.vectors[:, 0] @ plain.vectors[:, 0].T).numpy())


def test_head_without_deviations_raises() -> None:
    with pytest.raises(RequirementError, match="a distanced head needs the deviations of its items"):
        DistanceVectors(Given(sure=True), side="image")(**made(2, seed=1))


class Halves(nn.Module):
    """Mean or log deviation of the fake encoder above."""

    inputs = ("pooled",)

    def __init__(self, *, mean: bool) -> None:
        super().__init__()
        self.mean = mean

    def forward(self, encoded: Encoded, ids: Tensor | None = None) -> Any:
        assert encoded.pooled is not None
        mean, log_std = encoded.pooled.chunk(2, dim=1)
        return Embeddings(nn.functional.normalize(mean, dim=1)[:, None], ids) if self.mean else log_std


class Read:
    augments, fingerprint = False, "read"

    def __call__(self, batch: Any, draw: Any = None) -> dict[str, Tensor]:
        raise AssertionError("tensors are given")

    def save(self, folder: Path) -> None:
        raise AssertionError("nothing is saved")


def test_indexable_model_scores_as_original_model() -> None:
    class Pass(nn.Module):
        def forward(self, inputs: dict[str, Any]) -> Encoded:
            return Encoded(pooled=inputs["pooled"])

    def branch(side: str) -> Branch:
        return Branch(Read(), Pass(), Gaussian(Halves(mean=True), Halves(mean=False), 6, side=side))  # type: ignore[arg-type]

    similarity = ClosedFormDistance(scale=3.0, shift=2.0).double()
    model = Model(branch("image"), branch("text"), similarity)
    inputs = [{"pooled": each["encoded"].pooled, "ids": each["ids"]} for each in (made(9, seed=1), made(8, seed=2))]
    indexed = model.to_indexable("an index")
    assert isinstance(indexed.similarity, Cosine) and indexed.indexable and not model.indexable
    wanted = model.similarity(*model(*inputs))
    torch.testing.assert_close(indexed.similarity(*indexed(*inputs)), wanted, atol=1e-12, rtol=0)
    by_mean = model.to_means("a picture")
    assert not torch.equal(by_mean.similarity(*by_mean(*inputs)).argsort(dim=1), wanted.argsort(dim=1))
    with torch.no_grad():
        similarity.scale.neg_()
    with pytest.raises(RequirementError, match="a model whose score falls as distances grow; it learnt a scale of -3"):
        model.to_indexable("an index")
