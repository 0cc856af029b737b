"""Sample weights: Scene, Epoch -> one weight per query, by density, semantic neighbourhoods, rank or chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Direction, Embeddings, Epoch, Scene, require_choice
from subtext.errors import RequirementError, Setting
from subtext.objectives.objective import WeightTotal
from subtext.objectives.scene import batch_items, count_pairs, pairs_to_queries
from subtext.ops import draw
from subtext.ops.numerics import masked_max, precise


@dataclass(frozen=True)
class Uniform(WeightTotal):
    """Uniform weight (Thomas and Kovashka 2022, their control with Gamma = 0): all pairs have the same weight.

    weight_q = total / B
    over the B pairs of the full batch, other processes' with them. A weighting whose weights sum to `total` changes
    two things, the scale of its term and the balance of pairs; this one changes the scale alone.

    Args:
        total: Sum of the weights over a batch of `batch` pairs, above 0.
        direction: Direction whose queries are weighted.
        batch: Number of pairs that `total` is for; 0: `total` for every batch. See `WeightTotal`.

    Raises:
        RequirementError: If total is not above 0, or batch is below 0.

    Complexity:
        Time and memory Q.

    Example:
        >>> from subtext.core import Comparison, Truth
        >>> forward = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)))
        >>> Uniform(total=6.0)(Scene(forward, forward.flip()), Epoch(0, 0)).tolist()
        [3.0, 3.0]
    """

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: Of pairs, or of images with all their texts (an image then counts as the sum of its texts).
            epoch: Not read.

        Returns:
            (Q), without gradient.
        """
        scores, pairs = scene.comparison(self.direction).scores, count_pairs(scene)
        dtype = torch.promote_types(scores.dtype, torch.float32)
        weight = self.total_for(pairs) / pairs
        return pairs_to_queries(torch.full((pairs,), weight, dtype=dtype, device=scores.device), scene, self.direction)


@dataclass(frozen=True)
class Random(WeightTotal):
    """Random weight (Thomas and Kovashka 2022, their control in Table 3): unequal weights without information.

    weight = total * softmax(u) over the B pairs of the full batch, u uniform in [0, 1)
    drawn for each pair anew in every epoch, from (seed, epoch, pair), and the same in both directions. The largest
    weight is at most e times the smallest.

    Args:
        total: Sum of the weights over a batch of `batch` pairs, above 0.
        direction: Direction whose queries are weighted.
        batch: Number of pairs that `total` is for; 0: `total` for every batch. See `WeightTotal`.

    Raises:
        RequirementError: If total is not above 0, batch is below 0, or the scene has no embeddings.

    Complexity:
        Time and memory B.

    Example:
        >>> from subtext.core import Comparison, Embeddings, Truth
        >>> items = Embeddings(torch.eye(2)[:, None], torch.tensor([7, 3]))
        >>> forward = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), items, items)
        >>> round(Random(total=6.0)(Scene(forward, forward.flip()), Epoch(0, 0)).sum().item(), 4)
        6.0
    """

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: Of pairs, or of images with all their texts (an image then counts as the sum of its texts), with
                their embeddings: pairs are known by the ids of their texts.
            epoch: Number and seed.

        Returns:
            (Q) above 0, without gradient.
        """
        scores, texts = scene.comparison(self.direction).scores, batch_items(scene)[1]
        keys = texts.ids.cpu().numpy()
        samples = draw.uniform(keys, seed=epoch.seed, epoch=epoch.draws, purpose="random weight")[:, 0]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        chances = torch.from_numpy(samples).to(device=scores.device, dtype=dtype).softmax(dim=0)
        return pairs_to_queries(self.total_for(len(texts)) * chances, scene, self.direction)


@dataclass(frozen=True)
class Rank:
    """Rank weight (Mithun et al. 2018): badly ranked pairs have up to twice the weight.

    weight_q = 1 + strength / (R - r + 1)
    with r in 1..R the rank of the positive in the query's row, and R the number of candidates that can be ranked. The
    best rank gives 1 + strength / R, the last 1 + strength; nearly flat but for the last ranks. Only candidates with a
    strictly greater score stand before the positive: the authors' unstable sort leaves ties to chance. Of several
    positives the best one is ranked, among the negatives alone, so R is 1 + the query's negatives.

    Args:
        direction: Direction whose scores are ranked; a term on the other direction takes a weighting of its own.
        strength: 0 or more; 1 in the paper. With 0 all weights are 1.

    Raises:
        RequirementError: If the strength is below 0.

    Complexity:
        Time and memory Q C.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> scores = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.9, 0.8]])
        >>> forward = Comparison(scores, Truth(torch.eye(3, dtype=torch.bool)))
        >>> Rank(direction="image_to_text")(Scene(forward, forward.flip()), Epoch(0, 0)).tolist()  # ranks 3, 2, 2
        [2.0, 1.5, 1.5]
    """

    direction: Direction
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not self.strength >= 0:
            raise RequirementError(f"Rank needs a strength of 0 or more; it got {self.strength}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: The scene.
            epoch: Not read.

        Returns:
            (Q) in (1, 1 + strength], without gradient; 1 + strength for a query without positives.
        """
        comparison = scene.comparison(self.direction)
        scores, negative = precise(comparison.scores).detach(), comparison.truth.negative
        best = masked_max(scores, comparison.truth.match)
        behind = (negative & (scores <= best[:, None])).sum(dim=1)
        return 1 + self.strength / (behind + 1).to(scores.dtype)


