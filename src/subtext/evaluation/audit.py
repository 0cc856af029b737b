"""An audit: checks of one evaluation, each with what was done, what was found, and its outcome.

Scores: a sample is scored again in other orders, blocks and batches, and under other names; a score may depend on its
pair alone. Truth: recall with shuffled images, ties, scores that are not a number, and recall by caption position.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset, Items
from subtext.errors import RequirementError, counted
from subtext.evaluation.gallery import of_pairs as gallery_of
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.results import Result
from subtext.evaluation.scoring import matrix
from subtext.models.model import Branch, Model
from subtext.ops import draw
from subtext.ops.rank import Ties, both_directions
from subtext.report.page import Figure, Page, Section

if TYPE_CHECKING:
    import pandas

Outcome = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Check:
    """One check.

    name     short and stable, what --skip is told        did      what was done, as a reader can repeat it
    outcome  "not applicable" where nothing could be said; `found` then says why
    found    in a sentence, with its numbers              figures  the numbers behind it, as JSON can hold them
    """

    name: str
    did: str
    outcome: Outcome
    found: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Audit:
    """All checks of a run on a split.

    checks   in the order in which they were made        figures  name -> recall and what goes with it, on the split
    about    run, data, split, sizes and settings, as JSON can hold them
    """

    checks: tuple[Check, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check fails."""
        return not self.named("fail")

    def named(self, outcome: Outcome) -> list[str]:
        """Names of the checks that ended so."""
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

    def __str__(self) -> str:
        return audit_text(self)

    def __repr__(self) -> str:
        return f"Audit({self.verdict})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(c.name)}</td><td>{c.outcome}</td><td>{escape(c.found)}</td></tr>" for c in self.checks
        )
        return (
            f"<table><tr><th>check</th><th>outcome</th><th>result</th></tr>{rows}</table><p>{escape(self.verdict)}</p>"
        )

    def to_frame(self) -> pandas.DataFrame:
        """A row per check: name, outcome, what was done and what was found. Needs pandas."""
        import pandas

        columns = ["name", "outcome", "did", "found"]
        return pandas.DataFrame([[getattr(c, name) for name in columns] for c in self.checks], columns=columns)

    def json_text(self) -> str:
        """The same as indented JSON."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a missing number is null."""
        checks = [
            {"name": c.name, "outcome": c.outcome, "did": c.did, "found": c.found, "figures": _finite(c.figures)}
            for c in self.checks
        ]
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "checks": checks,
            "figures": _finite(self.figures),
            **_finite(self.about),
        }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


