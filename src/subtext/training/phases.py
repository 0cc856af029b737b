"""Which weights learn in which epoch: phases, frozen bodies, and what the recipe froze itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from subtext.models.model import Branch, Model
from subtext.training.plan import Phase, Plan


@dataclass(frozen=True)
class Stage:
    """What holds in one epoch: whether pretrained bodies learn, what the learning rate is multiplied by, and whether
    pretrained batch norms go by the statistics that they came with.
    """

    bodies: bool
    factor: float
    norms_kept: bool = False


def stage(plan: Plan, phases: Sequence[Phase], epoch: int) -> Stage:
    """The stage of an epoch counted from 0; the last phase takes what is left."""
    chosen, end = Phase(epochs=plan.epochs), 0
    for phase in phases:
        chosen = phase
        end += phase.epochs
        if epoch < end:
            break
    thawed = plan.freeze_epochs >= 0 and epoch >= plan.freeze_epochs
    frozen = plan.backbone_norms == "frozen"
    return Stage(bodies=chosen.train == "all" and thawed, factor=chosen.factor, norms_kept=frozen)


def body_norms(branch: Branch) -> list[_BatchNorm]:
    """The batch norms of the branch's pretrained body."""
    body = getattr(branch.encoder, "body", None)
    if not isinstance(body, nn.Module) or not body_layers(branch):
        return []
    return [module for module in body.modules() if isinstance(module, _BatchNorm)]


def body_layers(branch: Branch) -> list[list[nn.Parameter]]:
    """The pretrained layers of a branch's encoder, bottom to top; empty where nothing is pretrained."""
    layers = getattr(branch.encoder, "body_layers", None)
    return list(layers()) if callable(layers) else []


class Freezer:
    """Turns learning on and off, and never on for what the recipe itself turned off."""

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

    def apply(self, current: Stage) -> None:
        """Set what learns, and the mode of every module.

        A body that does not learn is in eval mode: its dropout is off and its running statistics stay. Batch norms
        that are kept are too, while their scale and shift learn with the rest.
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

    def never_learns(self, branch: Branch, plan: Plan, phases: Sequence[Phase]) -> bool:
        """Whether no weight of the branch's encoder learns in any epoch; False for an encoder without weights."""
        weights = list(branch.encoder.parameters())
        bodies = any(stage(plan, phases, epoch).bodies for epoch in range(plan.epochs))
        learning = {id(weight) for weight in self.learning}
        return bool(weights) and not any(
            id(weight) in learning and (bodies or id(weight) not in self._body) for weight in weights
        )
