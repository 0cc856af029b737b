"""What every regulariser must do. Regularisers are found by walking the package."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from find_parts import classes, instances
from scenes import SCENES, cast, items, random_items, scene

from subtext.core import Comparison, Embeddings, Scene, Truth
from subtext.errors import RequirementError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.regularisers import KL, MMD, Uniformity, ViewDiversity
from subtext.objectives.scene import compose

pytestmark = pytest.mark.contract

every_regulariser = pytest.mark.parametrize("regulariser", instances("objectives.regularisers"))


def of(images: Embeddings, texts: Embeddings) -> Scene:
    return compose(Cosine(), images, texts, torch.arange(len(images)))


def test_regularisers_are_discovered():
    assert {"MMD", "ViewDiversity"} <= {part.__name__ for part in classes("objectives.regularisers")}


@pytest.mark.parametrize("regulariser", classes("objectives.regularisers"))
def test_regulariser_is_frozen_dataclass(regulariser):
    assert dataclasses.is_dataclass(regulariser) and regulariser.__dataclass_params__.frozen


@every_regulariser
@pytest.mark.parametrize("kind", SCENES)
def test_one_finite_value(regulariser, kind):
    value = regulariser(scene(kind))
    assert callable(regulariser)
    assert value.shape == () and value.isfinite()


@every_regulariser
def test_regulariser_is_invariant_to_pair_order(regulariser):
    images, texts, order = random_items(6, seed=1), random_items(6, seed=2), torch.randperm(6)
    torch.testing.assert_close(regulariser(of(images[order], texts[order])), regulariser(of(images, texts)))


@every_regulariser
def test_float32_and_float64_agree(regulariser):
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    value = regulariser(of(cast(images, torch.float32), cast(texts, torch.float32)))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), regulariser(of(images, texts)), rtol=1e-5, atol=1e-6)


@every_regulariser
@pytest.mark.parametrize("count", [1, 6])
def test_gradient_is_finite_for_repeated_image(regulariser, count):
    images, texts = random_items(count, seed=1), random_items(count, seed=2)
    twice = torch.zeros(count, dtype=torch.int64)
    leaves = [value.requires_grad_() for side in (images, texts) for value in (side.vectors, side.residuals)]
    value = regulariser(of(images[twice], texts))
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    found = [gradient for gradient in gradients if gradient is not None]
    assert found and all(gradient.isfinite().all() for gradient in found)


@every_regulariser
def test_gradient_matches_finite_differences(regulariser):
    images, texts = random_items(3, seed=1), random_items(3, seed=2)

    def value(image_vectors, text_vectors, image_residuals, text_residuals):
        return regulariser(
            of(
                dataclasses.replace(images, vectors=image_vectors, residuals=image_residuals),
                dataclasses.replace(texts, vectors=text_vectors, residuals=text_residuals),
            )
        )

    leaves = [side.vectors.requires_grad_() for side in (images, texts)]
    leaves += [side.residuals.requires_grad_() for side in (images, texts)]
    assert torch.autograd.gradcheck(value, tuple(leaves), atol=1e-6)


@every_regulariser
def test_autocast_does_not_change_regulariser(regulariser):
    images, texts = (cast(random_items(6, seed=seed), torch.bfloat16) for seed in (1, 2))
    exact = regulariser(of(cast(images, torch.float64), cast(texts, torch.float64)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = regulariser(of(images, texts))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)


@every_regulariser
def test_scene_without_embeddings_raises(regulariser):
    bare = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)))
    with pytest.raises(RequirementError, match=f"{type(regulariser).__name__} needs .* this batch has"):
        regulariser(Scene(bare, bare.flip()))


def test_view_diversity_error_names_modality_and_head():
    plain = items(torch.eye(2))
    with pytest.raises(RequirementError, match="residuals of every image, which the PIE head gives"):
        ViewDiversity()(of(plain, plain))
    whole = items(torch.eye(2), residuals=torch.ones(2, 1, 2))
    with pytest.raises(RequirementError, match="residuals of every text"):
        ViewDiversity()(of(whole, plain))


def test_divergence_error_names_modality_and_head():
    plain = items(torch.eye(2))
    with pytest.raises(RequirementError, match="deviations of every image, which gaussian heads give"):
        KL()(of(plain, plain))
    whole = dataclasses.replace(plain, log_std=torch.zeros(2, 1, 2))
    with pytest.raises(RequirementError, match="deviations of every text"):
        KL()(of(whole, plain))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniformity(steepness=0.0), r"Uniformity needs a steepness above 0; it got 0\.0"),
        (lambda: Uniformity(steepness=-1.0), r"above 0; it got -1\.0"),
    ],
)
def test_bad_settings_raise_by_name(make, message):
    with pytest.raises(RequirementError, match=message):
        make()


def test_unknown_modality_raises_outside_type_checks():
    made = object.__new__(KL)
    for name, value in (("modality", "sound"), ("over", "sum"), ("published", False)):
        object.__setattr__(made, name, value)
    with pytest.raises(
        RequirementError, match="KL needs modality to be one of 'both', 'image', 'text'; it got 'sound'"
    ):
        made.__post_init__()


@pytest.mark.parametrize("published", [False, True])
def test_standard_normal_has_zero_divergence(published):
    normal = dataclasses.replace(items(torch.zeros(3, 4)), log_std=torch.zeros(3, 1, 4))
    assert KL(published=published)(of(normal, normal)) == 0


@pytest.mark.parametrize("over", ["sum", "mean"])
def test_divergence_shares_add_up_to_whole_batch(over):
    images, texts, groups = random_items(6, seed=1), random_items(6, seed=2), torch.arange(6)
    whole = KL(over=over)(of(images, texts))
    first = compose(Cosine(), images[:2], texts[:2], groups[:2], gathered=(images[2:], texts[2:], groups[2:]))
    second = compose(Cosine(), images[2:], texts[2:], groups[2:], gathered=(images[:2], texts[:2], groups[:2]))
    torch.testing.assert_close(KL(over=over)(first) * 2 / 6 + KL(over=over)(second) * 4 / 6, whole)


def test_one_view_has_zero_diversity_penalty():
    assert ViewDiversity()(of(random_items(4, views=1, seed=1), random_items(4, views=1, seed=2))) == 0


def test_equal_distributions_have_zero_mmd():
    images = random_items(5, seed=1)
    assert MMD()(of(images, images[torch.randperm(5)])).abs() < 1e-12


def test_zero_gamma_raises():
    with pytest.raises(RequirementError, match=r"MMD needs a gamma above 0; it got 0\.0"):
        MMD(gamma=0.0)


def test_regulariser_counts_gathered_pairs_but_not_banks():
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    groups = torch.arange(6)
    shared = compose(Cosine(), images[:2], texts[:2], groups[:2], gathered=(images[2:], texts[2:], groups[2:]))
    torch.testing.assert_close(MMD()(shared), MMD()(of(images, texts)))
    origin = shared.image_to_text.origin.clone()
    origin[2:] = 3  # bank
    banked = Scene(
        dataclasses.replace(shared.image_to_text, origin=origin),
        dataclasses.replace(shared.text_to_image, origin=origin),
    )
    torch.testing.assert_close(MMD()(banked), MMD()(of(images[:2], texts[:2])))
