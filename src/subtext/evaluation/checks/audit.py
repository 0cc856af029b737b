"""An audit: checks of one evaluation, each with what was done, what was found, and its outcome.

Scores: a sample is scored again in other orders, blocks and batches, and under other names; a score may depend on its
pair alone. Truth: recall with shuffled images, ties, scores that are not a number, and recall by caption position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Embeddings
from subtext.data.dataset import Dataset, Items, frame
from subtext.errors import RequirementError
from subtext.evaluation.checks.check import Check, Outcome
from subtext.evaluation.embedding import embed_items
from subtext.evaluation.gallery import gallery_of
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.match import Match, positions_in_groups
from subtext.evaluation.result import Result
from subtext.evaluation.scoring import in_blocks, matrix
from subtext.models.model import Branch, Model
from subtext.ops import draw
from subtext.ops.rank import Ties, both_directions
from subtext.report.page import Figure, HtmlPage, PageSection
from subtext.report.text_table import SavedReport, as_html, table
from subtext.text_helpers import counted, finite_json

if TYPE_CHECKING:
    import pandas

MARKS: dict[Outcome, str] = {"pass": "pass", "fail": "FAIL", "not applicable": "n/a"}
_WIDTH = 110


@dataclass(frozen=True, repr=False)
class Audit(SavedReport):
    """All checks of a run on a split.

    Attributes:
        figures: Name -> recall and what goes with it, on the split.
        checks: In the order in which they were made.
        about: Run, data, split, sizes and settings, as JSON can hold them.
    """

    checks: tuple[Check, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check fails."""
        return not self.named("fail")

    def named(self, outcome: Outcome) -> list[str]:
        """Names of the checks that ended so.

        Args:
            outcome: "pass", "fail" or "not applicable".

        Returns:
            The names.
        """
        return [check.name for check in self.checks if check.outcome == outcome]

    @property
    def verdict(self) -> str:
        """One sentence: how many checks ended how, and which of them fail or say nothing."""
        passed, failed, void = (self.named(outcome) for outcome in ("pass", "fail", "not applicable"))
        parts = [f"{len(failed)} of {len(self.checks)} checks fail ({', '.join(failed)})"] if failed else []
        parts.append(
            f"{len(passed)} pass" if failed else f"{len(passed)} of {len(self.checks)} checks pass, none fails"
        )
        if void:
            parts.append(f"{len(void)} say nothing here ({', '.join(void)})")
        return "; ".join(parts)

    @property
    def subject(self) -> str:
        """What was audited."""
        about = self.about
        counts = f"{counted(about['images'], 'image')}, {counted(about['texts'], 'text')}"
        return f"audit of {about['audited']} on split {about['split']} of {Path(about['data']).name}: {counts}"

    def _lines(self) -> list[str]:
        lines = [self.subject, ""]
        for check in self.checks:
            lines.append(f"{MARKS[check.outcome]:4}  {check.name}")
            for sentence in (check.did, f"Found: {check.found}."):
                lines.append(fill(sentence, _WIDTH, initial_indent="      ", subsequent_indent="      "))
        recalls = []
        for direction in DIRECTIONS:
            values = "/".join(f"{self.figures[f'{direction}/recall@{k}']:.1f}" for k in (1, 5, 10))
            recalls.append(f"{direction.replace('_', ' ')} recall@1/5/10 {values}")
        return [*lines, "", f"{', '.join(recalls)}.", f"{self.verdict}."]

    def __repr__(self) -> str:
        return f"Audit({self.verdict})"

    def _repr_html_(self) -> str:
        rows = [[check.name, check.outcome, check.found] for check in self.checks]
        return as_html([self.subject, table(["check", "outcome", "result"], rows), self.verdict])

    def to_frame(self) -> pandas.DataFrame:
        """A row per check: name, outcome, what was done and what was found. Needs pandas.

        Returns:
            The table.
        """
        return frame([{name: getattr(c, name) for name in ("name", "outcome", "did", "found")} for c in self.checks])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a missing number is null.

        Returns:
            Plain JSON values.
        """
        checks = [
            {"name": c.name, "outcome": c.outcome, "did": c.did, "found": c.found, "figures": c.figures}
            for c in self.checks
        ]
        verdict = {"passed": self.passed, "verdict": self.verdict}
        return finite_json({**verdict, "checks": checks, "figures": self.figures, **self.about})


BLOCK = 64
"""Items a side that are compared at once, where nothing else is tried."""
_CAPTIONS = 5
"""Most texts of an image in a sample."""
_ALONE = 32
"""Pairs that are scored with nothing beside them."""
_ROUNDS = 2
"""Random halves of the gallery that pairs are scored among."""

Rows = NDArray[np.int64]
Rescored = tuple[Rows, Rows, Tensor]
"""Positions of images and of texts in a sample, and the scores that they get now."""


@dataclass(frozen=True)
class Sample:
    """Rows of a split, the model that scores them, and what a score may change by.

    Attributes:
        model: Scores them.
        pairs: The split.
        images: (I), (T) int64 rows of pairs.
        texts: See `images`.
        batch_size: Items that are embedded at once.
        tolerance: Of a change, in standard deviations of the scores; rounding alone stays below 1e-4.
        seed: Of the sample, and of orders and halves of it.
    """

    model: Model
    pairs: Dataset
    images: Rows
    texts: Rows
    batch_size: int = 128
    tolerance: float = 1e-3
    seed: int = 0

    @staticmethod
    def drawn(
        model: Model, pairs: Dataset, *, size: int, seed: int = 0, batch_size: int = 128, tolerance: float = 1e-3
    ) -> Sample:
        """So many random images with their first texts, at most five each.

        Args:
            model: Is audited.
            pairs: The audited split.
            size: Number of images.
            seed: Of the sample.
            batch_size: Items embedded together.
            tolerance: Largest allowed change, in standard deviations of all scores.

        Returns:
            The sample with its scores.

        Raises:
            RequirementError: For fewer than two images: a score has no neighbours then.
        """
        linked = np.unique(pairs.links[:, 0])
        if len(linked) < 2 or size < 2:
            raise RequirementError(
                f"an audit needs 2 images with texts or more; the split has {len(linked)}, the sample size is {size}"
            )
        keys = draw.uniform(pairs.images.keys[linked], seed=seed, epoch=0, purpose="audit sample")[:, 0]
        images = np.sort(linked[np.argsort(keys, kind="stable")[:size]])
        links = pairs.links[np.isin(pairs.links[:, 0], images)]
        links = links[np.lexsort((links[:, 1], links[:, 0]))]
        texts = np.unique(links[positions_in_groups(links[:, 0]) < _CAPTIONS, 1])
        return Sample(model, pairs, images, texts, batch_size, tolerance, seed)

    @property
    def chosen(self) -> Dataset:
        """The sample as pairs of its own."""
        return self.pairs.subset(self.images, self.texts)

    @cached_property
    def scores(self) -> Float[Tensor, "i t"]:
        """Scores as they are usually made."""
        return self.rescored()[2]

    def image_embeddings(self, rows: Rows, *, batch_size: int | None = None, row_ids: Rows | None = None) -> Embeddings:
        """Embeddings of image rows, in this order.

        Args:
            rows: (N) rows of images.
            batch_size: Items embedded together.
            row_ids: Row numbers that the model gets; the true ones by default.

        Returns:
            (N) embeddings.
        """
        return self._embedded(self.model.image, self.pairs.images, rows, batch_size, row_ids)

    def text_embeddings(self, rows: Rows, *, batch_size: int | None = None, row_ids: Rows | None = None) -> Embeddings:
        """The same of texts.

        Args:
            rows: (N) rows of texts.
            batch_size: Items embedded together.
            row_ids: (N) row numbers that the model gets; None for the true ones.

        Returns:
            (N) embeddings.
        """
        return self._embedded(self.model.text, self.pairs.texts, rows, batch_size, row_ids)

    def _embedded(
        self, branch: Branch, items: Items, rows: Rows, batch_size: int | None, row_ids: Rows | None
    ) -> Embeddings:
        reading = (batch_size or self.batch_size, 0)
        return embed_items(self.model, branch, items, self.pairs.root, rows=rows, row_ids=row_ids, reading=reading)

    def compared(
        self, images: Embeddings, texts: Embeddings, height: int = BLOCK, width: int = BLOCK
    ) -> Float[Tensor, "i t"]:
        """Scores of all these pairs, `height` images and `width` texts at a time, as the similarity gives them.

        Args:
            images: (I) embeddings.
            texts: (T) embeddings.
            height: Most images of a block.
            width: Most texts of a block.

        Returns:
            (I T) scores.
        """
        return in_blocks(self.model.similarity, images, texts, height, width).float()

    def rescored(self, images: Rows | None = None, texts: Rows | None = None) -> Rescored:
        """Embed and score the images and texts at these positions again; None for all.

        Args:
            images: Order of the images.
            texts: Order of the texts.

        Returns:
            Rows, columns and their scores.
        """
        images = np.arange(len(self.images), dtype=np.int64) if images is None else images
        texts = np.arange(len(self.texts), dtype=np.int64) if texts is None else texts
        embedded = self.image_embeddings(self.images[images]), self.text_embeddings(self.texts[texts])
        return images, texts, self.compared(*embedded)

    def order(self, length: int, purpose: str) -> Rows:
        """A shuffled range.

        Args:
            length: Number of items.
            purpose: Of the draw.

        Returns:
            (N) a permutation.
        """
        return draw.permutation(length, seed=self.seed, epoch=0, purpose=f"audit {purpose}")

    def check(self, name: str) -> Check:
        """Make scores again, as CHECKS says under this name, and compare them with the usual ones.

        Args:
            name: Of `CHECKS`.

        Returns:
            How it ended.
        """
        did, rescore = CHECKS[name]
        spread = float(self.scores[self.scores.isfinite()].double().std(correction=0)) if len(self.scores) else 0.0
        unit = spread if spread > 0 else max(float(self.scores.nan_to_num().abs().max()), 1.0)
        worst, cells, example = 0.0, 0, ""
        for images, texts, scores in rescore(self):
            before, after = self.scores[torch.from_numpy(images)][:, torch.from_numpy(texts)].double(), scores.double()
            # No change where both are no number or the same infinity, an infinite one where one alone is.
            same = (before == after) | (before.isnan() & after.isnan())
            change = torch.where(same, 0.0, (after - before).abs().nan_to_num(nan=torch.inf)) / unit
            cells += change.numel()
            row, column = divmod(int(change.argmax()), change.shape[1])
            if float(change[row, column]) > worst:
                worst = float(change[row, column])
                image = self.pairs.images.ids[self.images[images[row]]]
                text = self.pairs.texts.ids[self.texts[texts[column]]]
                numbers = f"{float(before[row, column]):.6g}, then {float(scores[row, column]):.6g}"
                example = f", image '{image}' with text '{text}': {numbers}"
        failed = worst > self.tolerance
        sentence = (
            f"of {counted(cells, 'score')} the one that changes most changes by {worst:.1e} standard deviations"
            f"{example if failed else ''}; {self.tolerance:g} is allowed"
        )
        figures = {"largest_change": worst, "scores": cells, "standard_deviation": spread, "allowed": self.tolerance}
        return Check(name, did, "fail" if failed else "pass", sentence, figures)


def _reordered(sample: Sample) -> list[Rescored]:
    images, texts = sample.order(len(sample.images), "images"), sample.order(len(sample.texts), "texts")
    return [
        sample.rescored(images, texts),
        sample.rescored(images[::-1].copy(), texts),
        sample.rescored(images, texts[::-1].copy()),
    ]


def _other_blocks(sample: Sample) -> list[Rescored]:
    rows = [np.arange(count, dtype=np.int64) for count in sample.scores.shape]
    images = sample.image_embeddings(sample.images, batch_size=7)
    texts = sample.text_embeddings(sample.texts, batch_size=11)
    size = max(len(images), len(texts))
    scores = [sample.compared(images, texts, *block) for block in ((size, size), (1, size), (7, 13))]
    # As figures are made where no figure may depend on blocks: in padded tiles, which have to end where they should.
    exact = matrix(sample.model.similarity, images, texts, 1, exact=True).float()
    return [(rows[0], rows[1], score) for score in (*scores, exact)]


def _other_neighbours(sample: Sample) -> list[Rescored]:
    rescored = []
    for turn in range(_ROUNDS):
        images, texts = (
            np.sort(sample.order(len(rows), f"half {turn} {kind}")[: max(1, len(rows) // 2)])
            for kind, rows in (("images", sample.images), ("texts", sample.texts))
        )
        rescored.append(sample.rescored(images, texts))
    # Half of the pairs are partners: what is made for partners alone would show there.
    links = sample.chosen.links
    partners = links[sample.order(len(links), "partners")[: _ALONE // 2]]
    columns = [sample.order(count, f"random partners {count}") for count in sample.scores.shape]
    count = min(len(partners), *map(len, columns))
    pairs = np.concatenate([partners, np.stack([column[:count] for column in columns], axis=1)])
    return [*rescored, *(sample.rescored(pair[:1], pair[1:]) for pair in pairs)]


def _other_names(sample: Sample) -> list[Rescored]:
    rows = [np.arange(count, dtype=np.int64) for count in sample.scores.shape]
    items = sample.image_embeddings(sample.images), sample.text_embeddings(sample.texts)
    images, texts = (replace(embeddings, ids=torch.full_like(embeddings.ids, 10**9)) for embeddings in items)
    scores = [sample.compared(images, texts)]
    # A head of distributions draws by the row of an item, and may.
    if all(item.log_std is None for item in items):
        images = sample.image_embeddings(
            sample.images, row_ids=sample.order(len(sample.images), "row numbers of images")
        )
        texts = sample.text_embeddings(sample.texts, row_ids=sample.order(len(sample.texts), "row numbers of texts"))
        scores.append(sample.compared(images, texts))
    return [(rows[0], rows[1], score) for score in scores]


CHECKS: dict[str, tuple[str, Callable[[Sample], list[Rescored]]]] = {
    "repeat": (
        "A sample was embedded and scored a second time, just as the first.",
        lambda sample: [sample.rescored()],
    ),
    "order": ("Images and texts of the sample were embedded and scored in three other orders.", _reordered),
    "blocks": (
        "The sample was embedded 7 images and 11 texts at a time, and scored as a whole, one image at a time, in "
        "blocks of 7 by 13, and in the padded tiles of an exact evaluation.",
        _other_blocks,
    ),
    "neighbours": (
        "Pairs of the sample were embedded and scored among two random halves of it, and partners and random pairs "
        "with nothing beside them.",
        _other_neighbours,
    ),
    "names": (
        "The sample was scored with the numbers of its items hidden, and, where the model draws nothing by them, "
        "embedded with the numbers of others: who belongs together is to be read from content alone.",
        _other_names,
    ),
}
"""Name -> what is done, and how the scores are made again."""

_SHUFFLES = 100
"""Shuffled matrices that say how far recall strays from chance."""
_FAR = 5.0
"""Standard deviations from what is expected, from which a figure is no accident."""
_KS = (1, 10)
_TIES = 1.0
"""Per cent of queries that may be tied: so much, at most, a recall then depends on the rule for ties."""
_LEAST = 30
"""Images with several captions below which the positions of captions are not compared."""
_LIFT, _TIMES = 10.0, 1.5
"""Points and times by which one position is ahead of the others, before it is suspicious."""


def shuffled_truth(sample: Sample, *, ties: Ties = "pessimistic") -> Check:
    """Recall where each image stands in another one's place, beside chance.

    Contents move and names stay: what a model reads off names, numbers or places would still be right.

    Args:
        sample: Of the audited split.
        ties: Where a positive stands among equal scores.

    Returns:
        How the check ended.
    """
    order = sample.order(len(sample.images), "shuffled truth")
    images = sample.image_embeddings(sample.images[order], row_ids=sample.images)
    match = matching.of_pairs(sample.chosen)
    recalls, chance = _recalls(sample.compared(images, sample.text_embeddings(sample.texts)), match, ties)
    # Hubs, which many queries find, make recall stray further from chance.
    shuffles = (
        draw.permutation(len(sample.scores), seed=sample.seed, epoch=turn, purpose="audit chance")
        for turn in range(_SHUFFLES)
    )
    shuffled = [_recalls(sample.scores[torch.from_numpy(order)], match, ties)[0] for order in shuffles]
    sentences = []
    figures: dict[str, float] = {}
    for name, value in recalls.items():
        cells = match.image_to_text if name.startswith("image") else match.text_to_image
        error = math.sqrt(chance[name] * (1 - chance[name]) / max(1, int((cells.lengths > 0).sum())))
        room = 100 * _FAR * max(float(np.std([each[name] for each in shuffled])), error)
        low, high = max(0.0, 100 * chance[name] - room), min(100.0, 100 * chance[name] + room)
        label = name.replace("_", " ").replace("/", " ")
        sentences.append(f"{label} {100 * value:.1f} (chance {100 * chance[name]:.1f}, up to {high:.1f})")
        figures |= {name: 100 * value, f"{name}/chance": 100 * chance[name], f"{name}/low": low, f"{name}/high": high}
    below = any(figures[name] < figures[f"{name}/low"] for name in recalls)
    remark = "; below chance, because ties count against the model" if below else ""
    outcome: Outcome = "fail" if any(figures[name] > figures[f"{name}/high"] for name in recalls) else "pass"
    if all(figures[f"{name}/high"] >= 100 for name in recalls):
        outcome, remark = "not applicable", "; with so few images any recall could be chance"
    did = (
        "Every image of the sample was put in the place of another, with its name, number and partners; recall was "
        f"counted as always. It may be above chance by {_FAR:g} standard deviations of {_SHUFFLES} shuffles."
    )
    return Check("truth", did, outcome, f"{', '.join(sentences)}{remark}", figures)


def _recalls(scores: Tensor, match: Match, ties: Ties) -> tuple[dict[str, float], dict[str, float]]:
    """Recall and chance, shares, by "<direction>/recall@<k>"."""
    counts = both_directions(scores, match.image_to_text, match.text_to_image, stable=ties == "stable")
    recalls, chance = {}, {}
    for direction, of_direction in zip(DIRECTIONS, counts, strict=True):
        for k in _KS:
            recalls[f"{direction}/recall@{k}"] = float(np.nanmean(Recall(k, ties=ties).of(of_direction)))
            chance[f"{direction}/recall@{k}"] = float(np.nanmean(Recall(k).chance(of_direction)))
    return recalls, chance


def ties(result: Result) -> Check:
    """How many queries have a wrong candidate with the very score of their partner.

    Args:
        result: Of the audited split.

    Returns:
        How the check ended.
    """
    shares = {f"{direction}/tie_share": result.figures[f"{direction}/tie_share"] for direction in DIRECTIONS}
    labels = [direction.replace("_", " ") for direction in DIRECTIONS]
    sentence = ", ".join(f"{d} {share:.2f} % of queries" for d, share in zip(labels, shares.values(), strict=True))
    did = f"Queries were counted where a wrong candidate has exactly the partner's score; {_TIES:g} % may."
    if max(shares.values()) <= _TIES:
        return Check("ties", did, "pass", sentence, shares)
    why = "figures depend on the rule for ties (here the partner stands behind all of its score)"
    return Check("ties", did, "fail", f"{sentence}; {why}", shares)


def finite(
    result: Result, images: Embeddings | None, texts: Embeddings | None, scores: Float[Tensor, "i t"] | None
) -> Check:
    """Whether all vectors and scores are numbers.

    Args:
        result: Of the audited split.
        images: Vectors.
        texts: None where there are none.
        scores: Of a sample, or all; None where there are none.

    Returns:
        How the check ended.
    """
    figures = {
        name: int((~items.vectors.isfinite()).any(-1).any(-1).sum())
        for name, items in (("images", images), ("texts", texts))
        if items is not None
    }
    checked = ["vectors of all images and texts"] if figures else []
    figures["nan_scores"] = int(max(result.figures[f"{d}/nan_scores"] for d in DIRECTIONS))
    checked.append("all scores")
    if scores is not None:
        figures["infinite_scores"] = int(torch.isinf(scores).sum())
        checked.append("the scores at hand for infinity")
    did = f"These were looked at: {', '.join(checked)}."
    labels = {"images": "vectors of images", "texts": "vectors of texts", "nan_scores": "scores that are no number"}
    sentence = ", ".join(f"{labels.get(name, 'infinite scores')} {count:,}" for name, count in figures.items())
    return Check("finite", did, "fail" if any(figures.values()) else "pass", sentence, figures)


def caption_positions(result: Result, pairs: Dataset) -> Check:
    """Recall@1 of texts by their position among the texts of their image: one that leaked into it would stand out.

    Args:
        result: Of the audited split.
        pairs: The audited split.

    Returns:
        How the check ended.
    """
    did = (
        "Recall@1 of texts asking for images was told apart by the place of the text among those of its image. A "
        f"place may not be ahead of the others by {_FAR:g} standard errors, {_LIFT:g} points and {_TIMES:g} times."
    )
    owners = gallery_of(pairs).owners
    hits = 100 * result.per_query["text_to_image/recall@1"]
    positions = positions_in_groups(owners)
    has_value = (owners >= 0) & ~np.isnan(hits)
    several = np.bincount(owners[has_value], minlength=len(pairs.images)) > 1
    if several.sum() < _LEAST:
        sentence = f"only {int(several.sum())} images have several texts; {_LEAST} are needed"
        return Check("captions", did, "not applicable", sentence)
    chosen = has_value & several[owners]
    sentences, suspicious = [], []
    figures: dict[str, float] = {}
    for position in range(int(positions[chosen].max()) + 1):
        # Recall at this position, and at the others, of each image that has texts at both.
        sides = [chosen & (positions == position), chosen & (positions != position)]
        sizes = [np.bincount(owners[rows], minlength=len(several)) for rows in sides]
        sums = [np.bincount(owners[rows], hits[rows], minlength=len(several)) for rows in sides]
        both = (sizes[0] > 0) & (sizes[1] > 0)
        if both.sum() < _LEAST:
            continue
        recalls, others = (total[both] / size[both] for total, size in zip(sums, sizes, strict=True))
        error = float(np.std(recalls - others, ddof=1)) / math.sqrt(int(both.sum()))
        recall, other = float(recalls.mean()), float(others.mean())
        sentences.append(f"{position + 1}: {recall:.1f}")
        figures[f"recall@1 of text {position + 1}"] = recall
        if recall - other > max(_LIFT, _FAR * error) and recall > _TIMES * other:
            suspicious.append(f"text {position + 1} finds its image in {recall:.1f} %, the others in {other:.1f} %")
    if not suspicious:
        return Check("captions", did, "pass", f"recall@1 by place: {', '.join(sentences)}", figures)
    why = "its image's features may have been made with it; or texts at that place are of another kind, as titles are"
    return Check("captions", did, "fail", f"{'; '.join(suspicious)}: {why}", figures)


def audit_page(audit: Audit, result: Result) -> HtmlPage:
    """The audit as a page.

    Args:
        audit: Its checks.
        result: The figures beside them.

    Returns:
        The page.
    """

    def listed(values: Mapping[str, Any]) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())

    figures = []
    for direction in DIRECTIONS:
        for k in (1, 10):
            name = f"{direction}/recall@{k}"
            low, high = result.intervals.get(name, (None, None))
            label = f"{direction.replace('_', ' ')}, recall@{k}"
            figures.append(Figure(label, result.figures[name], result.chance[name], low, high))
    about = audit.about
    return HtmlPage(
        title=f"Audit of {about['audited']}",
        lead=audit.subject,
        verdict=f"{audit.verdict}.",
        figures=figures,
        figures_text="Recall in per cent on the audited split, with 95 % intervals by resampling images.",
        sections=[PageSection(f"{MARKS[c.outcome]}: {c.name}", f"{c.did} Found: {c.found}.", ()) for c in audit.checks],
        facts=[
            *([("run", about["run"])] if "run" in about else []),
            (about["kind"] if "run" not in about else "model", listed(about["model"])),
            ("data", f"{about['data']}, split {about['split']}, {about['data_fingerprint']}"),
            ("settings", listed(about["settings"])),
            ("versions", listed(about["versions"])),
        ],
    )
