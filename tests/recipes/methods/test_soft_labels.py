"""Soft labels: the values of the card, targets by a plain loop, controls, and one training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import tiny_models
import torch
from torch import Tensor

import subtext as st
from subtext.core import DIRECTIONS, Embeddings, Epoch, Scene
from subtext.data.inputs import Draw
from subtext.errors import DataError, RecipeError, RequirementError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.scene import Relevance, compose
from subtext.recipes.methods.soft_labels import soft_labels
from subtext.recipes.methods.soft_labels.teachers import Alike, LoadedAlike, Soft, Within, text_vectors
from subtext.training.plan import Plan
from subtext.training.setup import Setup
from subtext.training.step import StepReader

IMAGES = [[1, 0, 0], [0.6, 0.8, 0], [0, 0.6, 0.8], [0, 0, 1]]
TEXTS = [[0.8, 0.6, 0], [0.6, 0, 0.8], [0, 0.8, 0.6], [-0.6, 0, 0.8]]
IMAGE_TEACHER = [[1, 0, 2], [2, 0, 1], [0, 1, 1], [1, 1, 0]]
TEXT_TEACHER = [[2, 1], [1, 2], [1, 0], [0, 1]]
ROWS = np.arange(4)


def unit(rows: list[list[float]]) -> Tensor:
    return torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float64), dim=1)


def loaded(**options: object) -> LoadedAlike:
    source = Alike(**{"temperature": 1.0, **options})
    return LoadedAlike(unit(IMAGE_TEACHER), unit(TEXT_TEACHER), ROWS, ROWS, np.arange(5), source)


def fixture(teachers: LoadedAlike, groups: list[int] | None = None) -> Scene:
    images, texts = (
        Embeddings(torch.tensor(side, dtype=torch.float64)[:, None].requires_grad_(), torch.arange(4))
        for side in (IMAGES, TEXTS)
    )
    relevance = Relevance(teachers(ROWS, ROWS), teachers.of_texts(ROWS, ROWS).T, teachers.name)
    own = torch.tensor(groups or [0, 1, 2, 3])
    return compose(Cosine(scale=20.0), images, texts, own, positives="pair", relevance=relevance)


def rows_of(scene: Scene, temperature: float, *, without_pair: bool = False) -> tuple[list[float], list[float]]:
    loss, epoch = Listwise(temperature), Epoch(0, 0)
    image, text = (loss(Soft(side, without_pair)(scene, epoch)).tolist() for side in DIRECTIONS)
    return image, text


@pytest.mark.golden
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 2]])
def test_soft_labels_across_modalities_equal_the_card(groups: list[int] | None) -> None:
    """Texts of the same image are counted, whatever the groups say."""
    image, text = rows_of(fixture(loaded(), groups), 0.45)
    assert image == pytest.approx([0.31022006, 0.46976555, 0.06724491, 0.09647079], abs=1e-7)
    assert text == pytest.approx([0.21135793, 0.10218492, 0.32522464, 0.77144944], abs=1e-7)
    assert (np.mean(image) + np.mean(text)) / 2 == pytest.approx(0.2942397802, abs=1e-9)


@pytest.mark.golden
@pytest.mark.parametrize(("targets", "value"), [("mean", 0.2835332859), ("root", 0.2963501411)])
def test_targets_of_both_teachers_equal_the_card(targets: str, value: float) -> None:
    assert np.mean(rows_of(fixture(loaded(targets=targets)), 0.45)) == pytest.approx(value, abs=1e-9)


@pytest.mark.golden
def test_soft_labels_within_modalities_equal_the_card() -> None:
    scene, teachers = fixture(loaded()), loaded()
    epoch = Epoch(0, 0, table={"soft labels/image": teachers.images, "soft labels/text": teachers.texts})
    image, text = (Listwise(0.45)(Within(side, 1.0)(scene, epoch)).tolist() for side in DIRECTIONS)
    assert image == pytest.approx([0.25367314, 0.19460345, 0.224891, 0.31151046], abs=1e-7)
    assert text == pytest.approx([0.32125424, 0.16419694, 0.09463569, 0.4428225], abs=1e-7)


@pytest.mark.golden
def test_softclip_and_its_second_term_equal_the_card() -> None:
    scene = fixture(loaded(temperature=0.1))
    image, text = rows_of(scene, 0.1)
    assert image == pytest.approx([0.07823275, 5.02844008, 0.08954425, 0.61767015], abs=1e-7)
    assert text == pytest.approx([1.85049228, 2.60381363, 1.95626537, 2.62064368], abs=1e-7)
    image, text = rows_of(scene, 0.1, without_pair=True)
    assert image == pytest.approx([0.5491619, 1.65619015, 2.22311875, 0.15235424], abs=1e-7)
    assert text == pytest.approx([3.72988248, 0.22365884, 6.77782189, 9.96271927], abs=1e-7)


@pytest.mark.golden
def test_one_graph_for_both_directions_equals_the_card() -> None:
    """X-CLR's cross-entropy less the entropy of its target, and its cross-entropy."""
    image, text = rows_of(fixture(loaded(targets="text", temperature=0.1)), 0.1)
    assert image == pytest.approx([1.377536, 6.33261501, 1.04448817, 0.19252381], abs=1e-6)
    assert text == pytest.approx([1.85049228, 2.60381363, 1.95626537, 2.62064368], abs=1e-7)


@pytest.mark.golden
def test_gradient_reaches_the_model_and_equals_the_card() -> None:
    """(softmax of the scores - softmax of the teacher's) / (.45 x 4); the card prints half of it, as CSA has it."""
    scene = fixture(loaded())
    scores = scene.image_to_text.scores
    comparison = replace(scene.image_to_text, scores=(scores / 20).detach().requires_grad_())
    Listwise(0.45)(comparison).mean().backward()
    assert comparison.scores.grad is not None
    assert comparison.scores.grad[0].tolist() == pytest.approx(
        [2 * value for value in (0.05766074, 0.02061761, -0.03846424, -0.03981412)], abs=1e-7
    )


