"""Two stages measured: a second model re-orders what a first one found, and a partner that was not found is a miss.

Scores of two stages: every query's list in its second order, and all other candidates behind it in their first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import gallery as galleries
from subtext.evaluation import reranking
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.measure import label_of, measured
from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.protocol import ExtraMetrics, Protocol
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.results import Result
from subtext.evaluation.scoring import Block, Embedded, Matrix, Rows, Source, covers
from subtext.ops.numerics import precise
from subtext.ops.rank import Counts, best_of
from subtext.report.text_table import Cell, table


@dataclass(frozen=True)
class Listed:
    """Lists in their second order, followed by all other candidates in their first.

    first   scores of the first stage       lists, scores  candidates of every query, and what the second gave them; -1
                                                           stands for one that was listed and is no candidate here
    """

    first: Source
    lists: reranking.Shortlists
    scores: Mapping[Direction, Float[np.ndarray, "q m"]]

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> Listed:
        """The chosen pictures and texts, in the order that they have among all; itself when those are all, in order.

        Nothing is listed anew: who is left out leaves its place in a list empty.
        """
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        lists = reranking.Shortlists(
            _renumbered(self.lists.image_to_text, images, texts, self.shape[1]),
            _renumbered(self.lists.text_to_image, texts, images, self.shape[0]),
        )
        scores: dict[Direction, Float[np.ndarray, "q m"]] = {
            "image_to_text": self.scores["image_to_text"][images],
            "text_to_image": self.scores["text_to_image"][texts],
        }
        return Listed(self.first.part(images, texts), lists, scores)

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Each direction from blocks of its own queries."""
        found = []
        for direction in DIRECTIONS:
            positives = match.cells(direction)
            found.append(
                Counts.cat(
                    [
                        best_of(scores, positives[start:stop], stable=stable)
                        for start, stop, scores in self.blocks(direction)
                    ]
                )
            )
        return found[0], found[1]

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Numbers that order each query's candidates: scores of its list, and below them all others; float64."""
        lists, scores = self.lists.of(direction), self.scores[direction]
        finite = scores[np.isfinite(scores) & (lists >= 0)]
        below = float(finite.min()) - 1 if len(finite) else 0.0
        for start, stop, block in self.first.blocks(direction):
            highest = torch.nan_to_num(block, nan=-torch.inf).amax(dim=1, keepdim=True).double()
            full = block.to(torch.float64, copy=True).sub_(highest - below)
            rows, positions = np.nonzero(lists[start:stop] >= 0)
            columns, values = (values[start:stop][rows, positions] for values in (lists, scores))
            full[torch.from_numpy(rows), torch.from_numpy(columns)] = torch.from_numpy(values).double()
            yield start, stop, full


def _renumbered(lists: Int[np.ndarray, "q m"], queries: Rows, candidates: Rows, count: int) -> Int[np.ndarray, "k m"]:
    """The lists of the chosen queries, by places among the chosen candidates of `count`; -1 for all others."""
    # One place more: what an earlier cut has left out stays out.
    positions = np.full(count + 1, -1, dtype=np.int64)
    positions[candidates] = np.arange(len(candidates))
    return positions[lists[queries]]


LOSS = 0.2
"""Points of R@1 that a plan may lose against scoring every pair, in each direction, to be called enough.

Where a protocol has no R@1, the recall of its fewest places is meant.
"""

_ROUNDING = (
    "two stages: the second model's scores may differ from those of scoring every pair by 1e-6 of their size (of an "
    "IMRAM with texts of one word: by up to 1e-4), and so may ranks that hang on less"
)


class Stage(NamedTuple):
    """A model's similarity, and its embeddings of all pictures and texts."""

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings


