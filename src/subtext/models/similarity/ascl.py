"""Multi-head cross attention in both directions: local scores of words and regions, and a global score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.attention import EPSILON, Fusion, FusionKind
from subtext.ops.numerics import in_inference, linear, padded, product, square_linear, xavier
from subtext.ops.pairwise import PairSimilarity, parts_of, vectors_of

BLOCK_FLOATS = 2**24
"""Numbers that a block may take: each reads all terms of its images, which several texts share."""


class _AsclSide(NamedTuple):
    """The terms of one side as context and as queries, computed once for all of the other side.

    Attributes:
        keys: (H N P d).
        queries: (H N P d).
        folded: (H N P d), the parts through Z^O of the direction in which they query.
        gram: (N HP HP), products of what each part adds to a context.
        means: (N HP D), the same through X.
        lengths: (N P) of the parts.
        vectors: (N D) of the items.
    """

    keys: Tensor
    queries: Tensor
    folded: Tensor
    gram: Tensor
    means: Tensor
    lengths: Tensor
    vectors: Tensor


class _AsclDirection(nn.Module):
    """Parameters of one direction: X queries Y. Y* = concat over heads of (A_h Y Z_h^Y) Z^O; then a map of its mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.out, self.whole = (nn.Linear(width, width, bias=False) for _ in range(4))
        for layer in (self.query, self.key, self.out, self.whole):
            xavier(layer)


