"""Cross attention both ways with several heads: words and what they gather, and one vector of each side of a pair."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.attention import EPSILON
from subtext.ops.bf16 import in_inference, linear, product, square_linear
from subtext.ops.fusion import Fusion, FusionKind
from subtext.ops.numerics import padded
from subtext.ops.pairwise import pairwise, parts_of, whole_of

PIECE_FLOATS = 2**24
"""Numbers a piece may take: each reads all that is kept of its pictures, which several texts have to share."""


class _Asked(NamedTuple):
    """One side, as it is attended to and as it asks, once for all of the other side.

    keys (H N P d)  asking (H N P d)  folded (H N P d): the parts through Z^O of the direction in which they ask
    gram (N HP HP): products of what each part adds to a context    means (N HP D): the same through X
    """

    keys: Tensor
    asking: Tensor
    folded: Tensor
    gram: Tensor
    means: Tensor
    lengths: Tensor
    whole: Tensor


class _Direction(nn.Module):
    """Parameters of one direction: X asks Y. Y* = concat over heads of (A_h Y Z_h^Y) Z^O; then a map of its mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.out, self.whole = (nn.Linear(width, width, bias=False) for _ in range(4))
        for layer in (self.query, self.key, self.out, self.whole):
            nn.init.xavier_uniform_(layer.weight)


