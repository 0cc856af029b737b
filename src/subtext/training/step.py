"""One step: embed a batch, compare, and send the gradients back; at once, or in chunks for batches larger than memory.

Gradient caching (Gao et al. 2021, GradCache): embed all chunks without keeping a graph; compute the loss on all of
them and its gradient for each embedding; embed each chunk again, now with its graph, and send those gradients back.
Peak memory is that of one chunk, and the gradient is that of the whole batch, because the loss reaches the weights
through the embeddings alone. Dropout is the same both times: the generator is seeded anew for every chunk.
A BatchNorm in training sees one chunk at a time, and counts its running statistics twice; freeze it, or do without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace

import torch
from torch import Tensor

from subtext.core import Embeddings, Epoch
from subtext.data.inputs import Tensors
from subtext.errors import TrainingError
from subtext.model import Model
from subtext.objective import Objective
from subtext.ops import draw
from subtext.scene import compose
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.reading import Reading

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Stepper:
    """Adds the gradient of one batch to the model's weights."""

    def __init__(self, model: Model, objective: Objective, plan: Plan, processes: Processes) -> None:
        if plan.precision == "fp16" and processes.device.type != "cuda":
            raise TrainingError(
                f"precision fp16 needs a GPU, where its loss is scaled; the device is {processes.device.type}; "
                "use bf16, or float32"
            )
        self._model = model
        self._objective = objective
        self._plan = plan
        self._processes = processes
        self.scaler = torch.amp.GradScaler("cuda", enabled=plan.precision == "fp16")

    def __call__(self, reading: Reading, epoch: Epoch, *, name: str, share: float = 1.0) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch, times `share`.

        name  of the step within its epoch: dropout is a function of (seed, epoch, name, process)

        Gives this process's summand of the loss, () detached, and (parts) of each part of the objective.
        """
        size = self._plan.cache_chunk
        if size and len(reading.groups.texts) > size:
            return self._in_chunks(reading, epoch, name, share)
        self._seed(epoch, name)
        images, texts = self._embed(reading.images, reading.texts)
        return self._compare(images, texts, reading, epoch, share)

    @torch.no_grad()
    def loss(self, reading: Reading, epoch: Epoch) -> Tensor:
        """() the objective of a batch on this process alone, without gradient."""
        images, texts = self._embed(reading.images, reading.texts)
        scene = compose(self._model.similarity, images, texts, reading.groups, positives=self._plan.positives)
        return self._objective(scene, epoch)[0]

    def _compare(
        self, images: Embeddings, texts: Embeddings, reading: Reading, epoch: Epoch, share: float
    ) -> tuple[Tensor, Tensor]:
        others = self._processes.others(images, texts, reading.groups)
        scene = compose(
            self._model.similarity, images, texts, reading.groups, positives=self._plan.positives, others=others
        )
        total, parts = self._objective(scene, epoch, share=reading.share)
        if not total.requires_grad:
            raise TrainingError(
                f"epoch {epoch.number + 1} needs a term with a gradient; the objective's parts "
                f"({', '.join(parts)}) have none there; let one of them count in every epoch"
            )
        self.scaler.scale(total * share).backward()
        return total.detach(), torch.stack(list(parts.values()))

    def _in_chunks(self, reading: Reading, epoch: Epoch, name: str, share: float) -> tuple[Tensor, Tensor]:
        chunks = reading.chunks(self._plan.cache_chunk)
        pieces = []
        with torch.no_grad():
            for chunk in chunks:
                self._seed(epoch, f"{name} chunk {chunk[1].start}")
                pieces.append(self._embed(*reading.part(*chunk)))
        whole = tuple(_leaf(Embeddings.cat([piece[side] for piece in pieces])) for side in (0, 1))
        result = self._compare(whole[0], whole[1], reading, epoch, share)
        for chunk in chunks:
            self._seed(epoch, f"{name} chunk {chunk[1].start}")
            outputs: list[Tensor] = []
            grads: list[Tensor] = []
            for piece, all_, rows in zip(self._embed(*reading.part(*chunk)), whole, chunk, strict=True):
                for field, value in _differentiable(piece).items():
                    grad = getattr(all_, field).grad
                    if grad is not None:
                        outputs.append(value)
                        grads.append(grad[rows, : value.shape[1]])
            if outputs:
                torch.autograd.backward(outputs, grads)
        return result

    def _embed(self, images: Tensors, texts: Tensors) -> tuple[Embeddings, Embeddings]:
        """Both sides; arithmetic in the plan's precision, and embeddings in at least float32."""
        with self._arithmetic():
            found = self._model(images, texts)
        return _float(found[0]), _float(found[1])

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


def _differentiable(items: Embeddings) -> dict[str, Tensor]:
    values = {f.name: getattr(items, f.name) for f in fields(items)}
    return {name: value for name, value in values.items() if value is not None and value.requires_grad}


def _leaf(items: Embeddings) -> Embeddings:
    floating = {
        f.name: value.detach().requires_grad_()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.is_floating_point()
    }
    return replace(items, **floating)


def _float(items: Embeddings) -> Embeddings:
    halves = {
        f.name: value.float()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.dtype in (torch.bfloat16, torch.float16)
    }
    return replace(items, **halves) if halves else items
