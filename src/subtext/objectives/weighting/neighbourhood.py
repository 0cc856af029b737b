"""Weights of pairs from their semantic neighbourhoods: DIVERSITY, DISCREPANCY and both combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from subtext.core import Direction, Embeddings, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items, count_pairs, pairs_to_queries

Combine = Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"]
Placement = Literal["both", "outer", "inner", "scores"]
Statistics = Literal["none", "pooled", "each"]
_ONE_SOFTMAX = ("image", "text", "mean")
"""Values of `combine` without a second softmax, which do not read `placement`."""


@dataclass(frozen=True)
class Neighbourhood:
    """Neighbourhood weight (Thomas and Kovashka 2022, eq. 3-8): pairs whose neighbours agree with them count less.

    u_m(i) = sign * (diversity * DIV_m(i) + discrepancy * DIS_m(i))       for the images and for the texts, m
    a_m    = total * softmax(u_m)                                         over the pairs of the batch
    weight = total * softmax(|a_image - a_text|)
    DIV is the similarity of a pair's semantic neighbours to each other, DIS that of the pair to its neighbours'
    neighbours, both as inner products of stored embeddings. They come from tables of the epoch, by the row of the
    pair's text. Without tables, in the first epoch and in validation, all pairs have equal weights; a pair without a
    score gets the mean of its batch.

    The paper leaves the place of `total` open. Printed is total within a_m alone, which makes the weights numerically
    uniform and the loss `total` times smaller, against what the paper says of its size.

    total        lambda, the sum of the weights over a batch of `batch` pairs; 96 to 196 at 32 pairs in the paper
    diversity, discrepancy  beta and gamma; 1 and 0 is the paper's DIVERSITY, 0 and 1 its DISCREPANCY
    of           direction whose queries are weighted: a pair's two directions have the same weight
    sign         Gamma: -1 counts pairs in diverse neighbourhoods more, 1 less, 0 gives uniform weights
    combine      of the two modalities: |a_image - a_text|, their difference, sum, product or maximum; the weights of
                 one alone; or "mean", the softmax of the mean u, as eq. 7 and 8 are printed
    placement    of total: "both" in a_m and outside; "outer", "inner" (as printed) in one of them; "scores" outside,
                 with u_m in the place of a_m. Not read by image, text and mean, which have one softmax
    statistics   "pooled" multiplies beta and gamma by mean times standard deviation of the raw score over the data set
                 (eq. 8) and both modalities, "each" by those of its modality
    batch        pairs that `total` is for: others are given total * B / batch; 0: `total` whatever the batch
    current      DIS of the present embeddings, against stored embeddings of their neighbours' neighbours

    Takes     Scene of pairs, or of images with all their texts (an image then counts as the sum of its texts);
              Epoch.table with "diversity/image" and so on.
    Gives     (Q), sum over the batch `total` (1 for placement "inner"), without gradient.
    Raises    RequirementError for a total that is not above 0, and for tables or embeddings that are not there.
    Cost      time and memory B.

    >>> from subtext.core import Comparison, Truth
    >>> forward = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)), *[
    ...     Embeddings(torch.ones(2, 1, 1), torch.arange(2))] * 2)
    >>> table = {"diversity/image": torch.tensor([0.9, 0.5]), "diversity/text": torch.tensor([0.9, 0.5])}
    >>> weights = Neighbourhood(total=4.0, combine="text", batch=2)(Scene(forward, forward.flip()), Epoch(1, 0, table))
    >>> [round(weight, 3) for weight in weights.tolist()]  # 4 / (1 + exp(.4)) for the pair among alike neighbours
    [1.605, 2.395]
    """

    total: float
    diversity: float = 1.0
    discrepancy: float = 0.0
    of: Direction = "image_to_text"
    sign: float = -1.0
    combine: Combine = "absdiff"
    placement: Placement = "both"
    statistics: Statistics = "none"
    batch: int = 32
    current: bool = False

    def __post_init__(self) -> None:
        if not self.total > 0:
            raise RequirementError(f"Neighbourhood needs a total above 0; it got {self.total}")
        if self.batch < 0:
            raise RequirementError(f"Neighbourhood needs a batch of 0 or more pairs; it got {self.batch}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query."""
        queries, pairs = scene.comparison(self.of), count_pairs(scene)
        dtype = torch.promote_types(queries.scores.dtype, torch.float32)
        if epoch.table is None:
            logits = [torch.zeros(pairs, dtype=dtype, device=queries.scores.device)] * 2
        else:
            images, texts = batch_items(scene)
            if self.current and self.discrepancy and len(images) != len(texts):
                raise RequirementError(
                    "weights from present embeddings need an image for each text of the batch; it got "
                    f"{len(images)} images and {len(texts)} texts; take captions=all or one"
                )
            logits = [
                self._logits(modality, texts.ids, items, epoch).to(dtype)
                for modality, items in (("image", images), ("text", texts))
            ]
        total = self.sum_for(pairs)
        return pairs_to_queries(
            combined(*logits, total=total, combine=self.combine, placement=self.placement), scene, self.of
        )

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch of this many pairs."""
        return 1.0 if self.sums_to_one else self.sum_for(pairs)

    @property
    def sums_to_one(self) -> bool:
        """Whether `total` stands within the softmax alone, so that no total changes the sum of the weights."""
        return self.placement == "inner" and self.combine not in _ONE_SOFTMAX

    def sum_for(self, pairs: int) -> float:
        """Lambda for a batch of this many pairs."""
        return self.total * pairs / self.batch if self.batch else self.total

    def _logits(self, modality: str, rows: Tensor, items: Embeddings, epoch: Epoch) -> Tensor:
        """(B) u of one modality."""
        logits = torch.zeros((), device=rows.device)
        for name, coefficient in (("diversity", self.diversity), ("discrepancy", self.discrepancy)):
            if not coefficient or not self.sign:
                continue
            if self.current and name == "discrepancy":
                values = _current(items, rows, epoch, modality)
            else:
                values = _looked_up(epoch.table, f"{name}/{modality}", rows.device)[rows]
            if self.statistics != "none":
                whose = modality if self.statistics == "each" else "both"
                mean, deviation = _looked_up(epoch.table, f"moments/{name}/{whose}", rows.device)
                coefficient = coefficient * mean * deviation
            logits = logits + self.sign * coefficient * _imputed(values)
        return logits.expand(len(rows))


def combined(
    image: Float[Tensor, "b"], text: Float[Tensor, "b"], *, total: float, combine: Combine, placement: Placement
) -> Float[Tensor, "b"]:
    """Weights of the pairs of a batch from u of both modalities."""
    if combine in _ONE_SOFTMAX:
        chosen = {"image": image, "text": text, "mean": (image + text) / 2}[combine]
        return total * torch.softmax(chosen, dim=0)
    if placement == "scores":
        a, b = image, text
    else:
        inner = 1.0 if placement == "outer" else total
        a, b = inner * torch.softmax(image, dim=0), inner * torch.softmax(text, dim=0)
    joined = {
        "absdiff": (a - b).abs(),
        "difference": a - b,
        "sum": a + b,
        "product": a * b,
        "maximum": torch.maximum(a, b),
    }[combine]
    return (1.0 if placement == "inner" else total) * torch.softmax(joined, dim=0)


def _looked_up(table: Mapping[str, Tensor] | None, name: str, device: torch.device) -> Tensor:
    if not table or name not in table:
        have = ", ".join(sorted(table or {})) or "none"
        raise RequirementError(
            f"neighbourhood weights read the table '{name}' of an epoch; it has {have}; train with a method that "
            "supplies it (diversity, discrepancy, combined)"
        )
    return table[name].to(device)


def _current(items: Embeddings, rows: Int[Tensor, "b"], epoch: Epoch, modality: str) -> Tensor:
    """(B) discrepancy of the present embeddings."""
    bank = _looked_up({k: v.vectors for k, v in (epoch.bank or {}).items()}, f"discrepancy/{modality}", rows.device)
    vectors, neighbours = items.vectors.detach(), bank[rows]
    if neighbours.shape[1] == 1:
        vectors = vectors.mean(dim=1, keepdim=True)
    return (vectors * neighbours.to(vectors.dtype)).sum(dim=(1, 2))


def _imputed(values: Tensor) -> Tensor:
    """The values, with their mean for missing ones; zero where all are missing."""
    mean = values.nanmean()
    return torch.where(values.isnan(), torch.where(mean.isnan(), 0.0, mean), values)
