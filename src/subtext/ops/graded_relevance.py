"""The relevance of a Comparison, for metrics that read it."""

from __future__ import annotations

import torch
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError


def graded_relevance(comparison: Comparison, reader: str, *, least: float | None = None) -> Tensor:
    """The graded truth (Q C), finite, and at least `least` where that is given.

    Raises RequirementError that names the reader when there is none, or a value is out of range.
    """
    relevance = comparison.truth.relevance
    if relevance is None:
        raise RequirementError(
            f"{reader} needs graded relevance in its truth; it got none; build the truth with one (relevance.tfidf, "
            "relevance.cider ...)"
        )
    if not relevance.isfinite().all():
        raise RequirementError(
            f"{reader} needs finite relevance; {int((~relevance.isfinite()).sum())} of {comparison.truth.scale} are not"
        )
    if least is not None and relevance.numel() and float(relevance.min()) < least:
        raise RequirementError(
            f"{reader} needs relevance of {least:g} or more; the least of '{comparison.truth.scale}' is "
            f"{float(relevance.min()):g}"
        )
    return relevance.detach().cpu().to(torch.float64 if relevance.dtype == torch.float64 else torch.float32)
