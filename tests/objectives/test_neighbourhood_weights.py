"""DIVERSITY, DISCREPANCY and COMBINED weights (Thomas and Kovashka 2022, eq. 1-8): worked values of every reading."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import S3, doubles, items, q2, scene_of

from subtext.core import DIRECTIONS, Embeddings, Epoch
from subtext.errors import RequirementError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD, ViewDiversity
from subtext.objectives.scene import Groups, compose
from subtext.objectives.weighting import Neighbourhood
from subtext.ops.neighbour_scores import neighbour_scores, second_sums

pytestmark = pytest.mark.golden

NEAR = torch.tensor([[1, 2], [0, 2], [1, 3], [4, 0], [3, 2]], dtype=torch.int32)
IMAGES = doubles([[1, 0], [0.6, 0.8], [0, 1], [-0.8, 0.6], [0, -1]])
TEXTS = doubles([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1], [-0.6, 0.8]])
SCENE = compose(Cosine(), items(IMAGES), items(TEXTS), torch.arange(5))


def tables() -> dict[str, torch.Tensor]:
    found = {}
    for modality, bank in (("image", IMAGES), ("text", TEXTS)):
        found[f"diversity/{modality}"], found[f"discrepancy/{modality}"] = neighbour_scores(bank, NEAR)
    for name in ("diversity", "discrepancy"):
        both = [found[f"{name}/image"], found[f"{name}/text"]]
        for whose, values in (("image", both[0]), ("text", both[1]), ("both", torch.cat(both))):
            found[f"moments/{name}/{whose}"] = torch.stack([values.mean(), values.std(correction=0)])
    return found


EPOCH = Epoch(number=1, seed=0, table=tables())
DIV, DIS = {"diversity": 1.0, "discrepancy": 0.0}, {"diversity": 0.0, "discrepancy": 1.0}
R3, R2, R1, R4 = ({"placement": one} for one in ("both", "outer", "inner", "scores"))
IMAGE, TEXT, SUM, MEAN = ({"combine": one} for one in ("image", "text", "sum", "mean"))
STATS = {"diversity": 1.0, "discrepancy": 1.0, "statistics": "pooled"}
VAL = {"diversity": 3.0, "discrepancy": 1.0}
GOLDEN = [
    (DIS | IMAGE, [4.09627868, 2.48451861, 5.00320607, 2.88659880, 5.52939785]),
    (DIS | TEXT, [4.08408994, 3.05597571, 4.00321954, 3.34377003, 5.51294478]),
    (DIS | R1, [0.12500871, 0.21868925, 0.33568767, 0.19507145, 0.12554292]),
    (DIS | R2, [3.92026211, 4.03143316, 4.11874460, 4.00846206, 3.92109807]),
    (DIS | R3, [2.50017414, 4.37378493, 6.71375348, 3.90142896, 2.51085849]),
    (DIS | R4, [4.06721566, 3.29682094, 5.06806279, 3.50068496, 4.06721566]),
    (DIS | SUM, [0.95265457, 0.06799119, 2.17614310, 0.13553807, 16.66767308]),
    (DIV | IMAGE, [3.03921576, 4.53397713, 4.53397713, 4.53397713, 3.35885287]),
    (DIV | TEXT, [3.00336645, 3.59568246, 3.59568246, 6.55176061, 3.25350803]),
    (DIV | R3, [1.40252625, 3.45810390, 3.45810390, 10.17780373, 1.50346223]),
    (DIV | R2, [3.84617942, 4.02370277, 4.02370277, 4.24684777, 3.85956728]),
    (DIV | R4, [3.47316798, 4.32783380, 4.32783380, 4.32783380, 3.54333063]),
    (DIS | {"total": 5.0}, [0.90107724, 1.03629597, 1.15348195, 1.00710646, 0.90203838]),
    (DIV | {"total": 5.0}, [0.81103074, 1.01629333, 1.01629333, 1.33113800, 0.82524461]),
    (VAL | MEAN, [1.74713470, 2.80941740, 4.56298554, 7.79106163, 3.08940073]),
    (VAL | R3, [0.01102554, 0.04492426, 0.97180056, 18.95488402, 0.01736562]),
    (STATS | MEAN, [3.86933923, 3.82811900, 4.10965626, 4.09039898, 4.10248653]),
    (STATS | R3, [3.48051361, 3.54744177, 4.60257478, 4.84103117, 3.52843868]),
    (DIV | {"sign": 0.0}, [4.0] * 5),
    (VAL | MEAN | {"sign": 0.0}, [4.0] * 5),
]


@pytest.mark.parametrize(("given", "wanted"), GOLDEN, ids=lambda value: str(value) if isinstance(value, dict) else "")
@pytest.mark.parametrize("of", DIRECTIONS)
def test_every_reading_equals_worked_values(of, given, wanted):
    weights = Neighbourhood(**{"total": 20.0, "batch": 5, "direction": of, **given})(SCENE, EPOCH)
    torch.testing.assert_close(weights, doubles(wanted), atol=1e-7, rtol=0)


def test_score_moments_equal_worked_values():
    table = tables()
    torch.testing.assert_close(table["moments/diversity/both"], doubles([0.688, 0.236]))
    torch.testing.assert_close(table["moments/discrepancy/both"], doubles([0.456, 0.3208800399]))


@pytest.mark.parametrize("combine", ["difference", "product", "maximum"])
def test_other_combinations_by_hand(combine):
    a, b = (20 * torch.softmax(-tables()[f"diversity/{m}"], 0) for m in ("image", "text"))
    joined = {"difference": a - b, "product": a * b, "maximum": torch.maximum(a, b)}[combine]
    weights = Neighbourhood(total=20.0, batch=5, combine=combine)(SCENE, EPOCH)
    torch.testing.assert_close(weights, 20 * torch.softmax(joined, 0))


def test_per_modality_statistics_by_hand():
    table = tables()
    scaled = []
    for m in ("image", "text"):
        parts = [table[f"moments/{name}/{m}"].prod() * table[f"{name}/{m}"] for name in ("diversity", "discrepancy")]
        scaled.append(-sum(parts))
    weights = Neighbourhood(total=20.0, batch=5, diversity=1.0, discrepancy=1.0, combine="mean", statistics="each")(
        SCENE, EPOCH
    )
    torch.testing.assert_close(weights, 20 * torch.softmax(sum(scaled) / 2, 0))


def test_sign_hardly_matters_under_absolute_difference():
    """To first order |a_image - a_text| is the same for either sign (printed deviations, 32 pairs a batch)."""
    generator = torch.Generator().manual_seed(1)
    found = {}
    for deviation, total, wanted in ((0.0123, 96.0, 0.9997), (0.0885, 96.0, 0.97), (0.1156, 196.0, 0.92)):
        pairs = []
        for _ in range(50 if deviation < 0.1 else 400):
            scores = 0.6 + deviation * torch.randn(2, 32, generator=generator, dtype=torch.float64)
            table = {"diversity/image": scores[0], "diversity/text": scores[1]}
            small = compose(
                Cosine(), items(torch.ones(32, 2).double()), items(torch.ones(32, 2).double()), torch.arange(32)
            )
            pairs.append([Neighbourhood(total, sign=s)(small, Epoch(1, 0, table)) for s in (-1.0, 1.0)])
        both = torch.stack([torch.cat(side) for side in zip(*pairs, strict=True)])
        found[deviation] = torch.corrcoef(both)[0, 1].item()
        assert found[deviation] == pytest.approx(wanted, rel=0.02)
    assert found[0.0123] > found[0.0885] > found[0.1156]


PRINTED = {
    "coco": (196.0, (0.3173, 0.1156), (0.2705, 0.1068), (1, 4)),
    "goodnews": (160.0, (0.3979, 0.0136), (0.3986, 0.0676), (4, 1)),
    "politics": (96.0, (0.6279, 0.0123), (0.6309, 0.0885), (3, 1)),
    "conceptual captions": (196.0, (0.1569, 0.0753), (0.1182, 0.0742), (3, 1)),
}
"""Data set -> lambda, printed mean and deviation of DIV and of DIS, beta and gamma."""
SPREADS = {
    "diversity": ((0.113, 0.003, 0.81), (0.013, 0.0003, 0.057), (0.012, 0.0003, 0.030), (0.074, 0.0019, 0.46)),
    "discrepancy": ((0.105, 0.003, 0.73), (0.066, 0.0017, 0.32), (0.086, 0.0023, 0.24), (0.073, 0.0019, 0.45)),
    "val": ((0.45, 0.013, 4.1), (0.085, None, 0.43), (0.093, None, 0.27), (0.23, None, 2.2)),
    "stats": ((0.0051, None, 0.027), (0.0018, None, 0.0075), (0.0048, None, 0.012), (0.0011, None, 0.0055)),
}
"""Scores -> for each data set the coefficient of variation of one softmax, of lambda outside, and of both."""


@pytest.mark.parametrize("name", SPREADS)
def test_unevenness_of_weights_equals_expected_values(name):
    """Normal scores with the printed moments, modalities independent, 32 pairs a batch."""
    generator = torch.Generator().manual_seed(0)
    for (total, *moments, ratio), wanted in zip(PRINTED.values(), SPREADS[name], strict=True):
        scores = [mean + s * torch.randn(500, 2, 32, generator=generator, dtype=torch.float64) for mean, s in moments]
        factors = {
            "diversity": (1, 0), "discrepancy": (0, 1), "val": ratio, "stats": [mean * s for mean, s in moments],
        }[name]  # fmt: skip
        logits = -sum(factor * values for factor, values in zip(factors, scores, strict=True))
        for (combine, placement), value in zip(
            (("image", "both"), ("absdiff", "outer"), ("absdiff", "both")), wanted, strict=True
        ):
            weights = torch.stack(
                [Neighbourhood(total, combine=combine, placement=placement, batch=0).weights(*both) for both in logits]
            )
            found = (weights.std(dim=1, correction=0) / weights.mean(dim=1)).mean().item()
            # Printed to two figures, or to one; .003 stands for what rounds to it.
            assert found <= 0.0135 if value is None else found == pytest.approx(value, rel=0.05, abs=0.00025)


def test_weights_scale_with_batch_by_default():
    per_pair = Neighbourhood(total=96.0, batch=32, sign=0.0)(SCENE, EPOCH)
    torch.testing.assert_close(per_pair, torch.full((5,), 3.0).double())
    fixed = Neighbourhood(total=96.0, batch=0, sign=0.0)(SCENE, EPOCH)
    torch.testing.assert_close(fixed, torch.full((5,), 96 / 5).double())


def test_weighted_ranking_loss_equals_worked_value():
    """Half the mean over cells: weights 2, 1, .5 on S3, and 2, .5 on two views with their penalties."""

    def of(weights: list[float], margin: float, penalties: bool) -> float:
        scene = q2() if penalties else scene_of(S3)
        logits = doubles(weights).log()
        table = {f"diversity/{m}": logits for m in ("image", "text")}
        weighting = Neighbourhood(total=sum(weights), sign=1.0, combine="text", batch=0)
        parts = {
            side: Term(Triplet(margin=margin), side, weight=0.5, reduction="mean over cells", weighting=weighting)
            for side in DIRECTIONS
        }
        if penalties:
            parts |= {"mmd": Penalty(MMD(), 0.01)}
            parts |= {m: Penalty(ViewDiversity(modality=m), 0.1) for m in ("image", "text")}
        return Objective(parts)(scene, Epoch(1, 0, table))[0].item()

    assert of([2.0, 1.0, 0.5], 0.1, penalties=False) == pytest.approx(0.0458333333, abs=1e-9)
    assert of([2.0, 0.5], 0.1, penalties=True) == pytest.approx(0.2107697801, abs=1e-8)


def test_uniform_weights_scale_unweighted_loss():
    terms = {side: Term(Triplet(margin=0.1), side, reduction="mean over cells") for side in DIRECTIONS}
    weighting = Neighbourhood(total=96.0, batch=32)
    weighted = {side: replace(term, weighting=weighting) for side, term in terms.items()}
    scene, first = scene_of(S3), Epoch(0, 0)
    torch.testing.assert_close(Objective(weighted)(scene, first)[0], 3 * Objective(terms)(scene, first)[0])


def test_pair_without_score_counts_as_mean():
    table = {name: values.clone() for name, values in tables().items()}
    known = table["diversity/image"][[0, 1, 3, 4]].mean()
    table["diversity/image"][2] = torch.nan
    holes = Neighbourhood(total=20.0, batch=5, combine="image")(SCENE, replace(EPOCH, table=table))
    table["diversity/image"][2] = known
    torch.testing.assert_close(
        holes, Neighbourhood(total=20.0, batch=5, combine="image")(SCENE, replace(EPOCH, table=table))
    )
    none = {name: torch.full_like(values, torch.nan) for name, values in table.items()}
    assert Neighbourhood(total=20.0, batch=5)(SCENE, replace(EPOCH, table=none)).tolist() == [4.0] * 5


def test_pairs_are_found_by_text_rows():
    order = torch.tensor([3, 0, 4])
    part = compose(Cosine(), items(IMAGES)[order], items(TEXTS)[order], order)
    table = tables()
    weights = Neighbourhood(total=20.0, batch=0, combine="text")(part, replace(EPOCH, table=table))
    torch.testing.assert_close(weights, 20 * torch.softmax(-table["diversity/text"][order], 0))


@pytest.mark.parametrize("of", DIRECTIONS)
def test_shared_batch_has_weights_of_whole_batch(of):
    weighting = Neighbourhood(total=20.0, direction=of)
    whole, images, texts, groups = weighting(SCENE, EPOCH), items(IMAGES), items(TEXTS), torch.arange(5)
    for own, other in ((slice(0, 2), slice(2, 5)), (slice(2, 5), slice(0, 2))):
        part = compose(
            Cosine(), images[own], texts[own], groups[own], gathered=(images[other], texts[other], groups[other])
        )
        torch.testing.assert_close(weighting(part, EPOCH), whole[own])


def test_image_with_all_texts_gets_sum_of_weights():
    images, texts = items(IMAGES[:2]), items(TEXTS)
    groups = Groups(torch.tensor([0, 1]), torch.tensor([0, 0, 1, 1, 1]))
    together = compose(Cosine(), images, texts, groups)
    by_text = Neighbourhood(total=20.0, batch=5, direction="text_to_image")(together, EPOCH)
    by_image = Neighbourhood(total=20.0, batch=5, direction="image_to_text")(together, EPOCH)
    torch.testing.assert_close(by_text, Neighbourhood(total=20.0, batch=5)(SCENE, EPOCH))
    torch.testing.assert_close(by_image, torch.stack([by_text[:2].sum(), by_text[2:].sum()]))
    with pytest.raises(RequirementError, match="need an image for each text of the batch; it got 2 images and 5"):
        Neighbourhood(total=20.0, current=True, discrepancy=1.0)(together, EPOCH)


def test_equal_image_and_text_counts_need_not_be_pairs():
    """The first image has two texts, the others share one: three of each, in another order."""
    together = compose(
        Cosine(), items(IMAGES[:3]), items(TEXTS[:3]), Groups(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    )
    by_text, by_image = (
        Neighbourhood(total=20.0, direction=of)(together, EPOCH) for of in ("text_to_image", "image_to_text")
    )
    torch.testing.assert_close(by_image, torch.stack([by_text[0] + by_text[1], by_text[2], by_text[2]]))


def test_current_discrepancy_equals_bank_discrepancy():
    """Against banks of the same embeddings it is the cached one; moved embeddings move it."""
    bank = {
        f"discrepancy/{m}": Embeddings(second_sums(values, NEAR)[:, None], torch.arange(5))
        for m, values in (("image", IMAGES), ("text", TEXTS))
    }
    now = Neighbourhood(total=20.0, batch=5, diversity=0.0, discrepancy=1.0, current=True)
    cached = replace(now, current=False)
    epoch = replace(EPOCH, bank=bank)
    torch.testing.assert_close(now(SCENE, epoch), cached(SCENE, epoch))
    moved = compose(Cosine(), items(IMAGES.flip(0)), items(TEXTS), torch.arange(5))
    assert not torch.allclose(now(moved, epoch), now(SCENE, epoch))
    with pytest.raises(RequirementError, match="read the table 'discrepancy/image' of an epoch; it has none"):
        now(SCENE, EPOCH)


def test_several_views_of_current_discrepancy_are_averaged_or_paired():
    views = torch.stack([IMAGES, IMAGES.flip(0)], dim=1)
    now = Neighbourhood(total=20.0, batch=5, diversity=0.0, discrepancy=1.0, current=True, combine="image")
    stored = second_sums(IMAGES, NEAR)
    text = Embeddings(second_sums(TEXTS, NEAR)[:, None], torch.arange(5))
    scene = compose(Cosine(), items(views), items(TEXTS), torch.arange(5))
    for bank, agreement in (
        (stored[:, None], (views.mean(dim=1) * stored).sum(dim=1)),
        (torch.stack([stored, 2 * stored], dim=1), ((views[:, 0] + 2 * views[:, 1]) * stored).sum(dim=1)),
    ):
        kept = {"discrepancy/image": Embeddings(bank, torch.arange(5)), "discrepancy/text": text}
        torch.testing.assert_close(now(scene, replace(EPOCH, bank=kept)), 20 * (-agreement).softmax(dim=0))


def test_current_discrepancy_has_no_gradient():
    bank = {
        f"discrepancy/{m}": Embeddings(second_sums(values, NEAR)[:, None], torch.arange(5))
        for m, values in (("image", IMAGES), ("text", TEXTS))
    }
    learning = compose(
        Cosine(), items(IMAGES.clone().requires_grad_()), items(TEXTS.clone().requires_grad_()), torch.arange(5)
    )
    assert learning.image_to_text.scores.requires_grad
    for modality in ("image", "text", "absdiff"):
        now = Neighbourhood(total=20.0, diversity=0.0, discrepancy=1.0, current=True, combine=modality)
        assert not now(learning, replace(EPOCH, bank=bank)).requires_grad


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Neighbourhood(total=0.0), r"needs a total above 0; it got 0\.0"),
        (lambda: Neighbourhood(total=1.0, batch=-1), "needs a batch of 0 or more pairs; it got -1"),
        (
            lambda: Neighbourhood(total=1.0)(SCENE, Epoch(1, 0, {"other": torch.zeros(5)})),
            r"read the table 'diversity/image' of an epoch; it has other; train with a method that supplies it",
        ),
    ],
)
def test_missing_inputs_raise(make, message):
    with pytest.raises(RequirementError, match=message):
        make()
