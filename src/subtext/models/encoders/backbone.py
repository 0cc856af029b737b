"""A pretrained body of `transformers`: how it is opened, which layers it has, and how it rests while frozen.

Low-rank adapters in a pretrained body (LoRA, Hu et al. 2021), through `peft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from subtext.errors import RequirementError
from subtext.models.encoders.hub import KNOWN, opened

Weights = Literal["pretrained", "random"]


def open_body(
    name: str,
    *,
    weights: Weights = "pretrained",
    image_size: int | None = None,
    assets: Path | None = None,
    option: str = "name",
    task: Any = AutoModel,
) -> PreTrainedModel:
    """A model of `transformers`.

    name        a short name of `encoders.known`, a local folder, or a hub name
    weights     "pretrained", or "random": then the configuration alone is read, and no hub is asked for a short name
    image_size  side in pixels of a randomly initialised vision transformer; its configuration's own when None
    assets      folder of a saved run: the configuration in it is all that is read, for the run's tensors follow
    option      what the name was given as, for messages
    task        which of the library's auto classes makes it

    Raises RequirementError when the weights or the configuration cannot be had.
    """
    if assets is not None:
        return task.from_config(_config(str(assets), option))
    known = KNOWN.get(name)
    if not has_weights(name, weights):
        config = _config(name, option) if known is None else AutoConfig.for_model(known.family, **known.settings)
        if image_size is not None and isinstance(getattr(config, "image_size", None), int):
            config.image_size = image_size
        return task.from_config(config)
    # Safetensors alone: a pickle could run code of whoever wrote it.
    return opened(
        name,
        lambda source, local: task.from_pretrained(source, use_safetensors=True, local_files_only=local),
        files=["config.json", "model.safetensors"],
        option=option,
    )


def has_weights(name: str, weights: Weights) -> bool:
    """Whether `open_body` would bring pretrained weights."""
    known = KNOWN.get(name)
    return weights == "pretrained" and (known is None or known.hub is not None)


def save_config(config: PretrainedConfig, folder: Path) -> None:
    """Write `config.json`, from which `open_body` makes the model again."""
    config.save_pretrained(folder)


def drop_pooler(body: PreTrainedModel) -> None:
    """Take out the pooler of a transformer, which nothing here reads: it would be weights that never learn."""
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        body.pooler = None


def settle(body: nn.Module, training: bool) -> None:
    """A frozen body rests in eval mode, so that its dropout and running statistics do not move while heads learn."""
    wanted = training and any(parameter.requires_grad for parameter in body.parameters())
    if body.training != wanted:
        body.train(wanted)


def layers(body: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a body, bottom to top: embeddings, then each layer or stage, then what stands above them.

    The outermost list of two or more modules is taken for the layers; a body without one is a single layer.
    """
    named = list(body.named_parameters())
    lists = [(name, m) for name, m in body.named_modules() if isinstance(m, nn.ModuleList) and len(m) > 1]
    if not lists:
        return [[parameter for _, parameter in named]]
    prefix, stack = lists[0]
    groups = [list(layer.parameters()) for layer in stack]
    inside = [name.startswith(f"{prefix}.") for name, _ in named]
    first = inside.index(True)
    below = [p for (_, p), within in zip(named[:first], inside[:first], strict=True) if not within]
    above = [p for (_, p), within in zip(named[first:], inside[first:], strict=True) if not within]
    return [group for group in (below, *groups, above) if group]


def _config(name: str, option: str) -> PretrainedConfig:
    return opened(
        name,
        lambda source, local: AutoConfig.from_pretrained(source, local_files_only=local),
        files=["config.json"],
        option=option,
    )


# The names that attention's projections have in the families served here.
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "query", "key", "value", "q_lin", "k_lin", "v_lin", "qkv", "Wqkv"}


def adapt(encoder: Any, *, rank: int = 8, scale: float = 16.0, dropout: float = 0.0) -> None:
    """Freeze an encoder's body and let rank-`rank` updates of its attention projections learn instead.

    W x becomes W x + (scale / rank) B A x, where A is drawn small and B starts at zero: the encoder gives what it gave
    before, until it learns. The encoder then has no pretrained layers to freeze or to slow down.

    Raises RequirementError when `peft` is missing, or when the body has no attention projections.
    """
    body: nn.Module = encoder.body
    found = sorted(
        {name.rpartition(".")[2] for name, module in body.named_modules() if isinstance(module, nn.Linear)}
        & _PROJECTIONS
    )
    if not found:
        raise RequirementError(
            f"low-rank adapters need a transformer with attention projections; {type(body).__name__} has none; "
            "fine-tune it whole, or freeze it"
        )
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise RequirementError("low-rank adapters need the package peft; install subtext[lora]") from error
    config = LoraConfig(r=rank, lora_alpha=scale, lora_dropout=dropout, target_modules=found)
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)
    encoder.pretrained = False