BLOCK = 64
"""Items a side that are compared at once, where nothing else is tried."""
_CAPTIONS = 5
"""Texts of a picture that are taken at most."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Rows of a split, and the model that scores them.

    images, texts  (I), (T) int64 rows into pairs         batch_size  items that are embedded at once
    """

    model: Model
    pairs: Dataset
    images: Rows
    texts: Rows
    batch_size: int = 128

    @staticmethod
    def drawn(model: Model, pairs: Dataset, *, pictures: int, seed: int, batch_size: int = 128) -> Sample:
        """So many pictures, drawn, with their first texts, at most five each.

        Raises RequirementError for fewer than two pictures: a score has no neighbours then.
        """
        linked = np.unique(pairs.links[:, 0])
        if len(linked) < 2 or pictures < 2:
            raise RequirementError(
                f"an audit needs 2 pictures with texts or more; the split has {len(linked)}, asked for are {pictures}"
            )
        keys = draw.uniform(pairs.images.keys[linked], seed=seed, epoch=0, purpose="audit sample")[:, 0]
        images = np.sort(linked[np.argsort(keys, kind="stable")[:pictures]])
        links = pairs.links[np.isin(pairs.links[:, 0], images)]
        links = links[np.lexsort((links[:, 1], links[:, 0]))]
        begins = np.flatnonzero(np.diff(links[:, 0], prepend=-1))
        position = np.arange(len(links)) - np.repeat(begins, np.diff(np.append(begins, len(links))))
        return Sample(model, pairs, images, np.unique(links[position < _CAPTIONS, 1]), batch_size)

    @property
    def chosen(self) -> Dataset:
        """The sample as pairs of its own."""
        return self.pairs.subset(self.images, self.texts)

    def image_embeddings(
        self, rows: Rows, *, batch_size: int | None = None, numbers: Rows | None = None, contents: Rows | None = None
    ) -> Embeddings:
        """Pictures in the order of `rows`.

        numbers   what the model is told their rows are; their own by default
        contents  rows of what is read in their places; their own by default
        """
        return self._embed(self.model.image, self.pairs.images, rows, batch_size, numbers, contents)

    def text_embeddings(self, rows: Rows, *, batch_size: int | None = None, numbers: Rows | None = None) -> Embeddings:
        """Texts in the order of `rows`."""
        return self._embed(self.model.text, self.pairs.texts, rows, batch_size, numbers, None)

    def scores(
        self, images: Embeddings, texts: Embeddings, *, height: int = BLOCK, width: int = BLOCK
    ) -> Float[Tensor, "i t"]:
        """Scores of all pairs, `height` pictures and `width` texts at a time, as the similarity gives them."""
        device = self._device
        with torch.inference_mode():
            rows = []
            for top in range(0, len(images), height):
                upper = images[top : top + height].to(device)
                cells = [
                    self.model.similarity(upper, texts[column : column + width].to(device)).float().cpu()
                    for column in range(0, len(texts), width)
                ]
                rows.append(torch.cat(cells, dim=1))
            return torch.cat(rows)

    @property
    def _device(self) -> torch.device:
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def _embed(
        self,
        branch: Branch,
        items: Items,
        rows: Rows,
        batch_size: int | None,
        numbers: Rows | None,
        contents: Rows | None,
    ) -> Embeddings:
        size = batch_size or self.batch_size
        read = rows if contents is None else contents
        row_ids = rows if numbers is None else numbers
        was_training = self.model.training
        self.model.eval()
        blocks: list[Embeddings] = []
        try:
            with torch.inference_mode():
                for start in range(0, len(rows), size):
                    batch = item_batch(items, read[start : start + size], self.pairs.root)
                    inputs = branch.read(replace(batch, rows=row_ids[start : start + size]))
                    embedded = branch({name: value.to(self._device) for name, value in inputs.items()})
                    blocks.append(replace(embedded, residuals=None).to("cpu"))
        finally:
            self.model.train(was_training)
        return Embeddings.cat(blocks)


_ALONE = 32
"""Pairs that are scored with nothing beside them."""
_ROUNDS = 2
"""Random halves of the gallery that pairs are scored among."""


@dataclass(frozen=True)
class Stability:
    """A sample, its scores as they are usually made, and what they may change by.

    scores     (I T)
    tolerance  of a change, in standard deviations of the scores; rounding alone stays below 1e-4
    seed       of orders and halves
    """

    sample: Sample
    scores: Float[Tensor, "i t"]
    tolerance: float = 1e-3
    seed: int = 0

    @staticmethod
    def of(sample: Sample, *, tolerance: float = 1e-3, seed: int = 0) -> Stability:
        """With the scores made once."""
        return Stability(sample, _plain(sample), tolerance, seed)

    def check(self, name: str, did: str, rescore: Callable[[Stability], list[tuple[Rows, Rows, Tensor]]]) -> Check:
        """Compare with scores that were made again: (picture places, text places, their scores), several times."""
        spread = float(self.scores[self.scores.isfinite()].double().std(correction=0)) if len(self.scores) else 0.0
        unit = spread if spread > 0 else max(float(self.scores.nan_to_num().abs().max()), 1.0)
        worst, where, cells = 0.0, (0, 0, 0.0, 0.0), 0
        for images, texts, scores in rescore(self):
            before = self.scores[torch.from_numpy(images)][:, torch.from_numpy(texts)].double()
            change = _change(before, scores.double()) / unit
            cells += change.numel()
            position = int(change.argmax())
            if float(change.flatten()[position]) > worst:
                row, column = divmod(position, change.shape[1])
                worst = float(change.flatten()[position])
                both = float(before[row, column]), float(scores[row, column])
                where = int(images[row]), int(texts[column]), *both
        sentence = f"of {counted(cells, 'score')} the one that changes most changes by {worst:.1e} standard deviations"
        failed = worst > self.tolerance
        if failed:
            items, sample = self.sample.pairs, self.sample
            pair = items.images.ids[sample.images[where[0]]], items.texts.ids[sample.texts[where[1]]]
            sentence += f", picture '{pair[0]}' with text '{pair[1]}': {where[2]:.6g}, then {where[3]:.6g}"
        figures = {
            "largest_change": worst,
            "scores": cells,
            "standard_deviation": spread,
            "allowed": self.tolerance,
        }
        allowed = f"; {self.tolerance:g} is allowed"
        return Check(name, did, "fail" if failed else "pass", sentence + allowed, figures)

    def order(self, length: int, purpose: str) -> Rows:
        """A shuffled range."""
        return draw.permutation(length, seed=self.seed, epoch=0, purpose=f"audit {purpose}")


