"""Texts made while training (Gong et al. 2024): noisy ones (asymmetry I), longer (II) and shorter ones (III).

A noisy text says something that its image does not show. Noise acts on the word vectors of a text in the joint space,
one kind per text. Shuffling can act on the tokens instead: a score that ignores word order, as AsCL's does, is the same
for shuffled word vectors, so that the noisy text equals its original.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import RequirementError
from subtext.ops import draw

Kind = Literal["gaussian", "shuffle", "token_cutoff", "feature_cutoff", "dropout"]
Choice = Literal["mixture", "gaussian", "shuffle", "cutoff", "token_cutoff", "feature_cutoff", "dropout"]
KINDS: tuple[Kind, ...] = ("gaussian", "shuffle", "token_cutoff", "feature_cutoff", "dropout")
SHUFFLE = KINDS.index("shuffle")
FAMILIES: tuple[tuple[Kind, ...], ...] = (("gaussian",), ("shuffle",), ("token_cutoff", "feature_cutoff"), ("dropout",))
"""The four families of the paper. A mixture samples a family; cutoff then samples one of its two kinds."""
_REDRAWS = 8
_SHORTEST = 3
"""Words that `shorten_text` leaves at least."""


@dataclass(frozen=True)
class Rates:
    """How much of a text each kind of noise changes. The paper states no values.

    Attributes:
        gaussian: Standard deviation of the noise, relative to the root mean square of the text's word vectors.
        tokens: Share of word vectors set to zero, at least one vector.
        features: Share of dimensions set to zero.
        dropout: Share of all numbers set to zero; the others are not rescaled.

    Raises:
        RequirementError: If the deviation is below 0, or a share is outside [0, 1].
    """

    gaussian: float = 0.1
    tokens: float = 0.15
    features: float = 0.2
    dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.gaussian < 0 or not all(0 <= share <= 1 for share in (self.tokens, self.features, self.dropout)):
            raise RequirementError(
                f"noise needs a deviation of 0 or more and shares in [0, 1]; it got gaussian={self.gaussian}, "
                f"tokens={self.tokens}, features={self.features}, dropout={self.dropout}"
            )


def sample_noise(
    keys: NDArray[np.int64], choice: Choice, *, seed: int, epoch: int, purpose: str
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Choose a kind of noise for each text, and the seed of its numbers.

    Args:
        keys: (N) int64, one per text.
        choice: A kind, a family of kinds ("cutoff"), or "mixture" of all families.
        seed: Of the run.
        epoch: From 0.
        purpose: Name of these draws; other names give other draws.

    Returns:
        (N) int64 indices into KINDS, and (N) int64 seeds.
    """
    samples = draw.uniform(keys, seed=seed, epoch=epoch, purpose=purpose, count=3)
    families = FAMILIES if choice == "mixture" else (FAMILIES[2],) if choice == "cutoff" else ((choice,),)
    family = (samples[:, 0] * len(families)).astype(np.int64)
    sizes = np.array([len(kinds) for kinds in families])[family]
    table = np.array([[KINDS.index(kinds[column % len(kinds)]) for column in range(2)] for kinds in families])
    kinds = table[family, (samples[:, 1] * sizes).astype(np.int64)]
    return kinds.astype(np.int64), (samples[:, 2] * 2.0**53).astype(np.int64)


