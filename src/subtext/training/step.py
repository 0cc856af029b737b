"""One step: read a batch in threads ahead of need, embed it, compare, and send the gradients back.

What a method reads beside a batch is an `Extra`: neighbours, random or edited texts. A step embeds it with the pairs,
and the extra itself compares it.

Gradient caching (Gao et al. 2021, GradCache), for batches larger than memory: embed all chunks without keeping a graph;
compute the loss on all of them and its gradient for each embedding; embed each chunk again, now with its graph, and
send those gradients back. A chunk is some images or some texts, so peak memory is that of one side of one chunk. The
gradient is that of the full batch, because the loss reaches the weights through the embeddings alone. Dropout is the
same both times: the generator is seeded anew for every chunk. A batch norm in training would break all this, and is
refused (`checks.validate_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings, Epoch, Scene
from subtext.data.batches import epoch_batches, item_batch
from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import Draw, Tensors
from subtext.errors import Setting, TrainingError
from subtext.models.model import Branch, Model
from subtext.objectives.objective import Objective
from subtext.objectives.scene import Grouped, Groups, Positives, Relevance, compose
from subtext.ops import draw
from subtext.training.bank import BankSet
from subtext.training.plan import Plan
from subtext.training.processes import Processes, part
from subtext.training.relevance import ImageMixing, LoadedRelevance, TwoSidedRelevance

Label = TypeVar("Label", bound=str)
Side = Literal["image", "text"]
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@runtime_checkable
class ExtraSource(Protocol):
    """What `Setup.extras` holds: a plain description of what is read beside every batch."""

    @property
    def generates(self) -> tuple[Side, ...]:
        """Modalities with items that are not of the data: a frozen encoder of these runs at every step."""

    def open(self, pairs: Dataset) -> ExtraReader:
        """Open the extra for a training.

        Args:
            pairs: Training pairs.

        Returns:
            What reads it.

        Raises:
            DataError: If the pairs lack what it needs.
        """


class ExtraReader:
    """Reads an extra beside every batch of a training; a function of (seed, epoch, item) alone.

    Args:
        fingerprint: Of files that it is made from; empty for none.
    """

    fingerprint: str = ""

    def notes(self, model: Model) -> Sequence[str]:
        """Sentences for the user before a training begins.

        Args:
            model: That is trained.

        Returns:
            The sentences; most extras have none.
        """
        return ()

    def __call__(
        self, reader: StepReader, draw: Draw, links: Mapping[Side, NDArray[np.int64]], texts: Tensors
    ) -> Extra:
        """Read the extra beside the share of a batch that this process has.

        Args:
            reader: Reads images and texts of the training pairs.
            draw: Seed and epoch.
            links: Side -> (N 2) image row and text row of each of its items.
            texts: Tensors of its texts.

        Returns:
            What was read.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Extra:
    """What was read beside a share.

    Attributes:
        items: Label -> its side, and the tensors that the step embeds.
    """

    items: Mapping[str, tuple[Side, Tensors]]

    def compare(self, batch: TrainBatch, scene: Scene | None) -> Scene:
        """The scene with the comparisons that this adds.

        Args:
            batch: Embeddings of the step.
            scene: Of the batch with the extras behind this one; None where there is none behind it.

        Returns:
            The scene.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class StepInput:
    """What one process reads for one step.

    Attributes:
        images: Tensors of its share: of pairs, row i of one with row i of the other, or of images with all their texts.
        texts: See `images`.
        groups: Of each image and text of its share.
        share: Part of the step's queries that is here, by comparison.
        relevance: Of its images and texts with those of the full batch, for losses that read it.
        extras: What methods read beside it.
    """

    images: Tensors
    texts: Tensors
    groups: Groups
    share: Mapping[str, float]
    relevance: Relevance | None = None
    extras: tuple[Extra, ...] = ()

    def to(self, device: torch.device) -> StepInput:
        """The same on another device, without waiting for it.

        Args:
            device: Of the training.

        Returns:
            Itself on the CPU.
        """
        if device.type == "cpu":
            return self

        def moved(tensors: Tensors) -> Tensors:
            return {name: value.to(device, non_blocking=True) for name, value in tensors.items()}

        relevance = self.relevance
        if relevance is not None:
            images, texts = (value.to(device, non_blocking=True) for value in relevance[:2])
            relevance = Relevance(images, texts, relevance.scale)
        return replace(
            self,
            images=moved(self.images),
            texts=moved(self.texts),
            groups=Groups(*(value.to(device) for value in self.groups)),
            relevance=relevance,
            extras=tuple(
                replace(extra, items={label: (side, moved(tensors)) for label, (side, tensors) in extra.items.items()})
                for extra in self.extras
            ),
        )


@dataclass(frozen=True)
class StepReader:
    """Reads the share of one process: rows of a batch -> StepInput.

    Attributes:
        model: Its inputs read images and texts.
        pairs: Training or validation pairs.
        draw: Seed and epoch; None reads without augmentation and extras.
        together: An image of several pairs, and a text of several images, is read once.
        processes: Their number.
        rank: Of this one.
        related: Gives the relevance that is read beside; None for none.
        mixing: Mixes the images of a share, and says in place of a relevance how much of each belongs to which text.
        extras: What methods read beside it; an image stands for its first pair.
    """

    model: Model
    pairs: Dataset
    draw: Draw | None
    together: bool = False
    processes: int = 1
    rank: int = 0
    related: LoadedRelevance | None = None
    mixing: ImageMixing | None = None
    extras: Sequence[ExtraReader] = ()

    def __call__(self, rows: NDArray[np.int64]) -> StepInput:
        """Read a batch.

        Args:
            rows: (B 2) image row and text row.

        Returns:
            The share of this process.
        """
        images, texts = rows, rows
        if self.together:
            images, texts = (rows[np.sort(np.unique(rows[:, side], return_index=True)[1])] for side in (0, 1))
        own_images, own_texts = (side[part(len(side), self.rank, self.processes)] for side in (images, texts))
        image_tensors, text_tensors = self.read("image", own_images[:, 0]), self.read("text", own_texts[:, 1])
        relevance = self._relevance(images[:, 0], texts[:, 1])
        extras: tuple[Extra, ...] = ()
        if self.draw is not None:
            if self.mixing is not None:
                keys = self.pairs.images.keys[own_images[:, 0]]
                mixed, relevance = self.mixing.mix(image_tensors["pixels"], keys, self.draw, candidates=len(rows))
                image_tensors = {**image_tensors, "pixels": mixed}
            links: dict[Side, NDArray[np.int64]] = {"image": own_images, "text": own_texts}
            extras = tuple(extra(self, self.draw, links, text_tensors) for extra in self.extras)
        groups = torch.from_numpy(self.pairs.images.groups)
        return StepInput(
            images=image_tensors,
            texts=text_tensors,
            groups=Groups(*(groups[torch.from_numpy(rows_of[:, 0])] for rows_of in (own_images, own_texts))),
            share={"image_to_text": len(own_images) / len(images), "text_to_image": len(own_texts) / len(texts)},
            relevance=relevance,
            extras=extras,
        )

    def items(self, side: Side) -> Items:
        """The images or the texts of the pairs.

        Args:
            side: Which of the two.

        Returns:
            All of them.
        """
        return self.pairs.images if side == "image" else self.pairs.texts

    def read(self, side: Side, rows: NDArray[np.int64]) -> Tensors:
        """The tensors of some images or texts.

        Args:
            side: Which of the two.
            rows: (N) rows of the items.

        Returns:
            Name -> (N ...) tensor.
        """
        branch: Branch = getattr(self.model, side)
        return branch.read(item_batch(self.items(side), rows, self.pairs.root), self.draw)

    def _relevance(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Relevance | None:
        """Of the step's images and texts; own ones are queries, and the first of the candidates."""
        if self.related is None:
            return None
        cuts = [part(len(rows), self.rank, self.processes) for rows in (images, texts)]
        first = [
            np.r_[rows[cut], rows[: cut.start], rows[cut.stop :]]
            for rows, cut in zip((images, texts), cuts, strict=True)
        ]
        two_sided = isinstance(self.related, TwoSidedRelevance)
        of_texts = self.related.of_texts if isinstance(self.related, TwoSidedRelevance) else self.related
        if self.processes == 1:
            to_texts = self.related(*first)
            to_images = of_texts(*first) if two_sided else to_texts
        else:
            to_texts, to_images = self.related(images[cuts[0]], first[1]), of_texts(first[0], texts[cuts[1]])
        return Relevance(to_texts, to_images.T, self.related.name)