TABLE = "density"
"""Name in Epoch.table of the scores, one per training text, in [0, 1]."""


@dataclass(frozen=True)
class Density(WeightTotal):
    """Density weight (Amrani et al. 2021): pairs in dense regions of both modalities have more weight.

    p_i is the multimodal density of pair i (`ops.density`), from 0 for the sparsest pair of the data set to 1 for the
    densest, computed once from fixed features, as a measure of how likely image and text belong together.
        sum      weight = total * p_i / sum_j p_j over the pairs of the batch     (1 where all p are 0)
        softmax  weight = total * softmax(p)
        none     weight = p_i, the paper's own; `total` is not read
    The paper's code was never published: this class and `ops.density` follow its abstract and accounts of others.

    Args:
        total: Sum of the weights over a batch of `batch` pairs, above 0.
        direction: Direction whose queries are weighted.
        batch: Number of pairs that `total` is for; 0: `total` for every batch. See `WeightTotal`.
        scale: Normalisation of p, see above; weights of scale "sum" are comparable with those of other weightings.

    Raises:
        RequirementError: If total is not above 0, batch is below 0, the scale is unknown, or the epoch's tables lack
            "density".

    Complexity:
        Time and memory B.

    Example:
        >>> from subtext.core import Comparison, Embeddings, Truth
        >>> items = Embeddings(torch.eye(2)[:, None], torch.tensor([2, 0]))
        >>> forward = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), items, items)
        >>> epoch = Epoch(0, 0, table={"density": torch.tensor([0.25, 0.5, 0.75])})
        >>> Density(total=4.0)(Scene(forward, forward.flip()), epoch).tolist()
        [3.0, 1.0]
    """

    scale: Literal["sum", "softmax", "none"] = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "scale")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: Of pairs, or of images with all their texts (an image then counts as the sum of its texts), with
                their embeddings.
            epoch: Epoch.table with "density", by the row of the pair's text.

        Returns:
            (Q) >= 0, without gradient. Without a table, as in validation, every pair counts total / B, or 1.

        Raises:
            RequirementError: If the epoch has tables, but none of densities.
        """
        scores, pairs = scene.comparison(self.direction).scores, count_pairs(scene)
        dtype = torch.promote_types(scores.dtype, torch.float32)
        if epoch.table is None:
            values = torch.ones(pairs, dtype=dtype, device=scores.device)
        elif TABLE not in epoch.table:
            raise RequirementError(
                f"Density reads the table '{TABLE}'; this epoch has {', '.join(sorted(epoch.table))}; train with the "
                "method that supplies it (density)"
            )
        else:
            table = epoch.table[TABLE]
            values = table[batch_items(scene)[1].ids.to(table.device)].to(device=scores.device, dtype=dtype)
        if self.scale == "none":
            return pairs_to_queries(values, scene, self.direction)
        total = self.total_for(pairs)
        if self.scale == "softmax":
            return pairs_to_queries(total * values.softmax(dim=0), scene, self.direction)
        # All zero: equal weights.
        shares = torch.where(values.sum() > 0, values, torch.ones_like(values))
        return pairs_to_queries(total * shares / shares.sum(), scene, self.direction)

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch; for scale "none" the most that it can be.

        Args:
            pairs: Number of pairs in the batch.

        Returns:
            The sum, above 0.
        """
        return float(pairs) if self.scale == "none" else super().total_for(pairs)


