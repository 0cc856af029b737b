"""Two stages: a fast model finds a few candidates of each query, and an expensive one scores those pairs alone.

A pair that both directions list is scored once. A partner that the first model does not list counts as a miss: it
stands behind the list, where the first model has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import gallery as galleries
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.measure import label_of, measured
from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.protocol import ExtraMetrics, Protocol
from subtext.evaluation.results import Result
from subtext.evaluation.scoring import Block, Embedded, Matrix, Rows, ScoreSource, blocks, covers, device_of
from subtext.ops.numerics import precise
from subtext.ops.pairwise import equal_lengths
from subtext.report.text_table import Cell, table

LOSS = 0.2
"""Points of R@1 that a plan may lose against scoring every pair, in each direction, to be called enough.

Where a protocol has no R@1, the recall of its fewest places is meant.
"""

_ROUNDING = (
    "two stages: the second model's scores may differ from those of scoring every pair by 1e-6 of their size (of an "
    "IMRAM with texts of one word: by up to 1e-4), and so may ranks that hang on less"
)


@dataclass(frozen=True)
class Shortlists:
    """Candidates of every query of both directions, best first; a direction has as many for each of its queries.

    Attributes:
        image_to_text: (I M) rows of texts.
        text_to_image: (T N) rows of images.
    """

    image_to_text: Int[np.ndarray, "i m"]
    text_to_image: Int[np.ndarray, "t n"]

    def of(self, direction: Direction) -> Int[np.ndarray, "q m"]:
        """One direction's."""
        return self.image_to_text if direction == "image_to_text" else self.text_to_image

    def first(self, count: int) -> Shortlists:
        """The first `count` of each list."""
        return Shortlists(self.image_to_text[:, :count], self.text_to_image[:, :count])

    def pairs(self) -> Int[np.ndarray, "p two"]:
        """(P 2) image row and text row of every pair that either direction lists, each once, ordered by image."""
        return np.stack(np.divmod(np.unique(np.concatenate(self._codes())), len(self.text_to_image)), axis=1)

    def places(self, pairs: Int[np.ndarray, "p two"]) -> dict[Direction, Int[np.ndarray, "q m"]]:
        """Where each candidate stands among `pairs`, which are ordered as above and hold them all."""
        coded = pairs[:, 0] * len(self.text_to_image) + pairs[:, 1]
        shapes = (self.image_to_text.shape, self.text_to_image.shape)
        return {
            direction: np.searchsorted(coded, codes).reshape(shape)
            for direction, codes, shape in zip(DIRECTIONS, self._codes(), shapes, strict=True)
        }

    def _codes(self) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]:
        """One number a pair, image first, list by list."""
        texts = len(self.text_to_image)
        images = np.arange(len(self.image_to_text), dtype=np.int64)[:, None] * texts + self.image_to_text
        return images.ravel(), (self.text_to_image * texts + np.arange(texts, dtype=np.int64)[:, None]).ravel()


def shortlists(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, count: int, *, exact: bool = False
) -> Shortlists:
    """The `count` best texts of every image and images of every text, all of them where there are fewer.

    Of equal scores the earlier row comes first; a score that is not a number comes last.

    Raises:
        RequirementError: If the count is below 1.

    Complexity:
        The similarity of all pairs in each direction, in blocks of bounded memory.
    """
    if count < 1:
        raise RequirementError(f"a shortlist needs 1 candidate or more; it got {count}")
    lists = []
    for direction in DIRECTIONS:
        both = (images, texts) if direction == "image_to_text" else (texts, images)
        scored = blocks(similarity, *both, direction, exact=exact)
        lists.append(np.concatenate([best(scores, count) for _, _, scores in scored]))
    return Shortlists(*lists)


