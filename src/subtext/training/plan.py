"""How a recipe is trained: plain data, read by the command line without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from subtext.errors import RecipeError
from subtext.training.option_marks import When

_PRETRAINED = When("body", ("pretrained",), needs="a pretrained encoder that learns")
_LAYERS = When("body", ("layers",), needs="a pretrained encoder of several layers that learns")
_NORMS = When("body", ("norms",), needs="a pretrained encoder with batch norms that learns")
_LEARNING = When("freeze_epochs", ("-1",), needs="freeze_epochs other than -1", but=True)


@dataclass(frozen=True)
class Phase:
    """Some epochs in which a part of the model learns.

    epochs  how many; the last phase takes what is left
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
    batch_size: Annotated[int, "pairs a step, over all processes"] = 128
    lr: Annotated[float, "peak learning rate"] = 2e-4
    optimiser: Annotated[Literal["adam", "adamw", "adamp", "sgd"], "which optimiser"] = "adam"
    amsgrad: Annotated[bool, "AMSGrad", When("optimiser", ("adam", "adamw"))] = False
    weight_decay: Annotated[float, "decay of the weights (never of biases, norms and embeddings' scale)"] = 0.0
    momentum: Annotated[float, "share of the last step that is taken again", When("optimiser", ("sgd",))] = 0.9
    clip: Annotated[float, "largest norm of the gradient; 0 for none"] = 2.0
    accumulate: Annotated[int, "steps whose gradients are averaged before the weights move"] = 1
    cache_chunk: Annotated[int, "gradient caching: pictures, or texts, embedded at a time; 0 for the whole batch"] = 0
    schedule: Annotated[
        Literal["constant", "plateau", "step", "cosine", "one_cycle"], "how the learning rate moves"
    ] = "constant"
    warmup: Annotated[float, "share of all steps in which the rate rises from zero"] = 0.0
    step_epochs: Annotated[int, "epochs between drops", When("schedule", ("step",))] = 15
    factor: Annotated[float, "what a drop multiplies the rate by", When("schedule", ("step", "plateau"))] = 0.1
    plateau_epochs: Annotated[int, "epochs without improvement before a drop", When("schedule", ("plateau",))] = 10
    layer_decay: Annotated[
        float, "rate of each layer of a pretrained encoder, relative to the one above it", _LAYERS, _LEARNING
    ] = 1.0
    encoder_factor: Annotated[
        float, "learning rate of pretrained encoder bodies, relative to lr", _PRETRAINED, _LEARNING
    ] = 1.0
    freeze_epochs: Annotated[
        int, "epochs before pretrained encoder bodies start to learn; -1 for never", _PRETRAINED
    ] = 0
    encoder_norms: Annotated[
        Literal["batch", "kept"],
        "batch norms of pretrained encoders go by the batch, or by the statistics that they came with",
        _NORMS,
        _LEARNING,
    ] = "batch"
    average: Annotated[Literal["none", "ema", "swa"], "which averaged weights are evaluated and kept"] = "none"
    average_decay: Annotated[float, "share of the old average kept at each step", When("average", ("ema",))] = 0.999
    average_from: Annotated[float, "share of the epochs before averaging starts", When("average", ("swa",))] = 0.6
    patience: Annotated[int, "stop after so many epochs without improvement; 0 for never"] = 0
    captions: Annotated[
        Literal["all", "one", "together"],
        "all: every pair once an epoch; one: every picture once, a text drawn; together: every picture, all texts",
    ] = "all"
    drop_last: Annotated[
        bool, "leave out the last batch of an epoch where it is smaller", When("captions", ("all", "one"))
    ] = False
    positives: Annotated[
        Literal["group", "pair"], "whether all texts of a picture in the batch count as right, or its partner alone"
    ] = "group"
    select: Annotated[Literal["rsum", "loss", "last"], "which epoch is kept: best on validation, or the last"] = "rsum"
    precision: Annotated[Literal["float32", "bf16", "fp16"], "arithmetic of the forward and backward pass"] = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "step_epochs"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} needs at least 1; it got {getattr(self, name)}")
        for name in ("lr", "factor", "layer_decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise RecipeError(f"{name} needs a number above 0; it got {getattr(self, name)}")
        for name in ("clip", "weight_decay", "cache_chunk", "plateau_epochs", "patience", "encoder_factor"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RecipeError(f"{name} needs a number of 0 or more; it got {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise RecipeError(f"warmup is a share of all steps in [0, 1); it got {self.warmup}")
        if not 0 <= self.average_from < 1:
            raise RecipeError(f"average_from is a share of all epochs in [0, 1); it got {self.average_from}")
        for name in ("average_decay", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"{name} needs a number in [0, 1); it got {getattr(self, name)}")
        if self.freeze_epochs < -1:
            raise RecipeError(f"freeze_epochs needs -1 for never, or 0 or more; it got {self.freeze_epochs}")
        if self.amsgrad and self.optimiser not in ("adam", "adamw"):
            raise RecipeError(f"amsgrad is of adam and adamw; the optimiser is {self.optimiser}; leave it off")
        if self.captions == "together" and self.positives == "pair":
            raise RecipeError(
                "captions=together needs positives=group, since a picture then has several partners; it got pair"
            )
        if self.cache_chunk and self.cache_chunk > self.batch_size:
            raise RecipeError(f"cache_chunk needs at most batch_size, {self.batch_size}; it got {self.cache_chunk}")
