"""Heads of probabilistic models: an item is a normal distribution.

Gaussian joins a head of the mean with a head of the deviations (Spread, PooledSpread); DistanceVectors turns mean and
deviations into one vector, whose inner products are expected distances.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.gpo import Gpo
from subtext.models.heads.graph import GraphAttentionLayer
from subtext.models.heads.mean import linear, parts_of, pooled_of
from subtext.ops import draw
from subtext.ops.gru import end_states, padded_states
from subtext.ops.numerics import masked_softmax, precise


class Gaussian(nn.Module):
    """Gaussian head (PCME, Chun et al. 2021, section 3.2): an item is a normal distribution, represented by K samples.

    z_k = mu + exp(log_std) * noise_k

    Noise comes with the tensors of a batch (`Branch.read`). It is a pure function of seed, epoch and the item's key:
    the same in any batch and order. Without noise the vector is mu.

    Args:
        mean: A head of one unit vector per item: mu.
        spread: Encoded -> (N D), the natural logarithm of the standard deviation in each dimension.
        width: D of the vectors.
        draws: K, the number of samples; 0 for a model that reads mean and spread alone, as PCME++ does.
        drawn: When to sample: "always", or while "learning"; then items are ranked by mu.
        side: "image" or "text": each has samples of its own.
        seed: Of samples in evaluation; in training they depend on the run's seed and the epoch.

    Raises:
        RequirementError: If draws is below 0, and what both parts raise.
    """

    def __init__(
        self,
        mean: nn.Module,
        spread: nn.Module,
        width: int,
        *,
        draws: int = 0,
        drawn: Literal["always", "learning"] = "always",
        side: str = "image",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if draws < 0:
            raise RequirementError(f"a gaussian head needs draws of 0 or more; it got {draws}")
        self.mean, self.spread = mean, spread
        self.width, self.draws, self.drawn = width, draws, drawn
        self.side, self.seed = side, seed
        names: list[str] = [name for part in (mean, spread) for name in getattr(part, "inputs", ())]
        self.inputs = tuple(dict.fromkeys(names))

    def forward(
        self, encoded: Encoded, ids: Int[Tensor, "n"], noise: Float[Tensor, "n k d"] | None = None
    ) -> Embeddings:
        """Samples of every item, or its mean.

        Args:
            encoded: As `mean` and `spread` need it.
            ids: (N) The id of each item.
            noise: (N K D) standard normal numbers; None for the mean alone.

        Returns:
            Embeddings with vectors (N K D) of no fixed length, or mu (N 1 D), and log_std (N 1 D).
        """
        vectors: Tensor = self.mean(encoded, ids).vectors
        log_std: Tensor = self.spread(encoded)[:, None]
        if noise is not None:
            vectors = vectors + log_std.exp() * noise.to(vectors.dtype)
        return Embeddings(vectors=vectors, ids=ids, log_std=log_std)

    def noise(self, keys: NDArray[np.int64], *, seed: int | None, epoch: int) -> Float[Tensor, "n k d"] | None:
        """Standard normal numbers for the items of these keys.

        Args:
            keys: (N) int64, one per item.
            seed: Of the run in training; None in evaluation.
            epoch: From 0; not read in evaluation.

        Returns:
            (N K D) float32; None where nothing is sampled.
        """
        if not self.draws or (seed is None and self.drawn == "learning"):
            return None
        purpose = f"{self.side} draws" if seed is not None else f"{self.side} draws of evaluation"
        draw_seed = self.seed if seed is None else seed
        count = self.draws * self.width
        numbers = draw.normal(
            keys, seed=draw_seed, epoch=epoch if seed is not None else 0, purpose=purpose, count=count
        )
        return torch.from_numpy(np.ascontiguousarray(numbers)).view(len(keys), self.draws, self.width)

    def to_means(self) -> Gaussian:
        """The same weights without samples.

        Returns:
            A Gaussian head that shares the weights and draws nothing.
        """
        return Gaussian(self.mean, self.spread, self.width, side=self.side, seed=self.seed).train(self.training)


class DistanceVectors(nn.Module):
    """Distanced head (for PCME++, Chun 2024, eq. 1): two more numbers turn the closed-form distance into a product.

    image: [mu, -v, 1]   text: [mu', 1, -v']   v = (|mu|^2 + sum of std^2 - 1) / 2
    <image, text> = <mu, mu'> - v - v' = 1 - d / 2, with d the expected squared distance of two samples

    So an index of plain vectors ranks as the model does. For unit means the product is their cosine, less half of both
    sums of variances. The second extra number lets the same vector be query and candidate. Between items of one
    modality the product has no meaning: compare those by their means (`means_alone`).

    Args:
        gaussian: The head of mean and deviations.
        side: "image" or "text".
        kind: "wasserstein": d = |mu - mu'|^2 + |std - std'|^2; [mu, std] replaces mu, and its squared length |mu|^2 and
            the variances.

    Raises:
        RequirementError: If the head gives no deviations.
    """

    def __init__(
        self,
        gaussian: nn.Module,
        *,
        side: Literal["image", "text"],
        kind: Literal["sampled", "wasserstein"] = "sampled",
    ) -> None:
        super().__init__()
        self.gaussian, self.side, self.kind = gaussian, side, kind
        self.inputs = getattr(gaussian, "inputs", ())

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector per item.

        Args:
            encoded: As `gaussian` needs it.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D+2), or (N 1 2D+2), float32 or better; deviations are in the vectors.

        Raises:
            RequirementError: See the class.
        """
        items: Embeddings = self.gaussian(encoded, ids)
        if items.log_std is None:
            raise RequirementError("a distanced head needs the deviations of its items; this one has means alone")
        mean, std = precise(items.vectors).mean(dim=1), precise(items.log_std).mean(dim=1).exp()
        location = torch.cat([mean, std], dim=1) if self.kind == "wasserstein" else mean
        offset = (mean.square().sum(dim=1) + std.square().sum(dim=1) - 1)[:, None] / 2
        extra = [-offset, torch.ones_like(offset)]
        vectors = torch.cat([location, *(extra if self.side == "image" else extra[::-1])], dim=1)
        return Embeddings(vectors[:, None], ids)

    def width(self, vectors: Float[np.ndarray, "n k d"]) -> int:
        """D, the width of the mean, in vectors of this head.

        Args:
            vectors: (N K D+2), or (N K 2D+2).

        Returns:
            D.
        """
        return (vectors.shape[2] - 2) // (2 if self.kind == "wasserstein" else 1)

    def means_alone(self, vectors: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Query vectors for items of the same modality: only the mean is not zero, so products are those of means.

        Args:
            vectors: (N K D+2), or (N K 2D+2), of this head.

        Returns:
            Vectors of the same shape.
        """
        means = np.zeros_like(vectors)
        width = self.width(vectors)
        means[:, :, :width] = vectors[:, :, :width]
        return means

    def uncertainty(self, vectors: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n"]:
        """The root mean square of each item's deviations, computed from its vector; see `Embeddings.uncertainty`.

        Exact to rounding where means are of unit length.

        Args:
            vectors: (N 1 D+2), or (N 1 2D+2), of this head.

        Returns:
            (N) 0 or more.
        """
        offset = -vectors[:, 0, -2 if self.side == "image" else -1]
        return np.sqrt(np.maximum(2 * offset, 0) / self.width(vectors))


class Spread(nn.Module):
    """Uncertainty module (PCME, Chun et al. 2021, section 3.2): deviations from attended parts and the pooled vector.

    log_std = W A(x) + b + g     A: sum over parts x (N P E) by softmax of w2 tanh(W1 x)

    g is a map of the pooled vector, W_g pooled + b_g, or with `recurrent` the last state of a bidirectional GRU over
    the parts, as published for words.

    Args:
        parts_width: E.
        width: D.
        pooled_width: Width of the pooled vector; not read with `recurrent`.
        recurrent: Whether g is the last state of a GRU over the parts.
        start: Initial b: 0 as published, a deviation of 1 in every dimension of unit means. With a lower value a short
            training begins with samples close to the mean.

    Raises:
        RequirementError: If both pooled_width and `recurrent` are missing, and for an odd width with `recurrent`.
    """

    def __init__(
        self,
        parts_width: int,
        width: int,
        *,
        pooled_width: int | None = None,
        recurrent: bool = False,
        start: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = max(parts_width // 2, 1)
        self.inner = linear(parts_width, hidden, bias=False)
        self.outer = linear(hidden, 1, bias=False)
        self.lift = linear(parts_width, width)
        nn.init.constant_(self.lift.bias, start)
        self.whole: nn.Linear | None = None
        if recurrent:
            if width % 2:
                raise RequirementError(f"a spread with a bidirectional GRU needs an even width; it got {width}")
            self.rnn = nn.GRU(parts_width, width // 2, batch_first=True, bidirectional=True)
        elif pooled_width is not None:
            self.whole = linear(pooled_width, width)
        else:
            raise RequirementError("a spread needs the width of the pooled vector, or recurrent=True; it got neither")
        self.inputs = ("parts",) if recurrent else ("parts", "pooled")

    def forward(self, encoded: Encoded) -> Float[Tensor, "n d"]:
        """The logarithm of the standard deviations of every item.

        Args:
            encoded: With parts, and without `recurrent` with a pooled vector.

        Returns:
            (N D), unbounded.
        """
        parts, mask = parts_of(encoded, "a spread"), encoded.mask
        attention = masked_softmax(self.outer(torch.tanh(self.inner(parts)))[..., 0], mask)
        local = self.lift(torch.einsum("np,npe->ne", attention, parts))
        if self.whole is not None:
            return local + self.whole(pooled_of(encoded, "a spread"))
        lengths = torch.full((len(parts),), parts.shape[1], device=parts.device)
        if mask is not None:
            lengths = mask.sum(dim=1).clamp_min(1)
        states = padded_states(parts, lengths, self.rnn, learning=self.training)
        return local + end_states(states, lengths, both_directions=True)


class PooledSpread(nn.Module):
    """Uncertainty by pooling (PCME++, Chun 2024, section 3.2): attention layers over the parts, then pooling.

    log_std = pool(layers(x)) / 2: the pooled number is the logarithm of the variance

    Args:
        parts_width: E.
        width: D.
        layers: Of self-attention before the pooling; 1 in the paper, whose parts are CLIP's tokens.
        perceptron: Whether the pooling adds a perceptron, as for the mean.
        start: Initial bias of the logarithm of the variance. Variances add up over dimensions: at -9, a thousand
            dimensions add 0.1 to a squared distance between 0 and 4.

    Raises:
        RequirementError: If the encoder gives no parts.
    """

    inputs = ("parts",)
    """Fields of Encoded that the head reads."""

    def __init__(
        self, parts_width: int, width: int, *, layers: int = 0, perceptron: bool = False, start: float = -9.0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphAttentionLayer(parts_width, norm="layer") for _ in range(layers))
        self.pooling = Gpo(parts_width, width, perceptron=perceptron)
        nn.init.constant_(self.pooling.project.bias, start)

    def forward(self, encoded: Encoded) -> Float[Tensor, "n d"]:
        """The logarithm of the standard deviations of every item.

        Args:
            encoded: With parts.

        Returns:
            (N D), unbounded.
        """
        parts = parts_of(encoded, "a spread")
        for layer in self.layers:
            parts = layer(parts, encoded.mask)
        return self.pooling.project_and_pool(parts, encoded.mask) / 2
