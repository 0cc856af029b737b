"""Asymmetry I (Gong et al. 2024): a text with something in it that its picture does not show, made by noise.

Noise acts on the word vectors of a text in the joint space, one kind a text. Shuffling can act on its words instead,
before they are read: scores that know no order of words, AsCL's among them, are the same to rounding for word vectors
in any order, so that a text shuffled there is its own copy.

Asymmetry II (Gong et al. 2024): a text that says more of what its picture shows.

Asymmetry III (Gong et al. 2024): a text that says less of what its picture shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
"""The four ways of the paper: a mixture draws one of these, and a cutoff then one of its two."""
_REDRAWS = 8


@dataclass(frozen=True)
class Rates:
    """How much of a text is changed; the paper states none of these.

    gaussian  standard deviation of what is added, over the root mean square of the text's word vectors
    tokens    share of word vectors that become zero, one at least        features  share of dimensions that do
    dropout   share of all numbers that become zero; what is left is not scaled up

    Raises RequirementError for a deviation below 0 and shares outside [0, 1].
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


def drawn(
    keys: NDArray[np.int64], choice: Choice, *, seed: int, epoch: int, purpose: str
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Of each text the kind of its noise, a place in KINDS, and the seed of its numbers."""
    which = draw.uniform(keys, seed=seed, epoch=epoch, purpose=purpose, count=3)
    families = FAMILIES if choice == "mixture" else (FAMILIES[2],) if choice == "cutoff" else ((choice,),)
    family = (which[:, 0] * len(families)).astype(np.int64)
    sizes = np.array([len(kinds) for kinds in families])[family]
    table = np.array([[KINDS.index(kinds[place % len(kinds)]) for place in range(2)] for kinds in families])
    kinds = table[family, (which[:, 1] * sizes).astype(np.int64)]
    return kinds.astype(np.int64), (which[:, 2] * 2.0**53).astype(np.int64)


def noised(
    parts: Float[Tensor, "n p d"],
    mask: Bool[Tensor, "n p"] | None,
    kinds: Int[np.ndarray, "n"],
    seeds: Int[np.ndarray, "n"],
    rates: Rates = Rates(),
) -> Float[Tensor, "n p d"]:
    """Word vectors with noise, each text with its kind of it; the gradient reaches the vectors through it.

    gaussian  w + rate rms(w) N(0, 1)    shuffle  the vectors in another order    token_cutoff, feature_cutoff, dropout
    some vectors, dimensions or numbers become zero

    What a text gets depends on its own seed and length alone.
    Cost   a few N P D numbers, drawn on the CPU.
    """
    count, places, width = parts.shape
    factor, added = torch.ones(count, places, width), torch.zeros(count, places, width)
    order = torch.arange(places).repeat(count, 1)
    there = torch.ones(count, places, dtype=torch.bool) if mask is None else mask.cpu()
    for row, (kind, seed) in enumerate(zip(kinds.tolist(), seeds.tolist(), strict=True)):
        generator = torch.Generator().manual_seed(seed)
        own = torch.nonzero(there[row])[:, 0]
        _ACTS[KINDS[kind]]((factor[row], added[row], order[row]), own, rates, generator)
    present = there.to(parts.device)[..., None]
    squares = (parts.detach() ** 2 * present).sum(dim=(1, 2)) / (present.sum(dim=(1, 2)) * width).clamp_min(1)
    factor, added, order = (value.to(parts.device) for value in (factor, added, order))
    moved = parts.gather(1, order[..., None].expand_as(parts)) if bool((kinds == SHUFFLE).any()) else parts
    return moved * factor.to(parts.dtype) + added.to(parts.dtype) * squares.sqrt()[:, None, None]


def shuffled(
    tokens: Int[Tensor, "n l"], movable: Bool[Tensor, "n l"], seeds: Int[np.ndarray, "n"]
) -> Int[Tensor, "n l"]:
    """Tokens in another order, those that may not move where they were.

    A text whose tokens come out as they were is drawn again; one of equal tokens, or of one, stays as it is.
    """
    found = tokens.clone()
    for row, seed in enumerate(seeds.tolist()):
        generator = torch.Generator().manual_seed(seed)
        own = torch.nonzero(movable[row])[:, 0]
        given = tokens[row, own]
        for _ in range(_REDRAWS):
            turned = given[torch.randperm(len(own), generator=generator)]
            if not torch.equal(turned, given):
                found[row, own] = turned
                break
    return found


_Changed = tuple[Tensor, Tensor, Tensor]
"""(P D) what a text's vectors are multiplied by and what is added, and (P) their order: changed in place."""


def _gaussian(changed: _Changed, own: Tensor, rates: Rates, generator: torch.Generator) -> None:
    changed[1][own] = rates.gaussian * torch.randn(len(own), changed[1].shape[1], generator=generator)


def _shuffle(changed: _Changed, own: Tensor, rates: Rates, generator: torch.Generator) -> None:
    for _ in range(_REDRAWS):
        turned = own[torch.randperm(len(own), generator=generator)]
        if not torch.equal(turned, own):
            changed[2][own] = turned
            break


def _token_cutoff(changed: _Changed, own: Tensor, rates: Rates, generator: torch.Generator) -> None:
    count = min(len(own), max(1, round(rates.tokens * len(own))))
    changed[0][own[torch.randperm(len(own), generator=generator)[:count]]] = 0


def _feature_cutoff(changed: _Changed, own: Tensor, rates: Rates, generator: torch.Generator) -> None:
    width = changed[0].shape[1]
    changed[0][:, torch.randperm(width, generator=generator)[: round(rates.features * width)]] = 0


def _dropout(changed: _Changed, own: Tensor, rates: Rates, generator: torch.Generator) -> None:
    kept = torch.rand(len(own), changed[0].shape[1], generator=generator) >= rates.dropout
    changed[0][own] = kept.to(changed[0].dtype)


_ACTS: dict[Kind, Callable[[_Changed, Tensor, Rates, torch.Generator], None]] = {
    "gaussian": _gaussian,
    "shuffle": _shuffle,
    "token_cutoff": _token_cutoff,
    "feature_cutoff": _feature_cutoff,
    "dropout": _dropout,
}


def lengthened(text: str, other: str) -> str:
    """One text, then another of the same picture.

    >>> lengthened("a dog runs ", "wet sand")
    'a dog runs wet sand'
    """
    return f"{text.strip()} {other.strip()}".strip()


FEWEST = 3
"""Words that are always left, where there are so many."""
LEAST, MOST = 0.5, 0.9
"""Share of its words that is left of a text, drawn evenly between; the paper does not state it."""


def shortened(text: str, drawn: float) -> str:
    """The first words of a text, between half and nine tenths of them.

    drawn  in [0, 1): where between

    Words are what stands between spaces. A text of three words or fewer stays as it is, and so does one of a script
    that sets no spaces.

    >>> shortened("a brown dog runs along the wet sand", 0.0)
    'a brown dog runs'
    """
    words = text.split()
    left = max(FEWEST, math.ceil((LEAST + (MOST - LEAST) * drawn) * len(words)))
    return text if left >= len(words) else " ".join(words[:left])
