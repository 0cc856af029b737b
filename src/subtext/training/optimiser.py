"""Which weights learn in which epoch, by which optimiser and rate; and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from subtext.errors import CheckpointError, TrainingError
from subtext.models.model import Branch, Model
from subtext.training.plan import Phase, Plan
from subtext.training.processes import divided_like, whole


@dataclass(frozen=True)
class EpochSettings:
    """What holds in one epoch.

    Attributes:
        bodies: Whether pretrained bodies learn.
        factor: Of the learning rate.
        norms_kept: Whether pretrained batch norms go by the statistics that they came with.
    """

    bodies: bool
    factor: float
    norms_kept: bool = False


def stage(plan: Plan, phases: Sequence[Phase], epoch: int) -> EpochSettings:
    """The settings of an epoch; the last phase takes the epochs that are left.

    Args:
        plan: Epochs, frozen epochs and norms.
        phases: Of the training, in order; empty for one phase.
        epoch: Counted from 0.

    Returns:
        What holds in it.
    """
    chosen, end = Phase(epochs=plan.epochs), 0
    for phase in phases:
        chosen = phase
        end += phase.epochs
        if epoch < end:
            break
    unfrozen = plan.freeze_epochs >= 0 and epoch >= plan.freeze_epochs
    frozen = plan.backbone_norms == "frozen"
    return EpochSettings(bodies=chosen.train == "all" and unfrozen, factor=chosen.factor, norms_kept=frozen)


def body_norms(branch: Branch) -> list[_BatchNorm]:
    """The batch norms of the branch's pretrained body.

    Args:
        branch: Images or texts.

    Returns:
        The modules; empty where nothing is pretrained.
    """
    body = getattr(branch.encoder, "body", None)
    if not isinstance(body, nn.Module) or not body_layers(branch):
        return []
    return [module for module in body.modules() if isinstance(module, _BatchNorm)]


def body_layers(branch: Branch) -> list[list[nn.Parameter]]:
    """The pretrained layers of a branch's encoder.

    Args:
        branch: Images or texts.

    Returns:
        The weights of each layer, bottom to top; empty where nothing is pretrained.
    """
    layers = getattr(branch.encoder, "body_layers", None)
    return list(layers()) if callable(layers) else []


class FreezeSchedule:
    """Turns learning on and off, and never on for what the recipe itself turned off.

    Args:
        model: As the recipe made it.

    Attributes:
        learning: Weights that learn in some epoch, unless the plan freezes their body in all of them.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.learning = [weight for weight in model.parameters() if weight.requires_grad]
        self._body = {
            id(weight)
            for branch in (model.image, model.text)
            for layer in body_layers(branch)
            for weight in layer
            if weight.requires_grad
        }

    def apply(self, current: EpochSettings) -> None:
        """Set what learns, and the mode of every module.

        A body that does not learn is in eval mode: its dropout is off and its running statistics stay. Batch norms
        that are kept are too, while their scale and shift learn with the rest.

        Args:
            current: Settings of the epoch.
        """
        for weight in self.learning:
            weight.requires_grad_(current.bodies or id(weight) not in self._body)
        self._model.train()
        for branch in (self._model.image, self._model.text):
            body = getattr(branch.encoder, "body", None)
            if isinstance(body, nn.Module) and not any(weight.requires_grad for weight in body.parameters()):
                body.eval()
            for norm in body_norms(branch) if current.norms_kept else ():
                norm.eval()

    def release(self) -> None:
        """Leave the model as the recipe made it."""
        for weight in self.learning:
            weight.requires_grad_(True)

    def ever_learning(self, plan: Plan, phases: Sequence[Phase]) -> set[int]:
        """The weights that learn in some epoch.

        Args:
            plan: Of the training.
            phases: Of the training.

        Returns:
            The `id` of each.
        """
        bodies = any(stage(plan, phases, epoch).bodies for epoch in range(plan.epochs))
        return {id(weight) for weight in self.learning if bodies or id(weight) not in self._body}

    def never_learns(self, branch: Branch, plan: Plan, phases: Sequence[Phase]) -> bool:
        """Whether no weight of a branch's encoder learns in any epoch.

        Args:
            branch: Images or texts.
            plan: Of the training.
            phases: Of the training.

        Returns:
            False for an encoder without weights.
        """
        weights = {id(weight) for weight in branch.encoder.parameters()}
        return bool(weights) and weights.isdisjoint(self.ever_learning(plan, phases))