def batches_of(pairs: Dataset, plan: Plan, *, epoch: int, seed: int, processes: int) -> list[NDArray[np.int64]]:
    """The batches of an epoch that every process can have a share of.

    Args:
        pairs: Training or validation pairs.
        plan: Batch size and sampling of captions.
        epoch: Counted from 0.
        seed: Of the training.
        processes: Their number.

    Returns:
        (B 2) image row and text row of the pairs of each batch.

    Raises:
        TrainingError: If no batch has two pairs, and one for each process.
    """
    least, together = max(2, processes), plan.caption_sampling == "together"

    def size(rows: NDArray[np.int64]) -> int:
        """Pairs, or images or texts, whichever are fewer."""
        return min(len(np.unique(rows[:, side])) for side in (0, 1)) if together else len(rows)

    batches = epoch_batches(pairs, batch_size=plan.batch_size, epoch=epoch, seed=seed, captions=plan.caption_sampling)
    usable = [rows for rows in batches if size(rows) >= least]
    if plan.drop_last and not together and len(usable) > 1 and len(usable[-1]) < plan.batch_size:
        usable.pop()
    if not usable:
        raise TrainingError(
            f"training needs batches of {least} pairs or more, since what is wrong is learnt from other pairs; it got "
            f"{len(pairs.links)} pairs in batches of {plan.batch_size}; give more data or a larger ",
            Setting("batch_size"),
        )
    return usable


