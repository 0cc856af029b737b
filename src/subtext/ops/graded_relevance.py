"""Graded relevance of a Comparison, for the metrics that need it."""

from __future__ import annotations

import torch
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError


def graded_relevance(comparison: Comparison, metric: str, *, least: float | None = None) -> Tensor:
    """Relevance (Q C): finite, and at least `least` where that is given.

    Raises RequirementError, with the name of the metric, when there is none or a value is out of range.
    """
    relevance = comparison.truth.relevance
    if relevance is None:
        raise RequirementError(
            f"{metric} needs graded relevance in its truth; it got none; build the truth with one (relevance.tfidf, "
            "relevance.cider ...)"
        )
    if not relevance.isfinite().all():
        raise RequirementError(
            f"{metric} needs finite relevance; {int((~relevance.isfinite()).sum())} of {comparison.truth.scale} are not"
        )
    if least is not None and relevance.numel() and float(relevance.min()) < least:
        raise RequirementError(
            f"{metric} needs relevance of {least:g} or more; the least of '{comparison.truth.scale}' is "
            f"{float(relevance.min()):g}"
        )
    return relevance.detach().cpu().to(torch.float64 if relevance.dtype == torch.float64 else torch.float32)
