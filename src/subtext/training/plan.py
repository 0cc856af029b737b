"""Plan and RunConfig, and the marks beside an option's help: plain data that is read without torch.

A mark says what the option requires and which numbers it takes. An option that nothing would read is refused and not
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from subtext.errors import RecipeError, Setting, TrainingError
from subtext.settings import Interval, fields_of, named_fields

Facts = Mapping[str, Sequence[str]]
"""What was chosen, or what a built model turned out to have: name -> values, the first as messages call it."""


@dataclass(frozen=True)
class Requires:
    """A choice that the option needs before anything reads it.

    Attributes:
        fact: An option, or something that a built model has: image, text (what encodes them), body (what is
            pretrained).
        values: One of them has to be chosen; with `negated` none of them may be.
        needs: The same in words, for a message; `fact=value|value` where it is left out.
        negated: Whether none of the values may be chosen.
    """

    fact: str
    values: tuple[str, ...]
    needs: str = ""
    negated: bool = False

    def holds(self, facts: Facts) -> bool:
        """Whether the option is read; True as long as the fact is unknown.

        Args:
            facts: Name -> what was chosen or built.

        Returns:
            False if the fact excludes it.
        """
        chosen = facts.get(self.fact)
        return chosen is None or bool(set(self.values) & set(chosen)) is not self.negated

    @property
    def words(self) -> tuple[str | Setting, ...]:
        """What the option needs, as parts of a message."""
        words = self.needs or f"{self.fact}={'|'.join(self.values)}"
        if words.startswith(f"{self.fact}="):
            return (Setting(self.fact, words.removeprefix(f"{self.fact}=")),)
        if words.startswith(f"{self.fact} "):
            return Setting(self.fact), words.removeprefix(self.fact)
        return (words,)

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


@named_fields(RecipeError)
@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """Everything about training that is not the model or the objective; each field is a command-line option.

    Each model has its own plan. A plan that you pass to `train` replaces only the fields that you name. This includes
    named fields with the default value, as in `Plan(epochs=30)`.

    Attributes:
        epochs: Passes over the training pairs, 1 or more.
        batch_size: Pairs per step, over all processes.
        lr: Peak learning rate, above 0.
        optimiser: "adam", "adamw", "adamp" or "sgd".
        amsgrad: AMSGrad, for adam and adamw.
        weight_decay: Weight decay, 0 or more; does not apply to biases, norms and temperatures.
        momentum: Momentum of sgd, in [0, 1).
        max_grad_norm: Maximum norm of the gradient; 0 for no clipping.
        accumulation_steps: Batches whose gradients are averaged before an update.
        grad_cache_chunk: Gradient caching: images or texts per chunk; 0 for the complete batch.
        schedule: Schedule of the learning rate: "constant", "plateau", "step", "cosine" or "one_cycle".
        warmup: Share of all steps in which the learning rate rises from zero, in [0, 1).
        step_epochs: Epochs between drops, for schedule "step".
        lr_factor: Factor of the learning rate at a drop, for schedules "step" and "plateau".
        plateau_patience: Epochs without improvement before a drop, for schedule "plateau".
        layer_decay: Learning rate of each layer of a pretrained encoder, relative to the layer above.
        backbone_lr_scale: Learning rate of pretrained encoders, relative to `lr`.
        freeze_epochs: Number of first epochs with frozen pretrained encoders; -1 for all epochs.
        backbone_norms: Pretrained batch norms use statistics of the "batch", or are "frozen".
        weight_average: "none", or the average of the weights that is evaluated and saved: "ema" or "swa".
        ema_decay: Decay of the average at each step, in [0, 1), for "ema".
        swa_start: Share of the epochs before averaging starts, in [0, 1), for "swa".
        patience: Stop after N epochs without improvement; 0 for never. On frozen encoders 4, unless it is named or
            `select` is "last".
        caption_sampling: Pairs of an epoch: "all" pairs once; "one" random text per image; or "together", each image
            with all its texts.
        drop_last: Drop the last batch of an epoch if it is smaller.
        positives: Positives of an image: all of its texts in the batch ("group"), or only its partner ("pair").
        select: Epoch to save: the best by validation "rsum" or "loss", or the "last" one.
        precision: Arithmetic of the forward and backward pass: "float32", "bf16" or "fp16".

    Raises:
        RecipeError: If a number is out of range, or fields contradict each other.

    Example:
        >>> Plan(epochs=3, lr=1e-3)
        Plan(epochs=3, lr=0.001)
    """

    epochs: Annotated[int, "passes over the training pairs", Interval(1)] = 30
    batch_size: Annotated[int, "pairs per step, over all processes", Interval(1)] = 128
    lr: Annotated[float, "peak learning rate", Interval(above=0)] = 2e-4
    optimiser: Annotated[Literal["adam", "adamw", "adamp", "sgd"], "optimiser"] = "adam"
    amsgrad: Annotated[bool, "AMSGrad", Requires("optimiser", ("adam", "adamw"))] = False
    weight_decay: Annotated[float, "weight decay; does not apply to biases, norms and temperatures", Interval(0)] = 0.0
    momentum: Annotated[float, "momentum", Interval(0, below=1), Requires("optimiser", ("sgd",))] = 0.9
    max_grad_norm: Annotated[float, "maximum norm of the gradient; 0 for no clipping", Interval(0)] = 2.0
    accumulation_steps: Annotated[int, "batches whose gradients are averaged before an update", Interval(1)] = 1
    grad_cache_chunk: Annotated[
        int, "gradient caching: images or texts per chunk; 0 for the complete batch", Interval(0)
    ] = 0
    schedule: Annotated[
        Literal["constant", "plateau", "step", "cosine", "one_cycle"], "schedule of the learning rate"
    ] = "constant"
    warmup: Annotated[float, "share of all steps in which the learning rate rises from zero", Interval(0, below=1)] = (
        0.0
    )
    step_epochs: Annotated[int, "epochs between drops", Interval(1), Requires("schedule", ("step",))] = 15
    lr_factor: Annotated[
        float, "factor of the learning rate at a drop", Interval(above=0), Requires("schedule", ("step", "plateau"))
    ] = 0.1
    plateau_patience: Annotated[
        int, "epochs without improvement before a drop", Interval(0), Requires("schedule", ("plateau",))
    ] = 10
    layer_decay: Annotated[
        float,
        "learning rate of each layer of a pretrained encoder, relative to the layer above",
        Interval(above=0),
        _LAYERS,
        _LEARNING,
    ] = 1.0
    backbone_lr_scale: Annotated[
        float, "learning rate of pretrained encoders, relative to lr", Interval(0), _PRETRAINED, _LEARNING
    ] = 1.0
    freeze_epochs: Annotated[
        int, "number of first epochs with frozen pretrained encoders; -1 for all epochs", Interval(-1), _PRETRAINED
    ] = 0
    backbone_norms: Annotated[
        Literal["batch", "frozen"], "pretrained batch norms: statistics of the batch, or frozen", _NORMS, _LEARNING
    ] = "batch"
    weight_average: Annotated[Literal["none", "ema", "swa"], "average the weights for evaluation and saving"] = "none"
    ema_decay: Annotated[float, "decay of the average at each step", Interval(0, below=1), _EMA] = 0.999
    swa_start: Annotated[float, "share of the epochs before averaging starts", Interval(0, below=1), _SWA] = 0.6
    patience: Annotated[
        int, "stop after N epochs without improvement; 0 for never; 4 on frozen encoders unless given", Interval(0)
    ] = 0
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

    def __new__(cls, **given: Any) -> Plan:
        """Remember which fields were named."""
        plan = super().__new__(cls)
        object.__setattr__(plan, "_given", frozenset(given))
        return plan

    @property
    def given(self) -> frozenset[str]:
        """Names of the fields that the caller set."""
        names: frozenset[str] = vars(self)["_given"]
        return names

    def __post_init__(self) -> None:
        for field in fields_of(Plan):
            object.__setattr__(self, field.name, field.parse(getattr(self, field.name), RecipeError))
        # Fields that were not named come from the model's plan: they are compared once both are merged.
        given = self.given
        if {"amsgrad", "optimiser"} <= given and self.amsgrad and self.optimiser not in ("adam", "adamw"):
            raise RecipeError(
                "amsgrad needs ",
                Setting("optimiser", "adam or adamw"),
                "; ",
                Setting("optimiser"),
                f" is {self.optimiser}; leave it off",
                field="amsgrad",
            )
        together = self.caption_sampling == "together" and self.positives == "pair"
        if {"caption_sampling", "positives"} <= given and together:
            raise RecipeError(
                Setting("caption_sampling", "together"),
                " needs ",
                Setting("positives", "group"),
                ", since an image then has several partners; it got pair",
            )
        if {"grad_cache_chunk", "batch_size"} <= given and self.grad_cache_chunk > self.batch_size:
            raise RecipeError(
                "grad_cache_chunk needs at most ",
                Setting("batch_size"),
                f", {self.batch_size}; it got {self.grad_cache_chunk}",
                field="grad_cache_chunk",
            )

    def __repr__(self) -> str:
        named = (f.name for f in fields(self) if f.name in self.given or getattr(self, f.name) != f.default)
        return f"Plan({', '.join(f'{name}={getattr(self, name)!r}' for name in named)})"


@named_fields(TrainingError)
@dataclass(frozen=True, repr=False)
class RunConfig:
    """How a training is run. Only the seed and the precision of the cache affect the weights.

    Attributes:
        seed: Seed of every random choice.
        device: "auto" (a GPU if there is one), or a device of torch: "cpu", "cuda", "cuda:1", "mps".
        workers: Threads that load data; 0 to load it in the training loop.
        resume: Resume from the last complete checkpoint of the folder.
        checkpoint_every: Steps between checkpoints; 0 for none within an epoch. The end of each epoch always has one.
        keep_checkpoints: Checkpoints to keep. They are deleted when the training is finished.
        save_every_epochs: Save every Nth epoch as a run, RUN/epochs/EPOCH; 0 for none.
        cache: Folder for the outputs of frozen encoders; None for the cache that all commands of the user share.
        tensorboard: Also write TensorBoard logs (extra: tensorboard).
        cache_precision: Precision of the stored outputs of frozen encoders. float16 halves their size and changes the
            features by about 0.05 %. `resume` needs the same precision.
        shard_weights: Divide the towers over the processes (FSDP), so that one need not fit on one GPU.
        log_every: Steps between two lines of log.jsonl.

    Raises:
        TrainingError: If a number is out of range.

    Example:
        >>> RunConfig(seed=1, device="cpu")
        RunConfig(seed=1, device='cpu')
    """

    seed: Annotated[int, "Seed of every random choice."] = 0
    device: Annotated[str, "cpu, cuda, cuda:1 or mps; auto: a GPU if there is one."] = "auto"
    workers: Annotated[int, "Threads that load data.", Interval(0)] = 2
    resume: Annotated[bool, "Resume from the last checkpoint in RUN."] = False
    checkpoint_every: Annotated[int, "Steps between checkpoints; 0: at the end of each epoch.", Interval(0)] = 0
    keep_checkpoints: Annotated[int, "Checkpoints to keep.", Interval(1)] = 2
    save_every_epochs: Annotated[int, "Save every Nth epoch as a run, RUN/epochs/EPOCH; 0 for none.", Interval(0)] = 0
    cache: Annotated[str | Path | None, "Folder for the outputs of frozen encoders. Default: the user's cache."] = None
    tensorboard: Annotated[bool, "Also write TensorBoard logs (extra: tensorboard)."] = False
    cache_precision: Literal["float32", "float16"] = "float32"
    shard_weights: Annotated[bool, "Divide the towers over the processes (FSDP)."] = False
    log_every: int = 50

    def __post_init__(self) -> None:
        for field in fields_of(RunConfig):
            object.__setattr__(self, field.name, field.check(getattr(self, field.name), TrainingError))
        if self.log_every not in Interval(1):
            raise TrainingError(f"log_every needs 1 or more; it got {self.log_every}", field="log_every")
        if self.cache is not None:
            object.__setattr__(self, "cache", Path(self.cache).expanduser())

    def __repr__(self) -> str:
        named = ((f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default)
        return f"RunConfig({', '.join(f'{name}={value!r}' for name, value in named)})"
