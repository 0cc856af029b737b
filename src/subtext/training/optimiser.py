"""The optimiser of a plan, and its state as tensors and plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from subtext.errors import CheckpointError, TrainingError
from subtext.models.model import Model
from subtext.training.adamp import AdamP
from subtext.training.phases import body_layers
from subtext.training.plan import Plan


def parameter_groups(model: Model, plan: Plan) -> list[dict[str, Any]]:
    """Groups by learning-rate factor and decay: {"params", "weight_decay", "factor"}.

    factor        1 for what is no pretrained body; encoder_factor * layer_decay ** (layers above it in the body)
                  otherwise, so that a body's top layer learns at encoder_factor
    weight_decay  0 for tensors of fewer than two axes: biases, norms, temperatures
    """
    factors: dict[int, float] = {}
    for branch in (model.image, model.text):
        for above, layer in enumerate(reversed(body_layers(branch))):
            for weight in layer:
                factors.setdefault(id(weight), plan.encoder_factor * plan.layer_decay**above)
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for weight in model.parameters():
        if weight.requires_grad:
            groups.setdefault((factors.get(id(weight), 1.0), weight.ndim > 1), []).append(weight)
    if not groups:
        raise TrainingError("training needs at least one weight that learns; the recipe froze all; unfreeze a part")
    return [
        {"params": weights, "weight_decay": plan.weight_decay if decays else 0.0, "factor": factor}
        for (factor, decays), weights in groups.items()
    ]


def build_optimiser(model: Model, plan: Plan) -> Optimizer:
    """The optimiser that the plan names, over all weights that ever learn.

    Adam, AdamW and SGD run as one fused kernel where the weights' device and type have one.
    """
    groups = parameter_groups(model, plan)
    weights = [weight for group in groups for weight in group["params"]]
    fused = all(weight.device.type in ("cpu", "cuda") and weight.dtype == torch.float32 for weight in weights)
    if plan.optimiser == "adam":
        return Adam(groups, lr=plan.lr, amsgrad=plan.amsgrad, fused=fused)
    if plan.optimiser == "adamw":
        return AdamW(groups, lr=plan.lr, amsgrad=plan.amsgrad, fused=fused)
    if plan.optimiser == "adamp":
        return AdamP(groups, lr=plan.lr)
    return SGD(groups, lr=plan.lr, momentum=plan.momentum, fused=fused)


def set_rate(optimiser: Optimizer, lr: float) -> None:
    """Set the learning rate of every group: lr times the group's factor."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["factor"]


def pack(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimiser's state: tensors named "weight/field", and the plain rest."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for weight, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            (tensors if isinstance(value, Tensor) else rest)[f"{weight}/{name}"] = value
    return tensors, rest


def unpack(optimiser: Optimizer, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> None:
    """Put a packed state back.

    Raises CheckpointError when it is of other weights.
    """
    whole = optimiser.state_dict()
    count = sum(len(group["params"]) for group in whole["param_groups"])
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *rest.items()]:
        weight, _, name = key.partition("/")
        state.setdefault(int(weight), {})[name] = value
    if state and max(state) >= count:
        raise CheckpointError(f"the optimiser has {count} weights; the checkpoint has state for {max(state) + 1}")
    optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})
