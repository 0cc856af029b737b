"""Pretrained backbones by short name, folder or name of the Hugging Face hub: their layers, preprocessing, adapters.

Libraries spend a minute of retries per file on a hub that cannot be reached. Here the hub is asked once, without
retries, and only for what is not in the cache. A name that it cannot have is refused without asking. The adapters are
LoRA (Hu et al. 2021), by `peft`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is not in its __all__.
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    HTTPError as NoAnswer,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # Not in its __all__.
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from subtext.data.starter import NAME as STARTER, starter_folder
from subtext.errors import RequirementError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of the images of a backbone.

    size        side in pixels
    mean, std   of each channel, on a scale of 0 to 1
    resize      "crop" and "edge": the centre square, `crop_share` of the short side, and "squash": the full image; see
                `PixelInput`
    filter      of resampling
    """

    size: int
    mean: Triple
    std: Triple
    resize: Literal["crop", "edge", "squash"] = "crop"
    crop_share: float = 0.875
    filter: Literal["bilinear", "bicubic", "lanczos"] = "bilinear"


@dataclass(frozen=True)
class Backbone:
    """A backbone with a short name.

    hub            name of its pretrained weights; None where none are published
    family         its model type in `transformers`
    preprocessing  of its images
    settings       values of its configuration that differ from the family's defaults
    """

    hub: str | None
    family: str
    preprocessing: Preprocessing
    settings: dict[str, Any] = field(default_factory=dict)


def _residual(hub: str | None, kind: str, depths: list[int], widths: list[int]) -> Backbone:
    settings = {"layer_type": kind, "depths": depths, "hidden_sizes": widths}
    return Backbone(hub, "resnet", Preprocessing(224, *IMAGENET), settings)


_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}

