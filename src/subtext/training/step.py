"""One step: embed a batch, compare, and send the gradients back; at once, or in chunks for batches larger than memory.

Gradient caching (Gao et al. 2021, GradCache): embed all chunks without keeping a graph; compute the loss on all of
them and its gradient for each embedding; embed each chunk again, now with its graph, and send those gradients back.
A chunk is some images or some texts, so peak memory is that of one side of one chunk. The gradient is that of the
whole batch, because the loss reaches the weights through the embeddings alone. Dropout is the same both times: the
generator is seeded anew for every chunk. A batch norm in training would break all this, and is refused (`possible`).

Embeddings cut off from the graph that made them, and their gradients sent back through it (`step`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from subtext.core import Comparison, Embeddings, Epoch, Scene
from subtext.data.inputs import Tensors
from subtext.errors import TrainingError
from subtext.models.model import Branch, Model
from subtext.neighbours.sampling import SIDES, Side
from subtext.objectives.objective import Objective
from subtext.objectives.scene import (
    Grouped,
    Groups,
    Negatives,
    add_negatives,
    compare_neighbours,
    compare_with_random,
    compose,
)
from subtext.ops import draw
from subtext.training.memory import Memories
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.reading import Reading
from subtext.training.rewriting import RETOLD, TEXT, Rewriting, wrong_texts

Label = TypeVar("Label", bound=str)
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}

Parts = Mapping[str, Embeddings]
"""What is embedded in a step: "image", "text", and where they are read "image neighbour", "text neighbour", "stranger",
"retold", "shuffled text", "shuffled retold".
"""


class Stepper:
    """Adds the gradient of one batch to the model's weights.

    negatives  of comparisons with neighbours, see `scene.beside`
    rewriting  what texts are made of a batch's own, and how they count
    memories   see the embeddings of every step
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        plan: Plan,
        processes: Processes,
        *,
        negatives: Negatives = "anchors",
        rewriting: Rewriting | None = None,
    ) -> None:
        self._model = model
        self._objective = objective
        self._negatives = negatives
        self._rewriting = rewriting
        self.memories = Memories()
        self._plan = plan
        self._processes = processes
        self.scaler = torch.amp.GradScaler("cuda", enabled=plan.precision == "fp16")

    def __call__(self, reading: Reading, epoch: Epoch, *, name: str, share: float = 1.0) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch, times `share`.

        name  of the step within its epoch: dropout is a function of (seed, epoch, name, process)

        Gives this process's summand of the loss, () detached, and (parts) of each part of the objective.
        """
        size = self._plan.grad_cache_chunk
        if size and max(map(len, reading.groups)) > size:
            return self._in_chunks(reading, epoch, name, share)
        self._seed(epoch, name)
        parts = {label: self._embed(side, inputs) for label, (side, inputs) in _inputs(reading).items()}
        return self._compare(parts, reading, epoch, share)

    @torch.no_grad()
    def loss(self, reading: Reading, epoch: Epoch) -> Tensor:
        """() the objective of a batch on this process alone, without gradient; of pairs, without their neighbours."""
        images, texts = self._embed("image", reading.images), self._embed("text", reading.texts)
        scene = self._pairs(images, texts, reading)
        return self._objective.of_pairs()(scene, epoch)[0]

    def _compare(self, parts: Parts, reading: Reading, epoch: Epoch, share: float) -> tuple[Tensor, Tensor]:
        scene = self._scene(parts, reading)
        total, terms = self._objective(scene, epoch, share=reading.share)
        if not total.requires_grad:
            raise TrainingError(
                f"epoch {epoch.number + 1} needs a term with a gradient; the objective's parts "
                f"({', '.join(terms)}) have none there; let one of them count in every epoch"
            )
        if self.memories:
            self._remember(scene, reading)
        self.scaler.scale(total * share).backward()
        return total.detach(), torch.stack(list(terms.values()))

    def _scene(self, parts: Parts, reading: Reading) -> Scene:
        """The comparisons of a batch; this process's queries against everybody's candidates."""
        similarity, images, texts = self._model.similarity, parts["image"], parts["text"]
        others = self._processes.others(images, texts, reading.groups)
        if reading.rewritten is None or self._rewriting is None:
            scene = self._pairs(images, texts, reading, others)
        else:
            scene = self._rewritten(parts, reading, self._rewriting, others)
        if reading.neighbours is None:
            return scene
        groups = reading.neighbours.groups
        neighbours = {side: Grouped(parts[f"{side} neighbour"], groups[side]) for side in groups}
        theirs = _gathered(self._processes, neighbours) if neighbours else {}
        comparisons: dict[Side, Comparison] = {}
        for side, own_items, other_items in zip(
            SIDES,
            _sides((images, texts, reading.groups)),
            (None, None) if others is None else _sides(others),
            strict=True,
        ):
            if side in neighbours:
                both = None if other_items is None else (other_items, theirs[side])
                comparisons[side] = compare_neighbours(
                    similarity, own_items, neighbours[side], negatives=self._negatives, gathered=both
                )
        scene = replace(
            scene,
            image_neighbours=comparisons.get("image", scene.image_neighbours),
            text_neighbours=comparisons.get("text", scene.text_neighbours),
        )
        return scene if reading.neighbours.strangers is None else self._with_strangers(scene, parts["stranger"])

    def _with_strangers(self, scene: Scene, own_texts: Embeddings) -> Scene:
        """The scene with what texts drawn at random, here and on the other processes, are compared with."""
        theirs = _gathered(self._processes, {"stranger": Grouped(own_texts, own_texts.ids)})
        strangers = Embeddings.cat([own_texts, *(group.items for group in theirs.values())])
        comparisons = {
            name: compare_with_random(self._model.similarity, comparison, strangers)
            for name, comparison in (("random", scene.image_to_text), ("text", scene.text_neighbours))
            if comparison is not None
        }
        edited = {**scene.edited, "image_to_random": comparisons["random"]}
        return replace(scene, edited=edited, text_neighbours=comparisons.get("text"))

    def _pairs(
        self,
        images: Embeddings,
        texts: Embeddings,
        reading: Reading,
        others: tuple[Embeddings, Embeddings, Groups] | None = None,
        scores: Tensor | None = None,
    ) -> Scene:
        """Images against texts, both ways."""
        positives, relevance = self._plan.positives, reading.relevance
        return compose(
            self._model.similarity,
            images,
            texts,
            reading.groups,
            positives=positives,
            gathered=others,
            relevance=relevance,
            scores=scores,
        )

    def _rewritten(
        self, parts: Parts, reading: Reading, rewriting: Rewriting, others: tuple[Embeddings, Embeddings, Groups] | None
    ) -> Scene:
        """The comparisons of a batch, and those of its images with texts that were made, by name."""
        assert reading.rewritten is not None
        similarity, images = self._model.similarity, parts["image"]
        wrong = wrong_texts(parts, reading.rewritten, rewriting)
        noisy = {label: Grouped(items, reading.groups.texts) for label, items in wrong.items()}
        theirs = _gathered(self._processes, noisy) if noisy else {}
        for label, group in theirs.items():
            wrong[label] = Embeddings.cat([wrong[label], group.items])
        right = {label: parts[label] for label in (TEXT, RETOLD) if label in parts}
        sets = [*right.values(), *wrong.values()]
        scores: list[Tensor | None] = [None] * len(sets)
        if others is None:
            # All texts in one call: those of equally many words are scored at once, in two thirds of the time.
            scores = [*similarity(images, Embeddings.cat(sets)).split([len(texts) for texts in sets], dim=1)]
        of_right = dict(zip(right, scores[: len(right)], strict=True))
        of_wrong = dict(zip(wrong, scores[len(right) :], strict=True))
        bases = {TEXT: self._pairs(images, right[TEXT], reading, others, of_right[TEXT])}
        if RETOLD in right:
            retold, plain = right[RETOLD], replace(reading, relevance=None)
            theirs_retold = self._processes.others(images, retold, reading.groups)
            bases[RETOLD] = self._pairs(images, retold, plain, theirs_retold, of_right[RETOLD])
        edited: dict[str, Comparison] = {}
        for label, base in bases.items():
            comparison = base.image_to_text
            if label in wrong:
                comparison = add_negatives(
                    similarity, comparison, wrong[label], outscoring=rewriting.outscoring, scores=of_wrong[label]
                )
            edited["image_to_noised" if label == TEXT else "image_to_retold"] = comparison
        if RETOLD in bases:
            edited["retold_to_image"] = bases[RETOLD].text_to_image
        return replace(bases[TEXT], edited=edited)

    def _remember(self, scene: Scene, reading: Reading) -> None:
        """Show the memories what was embedded, on all processes in the same order."""
        images, texts = scene.text_to_image.candidates, scene.image_to_text.candidates
        assert images is not None and texts is not None
        groups = reading.groups
        self.memories.look(
            self._processes.in_order(images, len(groups.images)), self._processes.in_order(texts, len(groups.texts))
        )

    def _in_chunks(self, reading: Reading, epoch: Epoch, name: str, share: float) -> tuple[Tensor, Tensor]:
        inputs = _inputs(reading)
        with torch.no_grad():
            parts = {
                label: leaf(
                    Embeddings.cat([chunk for _, chunk in self._chunks(*side_and_tensors, epoch, f"{name} {label}")])
                )
                for label, side_and_tensors in inputs.items()
            }
        result = self._compare(parts, reading, epoch, share)
        for label, side_and_tensors in inputs.items():
            for rows, chunk in self._chunks(*side_and_tensors, epoch, f"{name} {label}"):
                send_back(chunk, parts[label], rows)
        return result

    def _chunks(self, side: Side, inputs: Tensors, epoch: Epoch, name: str) -> Iterator[tuple[slice, Embeddings]]:
        """The items in pieces of at most `grad_cache_chunk`; the same every time."""
        size = self._plan.grad_cache_chunk
        for start in range(0, len(inputs["ids"]), size):
            rows = slice(start, start + size)
            self._seed(epoch, f"{name} {start}")
            yield rows, self._embed(side, {key: value[rows] for key, value in inputs.items()})

    def _embed(self, side: Side, inputs: Tensors) -> Embeddings:
        """Items of one side; arithmetic in the plan's precision, and embeddings in at least float32."""
        branch: Branch = getattr(self._model, side)
        with self._arithmetic():
            return at_least_single(branch(inputs))

    def _arithmetic(self) -> AbstractContextManager[None]:
        kind = _HALF.get(self._plan.precision)
        if kind is None:
            return nullcontext()
        return torch.autocast(self._processes.device.type, dtype=kind)

    def _seed(self, epoch: Epoch, name: str) -> None:
        purpose = f"dropout {name} process {self._processes.rank}"
        number = draw.number(seed=epoch.seed, epoch=epoch.number, purpose=purpose)
        # Not torch.manual_seed: it also writes a note, with a whole traceback, for every kind of device that sleeps.
        torch.default_generator.manual_seed(number)
        if self._processes.device.type == "cuda":
            torch.cuda.manual_seed(number)
        elif self._processes.device.type == "mps":
            torch.mps.manual_seed(number)