@dataclass(frozen=True)
class TwoStage:
    """Scores of two models, of which the second is asked about what the first found alone.

    candidates  of each query, at most `most`
    every       the second model's scores of all pairs, where they are known
    known       what was listed and scored, fold by fold, of every set of folds that was asked for
    """

    first: Embedded
    second: Embedded
    candidates: int
    most: int
    every: Matrix | None = None
    known: dict[bytes, Listed] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> Listed:
        """The chosen items, each with candidates among the chosen ones."""
        key = images.tobytes() + texts.tobytes()
        if key not in self.known:
            self.known[key] = self._listed(images, texts)
        full = self.known[key]
        scores = {direction: scores[:, : self.candidates] for direction, scores in full.scores.items()}
        return Listed(full.first, full.lists.first(self.candidates), scores)

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Of the whole gallery."""
        return self._whole().counts(match, stable=stable)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Of the whole gallery."""
        yield from self._whole().blocks(direction)

    def _whole(self) -> Listed:
        images, texts = self.shape
        return self.part(np.arange(images, dtype=np.int64), np.arange(texts, dtype=np.int64))

    def _listed(self, images: Rows, texts: Rows) -> Listed:
        rows, columns = torch.from_numpy(images), torch.from_numpy(texts)
        first = self.first
        lists = reranking.shortlists(
            first.similarity, first.images[rows], first.texts[columns], self.most, exact=first.exact
        )
        if self.every is None:
            second_items = self.second.images[rows], self.second.texts[columns]
            scores = reranking.reranked(self.second.similarity, *second_items, lists)
        else:
            every = precise(self.every.part(images, texts).scores).numpy()
            text_rows = np.arange(len(texts))[:, None]
            scores = {
                "image_to_text": np.take_along_axis(every, lists.image_to_text, axis=1),
                "text_to_image": every[lists.text_to_image, text_rows],
            }
        return Listed(self.first.part(images, texts), lists, scores)


def evaluate_two_stage(
    first: Stage,
    second: Stage,
    pairs: Dataset,
    *,
    candidates: Sequence[int] = (100,),
    protocol: Protocol | None = None,
    extra: ExtraMetrics | None = None,
) -> Result:
    """How well two models together find partners: the first lists candidates, and the second orders them.

    candidates  how many a query; several make a sweep, for which the second model scores every pair once, so that the
                loss of each number against that is told. Figures are those of the largest number

    A partner that is not among the candidates stands behind them all, where the first stage had it. What the second
    model was asked, and what was missed, is under "two_stage" in `Result.about`; what is of `also_folds` stands there
    by itself, as every set of folds has lists of its own. What is lost is told of the first set.

    Raises RequirementError where there is no candidate to list, for a first stage whose vectors do not decide the
    score, and for people's judgements, which compare scores of different queries.
    Cost   the first model's similarity of all pairs twice, and the second's of the pairs that are listed.
    """
    settings, extras, counts = protocol or Protocol(), extra or ExtraMetrics(), sorted(set(candidates))
    require_plan(counts, extras)
    _require(first, second, pairs)
    fast, two = (Embedded(*stage, exact=settings.exact) for stage in (first, second))
    gallery = galleries.of_pairs(pairs)
    plan = TwoStage(fast, two, candidates=counts[-1], most=counts[-1], every=two.kept() if len(counts) > 1 else None)
    result = measured(plan, gallery, settings, extras)
    stages = _told(plan, result, gallery, settings)
    if plan.every is not None:
        stages |= _sweep(plan, counts, gallery, replace(settings, bootstrap=0))
    return replace(result, about={**result.about, "two_stage": stages}, notes=(*_notes(stages), *result.notes))


def require_plan(candidates: Sequence[int], extra: ExtraMetrics) -> None:
    """Raise RequirementError for what two stages cannot be asked, before either model has embedded anything."""
    if not candidates or min(candidates) < 1:
        raise RequirementError(f"two stages need 1 candidate a query or more; it got {list(candidates)}")
    if extra.ratings is not None:
        raise RequirementError("people's scores need one model's; two stages order each query by itself; leave one out")


def _require(first: Stage, second: Stage, pairs: Dataset) -> None:
    if not first.similarity.indexable:
        raise RequirementError(
            f"a first stage needs a model whose vectors decide the score; {type(first.similarity).__name__} scores "
            "pairs; take a dual encoder first, and this one second"
        )
    for stage in (first, second):
        got = (len(stage.images), len(stage.texts))
        if got != (len(pairs.images), len(pairs.texts)):
            raise ShapeError(
                f"two stages need embeddings of {len(pairs.images)} pictures and {len(pairs.texts)} texts; it got {got}"
            )


