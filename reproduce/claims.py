"""The claims of the four papers, and what would decide each.

A claim of the experiment says that one row is better than another: its primary pair. Other controls stand beside it and
decide nothing. An interval is about other trainings and other items (`subtext.evaluation.intervals.paired`: Student's t
over seeds, items drawn by cluster); p-values are corrected over the claims of a data set (Holm 1979). The margin of a
claim is half of the published gain, as a difference of d' (signal detection: the distance of two normal distributions
that gives so many right choices among c), put on top of what the control reaches here.

The rule, of which the first that fits decides:

    nothing is concluded  the data have an oracle, whose gap is below `LEAST_GAP` points or was not measured
    cannot tell here      the best rate of one of the two rows is the first or the last that was tried (the experiment)
    holds                 the interval lies above 0, and the corrected p-value is below `LEVEL`
    fails                 the interval lies below the margin
    cannot tell here      otherwise, or not run

The oracle is a row whose weights know what was planted; its gap is what it gains on the measure over its own weights
permuted. What no row here tests is in `NOT_TESTED`. Claims on models of regions and on listwise losses rest on sections
of reproduce/notes, whose figures `RECORDED` repeats; they and icons have no oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from reproduce.tables.specification import DATA_SETS, PublishedTable
from subtext.core import DIRECTIONS
from subtext.evaluation.intervals import holm, paired

LEAST_GAP, LEVEL, C = 2.0, 0.05, 20
CHOICE, KEPT = f"{C}_way@1", "neighbours_kept"
PARTS = ("all", "abstract", "literal")
HOLDS, FAILS, OPEN, NOTHING = "holds", "fails", "cannot tell here", "nothing is concluded"
EXPERIMENT, ICONS, LITE2, PIXELS = "experiment", "icons", "icons-lite2", "icons-pixels"
"""Parts of a report, by data."""
COMPLEMENTARY, SEMANTIC = "Thomas and Kovashka 2022", "Thomas and Kovashka 2020"
ASYMMETRY, DIFFERENTIABLE = "Gong et al. 2024", "Li et al. 2022"


@cache
def choice(d: float, c: int) -> float:
    """Share of right choices among c where the right one lies d' above the others.

    >>> round(choice(0.0, 5), 4)
    0.2
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return float(weights @ ndtr(nodes + d) ** (c - 1) / np.sqrt(2 * np.pi))


@cache
def d_prime(share: float, c: int) -> float:
    """The d' of a share of right choices among c; of a share that is no choice (c = 0), its normal quantile.

    >>> round(d_prime(choice(1.3, 20), 20), 4)
    1.3
    """
    return float(brentq(lambda d: choice(d, c) - share, -5.0, 10.0)) if c else float(ndtri(share))


@dataclass(frozen=True)
class Source:
    """Where a paper prints the two numbers of a claim: rows of one table, or of two.

    table     module in reproduce.published       row, base  keys of the rows
    data      data sets; empty for all of them    base_table  of the base, where it is another
    """

    table: str
    row: str
    base: str
    data: tuple[str, ...] = ()
    base_table: str = ""

    def gain(self, measure: str) -> float:
        """The published gain in d', the mean over data sets and directions."""
        after, before = self._cells(self.table, self.row), self._cells(self.base_table or self.table, self.base)
        return float(
            np.mean(
                [
                    d_prime(after[cell], choices) - d_prime(before[cell], choices)
                    for cell in after.keys() & before.keys()
                    for choices in [0 if measure == KEPT else DATA_SETS[cell[0]].c]
                ]
            )
        )

    def _cells(self, table: str, row: str) -> dict[tuple[str, str], float]:
        published: PublishedTable = import_module(f"reproduce.published.{table}").TABLE
        numbers = next(line.printed for line in published.rows if line.key == row)
        return {
            (column.data, column.figure): number
            for column, number in zip(published.columns, numbers, strict=True)
            if column.data and number is not None and (not self.data or column.data in self.data)
        }


