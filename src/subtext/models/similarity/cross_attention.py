"""Stacked cross attention: every word against its attended regions, or every region against its attended words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops import attention
from subtext.ops.bf16 import in_inference
from subtext.ops.pairwise import pairwise, parts_of

Attending = Literal["text_to_image", "image_to_text"]


class _ImageTerms(NamedTuple):
    """Terms of images alone: products of their regions with each other, or the lengths of their regions."""

    gram: Tensor | None
    lengths: Tensor | None


class CrossAttention(nn.Module):
    """Stacked cross attention (SCAN, Lee et al. 2018, eq. 1-10): words against attended regions, or the reverse.

    text_to_image   c_w = sum over r of a_wr v_r;  score = pooling over words of cos(w, c_w)
    image_to_text   c_r = sum over w of a_rw w;    score = pooling over regions of cos(v_r, c_r)
    a is a softmax of attention_scale * s'. s' are the products of words with regions; negative ones count a tenth; then
    they are divided by their length over the queries (as in the authors' code: over words in text_to_image).

    attending        the side of the queries
    pooling          "mean", or "lse": ln of the sum of exp(pooling_scale * cos), over pooling_scale
    attention_scale  multiplies s'; 0 for the published 9 (words as queries) or 4 (regions)
    pooling_scale    multiplies the cosines; 0 for the published 6 (words) or 20 (regions; Flickr30K: 5)
    bf16             products in bfloat16 where the device supports it, not in training

    Takes     Embeddings with parts of one width, and their masks.
    Gives     (I T) scores; "mean" in [-1, 1]. The gradient reaches every part.
    Raises    RequirementError for items without parts and scales below 0; ShapeError for unequal widths.
    Cost      one product of all words with all regions, I T R L D; c is never formed: its length comes from the
              products of regions (or words) with each other. Memory I T R L in training, bounded otherwise.

    >>> import torch
    >>> def items(*parts):
    ...     return Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([parts]))
    >>> scores = CrossAttention(pooling="mean")(items([1.0, 0.0]), items([1.0, 0.0], [0.0, 1.0]))
    >>> scores.tolist()  # both words attend to the one region
    [[0.5]]
    """

    indexable = False

    def __init__(
        self,
        *,
        attending: Attending = "text_to_image",
        pooling: Literal["mean", "lse"] = "lse",
        attention_scale: float = 0.0,
        pooling_scale: float = 0.0,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if attention_scale < 0 or pooling_scale < 0:
            raise RequirementError(
                f"CrossAttention needs scales of 0 or more; it got {attention_scale} and {pooling_scale}; 0 stands for "
                "the published ones"
            )
        by_words = attending == "text_to_image"
        self.attending = attending
        self.pooling = pooling
        self.attention_scale = attention_scale or (9.0 if by_words else 4.0)
        self.pooling_scale = pooling_scale or (6.0 if by_words else 20.0)
        self.bf16 = bf16

    def forward(
        self, images: Embeddings, texts: Embeddings, prepared: _ImageTerms | None = None
    ) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        prepared  the result of `prepare` for these images, at most 64
        """
        score = self._by_words if self.attending == "text_to_image" else self._by_regions
        ready = self.prepare if prepared is None else lambda _: prepared
        return pairwise(images, texts, score, ready=ready, floats=lambda regions, words: 6 * regions * words)

    def prepare(self, images: Embeddings) -> _ImageTerms:
        """The terms of images alone, for scoring them with texts in several calls."""
        regions = parts_of(images)
        if self.attending == "text_to_image":
            return _ImageTerms(attention.gram(regions), None)
        return _ImageTerms(None, regions.norm(dim=2))

    def _by_words(self, images: Embeddings, prepared: _ImageTerms, texts: Embeddings) -> Float[Tensor, "i t"]:
        assert prepared.gram is not None
        words = parts_of(texts)
        products = self._products(words, images)
        weights = attention.over_regions(products, images.mask, self.attention_scale)
        cosines = attention.word_cosines(products, weights, words.norm(dim=2), prepared.gram)
        by_pair = cosines.permute(2, 0, 1)
        return by_pair.mean(dim=2) if self.pooling == "mean" else attention.soft_maximum(by_pair, self.pooling_scale)

    def _by_regions(self, images: Embeddings, prepared: _ImageTerms, texts: Embeddings) -> Float[Tensor, "i t"]:
        assert prepared.lengths is not None
        words = parts_of(texts)
        products = self._products(words, images)
        weights = attention.over_words(products, images.mask, self.attention_scale)
        cosines = attention.region_cosines(products, weights, prepared.lengths, attention.gram(words))
        by_pair = cosines.transpose(0, 1)
        mask = None if images.mask is None else images.mask[:, None]
        if self.pooling == "lse":
            shown = by_pair if mask is None else by_pair.masked_fill(~mask, float("-inf"))
            return attention.soft_maximum(shown, self.pooling_scale)
        if mask is None:
            return by_pair.mean(dim=2)
        return (by_pair * mask).sum(dim=2) / mask.sum(dim=2)

    def _products(self, words: Float[Tensor, "t l d"], images: Embeddings) -> Float[Tensor, "t l i r"]:
        return attention.products(words, parts_of(images), bf16=in_inference(self.bf16))
