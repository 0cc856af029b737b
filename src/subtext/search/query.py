"""A search request: text, an image, example items, and how the results are ranked."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.search.stores.condition import Condition, parse
from subtext.search.stores.item import SIDES, Side


@dataclass(frozen=True)
class Query:
    """One search request. Text, an image and examples can be combined.

    text       words that the results should match
    image      path, bytes, PIL image or precomputed features of an image that the results should match
    like       ids of items of the index as positive examples; an image's id comes before a text's of the same name, and
               ("texts", id) names the side
    not_like   ids of items as negative examples          not_text  words that the results should not match
    image_weight     weight of the image beside the text, from 0 to 1; without an image, the weight of `like`
    not_like_weight  weight of all negative parts, beside 1 for the positive ones
    top, target      number of results; "images" or "texts"
    where      conditions on the metadata, as `Condition` or text such as "year >= 1990"; all must hold
    lexical    also matches texts by their words (BM25), and fuses both rankings by rank (Cormack et al. 2009)
    hubness    correction of items that are near every query: "csls" (Lample et al. 2018), or "softmax", the inverted
               softmax (Smith et al. 2017)
    diversity  from 0 to 1: lowers near-duplicates of higher results (maximal marginal relevance)
    min_probability  leaves out results below this probability of being a true match; needs a calibrated index
    explain    adds to each result the captions, or images, that support it
    depth      candidates that `lexical`, `hubness` and `diversity` re-rank

    Raises RequirementError where there is nothing to search for, and for values out of range.
    """

    text: str | None = None
    image: Any = None
    like: Sequence[str | tuple[Side, str]] = ()
    not_like: Sequence[str] = ()
    not_text: str | None = None
    image_weight: float = 0.5
    not_like_weight: float = 0.5
    top: int = 10
    target: Side = "images"
    where: Sequence[Condition | str] = ()
    lexical: bool = False
    hubness: Literal["csls", "softmax"] | None = None
    diversity: float = 0.0
    min_probability: float | None = None
    explain: bool = False
    depth: int = 200

    def __post_init__(self) -> None:
        if self.text is None and self.image is None and not self.like:
            raise RequirementError("a search needs text, an image or an example item (text, image, like); it got none")
        require_target(self.target, self.top)
        for name, least, most in (
            ("image_weight", 0, 1), ("diversity", 0, 1), ("not_like_weight", 0, np.inf), ("depth", 1, np.inf),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                limits = f"from {least} to {most}" if most < np.inf else f"{least} or more"
                raise RequirementError(f"{name} needs to be {limits}; it got {value}")
        if self.hubness not in (None, "csls", "softmax"):
            raise RequirementError(f"hubness needs to be csls or softmax; it got '{self.hubness}'")

    @property
    def parts(self) -> list[tuple[str, Any, float]]:
        """("text" | "image" | "item", value, weight); the positive weights sum to 1."""
        combined = self.image is not None or bool(self.like)
        share = self.image_weight if self.text is not None else 1.0
        positive = [
            ("text", self.text, 1 - share if combined else 1.0),
            ("image", self.image, share),
            *(("item", item, (share if self.image is None else 1.0) / len(self.like)) for item in self.like),
        ]
        positive = [part for part in positive if part[1] is not None and part[2] > 0]
        total = sum(weight for _, _, weight in positive)
        excluded = [*(("item", item) for item in self.not_like), *([("text", self.not_text)] if self.not_text else [])]
        negative = [(kind, value, -self.not_like_weight / len(excluded)) for kind, value in excluded]
        return [(kind, value, weight / total) for kind, value, weight in positive] + [p for p in negative if p[2] < 0]

    @property
    def texts(self) -> list[str]:
        """The texts that the model embeds."""
        return [value for kind, value, _ in self.parts if kind == "text"]

    @property
    def positive_text(self) -> str | None:
        """The text, where there is one and its weight is above 0."""
        return next((value for kind, value, weight in self.parts if kind == "text" and weight > 0), None)

    @property
    def text_only(self) -> bool:
        """Whether text is the only positive part."""
        return all(kind == "text" for kind, _, weight in self.parts if weight > 0)

    @property
    def by_score(self) -> bool:
        """Whether the scores alone decide the ranking."""
        return not (self.lexical or self.hubness or self.diversity)

    @property
    def batchable(self) -> bool:
        """Whether this is one text or one image, ranked by score: such queries share a batch."""
        simple = self.by_score and self.min_probability is None and not self.explain
        return simple and len(self.parts) == 1 and self.parts[0][0] != "item"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """`where`, parsed."""
        return tuple(parse(condition) if isinstance(condition, str) else condition for condition in self.where)

    @property
    def cache_key(self) -> Hashable:
        """Equal for queries with equal answers; an image is compared by a digest of its bytes."""
        digest = hashlib.blake2b(self.image, digest_size=16).digest() if isinstance(self.image, bytes) else None
        return digest, repr(replace(self, text=self.text or "", image=None))


@dataclass(frozen=True)
class Part:
    """One part of a query as vectors.

    weight    below 0 for a negative part
    vectors   (L D)
    modality  the side that they are of
    key       of the item of the index, on that side; None for text or an external image
    """

    weight: float
    vectors: NDArray[np.float32]
    modality: Side
    key: int | None = None


def require_target(target: str, top: int) -> Side:
    """The side to search. Raises RequirementError for another name, and for a `top` below 1."""
    if target not in SIDES:
        raise RequirementError(f"a search looks for 'images' or 'texts'; it got '{target}'")
    if top < 1:
        raise RequirementError(f"a search needs top of 1 or more; it got {top}")
    return "images" if target == "images" else "texts"


def opposite(side: Side) -> Side:
    """The other side."""
    return SIDES[1 - SIDES.index(side)]
