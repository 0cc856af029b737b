"""What is asked for: words, a picture, examples to be like or unlike; and how the answer is to be put in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.search.stores.item import Side

HUBS = ("csls", "softmax")


@dataclass(frozen=True)
class Query:
    """What is asked for; one thing or several.

    text     words that the item should go with          without  words that it should not go with
    image    a picture that it should go with            like, unlike  ids of items of the index, as examples; a
                                                         picture's comes before a text's of the same name
    image_weight   share of the picture where there are words, too, from 0 to 1; without a picture that of `like`
    unlike_weight  what all that is not wanted counts beside all that is, which counts 1

    Raises RequirementError when nothing is asked for, and for weights outside their ranges.
    """

    text: str | None = None
    image: Any = None
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    without: str | None = None
    image_weight: float = 0.5
    unlike_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.text is None and self.image is None and not self.like:
            raise RequirementError(
                "a search needs words, a picture, or an item to be like (text, image, like); it got neither; give one"
            )
        if not 0 <= self.image_weight <= 1:
            raise RequirementError(f"image_weight needs to be from 0 to 1; it got {self.image_weight}")
        if not self.unlike_weight >= 0:
            raise RequirementError(f"unlike_weight needs to be 0 or more; it got {self.unlike_weight}")

    @property
    def parts(self) -> list[tuple[str, Any, float]]:
        """("text" | "image" | "item", what, weight); the weights of what is wanted add up to 1."""
        beside = self.image is not None or bool(self.like)
        share = self.image_weight if self.text is not None else 1.0
        wanted = [
            ("text", self.text, 1 - share if beside else 1.0),
            ("image", self.image, share),
            *(("item", each, (share if self.image is None else 1.0) / len(self.like)) for each in self.like),
        ]
        wanted = [part for part in wanted if part[1] is not None and part[2] > 0]
        total = sum(weight for _, _, weight in wanted)
        others = [*(("item", each) for each in self.unlike), *([("text", self.without)] if self.without else [])]
        unwanted = [(kind, what, -self.unlike_weight / len(others)) for kind, what in others]
        return [(kind, what, weight / total) for kind, what, weight in wanted] + [p for p in unwanted if p[2] < 0]

    @property
    def words(self) -> str | None:
        """The words, where they are given and weigh something."""
        return next((what for kind, what, weight in self.parts if kind == "text" and weight > 0), None)

    @property
    def words_alone(self) -> bool:
        """Whether nothing but words is wanted."""
        return all(kind == "text" for kind, _, weight in self.parts if weight > 0)


@dataclass(frozen=True)
class Order:
    """How what was found is put in order, beyond its scores.

    words      also finds texts, and pictures of texts, by the words of the question (BM25), and fuses both orders by
               rank (Cormack and others 2009)
    hubs       holds back items that are near to everything: "csls" (Lample and others 2018), or "softmax", the inverted
               softmax (Smith and others 2017)
    diversity  from 0 to 1: near-copies of what stands above go down (maximal marginal relevance)
    depth      items that these look at; what stands further down is not brought up

    Raises RequirementError for values outside their ranges.
    """

    words: bool = False
    hubs: Literal["csls", "softmax"] | None = None
    diversity: float = 0.0
    depth: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.diversity <= 1:
            raise RequirementError(f"diversity needs to be from 0 to 1; it got {self.diversity}")
        if self.hubs is not None and self.hubs not in HUBS:
            raise RequirementError(f"hubs needs to be {' or '.join(HUBS)}; it got '{self.hubs}'")
        if self.depth < 1:
            raise RequirementError(f"depth needs to be 1 or more; it got {self.depth}")

    @property
    def plain(self) -> bool:
        """Whether the scores alone decide."""
        return not (self.words or self.hubs or self.diversity)


@dataclass(frozen=True)
class Part:
    """One thing that is asked for, as vectors.

    weight   below 0 for what is not wanted
    vectors  (L D)
    of       the modality that they are of
    key      of the item that it is, on that side of the index; None for one that is not of the index
    """

    weight: float
    vectors: NDArray[np.float32]
    of: Side
    key: int | None = None