def parameter_groups(model: Model, plan: Plan) -> list[dict[str, Any]]:
    """The weights that learn, in groups of one learning-rate factor and weight decay.

    The factor is 1 for what is no pretrained body, and otherwise backbone_lr_scale * layer_decay ** (layers above it in
    the body), so that the top layer of a body learns at backbone_lr_scale. Weight decay is 0 for tensors of fewer than
    two axes: biases, norms, temperatures.

    Args:
        model: The model that is trained.
        plan: Its rates and decay.

    Returns:
        Groups for an optimiser: {"params", "weight_decay", "factor"}.

    Raises:
        TrainingError: If no weight learns.
    """
    factors: dict[int, float] = {}
    for branch in (model.image, model.text):
        for above, layer in enumerate(reversed(body_layers(branch))):
            for weight in layer:
                factors.setdefault(id(weight), plan.backbone_lr_scale * plan.layer_decay**above)
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

    Args:
        model: The model that is trained.
        plan: Optimiser, rates and decay.

    Returns:
        The optimiser.
    """
    groups = parameter_groups(model, plan)
    weights = [weight for group in groups for weight in group["params"]]
    fused = all(weight.device.type in ("cpu", "cuda") and weight.dtype == torch.float32 for weight in weights)
    # No kernel takes divided and whole weights together.
    divided = any(isinstance(weight, DTensor) for weight in weights)
    foreach, fused = False if divided else None, fused and not divided
    if plan.optimiser == "adam":
        return Adam(groups, lr=plan.lr, amsgrad=plan.amsgrad, foreach=foreach, fused=fused)
    if plan.optimiser == "adamw":
        return AdamW(groups, lr=plan.lr, amsgrad=plan.amsgrad, foreach=foreach, fused=fused)
    if plan.optimiser == "adamp":
        return AdamP(groups, lr=plan.lr)
    return SGD(groups, lr=plan.lr, momentum=plan.momentum, foreach=foreach, fused=fused)


def set_lr(optimiser: Optimizer, lr: float) -> None:
    """Set the learning rate of every group: lr times the group's factor.

    Args:
        optimiser: Whose groups have a "factor".
        lr: Learning rate of what is no pretrained body.
    """
    for group in optimiser.param_groups:
        group["lr"] = lr * group["factor"]


def pack(optimiser: Optimizer, *, keep: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimiser's state, for a checkpoint.

    Args:
        optimiser: Any.
        keep: Whether this process wants the tensors; see `processes.whole`.

    Returns:
        Tensors named "weight/field", whole, and the plain rest.
    """
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for weight, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            (tensors if isinstance(value, Tensor) else plain)[f"{weight}/{name}"] = value
    return whole(tensors, keep=keep), plain


