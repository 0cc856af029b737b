"""Two stages measured: a second model re-orders what a first one found, and a partner that was not found is a miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext import reranking
from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.data.pairs import Pairs
from subtext.errors import RequirementError, ShapeError
from subtext.evaluate import gallery as galleries
from subtext.evaluate.folds import measured
from subtext.evaluate.further import Further
from subtext.evaluate.protocol import Protocol
from subtext.evaluate.result import Result
from subtext.evaluate.source import Block, Embedded, Matrix, Rows, Source
from subtext.evaluate.values import RANK
from subtext.ops.rank import Counts, best_of
from subtext.relevance.match import Match

LOSS = 0.2
"""Points of R@1 that a plan may lose against scoring every pair, in each direction, to be called enough."""

_ROUNDING = (
    "two stages: the second model's scores may differ from those of scoring every pair by 1e-6 of their size, and so "
    "may ranks that hang on less"
)


class Stage(NamedTuple):
    """A model's similarity, and its embeddings of all pictures and texts."""

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings


@dataclass(frozen=True)
class Listed:
    """Lists in their second order, followed by all other candidates in their first.

    first   scores of the first stage       lists, scores  candidates of every query, and what the second gave them
    """

    first: Source
    lists: reranking.Shortlists
    scores: Mapping[Direction, Float[np.ndarray, "q m"]]

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> Listed:
        """Itself: it is a part already."""
        return self

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
        known = scores[np.isfinite(scores)]
        below = float(known.min()) - 1 if len(known) else 0.0
        for start, stop, block in self.first.blocks(direction):
            highest = torch.nan_to_num(block, nan=-torch.inf).amax(dim=1, keepdim=True).double()
            whole = block.to(torch.float64, copy=True).sub_(highest - below)
            whole.scatter_(1, torch.from_numpy(lists[start:stop]), torch.from_numpy(scores[start:stop]).double())
            yield start, stop, whole


@dataclass(frozen=True)
class TwoStage:
    """Scores of two models, of which the second is asked about what the first found alone.

    candidates  of each query, at most `most`
    every       the second model's scores of all pairs, where they are known
    known       what was listed and scored, fold by fold
    """

    first: Embedded
    second: Embedded
    candidates: int
    most: int
    every: Float[Tensor, "i t"] | None = None
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
        whole = self.known[key]
        scores = {direction: scores[:, : self.candidates] for direction, scores in whole.scores.items()}
        return Listed(whole.first, whole.lists.first(self.candidates), scores)

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Of the whole gallery."""
        return self._whole().counts(match, stable=stable)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Of the whole gallery."""
        yield from self._whole().blocks(direction)

    def pairs(self) -> dict[str, int]:
        """How many pairs the second model scores: of each direction, and of both, a shared pair counted once."""
        lists = [listed.lists.first(self.candidates) for listed in self.known.values()]
        found = {str(direction): sum(each.of(direction).size for each in lists) for direction in DIRECTIONS}
        return {**found, "together": sum(len(each.pairs()) for each in lists)}

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
            others = self.second.images[rows], self.second.texts[columns]
            scores = reranking.reranked(self.second.similarity, *others, lists)
        else:
            every = self.every[rows][:, columns].float().numpy()
            asked = np.arange(len(texts))[:, None]
            scores = {
                "image_to_text": np.take_along_axis(every, lists.image_to_text, axis=1),
                "text_to_image": every[lists.text_to_image, asked],
            }
        return Listed(self.first.part(images, texts), lists, scores)