def stability(base: Stability) -> list[Check]:
    """All checks of this file."""
    return [base.check(name, did, rescore) for name, (did, rescore) in CHECKS.items()]


def _plain(sample: Sample) -> Tensor:
    return sample.scores(sample.image_embeddings(sample.images), sample.text_embeddings(sample.texts))


def _change(before: Tensor, after: Tensor) -> Tensor:
    """|after - before|; 0 where both are no number or the same infinity, infinite where one alone is."""
    same = (before == after) | (before.isnan() & after.isnan())
    return torch.where(same, 0.0, (after - before).abs().nan_to_num(nan=torch.inf))


def _whole(base: Stability) -> tuple[Rows, Rows]:
    return tuple(np.arange(count, dtype=np.int64) for count in base.scores.shape)  # type: ignore[return-value]


def _repeated(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    return [(*_whole(base), _plain(base.sample))]


def _reordered(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, rescored = base.sample, []
    images, texts = base.order(len(sample.images), "pictures"), base.order(len(sample.texts), "texts")
    for pictures, sentences in ((images, texts), (images[::-1].copy(), texts), (images, texts[::-1].copy())):
        first = sample.image_embeddings(sample.images[pictures])
        second = sample.text_embeddings(sample.texts[sentences])
        rescored.append((pictures, sentences, sample.scores(first, second)))
    return rescored


def _other_blocks(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, every = base.sample, _whole(base)
    images = sample.image_embeddings(sample.images, batch_size=7)
    texts = sample.text_embeddings(sample.texts, batch_size=11)
    size = max(len(images), len(texts))
    rescored = [
        (*every, sample.scores(images, texts, height=h, width=w)) for h, w in ((size, size), (1, size), (7, 13))
    ]
    # As figures are made where no figure may depend on blocks: in padded tiles, which have to end where they should.
    return [*rescored, (*every, matrix(sample.model.similarity, images, texts, 1, exact=True).float())]


def _other_neighbours(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, rescored = base.sample, []
    for turn in range(_ROUNDS):
        images, texts = (
            np.sort(base.order(len(rows), f"half {turn} {kind}")[: max(1, len(rows) // 2)])
            for kind, rows in (("images", sample.images), ("texts", sample.texts))
        )
        first = sample.image_embeddings(sample.images[images])
        rescored.append((images, texts, sample.scores(first, sample.text_embeddings(sample.texts[texts]))))
    for pair in _some_pairs(base):
        images, texts = pair[:1], pair[1:]
        first = sample.image_embeddings(sample.images[images])
        rescored.append((images, texts, sample.scores(first, sample.text_embeddings(sample.texts[texts]))))
    return rescored


def _some_pairs(base: Stability) -> Rows:
    """(N, 2) places of pairs, half of them partners: what is made for partners alone would show there."""
    links = base.sample.chosen.links
    partners = links[base.order(len(links), "partners")[: _ALONE // 2]]
    columns = [base.order(count, f"strangers {count}") for count in base.scores.shape]
    count = min(len(partners), *map(len, columns))
    return np.concatenate([partners, np.stack([column[:count] for column in columns], axis=1)])


def _other_names(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample = base.sample
    images, texts = sample.image_embeddings(sample.images), sample.text_embeddings(sample.texts)
    blank = [replace(items, ids=torch.full_like(items.ids, 10**9)) for items in (images, texts)]
    rescored = [(*_whole(base), sample.scores(*blank))]
    if _draws(images) or _draws(texts):
        return rescored
    numbers = [base.order(len(rows), f"numbers {kind}") for kind, rows in (("i", sample.images), ("t", sample.texts))]
    renumbered = sample.scores(
        sample.image_embeddings(sample.images, numbers=numbers[0]),
        sample.text_embeddings(sample.texts, numbers=numbers[1]),
    )
    return [*rescored, (*_whole(base), renumbered)]


def _draws(items: Embeddings) -> bool:
    """Whether the head draws, which it does by the number of an item, and may."""
    return items.log_std is not None


CHECKS: dict[str, tuple[str, Callable[[Stability], list[tuple[Rows, Rows, Tensor]]]]] = {
    "repeat": ("A sample was embedded and scored a second time, just as the first.", _repeated),
    "order": ("Pictures and texts of the sample were embedded and scored in three other orders.", _reordered),
    "blocks": (
        "The sample was embedded 7 pictures and 11 texts at a time, and scored as a whole, one picture at a time, in "
        "blocks of 7 by 13, and in the padded tiles of an exact evaluation.",
        _other_blocks,
    ),
    "neighbours": (
        "Pairs of the sample were embedded and scored among two random halves of it, and partners and strangers with "
        "nothing beside them.",
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
"""Pictures with several captions below which their places are not compared."""
_LIFT, _TIMES = 10.0, 1.5
"""Points and times by which one place is ahead of the others, before it is suspicious."""


def shuffled_truth(base: Stability, *, ties: Ties = "pessimistic") -> Check:
    """Recall where each picture stands in another one's place, beside chance.

    Contents move and names stay: what a model reads off names, numbers or places would still be right.
    """
    sample = base.sample
    order = base.order(len(sample.images), "shuffled truth")
    images = sample.image_embeddings(sample.images, numbers=sample.images, contents=sample.images[order])
    scores = sample.scores(images, sample.text_embeddings(sample.texts))
    match = matching.of_pairs(sample.chosen)
    recalls, chance = _recalls(scores, match, ties)
    strayed = _strayed(base, match, ties)
    sentences, above, below = [], [], []
    figures: dict[str, float] = {}
    for name, value in recalls.items():
        room = 100 * _FAR * max(strayed[name], math.sqrt(chance[name] * (1 - chance[name]) / _queries(name, match)))
        low, high = max(0.0, 100 * chance[name] - room), min(100.0, 100 * chance[name] + room)
        sentences.append(f"{_label(name)} {100 * value:.1f} (chance {100 * chance[name]:.1f}, up to {high:.1f})")
        figures |= {name: 100 * value, f"{name}/chance": 100 * chance[name], f"{name}/low": low, f"{name}/high": high}
        above += [name] if 100 * value > high else []
        below += [name] if 100 * value < low else []
    remark = "; below chance, because ties count against the model" if below else ""
    outcome: Outcome = "fail" if above else "pass"
    if all(figures[f"{name}/high"] >= 100 for name in recalls):
        outcome, remark = "not applicable", "; with so few pictures any recall could be chance"
    did = (
        "Every picture of the sample was put in the place of another, with its name, number and partners; recall was "
        f"counted as always. It may be above chance by {_FAR:g} standard deviations of {_SHUFFLES} shuffles."
    )
    return Check("truth", did, outcome, f"{', '.join(sentences)}{remark}", figures)


def ties(result: Result) -> Check:
    """How many queries have a wrong candidate with the very score of their partner."""
    shares = {d: result.figures[f"{d}/tie_share"] for d in DIRECTIONS}
    sentence = ", ".join(f"{_spelt(d)} {share:.2f} % of queries" for d, share in shares.items())
    did = f"Queries were counted where a wrong candidate has exactly the partner's score; {_TIES:g} % may."
    outcome: Outcome = "fail" if max(shares.values()) > _TIES else "pass"
    why = "; figures depend on the rule for ties (here the partner stands behind all of its score)"
    return Check(
        "ties",
        did,
        outcome,
        sentence + (why if outcome == "fail" else ""),
        {f"{d}/tie_share": s for d, s in shares.items()},
    )


def finite(
    result: Result, images: Embeddings | None, texts: Embeddings | None, scores: Float[Tensor, "i t"] | None
) -> Check:
    """Whether all vectors and scores are numbers.

    images, texts  vectors; None where there are none        scores  of a sample, or all; None where there are none
    """
    vectors = {
        name: int((~items.vectors.isfinite()).any(-1).any(-1).sum())
        for name, items in (("pictures", images), ("texts", texts))
        if items is not None
    }
    figures = {**vectors, "nan_scores": int(max(result.figures[f"{d}/nan_scores"] for d in DIRECTIONS))}
    if scores is not None:
        figures["infinite_scores"] = int(torch.isinf(scores).sum())
    checked = ["vectors of all pictures and texts"] if vectors else []
    checked += ["all scores", *(["the scores at hand for infinity"] if scores is not None else [])]
    did = f"These were looked at: {', '.join(checked)}."
    labels = {"pictures": "vectors of pictures", "texts": "vectors of texts", "nan_scores": "scores that are no number"}
    sentence = ", ".join(f"{labels.get(name, 'infinite scores')} {count:,}" for name, count in figures.items())
    return Check("finite", did, "fail" if any(figures.values()) else "pass", sentence, figures)


def caption_places(result: Result, pairs: Dataset) -> Check:
    """Recall@1 of texts by their place among the texts of their picture: one that was seen with it would stand out."""
    did = (
        "Recall@1 of texts asking for pictures was told apart by the place of the text among those of its picture. A "
        f"place may not be ahead of the others by {_FAR:g} standard errors, {_LIFT:g} points and {_TIMES:g} times."
    )
    owners = gallery_of(pairs).owners
    hits = 100 * result.per_query["text_to_image/recall@1"]
    positions = _places(owners)
    has_value = (owners >= 0) & ~np.isnan(hits)
    several = np.bincount(owners[has_value], minlength=len(pairs.images)) > 1
    if several.sum() < _LEAST:
        sentence = f"only {int(several.sum())} pictures have several texts; {_LEAST} are needed"
        return Check("captions", did, "not applicable", sentence)
    chosen = has_value & several[owners]
    sentences, suspicious = [], []
    figures: dict[str, float] = {}
    for position in range(int(positions[chosen].max()) + 1):
        mine, other_hits, error = _apart(hits, owners, chosen, positions == position)
        if math.isnan(mine):
            continue
        sentences.append(f"{position + 1}: {mine:.1f}")
        figures[f"recall@1 of text {position + 1}"] = mine
        if mine - other_hits > max(_LIFT, _FAR * error) and mine > _TIMES * other_hits:
            suspicious.append(f"text {position + 1} finds its image in {mine:.1f} %, the others in {other_hits:.1f} %")
    if not suspicious:
        return Check("captions", did, "pass", f"recall@1 by place: {', '.join(sentences)}", figures)
    why = "its image's features may have been made with it; or texts at that place are of another kind, as titles are"
    return Check("captions", did, "fail", f"{'; '.join(suspicious)}: {why}", figures)


def _recalls(scores: Tensor, match: Match, ties: Ties) -> tuple[dict[str, float], dict[str, float]]:
    """Recall and chance, shares, by "<direction>/recall@<k>"."""
    counts = both_directions(scores, match.image_to_text, match.text_to_image, stable=ties == "stable")
    recalls, chance = {}, {}
    for direction, each in zip(DIRECTIONS, counts, strict=True):
        for k in _KS:
            recalls[f"{direction}/recall@{k}"] = float(np.nanmean(Recall(k, ties).of(each)))
            chance[f"{direction}/recall@{k}"] = float(np.nanmean(Recall(k).chance(each)))
    return recalls, chance


def _strayed(base: Stability, match: Match, ties: Ties) -> dict[str, float]:
    """Standard deviation of recall over shuffles of scores as they are: hubs, which many find, make it larger."""
    deviations: dict[str, list[float]] = {}
    for turn in range(_SHUFFLES):
        order = draw.permutation(len(base.scores), seed=base.seed, epoch=turn, purpose="audit chance")
        for name, value in _recalls(base.scores[torch.from_numpy(order)], match, ties)[0].items():
            deviations.setdefault(name, []).append(value)
    return {name: float(np.std(values)) for name, values in deviations.items()}


def _queries(name: str, match: Match) -> int:
    direction: Direction = "image_to_text" if name.startswith("image") else "text_to_image"
    return max(1, int((match.cells(direction).lengths > 0).sum()))


def _places(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """(T) how many texts of the same picture stand before each."""
    order = np.argsort(owners, kind="stable")
    begins = np.flatnonzero(np.diff(owners[order], prepend=-2))
    lengths = np.diff(np.append(begins, len(owners)))
    positions = np.empty(len(owners), dtype=np.int64)
    positions[order] = np.arange(len(owners)) - np.repeat(begins, lengths)
    return positions


def _apart(
    hits: NDArray[np.float64], owners: NDArray[np.int64], chosen: NDArray[np.bool_], selected: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Mean at a place, mean of the other texts of the same pictures, and the standard error of their difference."""
    count = int(owners.max()) + 1
    sums = [np.bincount(owners[rows], hits[rows], minlength=count) for rows in (chosen & selected, chosen & ~selected)]
    sizes = [np.bincount(owners[rows], minlength=count) for rows in (chosen & selected, chosen & ~selected)]
    both = (sizes[0] > 0) & (sizes[1] > 0)
    if both.sum() < _LEAST:
        return math.nan, math.nan, math.nan
    mine, remaining = sums[0][both] / sizes[0][both], sums[1][both] / sizes[1][both]
    error = float(np.std(mine - remaining, ddof=1)) / math.sqrt(int(both.sum()))
    return float(mine.mean()), float(remaining.mean()), error


def _label(name: str) -> str:
    return name.replace("_", " ").replace("/", " ")


def _spelt(direction: Direction) -> str:
    return direction.replace("_", " ")


MARKS = {"pass": "pass", "fail": "FAIL", "not applicable": "n/a"}
_WIDTH = 110


def audit_text(audit: Audit) -> str:
    """Every check with what was done and found, the figures, and the verdict at the end."""
    lines = [_head(audit), ""]
    for check in audit.checks:
        lines.append(f"{MARKS[check.outcome]:4}  {check.name}")
        lines += [fill(part, _WIDTH, initial_indent="      ", subsequent_indent="      ") for part in _parts(check)]
    lines += ["", f"{_figures(audit)}.", f"{audit.verdict}."]
    return "\n".join(lines)


def audit_page(audit: Audit, result: Result) -> Page:
    """The same as a page."""
    figures = []
    for direction in DIRECTIONS:
        for k in (1, 10):
            name = f"{direction}/recall@{k}"
            low, high = result.intervals.get(name, (None, None))
            label = f"{direction.replace('_', ' ')}, recall@{k}"
            figures.append(Figure(label, result.figures[name], result.chance[name], low, high))
    about = audit.about
    return Page(
        title=f"Audit of {about['audited']}",
        lead=_head(audit),
        verdict=f"{audit.verdict}.",
        figures=figures,
        figures_text="Recall in per cent on the audited split, with 95 % intervals by resampling images.",
        sections=[
            Section(f"{MARKS[check.outcome]}: {check.name}", " ".join(_parts(check)), ()) for check in audit.checks
        ],
        facts=[
            *([("run", about["run"])] if "run" in about else []),
            (about["kind"] if "run" not in about else "model", _listed(about["model"])),
            ("data", f"{about['data']}, split {about['split']}, {about['data_fingerprint']}"),
            ("settings", _listed(about["settings"])),
            ("versions", _listed(about["versions"])),
        ],
    )


def _parts(check: Check) -> list[str]:
    return [check.did, f"Found: {check.found}."]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def _head(audit: Audit) -> str:
    about = audit.about
    counts = f"{counted(about['images'], 'image')}, {counted(about['texts'], 'text')}"
    return f"audit of {about['audited']} on split {about['split']} of {Path(about['data']).name}: {counts}"


def _figures(audit: Audit) -> str:
    recalls = []
    for direction in DIRECTIONS:
        values = "/".join(f"{audit.figures[f'{direction}/recall@{k}']:.1f}" for k in (1, 5, 10))
        recalls.append(f"{direction.replace('_', ' ')} recall@1/5/10 {values}")
    return ", ".join(recalls)