Combine = Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"]
Placement = Literal["both", "outer", "inner", "scores"]
Statistics = Literal["none", "pooled", "each"]
Control = Literal["none", "permuted", "random"]
_ONE_SOFTMAX = ("image", "text", "mean")
"""Values of `combine` without a second softmax, which do not read `placement`."""


@dataclass(frozen=True)
class Neighbourhood(WeightTotal):
    """Neighbourhood weight (Thomas and Kovashka 2022, eq. 3-8): less weight for pairs that agree with neighbours.

    u_m(i) = sign * (diversity * DIV_m(i) + discrepancy * DIS_m(i))       for the images and for the texts, m
    a_m    = total * softmax(u_m)                                         over the pairs of the batch
    weight = total * softmax(|a_image - a_text|)
    DIV is the similarity of a pair's semantic neighbours to each other, DIS that of the pair to its neighbours'
    neighbours, both as inner products of stored embeddings. They come from tables of the epoch, by the row of the
    pair's text. Without tables, in the first epoch and in validation, all pairs have equal weights; a pair without a
    score gets the mean of its batch.

    The paper does not define where `total` enters. Its printed equation has it in a_m alone, which makes the weights
    nearly uniform and the loss `total` times smaller, and so contradicts the size of the loss in the paper.

    Args:
        total: lambda, the sum of the weights over a batch of `batch` pairs; 96 to 196 at 32 pairs in the paper.
        direction: Direction whose queries are weighted: a pair's two directions have the same weight.
        batch: Number of pairs that `total` is for: a batch of B has total * B / batch; 0: `total` for every batch.
        diversity: beta, the coefficient of DIV.
        discrepancy: gamma, the coefficient of DIS. diversity=1 with discrepancy=0 is the paper's DIVERSITY, 0 with 1
            its DISCREPANCY.
        sign: Gamma. -1: more weight for pairs in diverse neighbourhoods; 1: less; 0: uniform weights.
        combine: How the modalities are combined: "absdiff" |a_image - a_text|, "difference", "sum", "product",
            "maximum"; "image" or "text", the weights of one alone; or "mean", the softmax of the mean u, as eq. 7 and 8
            are printed.
        placement: Where total enters: "both" in a_m and outside; "outer" outside or "inner" (as printed) in a_m alone;
            "scores" outside, with u_m instead of a_m. Not read with combine "image", "text" or "mean", which have one
            softmax.
        statistics: "pooled" multiplies beta and gamma by mean times standard deviation of the raw score over the data
            set (eq. 8) and both modalities, "each" by those of its modality; "none" does not.
        current: Whether DIS uses the batch's current embeddings, against stored embeddings of their neighbours'
            neighbours.
        control: A control experiment: each pair has the scores of another one, "permuted" of the same in every epoch,
            "random" of a new one. Effective sample sizes stay the same.

    Raises:
        RequirementError: If total is not above 0, or tables or embeddings are missing.

    Complexity:
        Time and memory B.

    Example:
        >>> from subtext.core import Comparison, Truth
        >>> forward = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)), *[
        ...     Embeddings(torch.ones(2, 1, 1), torch.arange(2))] * 2)
        >>> table = {"diversity/image": torch.tensor([0.9, 0.5]), "diversity/text": torch.tensor([0.9, 0.5])}
        >>> weights = Neighbourhood(total=4.0, combine="text", batch=2)(Scene(forward, forward.flip()),
        ...     Epoch(1, 0, table))
        >>> [round(weight, 3) for weight in weights.tolist()]  # 4 / (1 + exp(.4)) for the pair among alike neighbours
        [1.605, 2.395]
    """

    batch: int = 32
    diversity: float = 1.0
    discrepancy: float = 0.0
    sign: float = -1.0
    combine: Combine = "absdiff"
    placement: Placement = "both"
    statistics: Statistics = "none"
    current: bool = False
    control: Control = "none"

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: Of pairs, or of images with all their texts (an image then counts as the sum of its texts).
            epoch: Epoch.table with "diversity/image" and so on.

        Returns:
            (Q), sum over the batch `total` (1 for placement "inner"), without gradient.

        Raises:
            RequirementError: If a table or bank is missing, or `current` gets images and texts that are not pairs.
        """
        queries, pairs = scene.comparison(self.direction), count_pairs(scene)
        dtype = torch.promote_types(queries.scores.dtype, torch.float32)
        if epoch.table is None:
            logits = [torch.zeros(pairs, dtype=dtype, device=queries.scores.device)] * 2
        else:
            images, texts = batch_items(scene)
            if self.current and self.discrepancy and len(images) != len(texts):
                raise RequirementError(
                    "weights from present embeddings need an image for each text of the batch; it got "
                    f"{len(images)} images and {len(texts)} texts; take ",
                    Setting("caption_sampling", "all or one"),
                )
            logits = [
                self._logits(modality, texts.ids, items, epoch).to(dtype)
                for modality, items in (("image", images), ("text", texts))
            ]
        return pairs_to_queries(self.weights(*logits), scene, self.direction)

    def weights(self, image: Float[Tensor, "b"], text: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
        """Weights of the pairs of a batch from u of both modalities.

        Args:
            image: (B) u of the images.
            text: (B) u of the texts.

        Returns:
            (B) weights, above 0.
        """
        total = super().total_for(len(image))
        if self.combine in _ONE_SOFTMAX:
            chosen = {"image": image, "text": text, "mean": (image + text) / 2}[self.combine]
            return total * torch.softmax(chosen, dim=0)
        if self.placement == "scores":
            a, b = image, text
        else:
            inner = 1.0 if self.placement == "outer" else total
            a, b = inner * torch.softmax(image, dim=0), inner * torch.softmax(text, dim=0)
        joined = {
            "absdiff": (a - b).abs(),
            "difference": a - b,
            "sum": a + b,
            "product": a * b,
            "maximum": torch.maximum(a, b),
        }[self.combine]
        return (1.0 if self.placement == "inner" else total) * torch.softmax(joined, dim=0)

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch.

        Args:
            pairs: Number of pairs in the batch.

        Returns:
            The sum, above 0; 1 where `total` is inside the softmax alone.
        """
        return 1.0 if self.sums_to_one else super().total_for(pairs)

    @property
    def sums_to_one(self) -> bool:
        """Whether `total` is inside the softmax alone, so that it does not change the sum of the weights."""
        return self.placement == "inner" and self.combine not in _ONE_SOFTMAX

    def _logits(self, modality: str, rows: Tensor, items: Embeddings, epoch: Epoch) -> Tensor:
        """(B) u of one modality."""
        logits = torch.zeros((), device=rows.device)
        for name, coefficient in (("diversity", self.diversity), ("discrepancy", self.discrepancy)):
            if not coefficient or not self.sign:
                continue
            if self.current and name == "discrepancy":
                stored = {key: bank.vectors for key, bank in (epoch.bank or {}).items()}
                neighbours = _looked_up(stored, f"discrepancy/{modality}", rows.device)[rows]
                vectors = items.vectors.detach()
                if neighbours.shape[1] == 1:
                    vectors = vectors.mean(dim=1, keepdim=True)
                values = (vectors * neighbours.to(vectors.dtype)).sum(dim=(1, 2))
            else:
                table = _looked_up(epoch.table, f"{name}/{modality}", rows.device)
                values = table[self._pairs(rows, len(table), epoch)]
            if self.statistics != "none":
                whose = modality if self.statistics == "each" else "both"
                mean, deviation = _looked_up(epoch.table, f"moments/{name}/{whose}", rows.device)
                coefficient = coefficient * mean * deviation
            # Missing values get the mean of the others; zero where all are missing.
            values = torch.where(values.isnan(), values.nanmean().nan_to_num(), values)
            logits = logits + self.sign * coefficient * values
        return logits.expand(len(rows))

    def _pairs(self, rows: Tensor, count: int, epoch: Epoch) -> Tensor:
        """(B) rows of the table that these pairs read: their own, or those of other pairs for a control."""
        if self.control == "none":
            return rows
        order = _permutation(count, epoch.seed, epoch.number if self.control == "random" else 0)
        return order.to(rows.device)[rows]


@lru_cache(maxsize=4)
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(draw.permutation(count, seed=seed, epoch=epoch, purpose="permuted weights"))


def _looked_up(table: Mapping[str, Tensor] | None, name: str, device: torch.device) -> Tensor:
    if not table or name not in table:
        have = ", ".join(sorted(table or {})) or "none"
        raise RequirementError(
            f"neighbourhood weights read the table '{name}' of an epoch; it has {have}; train with a method that "
            "supplies it (diversity, discrepancy, combined)"
        )
    return table[name].to(device)
