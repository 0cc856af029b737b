"""One process or several: who this one is, sums over all, and embeddings gathered with their gradients.

Every process takes its share of each batch. Embeddings are gathered; each process scores its own items as queries
against everybody's as candidates, so the sum over processes of their losses is the loss of the full batch. The
gather's backward pass sums, at each embedding's own process, the gradients that all processes have for it; the sum over
processes of the weights' gradients is then the gradient that one process would have had. A batch norm in training sees
its own process's share alone: only without one, or with it frozen, are several processes equal to one.

`torchrun` or `accelerate launch` sets the processes up. The weights' gradients are summed here, in one flat tensor,
rather than by DistributedDataParallel: that cannot see gradient caching's second pass, nor weights that begin to learn
half-way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from subtext.core import Embeddings
from subtext.errors import Setting, SubtextError, TrainingError
from subtext.objectives.scene import Groups

PATIENCE = timedelta(hours=2)
"""How long a process waits for another, which may be validating or writing."""


def part(length: int, rank: int, count: int) -> slice:
    """Which of some items are those of one process: contiguous, sizes differ by at most one.

    Args:
        length: Number of items.
        rank: Of the process.
        count: Number of processes.

    Returns:
        Their range.
    """
    return slice(rank * length // count, (rank + 1) * length // count)


class Processes:
    """The processes of a training, and the rank and the device of this one.

    Args:
        device: "auto" (a GPU where there is one) or a torch device.

    Attributes:
        rank: Of this process; the first has 0.
        count: Number of processes.
        device: Of this process.

    Raises:
        TrainingError: If there is no such device.
    """

    def __init__(self, device: str) -> None:
        if device == "auto":
            # `accelerate launch --cpu` keeps the GPU free.
            gpu = torch.cuda.is_available() and not parse_flag_from_env("ACCELERATE_USE_CPU")
            device = "cuda" if gpu else "cpu"
        try:
            target = torch.device(device)
        except RuntimeError as problem:
            raise TrainingError(f"device needs auto, cpu, cuda or mps; it got '{device}'") from problem
        if target.type == "cuda" and not torch.cuda.is_available():
            raise TrainingError(
                f"device '{device}' needs a GPU that PyTorch can use; there is none; use ", Setting("device", "cpu")
            )
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Say in one sentence that another process ended; torch's errors of a lost connection do not.

        Raises:
            TrainingError: If a process is lost within the block.
        """
        try:
            yield
        except RuntimeError as problem:
            lost = isinstance(problem, dist.DistError) or any(name in str(problem).lower() for name in ("gloo", "nccl"))
            if self.count == 1 or isinstance(problem, SubtextError) or not lost:
                raise
            raise TrainingError(
                f"process {self.rank + 1} of {self.count} lost another one, which says why it ended; start all of them "
                "again with ",
                Setting("resume"),
                ": the training goes on from its last checkpoint",
            ) from problem

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def broadcast(self, values: Sequence[float]) -> list[float]:
        """Send numbers of the first process to all.

        Args:
            values: On every process as many.

        Returns:
            The numbers of the first process.
        """
        if self.count == 1:
            return list(values)
        # Tensors of other devices than a GPU are sent from the CPU.
        device = self.device if self.device.type == "cuda" else torch.device("cpu")
        sent = torch.tensor(list(values), dtype=torch.float64, device=device)
        dist.broadcast(sent, 0)
        return [float(value) for value in sent.tolist()]

    def same_start(self, model: nn.Module) -> None:
        """Give all processes the weights of the first one.

        Args:
            model: Changed in place.
        """
        if self.count > 1:
            for value in [*model.parameters(), *model.buffers()]:
                sent = value.detach().to(self.device)
                dist.broadcast(sent, 0)
                value.detach().copy_(sent)

    def sum_gradients(self, weights: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Sum the gradients of weights over processes, in place, and a vector of numbers with them.

        A weight that has a gradient nowhere is left without one. Of divided weights torch gives the mean.

        Args:
            weights: The same on every process.
            numbers: (n) of this process.

        Returns:
            (n) sums of the numbers.
        """
        if self.count == 1:
            return numbers
        for weight in weights:
            if isinstance(weight, DTensor) and weight.grad is not None:
                weight.grad.mul_(self.count)
        weights = [weight for weight in weights if not isinstance(weight, DTensor)]
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
        """The items of a step in the order that is the same on all processes.

        Args:
            items: Of all processes, those of this one first.
            count: How many are of this one.

        Returns:
            The items by rank.
        """
        if self.count == 1:
            return items
        # Shares are contiguous, and what others have comes in the order of their ranks.
        before = part(len(items), self.rank, self.count).start
        return Embeddings.cat([items[count : count + before], items[:count], items[count + before :]])

    def others(
        self, images: Embeddings, texts: Embeddings, groups: Groups
    ) -> tuple[Embeddings, Embeddings, Groups] | None:
        """Gather what the other processes have in this step; gradients flow back to them.

        Args:
            images: Of this process.
            texts: Of this process.
            groups: Of these images and texts.

        Returns:
            Images, texts and groups of the others by rank; None where there is one process.
        """
        if self.count == 1:
            return None
        other_images, image_groups = self._gathered(images, groups.images)
        other_texts, text_groups = self._gathered(texts, groups.texts)
        return other_images, other_texts, Groups(image_groups, text_groups)

    def _gathered(self, items: Embeddings, groups: Tensor) -> tuple[Embeddings, Tensor]:
        """The items of the other processes, and the group of each."""
        parts = 0 if items.parts is None else items.parts.shape[1]
        shapes = torch.stack(_gather(torch.tensor([len(items), parts], device=groups.device))).tolist()
        most_items, most_parts = map(max, zip(*shapes, strict=True))
        if not most_items:
            return items, groups
        received: list[dict[str, Tensor]] = [{} for _ in shapes]
        tensors = {field.name: getattr(items, field.name) for field in fields(items)} | {"groups": groups}
        for name, value in tensors.items():
            if value is None:
                continue
            by_part = name in ("parts", "mask")
            padding = [0, 0] * (value.ndim - 1) + [0, most_items - len(items)]
            if by_part:
                padding[-4:-2] = [0, most_parts - parts]
            padded = torch.nn.functional.pad(value.long() if value.dtype == torch.bool else value, padding)
            floats = value.is_floating_point()
            rows = _Gather.apply(padded, self.rank) if floats else torch.stack(_gather(padded))
            for tensors_of_rank, row, (count, parts_of_rank) in zip(received, rows, shapes, strict=True):
                cut = row[:count, :parts_of_rank] if by_part else row[:count]
                tensors_of_rank[name] = cut.to(value.dtype)
        others = received[: self.rank] + received[self.rank + 1 :]
        other_groups = torch.cat([tensors_of_rank.pop("groups") for tensors_of_rank in others])
        return Embeddings.cat([Embeddings(**tensors_of_rank) for tensors_of_rank in others]), other_groups


def whole(tensors: Mapping[str, Tensor], *, keep: bool = True) -> dict[str, Tensor]:
    """Tensors that may be divided, whole; every process asks for the same ones in the same order.

    One at a time is gathered on the device.

    Args:
        tensors: By name.
        keep: Whether this process wants them; it helps the others in any case.

    Returns:
        Name -> the tensor itself, or on the CPU what was divided; empty for a process that wants none.
    """
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        gathered = value.full_tensor().cpu() if isinstance(value, DTensor) else value
        if keep:
            found[name] = gathered
    return found


def divided_like(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, divided as another one.

    Args:
        value: The same on all processes.
        like: Divided or whole.

    Returns:
        The tensor itself where `like` is whole, or has another shape.
    """
    if not isinstance(like, DTensor) or isinstance(value, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def clip_gradients(weights: Sequence[Tensor], most: float) -> Tensor:
    """Shorten the gradient of all weights together, as torch's `clip_grad_norm_`; some weights may be divided.

    Args:
        weights: Those that learn.
        most: Length of the longest gradient that stays as it is.

    Returns:
        () the length before.
    """
    if not any(isinstance(weight, DTensor) for weight in weights):
        return torch.nn.utils.clip_grad_norm_(weights, most)
    grads = [weight.grad for weight in weights if weight.grad is not None]
    own = [grad.to_local() for grad in grads if isinstance(grad, DTensor)]
    common = [grad for grad in grads if not isinstance(grad, DTensor)]
    squares = torch.nn.utils.get_total_norm(own).square()
    dist.all_reduce(squares)
    norm = (squares + torch.nn.utils.get_total_norm(common).square()).sqrt()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for grad in [*own, *common]:
        grad.mul_(factor)
    return norm


class _Gather(torch.autograd.Function):
    """A tensor on each of W processes -> (W ...) all; the gradient of each is summed at the process it came from."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, rank: int) -> Tensor:
        ctx.rank = rank
        return torch.stack(_gather(value))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        summed = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed[ctx.rank], None


def _gather(value: Tensor) -> list[Tensor]:
    value = value.contiguous()
    gathered = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, value)
    return gathered
