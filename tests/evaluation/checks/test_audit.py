"""Each check of an audit fails for the model, or the data, that breaks just it, and passes for an honest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureFile
from subtext.data.inputs import Draw, InputBatch
from subtext.data.text import Vocabulary, WordInput
from subtext.errors import RequirementError
from subtext.evaluation import Protocol, embed_pairs, evaluate_embeddings
from subtext.evaluation.checks import overlap
from subtext.evaluation.checks.audit import (
    CHECKS,
    Audit,
    Check,
    Sample,
    caption_positions,
    finite,
    shuffled_truth,
    ties,
)
from subtext.evaluation.checks.overlap import vocabulary
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine

PICTURES, EACH, WIDTH = 60, 3, 12
LONG = "a brown dog runs over the wet grass of a park while its owner throws a red ball"


class Numbers:
    """Reads an item whose value is a list of numbers, written as text."""

    augments = False
    fingerprint = "numbers"

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> dict[str, Tensor]:
        rows = [[float(number) for number in value.split()] for value in batch.values]
        return {"pooled": torch.tensor(rows), "ids": torch.from_numpy(batch.rows)}

    def save(self, folder: Path) -> None:
        raise AssertionError("nothing is saved while auditing")


class Same(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return inputs["pooled"]


class Unit(nn.Module):
    """Unit vectors; `change` does to them what a broken model does."""

    def __init__(self, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.change = change

    def forward(self, pooled: Tensor, ids: Tensor) -> Embeddings:
        vectors = pooled if self.change is None else self.change(pooled, ids)
        return Embeddings(nn.functional.normalize(vectors, dim=-1)[:, None], ids)


class Bent(nn.Module):
    """The cosine, changed."""

    indexable = False

    def __init__(self, change: Callable[[Tensor, Embeddings, Embeddings], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, images: Embeddings, texts: Embeddings) -> Tensor:
        return self.change(images.vectors[:, 0] @ texts.vectors[:, 0].T, images, texts)


def made(*, leak: float = 0.0, noise: float = 2.0) -> Dataset:
    """Pictures, and texts that are noisy copies; with `leak` each picture holds so much of its first text."""
    g = np.random.default_rng(0)
    x = g.standard_normal((PICTURES, WIDTH))
    owner = np.repeat(np.arange(PICTURES), EACH)
    y = x[owner] + noise * g.standard_normal((len(owner), WIDTH))
    x = x + leak * y[::EACH]

    def items(kind: str, vectors: np.ndarray, groups: np.ndarray) -> Items:
        return Items(
            [f"{kind}{row}" for row in range(len(vectors))],
            [" ".join(f"{v:.9f}" for v in vector) for vector in vectors],
            groups.astype(np.int64),
            np.array(["test"] * len(vectors)),
        )

    links = np.stack([owner, np.arange(len(owner))], axis=1).astype(np.int64)
    return Dataset(items("image", x, np.arange(PICTURES)), items("text", y, owner), links, Path())


def model(similarity: nn.Module | None = None, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> Model:
    return Model(Branch(Numbers(), Same(), Unit(change)), Branch(Numbers(), Same(), Unit()), similarity or Cosine())


def audited(subject: Model, pairs: Dataset | None = None) -> dict[str, Check]:
    """All checks that need no training data."""
    pairs = pairs or made()
    base = Sample.drawn(subject, pairs, size=40, seed=0, batch_size=32)
    images, texts = embed_pairs(subject, pairs)
    result = evaluate_embeddings(subject.similarity, images, texts, pairs, protocol=Protocol(bootstrap=0))
    checks = [
        *map(base.check, CHECKS),
        shuffled_truth(base),
        ties(result),
        finite(result, images, texts, base.scores),
        caption_positions(result, pairs),
    ]
    return {check.name: check for check in checks}


def failing(subject: Model, pairs: Dataset | None = None) -> set[str]:
    return set(Audit(tuple(audited(subject, pairs).values())).named("fail"))


def test_honest_model_passes_all_checks() -> None:
    checks = audited(model())
    assert {check.outcome for check in checks.values()} == {"pass"}
    assert checks["order"].figures["largest_change"] < 1e-4
    found = Audit(tuple(checks.values()))
    assert found.passed and found.verdict == "9 of 9 checks pass, none fails"


def test_score_depending_on_block_fails() -> None:
    """As batch normalisation in train mode over a shard does."""

    def centred(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return scores - scores.mean()

    found = failing(model(Bent(centred)))
    assert {"blocks", "neighbours"} <= found <= {"blocks", "neighbours", "order"}


def test_misplaced_tiles_fail_blocks_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 pictures and their texts no tile is full: what fills it up must not stand for what is there."""

    def shifted(items: Embeddings, start: int, size: int) -> Embeddings:
        return items[torch.arange(start + 1, start + size + 1).clamp_max(len(items) - 1)]

    monkeypatch.setattr("subtext.evaluation.scoring._tile", shifted)
    assert failing(model()) == {"blocks"}