def _inputs(reading: Reading) -> dict[str, tuple[Side, Tensors]]:
    """What is embedded in a step: label -> its side and its tensors, pairs first."""
    found: dict[str, tuple[Side, Tensors]] = {"image": ("image", reading.images), "text": ("text", reading.texts)}
    if reading.neighbours is not None:
        found |= {f"{side} neighbour": (side, inputs) for side, inputs in reading.neighbours.items.items()}
        if reading.neighbours.strangers is not None:
            found["stranger"] = ("text", reading.neighbours.strangers)
    if reading.rewritten is not None:
        found |= {label: ("text", inputs) for label, inputs in reading.rewritten.items.items()}
    return found


def _sides(items: tuple[Embeddings, Embeddings, Groups]) -> tuple[Grouped, Grouped]:
    return Grouped(items[0], items[2].images), Grouped(items[1], items[2].texts)


def _gathered(processes: Processes, neighbours: Mapping[Label, Grouped]) -> dict[Label, Grouped]:
    """The neighbours, or texts made, that the other processes have in this step; empty where there are none."""
    first, *rest = neighbours.values()
    # Two modalities are gathered at a time; where there is one, the other is empty.
    last = rest[0] if rest else Grouped(first.items[:0], first.groups[:0])
    others = processes.others(first.items, last.items, Groups(first.groups, last.groups))
    return {} if others is None else dict(zip(neighbours, _sides(others), strict=False))


def _differentiable(items: Embeddings) -> dict[str, Tensor]:
    values = {f.name: getattr(items, f.name) for f in fields(items)}
    return {name: value for name, value in values.items() if value is not None and value.requires_grad}


def send_back(chunk: Embeddings, batch: Embeddings, rows: slice) -> None:
    """Send the gradients that the whole batch's embeddings have got through the graph of a piece, its `rows`."""
    outputs: list[Tensor] = []
    grads: list[Tensor] = []
    for name, value in _differentiable(chunk).items():
        grad = getattr(batch, name).grad
        if grad is not None:
            outputs.append(value)
            grads.append(grad[rows, : value.shape[1]])
    if outputs:
        torch.autograd.backward(outputs, grads)


def leaf(items: Embeddings) -> Embeddings:
    """The same items without their graph; what is a number of them takes a gradient."""
    floating = {
        f.name: value.detach().requires_grad_()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.is_floating_point()
    }
    return replace(items, **floating)


def at_least_single(items: Embeddings) -> Embeddings:
    """The same items in float32 where they came in half precision."""
    halves = {
        f.name: value.float()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.dtype in (torch.bfloat16, torch.float16)
    }
    return replace(items, **halves) if halves else items