def unpack(optimiser: Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Restore a packed state.

    Args:
        optimiser: A new one, over the same weights.
        tensors: As `pack` returned them.
        plain: Likewise.

    Raises:
        CheckpointError: If it is of other weights.
    """
    current = optimiser.state_dict()
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *plain.items()]:
        weight, _, name = key.partition("/")
        state.setdefault(int(weight), {})[name] = value
    if state and max(state) >= len(weights):
        raise CheckpointError(
            f"the optimiser has {len(weights)} weights; the checkpoint has state for {max(state) + 1}"
        )
    for number, values in state.items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = divided_like(value, weights[number])
    optimiser.load_state_dict({"state": state, "param_groups": current["param_groups"]})


BETAS, EPS = (0.9, 0.999), 1e-8
"""AdamP: of the running means of gradient and its square; beside the square root."""
DECAY_RATIO = 0.1
"""AdamP: factor of weight decay where the step was projected."""


class AdamP(Optimizer):
    """AdamP (Heo et al. 2021, algorithm 1): Adam whose steps do not lengthen weights that have no scale.

    A weight followed by a normalisation has no effect through its length, yet Adam's momentum lengthens it, which slows
    its change of direction. Where gradient and weight are nearly at right angles, as they are for such weights, the
    component of the step along the weight is removed:

        p      = m' / (sqrt(v') + eps)                           Adam's step, m' and v' with bias correction
        if  max over rows |cos(w, g)| < delta / sqrt(width):     first row by row, then the tensor as one row
            p  = p - (w . p) w / |w|^2                           and weight decay is multiplied by decay_ratio
        w      = w - lr (p + decay w)

    Tensors of fewer than two axes are updated as by AdamW.

    Args:
        params: Weights, or groups of them.
        lr: Above 0.
        weight_decay: Decoupled, as in AdamW.
        delta: Largest cosine that is projected; the paper's value is 0.1.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, weight_decay: float = 0.0, delta: float = 0.1
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "delta": delta})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every weight that has a gradient.

        Args:
            closure: Computes the loss once more; None for no such function.

        Returns:
            The closure's result.
        """
        loss = None if closure is None else torch.enable_grad()(closure)()
        first, second = BETAS
        for group in self.param_groups:
            for weight in group["params"]:
                grad, state = weight.grad, self.state[weight]
                if grad is None:
                    continue
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
                state["step"] += 1
                count = int(state["step"].item())
                state["exp_avg"].lerp_(grad, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(grad, grad, value=1 - second)
                below = state["exp_avg_sq"].sqrt().div_(math.sqrt(1 - second**count)).add_(EPS)
                move = state["exp_avg"] / (1 - first**count) / below
                decay_scale: Tensor | float = 1.0
                if weight.ndim > 1:
                    move, turned = project(weight, grad, move, delta=group["delta"])
                    decay_scale = torch.where(turned, DECAY_RATIO, 1.0)
                if group["weight_decay"]:
                    weight.mul_(1 - group["lr"] * group["weight_decay"] * decay_scale)
                weight.add_(move, alpha=-group["lr"])
        return loss


def project(weight: Tensor, grad: Tensor, move: Tensor, *, delta: float) -> tuple[Tensor, Tensor]:
    """Remove the component of a step along the weight where gradient and weight are nearly at right angles.

    Args:
        weight: (R ...) with two axes or more.
        grad: Its gradient, of the same shape.
        move: The step, of the same shape.
        delta: Largest cosine that is projected, times sqrt(width).

    Returns:
        The step, and () bool whether it was changed. Both tests run on the device, without waiting for it.
    """
    result, turned = move, torch.zeros((), dtype=torch.bool, device=weight.device)
    for rows in (weight.shape[0], 1):
        w, g, p = weight.reshape(rows, -1), grad.reshape(rows, -1), move.reshape(rows, -1)
        direction = torch.nn.functional.normalize(w, dim=1, eps=1e-8)
        cosine = (direction * torch.nn.functional.normalize(g, dim=1, eps=1e-8)).sum(1).abs()
        hit = (cosine.max() < delta / math.sqrt(w.shape[1])) & ~turned
        flat = (p - (direction * p).sum(1, keepdim=True) * direction).reshape(move.shape)
        result = torch.where(hit, flat, result)
        turned = turned | hit
    return result, turned


RISE_SHARE = 0.3
"""one_cycle: share of the steps in which the rate rises, where the plan has no warm-up."""
RISE_FROM = 0.04
"""one_cycle: the first rate, relative to the peak."""
FALL_TO = 4e-6
"""one_cycle: the last rate, relative to the peak."""


def lr_factor(plan: Plan, *, step: int, steps: int, epoch: int = 0, drops: int = 0) -> float:
    """The factor of the plan's learning rate at a step: above 0, at most 1.

    A pure function of the step, so that a checkpoint needs no state of it. torch's schedulers compute the same factors
    recursively from the rate before, with a state of their own (docs/decisions/0095).

    constant   1
    step       factor ** (epoch // step_epochs)
    cosine     half a cosine from 1 to 0 over the steps after the warm-up (Loshchilov and Hutter 2017, no restarts)
    one_cycle  a straight rise from 0.04 over `warmup` of the steps (0.3 where it is 0), then half a cosine down to 4e-6
               (Smith and Topin 2018, with the momentum left alone)
    plateau    factor ** drops

    In all but one_cycle the rate rises in a straight line over the first `warmup` of the steps, and its first step is
    not zero.

    Args:
        plan: Schedule and warm-up.
        step: Steps finished.
        steps: Steps of the full training.
        epoch: Counted from 0, for the step schedule.
        drops: Drops so far, for the plateau schedule; `EarlyStopping` counts them.

    Returns:
        The factor.

    Example:
        >>> [round(lr_factor(Plan(schedule="cosine"), step=s, steps=4), 3) for s in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    share = plan.warmup if plan.warmup or plan.schedule != "one_cycle" else RISE_SHARE
    rising = round(share * steps)
    if step < rising:
        start = RISE_FROM if plan.schedule == "one_cycle" else 0.0
        return start + (1 - start) * (step + 1) / rising
    done = min((step - rising) / max(steps - rising, 1), 1.0)
    if plan.schedule == "step":
        return plan.lr_factor ** (epoch // plan.step_epochs)
    if plan.schedule == "plateau":
        return plan.lr_factor**drops
    if plan.schedule == "cosine":
        return max(0.5 * (1 + math.cos(math.pi * done)), 1e-12)
    if plan.schedule == "one_cycle":
        return FALL_TO + (1 - FALL_TO) * 0.5 * (1 + math.cos(math.pi * done))
    return 1.0


class WeightAverage:
    """The average of a model's learning weights and running statistics, on the device and in the type of each.

    ema   average = d average + (1 - d) weight        after each step, with d = min(decay, (1 + n) / (10 + n)) after n
                                                      steps, so that the first weights are forgotten
    swa   average = (n average + weight) / (n + 1)    after each epoch from `swa_start` on (Izmailov et al. 2018)

    The updates are torch's. `torch.optim.swa_utils.AveragedModel` is not used: it deep-copies the model with its open
    files and frozen encoders, and has no warm-up of the decay.
    Running statistics of norms are averaged like weights; they are not computed anew by a pass over the data.

    Args:
        model: The model that is trained.
        plan: Kind of average.

    Attributes:
        tensors: Name -> average; empty without averaging.
        count: Updates so far.
    """

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self._plan = plan
        self._first_epoch = int(plan.swa_start * plan.epochs)
        self._weights: dict[str, Tensor] = {}
        if plan.weight_average != "none":
            self._weights.update((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
            self._weights.update((name, value) for name, value in model.named_buffers() if value.is_floating_point())
        self.tensors: dict[str, Tensor] = {name: value.detach().clone() for name, value in self._weights.items()}
        self.count = 0

    def after_step(self) -> None:
        """Include the weights after a step."""
        if self._plan.weight_average == "ema":
            decay = min(self._plan.ema_decay, (1 + self.count) / (10 + self.count))
            self._update(get_ema_multi_avg_fn(decay))

    def after_epoch(self, epoch: int) -> None:
        """Include the weights at the end of an epoch.

        Args:
            epoch: Counted from 0.
        """
        if self._plan.weight_average == "swa" and epoch >= self._first_epoch:
            self._update(get_swa_multi_avg_fn())

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """Restore the average of a checkpoint.

        Args:
            tensors: As the attribute `tensors`.
            count: Updates so far.
        """
        for name, value in self.tensors.items():
            value.copy_(divided_like(tensors[name], value))
        self.count = count

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averages inside the block, and its own weights after it.

        Yields:
            Nothing; before the first update the model keeps its weights.
        """
        if not self.count:
            yield
            return
        own = {name: value.detach().clone() for name, value in self._weights.items()}
        self._set(self.tensors)
        try:
            yield
        finally:
            self._set(own)

    def _update(self, average: Callable[[Any, Any, Any], None]) -> None:
        pairs = [(value, self._weights[name].detach()) for name, value in self.tensors.items()]
        # torch's function takes divided weights, or whole ones.
        for divided in (False, True):
            averages, weights = ([pair[k] for pair in pairs if isinstance(pair[0], DTensor) is divided] for k in (0, 1))
            if averages:
                average(averages, weights, self.count)
        self.count += 1

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, value in self._weights.items():
            value.copy_(values[name])