BACKBONES: dict[str, Backbone] = {
    # Three stages of one basic block: two cores can train it from scratch on images of 64 to 96 pixels.
    "tiny": Backbone(
        None,
        "resnet",
        Preprocessing(64, *_CENTRED),
        {"layer_type": "basic", "embedding_size": 32, "depths": [1, 1, 1], "hidden_sizes": [48, 96, 192]},
    ),
    "resnet-18": _residual("microsoft/resnet-18", "basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "resnet-50": _residual("microsoft/resnet-50", "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "resnet-152": _residual("microsoft/resnet-152", "bottleneck", [3, 8, 36, 3], [256, 512, 1024, 2048]),
    "vit-small": Backbone("WinKawaks/vit-small-patch16-224", "vit", Preprocessing(224, *_CENTRED), _SMALL),
    "vit-base": Backbone("google/vit-base-patch16-224-in21k", "vit", Preprocessing(224, *_CENTRED)),
    "dinov2-small": Backbone(
        "facebook/dinov2-small", "dinov2", Preprocessing(224, *IMAGENET), {**_SMALL, "patch_size": 14}
    ),
    "mobilenet-v1": Backbone(
        "google/mobilenet_v1_0.75_192", "mobilenet_v1", Preprocessing(224, *_CENTRED), {"depth_multiplier": 0.75}
    ),
}

NAMES = (
    *(backbone.hub for backbone in BACKBONES.values() if backbone.hub is not None),
    *Path(__file__).with_name("hub_names.txt").read_text(encoding="utf-8").split(),
)
"""Frequent models of the hub, suggested for misspelt names."""

Model = TypeVar("Model")

SECONDS = 3
"""Time limit for an answer of the hub."""

_BROKEN = (OSError, ValueError, SafetensorError, StrictDataclassError)
"""Errors of libraries for model files that are missing, truncated or of other content."""

_SHORT_NAMES = (*BACKBONES, "gru", "bag", "features", "auto", STARTER)


def read_model(name: str, read: Callable[[str, bool], Model], *, files: Sequence[str], option: str = "name") -> Model:
    """Read a model from its folder or the hub.

    name    a short name of `BACKBONES`, "starter" for the text tower of that name, a folder, or a hub name
    read    function of the folder or hub name, and whether to use local files only
    files   if one of them is in the hub's cache, the cache is tried first
    option  the option that the name came from, for messages

    Raises RequirementError when there is no such model, the hub cannot be reached, or the model cannot be read.
    """
    if name == STARTER:
        with starter_folder() as folder, _silence():
            return read(str(folder), True)
    backbone = BACKBONES.get(name)
    source = backbone.hub if backbone is not None and backbone.hub is not None else name
    local = bool(source) and Path(source).is_dir()
    if not local:
        _require_hub_name(source, name, option)
        if any(isinstance(try_to_load_from_cache(source, path), str) for path in files):
            # Where some files are not in the cache, the hub is asked.
            with suppress(*_BROKEN), _silence():
                return read(source, True)
        _ask(source, name, option)
    try:
        with _silence():
            return read(source, local)
    except _BROKEN as error:
        if "trust_remote_code" in str(error):
            raise RequirementError(
                f"{option}={name} needs a model that transformers has itself; it brings code of its own (auto_map), "
                "which is never run; give another"
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
        raise RequirementError(f"{option}={name} needs {' and '.join(files)} to be read; {reason}{advice}") from error


def model_file(name: str, path: str, *, option: str = "name") -> Path | None:
    """The path of one file of a model, in its folder or from the hub; None when the model has no such file.

    Raises RequirementError when there is no such model, or the hub cannot be reached.
    """
    if name and Path(name).is_dir():
        local = Path(name) / path
        return local if local.is_file() else None
    _require_hub_name(name, name, option)
    cached = try_to_load_from_cache(name, path)
    if cached is not None:
        return Path(cached) if isinstance(cached, str) else None
    _ask(name, name, option)
    try:
        return Path(hf_hub_download(name, path))
    except EntryNotFoundError:
        return None
    except (NoAnswer, OSError) as error:
        raise RequirementError(f"{option}={name} needs its {path}; fetching it failed; try again") from error


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


def _require_hub_name(source: str, name: str, option: str) -> None:
    """Raise RequirementError for a missing path and for a misspelt short name."""
    if source.startswith((".", "/", "~", "\\")) or source.count("/") > 1 or not source.strip():
        raise _refusal(name, option, "there is no such folder")
    if "/" not in source and get_close_matches(source, _SHORT_NAMES, n=1, cutoff=0.85) and source not in NAMES:
        raise _refusal(name, option, "there is no such folder or name")
    try:
        validate_repo_id(source)
    except HFValidationError:
        raise _refusal(name, option, "it is neither a folder nor a name that the hub could have") from None


def _ask(source: str, name: str, option: str) -> None:
    """Ask the hub once whether it has the model."""
    refusals: dict[type[Exception], str] = {
        GatedRepoError: "the hub keeps it behind terms that you have not accepted",
        RepositoryNotFoundError: "it is no folder here, and the hub shows no such model",
        EntryNotFoundError: "what the hub has by that name holds no config.json",
        OfflineModeIsEnabled: "it is no folder here, not in the cache, and HF_HUB_OFFLINE is set",
        NoAnswer: "it is no folder here, not in the cache, and the hub cannot be reached",
        OSError: "it is no folder here, not in the cache, and the hub cannot be reached",
    }
    try:
        get_hf_file_metadata(hf_hub_url(source, "config.json"), timeout=SECONDS)
    except tuple(refusals) as error:
        reason = next(reason for kind, reason in refusals.items() if isinstance(error, kind))
        raise _refusal(name, option, reason) from None


def _refusal(name: str, option: str, got: str) -> RequirementError:
    candidates = (*_SHORT_NAMES, *NAMES)
    similar = [] if name in candidates else get_close_matches(name, candidates, n=2, cutoff=0.75)
    advice = "give a folder that holds config.json and model.safetensors"
    if similar:
        advice = f"did you mean {' or '.join(similar)}?"
    elif name in BACKBONES:
        advice += ", or weights=random"
    return RequirementError(f"{option}={name} needs a folder or a model of the hub; {got}; {advice}")


PROCESSORS = ("processor_config.json", "preprocessor_config.json")
"""Files of a model that hold its preprocessing: of transformers 5 (under "image_processor"), and of those before it."""
_FILTERS: dict[object, Literal["bilinear", "bicubic", "lanczos"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Resampling filters by their numbers in PIL."""


def preprocessing_of(name: str, *, option: str = "name") -> Preprocessing:
    """The preprocessing of a backbone: of its short name, or from one of its `PROCESSORS`.

    option  the option that the name came from, for messages

    Raises RequirementError when the model has none of these files, when they lack values or need steps that are not
    taken here, and when there is no such model.
    """
    if name in BACKBONES:
        return BACKBONES[name].preprocessing
    file, settings = _image_processor(name, option)
    keys = ("size", "crop_size", "image_mean", "image_std", "crop_pct", "resample", "rescale_factor")

    def refusal(needs: str, advice: str) -> RequirementError:
        present = ", ".join(f"{key} {settings[key]}" for key in keys if key in settings) or "none of them"
        return RequirementError(f"{option}={name} needs a {file.name} {needs}; it has {present}; {advice}")

    plain = ([0.0] * 3, [1.0] * 3) if settings.get("do_normalize") is False else (None, None)
    mean, std = (
        _triple(settings.get(f"image_{kind}") if values is None else values)
        for kind, values in zip(("mean", "std"), plain, strict=True)
    )
    cropped = _side(settings.get("crop_size")) if settings.get("do_center_crop") else None
    resized = _side(settings.get("size"))
    size, share = cropped or resized, settings.get("crop_pct")
    if share is None and size is not None and resized is not None:
        share = size / resized
    if size is None or mean is None or std is None or not isinstance(share, int | float) or not 0 < share <= 1:
        raise refusal(
            "with a size and three channels' image_mean and image_std", "give a model that reads colour images"
        )
    sides = settings.get("size")
    stretched = isinstance(sides, dict) and "height" in sides
    resample, factor = settings.get("resample", 2), settings.get("rescale_factor", 1 / 255)
    known = isinstance(resample, int) and resample in _FILTERS and isinstance(factor, float)
    known = known and abs(factor - 1 / 255) < 1e-6 and not (stretched and share < 1)
    known = known and all(settings.get(step, True) for step in ("do_resize", "do_rescale"))
    if not known or any(map(settings.get, ("do_flip_channel_order", "rescale_offset", "max_num_patches"))):
        raise refusal(
            "that resizes by a bilinear, bicubic or Lanczos filter and divides by 255", "give a model of such images"
        )
    if settings.get("do_center_crop") or "crop_pct" in settings:
        return Preprocessing(size, mean, std, "edge", float(share), _FILTERS[resample])
    short_edge = isinstance(sides, dict) and "shortest_edge" in sides
    return Preprocessing(size, mean, std, "crop" if short_edge else "squash", 1.0, _FILTERS[resample])


def _image_processor(name: str, option: str) -> tuple[Path, dict[str, Any]]:
    """The file of a model that holds its image processor, and the settings in it.

    Raises RequirementError when there is none, or it is no JSON.
    """
    # What the cache has of a hub's model is enough: the hub is asked only where it has neither.
    cached: list[str] = []
    if not Path(name).is_dir():
        _require_hub_name(name, name, option)
        cached = [wanted for wanted in PROCESSORS if isinstance(try_to_load_from_cache(name, wanted), str)]
    for wanted in cached or PROCESSORS:
        file = model_file(name, wanted, option=option)
        if file is None:
            continue
        try:
            settings = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise RequirementError(f"{option}={name} needs a {file.name} of JSON; {error}; fetch it again") from error
        if file.name == PROCESSORS[0] and isinstance(settings, dict):
            if "image_processor" not in settings:
                continue  # Of a version before 5, which wrote the other file beside it.
            settings = settings["image_processor"]
        if not isinstance(settings, dict):
            raise RequirementError(
                f"{option}={name} needs a JSON object in {file.name}; it has another value; fetch it again"
            )
        return file, settings
    raise RequirementError(
        f"{option}={name} needs {' or '.join(PROCESSORS)}, which say how images are read; it has neither; fetch them "
        "again, or write them with save_pretrained of the model's processor"
    )


def _side(size: object) -> int | None:
    """The side in pixels: a number, or that of a square or the short edge of a mapping."""
    if isinstance(size, dict):
        size = None if size.get("height") != size.get("width") else size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) and size > 0 and size is not True else None


def _triple(values: object) -> Triple | None:
    """Three numbers, or None for other values."""
    if not isinstance(values, list | tuple) or not all(isinstance(number, int | float) for number in values):
        return None
    numbers = tuple(map(float, values))
    return numbers if len(numbers) == 3 else None


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

    name        a short name of `hub.BACKBONES`, a local folder, or a hub name
    weights     "pretrained", or "random": only the configuration is read, and for a short name the hub is not asked
    image_size  side in pixels of a randomly initialised vision transformer; None for that of its configuration
    assets      folder of a saved run: only its configuration is read, because the run's tensors follow
    option      the option that the name came from, for messages
    task        auto class of the library that builds the model
    complete    requires every weight, since the library fills missing ones with random numbers: a function that first
                raises where the model is of another kind; None where weights may be missing

    Raises RequirementError when the weights or the configuration cannot be had.
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
                f"{option}={name} needs all of its weights; {len(missing)} are missing, first {missing[0]}; copy the "
                "folder again, or give another model"
            )
    # In a mapped file weights lie anywhere, and products round as they lie: a copy of the model gave other last bits.
    for weight in (*body.parameters(), *body.buffers()):
        weight.data = weight.data.clone()
    return body


def has_weights(name: str, weights: Weights) -> bool:
    """Whether `open_body` gives pretrained weights."""
    backbone = BACKBONES.get(name)
    return weights == "pretrained" and (backbone is None or backbone.hub is not None)


def drop_pooler(body: PreTrainedModel) -> None:
    """Remove the pooler of a transformer: nothing reads it, so that its weights would never learn."""
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        body.pooler = None


class Pretrained(nn.Module):
    """An encoder around a body of a library.

    pretrained  whether the body is pretrained: plans may freeze it or scale down its learning rate
    """

    def __init__(self, body: Any, *, pretrained: bool) -> None:
        super().__init__()
        self.body = body
        self.pretrained = pretrained

    def keep_frozen(self) -> None:
        """Keep a frozen body in eval mode: its dropout and running statistics must not change while heads learn."""
        mode = self.training and any(parameter.requires_grad for parameter in self.body.parameters())
        if self.body.training != mode:
            self.body.train(mode)

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained body, bottom to top; none where all is new or learns by adapters."""
        return layers(self.body) if self.pretrained else []

    def save_assets(self, folder: Path) -> None:
        """Write the configuration of a body of `transformers`; other libraries rebuild it from its name."""
        config = getattr(self.body, "config", None)
        if isinstance(config, PretrainedConfig):
            config.save_pretrained(folder)


def import_extra(module: str, name: str, package: str) -> Any:
    """A module of the extra `encoders`, for the encoder `name`. Raises RequirementError where importing it fails."""
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        # Both need torchvision, which fails in several ways where it was built for another torch.
        raise RequirementError(
            f"'{name}' needs the packages {package} and torchvision; importing them failed: {error}; install "
            "subtext[encoders], with the torchvision that belongs to this torch"
        ) from error


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
        lambda source, local: AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False),
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


def revision_of(name: str) -> str:
    """The commit of a hub's model in the cache; "" for a folder, and for a model of another library."""
    cached = None if Path(name).is_dir() or ":" in name else try_to_load_from_cache(name, "config.json")
    return Path(cached).parent.name if isinstance(cached, str) else ""


def cached_revision(name: str, revision: str) -> str:
    """The folder of one commit of a hub's model in the cache; the name where it is not there."""
    cached = try_to_load_from_cache(name, "config.json", revision=revision) if revision else None
    return str(Path(cached).parent) if isinstance(cached, str) else name
