"""Models by name: a short name, a folder, or a name of the Hugging Face hub; and the preprocessing of their images.

Libraries spend a minute of retries per file on a hub that cannot be reached. Here the hub is asked once, without
retries, and only for what is not in the cache. A name that it cannot have is refused without asking.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)
from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]  # Not in its __all__.
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # Not in its __all__.
from safetensors import SafetensorError
from transformers.utils import logging

from subtext.errors import RequirementError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of the images of a backbone.

    size        side in pixels
    mean, std   of each channel, on a scale of 0 to 1
    resize      "crop": the centre square, `crop_share` of the short side; "squash": the full image
    filter      of resampling
    """

    size: int
    mean: Triple
    std: Triple
    resize: Literal["crop", "squash"] = "crop"
    crop_share: float = 0.875
    filter: Literal["bilinear", "bicubic"] = "bilinear"


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
    "bert-base-uncased",
    "google-bert/bert-base-uncased",
    "google-bert/bert-base-multilingual-cased",
    "distilbert/distilbert-base-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/xlm-roberta-base",
    "sentence-transformers/all-MiniLM-L6-v2",
    "openai/clip-vit-base-patch16",
    "openai/clip-vit-base-patch32",
    "openai/clip-vit-large-patch14",
    "google/siglip-base-patch16-224",
    "google/siglip2-base-patch16-224",
)
"""Frequent models of the hub, suggested for misspelt names."""

Model = TypeVar("Model")

SECONDS = 5
"""Time limit for an answer of the hub."""

_BROKEN = (OSError, ValueError, SafetensorError, StrictDataclassError)
"""Errors of libraries for model files that are missing, truncated or of other content."""

_SHORT_NAMES = (*BACKBONES, "gru", "bag", "features", "auto")


def read_model(name: str, read: Callable[[str, bool], Model], *, files: Sequence[str], option: str = "name") -> Model:
    """Read a model from its folder or the hub.

    name    a short name of `BACKBONES`, a folder, or a hub name
    read    function of the folder or hub name, and whether to use local files only
    files   if one of them is in the hub's cache, the cache is tried first
    option  the option that the name came from, for messages

    Raises RequirementError when there is no such model, the hub cannot be reached, or the model cannot be read.
    """
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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        random = "text_weights" if option == "text" else "weights"
        advice = f"; give another, or {random}=random" if local and "model.safetensors" in files else ""
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
    """Ask the hub whether it has the model, once."""
    try:
        get_hf_file_metadata(hf_hub_url(source, "config.json"), timeout=SECONDS)
    except GatedRepoError:
        raise _refusal(name, option, "the hub keeps it behind terms that you have not accepted") from None
    except RepositoryNotFoundError:
        raise _refusal(name, option, "it is no folder here, and the hub shows no such model") from None
    except EntryNotFoundError:
        raise _refusal(name, option, "what the hub has by that name holds no config.json") from None
    except OfflineModeIsEnabled:
        raise _refusal(name, option, "it is no folder here, not in the cache, and HF_HUB_OFFLINE is set") from None
    except (NoAnswer, OSError):
        raise _refusal(name, option, "it is no folder here, not in the cache, and the hub cannot be reached") from None


def _refusal(name: str, option: str, got: str) -> RequirementError:
    candidates = (*_SHORT_NAMES, *NAMES)
    similar = [] if name in candidates else get_close_matches(name, candidates, n=2, cutoff=0.75)
    advice = "give a folder that holds config.json and model.safetensors"
    if similar:
        advice = f"did you mean {' or '.join(similar)}?"
    elif name in BACKBONES:
        advice += ", or weights=random"
    return RequirementError(f"{option}={name} needs a folder or a model of the hub; {got}; {advice}")


_BICUBIC = 3


def preprocessing_of(name: str, *, option: str = "name") -> Preprocessing:
    """The preprocessing of a backbone: of its short name, or from its `preprocessor_config.json`.

    Without that file: 224 pixels, and ImageNet's mean and standard deviation.

    option  the option that the name came from, for messages

    Raises RequirementError when the file lacks values, or there is no such model.
    """
    if name in BACKBONES:
        return BACKBONES[name].preprocessing
    preprocessor = model_file(name, "preprocessor_config.json", option=option)
    if preprocessor is None:
        return Preprocessing(224, *IMAGENET)
    settings = _object(preprocessor, f"{option}={name}")
    mean, std = (
        _triple(settings.get(f"image_{kind}", plain)) for kind, plain in zip(("mean", "std"), IMAGENET, strict=True)
    )
    resized, cropped = _side(settings.get("size", 224)), _side(settings.get("crop_size"))
    size = cropped if cropped and settings.get("do_center_crop") else resized
    share = settings.get("crop_pct") or (size or 1) / max(resized or size or 1, 1)
    if size is None or mean is None or std is None or not isinstance(share, int | float):
        present = ", ".join(
            f"{key} {settings.get(key)}" for key in ("size", "image_mean", "image_std", "crop_pct") if key in settings
        )
        raise RequirementError(
            f"{option}={name} needs a {preprocessor.name} with a size and three channels' image_mean and image_std; it "
            f"has {present or 'none of them'}; give a model that reads colour images"
        )
    keeps_shape = (
        bool(settings.get("do_center_crop")) or "crop_pct" in settings or "shortest_edge" in _mapping(settings)
    )
    return Preprocessing(
        size,
        mean,
        std,
        resize="crop" if keeps_shape else "squash",
        crop_share=min(1.0, float(share)),
        filter="bicubic" if settings.get("resample") == _BICUBIC else "bilinear",
    )


def _object(file: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RequirementError(f"{name} needs a {file.name} of JSON; {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise RequirementError(f"{name} needs a JSON object in {file.name}; it has another value; fetch it again")
    return value


def _side(size: object) -> int | None:
    """The side in pixels: a number, or the height or short edge of a mapping."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) and size > 0 and size is not True else None


def _mapping(settings: dict[str, Any]) -> dict[str, Any]:
    size = settings.get("size")
    return size if isinstance(size, dict) else {}


def _triple(values: object) -> Triple | None:
    """Three numbers, or None for other values."""
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(n, int | float) for n in values):
        return None
    first, second, third = map(float, values)
    return first, second, third
