"""What a data set is good for: training needs something to learn from and to be measured on, evaluation a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from subtext.data.coverage import Coverage
from subtext.data.dataset import Dataset
from subtext.errors import counted


@dataclass(frozen=True)
class Verdict:
    """What was found.

    reasons  "train", "evaluate" -> why it is not good for that, in a sentence; empty when it is good for both
    splits   those in which an answer can be wrong; "all" where only the whole has two groups
    """

    reasons: dict[str, str]
    splits: list[str]


def judge(pairs: Dataset, covered: Sequence[Coverage] = ()) -> Verdict:
    """What the pairs are good for, in the splits that the features cover."""
    linked = set(map(str, pairs.images.splits[pairs.links[:, 0]]))
    known = linked.intersection(*(one.splits for one in covered))
    if not known:
        return unusable("the features cover no whole split")
    groups = {name: len(np.unique(pairs.images.groups[pairs.images.splits == name])) for name in sorted(known)}
    # Where there are judgements, pictures of one group differ in how well they suit a text.
    splits = [name for name, count in groups.items() if count > 1 or pairs.judgements is not None]
    if not splits and len(groups) > 1:
        splits = ["all"]
    have = ", ".join(f"'{name}' ({counted(count, 'group')})" for name, count in groups.items())
    reasons = {}
    if groups.get("train", 0) < 2:
        reasons["train"] = (
            "training needs two groups or more in the split 'train', since what is wrong is learnt from other pairs; "
            f"there is {have}"
        )
    elif "val" not in groups:
        reasons["train"] = (
            f"training needs a split 'val' to be measured on; there is {have}; name another (--val-split NAME), or "
            "train without (--val-split none)"
        )
    if not splits:
        reasons["evaluate"] = (
            f"evaluation needs two groups or more, since among one no answer is wrong; there is {have}"
        )
    return Verdict(reasons, splits)


def unusable(why: str) -> Verdict:
    """Good for nothing, for one reason."""
    return Verdict(dict.fromkeys(("train", "evaluate"), why), [])
