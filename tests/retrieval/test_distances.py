"""An index of PCME++ ranks as its evaluation does, and tells how uncertain what it finds is."""

from __future__ import annotations

import json
from pathlib import Path

import made_data
import numpy as np
import pytest
import served_index
import torch
from command import call

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.data.read import read
from subtext.evaluation import embed_pairs

SMALL = [
    "--embed-dim",
    "12",
    "--word-dim",
    "8",
    "--batch-size",
    "16",
    "--lr",
    "5e-3",
    "--epochs",
    "2",
    "--workers",
    "0",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose variances are large enough to change the order, and its index."""
    folder = tmp_path_factory.mktemp("made")
    made_data.write_regions(folder, noise=1.0)
    given = ["--data", folder / "pairs.jsonl", "--features", folder / "regions.npz"]
    told = ["--init-log-variance", "-3", "--weight-average", "none", "-q"]
    call("train", "pcme_plus", *given, "--out", folder / "run", *SMALL, *told)
    call("index", "build", folder / "index", "--run", folder / "run", "--split", "all", "-q")
    return folder


def test_index_ranks_as_evaluation(made: Path) -> None:
    model, engine = load(made / "run"), open_index(made / "index")
    pairs = read(made / "pairs.jsonl", need_images=False)
    items = embed_pairs(model, pairs, workers=0)
    assert items[0].uncertainty is not None and items[0].uncertainty.std() > 1e-3
    scores = model.similarity(*items).detach()
    means = torch.einsum("ikd,tkd->it", items[0].vectors, items[1].vectors)
    # What an index of means alone would do is another order.
    assert not torch.equal(scores.argsort(dim=0), means.argsort(dim=0))
    scale, shift = engine.store.manifest.scale, engine.store.manifest.shift
    for text in range(0, len(pairs.texts), 17):
        hits = engine.search(pairs.texts.values[text], top=len(pairs.images), signals=["pixels"])
        rows = [pairs.images.ids.index(hit.id) for hit in hits]
        own = scores[rows, text]
        assert [scale * hit.score + shift for hit in hits] == pytest.approx(own.tolist(), abs=2e-5)
        assert (own[:-1] - own[1:] > -2e-5).all()
        known = items[0].uncertainty[rows]
        assert [hit.uncertainty for hit in hits] == pytest.approx(known.tolist(), rel=1e-3)
    for image in range(0, len(pairs.images), 13):
        found = engine.search(image=pairs.images.ids[image], target="texts", top=len(pairs.texts))
        columns = [pairs.texts.ids.index(hit.id) for hit in found]
        own = scores[image, columns]
        assert (own[:-1] - own[1:] > -2e-5).all()
        assert items[1].uncertainty is not None
        assert [hit.uncertainty for hit in found] == pytest.approx(items[1].uncertainty[columns].tolist(), rel=1e-3)


def test_server_returns_uncertainty_of_hits(made: Path) -> None:
    engine = open_index(made / "index")
    asked = str(read(made / "pairs.jsonl", need_images=False).texts.values[0])
    with served_index.client(made / "index") as client:
        told = client.get("/search", params={"q": asked, "top": 5}).json()["hits"]
        listed = client.get("/items", params={"top": 1}).json()["items"]
    wanted = engine.search(asked, top=5)
    assert [(hit["id"], hit["uncertainty"]) for hit in told] == [(hit.id, hit.uncertainty) for hit in wanted]
    assert len({hit["uncertainty"] for hit in told}) > 1 and listed[0]["uncertainty"] is None


def test_items_of_one_modality_are_compared_by_means(made: Path) -> None:
    model, engine = load(made / "run"), open_index(made / "index")
    hits = engine.search(like=["photo003.jpg"], top=5)
    means = model.to_means("a test").embed_images(["photo003.jpg", *(hit.id for hit in hits)]).vectors[:, 0]
    assert [hit.score for hit in hits] == pytest.approx((means[1:] @ means[0]).tolist(), abs=1e-5)
    vectors = engine.model.embed_images(["photo003.jpg"]).vectors.numpy()
    near = engine.nearest(vectors, top=1)[0][0]
    assert near.id == "photo003.jpg" and near.score == pytest.approx(1, abs=1e-5)


def test_command_returns_uncertainty_and_reasons(made: Path) -> None:
    words = ["a red and a dog", "--json", "--explain", "--top", "4"]
    hits = json.loads(call("search", made / "index", *words).stdout)["hits"]
    assert all(hit["uncertainty"] > 0 for hit in hits)
    assert all(sum(own["amount"] for own in hit["reasons"]) == pytest.approx(hit["score"], abs=1e-4) for hit in hits)
    both = call("search", made / "index", "a dog", "--image", "photo003.jpg", "--json", "--diversity", "0.5").stdout
    assert json.loads(both)["unit"] == "evidence"


def test_indexed_distances_are_first_stage(made: Path) -> None:
    alone = json.loads(call("evaluate", made / "run", "--json", "-", "-q").stdout)
    first = call("evaluate", made / "run", "--rerank", made / "run", "--candidates", "3", "--json", "-", "-q").stdout
    assert json.loads(first)["text_to_image/recall@1"] == pytest.approx(alone["text_to_image/recall@1"])


def test_importing_means_raises(made: Path, tmp_path: Path) -> None:
    given = ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]
    call("embed", made / "run", *given, "--out", tmp_path / "vectors.npz", "-q")
    with np.load(tmp_path / "vectors.npz") as found:
        assert found["image_vectors"].shape[1] == 12 and (found["image_uncertainty"] > 0).all()
    told = call("index", "import", tmp_path / "new", tmp_path / "vectors.npz", "--run", made / "run", code=1).output
    assert "an import needs the vectors that the run's own index holds" in " ".join(told.split())