@dataclass(frozen=True)
class TrainBatch:
    """The embeddings of a step, to be compared: this process's queries against everybody's candidates.

    Attributes:
        similarity: Of the model.
        processes: This process among others.
        positives: Which texts of an image are positives.
        step_input: What was read.
        parts: Label -> embeddings: "image", "text", and those of the extras.
    """

    similarity: nn.Module
    processes: Processes
    positives: Positives
    step_input: StepInput
    parts: Mapping[str, Embeddings]

    @cached_property
    def others(self) -> tuple[Embeddings, Embeddings, Groups] | None:
        """Images, texts and groups of the other processes; None where there are none."""
        return self.processes.others(self.parts["image"], self.parts["text"], self.step_input.groups)

    def pairs(self, texts: Embeddings | None = None, *, scores: Tensor | None = None) -> Scene:
        """Images against texts, both ways.

        Args:
            texts: In place of the batch's, row by row; these have no relevance.
            scores: (I T) of them, where they are computed already and there is one process.

        Returns:
            The scene of the pairs.
        """
        images, groups = self.parts["image"], self.step_input.groups
        return compose(
            self.similarity,
            images,
            self.parts["text"] if texts is None else texts,
            groups,
            positives=self.positives,
            gathered=self.others if texts is None else self.processes.others(images, texts, groups),
            relevance=self.step_input.relevance if texts is None else None,
            scores=scores,
        )

    def gather(self, sets: Mapping[Label, Grouped]) -> dict[Label, Grouped]:
        """What the other processes have of one or two sets of items in this step.

        Args:
            sets: Label -> items with their groups, one or two.

        Returns:
            Label -> items of the others; empty where there is one process.
        """
        first, *others = sets.values()
        # Two modalities are gathered at a time; where there is one, the other is empty.
        last = others[0] if others else Grouped(first.items[:0], first.groups[:0])
        gathered = self.processes.others(first.items, last.items, Groups(first.groups, last.groups))
        return {} if gathered is None else dict(zip(sets, by_side(gathered), strict=False))


def by_side(items: tuple[Embeddings, Embeddings, Groups]) -> tuple[Grouped, Grouped]:
    """Images and texts, each with their groups.

    Args:
        items: Images, texts, and the groups of both.

    Returns:
        Images with groups, and texts with groups.
    """
    return Grouped(items[0], items[2].images), Grouped(items[1], items[2].texts)


