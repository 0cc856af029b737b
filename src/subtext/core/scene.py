"""The comparisons of one batch, and what is known beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from torch import Tensor

from subtext.core.comparison import Comparison
from subtext.core.embeddings import Embeddings
from subtext.errors import RequirementError

Direction = Literal["image_to_text", "text_to_image"]
DIRECTIONS: tuple[Direction, Direction] = ("image_to_text", "text_to_image")


@dataclass(frozen=True)
class Scene:
    """The comparisons of one batch, both directions apart, because widening differs by direction.

    image_neighbours and text_neighbours compare items with sampled neighbours of their own modality; `edited` holds
    comparisons with generated texts, by name.
    """

    image_to_text: Comparison
    text_to_image: Comparison
    image_neighbours: Comparison | None = None
    text_neighbours: Comparison | None = None
    edited: Mapping[str, Comparison] = field(default_factory=dict)

    def comparison(self, name: str) -> Comparison:
        """The comparison of that name ("image_to_text", "text_neighbours", or the name of an edit).

        Raises RequirementError when the batch was built without it.
        """
        known = {f.name for f in fields(self)} - {"edited"}
        present = {n: getattr(self, n) for n in known if getattr(self, n) is not None} | dict(self.edited)
        if name not in present:
            raise RequirementError(
                f"a term reads the comparison '{name}', but this batch has only {', '.join(sorted(present))}; "
                "add the method that supplies it, or leave the term out"
            )
        return present[name]


@dataclass(frozen=True)
class Epoch:
    """What a weighting may know beyond its batch.

    number  counted from 0        seed  the run's        drawing  epoch whose draws are made; None for this one
    table   name -> (items) scores of the whole data set, looked up by item id        bank  embeddings kept from before
    """

    number: int
    seed: int
    table: Mapping[str, Tensor] | None = None
    bank: Mapping[str, Embeddings] | None = None
    drawing: int | None = None

    @property
    def draws(self) -> int:
        """The epoch that draws are a function of."""
        return self.number if self.drawing is None else self.drawing
