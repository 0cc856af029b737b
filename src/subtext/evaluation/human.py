"""Whether a model's scores order pairs as people do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Judgements
from subtext.errors import DataError
from subtext.evaluation.metrics.agreement import kendall, spearman
from subtext.evaluation.metrics.detection import auc
from subtext.evaluation.scoring import Source


def agreement(source: Source, human: Judgements, rated: float | None = None) -> dict[str, float]:
    """Spearman's and Kendall's correlation with people's scores, and AUC for pairs that people rated high enough.

    rated  from which score people say yes; None for the middle between their lowest and highest

    A figure that has no meaning (all rated alike) is left out.

    Raises DataError when there are fewer than two judged pairs.
    Cost   one read of the scores.
    """
    if len(human.scores) < 2:
        raise DataError(f"agreement with people needs two judged pairs or more; it got {len(human.scores)}")
    mine = np.empty(len(human.scores), dtype=np.float64)
    for start, stop, scores in source.blocks("image_to_text"):
        here = (human.images >= start) & (human.images < stop)
        mine[here] = scores.float().numpy()[human.images[here] - start, human.texts[here]]
    theirs: NDArray[np.float64] = human.scores.astype(np.float64)
    middle = (theirs.min() + theirs.max()) / 2 if rated is None else rated
    found = {
        "human/spearman": spearman(mine, theirs),
        "human/kendall": kendall(mine, theirs),
        "human/auc": auc(mine, theirs >= middle),
        "human/pairs": float(len(theirs)),
    }
    return {name: value for name, value in found.items() if not np.isnan(value)}
