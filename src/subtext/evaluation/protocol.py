"""Protocol: how an evaluation is done, stated with its figures."""

from __future__ import annotations

from dataclasses import dataclass

from subtext.errors import RequirementError
from subtext.ops.rank import Ties


@dataclass(frozen=True)
class Protocol:
    """How an evaluation is done.

    recall     the k of recall@k; RSUM is the sum over these and both directions
    ties       where a partner stands among candidates of its own score: behind all ("pessimistic"), before all
               ("optimistic"), at a random place ("expected"), or by position ("stable")
    folds      how many consecutive blocks the pictures are cut into, each with the texts of its pictures; figures are
               means over blocks. COCO's "1K" is 5 folds of 5,000 pictures
    also_folds further numbers of folds, measured from the same scores; the names of their figures end in "(1k)" where a
               fold has 1,000 pictures, else in "(N folds)"
    c_way      the c of the c-way choices; one that the gallery is too small for is left out, and a note says so
    sampled    c-way by one seeded draw of distractors a query, as the papers did, instead of the mean over all draws
    seed       of bootstrap samples and of sampled choices
    bootstrap  resamplings of pictures behind the 95 % intervals; 0 for none
    exact      scores in fixed tiles, equal to the bit for any block size and order; slower

    Raises RequirementError for numbers that mean nothing.
    """

    recall: tuple[int, ...] = (1, 5, 10)
    ties: Ties = "pessimistic"
    folds: int = 1
    also_folds: tuple[int, ...] = ()
    c_way: tuple[int, ...] = (5, 20)
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
        if self.sampled and self.ties == "expected":
            raise RequirementError("sampled c-way choice needs an order of ties; it got 'expected'; leave one of them")
