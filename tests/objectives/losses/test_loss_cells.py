"""Losses cell by cell: plain loops over queries and candidates, from the formulas of their docstrings."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch
from scenes import items

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.angular import Angular
from subtext.objectives.losses.daa import DAA
from subtext.objectives.losses.hal import HAL
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.losses.margin import Margin
from subtext.objectives.losses.ratio import Ratio
from subtext.objectives.losses.sigmoid import Sigmoid
from subtext.objectives.losses.smooth_ap import SmoothAP
from subtext.objectives.losses.soft_contrastive import MIXED, SoftContrastive
from subtext.objectives.losses.structure import Structure
from subtext.objectives.losses.triplet import Triplet

pytestmark = pytest.mark.golden

T, F = True, False
MATCH = torch.tensor([[T, F, F, T], [F, T, F, F], [F, F, F, F], [F, F, T, F]])
IGNORED = torch.tensor([[F, T, F, F], [F, F, F, T], [T, T, T, T], [T, T, F, T]])
SCORES = torch.tensor(
    [[0.3, 0.9, 0.5, 0.2], [-0.4, 0.1, 0.1, 0.8], [0.2, 0.7, -0.3, 0.4], [0.6, -0.2, -0.5, 0.3]], dtype=torch.float64
)
SHARES = torch.tensor(
    [[0.7, 0.1, 0.7, 0.2], [0.0, 1.0, 0.3, 0.9], [0.5, 0.5, 0.2, 0.1], [0.4, 0.0, 0.8, 0.6]], dtype=torch.float64
)
"""Queries with two positives, with one, with none, all of whose cells are ignored, and with one cell alone."""


def soft_contrastive(truth: Truth, pseudo: float, smoothing: float) -> list[float]:
    values = []
    for scores, match, ignored, share in zip(*(it.tolist() for it in (SCORES, MATCH, IGNORED, SHARES)), strict=True):
        cells = [n for n in range(4) if truth.ignored is None or not ignored[n]]
        m = share if truth.scale == MIXED else match
        t = [(1 - smoothing) * m[n] + smoothing * (1 - m[n]) for n in range(4)]
        largest = max((t[n] for n in cells), default=0)
        best = max((scores[n] for n in cells if t[n] == largest), default=0)
        value = 0.0
        for n in cells:
            value += math.log1p(math.exp(scores[n])) - t[n] * scores[n]
            other = largest if scores[n] >= best else t[n]
            value += pseudo * (math.log1p(math.exp(scores[n])) - other * scores[n])
        values.append(value)
    return values


@pytest.mark.parametrize("ignored", [None, IGNORED], ids=["all", "ignored"])
@pytest.mark.parametrize("scale", [None, MIXED, "teacher"])
@pytest.mark.parametrize(("pseudo", "smoothing"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.1), (0.3, 0.1)])
def test_soft_contrastive_equals_plain_loop(
    ignored: torch.Tensor | None, scale: str | None, pseudo: float, smoothing: float
) -> None:
    truth = Truth(MATCH, ignored=ignored, relevance=None if scale is None else SHARES, scale=scale)
    values = SoftContrastive(pseudo=pseudo, smoothing=smoothing)(Comparison(SCORES, truth))
    assert values.tolist() == pytest.approx(soft_contrastive(truth, pseudo, smoothing), abs=1e-12)


def test_listwise_skips_ignored_cells() -> None:
    truth = Truth(MATCH, ignored=IGNORED, relevance=SHARES, scale="teacher")
    wanted = []
    for scores, shares, ignored in zip(SCORES, SHARES, IGNORED, strict=True):
        ours, targets = (row[~ignored].log_softmax(dim=0) for row in (scores / 0.5, shares))
        wanted.append(float((targets.exp() * (targets - ours)).sum()))
    assert Listwise(temperature=0.5)(Comparison(SCORES, truth)).tolist() == pytest.approx(wanted, abs=1e-12)


def test_ratio_averages_over_positives() -> None:
    (value,) = Ratio()(Comparison(torch.tensor([[3.0, 1.0, 2.0]]).log(), Truth(torch.tensor([[T, T, F]])))).tolist()
    assert value == pytest.approx((2 / (3 + 2) + 2 / (1 + 2)) / 2, abs=1e-6)


def test_sigmoid_averages_over_counted_cells() -> None:
    values = Sigmoid(over="mean")(Comparison(SCORES, Truth(MATCH, ignored=IGNORED)))
    alone = math.log1p(math.exp(0.5))
    assert values[2:].tolist() == pytest.approx([0, alone], abs=1e-12), "no cell, and one"


def test_semi_hard_negatives_score_strictly_less() -> None:
    comparison = Comparison(torch.tensor([[0.5, 0.5, 0.1]]), Truth(torch.tensor([[T, F, F]])))
    assert Triplet(margin=0.5, negatives="semi-hard")(comparison).item() == pytest.approx(0.1), "not the equal one"


def test_structure_loss_of_one_and_eleven_negatives() -> None:
    one = Comparison(torch.tensor([[1.0, 0.5]]), Truth(torch.tensor([[T, F]])))
    assert Structure(margin=2.0, hardest=3)(one).item() == pytest.approx(1.01, abs=1e-3), "2 + 0 - 1, near zero rooted"
    scores = torch.tensor([[1.0, *(1 - (0.1 * n) ** 2 / 2 for n in range(1, 13))]])
    many = Comparison(scores, Truth(torch.eye(1, 13, dtype=torch.bool)))
    hinges = [2.0 + Structure(margin=0.0)(one).item() - 0.1 * n for n in range(1, 11)]
    assert Structure(margin=2.0)(many).item() == pytest.approx(sum(hinges) / 10, abs=1e-2), "ten by default"


def soft_rank(column: list[float], at: float, own: int, counted: list[bool], temperature: float) -> float:
    pairs = zip(range(len(column)), column, counted, strict=True)
    return 1 + sum(1 / (1 + math.exp((at - value) / temperature)) for n, value, valid in pairs if n != own and valid)


def test_released_daa_with_cells_ignored_on_one_side() -> None:
    truth = Truth(MATCH, ignored=IGNORED, relevance=SHARES, scale="made")
    wanted = []
    for q in range(4):
        total, cells = 0.0, [c for c in range(4) if not IGNORED[q, c]]
        for c in cells:
            # Cell (q, c) among the cells (a, q) of column q, but that with a = c.
            ranks = [
                soft_rank(matrix[:, q].tolist(), float(matrix[q, c]), c, (~IGNORED[:, q]).tolist(), 0.5)
                for matrix in (SCORES, SHARES)
            ]
            total += 1 - min(ranks) / max(ranks)
        wanted.append(total / max(1, len(cells)))
    values = DAA(temperature=0.5, variant="released")(Comparison(SCORES, truth))
    assert values.tolist() == pytest.approx(wanted, abs=1e-9)


def test_daa_with_unequal_sample_counts() -> None:
    generator = torch.Generator().manual_seed(3)
    rows, columns = (torch.randn(3, draws, 5, generator=generator, dtype=torch.float64) for draws in (2, 3))
    truth = Truth(MATCH[:3, :3], ignored=IGNORED[:3, :3], relevance=SHARES[:3, :3], scale="made")
    drawn = Comparison(torch.zeros(3, 3), truth, items(rows), items(columns))
    q, c = torch.arange(6) // 2, torch.arange(9) // 3
    long = Truth(truth.match[q][:, c], ignored=truth.ignored[q][:, c], relevance=truth.relevance[q][:, c], scale="made")
    scores = rows.flatten(0, 1) @ columns.flatten(0, 1).T
    wanted = DAA(temperature=0.5)(Comparison(scores, long)).view(3, 2).mean(dim=1)
    assert DAA(temperature=0.5, draws=True)(drawn).tolist() == pytest.approx(wanted.tolist(), abs=1e-9)


@pytest.mark.parametrize(
    ("loss", "defaults"),
    [
        (Triplet, {"margin": 0.2, "negatives": "all"}),
        (Structure, {"margin": 0.05, "hardest": 10, "positives": "each"}),
        (Margin, {"margin": 0.2, "boundary": 1.2}),
        (HAL, {"gamma": 30.0, "threshold": 0.3, "diagonal": "shifted"}),
        (Angular, {"degrees": 45.0, "form": "smooth", "repeated": False, "include_positive": False}),
        (DAA, {"temperature": 0.01, "variant": "rows", "draws": False}),
        (SmoothAP, {"temperature": 0.01, "variant": "rows", "draws": False}),
        (Listwise, {"temperature": 1.0}),
        (InfoNCE, {"compete": False, "label_smoothing": 0.0}),
        (SoftContrastive, {"pseudo": 0.0, "smoothing": 0.0}),
        (Sigmoid, {"over": "sum"}),
    ],
)
def test_default_settings(loss: type, defaults: dict[str, object]) -> None:
    assert asdict(loss()) == defaults


def test_range_ends_are_inclusive_or_exclusive() -> None:
    for make in (
        lambda: Triplet(margin=0.0), lambda: Structure(margin=0.0, hardest=1), lambda: Margin(margin=0.0),
        lambda: Margin(boundary=0.5), lambda: Angular(degrees=89.5), lambda: Angular(degrees=0.5),
        lambda: InfoNCE(label_smoothing=0.0), lambda: SoftContrastive(pseudo=0.0, smoothing=0.0),
    ):  # fmt: skip
        make()
    for make in (
        lambda: Margin(boundary=0.0), lambda: Angular(degrees=0.0), lambda: InfoNCE(label_smoothing=-0.5),
        lambda: SoftContrastive(smoothing=-0.5), lambda: Structure(hardest=0), lambda: Margin(margin=-0.1),
    ):  # fmt: skip
        with pytest.raises(RequirementError):
            make()
