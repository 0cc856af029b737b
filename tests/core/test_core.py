"""The types that flow: agreement is checked once, in constructors, and every message says what to do."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from scenes import comparison, items, random_items, scene

from subtext.core import Comparison, Embeddings, Encoded, Origin, Scene, Truth
from subtext.errors import RequirementError, ShapeError, SubtextError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.scene import compose

pytestmark = pytest.mark.contract

IDS = torch.arange(3)
EYE = torch.eye(3, dtype=torch.bool)


def three(**more: torch.Tensor) -> Embeddings:
    return Embeddings(torch.zeros(3, 2, 4), IDS, **more)


BAD = {
    "embeddings without a view axis": (
        lambda: Embeddings(torch.zeros(3, 4), IDS),
        "Embeddings.vectors needs 3 axes (items, views, width); it got shape (3, 4)",
    ),
    "too few ids": (
        lambda: Embeddings(torch.zeros(3, 1, 4), torch.arange(2)),
        "Embeddings.ids must be (items) = (3,); it got (2,)",
    ),
    "residuals of another shape": (
        lambda: three(residuals=torch.zeros(3, 1, 4)),
        "Embeddings.residuals must be (items, views, width) = (3, 2, 4); it got (3, 1, 4)",
    ),
    "log_std of another shape": (
        lambda: three(log_std=torch.zeros(3, 2, 5)),
        "Embeddings.log_std must be (items, views, width) = (3, 2, 4); it got (3, 2, 5)",
    ),
    "parts of fewer items": (
        lambda: three(parts=torch.zeros(2, 5, 4)),
        "Embeddings.parts must be (items, parts, width of parts) = (3, 5, 4); it got (2, 5, 4)",
    ),
    "a mask of another length": (
        lambda: three(parts=torch.zeros(3, 5, 4), mask=torch.ones(3, 4, dtype=torch.bool)),
        "Embeddings.mask must be (items, parts) = (3, 5); it got (3, 4)",
    ),
    "an encoder's empty output": (
        Encoded,
        "Encoded needs parts (N, P, E) or pooled (N, G); it got neither",
    ),
    "an encoder's flat parts": (
        lambda: Encoded(parts=torch.zeros(3, 4)),
        "Encoded.parts needs 3 axes (items, parts, width); it got shape (3, 4)",
    ),
    "an encoder's mask of another shape": (
        lambda: Encoded(parts=torch.zeros(3, 5, 4), mask=torch.ones(3, 4, dtype=torch.bool)),
        "Encoded.mask must be (items, parts) = (3, 5); it got (3, 4)",
    ),
    "truth in numbers": (
        lambda: Truth(torch.eye(3)),
        "Truth.match needs bool; it got torch.float32; compare with > 0 first",
    ),
    "ignored cells of another shape": (
        lambda: Truth(EYE, ignored=EYE[:2]),
        "Truth.ignored must be (queries, candidates) = (3, 3); it got (2, 3)",
    ),
    "relevance without a name": (
        lambda: Truth(EYE, relevance=torch.zeros(3, 3)),
        "Truth.relevance needs the name of its scale ('tfidf1', ...); it got none",
    ),
    "more queries than partners": (
        lambda: Truth.of_pairs(torch.arange(3), torch.arange(2)),
        "Truth.of_pairs needs a partner for each of 3 queries; it got 2",
    ),
    "scores on their side": (
        lambda: Comparison(torch.zeros(9, 6), Truth(torch.zeros(6, 9, dtype=torch.bool))),
        "Comparison.scores must be (queries, candidates) = (6, 9) as its truth is; it got (9, 6); flip() transposes it",
    ),
    "scores of another size": (
        lambda: Comparison(torch.zeros(3, 4), Truth(EYE)),
        "Comparison.scores must be (queries, candidates) = (3, 3) as its truth is; it got (3, 4)",
    ),
    "too few queries": (
        lambda: Comparison(torch.zeros(3, 3), Truth(EYE), queries=items(torch.eye(2))),
        "Comparison.queries needs 3 items, one per row of scores; it got 2",
    ),
    "too few candidates": (
        lambda: Comparison(torch.zeros(3, 3), Truth(EYE), candidates=items(torch.eye(2))),
        "Comparison.candidates needs 3 items, one per column",
    ),
    "origins of another length": (
        lambda: Comparison(torch.zeros(3, 3), Truth(EYE), origin=torch.zeros(2, dtype=torch.uint8)),
        "Comparison.origin must be (candidates) = (3,); it got (2,)",
    ),
    "flip of a widened comparison": (
        lambda: comparison("several").flip(),
        "Comparison.flip needs a square comparison of pairs alone; it got 6 x 9 with origins ['PAIR']; "
        "build the other direction from its own candidates",
    ),
    "flip of a square comparison with a bank": (
        lambda: dataclasses.replace(
            comparison("pairs"), origin=torch.tensor([0, 0, 0, 0, 3, 3], dtype=torch.uint8)
        ).flip(),
        "it got 6 x 6 with origins ['BANK', 'PAIR']",
    ),
    "a comparison that the batch has not": (
        lambda: scene("pairs").comparison("text_neighbours"),
        "a term reads the comparison 'text_neighbours', but this batch has only image_to_text, text_to_image; "
        "add the method that supplies it, or leave the term out",
    ),
    "nothing to join": (
        lambda: Embeddings.cat([]),
        "Embeddings.cat needs at least one batch; it got none",
    ),
    "residuals in some pieces": (
        lambda: Embeddings.cat([three(), three(residuals=torch.zeros(3, 2, 4))]),
        "Embeddings.cat needs residuals in every batch or in none; 1 of 2 have it",
    ),
    "parts in some pieces": (
        lambda: Embeddings.cat([three(), three(parts=torch.zeros(3, 5, 4))]),
        "Embeddings.cat needs parts in every batch or in none; 1 of 2 have it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_inconsistent_fields_raise_with_sentence(name):
    make, message = BAD[name]
    with pytest.raises(SubtextError, match=re.escape(message)) as caught:
        make()
    assert isinstance(caught.value, ValueError), "a caller who knows nothing of Subtext can still catch it"


def test_error_types_of_invalid_embeddings():
    with pytest.raises(ShapeError):
        Embeddings(torch.zeros(3, 4), IDS)
    with pytest.raises(RequirementError):
        scene("pairs").comparison("nothing")


def test_sizes_come_from_vectors():
    whole = three()
    assert (len(whole), whole.views, whole.width) == (3, 2, 4)


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([2, 0]), torch.tensor([True, False, True, False, False])])
def test_indexing_selects_rows_of_every_field(rows):
    whole = random_items(5)
    some = whole[rows]
    for field in dataclasses.fields(Embeddings):
        value = getattr(whole, field.name)
        assert (value is None) == (getattr(some, field.name) is None)
        if value is not None:
            assert torch.equal(getattr(some, field.name), value[rows])


def test_detached_items_have_no_graph():
    whole = random_items(3)
    whole.vectors.requires_grad_()
    assert not whole.detach().vectors.requires_grad
    assert torch.equal(whole.to("cpu").vectors, whole.vectors)


def test_concatenation_pads_and_masks_unequal_parts():
    short = three(parts=torch.ones(3, 2, 4))
    long = three(parts=torch.ones(3, 5, 4), mask=torch.tensor([[True] * 4 + [False]] * 3))
    whole = Embeddings.cat([short, long])
    assert len(whole) == 6
    assert whole.parts is not None and whole.mask is not None
    assert whole.parts.shape == (6, 5, 4)
    assert whole.mask.sum(dim=1).tolist() == [2, 2, 2, 4, 4, 4]
    assert whole.parts[:3, 2:].abs().sum() == 0
    assert Embeddings.cat([short]) is short


def test_slicing_and_concatenating_restores_embeddings():
    whole = random_items(6)
    again = Embeddings.cat([whole[:2], whole[2:3], whole[3:]])
    for field in dataclasses.fields(Embeddings):
        value = getattr(whole, field.name)
        assert value is None or torch.equal(getattr(again, field.name), value)


def test_truth_from_groups_and_from_pairs():
    groups, candidates = torch.tensor([4, 4, 7]), torch.tensor([4, 4, 7, 4])
    by_group = Truth.from_groups(groups, candidates)
    assert by_group.match.tolist() == [
        [True, True, False, True],
        [True, True, False, True],
        [False, False, True, False],
    ]
    assert by_group.ignored is None and torch.equal(by_group.negative, ~by_group.match)
    by_pair = Truth.of_pairs(groups, candidates)
    assert by_pair.match.tolist() == torch.eye(3, 4, dtype=torch.bool).tolist()
    assert by_pair.ignored is not None
    assert by_pair.ignored.tolist() == [[False, True, False, True], [True, False, False, True], [False] * 4]
    assert torch.equal(by_pair.negative, by_group.negative), "one of the group is no negative either way"


def test_flipped_truth_transposes_all_fields():
    ignored = torch.zeros(3, 3, dtype=torch.bool)
    ignored[0, 2] = True
    whole = Truth(EYE, ignored=ignored, relevance=torch.arange(9.0).reshape(3, 3), scale="graded")
    turned = whole.flip()
    assert turned.ignored is not None and turned.relevance is not None
    assert turned.ignored[2, 0] and turned.relevance[0, 2] == 6 and turned.scale == "graded"


def test_comparison_is_found_by_name():
    whole = scene("pairs")
    edited = Scene(whole.image_to_text, whole.text_to_image, edited={"swapped": whole.image_to_text})
    assert edited.comparison("swapped") is whole.image_to_text
    assert edited.comparison("text_to_image") is whole.text_to_image


def test_scene_of_pairs_has_both_comparisons():
    images, texts, groups = random_items(4, seed=1), random_items(4, seed=2), torch.tensor([0, 1, 1, 2])
    whole = compose(Cosine(), images, texts, groups)
    assert torch.equal(whole.text_to_image.scores, whole.image_to_text.scores.T)
    assert whole.image_to_text.queries is images and whole.image_to_text.candidates is texts
    assert whole.text_to_image.queries is texts and whole.text_to_image.candidates is images
    assert whole.image_to_text.truth.match.sum() == 6
    paired = compose(Cosine(), images, texts, groups, positives="pair").image_to_text.truth
    assert paired.match.sum() == 4 and paired.ignored is not None and paired.ignored.sum() == 2


def test_gathered_candidates_have_gathered_origin():
    images, texts, groups = random_items(4, seed=1), random_items(4, seed=2), torch.tensor([0, 1, 1, 2])
    shared = compose(Cosine(), images[:2], texts[:2], groups[:2], gathered=(images[2:], texts[2:], groups[2:]))
    for whole in (shared.image_to_text, shared.text_to_image):
        assert whole.origin is not None
        assert whole.origin.tolist() == [Origin.PAIR, Origin.PAIR, Origin.GATHERED, Origin.GATHERED]
        assert whole.truth.match[1].tolist() == [False, True, True, False], "a partner may be of another process"
    with pytest.raises(ShapeError, match="GATHERED"):
        dataclasses.replace(
            shared.image_to_text,
            scores=torch.zeros(4, 4),
            truth=Truth(torch.eye(4, dtype=torch.bool)),
            queries=None,
            candidates=None,
        ).flip()
