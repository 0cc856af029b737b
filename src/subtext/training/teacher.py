"""What a teacher knows of training pairs: its scores of a batch, and of candidates that the student takes for near.

The teacher is a trained model, most often one that looks at regions and words together. It embeds all training images
and texts once, when a training begins; its scores come divided by a temperature, so that a softmax of them is what it
believes.

Lessons that are mined: a teacher's scores of what a student takes for near, before each epoch but the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Comparison, Direction, Embeddings, Epoch, Scene, Truth
from subtext.data.dataset import Dataset, fingerprint
from subtext.data.text import cut_note
from subtext.errors import DataError, RequirementError
from subtext.evaluation import embed_pairs
from subtext.evaluation.two_stages.scores import Shortlists, pair_scores, top_columns
from subtext.graphs.graph import image_of_text
from subtext.models.checkpoint import fingerprint as of_weights, load_record
from subtext.models.model import Model
from subtext.ops import draw
from subtext.ops.numerics import best_views, masked_logsumexp
from subtext.training.memory import Embed, TrainingBank

SCALE = "teacher"
"""The name of the relevance that a batch comes with."""
SAMPLE = 256
"""Training pairs that the teacher's temperature is fitted on."""


@dataclass(frozen=True)
class LoadedTeacher:
    """A teacher with its embeddings of all training images and texts; scores are divided by `temperature`.

    Args:
        notes: What is to be said of it before a training begins.
        name: Of the relevance that a batch gets from it.
    """

    model: Model
    images: Embeddings
    texts: Embeddings
    temperature: float
    notes: tuple[str, ...] = ()
    name: str = SCALE

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Scores of all these images with all these texts, by their rows."""
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        image_items, text_items = self.images[torch.from_numpy(images)], self.texts[torch.from_numpy(texts)]
        scores: Tensor = self.model.similarity(image_items.to(device), text_items.to(device))
        return (scores.float() / self.temperature).cpu()

    def of_pairs(self, pairs: Int[np.ndarray, "p two"]) -> Float[np.ndarray, "p"]:
        """Scores of chosen pairs, ordered by image."""
        scores = pair_scores(self.model.similarity, self.images, self.texts, pairs)
        return np.asarray(scores / self.temperature, dtype=np.float32)


class Teacher:
    """A run to learn from, and the relevance of batches by its scores; it is opened once for each set of pairs.

    Args:
        run: Its folder.
        load: Folder, device -> its model.
        temperature: Of its scores; 0: the one at which a softmax of them fits its own training pairs best.
        device: Where it computes.
    """

    def __init__(
        self, run: Path, load: Callable[[Path, str], Model], *, temperature: float = 0.0, device: str = "cpu"
    ) -> None:
        self.run, self._load = run, load
        self._temperature, self._device = temperature, device
        self._loaded: dict[str, LoadedTeacher] = {}

    def require(self, pairs: Dataset) -> None:
        """Raise DataError unless the teacher learnt from these training pairs; CheckpointError where there is none.

        One that learnt from others may have seen what the student is selected or judged by.
        """
        record = load_record(self.run)
        theirs, mine = record.fingerprint.partition("-")[0], fingerprint(pairs)
        if theirs != mine:
            raise DataError(
                f"a teacher needs to have learnt from the pairs that its student learns from ({mine[:12]}); {self.run} "
                f"learnt from others ({theirs[:12] or 'unknown'}, split '{record.data.train_split}' of "
                f"{record.data.data or 'pairs made in memory'}); train a teacher on this split, or name another"
            )

    def open(self, pairs: Dataset) -> LoadedTeacher:
        """Its scores of these pairs, ready to be looked up. Raises what opening and embedding raise."""
        key = fingerprint(pairs)
        if key not in self._loaded:
            model = self._load(self.run, self._device)
            cut = cut_note(model.text.input_spec, pairs.texts.values)
            notes = () if cut is None else (f"the teacher {self.run}: {cut}",)
            plain = LoadedTeacher(model, *embed_pairs(model, pairs), 1.0, notes)
            self._loaded[key] = replace(plain, temperature=self._temperature or fitted_temperature(plain, pairs))
        return self._loaded[key]


def fitted_temperature(teacher: LoadedTeacher, pairs: Dataset) -> float:
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
        both = [
            masked_logsumexp(direction_logits, counted) - logits.diagonal() for direction_logits in (logits, logits.T)
        ]
        value = float(torch.stack(both).mean())
        if value < lowest:
            best, lowest = spread * 10**power, value
    return best


IMAGES, TEXTS = "distil/image", "distil/text"
"""Where the bank keeps the student's embeddings."""
_CANDIDATES: dict[Direction, str] = {"image_to_text": TEXTS, "text_to_image": IMAGES}
_ROWS = 1024


@dataclass(frozen=True)
class MinedNegatives:
    """What `Setup.memories` holds: the teacher's scores of what the student takes for near, mined before each epoch.

    Attributes:
        count: Candidates of every image and of every text beside its own partner.

    Raises:
        RequirementError: If the count is below 1.
    """

    teacher: Teacher
    count: int = 16

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RequirementError(f"mined lessons need a count of 1 or more; it got {self.count}")

    def open(self, pairs: Dataset, *, device: torch.device) -> MinedNegativesBank:
        """The memory, empty, for these training pairs."""
        self.teacher.require(pairs)
        return MinedNegativesBank(self, pairs, device)