@dataclass(frozen=True)
class Claim:
    """A row that a paper says is better than another.

    says      the claim with its published number
    row       its primary pair: a row of the experiment,
    control   and the one that it must be better than
    source    of the published gain
    beside    other controls, which decide nothing
    part      the pairs that decide: all, abstract or literal
    measure   the mean of both directions, or of both modalities
    """

    paper: str
    says: str
    row: str
    control: str
    source: Source
    beside: tuple[str, ...] = ()
    part: str = "all"
    measure: str = CHOICE

    def margin(self, control: float) -> float:
        """Half of the published gain in points, above a control that has so many per cent."""
        c = 0 if self.measure == KEPT else C
        aim = d_prime(control / 100, c) + self.source.gain(self.measure) / 2
        return 100 * (choice(aim, c) if c else float(ndtr(aim))) - control


@dataclass(frozen=True)
class Recorded:
    """A claim that rests on a section of reproduce/notes; every number of it stands there, or follows from those.

    first    by seed, of the row    second   of its control    paired   whether seeds go together
    margin   half of the published gain, in the same unit; None where the paper prints another unit
    found    the same in words      section  name of the page, and its heading
    """

    paper: str
    says: str
    test: str
    found: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    why: str
    section: tuple[str, str]
    paired: bool = False
    margin: float | None = None

    @property
    def effect(self) -> dict[str, float]:
        """The difference with its interval and p-value over seeds: Student's t, Welch's where seeds are not paired."""
        if min(len(self.first), len(self.second)) < 2:
            return {}
        first, second = np.array(self.first), np.array(self.second)
        sides = [first - second] if self.paired else [first, second]
        parts = [float(side.var(ddof=1)) / len(side) for side in sides]
        error = sum(parts) ** 0.5
        freedom = error**4 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
        difference, half = float(first.mean() - second.mean()), float(student.ppf(0.975, freedom)) * error
        p_value = 2 * float(student.sf(abs(difference) / error, freedom))
        return {"difference": difference, "low": difference - half, "high": difference + half, "p_value": p_value}


