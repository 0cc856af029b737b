"""The softmax over the batch as the ranking terms of any host, and the similarity that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Term


def softmax(
    temperature: float, *, learnable: bool = False, label_smoothing: float = 0.0
) -> tuple[dict[str, Term], Cosine]:
    """InfoNCE in both directions, half of the objective each, and a cosine over `temperature`."""
    from subtext.core import DIRECTIONS
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.objective import Term

    loss = InfoNCE(label_smoothing=label_smoothing)
    terms: dict[str, Term] = {direction: Term(loss, on=direction, weight=0.5) for direction in DIRECTIONS}
    return terms, Cosine(temperature=temperature, learnable=learnable)
