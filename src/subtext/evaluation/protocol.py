"""Protocol: how an evaluation is done, stated with its figures.

What an evaluation measures beyond who stands first: order by relevance, all positives, hubs, people's judgements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Judgements
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.metric import Metric
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.relevance.plausible import Labelled
from subtext.ops.rank import Ties
from subtext.ops.semantic_rank import RankTies


@dataclass(frozen=True)
class Protocol:
    """How an evaluation is done.

    Attributes:
        recall: The k of recall@k; RSUM is the sum over these and both directions.
        ties: Where a partner stands among candidates of its own score: behind all ("pessimistic"), before all
            ("optimistic"), at a random place ("expected"), or by position ("stable").
        folds: How many consecutive blocks the pictures are cut into, each with the texts of its pictures; figures are
            means over blocks. COCO's "1K" is 5 folds of 5,000 pictures.
        also_folds: Further numbers of folds, measured from the same scores; the names of their figures end in "(1k)"
            where a fold has 1,000 pictures, else in "(N folds)".
        c_way: The c of the c-way choices; one that the gallery is too small for is left out, and a note says so.
        c_way_best: Also c-way choices whose truth is the best-scored of several positives, as figures of their own;
            without it each positive is a question of its own, as in the papers.
        sampled: C-way by one seeded draw of distractors a query, as the papers did, instead of the mean over all draws.
        seed: Of bootstrap samples and of sampled choices.
        bootstrap: Resamplings of pictures behind the 95 % intervals; 0 for none.
        exact: Scores in fixed tiles, equal to the bit for any block size and order; slower.

    Raises:
        RequirementError: For numbers that mean nothing.
    """

    recall: tuple[int, ...] = (1, 5, 10)
    ties: Ties = "pessimistic"
    folds: int = 1
    also_folds: tuple[int, ...] = ()
    c_way: tuple[int, ...] = (5, 20)
    c_way_best: bool = False
    sampled: bool = False
    seed: int = 0
    bootstrap: int = 1000
    exact: bool = False

    def __post_init__(self) -> None:
        if not self.recall or min(self.recall) < 1:
            raise RequirementError(f"recall needs at least one k, each 1 or more; it got {self.recall}")
        if self.c_way and min(self.c_way) < 2:
            raise RequirementError(f"c-way choice needs c of 2 or more; it got {self.c_way}")
        every = (self.folds, *self.also_folds)
        if min(every) < 1 or len(set(every)) < len(every):
            raise RequirementError(f"folds need to be 1 or more, each once; it got {every}")
        if self.bootstrap < 0:
            raise RequirementError(f"bootstrap needs to be 0 or more; it got {self.bootstrap}")
        if self.ties not in ("pessimistic", "optimistic", "expected", "stable"):
            raise RequirementError(
                f"ties need 'pessimistic', 'optimistic', 'expected' or 'stable'; it got '{self.ties}'"
            )
        if self.sampled and self.c_way_best:
            raise RequirementError("c_way_best needs choices in closed form; it got sampled ones; leave one of them")
        if self.sampled and self.ties == "expected":
            raise RequirementError("sampled c-way choice needs an order of ties; it got 'expected'; leave one of them")


@dataclass(frozen=True)
class ExtraMetrics:
    """What is measured beyond the protocol's recall, ranks and choices; by default nothing.

    Attributes:
        relevances: Each gives asp(NAME), gain@k(NAME) and ndcg@k(NAME), both directions.
        truths: Name -> another set of positives ("eccv", "cxc"): recall@k(NAME), r_precision(NAME), map@r(NAME).
        r_precision: r_precision and map@r of the pairs themselves.
        labels: Labels of the images, for pmrp.
        ratings: People's ratings of pairs, for human/spearman, human/kendall and human/auc.
        positive_rating: Rating from which a pair counts as positive in human/auc; None for the middle of their range.
        lengths: (T) words of each text, for recall@k(words LOW-HIGH) of texts.
        hubness: k of hubness@k, the skewness of how often each candidate is among the first k; 0 for none.
        asp_ties: Ranks of equal values.
        asp_top: N of asp@N(NAME), over the N most relevant.
        gain: Their k.
        ndcg: A relevance below 0 counts as 0 in them.
        metrics: Further metrics of your own, each an instance of `metric.Metric`.

    Raises:
        RequirementError: For numbers that mean nothing, and for two relevances of one name.
    """

    relevances: tuple[Graded, ...] = ()
    truths: Mapping[str, Match] = field(default_factory=dict)
    r_precision: bool = False
    labels: Labelled | None = None
    ratings: Judgements | None = None
    positive_rating: float | None = None
    lengths: NDArray[np.int64] | None = None
    hubness: int = 0
    asp_ties: RankTies = "ordinal"
    asp_top: tuple[int, ...] = ()
    gain: tuple[int, ...] = (5, 10, 20)
    ndcg: tuple[int, ...] = (10,)
    metrics: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        names = [graded.name for graded in self.relevances]
        if len(set(names)) < len(names):
            raise RequirementError(f"relevances need names of their own; it got {', '.join(names)}")
        if min((*self.asp_top, *self.gain, *self.ndcg, 1)) < 1 or self.hubness < 0:
            raise RequirementError(
                "asp_top, gain and ndcg need numbers of 1 or more, hubness of 0 or more; it got "
                f"{self.asp_top}, {self.gain}, {self.ndcg} and {self.hubness}"
            )

    @property
    def empty(self) -> bool:
        """Whether nothing is measured that reads the scores once more."""
        named = (self.relevances, self.truths, self.labels, self.ratings)
        return not (any(named) or self.r_precision or self.hubness or self.metrics)

    def require(self, shape: tuple[int, int]) -> None:
        """Raise ShapeError unless every relevance and truth is of this many images and texts."""
        for graded in self.relevances:
            if graded.shape != shape:
                raise ShapeError(
                    f"the relevance {graded.name} must be (images, texts) = {shape} as the scores are; it got "
                    f"{graded.shape}; compute it from the split that is evaluated"
                )
        for name, match in self.truths.items():
            got = (len(match.image_to_text), len(match.text_to_image))
            if got != shape:
                raise ShapeError(f"the truth {name} must be of {shape} images and texts; it got {got}")

    def part(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> ExtraMetrics:
        """The same for the chosen images and texts of one fold."""
        return replace(
            self,
            relevances=tuple(graded.take(images, texts) for graded in self.relevances),
            truths={name: match.take(images, texts) for name, match in self.truths.items()},
            labels=None if self.labels is None else self.labels.take(images, texts),
        )

    def stated(self) -> dict[str, Any]:
        """For the protocol of a result."""
        return {
            "relevances": [graded.name for graded in self.relevances],
            "truths": list(self.truths),
            "asp": {"ties": self.asp_ties, "of": "all candidates of a fold, partners among them"},
            "top": list(self.asp_top),
            "gain": list(self.gain),
            "ndcg": list(self.ndcg),
            "pmrp_zeta": [0, 1, 2] if self.labels is not None else [],
        }