T2, T3 = "cvprw2022_table2", "cvprw2022_table3"
CLAIMS = (
    Claim(
        COMPLEMENTARY,
        "Weights by DIVERSITY lift retrieval of PVSE from 70.5 to 73.9 % (mean of four data sets)",
        "diversity",
        "pvse",
        Source(T2, "diversity", "pvse"),
        ("diversity permuted",),
    ),
    Claim(
        COMPLEMENTARY,
        "Weights by DISCREPANCY lift it to 73.5 %",
        "discrepancy",
        "pvse",
        Source(T2, "discrepancy", "pvse"),
        ("discrepancy permuted",),
    ),
    Claim(
        COMPLEMENTARY,
        "Lambda alone lifts PVSE from 59.9 to 60.3 % (Politics)",
        "uniform",
        "pvse",
        Source(T3, "uniform", "pvse", ("politics",), T2),
    ),
    Claim(
        COMPLEMENTARY,
        "DIVERSITY beats uniform weights, 63.2 to 60.3 % (Politics)",
        "diversity",
        "uniform",
        Source(T3, "div", "uniform"),
        ("diversity permuted",),
    ),
    Claim(
        COMPLEMENTARY,
        "DISCREPANCY beats uniform weights, 62.2 to 60.3 %",
        "discrepancy",
        "uniform",
        Source(T3, "dis", "uniform"),
        ("discrepancy permuted",),
    ),
    Claim(
        COMPLEMENTARY,
        "More weight for the alike (Gamma = 1) beats uniform weights, too, 62.2 to 60.3 % (DIVERSITY)",
        "diversity Gamma 1",
        "uniform",
        Source(T3, "div_plus", "uniform"),
    ),
    Claim(
        COMPLEMENTARY,
        "The sum of both modalities beats uniform weights, 62.2 to 60.3 % (DIVERSITY)",
        "diversity sum",
        "uniform",
        Source(T3, "div_sum", "uniform"),
    ),
    Claim(
        COMPLEMENTARY,
        "The difference of both modalities beats their sum, 63.2 to 62.2 % (DIVERSITY)",
        "diversity",
        "diversity sum",
        Source(T3, "div", "div_sum"),
        ("diversity sum even",),
    ),
    Claim(
        COMPLEMENTARY,
        "DIVERSITY is the better one for abstract pairs, 77.4 to 75.7 % (Conceptual Captions)",
        "diversity",
        "discrepancy",
        Source(T2, "diversity", "discrepancy", ("conccap",)),
        part="abstract",
    ),
    Claim(
        COMPLEMENTARY,
        "Both together beat the better one, 74.5 to 73.9 % (mean of four; COMBINED-VAL)",
        "combined val",
        "diversity",
        Source(T2, "combined_val", "diversity"),
        ("uniform", "discrepancy"),
    ),
    Claim(
        COMPLEMENTARY,
        "So do both without a search, 74.5 to 73.9 % (COMBINED-STATS)",
        "combined stats",
        "diversity",
        Source(T2, "combined_stats", "diversity"),
        ("uniform", "discrepancy"),
    ),
    Claim(
        COMPLEMENTARY,
        "DIVERSITY beats HAL's weights, 73.9 to 72.3 %",
        "diversity",
        "hal",
        Source(T2, "diversity", "hal"),
    ),
    Claim(
        COMPLEMENTARY,
        "DIVERSITY beats losses within modalities, 73.9 to 72.0 %",
        "diversity",
        "thomas",
        Source(T2, "diversity", "thomas"),
    ),
    Claim(
        COMPLEMENTARY,
        "The weights go with other losses (here DIVERSITY with InfoNCE; published gain of PVSE)",
        "dual diversity",
        "dual",
        Source(T2, "diversity", "pvse"),
        ("dual discrepancy permuted",),
    ),
    Claim(
        COMPLEMENTARY,
        "The weights go with other models (here DIVERSITY with adapters on a dual encoder from other images; published "
        "gain of PVSE)",
        "adapt diversity",
        "adapt",
        Source(T2, "diversity", "pvse"),
        ("adapt diversity permuted",),
    ),
    Claim(
        SEMANTIC,
        "Losses within modalities lift the angular loss from 62.4 to 64.8 % (Politics)",
        "angular thomas",
        "angular",
        Source("eccv2020_table1", "ours", "ang_np_sym", ("politics",)),
        ("angular thomas random",),
    ),
    Claim(
        SEMANTIC,
        "They lift a triplet loss, too, from 47.7 to 49.1 %",
        "thomas",
        "thomas random",
        Source("eccv2020_table1", "ours_trip", "trip_np_sym", ("politics",)),
        ("pvse",),
    ),
    Claim(
        SEMANTIC,
        "They keep semantic neighbourhoods, 13.7 to 15.4 % of neighbours (Politics)",
        "angular thomas",
        "angular",
        Source("eccv2020_table3", "ours", "ang_np_sym", ("politics",)),
        ("angular thomas random",),
        measure=KEPT,
    ),
    Claim(
        SEMANTIC,
        "Neighbours by texts beat neighbours by images, 64.8 to 63.7 %",
        "angular thomas",
        "angular thomas visual",
        Source("eccv2020_table1", "ours", "ours_img_nns", ("politics",)),
    ),
    Claim(
        SEMANTIC,
        "The loss on texts is needed, 64.8 to 64.3 % without it",
        "angular thomas",
        "angular thomas images",
        Source("eccv2020_table4", "ours", "without_text", ("politics",)),
    ),
    Claim(
        SEMANTIC,
        "The loss on images is needed, 64.8 to 64.0 % without it",
        "angular thomas",
        "angular thomas texts",
        Source("eccv2020_table4", "ours", "without_img", ("politics",)),
    ),
)
_STUDY = ("regions", "Models of regions and words on Flickr8k")
_WEIGHT = ("ranking", "DAA at the released weight on PCME")
_TRIPLETS = ("regions", "AsCL with triplets of all negatives, and SAF with DAA")
RECORDED = (
    Recorded(
        ASYMMETRY,
        "Generated texts lift R@1 of images to 83.0 from 76.4 % (Flickr30K)",
        "AsCL against AsCL without them",
        "rsum 168.6 [166.8-170.8] to 166.5 [163.4-168.3]",
        (166.8, 168.2, 170.8),
        (163.4, 167.8, 168.3),
        "The ranges over seeds overlap.",
        _STUDY,
    ),
    Recorded(
        ASYMMETRY,
        "The contrastive loss beats triplets, 66.7 to 58.6 % (COCO)",
        "AsCL against AsCL with triplets of all negatives",
        "rsum 168.6 [166.8-170.8] to 123.1 [120.4-125.2]",
        (166.8, 168.2, 170.8),
        (123.8, 125.2, 120.4),
        "In small batches, at one rate that was tuned for neither; triplets of the hardest negative, one seed, reach "
        "121.9.",
        _TRIPLETS,
    ),
    Recorded(
        ASYMMETRY,
        "A mixture of noise beats every single noise",
        "AsCL against AsCL with one noise",
        "rsum 170.8 to 167.4-172.2",
        (170.8,),
        (172.2,),
        "One seed, no test; cutoff alone is above the mixture, by less than seeds spread.",
        _STUDY,
    ),
    Recorded(
        DIFFERENTIABLE,
        "DAA lifts ASP from 54.2 to 58.3 % (COCO, image to text)",
        "PCME with DAA against PCME",
        "ASP 56.42 to 54.44",
        (56.46, 56.47, 56.34),
        (54.43, 54.44, 54.43),
        "SCAN gains 1.2 points, `dual` a quarter of a point.",
        _WEIGHT,
        paired=True,
        margin=(58.3 - 54.2) / 2,
    ),
    Recorded(
        DIFFERENTIABLE,
        "DAA lifts recall, too: R@1 from 45.6 to 48.2 %",
        "the same",
        "rsum 162.0 [159.5-166.3] to 159.4 [158.1-161.6]; by seed 4.7, 1.7 and 1.4",
        (4.7, 1.7, 1.4),
        (0.0, 0.0, 0.0),
        "Higher with every seed; `dual` does not gain, and SCAN loses with every seed.",
        _WEIGHT,
        paired=True,
    ),
)
NOT_TESTED = {
    COMPLEMENTARY: (
        (
            "DISCREPANCY is the better one for literal pairs, 68.5 to 67.2 % (COCO)",
            "The paper trains on literal pairs throughout. Here the literal pairs of a mixed set are scored, which any "
            "weight for abstract pairs must lower.",
        ),
    ),
    SEMANTIC: (
        ("The structure-preserving loss by true neighbours beats estimated ones (COCO)", "No row was trained."),
        ("The losses help on Flickr30K", "The data cannot be had here."),
    ),
    ASYMMETRY: (
        (
            "Cross-modal fusion lifts R@1 of images to 83.0 from 47.0 %",
            "Nine cells of a small image are not 36 detected objects. With them the model without fusion has the "
            "higher rsum, 172.4 [171.0-174.6] to 168.6 [166.8-170.8], three seeds.",
        ),
        (
            "Short texts are better positives than long ones; short queries gain most; alignment and uniformity",
            "One seed each, with no test: [models of regions and words](../reproduce/notes/regions.md).",
        ),
    ),
    DIFFERENTIABLE: (
        (
            "Smooth-AP, which knows no relevance, changes little",
            "Trained on `dual`, not on PCME, and without a bound below which a change is little.",
        ),
        (
            "DAA lifts ASP of SGR from 54.6 to 65.5 % (Flickr30K)",
            "The published balance needs the hardest negative, with which SGR learns nothing in batches of 32. With "
            "all negatives ASP of texts gains 0.1 to 0.2 points, three seeds.",
        ),
        ("DAA helps among the first N, on CUB, and SAF", "No row was trained, or one without a test."),
    ),
}
"""Claims for which nothing here is a test, by paper, each with the reason."""


