"""The objective: which comparison each term reads, how its values are reduced, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from subtext.core import DIRECTIONS, Comparison, Direction, Epoch, Scene
from subtext.errors import RequirementError, ShapeError

Reduction = Literal["sum", "mean", "mean over cells"]
EDITED: Mapping[str, str] = {
    "image_to_noised": "image_to_text",
    "image_to_rewritten": "",
    "rewritten_to_image": "",
    "image_to_random": "image_to_text",
}
"""Comparisons with generated or random texts -> the comparison that replaces them where there are none."""
Share = float | Mapping[str, float]
"""In (0, 1]: share of the batch's queries in this process; one number, or one per direction, by its name."""

Loss = Callable[[Comparison], Tensor]
"""Comparison -> (Q) values, one per query, not reduced, differentiable."""
Regulariser = Callable[[Scene], Tensor]
"""Scene -> one value of the batch; never weighted by sample."""
Mining = Callable[[Scene, Epoch], Comparison]
"""Scene, Epoch -> the comparison that a loss reads: with fewer negatives or weighted scores."""
Weighting = Callable[[Scene, Epoch], Tensor]
"""Scene, Epoch -> (Q) weights >= 0 without gradient, keyed by pair."""


@dataclass(frozen=True)
class WeightTotal:
    """Base of weightings whose weights have a known sum over the batch.

    Attributes:
        total: The sum of the weights over the batch, above 0; lambda of Thomas and Kovashka 2022, 96 to 196 at B = 32.
        direction: Direction whose queries are weighted.
        batch: Number of pairs that `total` is for: a batch of B has total * B / batch; 0: `total` for every batch.

    Raises:
        RequirementError: If total is not above 0, or batch is below 0.
    """

    total: float
    direction: Direction = DIRECTIONS[0]
    batch: int = 0

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not self.total > 0:
            raise RequirementError(f"{name} needs a total above 0; it got {self.total}")
        if self.batch < 0:
            raise RequirementError(f"{name} needs a batch of 0 or more pairs; it got {self.batch}")

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch.

        Args:
            pairs: Number of pairs in the batch.

        Returns:
            The sum, above 0.
        """
        return self.total * pairs / self.batch if self.batch else self.total


@dataclass(frozen=True)
class Term:
    """One loss on one comparison.

    Args:
        loss: Comparison -> one value per query.
        on: The name of a comparison of the Scene.
        weight: Coefficient in the sum.
        reduction: Over the queries: their sum, their mean, or the sum over Q x C (the PVSE papers' mean over all
            cells).
        weighting: Sample weights, applied before the reduction; None: all weights are 1.
        from_epoch: First epoch, from 0, that uses the term.
        until_epoch: First epoch that no longer uses it; None: to the end.
        mining: Selects the input of the loss, such as sampled negatives; None: the full comparison.
        unmined: The loss where mining has no bank and changes nothing; None: the same loss.

    Raises:
        ShapeError: If the loss does not return one value per query, or the weighting one weight per query.
        RequirementError: If the scene lacks the comparison, and what loss, weighting and mining raise.
    """

    loss: Loss
    on: str
    weight: float = 1.0
    reduction: Reduction = "mean"
    weighting: Weighting | None = None
    from_epoch: int = 0
    until_epoch: int | None = None
    mining: Mining | None = None
    unmined: Loss | None = None

    def __call__(self, scene: Scene, epoch: Epoch, *, share: Share = 1.0) -> Tensor:
        """The term's value in the objective.

        Args:
            scene: The comparisons of the batch.
            epoch: Number and seed, tables and banks.
            share: In (0, 1]: this process's share of the batch's queries.

        Returns:
            () the value; zero, without gradient, in epochs outside the term's range.

        Raises:
            ShapeError: If the loss does not return one value per query, or the weighting one weight per query.
        """
        comparison = scene.comparison(self.on)
        if epoch.number < self.from_epoch or (self.until_epoch is not None and epoch.number >= self.until_epoch):
            return comparison.scores.new_zeros(())
        mined = comparison if self.mining is None else self.mining(scene, epoch)
        values = (self.unmined if self.unmined is not None and mined is comparison else self.loss)(mined)
        if values.shape != comparison.scores.shape[:1] and values.shape != mined.scores.shape[:1]:
            raise ShapeError(
                f"the loss {type(self.loss).__name__} of '{self.on}' needs one value per query, "
                f"{tuple(mined.scores.shape[:1])}; it returned {tuple(values.shape)}"
            )
        if self.weighting is not None:
            sample_weight = self.weighting(scene, epoch).detach()
            if sample_weight.shape != values.shape:
                raise ShapeError(
                    f"the weighting of '{self.on}' needs one weight a query, {tuple(values.shape)}; "
                    f"it gave {tuple(sample_weight.shape)}"
                )
            values = values * sample_weight
        queries, candidates = comparison.scores.shape
        part = _share(share, self.on)
        scale = {"sum": 1.0, "mean": part / queries, "mean over cells": part / (queries * candidates)}[self.reduction]
        return self.weight * scale * values.sum()


@dataclass(frozen=True)
class Penalty:
    """A regulariser and its coefficient.

    Args:
        regulariser: Scene -> one value.
        weight: Coefficient in the sum.
        share_of: The direction whose queries it averages; any, where it reads the full batch.
    """

    regulariser: Regulariser
    weight: float
    share_of: str = "image_to_text"

    def __call__(self, scene: Scene, epoch: Epoch, *, share: Share = 1.0) -> Tensor:
        """The penalty's value in the objective.

        Args:
            scene: The comparisons of the batch.
            epoch: Not read.
            share: In (0, 1]: this process's share of the batch's queries.

        Returns:
            () the value.
        """
        return self.weight * _share(share, self.share_of) * self.regulariser(scene)


@dataclass(frozen=True)
class Objective:
    """A sum of named terms and penalties.

    Where several processes share a batch, each compares its own queries with all candidates. `share` is its part of the
    batch's queries: the values of all processes sum to that of the full batch.

    Args:
        parts: Terms and penalties by name.
    """

    parts: dict[str, Term | Penalty]

    def __call__(self, scene: Scene, epoch: Epoch, *, share: Share = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
        """The value of the objective.

        Args:
            scene: The comparisons of the batch.
            epoch: Number and seed, tables and banks.
            share: In (0, 1]: this process's share of the batch's queries.

        Returns:
            () the sum, and () the value of each part by name, detached.
        """
        values = {name: part(scene, epoch, share=share) for name, part in self.parts.items()}
        total = torch.stack(list(values.values())).sum()
        return total, {name: value.detach() for name, value in values.items()}

    def of_pairs(self) -> Objective:
        """The objective without terms that need neighbours or generated texts.

        Returns:
            The Objective; terms on an edited comparison read the plain one where there is one.
        """
        parts: dict[str, Term | Penalty] = {}
        for name, part in self.parts.items():
            if isinstance(part, Penalty):
                parts[name] = part
            elif not part.on.endswith("_neighbours") and (plain := EDITED.get(part.on, part.on)):
                parts[name] = replace(part, on=plain)
        return replace(self, parts=parts)


def _share(share: Share, comparison: str) -> float:
    if not isinstance(share, Mapping):
        return share
    return share["image_to_text" if comparison.startswith("image") else "text_to_image"]
