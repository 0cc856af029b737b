"""A teacher's scores of the pairs of a batch, and of negatives that are mined by the student's embeddings.

The teacher is a trained model, usually one of regions and words. It embeds all training images and texts once, when a
training begins. Its scores are divided by a temperature, at which a softmax of them fits its own pairs. Negatives are
mined before each epoch but the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

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
from subtext.training.bank import Embed, TrainingBank

SCALE = "teacher"
"""The name of the relevance that a batch comes with."""
SAMPLE = 256
"""Training pairs that the teacher's temperature is fitted on."""


@dataclass(frozen=True)
class LoadedTeacher:
    """A teacher with its embeddings of all training images and texts.

    Attributes:
        model: The teacher.
        images: Embeddings of all images.
        texts: Embeddings of all texts.
        temperature: Its scores are divided by it.
        notes: Sentences for the user before a training begins.
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
        """Scores of some images with some texts.

        Args:
            images: (I) rows of images.
            texts: (T) rows of texts.

        Returns:
            (I T) float32 on the CPU.
        """
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        image_items, text_items = self.images[torch.from_numpy(images)], self.texts[torch.from_numpy(texts)]
        scores: Tensor = self.model.similarity(image_items.to(device), text_items.to(device))
        return (scores.float() / self.temperature).cpu()

    def of_pairs(self, pairs: Int[np.ndarray, "p two"]) -> Float[np.ndarray, "p"]:
        """Scores of chosen pairs.

        Args:
            pairs: (P 2) image row and text row, ordered by image.

        Returns:
            (P) float32.
        """
        scores = pair_scores(self.model.similarity, self.images, self.texts, pairs)
        return np.asarray(scores / self.temperature, dtype=np.float32)


class Teacher:
    """A run to learn from: the relevance of batches by its scores. It is loaded once for each set of pairs.

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
        """Refuse pairs from which the teacher did not learn.

        One that learnt from others may have seen what the student is selected or judged by.

        Args:
            pairs: Of the training.

        Raises:
            DataError: If it learnt from other pairs.
            CheckpointError: If there is no such run.
        """
        record = load_record(self.run)
        actual, expected = record.fingerprint.partition("-")[0], fingerprint(pairs)
        if actual != expected:
            raise DataError(
                f"a teacher needs to have learnt from the pairs that its student learns from ({expected[:12]}); "
                f"{self.run} learnt from others ({actual[:12] or 'unknown'}, split '{record.data.train_split}' of "
                f"{record.data.data or 'pairs made in memory'}); train a teacher on this split, or name another"
            )

    def open(self, pairs: Dataset) -> LoadedTeacher:
        """Load the teacher and embed some pairs, once for each set of pairs.

        Args:
            pairs: Of the training, or of the validation.

        Returns:
            Its scores, ready to be looked up.

        Raises:
            CheckpointError: If the run cannot be opened.
        """
        key = fingerprint(pairs)
        if key not in self._loaded:
            model = self._load(self.run, self._device)
            cut = cut_note(model.text.input_spec, pairs.texts.values)
            notes = () if cut is None else (f"the teacher {self.run}: {cut}",)
            plain = LoadedTeacher(model, *embed_pairs(model, pairs), 1.0, notes)
            self._loaded[key] = replace(plain, temperature=self._temperature or fitted_temperature(plain, pairs))
        return self._loaded[key]