class MinedNegativesBank(TrainingBank):
    """Lists of a training: of every item its partner and the strangers nearest to it, and the teacher's scores of them.

    The bank has the student's embeddings of all items as they were before the epoch, under distil/image and
    distil/text; the table has (N C) rows and scores of every list, under distil/DIRECTION/rows and /scores. Nothing is
    known before the first epoch, when the student finds nothing.
    """

    def __init__(self, options: MinedNegatives, pairs: Dataset, device: torch.device) -> None:
        self.options, self.device, self._pairs = options, device, pairs
        self.teacher = options.teacher.open(pairs)
        weights = of_weights(self.teacher.model.state_dict())
        notes = (
            f"learning from {options.teacher.run}, whose scores are divided by {self.teacher.temperature:.4g}",
            *self.teacher.notes,
        )
        super().__init__(f"distil{options.count}{weights[:12]}", notes)
        # A text of every image, the first that a row names with it, and an image of every text; -1 for none.
        texts = np.full(len(pairs.images), -1, dtype=np.int64)
        images, first = np.unique(pairs.links[:, 0], return_index=True)
        texts[images] = pairs.links[first, 1]
        self._partners = {"image_to_text": texts, "text_to_image": image_of_text(pairs).astype(np.int64)}

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Embed, mine, and score by the teacher: each pair once, and 0 where there is no candidate."""
        if epoch == 0:
            return
        images, texts = (Embeddings(items.vectors.cpu(), items.ids.cpu()) for items in embed())
        groups = (self._pairs.images.groups, self._pairs.texts.groups)
        lists = {
            "image_to_text": strangers(images, texts, groups, self.options.count),
            "text_to_image": strangers(texts, images, groups[::-1], self.options.count),
        }
        rows = {side: np.concatenate([self._partners[side][:, None], lists[side]], axis=1) for side in DIRECTIONS}
        shortlists = Shortlists(*(np.maximum(rows[side], 0) for side in DIRECTIONS))
        pairs = shortlists.pairs()
        scores = self.teacher.of_pairs(pairs)
        self.bank = {IMAGES: images.to(self.device), TEXTS: texts.to(self.device)}
        table: dict[str, Tensor] = {}
        for side, indices in shortlists.positions(pairs).items():
            listed = np.where(rows[side] < 0, np.float32(0), scores[indices])
            table[f"distil/{side}/rows"] = torch.from_numpy(rows[side]).to(self.device)
            table[f"distil/{side}/scores"] = torch.from_numpy(listed).to(self.device)
        self.table = table

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        if self.bank is None or self.table is None:
            return {}
        return {**{name: items.vectors for name, items in self.bank.items()}, **self.table}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        if not tensors:
            return
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        self.bank = {
            name: Embeddings(moved.pop(name), torch.arange(len(tensors[name]), device=self.device))
            for name in (IMAGES, TEXTS)
        }
        self.table = moved


@dataclass(frozen=True)
class Mined:
    """A loss's comparison in which every query has a list of its own: its partner, and what was mined for it.

    Scores are plain cosines of the query as it is now with candidates as they were before the epoch; the relevance is
    the teacher's. Where nothing was mined, a list has one candidate, and a loss over lists nothing to say.

    Args:
        of: Direction whose queries they are.
    """

    of: Direction

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison that the loss is to read."""
        comparison = scene.comparison(self.of)
        name = f"distil/{self.of}"
        if comparison.queries is None:
            raise RequirementError("mined lists need the embeddings of the queries; this batch has scores alone")
        if epoch.table is None or epoch.bank is None or f"{name}/rows" not in epoch.table:
            no_scores = comparison.scores.new_zeros(len(comparison.scores), 1)
            return Comparison(no_scores, Truth(no_scores == 0, relevance=no_scores, scale=SCALE), comparison.queries)
        ids = comparison.queries.ids
        rows, scores = epoch.table[f"{name}/rows"][ids], epoch.table[f"{name}/scores"][ids]
        vectors = epoch.bank[_CANDIDATES[self.of]].vectors[rows.clamp_min(0)]
        fits = torch.einsum("qkd,qcld->qckl", comparison.queries.vectors, vectors.to(comparison.queries.vectors.dtype))
        match = torch.zeros_like(rows, dtype=torch.bool)
        match[:, 0] = rows[:, 0] >= 0
        return Comparison(
            fits.amax(dim=(2, 3)), Truth(match, rows < 0, relevance=scores, scale=SCALE), comparison.queries
        )


def strangers(
    queries: Embeddings, candidates: Embeddings, groups: tuple[NDArray[np.int64], NDArray[np.int64]], count: int
) -> Int[np.ndarray, "q m"]:
    """The rows of the `count` candidates nearest to each query that are of other groups; -1 where there are fewer.

    Args:
        groups: Of the queries, and of the candidates.
    """
    count = min(count, len(candidates))
    theirs = torch.from_numpy(groups[1])
    lists = []
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = best_views(queries.vectors[some], candidates.vectors)
        scores = scores.masked_fill(torch.from_numpy(groups[0][some])[:, None] == theirs, -torch.inf)
        rows = top_columns(scores, count)
        lists.append(np.where(np.isneginf(np.take_along_axis(scores.numpy(), rows, axis=1)), -1, rows))
    return np.concatenate(lists)
