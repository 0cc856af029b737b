"""Pretrained backbones of `transformers`: reading them, their layers, and their adapters.

The adapters are LoRA (Hu et al. 2021), by `peft`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from subtext.data.starter import NAME as STARTER, starter_folder
from subtext.errors import RequirementError, Setting
from subtext.models.encoders.hub import BACKBONES, is_cached, require_answer, require_hub_name, source_of
from subtext.text_helpers import install_hint

Model = TypeVar("Model")

_BROKEN = (OSError, ValueError, SafetensorError, StrictDataclassError)
"""Errors of libraries for model files that are missing, truncated or of other content."""


def read_model(name: str, read: Callable[[str, bool], Model], *, files: Sequence[str], option: str = "name") -> Model:
    """Read a model from its folder or the hub.

    Args:
        name: A short name of `BACKBONES`, "starter" for the text tower of that name, a folder, or a hub name.
        read: Function of the folder or hub name, and whether to use local files only.
        files: Files of the model; if one of them is in the hub's cache, the cache is tried first.
        option: The option that the name came from, for messages.

    Returns:
        What `read` returns.

    Raises:
        RequirementError: If there is no such model, the hub cannot be reached, or the model cannot be read.
    """
    if name == STARTER:
        with starter_folder() as folder, _silence():
            return read(str(folder), True)
    source = source_of(name)
    local = bool(source) and Path(source).is_dir()
    if not local:
        require_hub_name(source, name, option)
        if is_cached(source, files):
            # Where some files are not in the cache, the hub is asked.
            with suppress(*_BROKEN), _silence():
                return read(source, True)
        require_answer(source, name, option)
    try:
        with _silence():
            return read(source, local)
    except _BROKEN as error:
        if "trust_remote_code" in str(error):
            raise RequirementError(
                Setting(option, name),
                " needs a model that transformers has itself; it brings code of its own (auto_map), "
                "which is never run; give another",
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if local and (missing := [file for file in files if not Path(source, file).is_file()]):
            reason = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there"
        random = "text_weights" if option == "text" else "weights"
        advice = (
            f"; give another, or {random}=random"
            if local and "model.safetensors" in files and option != "model"
            else ""
        )
        raise RequirementError(
            Setting(option, name), f" needs {' and '.join(files)} to be read; {reason}{advice}"
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the progress bar of loading tensors; that of a download stays."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


Weights = Literal["pretrained", "random"]


def open_body(
    name: str,
    *,
    weights: Weights = "pretrained",
    image_size: int | None = None,
    assets: Path | None = None,
    option: str = "name",
    task: Any = AutoModel,
    complete: Callable[[PreTrainedModel], None] | None = None,
) -> PreTrainedModel:
    """A model of `transformers`.

    Args:
        name: A short name of `hub.BACKBONES`, a local folder, or a hub name.
        weights: "pretrained", or "random": only the configuration is read, and for a short name the hub is not queried.
        image_size: Side in pixels of a randomly initialised vision transformer; None for that of its configuration.
        assets: Folder of a saved run: only its configuration is read, because the run's tensors follow.
        option: The option that the name came from, for messages.
        task: Auto class of the library that builds the model.
        complete: Requires every weight, since the library fills missing ones with random numbers: a function that first
            raises where the model is of another kind; None where weights may be missing.

    Returns:
        The model; its weights are copies in memory.

    Raises:
        RequirementError: If the weights or the configuration are not available.
    """
    if assets is not None:
        return task.from_config(_config(str(assets), option), trust_remote_code=False)
    backbone = BACKBONES.get(name)
    if not has_weights(name, weights):
        config = (
            _config(name, option) if backbone is None else AutoConfig.for_model(backbone.family, **backbone.settings)
        )
        if image_size is not None and isinstance(getattr(config, "image_size", None), int):
            config.image_size = image_size
        return task.from_config(config, trust_remote_code=False)
    # Safetensors only: a pickle can run code.
    verbosity = logging.get_verbosity()
    if complete is not None:
        logging.set_verbosity_error()  # The sentence below takes the place of the library's report.
    try:
        body, info = read_model(
            name,
            lambda source, local: task.from_pretrained(
                source, use_safetensors=True, local_files_only=local, trust_remote_code=False, output_loading_info=True
            ),
            files=["config.json", "model.safetensors"],
            option=option,
        )
    finally:
        logging.set_verbosity(verbosity)
    if complete is not None:
        complete(body)
        if missing := sorted(info["missing_keys"]):
            raise RequirementError(
                Setting(option, name),
                f" needs all of its weights; {len(missing)} are missing, first {missing[0]}; copy the "
                "folder again, or give another model",
            )
    # In a mapped file weights lie anywhere, and products round as they lie: a copy of the model gave other last bits.
    for weight in (*body.parameters(), *body.buffers()):
        weight.data = weight.data.clone()
    return body


def has_weights(name: str, weights: Weights) -> bool:
    """Whether `open_body` gives pretrained weights.

    Args:
        name: A short name of `hub.BACKBONES`, a hub name, or a folder.
        weights: "pretrained" or "random".

    Returns:
        False for random weights, and for a short name without published weights.
    """
    backbone = BACKBONES.get(name)
    return weights == "pretrained" and (backbone is None or backbone.hub is not None)


def drop_pooler(body: PreTrainedModel) -> None:
    """Remove the pooler of a transformer: nothing reads it, so that its weights would never learn.

    Args:
        body: A transformer; one without a pooler stays as it is.
    """
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        body.pooler = None


class Pretrained(nn.Module):
    """An encoder around a body of a library.

    Args:
        body: A module of a library.
        pretrained: Whether the body is pretrained: plans may freeze it or scale down its learning rate.

    Attributes:
        installed: What the names of tensors begin with that an installed package holds: a run in which none of them
            learns has no copy of them. Empty where no package does.
    """

    installed: tuple[str, ...] = ()

    def __init__(self, body: Any, *, pretrained: bool) -> None:
        super().__init__()
        self.body = body
        self.pretrained = pretrained

    def load_installed(self) -> None:
        """Load the tensors that `installed` names, from their package.

        Raises the errors of `starter_file`.
        """
        raise NotImplementedError  # An encoder with such tensors has its own.

    def keep_frozen(self) -> None:
        """Keep a frozen body in eval mode: its dropout and running statistics must not change while heads learn."""
        mode = self.training and any(parameter.requires_grad for parameter in self.body.parameters())
        if self.body.training != mode:
            self.body.train(mode)

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained body, bottom to top.

        Returns:
            A list per layer; empty where all is new or learns by adapters.
        """
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Write the configuration of a body of `transformers`; other libraries rebuild it from its name.

        Args:
            folder: An existing folder.
        """
        config = getattr(self.body, "config", None)
        if isinstance(config, PretrainedConfig):
            config.save_pretrained(folder)


def import_extra(module: str, name: str, package: str) -> Any:
    """Import a module of the extra `encoders`.

    Args:
        module: Its name in Python.
        name: The encoder that needs it, for the message.
        package: Its distribution, for the message.

    Returns:
        The module.

    Raises:
        RequirementError: If importing it fails.
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        # Both need torchvision, which fails in several ways where it was built for another torch.
        raise RequirementError(
            f"'{name}' needs the packages {package} and torchvision; importing them failed: {error}; "
            f"{install_hint('encoders')}, with the torchvision that belongs to this torch"
        ) from error


