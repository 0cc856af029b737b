"""The claims of the four papers, what would decide each, and docs/evidence.md, which is written from a report.

A claim of the experiment says that one row is better than another: its primary pair. Other controls stand beside it and
decide nothing. An interval is about other trainings and other items (`subtext.evaluation.intervals.paired`: Student's t
over seeds, items drawn by cluster); p-values are corrected over the claims of a data set (Holm 1979). The margin of a
claim is half of the published gain, as a difference of d' (signal detection: the distance of two normal distributions
that gives so many right choices among c), put on top of what the control reaches here.

The rule, of which the first that fits decides:

    nothing is concluded  the data have an oracle, whose gap is below `LEAST_GAP` points or was not measured
    holds                 the interval lies above 0, and the corrected p-value is below `LEVEL`
    fails                 the interval lies below the margin
    cannot tell here      otherwise, or not run

The oracle is a row whose weights know what was planted; its gap is what it gains on the measure over its own weights
permuted. What no row here tests is in `NOT_TESTED`. Claims on models of regions and on listwise losses rest on sections
of reproduce/notes, whose figures `RECORDED` repeats; they and icons have no oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from reproduce.tables.specification import DATA_SETS, PublishedTable
from subtext.core import DIRECTIONS
from subtext.evaluation.intervals import holm, paired
from subtext.text_helpers import counted

LEAST_GAP, LEVEL, C = 2.0, 0.05, 20
CHOICE, KEPT = f"{C}_way@1", "neighbours_kept"
PARTS = ("all", "abstract", "literal")
HOLDS, FAILS, OPEN, NOTHING = "holds", "fails", "cannot tell here", "nothing is concluded"
PLANTED, ICONS, LITE2, PIXELS = "planted", "icons", "icons-lite2", "icons-pixels"
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
            "Uniform weights beat random ones, 60.3 to 57.8 % (Politics)",
            "The row here deals DISCREPANCY's weights anew in each epoch, which is far less even than the paper's "
            "random weights.",
        ),
        (
            "Gamma = -1 beats Gamma = 1, 63.2 to 62.2 and 62.2 to 61.7 %",
            "Under the difference of both modalities, both signs give nearly the same weights, so no difference of "
            "the published size could be seen.",
        ),
        (
            "The difference beats images alone and texts alone, 62.2 to 60.5 and 60.2 % (DISCREPANCY)",
            "The rows of one side have Gamma = -20; with the paper's -1 their weights would be nearly uniform.",
        ),
        (
            "DISCREPANCY is the better one for literal pairs, 68.5 to 67.2 % (COCO)",
            "The paper trains on literal pairs throughout. Here the literal pairs of a mixed set are scored, which any "
            "weight for abstract pairs must lower.",
        ),
        ("MITHUN's and AMRANI's weights stay below, 71.8 and 72.2 to 73.9 %", "No row was trained."),
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
    """

    abstract: NDArray[np.bool_]
    values: Mapping[str, NDArray[Any]]
    clusters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def chosen(self, part: str) -> NDArray[np.bool_]:
        """(n) the pairs of a part."""
        return {"all": np.ones_like(self.abstract), "abstract": self.abstract, "literal": ~self.abstract}[part]

    def of(self, measure: str, part: str) -> NDArray[np.float64]:
        """In per cent, mean of both directions, or of both modalities, on these pairs."""
        sides = ("image", "text") if measure == KEPT else DIRECTIONS
        mean = np.mean([self.values[f"{side}/{measure}"] for side in sides], axis=0)
        return 100 * mean[self.chosen(part)]

    def clusters_of(self, part: str) -> NDArray[np.int64]:
        """The clusters of these pairs."""
        every = self.clusters if len(self.clusters) else np.arange(len(self.abstract))
        return every[self.chosen(part)]


