"""How a recipe is trained: plain data that the command line reads without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from subtext.errors import RecipeError
from subtext.training.option_marks import Requires

_PRETRAINED = Requires("body", ("pretrained",), needs="a pretrained encoder that learns")
_LAYERS = Requires("body", ("layers",), needs="a pretrained encoder of several layers that learns")
_NORMS = Requires("body", ("norms",), needs="a pretrained encoder with batch norms that learns")
_LEARNING = Requires("freeze_epochs", ("-1",), needs="freeze_epochs other than -1", negated=True)
_EMA, _SWA = Requires("weight_average", ("ema",)), Requires("weight_average", ("swa",))


@dataclass(frozen=True)
class Phase:
    """Some epochs in which a part of the model learns.

    epochs  how many; the last phase takes the rest
    train   "heads": all but the encoders' pretrained bodies; "all": everything that the recipe did not freeze
    factor  multiplies the learning rate
    """

    epochs: int
    train: Literal["heads", "all"] = "all"
    factor: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Everything about training that is not the model or the objective; each field is a command-line option."""

    epochs: Annotated[int, "passes over the training pairs"] = 30
    batch_size: Annotated[int, "pairs per step, over all processes"] = 128
    lr: Annotated[float, "peak learning rate"] = 2e-4
    optimiser: Annotated[Literal["adam", "adamw", "adamp", "sgd"], "optimiser"] = "adam"
    amsgrad: Annotated[bool, "AMSGrad", Requires("optimiser", ("adam", "adamw"))] = False
    weight_decay: Annotated[float, "weight decay; not of biases, norms and temperatures"] = 0.0
    momentum: Annotated[float, "momentum", Requires("optimiser", ("sgd",))] = 0.9
    max_grad_norm: Annotated[float, "clip the gradient to this norm; 0 for no clipping"] = 2.0
    accumulation_steps: Annotated[int, "batches whose gradients are averaged before an update"] = 1
    grad_cache_chunk: Annotated[
        int, "gradient caching: images or texts embedded at a time; 0 for the complete batch"
    ] = 0
    schedule: Annotated[
        Literal["constant", "plateau", "step", "cosine", "one_cycle"], "schedule of the learning rate"
    ] = "constant"
    warmup: Annotated[float, "share of all steps in which the learning rate rises from zero"] = 0.0
    step_epochs: Annotated[int, "epochs between drops", Requires("schedule", ("step",))] = 15
    lr_factor: Annotated[float, "factor of the learning rate at a drop", Requires("schedule", ("step", "plateau"))] = (
        0.1
    )
    plateau_patience: Annotated[int, "epochs without improvement before a drop", Requires("schedule", ("plateau",))] = (
        10
    )
    layer_decay: Annotated[
        float, "learning rate of a pretrained encoder's layer, relative to the layer above", _LAYERS, _LEARNING
    ] = 1.0
    backbone_lr_scale: Annotated[
        float, "learning rate of pretrained encoder bodies, relative to lr", _PRETRAINED, _LEARNING
    ] = 1.0
    freeze_epochs: Annotated[
        int, "epochs before pretrained encoder bodies start to learn; -1 for never", _PRETRAINED
    ] = 0
    backbone_norms: Annotated[
        Literal["batch", "frozen"], "statistics of pretrained batch norms: of the batch, or frozen", _NORMS, _LEARNING
    ] = "batch"
    weight_average: Annotated[Literal["none", "ema", "swa"], "averaged weights that are evaluated and kept"] = "none"
    ema_decay: Annotated[float, "decay of the average at each step", _EMA] = 0.999
    swa_start: Annotated[float, "share of the epochs before averaging starts", _SWA] = 0.6
    patience: Annotated[int, "stop after N epochs without improvement; 0 for never"] = 0
    caption_sampling: Annotated[
        Literal["all", "one", "together"],
        "all: every pair once per epoch; one: every image once, with a random text; together: every image with all "
        "its texts",
    ] = "all"
    drop_last: Annotated[
        bool, "drop the last batch of an epoch where it is smaller", Requires("caption_sampling", ("all", "one"))
    ] = False
    positives: Annotated[
        Literal["group", "pair"], "positives of an image: all of its texts in the batch, or its partner alone"
    ] = "group"
    select: Annotated[
        Literal["rsum", "loss", "last"], "epoch to keep: best by validation rsum or loss, or the last"
    ] = "rsum"
    precision: Annotated[Literal["float32", "bf16", "fp16"], "arithmetic of the forward and backward pass"] = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulation_steps", "step_epochs"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} needs at least 1; it got {getattr(self, name)}")
        for name in ("lr", "lr_factor", "layer_decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise RecipeError(f"{name} needs a number above 0; it got {getattr(self, name)}")
        for name in (
            "max_grad_norm",
            "weight_decay",
            "grad_cache_chunk",
            "plateau_patience",
            "patience",
            "backbone_lr_scale",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise RecipeError(f"{name} needs a number of 0 or more; it got {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise RecipeError(f"warmup is a share of all steps in [0, 1); it got {self.warmup}")
        if not 0 <= self.swa_start < 1:
            raise RecipeError(f"swa_start is a share of all epochs in [0, 1); it got {self.swa_start}")
        for name in ("ema_decay", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"{name} needs a number in [0, 1); it got {getattr(self, name)}")
        if self.freeze_epochs < -1:
            raise RecipeError(f"freeze_epochs needs -1 for never, or 0 or more; it got {self.freeze_epochs}")
        if self.amsgrad and self.optimiser not in ("adam", "adamw"):
            raise RecipeError(f"amsgrad needs optimiser=adam or adamw; optimiser is {self.optimiser}; leave it off")
        if self.caption_sampling == "together" and self.positives == "pair":
            raise RecipeError(
                "caption_sampling=together needs positives=group, since an image then has several partners; it got pair"
            )
        if self.grad_cache_chunk > self.batch_size:
            raise RecipeError(
                f"grad_cache_chunk needs at most batch_size, {self.batch_size}; it got {self.grad_cache_chunk}"
            )