@dataclass(frozen=True)
class Values:
    """What a run has on each pair; one text an image, so row n of every array is one pair.

    abstract  (n) whether looseness was planted    values  "text_to_image/20_way@1" and the like -> (n)
    clusters  (n) what is drawn together: the concept of an icon; empty where each pair is drawn alone
    literal   (n) where some pairs are neither; None for all that are not abstract
    """

    abstract: NDArray[np.bool_]
    values: Mapping[str, NDArray[Any]]
    clusters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    literal: NDArray[np.bool_] | None = None

    def chosen(self, part: str) -> NDArray[np.bool_]:
        """(n) the pairs of a part."""
        literal = ~self.abstract if self.literal is None else self.literal
        return {"all": np.ones_like(self.abstract), "abstract": self.abstract, "literal": literal}[part]

    def of(self, measure: str, part: str) -> NDArray[np.float64]:
        """In per cent, mean of both directions, or of both modalities, on these pairs."""
        sides = ("image", "text") if measure == KEPT else DIRECTIONS
        mean = np.mean([self.values[f"{side}/{measure}"] for side in sides], axis=0)
        return 100 * mean[self.chosen(part)]

    def clusters_of(self, part: str) -> NDArray[np.int64]:
        """The clusters of these pairs."""
        every = self.clusters if len(self.clusters) else np.arange(len(self.abstract))
        return every[self.chosen(part)]


