"""How a recipe is trained, and the marks beside an option's help: plain data that is read without torch.

A mark says what the option requires and which numbers it takes. An option that nothing would read is refused and not
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, get_args, get_type_hints

from subtext.errors import RecipeError, SubtextError

Facts = Mapping[str, Sequence[str]]
"""What was chosen, or what a built model turned out to have: name -> values, the first as messages call it."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes: `least` and more, but less than `below`."""

    least: float
    below: float = math.inf

    def __str__(self) -> str:
        return f"a number in [{self.least:g}, {self.below:g})" if self.below < math.inf else f"{self.least:g} or more"

    def require(self, name: str, value: object, error: type[SubtextError] = RecipeError) -> None:
        """Raise the error unless the value of the option `name` is such a number."""
        if not (isinstance(value, int | float) and self.least <= value < self.below):
            raise error(f"{name} needs {self}; it got {value}")


@cache
def ranges(kind: type) -> dict[str, Range]:
    """The range of every option of a dataclass that has one."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: mark for name, hint in hints.items() for mark in get_args(hint)[1:] if isinstance(mark, Range)}


@dataclass(frozen=True)
class IsPath:
    """The option is a file or folder. Its absolute path is stored, so that a run opens from everywhere."""


@dataclass(frozen=True)
class Requires:
    """A choice that the option needs before anything reads it.

    Attributes:
        fact: An option, or something that a built model has: image, text (what encodes them), body (what is
            pretrained).
        values: One of them has to be chosen; with `negated` none of them may be.
        needs: The same in words, for a message; `fact=value|value` where it is left out.
    """

    fact: str
    values: tuple[str, ...]
    needs: str = ""
    negated: bool = False

    def holds(self, facts: Facts) -> bool:
        """Whether the option is read; True as long as the fact is unknown."""
        chosen = facts.get(self.fact)
        return chosen is None or bool(set(self.values) & set(chosen)) is not self.negated

    @property
    def words(self) -> str:
        """What the option needs, for a message."""
        return self.needs or f"{self.fact}={'|'.join(self.values)}"

    @property
    def prefix(self) -> str:
        """What stands before the option's help: "gru, bag: "; nothing where `needs` says it in a sentence."""
        return "" if self.needs or self.negated else f"{', '.join(self.values)}: "


_PRETRAINED = Requires("body", ("pretrained",), needs="a pretrained encoder that learns")
_LAYERS = Requires("body", ("layers",), needs="a pretrained encoder of several layers that learns")
_NORMS = Requires("body", ("norms",), needs="a pretrained encoder with batch norms that learns")
_LEARNING = Requires("freeze_epochs", ("-1",), needs="freeze_epochs other than -1", negated=True)
_EMA, _SWA = Requires("weight_average", ("ema",)), Requires("weight_average", ("swa",))


@dataclass(frozen=True)
class Phase:
    """Some epochs in which a part of the model learns.

    Attributes:
        epochs: How many; the last phase takes the rest.
        train: "heads": all but the encoders' pretrained bodies; "all": everything that the recipe did not freeze.
        factor: Multiplies the learning rate.
    """

    epochs: int
    train: Literal["heads", "all"] = "all"
    factor: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Everything about training that is not the model or the objective; each field is a command-line option."""

    epochs: Annotated[int, "passes over the training pairs", Range(1)] = 30
    batch_size: Annotated[int, "pairs per step, over all processes", Range(1)] = 128
    lr: Annotated[float, "peak learning rate"] = 2e-4
    optimiser: Annotated[Literal["adam", "adamw", "adamp", "sgd"], "optimiser"] = "adam"
    amsgrad: Annotated[bool, "AMSGrad", Requires("optimiser", ("adam", "adamw"))] = False
    weight_decay: Annotated[float, "weight decay; does not apply to biases, norms and temperatures", Range(0)] = 0.0
    momentum: Annotated[float, "momentum", Range(0, 1), Requires("optimiser", ("sgd",))] = 0.9
    max_grad_norm: Annotated[float, "maximum norm of the gradient; 0 for no clipping", Range(0)] = 2.0
    accumulation_steps: Annotated[int, "batches whose gradients are averaged before an update", Range(1)] = 1
    grad_cache_chunk: Annotated[
        int, "gradient caching: images or texts per chunk; 0 for the complete batch", Range(0)
    ] = 0
    schedule: Annotated[
        Literal["constant", "plateau", "step", "cosine", "one_cycle"], "schedule of the learning rate"
    ] = "constant"
    warmup: Annotated[float, "share of all steps in which the learning rate rises from zero", Range(0, 1)] = 0.0
    step_epochs: Annotated[int, "epochs between drops", Range(1), Requires("schedule", ("step",))] = 15
    lr_factor: Annotated[float, "factor of the learning rate at a drop", Requires("schedule", ("step", "plateau"))] = (
        0.1
    )
    plateau_patience: Annotated[
        int, "epochs without improvement before a drop", Range(0), Requires("schedule", ("plateau",))
    ] = 10
    layer_decay: Annotated[
        float, "learning rate of each layer of a pretrained encoder, relative to the layer above", _LAYERS, _LEARNING
    ] = 1.0
    backbone_lr_scale: Annotated[
        float, "learning rate of pretrained encoders, relative to lr", Range(0), _PRETRAINED, _LEARNING
    ] = 1.0
    freeze_epochs: Annotated[
        int, "number of first epochs with frozen pretrained encoders; -1 for all epochs", Range(-1), _PRETRAINED
    ] = 0
    backbone_norms: Annotated[
        Literal["batch", "frozen"], "pretrained batch norms: statistics of the batch, or frozen", _NORMS, _LEARNING
    ] = "batch"
    weight_average: Annotated[Literal["none", "ema", "swa"], "average the weights for evaluation and saving"] = "none"
    ema_decay: Annotated[float, "decay of the average at each step", Range(0, 1), _EMA] = 0.999
    swa_start: Annotated[float, "share of the epochs before averaging starts", Range(0, 1), _SWA] = 0.6
    patience: Annotated[int, "stop after N epochs without improvement; 0 for never", Range(0)] = 0
    caption_sampling: Annotated[
        Literal["all", "one", "together"],
        "all: every pair once per epoch; one: every image once, with a random text; together: every image with all "
        "its texts",
    ] = "all"
    drop_last: Annotated[
        bool, "drop the last batch of an epoch if it is smaller", Requires("caption_sampling", ("all", "one"))
    ] = False
    positives: Annotated[
        Literal["group", "pair"], "positives of an image: all of its texts in the batch, or only its partner"
    ] = "group"
    select: Annotated[
        Literal["rsum", "loss", "last"], "epoch to save: the best by validation rsum or loss, or the last one"
    ] = "rsum"
    precision: Annotated[Literal["float32", "bf16", "fp16"], "arithmetic of the forward and backward pass"] = "float32"

    def __post_init__(self) -> None:
        for name, allowed in ranges(Plan).items():
            allowed.require(name, getattr(self, name))
        for name in ("lr", "lr_factor", "layer_decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise RecipeError(f"{name} needs a number above 0; it got {getattr(self, name)}")
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