class Ascl(PairSimilarity):
    """AsCL's similarity (Gong et al. 2024): cross attention between regions and words, local and global.

    A_h = softmax((X Z_h^X)(Y Z_h^Y)' / sqrt(D / H)),  Y* = concat over h of (A_h Y Z_h^Y) Z^O
    S_local = mean over regions of cos(v, w*) / 2 + mean over words of cos(w, v*) / 2
    S_global = cos(Fusion(mean v* X_v, G X_g), mean w* X_w);   score = (u S_local + (1 - u) S_global) / temperature
    No public code is known. Keys and values share Z^Y, as printed; sums are divided by their number of terms.

    The call takes `Embeddings` with parts of width D, and one vector per image unless fusion is "none". It returns (I
    T) scores in [-1 / temperature, 1 / temperature]; the gradient reaches parts and images' vectors.

    Args:
        width: D of parts and vectors, 1,024 in the paper.
        heads: H, which divides D; 0 for 8 where that divides D, else 1. Unspecified in the paper.
        local_share: u in [0, 1]: 0.8 on COCO, 0.6 on Flickr30K.
        fusion: Joins the words' context and the image's vector G: "gated" as in DSRAN, "mean", "sum", "concat"; "none":
            without G. Unspecified in the paper.
        directions: "separate": regions and words query with parameters of their own; "shared": with the same.
        temperature: 0.05 on COCO, 0.01 on Flickr30K; InfoNCE reads scores after this division.
        bf16: Whether products are in bfloat16, see `CrossAttention`.

    Raises:
        RequirementError: If items have no parts, heads do not divide D, local_share is outside [0, 1], or the
            temperature is not above 0.

    Complexity:
        Four products I T R L D, and I T (L (H R)^2 + R (H L)^2 + (R + L) H D): Z^O is folded into the queries, and
        contexts are never formed. Memory I T H R L in training, in blocks beyond 512 MB.

    Example:
        >>> part = Ascl(width=2, heads=1, fusion="none", local_share=1.0, temperature=1.0)
        >>> items = Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([[[0.6, 0.8]]]))
        >>> -1 <= part(items, items).item() <= 1
        True
    """

    width: int
    block = BLOCK_FLOATS

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
        self.by_words = _AsclDirection(width)
        self.by_regions = _AsclDirection(width) if directions == "separate" else self.by_words
        self.image_map = nn.Linear(width, width, bias=False) if fusion != "none" else None
        self.fusion = Fusion(width, fusion) if fusion != "none" else None
        self.local_share = local_share
        self.temperature = temperature
        self.width = width
        self.bf16 = bf16

    def pair_vectors(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t 2 d"]:
        """The two vectors of every pair that S_global compares: the image's given the text, and the text's.

        Args:
            images: I items with parts, and vectors unless fusion is "none".
            texts: T items with parts.

        Returns:
            (I T 2 D).

        Raises:
            RequirementError: If local_share is 1, where there is no S_global.
        """
        if self.local_share == 1:
            raise RequirementError(
                "vectors of pairs belong to AsCL's global score; with a local share of 1 there is none; train with a "
                "smaller share"
            )
        return self.all_pairs(images, texts, lambda *pairs: torch.stack(self._terms(*pairs)[1](), dim=2))

    def prepare(self, images: Embeddings) -> _AsclSide:
        """The terms of images alone, for scoring them with texts in several calls.

        Args:
            images: I items with parts.

        Returns:
            The terms.
        """
        return self._side(images, attended=self.by_words, attending=self.by_regions)

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes in memory.

        Args:
            regions: Number of regions of an image.
            words: Number of words of a text.

        Returns:
            The number.
        """
        return 8 * self.heads * regions * words + 6 * self.width

    def _side(self, items: Embeddings, *, attended: _AsclDirection, attending: _AsclDirection) -> _AsclSide:
        """The terms of items: they are context in the direction `attended`, queries in `attending`."""
        parts, bf16 = parts_of(items), in_inference(self.bf16)
        maps = (
            self._by_head(weight) for weight in (attended.key.weight, attending.query.weight, attending.out.weight.T)
        )
        keys, queries, folded = (self._split(linear(parts, weight.flatten(0, 1), bf16=bf16)) for weight in maps)
        added = product(keys.flatten(1, 2), self._by_head(attended.out.weight.T).mT, bf16=bf16)
        added = added.unflatten(1, parts.shape[:2]).transpose(0, 1).flatten(1, 2)
        # A cut-off word has length zero, where a root has no slope.
        lengths = (parts * parts).sum(dim=2).clamp_min(EPSILON**2).sqrt()
        means = square_linear(added, attended.whole.weight, bf16=bf16)
        return _AsclSide(
            keys, queries, folded, product(added, added, bf16=bf16), means, lengths, vectors_of(items, self.width)
        )

    def _by_head(self, weight: Float[Tensor, "d d"]) -> Float[Tensor, "h e d2"]:
        """Rows of weights by head, padded with zeros."""
        return padded(weight.unflatten(0, (self.heads, -1)), 2)

    def _split(self, parts: Float[Tensor, "n p d"]) -> Float[Tensor, "h n p e"]:
        return parts.unflatten(2, (self.heads, -1)).permute(2, 0, 1, 3).contiguous()

    def score(self, images: Embeddings, prepared: _AsclSide, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of images with texts of one length.

        Args:
            images: I items with parts.
            prepared: The result of `prepare` for these images.
            texts: T items with parts, none masked.

        Returns:
            (I T) scores.
        """
        local, vectors = self._terms(images, prepared, texts)
        if self.local_share == 1:
            return local / self.temperature
        global_scores = torch.nn.functional.cosine_similarity(*vectors(), dim=2, eps=EPSILON)
        return (self.local_share * local + (1 - self.local_share) * global_scores) / self.temperature

    def _terms(
        self, images: Embeddings, image_side: _AsclSide, texts: Embeddings
    ) -> tuple[Float[Tensor, "i t"], Callable[[], tuple[Tensor, Tensor]]]:
        """S_local, and a function that returns the two vectors (I T D) of every pair that S_global compares."""
        text_side = self._side(texts, attended=self.by_regions, attending=self.by_words)
        words, gathered = self._attend(text_side, image_side, None, images.mask)
        regions, text_vectors = self._attend(image_side, text_side, images.mask, None)

        def vectors() -> tuple[Tensor, Tensor]:
            context, bf16 = gathered.transpose(0, 1), in_inference(self.bf16)
            if self.fusion is None or self.image_map is None:
                return context, text_vectors
            image_vectors = square_linear(image_side.vectors, self.image_map.weight, bf16=bf16)
            return self.fusion(context, image_vectors[:, None], bf16=bf16), text_vectors

        return (words.T + regions) / 2, vectors

    def _attend(
        self,
        queries: _AsclSide,
        context: _AsclSide,
        query_mask: Bool[Tensor, "n p"] | None,
        context_mask: Bool[Tensor, "m q"] | None,
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m d"]]:
        """Mean cosine of queries with their contexts, and the mean context through X."""
        (heads, count, parts, _), (context_count, context_parts) = queries.queries.shape, context.keys.shape[1:3]
        keys, bf16 = context.keys.flatten(1, 2), in_inference(self.bf16)
        logits, products = (product(q.flatten(1, 2), keys, bf16=bf16) for q in (queries.queries, queries.folded))
        weights = (logits / math.sqrt(self.width // heads)).view(heads, count, parts, context_count, context_parts)
        if context_mask is not None:
            weights = weights.masked_fill(~context_mask, -math.inf)
        weights = weights.softmax(dim=4)
        along = (weights * products.view_as(weights)).sum(dim=(0, 4))
        flat_weights = weights.permute(3, 1, 2, 0, 4).reshape(context_count, count * parts, heads * context_parts)
        squares = (
            (product(flat_weights, context.gram.mT, bf16=bf16) * flat_weights)
            .sum(dim=2)
            .view(context_count, count, parts)
        )
        lengths = queries.lengths[:, :, None] * squares.clamp_min(EPSILON**2).sqrt().permute(1, 2, 0)
        cosines = along / lengths.clamp_min(EPSILON)
        flat_weights = flat_weights.view(context_count, count, parts, heads * context_parts)
        if query_mask is None:
            mean, share = cosines.mean(dim=1), flat_weights.mean(dim=2)
        else:
            present = query_mask / query_mask.sum(dim=1, keepdim=True)
            mean = (cosines * present[:, :, None]).sum(dim=1)
            share = (flat_weights * present[:, :, None]).sum(dim=2)
        return mean, product(share, context.means.mT, bf16=bf16).transpose(0, 1)
