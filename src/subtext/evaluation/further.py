"""What an evaluation measures beyond who stands first: order by relevance, all positives, hubs, people's judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Judgements
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.relevance.plausible import Labelled
from subtext.ops.semantic_rank import RankTies

ZETA = (0, 1, 2)
"""Labels in which plausible pictures may differ (PMRP)."""


@dataclass(frozen=True)
class Further:
    """What is measured beyond the protocol's recall, ranks and choices; by default nothing.

    relevances  each gives asp(NAME), gain@k(NAME) and ndcg@k(NAME), both directions
    truths      name -> another reading of what is right ("eccv", "cxc"): recall@k(NAME), r_precision(NAME), map@r(NAME)
    precision   r_precision and map@r of the pairs themselves
    labels      labels of the pictures, for pmrp
    human       people's scores of pairs, for human/spearman, human/kendall and human/auc
    rated       score from which people say yes, for the last of these; None for the middle of their range
    lengths     (T) words of each text, for recall@k(words LOW-HIGH) of texts
    hubness     k of hubness@k, the skewness of how often each candidate is among the first k; 0 for none
    asp_ties    ranks of equal values        top   N of asp@N(NAME), over the N most relevant
    gain, ndcg  their k; a relevance below 0 counts as 0 in them

    Raises RequirementError for numbers that mean nothing, and for two relevances of one name.
    """

    relevances: tuple[Graded, ...] = ()
    truths: Mapping[str, Match] = field(default_factory=dict)
    precision: bool = False
    labels: Labelled | None = None
    human: Judgements | None = None
    rated: float | None = None
    lengths: NDArray[np.int64] | None = None
    hubness: int = 0
    asp_ties: RankTies = "ordinal"
    top: tuple[int, ...] = ()
    gain: tuple[int, ...] = (5, 10, 20)
    ndcg: tuple[int, ...] = (10,)

    def __post_init__(self) -> None:
        names = [graded.name for graded in self.relevances]
        if len(set(names)) < len(names):
            raise RequirementError(f"relevances need names of their own; it got {', '.join(names)}")
        if min((*self.top, *self.gain, *self.ndcg, 1)) < 1 or self.hubness < 0:
            raise RequirementError(
                f"top, gain and ndcg need numbers of 1 or more, hubness of 0 or more; it got {self.top}, {self.gain}, "
                f"{self.ndcg} and {self.hubness}"
            )

    @property
    def empty(self) -> bool:
        """Whether nothing is asked for."""
        return not (self.relevances or self.truths or self.precision or self.labels or self.human or self.hubness)

    def require(self, shape: tuple[int, int]) -> None:
        """Raise ShapeError unless every relevance and truth is of so many pictures and texts."""
        for graded in self.relevances:
            if graded.shape != shape:
                raise ShapeError(
                    f"the relevance {graded.name} must be (pictures, texts) = {shape} as the scores are; it got "
                    f"{graded.shape}; compute it from the split that is evaluated"
                )
        for name, match in self.truths.items():
            if (found := (len(match.image_to_text), len(match.text_to_image))) != shape:
                raise ShapeError(f"the truth {name} must be of {shape} pictures and texts; it got {found}")

    def part(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Further:
        """The same for the chosen pictures and texts of one fold."""
        return replace(
            self,
            relevances=tuple(graded.take(images, texts) for graded in self.relevances),
            truths={name: match.take(images, texts) for name, match in self.truths.items()},
            labels=None if self.labels is None else _labels(self.labels, images, texts),
        )

    def stated(self) -> dict[str, Any]:
        """For the protocol of a result."""
        return {
            "relevances": [graded.name for graded in self.relevances],
            "truths": list(self.truths),
            "asp": {"ties": self.asp_ties, "of": "all candidates of a fold, partners among them"},
            "top": list(self.top),
            "gain": list(self.gain),
            "ndcg": list(self.ndcg),
            "pmrp_zeta": list(ZETA) if self.labels is not None else [],
        }


def _labels(labels: Labelled, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Labelled | None:
    """The labelled items among the chosen ones, numbered anew; None where no picture is."""
    kept: dict[str, NDArray[np.int64]] = {}
    for name, rows, chosen in (("image", labels.image_rows, images), ("text", labels.text_rows, texts)):
        place = np.full(max(int(rows.max(initial=-1)), int(chosen.max(initial=-1))) + 1, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        there = place[rows] >= 0
        kept |= {f"{name}_rows": place[rows][there], f"{name}_codes": getattr(labels, f"{name}_codes")[there]}
    return replace(labels, **kept) if len(kept["image_rows"]) and len(kept["text_rows"]) else None
