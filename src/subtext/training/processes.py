"""One process or several: who this one is, sums over all, and embeddings gathered with their gradients.

Every process takes its share of each batch. Embeddings are gathered; each process scores its own items as queries
against everybody's as candidates, so the sum over processes of their losses is the loss of the whole batch. The
gather's backward pass sums, at each embedding's own process, the gradients that all processes have for it; the sum over
processes of the weights' gradients is then the gradient that one process would have had. A batch norm in training sees
its own process's share alone: only without one, or with it frozen, are several processes equal to one (`possible` says
so when a training begins).

`accelerate launch` sets the processes up. The weights' gradients are summed here, in one flat tensor, rather than by
DistributedDataParallel: that cannot see gradient caching's second pass, nor weights that begin to learn half-way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import TrainingError
from subtext.objectives.scene import Groups

PATIENCE = timedelta(hours=2)
"""How long a process waits for another, which may be validating or writing."""

_FIELDS = ("vectors", "log_std", "residuals", "parts")


def part(length: int, rank: int, count: int) -> slice:
    """Which of `length` items are those of one of `count` processes: contiguous, sizes differ by at most one."""
    return slice(rank * length // count, (rank + 1) * length // count)


class Processes:
    """The processes of this training, and this one's place and device among them."""

    def __init__(self, device: str) -> None:
        try:
            target = torch.device(_automatic() if device == "auto" else device)
        except RuntimeError as problem:
            raise TrainingError(f"device needs auto, cpu, cuda or mps; it got '{device}'") from problem
        if target.type == "cuda" and not torch.cuda.is_available():
            raise TrainingError(f"device '{device}' needs a GPU that PyTorch can use; there is none; use --device cpu")
        state = PartialState(cpu=target.type == "cpu", timeout=PATIENCE)
        self.rank = int(state.process_index)
        self.count = int(state.num_processes)
        if self.count > 1 and target.type == "cuda":
            target = torch.device("cuda", state.local_process_index)
        self.device = target

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def share(self, length: int) -> slice:
        """The part of `length` items that is this process's: contiguous, sizes differ by at most one."""
        return part(length, self.rank, self.count)

    def broadcast(self, values: Sequence[float]) -> list[float]:
        """The first process's numbers, on all; every process gives as many."""
        if self.count == 1:
            return list(values)
        sent = torch.tensor(list(values), dtype=torch.float64, device=_wire(self.device))
        dist.broadcast(sent, 0)
        return [float(value) for value in sent.tolist()]

    def same_start(self, model: nn.Module) -> None:
        """Give all processes the first one's weights."""
        if self.count > 1:
            for value in [*model.parameters(), *model.buffers()]:
                dist.broadcast(value.detach(), 0)

    def sum_gradients(self, weights: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Sum the gradients of weights over processes, in place, and a vector of numbers with them.

        A weight that has a gradient nowhere is left without one.
        """
        if self.count == 1:
            return numbers
        has = [0.0 if weight.grad is None else 1.0 for weight in weights]
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        kind = torch.float64 if any(grad.dtype == torch.float64 for grad in grads) else torch.float32
        extra = torch.cat([numbers.to(kind), torch.tensor(has, dtype=kind, device=numbers.device)])
        flat = torch.cat([extra, *[grad.reshape(-1).to(kind) for grad in grads]])
        dist.all_reduce(flat)
        start = len(extra)
        for weight, grad, present in zip(weights, grads, flat[len(numbers) : start].tolist(), strict=True):
            summed = flat[start : start + grad.numel()].reshape(grad.shape)
            start += grad.numel()
            weight.grad = summed.to(grad.dtype) if present else None
        return flat[: len(numbers)]

    def in_order(self, items: Embeddings, count: int) -> Embeddings:
        """Items of a step, of which this process's `count` stand first, in the order that is the same on all."""
        if self.count == 1:
            return items
        # Shares are contiguous, and what others have comes in the order of their ranks.
        before = self.share(len(items)).start
        return Embeddings.cat([items[count : count + before], items[:count], items[count + before :]])

    def others(
        self, images: Embeddings, texts: Embeddings, groups: Groups
    ) -> tuple[Embeddings, Embeddings, Groups] | None:
        """What the other processes have in this step, in the order of their ranks; None where there are none."""
        if self.count == 1:
            return None
        header = torch.tensor([len(images), len(texts), _parts(images), _parts(texts)], device=groups.images.device)
        shapes = torch.stack(_gather(header)).tolist()
        longest = max(_numbers(images, n, p) + _numbers(texts, m, t) for n, m, p, t in shapes)
        flat = torch.cat([_flat(images), _flat(texts)])
        rows = _Gather.apply(torch.nn.functional.pad(flat, (0, longest - len(flat))), self.rank)
        own_metadata = [_whole(images, texts, groups)]
        lengths = [
            n * (2 + p * (images.mask is not None)) + m * (2 + t * (texts.mask is not None)) for n, m, p, t in shapes
        ]
        metadata = _gather(torch.nn.functional.pad(own_metadata[0], (0, max(lengths) - len(own_metadata[0]))))
        received = [
            _rebuild((images, texts), rows[rank], metadata[rank], shapes[rank])
            for rank in range(self.count)
            if rank != self.rank
        ]
        return (
            Embeddings.cat([share[0] for share in received]),
            Embeddings.cat([share[1] for share in received]),
            Groups(*(torch.cat(parts) for parts in zip(*(share[2] for share in received), strict=True))),
        )


class _Gather(torch.autograd.Function):
    """(L) on each of W processes -> (W L); the gradient of each row is summed at the process that it came from."""

    @staticmethod
    def forward(ctx: Any, row: Tensor, rank: int) -> Tensor:
        ctx.rank = rank
        return torch.stack(_gather(row.contiguous()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        summed = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed[ctx.rank], None


def _gather(value: Tensor) -> list[Tensor]:
    rows = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, value)
    return rows


def _parts(items: Embeddings) -> int:
    return 0 if items.parts is None else int(items.parts.shape[1])


def _shape(items: Embeddings, name: str, count: int, parts: int) -> tuple[int, int, int] | None:
    value = getattr(items, name)
    if value is None:
        return None
    return (count, parts, value.shape[2]) if name == "parts" else (count, value.shape[1], value.shape[2])


def _numbers(items: Embeddings, count: int, parts: int) -> int:
    shapes = [_shape(items, name, count, parts) for name in _FIELDS]
    return sum(shape[0] * shape[1] * shape[2] for shape in shapes if shape is not None)


def _flat(items: Embeddings) -> Tensor:
    return torch.cat([value.reshape(-1) for name in _FIELDS if (value := getattr(items, name)) is not None])


def _whole(images: Embeddings, texts: Embeddings, groups: Groups) -> Tensor:
    """Everything that has no gradient: groups, ids, masks."""
    masks = [items.mask.reshape(-1).long() for items in (images, texts) if items.mask is not None]
    return torch.cat([*groups, images.ids, texts.ids, *masks])


def _rebuild(
    like: tuple[Embeddings, Embeddings], row: Tensor, metadata: Tensor, shape: list[int]
) -> tuple[Embeddings, Embeddings, Groups]:
    counts = shape[:2]
    groups_and_ids = metadata[: 2 * sum(counts)].split([*counts, *counts])
    start, at = 0, 2 * sum(counts)
    built = []
    for items, ids, count, parts in zip(like, groups_and_ids[2:], counts, shape[2:], strict=True):
        values: dict[str, Tensor] = {"ids": ids}
        for name in _FIELDS:
            dimensions = _shape(items, name, count, parts)
            if dimensions is not None:
                size = dimensions[0] * dimensions[1] * dimensions[2]
                values[name] = row[start : start + size].reshape(dimensions)
                start += size
        if items.mask is not None:
            values["mask"] = metadata[at : at + count * parts].reshape(count, parts).bool()
            at += count * parts
        built.append(Embeddings(**values))
    return built[0], built[1], Groups(*groups_and_ids[:2])


def _automatic() -> str:
    """A GPU where there is one, unless `accelerate launch --cpu` started the processes."""
    return "cuda" if torch.cuda.is_available() and not parse_flag_from_env("ACCELERATE_USE_CPU") else "cpu"


def _wire(device: torch.device) -> torch.device:
    """Where tensors have to be to be sent."""
    return device if device.type == "cuda" else torch.device("cpu")