def _sweep(plan: TwoStage, counts: Sequence[int], gallery: Gallery, protocol: Protocol) -> dict[str, Any]:
    """What each number of candidates loses against scoring every pair, and the smallest that loses little enough."""
    assert plan.every is not None
    exhaustive = measured(plan.every, gallery, protocol, ExtraMetrics())
    k = min(protocol.recall)
    rows = []
    for count in counts:
        cut = replace(plan, candidates=count)
        result = measured(cut, gallery, protocol, ExtraMetrics())
        rows.append({**_told(cut, result, gallery, protocol), "lost": _lost(result, exhaustive, k)})
    return {
        "sweep": rows,
        "exhaustive": _recalls(exhaustive),
        "allowed": {"recall": k, "points": LOSS},
        "enough": _enough(rows, DIRECTIONS),
        "enough_of": {str(direction): _enough(rows, [direction]) for direction in DIRECTIONS},
    }


def _enough(rows: Sequence[Mapping[str, Any]], directions: Sequence[Direction]) -> int | None:
    """The smallest number of candidates that loses at most LOSS in each of these directions; None where none does."""
    fits = (row["candidates"] for row in rows if max(row["lost"][direction] for direction in directions) <= LOSS)
    return next(fits, None)


def _told(plan: TwoStage, result: Result, gallery: Gallery, protocol: Protocol) -> dict[str, Any]:
    labels = {label_of(len(gallery.image_ids), count): count for count in protocol.also_folds}
    more_folds = {label: _cost(plan, result, gallery, count, label) for label, count in labels.items()}
    return {
        "candidates": plan.candidates,
        **_cost(plan, result, gallery, protocol.folds, ""),
        **({"also_folds": more_folds} if more_folds else {}),
        **_recalls(result),
    }


def _cost(plan: TwoStage, result: Result, gallery: Gallery, folds: int, label: str) -> dict[str, Any]:
    """Of one set of folds: pairs that the second model scores, their share of all pairs in folds, and what was missed.

    A pair that both directions want is counted once in "together".
    """
    parts = [plan.part(images, texts) for images, texts, _ in gallery.folds(folds)]
    every = sum(part.shape[0] * part.shape[1] for part in parts)
    pairs = {str(direction): sum(part.lists.of(direction).size for part in parts) for direction in DIRECTIONS}
    pairs["together"] = sum(len(part.lists.pairs()) for part in parts)
    ranks = {str(direction): result.per_query[f"{direction}/{BestRank.name}{label}"] for direction in DIRECTIONS}
    return {
        "folds": folds,
        "pairs": pairs,
        "share_of_pairs": {name: count / every for name, count in pairs.items()},
        "missed": {
            name: 100 * float((rank > plan.candidates).sum() / (~np.isnan(rank)).sum()) for name, rank in ranks.items()
        },
    }


def _recalls(result: Result) -> dict[str, float]:
    return {name: value for name, value in result.figures.items() if "/recall@" in name or name == "rsum"}


def _lost(result: Result, exhaustive: Result, k: int) -> dict[str, float]:
    """Points of recall at k below the second model's on every pair; below 0 where it is above."""
    names = {str(direction): f"{direction}/recall@{k}" for direction in DIRECTIONS}
    return {way: exhaustive.figures[name] - result.figures[name] for way, name in names.items()}


def _notes(stages: Mapping[str, Any]) -> list[str]:
    more_folds = stages.get("also_folds", {})
    sets = [stages, *more_folds.values()]
    return [
        *(note for cost in sets for note in _notes_of(cost, several=bool(more_folds))),
        # A sweep takes its scores from those of every pair.
        *([] if "sweep" in stages else [_ROUNDING]),
    ]