def add_noise(
    parts: Float[Tensor, "n p d"],
    mask: Bool[Tensor, "n p"] | None,
    kinds: Int[np.ndarray, "n"],
    seeds: Int[np.ndarray, "n"],
    rates: Rates = Rates(),
) -> Float[Tensor, "n p d"]:
    """Add to the word vectors of each text noise of its kind. The gradient passes to the vectors.

    gaussian        w + rate rms(w) N(0, 1)
    shuffle         the vectors in another order
    token_cutoff    some vectors are zero
    feature_cutoff  some dimensions are zero
    dropout         some numbers are zero

    The noise of a text depends on its own seed and length alone.

    Args:
        parts: (N P D), the word vectors.
        mask: (N P) bool, True where a word exists; None where all do.
        kinds: (N) indices into KINDS.
        seeds: (N), one per text.
        rates: How much to change.

    Returns:
        (N P D), the noisy word vectors.

    Complexity:
        A few N P D numbers, sampled on the CPU.
    """
    count, longest, width = parts.shape
    factor, added = torch.ones(count, longest, width), torch.zeros(count, longest, width)
    order = torch.arange(longest).repeat(count, 1)
    present = torch.ones(count, longest, dtype=torch.bool) if mask is None else mask.cpu()
    for row, (kind, seed) in enumerate(zip(kinds.tolist(), seeds.tolist(), strict=True)):
        generator = torch.Generator().manual_seed(seed)
        words = torch.nonzero(present[row])[:, 0]
        match KINDS[kind]:
            case "gaussian":
                added[row, words] = rates.gaussian * torch.randn(len(words), width, generator=generator)
            case "shuffle":
                order[row, words] = _permuted(words, generator)
            case "token_cutoff":
                cut = min(len(words), max(1, round(rates.tokens * len(words))))
                factor[row, words[torch.randperm(len(words), generator=generator)[:cut]]] = 0
            case "feature_cutoff":
                cut = round(rates.features * width)
                factor[row, :, torch.randperm(width, generator=generator)[:cut]] = 0
            case "dropout":
                dropped = torch.rand(len(words), width, generator=generator) < rates.dropout
                factor[row, words] = 1 - dropped.to(factor.dtype)
    present = present.to(parts.device)[..., None]
    squares = (parts.detach() ** 2 * present).sum(dim=(1, 2)) / (present.sum(dim=(1, 2)) * width).clamp_min(1)
    factor, added, order = (value.to(parts.device) for value in (factor, added, order))
    moved = parts.gather(1, order[..., None].expand_as(parts)) if bool((kinds == SHUFFLE).any()) else parts
    return moved * factor.to(parts.dtype) + added.to(parts.dtype) * squares.sqrt()[:, None, None]


def shuffle_tokens(
    tokens: Int[Tensor, "n l"], movable: Bool[Tensor, "n l"], seeds: Int[np.ndarray, "n"]
) -> Int[Tensor, "n l"]:
    """Shuffle the movable tokens of each text; the others stay in place.

    A shuffle that changes nothing is repeated, up to 8 times. A text of one token, or of equal tokens, stays as it is.

    Args:
        tokens: (N L) int64.
        movable: (N L) bool, tokens that may change places.
        seeds: (N), one per text.

    Returns:
        (N L) int64, the shuffled tokens.
    """
    shuffled = tokens.clone()
    for row, seed in enumerate(seeds.tolist()):
        generator = torch.Generator().manual_seed(seed)
        columns = torch.nonzero(movable[row])[:, 0]
        shuffled[row, columns] = _permuted(tokens[row, columns], generator)
    return shuffled


def _permuted(values: Tensor, generator: torch.Generator) -> Tensor:
    """The values in another order; as they are where no order of a few differs."""
    for _ in range(_REDRAWS):
        permuted = values[torch.randperm(len(values), generator=generator)]
        if not torch.equal(permuted, values):
            return permuted
    return values


def join_texts(text: str, second: str) -> str:
    """Join two texts of one image.

    Args:
        text: The first.
        second: The second.

    Returns:
        Both, separated by a space.

    Example:
        >>> join_texts("a dog runs ", "wet sand")
        'a dog runs wet sand'
    """
    return f"{text.strip()} {second.strip()}".strip()


def shorten_text(text: str, position: float) -> str:
    """Keep the first words of a text, between 50 and 90 % of them. The paper states no share.

    Words are separated by spaces. A text of at most three words stays as it is, and so does a text without spaces.

    Args:
        text: Words are separated by spaces.
        position: In [0, 1): 0 for 50 %, towards 1 for 90 %.

    Returns:
        The first words, at least three; the text itself where that is all of them.

    Example:
        >>> shorten_text("a brown dog runs along the wet sand", 0.0)
        'a brown dog runs'
    """
    words = text.split()
    length = max(_SHORTEST, math.ceil((0.5 + 0.4 * position) * len(words)))
    return text if length >= len(words) else " ".join(words[:length])