def best(scores: Float[Tensor, "q c"], count: int) -> Int[np.ndarray, "q m"]:
    """The columns of the best `count` scores of each row, best first; of equal ones the earlier column.

    Example:
        >>> best(torch.tensor([[0.1, 0.9, 0.9, 0.9]]), 2).tolist()
        [[1, 2]]
    """
    scores = torch.nan_to_num(scores, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    count = min(count, scores.shape[1])
    values, columns = scores.topk(count, dim=1)
    level = (scores >= values[:, -1:]).sum(dim=1) > count
    level |= (values[:, 1:] == values[:, :-1]).any(dim=1)
    for row in torch.nonzero(level)[:, 0].tolist():
        columns[row] = scores[row].argsort(descending=True, stable=True)[:count]
    return np.asarray(columns.numpy(), dtype=np.int64)


@torch.inference_mode()
def pair_scores(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, pairs: Int[np.ndarray, "p two"]
) -> Float[np.ndarray, "p"]:
    """Scores of chosen pairs, (P 2) image row and text row, on the CPU; float64 where the similarity gives that.

    Pairs are scored image by image, each with all its texts: scores differ from those of an exhaustive run by about
    1e-6 of their size, and IMRAM's of a text of one word by up to 1e-4 (as `model.Model.compare` says).

    Raises:
        ShapeError: Unless the pairs are ordered by image.

    Complexity:
        The similarity of these pairs; what it needs of a text alone it makes again for every image.
    """
    image_rows = pairs[:, 0]
    if (image_rows[1:] < image_rows[:-1]).any():
        raise ShapeError("pairs need to be ordered by picture; these are not; sort them")
    device = device_of(similarity, images)
    # Texts are sorted by their lengths once, and not again for every image.
    groups = [(torch.arange(len(texts)), texts)] if texts.parts is None else list(equal_lengths(texts))
    group_of, position_of = np.empty((2, len(texts)), dtype=np.int64)
    for number, (rows, _) in enumerate(groups):
        group_of[rows.numpy()], position_of[rows.numpy()] = number, np.arange(len(rows))
    order = np.lexsort((group_of[pairs[:, 1]], image_rows))
    codes, starts = np.unique(image_rows[order] * len(groups) + group_of[pairs[order, 1]], return_index=True)
    prepare = getattr(similarity, "prepare", None)
    last = -1
    prepared: tuple[Any, ...] = ()
    scores: NDArray[Any] | None = None
    for code, start, stop in zip(codes.tolist(), starts, np.append(starts, len(pairs))[1:], strict=True):
        row, number = divmod(code, len(groups))
        if row != last:
            image = images[row : row + 1].to(device)
            last, prepared = row, () if prepare is None else (prepare(image),)
        block = order[start:stop]
        block_texts = groups[number][1][torch.from_numpy(position_of[pairs[block, 1]])].to(device)
        block_scores = precise(similarity(image, block_texts, *prepared)[0]).cpu().numpy()
        scores = np.empty(len(pairs), dtype=block_scores.dtype) if scores is None else scores
        scores[block] = block_scores
    return np.empty(0, dtype=np.float32) if scores is None else scores


def reranked(
    similarity: nn.Module, images: Embeddings, texts: Embeddings, lists: Shortlists
) -> Mapping[Direction, Float[np.ndarray, "q m"]]:
    """Scores of every query's candidates by the second model, as its lists have them.

    Complexity:
        `pair_scores` of the pairs that either direction lists.
    """
    pairs = lists.pairs()
    scores = pair_scores(similarity, images, texts, pairs)
    return {direction: scores[positions] for direction, positions in lists.places(pairs).items()}


@dataclass(frozen=True)
class CandidateScores(ScoreSource):
    """Lists in their second order, followed by all other candidates in their first.

    Attributes:
        first: Scores of the first stage.
        lists: Candidates of every query, and what the second gave them; -1 stands for one that was listed and is no
            candidate here.
        scores: See `lists`.
    """

    first: ScoreSource
    lists: Shortlists
    scores: Mapping[Direction, Float[np.ndarray, "q m"]]

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> CandidateScores:
        """The chosen images and texts, in the order that they have among all; itself when those are all, in order.

        Nothing is listed anew: an item that is left out leaves its place in a list empty.
        """
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        sides: list[tuple[Direction, Rows, Rows]] = [("image_to_text", images, texts), ("text_to_image", texts, images)]
        lists = []
        for (direction, queries, candidates), count in zip(sides, self.shape[::-1], strict=True):
            # One position more: what an earlier cut has left out stays out.
            positions = np.full(count + 1, -1, dtype=np.int64)
            positions[candidates] = np.arange(len(candidates))
            lists.append(positions[self.lists.of(direction)[queries]])
        scores = {direction: self.scores[direction][queries] for direction, queries, _ in sides}
        return CandidateScores(self.first.part(images, texts), Shortlists(*lists), scores)

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


class RankingStage(NamedTuple):
    """A model's similarity, and its embeddings of all images and texts."""

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings


@dataclass(frozen=True)
class TwoStage(ScoreSource):
    """Scores of two models, of which the second scores only what the first lists.

    Attributes:
        candidates: Of each query, at most `most`.
        every: The second model's scores of all pairs, where they are computed.
        cached: What was listed and scored, by the rows of images and texts.
    """

    first: Embedded
    second: Embedded
    candidates: int
    most: int
    every: Matrix | None = None
    cached: dict[bytes, CandidateScores] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> CandidateScores:
        """The chosen items, each with candidates among the chosen ones."""
        key = images.tobytes() + texts.tobytes()
        if key not in self.cached:
            self.cached[key] = self._listed(images, texts)
        full = self.cached[key]
        scores = {direction: scores[:, : self.candidates] for direction, scores in full.scores.items()}
        return CandidateScores(full.first, full.lists.first(self.candidates), scores)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Of the full gallery."""
        yield from self.part(*(np.arange(count, dtype=np.int64) for count in self.shape)).blocks(direction)

    def _listed(self, images: Rows, texts: Rows) -> CandidateScores:
        rows, columns = torch.from_numpy(images), torch.from_numpy(texts)
        first, second = self.first, self.second
        lists = shortlists(first.similarity, first.images[rows], first.texts[columns], self.most, exact=first.exact)
        if self.every is None:
            scores = reranked(second.similarity, second.images[rows], second.texts[columns], lists)
        else:
            every = precise(self.every.part(images, texts).scores).numpy()
            scores = {
                "image_to_text": np.take_along_axis(every, lists.image_to_text, axis=1),
                "text_to_image": every[lists.text_to_image, np.arange(len(texts))[:, None]],
            }
        return CandidateScores(first.part(images, texts), lists, scores)


def evaluate_two_stage(
    first: RankingStage,
    second: RankingStage,
    pairs: Dataset,
    *,
    candidates: Sequence[int] = (100,),
    protocol: Protocol | None = None,
    extra: ExtraMetrics | None = None,
) -> Result:
    """How well two models together find partners: the first lists candidates, and the second orders them.

    A partner that is not among the candidates stands behind them all, where the first stage has it. What the second
    model scored, and what was missed, is under "two_stage" in `Result.about`; that of `also_folds` stands there by
    itself, as every set of folds has lists of its own. The loss is that of the first set.

    Args:
        candidates: How many a query; several make a sweep, for which the second model scores every pair once, so that
            the loss of each number against that is reported. Figures are those of the largest number.

    Raises:
        RequirementError: If there is no candidate to list, for a first stage whose vectors do not decide the score, and
            for people's judgements, which compare scores of different queries.
        ShapeError: For embeddings of other items.

    Complexity:
        The first model's similarity of all pairs twice, and the second's of the pairs that are listed.
    """
    protocol, extra, counts = protocol or Protocol(), extra or ExtraMetrics(), sorted(set(candidates))
    require_plan(counts, extra)
    if not first.similarity.indexable:
        raise RequirementError(
            f"a first stage needs a model whose vectors decide the score; {type(first.similarity).__name__} scores "
            "pairs; take a dual encoder first, and this one second"
        )
    for stage in (first, second):
        sizes = (len(stage.images), len(stage.texts))
        if sizes != (len(pairs.images), len(pairs.texts)):
            raise ShapeError(
                f"two stages need embeddings of {len(pairs.images)} pictures and {len(pairs.texts)} texts; it got "
                f"{sizes}"
            )
    fast, two = (Embedded(*stage, exact=protocol.exact) for stage in (first, second))
    gallery = galleries.of_pairs(pairs)
    every = two.stored() if len(counts) > 1 else None
    plan = TwoStage(fast, two, candidates=counts[-1], most=counts[-1], every=every)
    result = measured(plan, gallery, protocol, extra)
    stages = _described(plan, result, gallery, protocol)
    if every is not None:
        stages |= _sweep(plan, every, counts, gallery, replace(protocol, bootstrap=0))
    return replace(result, about={**result.about, "two_stage": stages}, notes=(*_notes(stages), *result.notes))


def require_plan(candidates: Sequence[int], extra: ExtraMetrics) -> None:
    """Raise RequirementError for what two stages cannot do, before either model has embedded anything."""
    if not candidates or min(candidates) < 1:
        raise RequirementError(f"two stages need 1 candidate a query or more; it got {list(candidates)}")
    if extra.ratings is not None:
        raise RequirementError("people's scores need one model's; two stages order each query by itself; leave one out")


def _sweep(
    plan: TwoStage, every: Matrix, counts: Sequence[int], gallery: Gallery, protocol: Protocol
) -> dict[str, Any]:
    """What each number of candidates loses against scoring every pair, and the smallest that loses little enough."""
    exhaustive = measured(every, gallery, protocol, ExtraMetrics())
    k = min(protocol.recall)
    rows = []
    for count in counts:
        cut = replace(plan, candidates=count)
        result = measured(cut, gallery, protocol, ExtraMetrics())
        names = {str(direction): f"{direction}/recall@{k}" for direction in DIRECTIONS}
        lost = {direction: exhaustive.figures[name] - result.figures[name] for direction, name in names.items()}
        rows.append({**_described(cut, result, gallery, protocol), "lost": lost})

    def enough(directions: Sequence[Direction]) -> int | None:
        fits = (row["candidates"] for row in rows if max(row["lost"][direction] for direction in directions) <= LOSS)
        return next(fits, None)

    return {
        "sweep": rows,
        "exhaustive": _recalls(exhaustive),
        "allowed": {"recall": k, "points": LOSS},
        "enough": enough(DIRECTIONS),
        "enough_of": {str(direction): enough([direction]) for direction in DIRECTIONS},
    }


def _described(plan: TwoStage, result: Result, gallery: Gallery, protocol: Protocol) -> dict[str, Any]:
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

    A pair that both directions list is counted once in "together".
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


def _notes(stages: Mapping[str, Any]) -> list[str]:
    """What each set of folds cost and missed."""
    more_folds = stages.get("also_folds", {})
    notes = []
    for cost in (stages, *more_folds.values()):
        missed, share, folds = cost["missed"], cost["share_of_pairs"], cost["folds"]
        folds_label = "whole" if folds == 1 else f"{folds} folds"
        subject = "two stages" if folds == 1 and not more_folds else f"two stages, {folds_label}"
        notes += [
            f"{subject}: the second model scored {cost['pairs']['together']:,} pairs, {100 * share['together']:.1f} % "
            f"of all{' within a fold' if folds > 1 else ''} (1 in {1 / share['image_to_text']:.0f} for pictures, "
            f"1 in {1 / share['text_to_image']:.0f} for texts)",
            f"{subject}: no partner was listed of {missed['image_to_text']:.1f} % of the pictures and "
            f"{missed['text_to_image']:.1f} % of the texts; they count as misses",
        ]
    # A sweep takes its scores from those of every pair.
    return notes if "sweep" in stages else [*notes, _ROUNDING]


def sweep_text(result: Result) -> list[str]:
    """The sweep as a table, and how many candidates are enough; nothing where there was none."""
    stages = result.about.get("two_stage", {})
    if "sweep" not in stages:
        return []
    directions = {"image_to_text": "images", "text_to_image": "texts"}
    allowed = stages["allowed"]
    k = allowed["recall"]
    shown = sorted({k, max(result.protocol["recall"])})
    head = ["candidates", "pairs scored, %"]
    for query in directions.values():
        first, *others = (f"R@{cut}" for cut in shown)
        head += [f"{query}: {first}", *others, "missed, %", f"R@{k} lost"]
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
    enough = stages["enough"]
    verdict = "none of these numbers is enough" if enough is None else f"{enough} candidates are enough"
    images, texts = (stages["enough_of"][direction] or "none" for direction in directions)
    return [
        table(head, [*rows, every]),
        f"{verdict}: at most {allowed['points']:g} points of R@{k} lost in each direction "
        f"(image queries: {images}, text queries: {texts})",
    ]


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
