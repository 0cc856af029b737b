"""What people hand to a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from torch import nn

from subtext.core import Embeddings
from subtext.data.features import FeatureFile, FeatureInput
from subtext.errors import DataError, RequirementError
from subtext.evaluation.scoring import matrix
from subtext.evaluation.two_stages.scores import pair_scores
from subtext.models.encoders.precomputed import Precomputed
from subtext.models.heads.mean import Mean, Passthrough
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import Chan, CrossAttention

pytestmark = pytest.mark.contract


def test_single_string_raises_instead_of_list() -> None:
    model = small_training.setup().model.eval()
    with pytest.raises(RequirementError, match=r"a list of items; it got one str, 'red wet'; put it in a list"):
        model.embed_texts("red wet")
    assert len(model.embed_texts(["red wet", "blue"])) == 2


def reading(pooled: int | None, grid: int | None, file: FeatureFile | None = None) -> Model:
    """A model whose pictures are features; its texts are words."""
    other = small_training.setup().model
    input_spec = FeatureInput("image", file, pooled=pooled, grid=grid)
    image = Branch(input_spec, Precomputed(pooled, grid), Mean(pooled or grid, 8))
    return Model(image, other.text, other.similarity).eval()


def test_tensor_and_array_features_embed_equally() -> None:
    model, features = reading(pooled=5, grid=None), torch.rand(3, 5)
    of_array = model.embed_images(features.numpy()).vectors
    assert torch.equal(model.embed_images(features).vectors, of_array)
    assert torch.equal(model.embed_images(features.bfloat16().requires_grad_()).ids, torch.arange(3))
    with pytest.raises(RequirementError, match="a list of items; it got one ndarray"):
        model.embed_images(features[0])


def test_model_embeds_pooled_and_grid_features() -> None:
    model = reading(4, 6)
    items = [{"pooled": np.full(4, n, np.float32), "grid": np.full((3, 6), -n, np.float32)} for n in (1, 2, 3)]
    found = model.embed_images(items)
    assert len(found) == 3
    torch.testing.assert_close(model.embed_images(items[1:2]).vectors, found[1:2].vectors)
    with pytest.raises(DataError, match=r"\{'pooled': an array \(4\), 'grid': an array \(regions, 6\)\} for each item"):
        model.embed_images([np.ones(4, np.float32)])


def test_single_feature_part_accepts_array_or_rows() -> None:
    model, rows = reading(4, None), np.arange(8, dtype=np.float32).reshape(2, 4)
    torch.testing.assert_close(model.embed_images(rows).vectors, model.embed_images(list(rows)).vectors)
    with pytest.raises(RequirementError, match="it got one ndarray"):
        model.embed_images(rows[0])
    with pytest.raises(DataError, match=r"needs an array \(4\) for each item, or its name.*; it got an array \(5,\)"):
        model.embed_images([np.ones(5)])


def test_feature_names_are_looked_up_but_positions_are_not(tmp_path: Path) -> None:
    """A file whose names are numbers must not answer for pictures that only have a place in a list."""
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "f.npz", names=np.array(["0", "1", "a.jpg"]), pooled=rows)
    model = reading(4, None, FeatureFile.open(tmp_path / "f.npz"))
    found = model.embed_images([Path("photos/a.jpg"), "1"])
    torch.testing.assert_close(found.vectors, model.embed_images(rows[[2, 1]]).vectors)
    for nameless in (b"bytes", None, torch.ones(4)):
        with pytest.raises(DataError, match=r"reads image features: .*; it got a value of type"):
            model.embed_images([nameless])
    with pytest.raises(DataError, match=r"needs a row for every item; 1 of 1 have none, first 'b\.jpg'"):
        model.embed_images(["b.jpg"])


def test_empty_items_raise_and_weightless_model_compares() -> None:
    model = reading(4, None)
    with pytest.raises(RequirementError, match="at least one item; the list is empty"):
        model.embed_images([])
    model.image.head, model.text, model.similarity = Passthrough(), model.image, Cosine()
    assert not list(model.parameters())
    assert model.compare(model.embed_images(np.eye(4)), model.embed_texts(np.eye(4))).shape == (4, 4)


@pytest.mark.parametrize("similarity", [CrossAttention, Chan, Cosine])
def test_weightless_similarity_runs_on_model_device(
    similarity: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embeddings lie on the processor; "meta" stands for a device that is elsewhere."""
    given = small_training.setup().model
    model = Model(given.image, given.text, similarity())
    assert not any("place" in name for name in model.state_dict())
    items = Embeddings(torch.ones(2, 1, 3), torch.arange(2), parts=torch.ones(2, 4, 3))
    seen: list[str] = []

    def scores(self: nn.Module, images: Embeddings, texts: Embeddings, *made: object) -> torch.Tensor:
        seen.extend([images.vectors.device.type, texts.vectors.device.type])
        return torch.zeros(len(images), len(texts))

    monkeypatch.setattr(similarity, "forward", scores)
    monkeypatch.setattr(similarity, "prepare", lambda self, images: None, raising=False)
    model.to("meta")
    matrix(model.similarity, items, items)
    pair_scores(model.similarity, items, items, np.array([[0, 1], [1, 0]]))
    assert len(seen) >= 6 and set(seen) == {"meta"}