def _notes_of(cost: Mapping[str, Any], *, several: bool) -> list[str]:
    """What one set of folds cost and missed; which set it is, where that is not plain."""
    missed, share, folds = cost["missed"], cost["share_of_pairs"], cost["folds"]
    where = "two stages" if folds == 1 and not several else f"two stages, {'whole' if folds == 1 else f'{folds} folds'}"
    return [
        f"{where}: the second model scored {cost['pairs']['together']:,} pairs, {100 * share['together']:.1f} % of "
        f"all{' within a fold' if folds > 1 else ''} (1 in {1 / share['image_to_text']:.0f} for pictures, "
        f"1 in {1 / share['text_to_image']:.0f} for texts)",
        f"{where}: no partner was listed of {missed['image_to_text']:.1f} % of the pictures and "
        f"{missed['text_to_image']:.1f} % of the texts; they count as misses",
    ]


def sweep_text(result: Result) -> list[str]:
    """The sweep as a table, and how many candidates are enough; nothing where there was none."""
    stages = result.about.get("two_stage", {})
    if "sweep" not in stages:
        return []
    directions = {"image_to_text": "images", "text_to_image": "texts"}
    k, shown = stages["allowed"]["recall"], _shown(result)
    head = ["candidates", "pairs scored, %"]
    for query in directions.values():
        first, *other_cuts = (f"R@{cut}" for cut in shown)
        head += [f"{query}: {first}", *other_cuts, "missed, %", f"R@{k} lost"]
    rows: list[list[Cell]] = []
    for row in stages["sweep"]:
        line: list[Cell] = [str(row["candidates"]), f"{100 * row['share_of_pairs']['together']:.2f}"]
        for direction in directions:
            recalls = [row[f"{direction}/recall@{k}"] for k in shown]
            line += [*recalls, f"{row['missed'][direction]:.1f}", f"{row['lost'][direction]:+.2f}"]
        rows.append(line)
    every: list[Cell] = ["every pair", "100"]
    for direction in directions:
        every += [*(stages["exhaustive"][f"{direction}/recall@{k}"] for k in shown), "", ""]
    return [table(head, [*rows, every]), _verdict(stages)]


def _shown(result: Result) -> list[int]:
    """The k of the recalls in the table: what the loss is of, and the largest."""
    return sorted({result.about["two_stage"]["allowed"]["recall"], max(result.protocol["recall"])})


def _verdict(stages: Mapping[str, Any]) -> str:
    """How many candidates are enough, of both directions together and of each."""
    enough, allowed = stages["enough"], stages["allowed"]
    first = "none of these numbers is enough" if enough is None else f"{enough} candidates are enough"
    images, texts = (stages["enough_of"][direction] or "none" for direction in ("image_to_text", "text_to_image"))
    return (
        f"{first}: at most {allowed['points']:g} points of R@{allowed['recall']} lost in each direction "
        f"(image queries: {images}, text queries: {texts})"
    )


def plot_of(result: Result) -> str:
    """The sweep as an SVG document: recall of each direction over the share of pairs that the second model scores.

    Lines end where every pair is scored; a grey line marks that recall.
    """
    from subtext.report.plots import Chart, Curve, charts

    stages = result.about["two_stage"]
    first = stages["allowed"]["recall"]
    panels = []
    for direction, title in (("image_to_text", "images as queries"), ("text_to_image", "texts as queries")):
        lines = []
        costs = [100 * row["share_of_pairs"][direction] for row in stages["sweep"]]
        for k in result.protocol["recall"]:
            name, every = f"{direction}/recall@{k}", stages["exhaustive"][f"{direction}/recall@{k}"]
            points = [(cost, row[name]) for cost, row in zip(costs, stages["sweep"], strict=True)]
            # A list that holds every candidate is the end of the line already.
            last_point = [] if points[-1][0] >= 100 else [(100.0, every)]
            lines.append(Curve(f"R@{k}", [*points, *last_point]))
        best = stages["exhaustive"][f"{direction}/recall@{first}"]
        lines.append(Curve(f"R@{first} of every pair", [(costs[0], best), (100.0, best)], reference=True))
        panels.append(Chart(title, "pairs that the second model scores, %", "recall, %", lines, log_x=True))
    return charts(panels)
