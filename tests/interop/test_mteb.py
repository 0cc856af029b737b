"""A model in MTEB: a small made task in both directions, without a download, beside our own evaluation."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from subtext import MtebEncoder
from subtext.core import Embeddings
from subtext.data.inputs import Draw, InputBatch
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import evaluate_scores
from subtext.evaluation.metrics import Recall
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine

COUNT, WIDTH = 12, 8


class Levels:
    """A picture is the grey levels of its one row; a text is the same as words. Texts are noisy copies."""

    augments = False
    fingerprint = "levels"

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> dict[str, Tensor]:
        def numbers(value: Any) -> list[float]:
            if isinstance(value, str):
                return [float(word) for word in value.split()]
            return np.asarray(value.convert("L"), dtype=np.float32).reshape(-1).tolist()

        pooled = torch.tensor([numbers(value) for value in batch.values])
        return {"pooled": pooled, "ids": torch.from_numpy(batch.rows)}

    def save(self, folder: Path) -> None:
        raise AssertionError("nothing is saved while evaluating")


class Pooled(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return inputs["pooled"]


class Centred(nn.Module):
    """K views: the centred numbers, cut into K parts."""

    def __init__(self, views: int) -> None:
        super().__init__()
        self.views = views
        self.middle = nn.Parameter(torch.tensor(128.0))

    def forward(self, pooled: Tensor, ids: Tensor) -> Embeddings:
        parts = (pooled - self.middle).unflatten(1, (self.views, -1))
        return Embeddings(nn.functional.normalize(parts, dim=-1), ids)


def model(views: int = 1) -> Model:
    branches = [Branch(Levels(), Pooled(), Centred(views)) for _ in range(2)]
    return Model(*branches, Cosine(temperature=0.05))


def made() -> tuple[list[Image.Image], list[str]]:
    g = np.random.default_rng(0)
    levels = g.integers(0, 256, (COUNT, WIDTH), dtype=np.uint8)
    noisy = np.clip(levels + g.normal(0, 60, levels.shape), 0, 255).round().astype(int)
    return [Image.fromarray(row[None]) for row in levels], [" ".join(map(str, row)) for row in noisy]


def batches(column: str, values: list[Any], size: int = 5) -> list[dict[str, Any]]:
    return [{column: values[start : start + size]} for start in range(0, len(values), size)]


def encoded(encoder: MtebEncoder, inputs: list[dict[str, Any]]) -> np.ndarray:
    return encoder.encode(inputs, task_metadata=None, hf_split="test", hf_subset="default")


@pytest.mark.parametrize("views", [1, 2])
def test_vectors_and_scores_equal_model_ones(views: int) -> None:
    subject = model(views)
    encoder = MtebEncoder(subject)
    pictures, texts = made()
    x, y = encoded(encoder, batches("image", pictures)), encoded(encoder, batches("text", texts))
    assert x.shape == ((COUNT, WIDTH) if views == 1 else (COUNT, 2, WIDTH // 2))
    expected = subject.compare(subject.embed_images(pictures), subject.embed_texts(texts))
    torch.testing.assert_close(encoder.similarity(x, y), expected)
    torch.testing.assert_close(encoder.similarity(y, torch.from_numpy(x)), expected.T)
    torch.testing.assert_close(encoder.similarity_pairwise(x, y), expected.diagonal())


def test_invalid_use_raises() -> None:
    encoder = MtebEncoder(model())
    pictures, texts = made()
    with pytest.raises(RequirementError, match="have image and text"):
        encoded(encoder, [{"image": pictures, "text": texts}])
    with pytest.raises(RequirementError, match="have none"):
        encoded(encoder, [{"id": texts}])
    with pytest.raises(RequirementError, match="at least one batch"):
        encoded(encoder, [])
    with pytest.raises(RequirementError, match="'organisation/model'"):
        MtebEncoder(model(), name="mine")
    with pytest.raises(RequirementError, match="it got 'int8'"):
        encoder.encode([], task_metadata=None, hf_split="", hf_subset="", precision="int8")
    with pytest.raises(ShapeError, match="it got 2 and 3"):
        encoder.similarity_pairwise(torch.zeros(2, 4), torch.zeros(3, 4))
    pairwise = model()
    pairwise.similarity.indexable = False
    with pytest.raises(RequirementError, match="two stages"):
        MtebEncoder(pairwise)


def tasks() -> list[Any]:
    """The made pictures and texts as two tasks of MTEB, text to image and image to text."""
    import datasets
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    pictures, texts = made()
    images = datasets.Dataset.from_dict({"id": [f"i{n}" for n in range(COUNT)], "image": pictures}).cast_column(
        "image", datasets.Image()
    )
    words = datasets.Dataset.from_dict({"id": [f"t{n}" for n in range(COUNT)], "text": texts})

    def task(title: str, category: str, sides: tuple[Any, Any], letters: str) -> Any:
        class Made(AbsTaskRetrieval):
            metadata = TaskMetadata(
                name=title,
                description="made",
                reference=None,
                dataset={"path": "made/made", "revision": "1"},
                type="Any2AnyRetrieval",
                category=category,
                modalities=["text", "image"],
                eval_splits=["test"],
                eval_langs=["eng-Latn"],
                main_score="ndcg_at_10",
            )

            def load_data(self, *arguments: Any, **options: Any) -> None:
                queries, corpus = sides
                asks, answers = letters
                relevant = {f"{asks}{n}": {f"{answers}{n}": 1} for n in range(COUNT)}
                split = {"queries": queries, "corpus": corpus, "relevant_docs": relevant, "top_ranked": None}
                self.dataset = {"default": {"test": split}}
                self.data_loaded = True

        return Made()

    return [
        task("MadeT2IRetrieval", "t2i", (words, images), "ti"),
        task("MadeI2TRetrieval", "i2t", (images, words), "it"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("views", [1, 2])
def test_mteb_recall_equals_own_recall(views: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    with warnings.catch_warnings():
        # What the packages behind mteb deprecate is theirs to mend.
        warnings.simplefilter("ignore")
        import mteb

        subject = model(views)
        found = mteb.evaluate(
            MtebEncoder(subject, name="subtext/test"),
            tasks(),
            cache=None,
            co2_tracker=False,
            encode_kwargs={"batch_size": 4},
            show_progress_bar=False,
        )
    scores = subject.compare(subject.embed_images(made()[0]), subject.embed_texts(made()[1])).detach()
    ours = evaluate_scores(scores, np.arange(COUNT), np.arange(COUNT), metrics=[Recall(1, 3, 5)])
    names = {"MadeT2IRetrieval": "text_to_image", "MadeI2TRetrieval": "image_to_text"}
    for result in found.task_results:
        theirs = result.scores["test"][0]
        for k in (1, 3, 5):
            mine = ours.figures[f"{names[result.task_name]}/recall@{k}"]
            assert 100 * theirs[f"recall_at_{k}"] == pytest.approx(mine, abs=1e-3)
    assert 0 < ours.figures["text_to_image/recall@1"] < 100
    assert json.loads(found.model_dump_json())["model_name"] == "subtext/test"