class Stepper:
    """Adds the gradient of one batch to the model's weights.

    Args:
        model: That is trained.
        objective: Its loss.
        plan: Gradient caching, precision and positives.
        processes: This process among others.
        banks: Updated with the embeddings of every step; None for none.

    Attributes:
        scaler: Scale of the loss in fp16.
    """

    def __init__(
        self, model: Model, objective: Objective, plan: Plan, processes: Processes, banks: BankSet | None = None
    ) -> None:
        self._model, self._objective, self._plan, self._processes = model, objective, plan, processes
        self.banks = banks or BankSet()
        self.scaler = torch.amp.GradScaler("cuda", enabled=plan.precision == "fp16")

    def __call__(self, step_input: StepInput, epoch: Epoch, *, name: str, share: float = 1.0) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch, times `share`.

        Args:
            step_input: What this process reads for the step, on its device.
            epoch: With the tables that weightings read.
            name: Of the step within its epoch: dropout is a function of (seed, epoch, name, process).
            share: 1 / number of batches whose gradients are averaged.

        Returns:
            This process's summand of the loss, () detached, and (parts) of each part of the objective.

        Raises:
            TrainingError: If no term of the objective has a gradient in this epoch.
        """
        inputs: dict[str, tuple[Side, Tensors]] = {
            "image": ("image", step_input.images),
            "text": ("text", step_input.texts),
        }
        for extra in step_input.extras:
            inputs |= extra.items
        size = self._plan.grad_cache_chunk
        if not size or max(map(len, step_input.groups)) <= size:
            self._seed(epoch, name)
            parts = {label: self._embed(side, tensors) for label, (side, tensors) in inputs.items()}
            return self._compare(parts, step_input, epoch, share)
        with torch.no_grad():
            chunked = {label: self._chunks(*items, epoch, f"{name} {label}") for label, items in inputs.items()}
            batches = {label: Embeddings.cat([chunk for _, chunk in chunks]) for label, chunks in chunked.items()}
            # The same items without their graph; what is a number of them takes a gradient.
            parts = {
                label: _changed(batch, lambda value: value.detach().requires_grad_(), Tensor.is_floating_point)
                for label, batch in batches.items()
            }
        result = self._compare(parts, step_input, epoch, share)
        for label, items in inputs.items():
            for rows, chunk in self._chunks(*items, epoch, f"{name} {label}"):
                _send_back(chunk, parts[label], rows)
        return result

    @torch.no_grad()
    def loss(self, step_input: StepInput, epoch: Epoch) -> Tensor:
        """The objective of a batch on this process alone, without gradient and extras.

        Args:
            step_input: What was read.
            epoch: Whose tables and draws are used.

        Returns:
            () loss.
        """
        parts = {"image": self._embed("image", step_input.images), "text": self._embed("text", step_input.texts)}
        alone = copy(self._processes)
        alone.rank, alone.count = 0, 1
        batch = TrainBatch(self._model.similarity, alone, self._plan.positives, step_input, parts)
        return self._objective.of_pairs()(batch.pairs(), epoch)[0]

    def _compare(
        self, parts: Mapping[str, Embeddings], step_input: StepInput, epoch: Epoch, share: float
    ) -> tuple[Tensor, Tensor]:
        batch = TrainBatch(self._model.similarity, self._processes, self._plan.positives, step_input, parts)
        scene: Scene | None = None
        for extra in reversed(step_input.extras):
            scene = extra.compare(batch, scene)
        scene = scene or batch.pairs()
        total, terms = self._objective(scene, epoch, share=step_input.share)
        if not total.requires_grad:
            raise TrainingError(
                f"epoch {epoch.number + 1} needs a term with a gradient; the objective's parts "
                f"({', '.join(terms)}) have none there; let one of them count in every epoch"
            )
        if self.banks:
            images, texts = scene.text_to_image.candidates, scene.image_to_text.candidates
            assert images is not None and texts is not None
            counts = map(len, step_input.groups)
            self.banks.update(*map(self._processes.in_order, (images, texts), counts))
        self.scaler.scale(total * share).backward()
        return total.detach(), torch.stack(list(terms.values()))

    def _chunks(self, side: Side, inputs: Tensors, epoch: Epoch, name: str) -> Iterator[tuple[slice, Embeddings]]:
        """The items in chunks of at most `grad_cache_chunk`; the same every time."""
        size = self._plan.grad_cache_chunk
        for start in range(0, len(inputs["ids"]), size):
            rows = slice(start, start + size)
            self._seed(epoch, f"{name} {start}")
            yield rows, self._embed(side, {key: value[rows] for key, value in inputs.items()})

    def _embed(self, side: Side, inputs: Tensors) -> Embeddings:
        """Items of one side; arithmetic in the plan's precision, and embeddings in at least float32."""
        branch: Branch = getattr(self._model, side)
        dtype = _HALF.get(self._plan.precision)
        with nullcontext() if dtype is None else torch.autocast(self._processes.device.type, dtype=dtype):
            return _changed(branch(inputs), Tensor.float, lambda value: value.dtype in _HALF.values())

    def _seed(self, epoch: Epoch, name: str) -> None:
        purpose = f"dropout {name} process {self._processes.rank}"
        number = draw.number(seed=epoch.seed, epoch=epoch.number, purpose=purpose)
        # Not torch.manual_seed: it also writes a note, with a full traceback, for every kind of device that sleeps.
        torch.default_generator.manual_seed(number)
        if self._processes.device.type == "cuda":
            torch.cuda.manual_seed(number)
        elif self._processes.device.type == "mps":
            torch.mps.manual_seed(number)


def _send_back(chunk: Embeddings, batch: Embeddings, rows: slice) -> None:
    """Send the gradients that the full batch's embeddings have got through the graph of a chunk, its `rows`."""
    pairs = [(value, getattr(batch, name).grad) for name, value in _tensors(chunk).items() if value.requires_grad]
    pairs = [(value, grad[rows, : value.shape[1]]) for value, grad in pairs if grad is not None]
    if pairs:
        values, gradients = zip(*pairs, strict=True)
        torch.autograd.backward(values, gradients)


def _tensors(items: Embeddings) -> dict[str, Tensor]:
    values = {field.name: getattr(items, field.name) for field in fields(items)}
    return {name: value for name, value in values.items() if value is not None}


def _changed(items: Embeddings, change: Callable[[Tensor], Tensor], where: Callable[[Tensor], bool]) -> Embeddings:
    """The same items, some of their tensors changed."""
    changes = {name: change(value) for name, value in _tensors(items).items() if where(value)}
    return replace(items, **changes) if changes else items