def judged(results: Mapping[str, Sequence[Values]], *, oracle: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Every claim: its effect against each control by part, its margin, and the verdict of the rule.

    oracle  of data that have one: "gap" in points, None where it was not measured
    """
    claims: list[dict[str, Any]] = []
    for claim in CLAIMS:
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
        each["verdict"] = verdict(primary_of(each), each.get("margin"), oracle)
    return claims


def primary_of(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The effect that decides a claim; None where a row of its pair was not run."""
    return next((effect for effect in found["effects"] if effect["primary"]), None)


def verdict(effect: Mapping[str, float] | None, margin: float | None, oracle: Mapping[str, Any] | None = None) -> str:
    """What the rule says of an effect with its corrected p-value; see the head of this module."""
    if oracle is not None and (oracle["gap"] is None or oracle["gap"] < LEAST_GAP):
        return NOTHING
    if not effect:
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


def _interval(effect: Mapping[str, float], digits: int = 1) -> str:
    return f"{effect['difference']:+.{digits}f} [{effect['low']:+.{digits}f}, {effect['high']:+.{digits}f}]"


def _why(found: Mapping[str, Any], oracle: Mapping[str, Any] | None) -> str:
    """In one sentence or two, what the verdict rests on, and what stands beside it."""
    effect = primary_of(found)
    if effect is None:
        return "Not run."
    p = effect["p_corrected"]
    said = f"Corrected p {'< .001' if p < 0.001 else f'{p:.3f}'.lstrip('0')}."
    if found["verdict"] == NOTHING:
        return "No oracle was trained." if oracle and oracle["gap"] is None else "The oracle gains too little."
    if found["verdict"] == HOLDS:
        beside = [
            f"not above `{other['control']}`, {_interval(other)}"
            for other in found["effects"]
            if other["part"] == effect["part"] and not other["primary"] and other["low"] <= 0
        ]
        said += " By less than half of what was published." if effect["high"] < found["margin"] else ""
        said += f" But {'; '.join(beside)}." if beside else ""
    return said


def word(found: Mapping[str, Any]) -> str:
    """The verdict on a claim in a few words."""
    return str(found["verdict"]) if primary_of(found) is not None else "not run"


def table(
    part: Mapping[str, Any], *, beside: Mapping[str, Mapping[str, Any]] | None = None, all_claims: bool = True
) -> list[str]:
    """The claims as rows of Markdown, above which stands what the oracle gains.

    part        of a report            beside  head of a column -> the part of other data, whose verdicts it has
    all_claims  False leaves out those without a row that was run
    """
    others, oracle = beside or {}, part.get("oracle")
    heads = ["claim", "primary pair, then other controls", "margin", "all pairs, 95 %", "abstract", "literal"]
    heads += ["seeds", "verdict", *others]
    gap = "has none" if oracle is None else "not measured" if oracle["gap"] is None else f"{oracle['gap']:+.1f} points"
    lines = [f"Oracle's gap: {gap}.", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    seeds, paper = len(part["seeds"]), ""
    for number, (claim, found) in enumerate(zip(CLAIMS, part["claims"], strict=True)):
        if not (all_claims or found["effects"]):
            continue
        if claim.paper != paper:
            paper = claim.paper
            lines.append(f"| **{paper}** |{' |' * (len(heads) - 1)}")
        controls = list(dict.fromkeys(effect["control"] for effect in found["effects"])) or [claim.control]
        by_part = [
            "<br>".join(
                f"**{_interval(effect)}**" if effect["primary"] else _interval(effect)
                for effect in found["effects"]
                if effect["part"] == kind
            )
            or "-"
            for kind in PARTS
        ]
        measure = "; kept neighbours" if claim.measure == KEPT else ""
        named = f"`{claim.row}`{measure} against " + "<br>".join(f"`{name}`" for name in controls)
        cells = [
            claim.says,
            named,
            f"{found['margin']:+.1f}" if "margin" in found else "-",
            *by_part,
            str(seeds) if found["effects"] else "-",
            f"*{found['verdict']}*. {_why(found, oracle)}",
            *(word(other["claims"][number]) for other in others.values()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def recorded_table() -> list[str]:
    """The claims that rest on notes, as rows of Markdown."""
    lines = ["| claim | test and control | found | 95 %, t over seeds | margin | seeds | verdict |", "|---" * 7 + "|"]
    paper = ""
    for claim, effect, said in recorded():
        if claim.paper != paper:
            paper = claim.paper
            lines.append(f"| **{paper}** | | | | | | |")
        digits = 2 if claim.margin is not None else 1
        margin = f"{claim.margin:+.2f}" if claim.margin is not None else "-"
        interval = _interval(effect, digits) if effect else "no test"
        less = (
            " By less than half of what was published."
            if said == HOLDS and effect["high"] < (claim.margin or 0)
            else ""
        )
        cells = [
            claim.says,
            claim.test,
            claim.found,
            interval,
            margin,
            str(len(claim.first)),
            f"*{said}*.{less} {claim.why}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def not_tested_table() -> list[str]:
    """The claims that nothing here tests, as rows of Markdown."""
    rows = [f"| {paper} | {says} | {why} |" for paper, claims in NOT_TESTED.items() for says, why in claims]
    return ["| paper | claim | why |", "|---|---|---|", *rows]


def figure(report: Mapping[str, Any], file: Path) -> None:
    """Draw the effect of each claim's primary pair with its interval and its margin, by data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [
        (
            f"{name}: {found['row']} − {effect['control']} "
            f"({effect['part']}{', kept neighbours' * (claim.measure == KEPT)})",
            effect,
            found,
        )
        for name in [name for name in (ICONS, PLANTED) if name in report] or list(report)
        for claim, found in zip(CLAIMS, report[name]["claims"], strict=True)
        if (effect := primary_of(found)) is not None
    ]
    drawn = Figure(figsize=(8, 0.28 * len(rows) + 1.2), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    colours = {HOLDS: "#1b7f3b", FAILS: "#b3261e", OPEN: "#5f6368", NOTHING: "#9aa0a6"}
    for height, (_, effect, found) in enumerate(reversed(rows)):
        colour = colours[found["verdict"]]
        axes.plot([effect["low"], effect["high"]], [height, height], color=colour)
        axes.plot(effect["difference"], height, "o", color=colour, markersize=4)
        axes.plot(found["margin"], height, "|", color="black", markersize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name for name, *_ in reversed(rows)], fontsize=7)
    axes.set_xlabel(
        "points, with 95 % interval; tick: half of the published gain\n"
        "green: holds; red: fails; dark grey: cannot tell; light grey: nothing is concluded"
    )
    drawn.savefig(file, dpi=110)


def _right(part: Mapping[str, Any]) -> dict[str, str]:
    """The lowest and the highest share of right choices over rows, by kind of pair."""
    right = {
        kind: [np.mean([row[f"{way}/{CHOICE}/{kind}"] for way in DIRECTIONS]) for row in part["rows"].values()]
        for kind in ("literal", "abstract")
    }
    return {kind: f"{min(values):.0f} to {max(values):.0f}" for kind, values in right.items()}


def _trained(part: Mapping[str, Any]) -> str:
    """Effective sample sizes of the weights in training, over seeds and epochs, by score."""
    return ", ".join(
        f"{score} {100 * min(sizes):.0f} to {100 * max(sizes):.0f} %"
        for score, by_seed in part["trained"].items()
        if (sizes := [size for epochs in by_seed for size in epochs])
    )


def counts(verdicts: Sequence[str]) -> str:
    """How many claims have which verdict, in words."""
    said = {HOLDS: "hold", FAILS: "fail", OPEN: "cannot be told", NOTHING: "allow no conclusion"}
    found = [f"{verdicts.count(name)} {word}" for name, word in said.items() if name in verdicts]
    return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else "".join(found) or "none was run"


def _tested(part: Mapping[str, Any]) -> list[str]:
    return [str(found["verdict"]) for found in part["claims"] if primary_of(found) is not None]


def _said(part: Mapping[str, Any], row: str, control: str, measure: str = CHOICE) -> str:
    """The verdict on a claim by its primary pair, with the effect, its interval and the margin."""
    for claim, found in zip(CLAIMS, part["claims"], strict=True):
        effect = primary_of(found)
        if (claim.row, claim.control, claim.measure) == (row, control, measure) and effect is not None:
            return f"*{found['verdict']}*, {_interval(effect)}, margin {found['margin']:.1f}"
    return "not run"


def _wrapped(*texts: str) -> str:
    """Paragraphs and items of a list in lines of 120 letters."""
    return "\n".join(
        fill(
            text,
            120,
            subsequent_indent="  " if text.startswith("* ") else "",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for text in texts
    )


OTHERS = {LITE2: "by Lite2", PIXELS: "from pixels"}
"""The same icons with other image encoders -> head of their column."""


def _believe(report: Mapping[str, Any]) -> list[str]:
    """What a reader may believe, in some ten lines; every verdict is the rule's."""
    planted, icons = report[PLANTED], report.get(ICONS)
    lines = []
    if icons is not None:
        lines += [
            "* **Weights for complementary pairs lift retrieval** of icons, whose texts people wrote: DIVERSITY "
            f"{_said(icons, 'diversity', 'pvse')}; DISCREPANCY {_said(icons, 'discrepancy', 'pvse')}. These are points "
            f"of right choices among {C} with their 95 % interval; the margin is half of what was published. The same "
            f"scale without any order of pairs (uniform): {_said(icons, 'uniform', 'pvse')}.",
            "* **Losses within modalities keep more semantic neighbours** of icons: "
            f"{_said(icons, 'angular thomas', 'angular', KEPT)}, in points of neighbours. They lift the angular loss: "
            f"{_said(icons, 'angular thomas', 'angular')}. They lift triplets: "
            f"{_said(icons, 'thomas', 'thomas random')}.",
        ]
    if {found["verdict"] for found in planted["claims"]} == {NOTHING}:
        lines.append(
            "* **Of planted looseness nothing is concluded.** That experiment has no positive control that gains "
            "enough. Its weights were far less even in training (effective sample sizes: "
            f"{_trained(planted)}) than any in the paper, and its measure counts all pairs, of which three in four are "
            "literal."
        )
    notes = {claim.says: f"*{said}*, {_interval(effect, 2)}" for claim, effect, said in recorded() if effect}
    asp, recall, triplets = (
        next(text for says, text in notes.items() if part in says)
        for part in ("DAA lifts ASP", "DAA lifts recall", "beats triplets")
    )
    return [
        *lines,
        f"* **DAA lifts ASP of PCME**: {asp} points, where 4.1 were published. It lifts recall: {recall} of rsum. "
        f"AsCL's contrastive loss beats triplets: {triplets} of rsum.",
        f"* **Much is not tested here**: {counted(sum(map(len, NOT_TESTED.values())), 'claim')} have no fair row, and "
        "a table says why.",
        '* "Here" is small: Flickr8k and icons, frozen features of a small image network, two processor cores, no news '
        "images. A claim that fails here may hold with the papers' data.",
    ]


def page(report: Mapping[str, Any]) -> str:
    """docs/evidence.md, from a report of planted looseness, with icons where it has them."""
    planted, icons = report[PLANTED], report.get(ICONS)
    others = {head: report[name] for name, head in OTHERS.items() if name in report}
    tested = [
        *([f"on icons {counts(_tested(icons))}"] if icons else []),
        *(f"{head} {counts(_tested(part))}" for head, part in others.items()),
        f"on planted data {counts(_tested(planted))}",
    ]
    count = (
        f"Of {counted(len(CLAIMS), 'claim')} on loosely related pairs, {'; '.join(tested)}. Of "
        f"{counted(len(RECORDED), 'claim')} that rest on notes {counts([said for *_, said in recorded()])}. Every "
        "number here is read from [evidence.json](evidence.json) or from these notes; `python -m reproduce.evidence "
        "--report` writes the page from the finished runs in `reproduce/results`."
    )
    on_planted = (
        f"{_spans(planted, 'pairs')} The numbers stand here for who wants to see them; the rule concludes nothing from "
        "them."
    )
    on_notes = (
        "These rest on the notes on [models of regions and words](../reproduce/notes/regions.md) and [listwise "
        "losses](../reproduce/notes/ranking.md), on literal Flickr8k. They have no oracle and no test over queries: "
        "the intervals are Student's t over three seeds, which must be far apart to say anything."
    )
    return f"""# Do the four papers' claims hold here?

## What a reader may believe

Claims of the papers, each followed by the verdict of the rule below.

{_wrapped(*_believe(report))}

## Why

{_wrapped(*_how(planted, icons, others))}

## The count

{_wrapped(count)}

![Effects with intervals](evidence.png)

{_icons_results(icons, others)}## Planted data

{_wrapped(on_planted)}

{chr(10).join(table(planted))}

## Models of regions and words, and listwise losses

{_wrapped(on_notes)}

{chr(10).join(recorded_table())}

## Not tested here

{chr(10).join(not_tested_table())}

## What this does not say

* Nothing here is about news: no set of news images was tested.
* The papers' Doc2Vec neighbours find no topics in so few texts, so neighbours are those of latent semantic analysis,
  {planted["protocol"]["neighbours"]} a text.
* Kept neighbours are semantic by latent semantic analysis, as those of the training are, on other texts.
* The dual encoder below the adapters learnt from the other kind of images, from icons for photographs and from
  photographs for icons. Before the adapters learn, it is at chance or just above.
{_wrapped("* Planted looseness is not the looseness that people write." + _limits(icons))}
"""


def _how(planted: Mapping[str, Any], icons: Mapping[str, Any] | None, others: Mapping[str, Any]) -> list[str]:
    """How it was tested, as items of a list."""
    data, protocol = planted["data"], planted["protocol"]
    auc = {name: f"{value:.2f}" for name, value in data["auc"].items()}
    return [
        "* **The rule**, of which the first that fits decides. (1) The data have an oracle (weights made from what was "
        f"planted), and its gap over its own weights permuted is under {LEAST_GAP:g} points, or was not measured: "
        "*nothing is concluded*. (2) The whole interval lies above 0, and the corrected p-value is below "
        f"{f'{LEVEL:g}'.lstrip('0')}: *holds*. (3) The whole interval lies below the margin: *fails*. (4) Else *cannot "
        "tell here*. Icons and the claims that rest on notes have no oracle: that weights fail there may be a fault of "
        "the data.",
        "* **The margin** is half of the published gain, as a difference of d' (choices among 5, 20 and 100 do not "
        f"compare in per cent), in points of a choice among {C} above what the control reaches here. Each claim has "
        "one primary pair of rows, whose effect is in bold; the other controls decide nothing.",
        "* **Intervals** are of 95 %, about other trainings and other items: crossed random effects with Student's t. "
        "Items are drawn by image, icons by concept. p-values are corrected over the claims of a table (Holm).",
        f"* **Planted data.** {data['pairs']:,} training pairs of Flickr8k, one text an image. In a fifth of the "
        f"topics, {data['loose']:,} pairs ({100 * data['loose'] / data['pairs']:.0f} %), each text was given an image "
        "of other visual kinds. The kinds of a topic are fixed, so what a topic means can be learnt. These pairs are "
        "called abstract. Before training, DIVERSITY of images tells them from literal ones with an AUC of "
        f"{auc['diversity/image']}, DISCREPANCY with {auc['discrepancy/image']}; those of texts with "
        f"{auc['diversity/text']} and {auc['discrepancy/text']}. The weights that were trained with are the difference "
        f"of both modalities, with lambda 640; their effective sample sizes: {_trained(planted)}. "
        f"{len(planted['seeds'])} seeds, {protocol['epochs']} epochs; val ({protocol['val']:,} pairs) is evaluated "
        "once.",
        *(_icons_data(icons, others) if icons else []),
        '* **Controls.** "permuted": each pair has the weight of another, the same in all epochs. "thomas random": '
        'neighbours by vectors drawn at random; such a control has all of a method but its meaning. "even": the sum of '
        "both modalities gives weights that are less even than the difference; here its sign makes them as even before "
        "training. These rows were added when the others were known.",
        "* **Rates.** Each row tries two learning rates with the first seed, on a split of its own. The larger was "
        "chosen for most, so the best may lie beyond it.",
        "* The rule, the margins and the intervals are those of an audit that was made when all rows were known. "
        "Before it, a gain of one point on all pairs decided. No row was trained again for it.",
    ]


def _spans(part: Mapping[str, Any], items: str) -> str:
    """How well the rows do."""
    right = _right(part)
    return (
        f"The rows are right among {C} for {right['abstract']} % of abstract and {right['literal']} % of literal "
        f"{items}, where chance is {100 / C:.0f} %."
    )


def _icons_results(icons: Mapping[str, Any] | None, others: Mapping[str, Any]) -> str:
    """The section on icons; nothing without them."""
    if icons is None:
        return ""
    right = {head: _right(part) for head, part in others.items()}
    said = "".join(f" Those {head}: {each['abstract']} % and {each['literal']} %." for head, each in right.items())
    return f"## Icons\n\n{_wrapped(_spans(icons, 'icons') + said)}\n\n{chr(10).join(table(icons, beside=others))}\n\n"


def _icons_data(icons: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """The data and the protocol of icons, as items of the list."""
    data, protocol = icons["data"], icons["protocol"]
    items = [
        f"* **Icons.** {data['pairs']:,} training icons of six sets. The text of an icon is what its designer wrote "
        'that it stands for: for a gavel "justice, law, court". Concepts of val and test are not in train. Lambda is '
        f"{data['total']:g}; in training the effective sample sizes were {_trained(icons)}. Abstract are the fifth of "
        f"test whose texts have neighbours with the least similar images, on untrained features ({data['loose']:,} "
        f"icons). {len(icons['seeds'])} seeds, {protocol['epochs']} epochs; {data['selecting']:,} icons of val choose "
        f"rate and epochs; test ({protocol['test']:,} icons of {protocol['concepts']:,} concepts) is evaluated once."
    ]
    encoders = {
        "by Lite2": "the 3 x 3 cells of EfficientNet-Lite2",
        "from pixels": "a small residual network that learns from images of 48 pixels with the rest",
    }
    if others:
        each = "; ".join(
            f"{head}: {encoders[head]} ({len(part['seeds'])} seeds, {part['protocol']['epochs']} epochs)"
            for head, part in others.items()
        )
        items.append(f"* **The same icons with other image encoders**, {each}.")
    return items


def _limits(icons: Mapping[str, Any] | None) -> str:
    """What icons do not say."""
    if icons is None:
        return ""
    return (
        " That of icons is, but their texts are lists of tags, the network of their features knows photographs, and "
        f"they had {icons['protocol']['epochs']} epochs."
    )