@pytest.mark.identity
def test_targets_of_a_batch_equal_a_plain_loop(tmp_path: Path) -> None:
    """Two texts an image: a text counts as its image, an image as the nearest of its texts."""
    data = small_training.pairs(12, captions=2)
    teachers = features(tmp_path, data)
    opened = Alike(*teachers, temperature=0.5).open(data)
    image_of = dict(data.links[:, ::-1].tolist())
    rows = data.links[np.array([0, 5, 5, 9, 20])]
    reading = StepReader(small_training.setup().model, data, Draw(0, 0), related=opened)(rows)
    assert reading.relevance is not None and reading.relevance.scale == opened.name
    images, texts = reading.images["ids"].tolist(), reading.texts["ids"].tolist()
    for i, image in enumerate(images):
        for t, text in enumerate(texts):
            by_image = float(opened.images[image] @ opened.images[image_of[text]])
            own = [other for other, of in image_of.items() if of == image]
            by_text = max(float(opened.texts[text] @ opened.texts[other]) for other in own)
            assert float(reading.relevance.images[i, t]) == pytest.approx(by_image / 0.5, abs=1e-5)
            assert float(reading.relevance.texts[t, i]) == pytest.approx(by_text / 0.5, abs=1e-5)


def features(folder: Path, data: st.Dataset) -> tuple[str, str]:
    rng = np.random.default_rng(0)
    files = []
    for name, items in (("images", data.images), ("texts", data.texts)):
        file = folder / f"{name}.npz"
        np.savez(file, names=np.array(items.ids), pooled=rng.standard_normal((len(items), 6)).astype(np.float32))
        files.append(str(file))
    return files[0], files[1]


def test_flat_targets_know_pairs_alone_and_permuted_ones_keep_the_cosines(tmp_path: Path) -> None:
    data = small_training.pairs(12, captions=2)
    teachers, rows = features(tmp_path, data), (np.arange(12), np.arange(24))
    flat = Alike(*teachers, control="flat").open(data)(*rows)
    assert (flat == torch.from_numpy(data.images.groups[:, None] == data.texts.groups)).all()
    plain, permuted = (Alike(*teachers, control=name).open(data)(*rows) for name in ("none", "permuted"))
    assert not torch.allclose(plain, permuted)
    torch.testing.assert_close(plain.flatten().sort().values, permuted.flatten().sort().values)


def test_item_without_partner_raises() -> None:
    data = small_training.pairs(4)
    with pytest.raises(DataError, match="soft_labels needs an image for every text"):
        Alike().open(data.subset(np.arange(3), np.arange(len(data.texts))))
    with pytest.raises(DataError, match="soft_labels needs a text for every image"):
        Alike().open(data.subset(np.arange(4), np.arange(3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": "text", "image_teacher": "some.npz"}, "image_teacher needs the image teacher to be read"),
        ({"control": "flat", "text_teacher": "some.npz"}, "text_teacher needs the text teacher to be read"),
        ({"weight": 0.0, "within_weight": 1.0, "targets": "mean"}, "targets needs weight or without_pair above 0"),
        ({"weight": 0.0}, "needs a weight above 0"),
        ({"weight": 0.0, "within_weight": 1.0, "replace_loss": True}, "replace_loss needs weight above 0"),
    ],
)
def test_weights_that_change_nothing_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        soft_labels(small_training.setup(), **options)


def test_several_vectors_an_item_raise() -> None:
    scene = fixture(loaded())
    several = Embeddings(torch.randn(4, 2, 3), torch.arange(4))
    other = compose(Cosine(), several, several, torch.arange(4))
    for mining in (Soft("image_to_text"), Within("image_to_text", 1.0)):
        mining(scene, Epoch(0, 0))
        with pytest.raises(RequirementError, match="one vector an item; this model gives 2 an item"):
            mining(other, Epoch(0, 0))


def test_teacher_that_nothing_reads_is_not_opened(tmp_path: Path) -> None:
    data = small_training.pairs(12, captions=2)
    _, texts = features(tmp_path, data)
    opened = Alike("nowhere.npz", texts, targets="text").open(data)
    assert opened.images.shape == (12, 0) and opened(np.arange(12), np.arange(24)).shape == (12, 24)
    assert Alike("nowhere.npz", "nowhere.npz", control="flat", within=True).open(data).texts.shape == (24, 0)


def test_teacher_embeds_an_item_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, data = str(tiny_models.bert(tmp_path / "bert")), small_training.pairs(12, captions=2)
    first = text_vectors(teacher, data)
    monkeypatch.setattr("transformers.BertModel.forward", None)  # Nothing is left to embed.
    np.testing.assert_array_equal(text_vectors(teacher, data), first)


@pytest.mark.parametrize("control", ["none", "flat"])
def test_loss_of_every_term_falls_in_a_training(tmp_path: Path, control: str) -> None:
    data = small_training.pairs(24)
    teachers = dict(zip(("image_teacher", "text_teacher"), features(tmp_path, data), strict=True))
    terms = {"within_weight": 0.5, "without_pair": 0.5, "replace_loss": True, "control": control}

    def made(plan: Plan | None) -> Setup:
        return soft_labels(small_training.setup(plan, dropout=0.0), **(teachers if control == "none" else {}), **terms)

    result = small_training.run(tmp_path / "run", made=made, train=data, val=None)
    lines = [json.loads(line) for line in (result.run / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) > 1 and losses[-1] < losses[0]
