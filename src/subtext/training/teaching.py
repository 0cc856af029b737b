"""What a teacher knows of training pairs: its scores of a batch, and of candidates that the student takes for near.

The teacher is a trained model, most often one that looks at regions and words together. It embeds all training pictures
and texts once, when a training begins; its scores come divided by a temperature, so that a softmax of them is what it
believes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.data.fingerprint import fingerprint
from subtext.data.lengths import cut_note
from subtext.errors import DataError
from subtext.evaluation import embed_pairs, reranking
from subtext.models.checkpoint import Record, load_record
from subtext.models.model import Model
from subtext.ops import draw
from subtext.ops.numerics import masked_logsumexp
from subtext.training.related import Related

SCALE = "teacher"
"""The name of the relevance that a batch comes with."""
SAMPLE = 256
"""Training pairs that the teacher's temperature is fitted on."""


@dataclass(frozen=True)
class Known:
    """A teacher with its embeddings of all training pictures and texts; scores are divided by `temperature`.

    notes  what is to be said of it before a training begins
    """

    model: Model
    images: Embeddings
    texts: Embeddings
    temperature: float
    notes: tuple[str, ...] = ()

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Scores of all these pictures with all these texts, by their rows."""
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        own, others = self.images[torch.from_numpy(images)], self.texts[torch.from_numpy(texts)]
        found: Tensor = self.model.similarity(own.to(device), others.to(device))
        return (found.float() / self.temperature).cpu()

    def of_pairs(self, pairs: Int[np.ndarray, "p two"]) -> Float[np.ndarray, "p"]:
        """Scores of chosen pairs, ordered by picture."""
        found = reranking.pair_scores(self.model.similarity, self.images, self.texts, pairs)
        return np.asarray(found / self.temperature, dtype=np.float32)


class Teacher:
    """A run to learn from; it is opened when a training asks it first, and once for each set of pairs.

    run          its folder                                      opened  folder, device -> its model and record
    temperature  of its scores; 0: the one at which a softmax of them fits its own training pairs best
    device       where it computes
    """

    def __init__(
        self,
        run: Path,
        opened: Callable[[Path, str], tuple[Model, Record]],
        *,
        temperature: float = 0.0,
        device: str = "cpu",
    ) -> None:
        self.run, self._opened = run, opened
        self._temperature, self._device = temperature, device
        self._known: dict[str, Known] = {}

    def require(self, pairs: Dataset) -> None:
        """Raise DataError unless the teacher learnt from these training pairs; CheckpointError where there is none.

        One that learnt from others may have seen what the student is selected or judged by.
        """
        record = load_record(self.run)
        theirs, mine = record.data.fingerprint.partition("-")[0], fingerprint(pairs)
        if theirs != mine:
            raise DataError(
                f"a teacher needs to have learnt from the pairs that its student learns from ({mine[:12]}); {self.run} "
                f"learnt from others ({theirs[:12] or 'unknown'}, split '{record.data.train_split}' of "
                f"{record.data.data or 'pairs made in memory'}); train a teacher on this split, or name another"
            )

    def known(self, pairs: Dataset) -> Known:
        """What it knows of these pairs. Raises what opening and embedding raise."""
        key = fingerprint(pairs)
        if key not in self._known:
            model, _ = self._opened(self.run, self._device)
            cut = cut_note(model.text.input_spec, pairs.texts.values)
            notes = () if cut is None else (f"the teacher {self.run}: {cut}",)
            plain = Known(model, *embed_pairs(model, pairs), 1.0, notes)
            self._known[key] = replace(plain, temperature=self._temperature or fitted_temperature(plain, pairs))
        return self._known[key]


def fitted_temperature(teacher: Known, pairs: Dataset) -> float:
    """The temperature at which a softmax of the teacher's scores gives a sample of pairs the most, both ways.

    Others of a pair's group are left out. Tried are 61 temperatures from a thousandth to a thousand times the standard
    deviation of the scores.
    """
    order = draw.permutation(len(pairs.links), seed=0, epoch=0, purpose="teacher's temperature")
    links = pairs.links[order[:SAMPLE]]
    scores = teacher(links[:, 0], links[:, 1]).double()
    groups = torch.from_numpy(pairs.images.groups[links[:, 0]])
    counted = (groups[:, None] != groups) | torch.eye(len(links), dtype=torch.bool)
    spread = float(scores.std()) or 1.0
    best, lowest = spread, math.inf
    for power in torch.linspace(-3, 3, 61).tolist():
        logits = scores / (spread * 10**power)
        both = [masked_logsumexp(one, counted) - logits.diagonal() for one in (logits, logits.T)]
        value = float(torch.stack(both).mean())
        if value < lowest:
            best, lowest = spread * 10**power, value
    return best


@dataclass(frozen=True)
class BatchLessons:
    """What `Setup.relevance` holds: the teacher's scores of every batch."""

    teacher: Teacher

    def require(self, pairs: Dataset) -> None:
        """Raise DataError unless the teacher learnt from these pairs."""
        self.teacher.require(pairs)

    def open(self, pairs: Dataset) -> Related:
        """The scores of these pairs, ready to be looked up."""
        return _Batch(self.teacher.known(pairs))


@dataclass(frozen=True)
class _Batch:
    """A relevance, by the name of SCALE."""

    teacher: Known
    name: str = SCALE

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of the teacher."""
        return self.teacher.notes

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        return self.teacher(images, texts)
