"""Pretrained backbones of `transformers`: loading, their layers, frozen mode, and low-rank adapters.

The adapters are LoRA (Hu et al. 2021), by `peft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from subtext.errors import RequirementError
from subtext.models.encoders.hub import BACKBONES, read_model

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

    name        a short name of `hub.BACKBONES`, a local folder, or a hub name
    weights     "pretrained", or "random": only the configuration is read, and for a short name the hub is not asked
    image_size  side in pixels of a randomly initialised vision transformer; None for that of its configuration
    assets      folder of a saved run: only its configuration is read, because the run's tensors follow
    option      the option that the name came from, for messages
    task        auto class of the library that builds the model

    Raises RequirementError when the weights or the configuration cannot be had.
    """
    if assets is not None:
        return task.from_config(_config(str(assets), option))
    backbone = BACKBONES.get(name)
    if not has_weights(name, weights):
        config = (
            _config(name, option) if backbone is None else AutoConfig.for_model(backbone.family, **backbone.settings)
        )
        if image_size is not None and isinstance(getattr(config, "image_size", None), int):
            config.image_size = image_size
        return task.from_config(config)
    # Safetensors only: a pickle can run code.
    return read_model(
        name,
        lambda source, local: task.from_pretrained(source, use_safetensors=True, local_files_only=local),
        files=["config.json", "model.safetensors"],
        option=option,
    )


def has_weights(name: str, weights: Weights) -> bool:
    """Whether `open_body` gives pretrained weights."""
    backbone = BACKBONES.get(name)
    return weights == "pretrained" and (backbone is None or backbone.hub is not None)


def save_config(config: PretrainedConfig, folder: Path) -> None:
    """Write `config.json`, from which `open_body` rebuilds the model."""
    config.save_pretrained(folder)


def drop_pooler(body: PreTrainedModel) -> None:
    """Remove the pooler of a transformer: nothing reads it, so that its weights would never learn."""
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        body.pooler = None


def settle(body: nn.Module, training: bool) -> None:
    """Keep a frozen body in eval mode: its dropout and running statistics must not change while heads learn."""
    mode = training and any(parameter.requires_grad for parameter in body.parameters())
    if body.training != mode:
        body.train(mode)


def layers(body: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a body, bottom to top: embeddings, then each layer or stage, then the modules above.

    The outermost list of two or more modules is the layers; a body without one is a single layer.
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
    return read_model(
        name,
        lambda source, local: AutoConfig.from_pretrained(source, local_files_only=local),
        files=["config.json"],
        option=option,
    )


# Names of attention projections in the supported families.
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "query", "key", "value", "q_lin", "k_lin", "v_lin", "qkv", "Wqkv"}


def adapt(encoder: Any, *, rank: int = 8, scale: float = 16.0, dropout: float = 0.0) -> None:
    """Freeze an encoder's body and train rank-`rank` updates of its attention projections instead.

    W x becomes W x + (scale / rank) B A x. A starts at small random values and B at zero: the encoder's output does
    not change at first. The encoder then has no pretrained layers to freeze or to slow down.

    Raises RequirementError when `peft` is missing, or when the body has no attention projections.
    """
    body: nn.Module = encoder.body
    targets = sorted(
        {name.rpartition(".")[2] for name, module in body.named_modules() if isinstance(module, nn.Linear)}
        & _PROJECTIONS
    )
    if not targets:
        raise RequirementError(
            f"low-rank adapters need a transformer with attention projections; {type(body).__name__} has none; "
            "fine-tune the full body, or freeze it"
        )
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise RequirementError("low-rank adapters need the package peft; install subtext[lora]") from error
    config = LoraConfig(r=rank, lora_alpha=scale, lora_dropout=dropout, target_modules=targets)
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)
    encoder.pretrained = False