def test_embedding_depending_on_batch_fails() -> None:
    def normed(pooled: Tensor, ids: Tensor) -> Tensor:
        return pooled - pooled.mean(dim=0)

    found = failing(model(change=normed))
    assert {"blocks", "neighbours"} <= found and not found & {"repeat", "names", "truth", "ties", "finite", "captions"}


def test_score_depending_on_position_fails() -> None:
    """The shape of a matched pair that is conditioned on itself: what stands on the diagonal is lifted."""

    def lifted(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return scores + (torch.arange(len(images))[:, None] == torch.arange(len(texts)) // EACH)

    assert {"order", "blocks", "neighbours", "truth"} <= failing(model(Bent(lifted)))


def test_score_depending_on_ids_fails() -> None:
    def told(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return scores + (images.ids[:, None] == texts.ids // EACH)

    checks = audited(model(Bent(told)))
    assert {name for name, check in checks.items() if check.outcome == "fail"} == {"names", "truth"}
    assert "image 'image" in checks["names"].found and "chance" in checks["truth"].found


def test_encoder_depending_on_row_numbers_fails() -> None:
    place = torch.from_numpy(np.random.default_rng(1).standard_normal((1000, WIDTH))).float()

    def looked_up(pooled: Tensor, ids: Tensor) -> Tensor:
        return pooled + 5 * place[ids % 1000]

    assert "names" in failing(model(change=looked_up))


def test_unseeded_sampling_fails_repeat_check() -> None:
    def drawn(pooled: Tensor, ids: Tensor) -> Tensor:
        return pooled + 0.1 * torch.randn_like(pooled)

    assert "repeat" in failing(model(change=drawn))


def test_tied_scores_fail_ties_check() -> None:
    def rounded(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return (4 * scores.double()).round().float()

    checks = audited(model(Bent(rounded)))
    assert {name for name, check in checks.items() if check.outcome == "fail"} == {"ties"}
    assert "the rule for ties" in checks["ties"].found


def test_constant_scores_with_optimistic_ties_fail() -> None:
    def constant(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return torch.zeros_like(scores)

    base = Sample.drawn(model(Bent(constant)), made(), size=40, seed=0)
    assert shuffled_truth(base, ties="optimistic").outcome == "fail"
    strict = shuffled_truth(base)
    assert strict.outcome == "pass" and "below chance, because ties count" in strict.found
    two = Sample.drawn(model(), made(), size=2, seed=0)
    assert shuffled_truth(two).outcome == "not applicable"


def test_non_finite_scores_fail() -> None:
    def lost(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return scores.masked_fill(images.vectors[:, 0, :1] > 0.5, float("nan"))

    def endless(scores: Tensor, images: Embeddings, texts: Embeddings) -> Tensor:
        return scores.masked_fill(images.vectors[:, 0, :1] > 0.5, float("-inf"))

    assert failing(model(Bent(lost))) == {"finite"}
    assert failing(model(Bent(endless))) == {"finite", "ties"}, "what is endless is equal, too"


def test_image_containing_first_caption_fails() -> None:
    checks = audited(model(), made(leak=0.8))
    assert {name for name, check in checks.items() if check.outcome == "fail"} == {"captions"}
    assert checks["captions"].found.startswith("text 1 finds its image in")
    few = made()
    few = few.subset(np.arange(20), np.arange(20 * EACH))
    assert audited(model(), few)["captions"].outcome == "not applicable"


def test_sample_does_not_depend_on_row_order() -> None:
    pairs = made()
    rows = np.random.default_rng(3).permutation(PICTURES)
    texts = np.random.default_rng(4).permutation(PICTURES * EACH)
    other = pairs.subset(rows, texts)
    one, two = (Sample.drawn(model(), each, size=10, seed=0).chosen for each in (pairs, other))
    assert set(one.images.ids) == set(two.images.ids) and set(one.texts.ids) == set(two.texts.ids)
    assert len(one.images) == 10 and len(one.texts) == 30
    with pytest.raises(RequirementError, match="needs 2 images"):
        Sample.drawn(model(), pairs.subset(np.arange(1), np.arange(3)), size=10, seed=0)


def photo(seed: int) -> Image.Image:
    """Some smooth picture."""
    greys = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(greys).resize((96, 96), Image.Resampling.BICUBIC)


def on_disk(folder: Path, split: str, texts: list[str], values: list[str | bytes | None]) -> Dataset:
    count = len(texts)
    rows = np.arange(count, dtype=np.int64)
    splits = np.array([split] * count)
    return Dataset(
        Items([f"{split}{n}" for n in range(count)], values, rows, splits),
        Items([f"{split}{n}#0" for n in range(count)], list(texts), rows, splits),
        np.stack([rows, rows], axis=1),
        folder,
    )


def test_training_images_in_test_split_fail(tmp_path: Path) -> None:
    for seed in range(8):
        photo(seed).save(tmp_path / f"{seed}.png")
    photo(1).resize((50, 50)).save(tmp_path / "smaller.jpg", quality=60)
    (tmp_path / "copy.png").write_bytes((tmp_path / "2.png").read_bytes())
    for name in ("grey", "gray"):
        Image.new("RGB", (40 + len(name), 40), (128, 128, 130 if name == "grey" else 128)).save(
            tmp_path / f"{name}.png"
        )
    train = on_disk(tmp_path, "train", ["a"] * 5, ["0.png", "1.png", "2.png", "3.png", "grey.png"])
    honest = on_disk(tmp_path, "test", ["a"] * 4, ["4.png", "5.png", "gray.png", "gone.png"])
    told: list[int] = []
    check = overlap.images(honest, train, progress=told.append)
    assert check.outcome == "pass" and "1 image could not be read" in check.found and told == list(range(1, 10))
    leaky = on_disk(tmp_path, "test", ["a"] * 4, ["4.png", "smaller.jpg", "copy.png", "7.png"])
    check = overlap.images(leaky, train, workers=0)
    assert check.outcome == "fail" and "2 of 4 images (50 %)" in check.found
    assert "'test1' = 'train1', 'test2' = 'train2' (1 to the byte, 1 by what is seen)" in check.found
    none = on_disk(tmp_path, "test", ["a"], [None])
    assert overlap.images(none, on_disk(tmp_path, "train", ["a"], [None])).outcome == "not applicable"


def test_feature_copies_fail_overlap_check(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    vectors[1] = vectors[4]
    np.savez(tmp_path / "f.npz", names=[f"test{n}" for n in range(3)] + [f"train{n}" for n in range(3)], pooled=vectors)
    file = FeatureFile.open(tmp_path / "f.npz")
    sides = [on_disk(tmp_path, split, ["a"] * 3, [None] * 3) for split in ("test", "train")]
    check = overlap.features(*sides, file)
    assert check.outcome == "fail" and "'test1' = 'train1'" in check.found
    more = on_disk(tmp_path, "train", ["a"] * 4, [None] * 4)
    assert overlap.features(sides[0], more, file).outcome == "not applicable"


def test_training_texts_in_test_split_fail(tmp_path: Path) -> None:
    other = " ".join(reversed(LONG.split()))
    train = on_disk(tmp_path, "train", [LONG, other, "a dog"], [None] * 3)
    honest = on_disk(
        tmp_path, "test", ["a dog", "the sea is calm and two boats lie near to the old stone pier"], [None] * 2
    )
    check = overlap.texts(honest, train)
    assert check.outcome == "pass" and check.figures["of"] == 1
    leaky = on_disk(tmp_path, "test", [other + " again", LONG + "!", LONG], [None] * 3)
    check = overlap.texts(leaky, train)
    assert check.outcome == "fail" and check.figures["copies"] == 3
    assert ["test0#0", "train1#0"] in check.figures["pairs"] and ["test2#0", "train0#0"] in check.figures["pairs"]
    short = on_disk(tmp_path, "test", ["a dog"], [None])
    assert overlap.texts(short, train).outcome == "not applicable"


def test_vocabulary_built_from_audited_texts_fails() -> None:
    train, test = ["a dog and a cat", "a dog"], ["a zebra"]
    honest = WordInput(Vocabulary.build(train))
    assert vocabulary(honest, train, test, min_count=1).outcome == "pass"
    leaky = vocabulary(WordInput(Vocabulary.build(train + test)), train, test, min_count=1)
    assert (
        leaky.outcome == "fail"
        and "1 of 5 words are in no training text, 1 of them in the audited split (zebra)" in leaky.found
    )
    rare = vocabulary(honest, train, test, min_count=2)
    assert rare.outcome == "fail" and "2 words seen less than 2 times" in rare.found
    fewer = vocabulary(honest, [*train, "one bird"], test, min_count=1)
    assert fewer.outcome == "fail" and "2 words of the training texts lacking (bird, one)" in fewer.found
    assert vocabulary(honest, [*train, "one bird"], test).outcome == "pass"
    assert vocabulary(Numbers(), train, test).outcome == "not applicable"


def test_verdict_names_failed_checks() -> None:
    checks = [
        Check(name, "d", outcome, "f") for name, outcome in (("a", "pass"), ("b", "fail"), ("c", "not applicable"))
    ]
    found = Audit(tuple(checks), {"x": float("nan")})
    assert not found.passed and found.verdict == "1 of 3 checks fail (b); 1 pass; 1 say nothing here (c)"
    assert found.to_json()["figures"] == {"x": None}
    assert replace(found, checks=tuple(checks[:1])).passed
