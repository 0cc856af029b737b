"""Alignment and uniformity of a joint space (Wang and Isola 2020), as figures of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from subtext.evaluation.metric import Measure


@dataclass(frozen=True)
class AlignmentUniformity(Measure):
    """How near partners are in the joint space, and how far apart all others.

    The figures are those of `evaluation.checks.space`; an evaluation of embeddings computes them.

    Args:
        of_pairs: Measure the vectors that a model makes of an item together with its partner (AsCL with attention),
            instead of one vector per item.
    """

    of_pairs: bool = False

    truth = "space"
    sort_order = 200
    pattern = r"(?P<of_pairs>pair_)?alignment_uniformity"