class Ascl(nn.Module):
    """AsCL's similarity (Gong et al. 2024): cross attention between regions and words, local and global.

    A_h = softmax((X Z_h^X)(Y Z_h^Y)' / sqrt(D / H)),  Y* = concat over h of (A_h Y Z_h^Y) Z^O
    S_local = mean over regions of cos(v, w*) / 2 + mean over words of cos(w, v*) / 2
    S_global = cos(Fusion(mean v* X_v, G X_g), mean w* X_w);   score = (u S_local + (1 - u) S_global) / temperature
    No public code is known. Keys and values share Z^Y, as printed; sums are divided by how many terms they have.

    width        D of parts and vectors, 1,024 in the paper
    heads        H, which divides D; unspecified in the paper
    local_share  u in [0, 1]: 0.8 on COCO, 0.6 on Flickr30K
    fusion       of what words gather with the picture's own vector G: "gated" as in DSRAN, "mean", "sum", "concat";
                 "none" leaves G out. Unspecified in the paper
    directions   "separate": regions and words ask with parameters of their own; "shared": with the same
    temperature  0.05 on COCO, 0.01 on Flickr30K: InfoNCE reads scores that are divided already
    bf16         see `CrossAttention`

    Takes     Embeddings with parts of width D, and one vector a picture unless fusion is "none".
    Gives     (I T) scores in [-1 / temperature, 1 / temperature]; the gradient reaches parts and pictures' vectors.
    Raises    RequirementError for items without parts, heads that do not divide D, and shares outside [0, 1].
    Cost      four products I T R L D, and I T (L (H R)^2 + R (H L)^2 + (R + L) H D): Z^O is folded into what asks, and
              contexts are never formed. Memory I T H R L while training, in pieces beyond 512 MB.

    >>> part = Ascl(width=2, heads=1, fusion="none", local_share=1.0, temperature=1.0)
    >>> items = Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([[[0.6, 0.8]]]))
    >>> -1 <= part(items, items).item() <= 1
    True
    """

    indexable = False

    def __init__(
        self,
        *,
        width: int = 1024,
        heads: int = 0,
        local_share: float = 0.8,
        fusion: FusionKind | Literal["none"] = "gated",
        directions: Literal["separate", "shared"] = "separate",
        temperature: float = 0.05,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        self.heads = heads or (8 if width % 8 == 0 else 1)
        if self.heads < 1 or width % self.heads or not 0 <= local_share <= 1 or temperature <= 0:
            raise RequirementError(
                f"Ascl needs heads that divide {width}, a local share in [0, 1] and a temperature above 0; it got "
                f"{heads}, {local_share} and {temperature}"
            )
        self.by_words = _Direction(width)
        self.by_regions = _Direction(width) if directions == "separate" else self.by_words
        self.picture = nn.Linear(width, width, bias=False) if fusion != "none" else None
        self.fusion = Fusion(width, fusion) if fusion != "none" else None
        self.local_share = local_share
        self.temperature = temperature
        self.width = width
        self.bf16 = bf16

    def forward(self, images: Embeddings, texts: Embeddings, made: _Asked | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        made  what `prepare` gave for these images, of which there are at most 64 then
        """
        ready = self.prepare if made is None else lambda _: made
        return pairwise(
            images, texts, self._score, ready=ready, floats=self._floats, piece=PIECE_FLOATS, width=self.width
        )

    def compared(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t 2 d"]:
        """The two vectors that S_global compares, of every pair: the picture's as it is with that text, and the text's.

        Raises RequirementError where the score reads no such vectors (a local share of 1).
        """
        if self.local_share == 1:
            raise RequirementError(
                "vectors of pairs are what AsCL's global score compares; with a local share of 1 there is none; train "
                "with a smaller one"
            )
        return pairwise(
            images, texts, self._vectors, ready=self.prepare, floats=self._floats, piece=PIECE_FLOATS, width=self.width
        )

    def prepare(self, images: Embeddings) -> _Asked:
        """What is needed of pictures alone, for scoring them with texts in several calls."""
        return self._asked(images, keyed=self.by_words, asks=self.by_regions)

    def _floats(self, regions: int, words: int) -> int:
        return 8 * self.heads * regions * words + 6 * self.width

    def _asked(self, items: Embeddings, *, keyed: _Direction, asks: _Direction) -> _Asked:
        """Keyed  the direction in which the items are attended to       asks  the one in which they attend."""
        parts, bf16 = parts_of(items), in_inference(self.bf16)
        maps = (self._by_head(weight) for weight in (keyed.key.weight, asks.query.weight, asks.out.weight.T))
        keys, asking, folded = (self._split(linear(parts, weight.flatten(0, 1), bf16=bf16)) for weight in maps)
        added = product(keys.flatten(1, 2), self._by_head(keyed.out.weight.T).mT, bf16=bf16)
        added = added.unflatten(1, parts.shape[:2]).transpose(0, 1).flatten(1, 2)
        # A word that was cut off has no length, and the root at zero no slope.
        lengths = (parts * parts).sum(dim=2).clamp_min(EPSILON**2).sqrt()
        means = square_linear(added, keyed.whole.weight, bf16=bf16)
        return _Asked(
            keys, asking, folded, product(added, added, bf16=bf16), means, lengths, whole_of(items, self.width)
        )

    def _by_head(self, weight: Float[Tensor, "d d"]) -> Float[Tensor, "h e d2"]:
        """Rows of weights by head; zeros fill each head and row up."""
        return padded(weight.unflatten(0, (self.heads, -1)), 2)

    def _split(self, parts: Float[Tensor, "n p d"]) -> Float[Tensor, "h n p e"]:
        return parts.unflatten(2, (self.heads, -1)).permute(2, 0, 1, 3).contiguous()

    def _score(self, images: Embeddings, seen: _Asked, texts: Embeddings) -> Float[Tensor, "i t"]:
        read = self._asked(texts, keyed=self.by_regions, asks=self.by_words)
        words, gathered = self._attend(read, seen, None, images.mask)
        regions, said = self._attend(seen, read, images.mask, None)
        local = (words.T + regions) / 2
        if self.local_share == 1:
            return local / self.temperature
        of_picture = self._of_picture(gathered, seen)
        whole = torch.nn.functional.cosine_similarity(of_picture, said, dim=2, eps=EPSILON)
        return (self.local_share * local + (1 - self.local_share) * whole) / self.temperature

    def _vectors(self, images: Embeddings, seen: _Asked, texts: Embeddings) -> Float[Tensor, "i t 2 d"]:
        read = self._asked(texts, keyed=self.by_regions, asks=self.by_words)
        _, gathered = self._attend(read, seen, None, images.mask)
        _, said = self._attend(seen, read, images.mask, None)
        return torch.stack([self._of_picture(gathered, seen), said], dim=2)

    def _of_picture(self, gathered: Float[Tensor, "t i d"], seen: _Asked) -> Float[Tensor, "i t d"]:
        """What words gather of each picture, and its own vector."""
        of_picture = gathered.transpose(0, 1)
        if self.fusion is None or self.picture is None:
            return of_picture
        bf16 = in_inference(self.bf16)
        own = square_linear(seen.whole, self.picture.weight, bf16=bf16)
        return self.fusion(of_picture, own[:, None], bf16=bf16)

    def _attend(
        self,
        own: _Asked,
        other: _Asked,
        own_mask: Bool[Tensor, "n p"] | None,
        other_mask: Bool[Tensor, "m q"] | None,
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m d"]]:
        """Mean cosine of what asks with what it gathers, and the mean of that through X."""
        (heads, count, parts, _), (others, places) = own.asking.shape, other.keys.shape[1:3]
        keys, bf16 = other.keys.flatten(1, 2), in_inference(self.bf16)
        logits, fits = (product(q.flatten(1, 2), keys, bf16=bf16) for q in (own.asking, own.folded))
        weights = (logits / math.sqrt(self.width // heads)).view(heads, count, parts, others, places)
        if other_mask is not None:
            weights = weights.masked_fill(~other_mask, -math.inf)
        weights = weights.softmax(dim=4)
        along = (weights * fits.view_as(weights)).sum(dim=(0, 4))
        laid = weights.permute(3, 1, 2, 0, 4).reshape(others, count * parts, heads * places)
        squares = (product(laid, other.gram.mT, bf16=bf16) * laid).sum(dim=2).view(others, count, parts)
        lengths = own.lengths[:, :, None] * squares.clamp_min(EPSILON**2).sqrt().permute(1, 2, 0)
        cosines = along / lengths.clamp_min(EPSILON)
        laid = laid.view(others, count, parts, heads * places)
        if own_mask is None:
            mean, share = cosines.mean(dim=1), laid.mean(dim=2)
        else:
            there = own_mask / own_mask.sum(dim=1, keepdim=True)
            mean = (cosines * there[:, :, None]).sum(dim=1)
            share = (laid * there[:, :, None]).sum(dim=2)
        return mean, product(share, other.means.mT, bf16=bf16).transpose(0, 1)