def evaluate_two_stage(
    first: Stage,
    second: Stage,
    pairs: Pairs,
    *,
    candidates: Sequence[int] = (100,),
    protocol: Protocol | None = None,
    further: Further | None = None,
) -> Result:
    """How well two models together find partners: the first lists candidates, and the second orders them.

    candidates  how many a query; several make a sweep, for which the second model scores every pair once, so that the
                loss of each number against that is told. Figures are those of the largest number

    A partner that is not among the candidates stands behind them all, where the first stage had it. What the second
    model was asked, and what was missed, is under "two_stage" in `Result.about`.

    Raises RequirementError where there is no candidate to list, for a first stage whose vectors do not decide the
    score, and for people's judgements, which compare scores of different queries.
    Cost   the first model's similarity of all pairs twice, and the second's of the pairs that are listed.
    """
    asked, more, counts = protocol or Protocol(), further or Further(), sorted(set(candidates))
    require_plan(counts, more)
    _require(first, second, pairs)
    one, two = (Embedded(*stage, exact=asked.exact) for stage in (first, second))
    gallery = galleries.of_pairs(pairs)
    whole: Result | None = None
    every: Tensor | None = None
    if len(counts) > 1:
        source = _matrix(two)
        every = source.scores
        whole = measured(source, gallery, replace(asked, bootstrap=0), Further())
    plan = TwoStage(one, two, candidates=counts[-1], most=counts[-1], every=every)
    result = measured(plan, gallery, asked, more)
    told: dict[str, Any] = _told(plan, result)
    if whole is not None:
        rows = []
        for count in counts:
            cut = replace(plan, candidates=count)
            found = measured(cut, gallery, replace(asked, bootstrap=0), Further())
            rows.append({**_told(cut, found), **_lost(found, whole)})
        enough = [row["candidates"] for row in rows if max(row["lost"].values()) <= LOSS]
        told |= {"sweep": rows, "exhaustive": _recalls(whole), "enough": enough[0] if enough else None}
    return replace(result, about={**result.about, "two_stage": told}, notes=(*_notes(told), *result.notes))


def require_plan(candidates: Sequence[int], further: Further) -> None:
    """Raise RequirementError for what two stages cannot be asked, before either model has embedded anything."""
    if not candidates or min(candidates) < 1:
        raise RequirementError(f"two stages need 1 candidate a query or more; it got {list(candidates)}")
    if further.human is not None:
        raise RequirementError("people's scores need one model's; two stages order each query by itself; leave one out")


def _require(first: Stage, second: Stage, pairs: Pairs) -> None:
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


def _matrix(stage: Embedded) -> Matrix:
    """All scores of a model, kept."""
    images, texts = stage.shape
    whole = replace(
        stage, stored_bytes=max(stage.stored_bytes, 4 * images * texts if stage.similarity.indexable else 0)
    )
    found = whole.part(np.arange(images, dtype=np.int64), np.arange(texts, dtype=np.int64))
    assert isinstance(found, Matrix)
    return found


def _told(plan: TwoStage, found: Result) -> dict[str, Any]:
    pairs = plan.pairs()
    # Folds score fewer pairs than the whole gallery has: each is a gallery of its own.
    every = sum(listed.shape[0] * listed.shape[1] for listed in plan.known.values())
    ranks = {str(direction): found.per_query[f"{direction}/{RANK}"] for direction in DIRECTIONS}
    return {
        "candidates": plan.candidates,
        "pairs": pairs,
        "share_of_pairs": {name: count / every for name, count in pairs.items()},
        "missed": {
            name: 100 * float((rank > plan.candidates).sum() / (~np.isnan(rank)).sum()) for name, rank in ranks.items()
        },
        **_recalls(found),
    }


def _recalls(found: Result) -> dict[str, float]:
    return {name: value for name, value in found.figures.items() if "/recall@" in name or name == "rsum"}


def _lost(found: Result, whole: Result) -> dict[str, dict[str, float]]:
    """Points of R@1 below the second model's on every pair; below 0 where it is above."""
    names = {str(direction): f"{direction}/recall@1" for direction in DIRECTIONS}
    first = {key: name if name in whole.figures else _smallest(whole, key) for key, name in names.items()}
    return {"lost": {key: whole.figures[name] - found.figures[name] for key, name in first.items()}}


def _smallest(whole: Result, direction: str) -> str:
    """The recall of the fewest places, where that is not one."""
    names = [name for name in whole.figures if name.startswith(f"{direction}/recall@")]
    return min(names, key=lambda name: int(name.partition("@")[2].partition("(")[0]))


def _notes(told: Mapping[str, Any]) -> list[str]:
    missed, share = told["missed"], told["share_of_pairs"]
    return [
        f"two stages: the second model scored {told['pairs']['together']:,} pairs, {100 * share['together']:.1f} % of "
        f"all (1 in {1 / share['image_to_text']:.0f} for pictures, 1 in {1 / share['text_to_image']:.0f} for texts)",
        f"two stages: no partner was listed of {missed['image_to_text']:.1f} % of the pictures and "
        f"{missed['text_to_image']:.1f} % of the texts; they count as misses",
        # A sweep takes its scores from those of every pair.
        *([] if "sweep" in told else [_ROUNDING]),
    ]