def judged(
    results: Mapping[str, Sequence[Values]],
    claimed: Sequence[Claim] = CLAIMS,
    *,
    oracle: Mapping[str, Any] | None = None,
    edge: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Every claim: its effect against each control by part, its margin, and the verdict of the rule.

    oracle  of data that have one: "gap" in points, None where it was not measured
    edge    rows whose best rate is the first or the last that was tried
    """
    claims: list[dict[str, Any]] = []
    for claim in claimed:
        effects = []
        for control in (claim.control, *claim.beside) if claim.row in results else ():
            for part in PARTS if control in results else ():
                mine, theirs = (
                    np.stack([values.of(claim.measure, part) for values in results[row]])
                    for row in (claim.row, control)
                )
                test = paired(mine, theirs, results[claim.row][0].clusters_of(part))
                decides = control == claim.control and part == claim.part
                effect = {"control": control, "part": part, "primary": decides, **asdict(test)}
                effects.append({**effect, "p_value": test.p_value, "of_control": float(theirs.mean())})
        found: dict[str, Any] = {"row": claim.row, "control": claim.control, "says": claim.says, "effects": effects}
        if (primary := primary_of(found)) is not None:
            found |= {"gain": claim.source.gain(claim.measure), "margin": claim.margin(primary["of_control"])}
        claims.append(found)
    deciding = [primary for each in claims if (primary := primary_of(each)) is not None]
    for effect, p in zip(deciding, holm([each["p_value"] for each in deciding]), strict=True):
        effect["p_corrected"] = p
    for each in claims:
        if rows := [row for row in (each["row"], each["control"]) if row in edge]:
            each["edge"] = rows
        each["verdict"] = verdict(primary_of(each), each.get("margin"), oracle, edge=bool(rows))
    return claims


def primary_of(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The effect that decides a claim; None where a row of its pair was not run."""
    return next((effect for effect in found["effects"] if effect["primary"]), None)


def verdict(
    effect: Mapping[str, float] | None,
    margin: float | None,
    oracle: Mapping[str, Any] | None = None,
    *,
    edge: bool = False,
) -> str:
    """What the rule says of an effect with its corrected p-value; see the head of this module.

    edge  whether the best rate of a row of the pair is the first or the last
    """
    if oracle is not None and (oracle["gap"] is None or oracle["gap"] < LEAST_GAP):
        return NOTHING
    if not effect or edge:
        return OPEN
    if effect["low"] > 0 and effect["p_corrected"] < LEVEL:
        return HOLDS
    return FAILS if margin is not None and effect["high"] < margin else OPEN


def recorded() -> list[tuple[Recorded, dict[str, float], str]]:
    """The claims that rest on notes, with their effects and verdicts."""
    effects = [dict(claim.effect) for claim in RECORDED]
    tested = [effect for effect in effects if effect]
    for effect, p in zip(tested, holm([effect["p_value"] for effect in tested]), strict=True):
        effect["p_corrected"] = p
    return [
        (claim, effect, verdict(effect or None, claim.margin)) for claim, effect in zip(RECORDED, effects, strict=True)
    ]
