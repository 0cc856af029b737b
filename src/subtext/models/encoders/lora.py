"""Low-rank adapters in a pretrained body (LoRA, Hu et al. 2021), through `peft`."""

from __future__ import annotations

from typing import Any

from torch import nn

from subtext.errors import RequirementError

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
