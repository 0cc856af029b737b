"""What a search gives: items that were found, why, and whether they fit at all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Reason:
    """A text or picture that says why an item was found.

    id, text  its name, and its words (of a picture None)
    score     its cosine with what was asked for; of a nearest one, with the item
    of        "own": it belongs to the item; "nearest": the item has none of its own, and this is the nearest
    """

    id: str
    text: str | None
    score: float
    of: Literal["own", "nearest"] = "own"


@dataclass(frozen=True)
class Hit:
    """One item that was found.

    id        its name in the data set
    score     cosine of the views that fit best, in [-1, 1]; the inner product for a model that leaves vectors' lengths.
              Where several things were asked for together, their weighted sum in deviations above the mean item
    path      of a picture, absolute; None for a text, and for a picture without a file
    captions  the texts of a picture; of a text, the text itself
    metadata  "split", and the further columns of the data set; of a text also "images", the ids of its pictures
    probability  of being a true match; None where the index is not calibrated for what was asked
    why       reasons, where they were asked for, the strongest first
    uncertainty  root mean square of its standard deviations, where the model compares distributions (`pcme_plus`):
              its score is then the cosine of means, less half of both sums of variances; else None
    """

    id: str
    score: float
    path: str | None
    captions: list[str]
    metadata: dict[str, Any] = field(default_factory=dict)
    probability: float | None = None
    why: list[Reason] = field(default_factory=list)
    uncertainty: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data, without an uncertainty that there is not."""
        told = asdict(self)
        return told if self.uncertainty is not None else {name: told[name] for name in told if name != "uncertainty"}


@dataclass(frozen=True)
class Fit:
    """Whether anything in the index matches what was asked for well.

    standing  share of questions that have an answer here, and of which the index showed as little or less: 0.5 for one
              like most, 0 for one that is weaker than all of them
    refused   the share below which nothing is said to fit: so many questions that have an answer are refused wrongly
    """

    standing: float
    refused: float

    @property
    def nothing(self) -> bool:
        """Whether nothing here matches well."""
        return self.standing < self.refused

    @property
    def sentence(self) -> str:
        """In plain words."""
        if not self.nothing:
            return f"of questions that have an answer here, {_share(self.standing)} look as weak as this one or weaker"
        weak = "none looks" if self.standing < 0.005 else f"only {_share(self.standing)} look"
        return f"nothing here matches well: of questions that have an answer here, {weak} as weak as this one"

    def to_json(self) -> dict[str, Any]:
        """As plain data, the sentence with it."""
        return {**asdict(self), "nothing": self.nothing, "sentence": self.sentence}


@dataclass(frozen=True)
class Answer:
    """What an index answers.

    hits      best first
    unit      of their scores: "cosine", or "deviations" where several things were asked for together
    fit       None where the index is not calibrated for what was asked
    left_out  hits of less than the probability that was asked for
    stale     share of the items that came or went since the calibration, where that is too much to trust it
    """

    hits: list[Hit]
    unit: Literal["cosine", "deviations"] = "cosine"
    fit: Fit | None = None
    left_out: int = 0
    stale: float | None = None


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"