def layers(body: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a body, bottom to top: embeddings, then each layer or stage, then the modules above.

    The outermost list of two or more modules is the layers; a body without one is a single layer.

    Args:
        body: Any module.

    Returns:
        A list of parameters per layer, without empty ones.
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
        lambda source, local: AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False),
        files=["config.json"],
        option=option,
    )


# Names of attention projections in the supported families.
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "query", "key", "value", "q_lin", "k_lin", "v_lin", "qkv", "Wqkv"}


def adapt(encoder: Any, *, rank: int = 8, scale: float = 16.0, dropout: float = 0.0) -> None:
    """Freeze an encoder's body and train low-rank updates of its attention projections instead.

    W x becomes W x + (scale / rank) B A x. A starts at small random values and B at zero: the encoder's output does
    not change at first. The encoder then has no pretrained layers to freeze or to slow down.

    Args:
        encoder: An encoder with a body of `transformers`; changed in place.
        rank: Rank of the updates, 1 or more.
        scale: Numerator of the factor of the updates.
        dropout: Share of the updates' inputs set to zero in training.

    Raises:
        RequirementError: If `peft` is missing, or if the body has no attention projections.
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
        raise RequirementError(f"low-rank adapters need the package peft; {install_hint('lora')}") from error
    config = LoraConfig(r=rank, lora_alpha=scale, lora_dropout=dropout, target_modules=targets)
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)
    encoder.pretrained = False
