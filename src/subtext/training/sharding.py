"""Towers that are divided over the processes: each holds its share of every layer (FSDP; Zhao et al. 2023).

torch's `fully_shard` gathers the weights of a layer from all processes when the layer runs, and in the backward pass
gives each process its share of the mean gradient. So a process holds its share of weights, gradients and the
optimiser's state, and some whole layers for a moment. What is no layer of a tower (heads, norms, temperatures) stays
whole on every process; `Processes.sum_gradients` sums its gradients, and makes sums of those means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from subtext.errors import Setting, TrainingError
from subtext.models.model import Branch, Model
from subtext.training.optimiser import FreezeSchedule, stage
from subtext.training.processes import Processes
from subtext.training.setup import Setup

LARGE = 2**20
"""Numbers from which a module beside the lists of layers, such as a table of words, is divided by itself."""


def require_divisible(setup: Setup, processes: Processes) -> None:
    """Refuse a training whose towers cannot be divided.

    Args:
        setup: Model, plan and phases.
        processes: This one among others.

    Raises:
        TrainingError: If there is one process, no tower has layers, or something needs whole weights.
    """
    plan, option = setup.plan, Setting("shard_weights")
    if processes.count == 1:
        raise TrainingError(
            option,
            " needs two processes or more, over which it divides the weights; this training has one; start it by "
            "torchrun or accelerate launch, or leave it out",
        )
    for name, refused, why in (
        ("optimiser", "adamp", "whose steps depend on whole rows of weights; use adamw"),
        ("precision", "fp16", "whose scale of the loss is found on whole gradients; use bf16"),
    ):
        if getattr(plan, name) == refused:
            raise TrainingError(option, " divides weights; this training has ", Setting(name, refused), f", {why}")
    if len({stage(plan, setup.phases, epoch).bodies for epoch in range(plan.epochs)}) > 1:
        raise TrainingError(
            option,
            " needs pretrained layers that learn in all epochs or in none; here they begin or end to learn half-way; "
            "change ",
            Setting("freeze_epochs"),
            ", or train in two runs",
        )
    units = _units_of(setup.model)
    if not units:
        raise TrainingError(option, " divides the layers of a tower; no tower of this model has layers; leave it out")
    uses = Counter(id(weight) for _, weight in setup.model.named_parameters(remove_duplicate=False))
    if any(uses[id(weight)] > 1 for unit in units for weight in unit.parameters()):
        raise TrainingError(option, " needs layers that share no weights; two layers of this model do; leave it out")


def copy_to_divide(model: Model) -> Model:
    """A copy of a model, to be divided; what was copied stays whole, where it is.

    Args:
        model: With inputs, which are not copied: they may be open files.

    Returns:
        The copy.
    """
    branches = []
    for branch in (model.image, model.text):
        branches.append(Branch(branch.input_spec, deepcopy(branch.encoder), deepcopy(branch.head)))
        branches[-1].frozen = branch.frozen
    return Model(branches[0], branches[1], deepcopy(model.similarity))


def divide(model: Model, setup: Setup, processes: Processes) -> None:
    """Divide the towers of a model over the processes, each layer on their device; the rest of it stays where it is.

    Args:
        model: That is trained, whole, the same on all processes; changed in place.
        setup: Its plan and phases.
        processes: This one among others.
    """
    freezer = FreezeSchedule(model)
    freezer.apply(stage(setup.plan, setup.phases, 0))
    mesh = init_device_mesh(processes.device.type, (processes.count,))
    for unit in _units_of(model):
        divided = fully_shard(unit, mesh=mesh)
        # What takes the gathered weights is made now, as the first epoch learns: no gradient could pass through it, if
        # a validation made it.
        divided.unshard()
        divided.reshard()
    freezer.release()


def _units_of(model: Model) -> list[nn.Module]:
    """What is divided of a model's two towers."""
    return [unit for branch in (model.image, model.text) for unit in _units(branch.encoder)]


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of each list, and large modules beside lists; none is within another."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from (layer for layer in child if next(layer.parameters(), None) is not None)
        elif sum(weight.numel() for weight in child.parameters(recurse=False)) >= LARGE:
            yield child
        else:
            yield from _units(child)