def fitted_temperature(teacher: LoadedTeacher, pairs: Dataset) -> float:
    """The temperature at which a softmax of the teacher's scores fits a sample of pairs best, in both directions.

    Others of a pair's group are left out. 61 temperatures are tried, from a thousandth to a thousand times the standard
    deviation of the scores.

    Args:
        teacher: With temperature 1.
        pairs: Of which 256 are sampled.

    Returns:
        The temperature, above 0.
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
    """The teacher's scores of the student's nearest candidates, mined before each epoch.

    Attributes:
        teacher: Scores the candidates.
        count: Candidates of every image and of every text beside its own partner.

    Raises:
        RequirementError: If the count is below 1.
    """

    teacher: Teacher
    count: int = 16
    needs_pairs: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RequirementError(f"mined negatives need a count of 1 or more; it got {self.count}")

    def open(self, pairs: Dataset, *, device: torch.device) -> MinedNegativesBank:
        """Open the bank, empty.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            The bank.

        Raises:
            DataError: If the teacher learnt from other pairs.
        """
        self.teacher.require(pairs)
        return MinedNegativesBank(self, pairs, device)


class MinedNegativesBank(TrainingBank):
    """Lists of a training: of every item its partner and the nearest negatives, and the teacher's scores of them.

    The bank has the student's embeddings of all items as they were before the epoch, under distil/image and
    distil/text; the table has (N C) rows and scores of every list, under distil/DIRECTION/rows and /scores. Both are
    empty in the first epoch, before the student has learnt anything.

    Args:
        options: Teacher and number of candidates.
        pairs: Training pairs.
        device: Of the training.

    Attributes:
        teacher: With its embeddings of the pairs.
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

    def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Embed all pairs, mine, and let the teacher score each mined pair once; 0 where there is no candidate.

        Args:
            epoch: Counted from 0.
            seed: Of the training.
            embed: Embeds training pairs with the present model.
            reads: (D) training rows of the texts that the epoch will read, ascending; None for all.
        """
        if epoch == 0:
            return
        images, texts = (Embeddings(items.vectors.cpu(), items.ids.cpu()) for items in embed())
        groups = (self._pairs.images.groups, self._pairs.texts.groups)
        lists = {
            "image_to_text": nearest_negatives(images, texts, groups, self.options.count),
            "text_to_image": nearest_negatives(texts, images, groups[::-1], self.options.count),
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
        """The state, for a checkpoint.

        Returns:
            Name -> tensor.
        """
        if self.bank is None or self.table is None:
            return {}
        return {**{name: items.vectors for name, items in self.bank.items()}, **self.table}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: On any device.
        """
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
        direction: Direction whose queries they are.
    """

    direction: Direction

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison that the loss is to read.

        Args:
            scene: With the embeddings of the queries.
            epoch: With the mined lists.

        Returns:
            (Q C) a query's partner and what was mined for it; (Q 1) without positives in the first epoch.

        Raises:
            RequirementError: If the scene has scores alone.
        """
        comparison = scene.comparison(self.direction)
        name = f"distil/{self.direction}"
        if comparison.queries is None:
            raise RequirementError("mined lists need the embeddings of the queries; this batch has scores alone")
        if epoch.table is None or epoch.bank is None or f"{name}/rows" not in epoch.table:
            no_scores = comparison.scores.new_zeros(len(comparison.scores), 1)
            return Comparison(no_scores, Truth(no_scores == 0, relevance=no_scores, scale=SCALE), comparison.queries)
        ids = comparison.queries.ids
        rows, scores = epoch.table[f"{name}/rows"][ids], epoch.table[f"{name}/scores"][ids]
        vectors = epoch.bank[_CANDIDATES[self.direction]].vectors[rows.clamp_min(0)]
        fits = torch.einsum("qkd,qcld->qckl", comparison.queries.vectors, vectors.to(comparison.queries.vectors.dtype))
        match = torch.zeros_like(rows, dtype=torch.bool)
        match[:, 0] = rows[:, 0] >= 0
        return Comparison(
            fits.amax(dim=(2, 3)), Truth(match, rows < 0, relevance=scores, scale=SCALE), comparison.queries
        )


def nearest_negatives(
    queries: Embeddings, candidates: Embeddings, groups: tuple[NDArray[np.int64], NDArray[np.int64]], count: int
) -> Int[np.ndarray, "q m"]:
    """The candidates of other groups that are nearest to each query.

    Args:
        queries: Q items.
        candidates: C items.
        groups: (Q) of the queries, and (C) of the candidates.
        count: Candidates of each query.

    Returns:
        (Q M) rows, nearest first; -1 where there are fewer.
    """
    count = min(count, len(candidates))
    candidate_groups = torch.from_numpy(groups[1])
    lists = []
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = best_views(queries.vectors[some], candidates.vectors)
        scores = scores.masked_fill(torch.from_numpy(groups[0][some])[:, None] == candidate_groups, -torch.inf)
        rows = top_columns(scores, count)
        lists.append(np.where(np.isneginf(np.take_along_axis(scores.numpy(), rows, axis=1)), -1, rows))
    return np.concatenate(lists)
