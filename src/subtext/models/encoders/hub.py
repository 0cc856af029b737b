"""Names of models: a folder, what the hub's cache holds, or one short question to the hub before anything is fetched.

A hub that cannot be reached costs a minute of retries for each file that a library asks for. Here it is asked once,
without retries, and only for what is not in the cache; a name that it cannot have is not asked for at all.

Backbones that have a short name: where their weights are, and what their configuration is without a hub.

How a backbone wants its pictures, from its short name or from the file that stands beside its weights.
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
from huggingface_hub.errors import HTTPError as NoAnswer
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError
from transformers.utils import logging

from subtext.errors import RequirementError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class PictureNumbers:
    """How a backbone wants its pictures.

    size        side in pixels         mean, std  of each channel, on a scale of 0 to 1
    resize      "crop": the middle square, `crop_share` of the short side; "squash": the whole picture
    filter      how pixels are resampled
    """

    size: int
    mean: Triple
    std: Triple
    resize: Literal["crop", "squash"] = "crop"
    crop_share: float = 0.875
    filter: Literal["bilinear", "bicubic"] = "bilinear"


@dataclass(frozen=True)
class Known:
    """A backbone with a short name.

    hub       the name of its pretrained weights; None where there are none to have
    family    the model type that `transformers` calls it by
    settings  what its configuration holds beyond the family's defaults
    numbers   how it wants its pictures
    """

    hub: str | None
    family: str
    numbers: PictureNumbers
    settings: dict[str, Any] = field(default_factory=dict)


def _residual(hub: str | None, kind: str, depths: list[int], widths: list[int]) -> Known:
    settings = {"layer_type": kind, "depths": depths, "hidden_sizes": widths}
    return Known(hub, "resnet", PictureNumbers(224, *IMAGENET), settings)


_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}

KNOWN: dict[str, Known] = {
    # Three stages of one basic block: what two cores can train from nothing on pictures of 64 to 96 pixels.
    "tiny": Known(
        None,
        "resnet",
        PictureNumbers(64, *_HALF),
        {"layer_type": "basic", "embedding_size": 32, "depths": [1, 1, 1], "hidden_sizes": [48, 96, 192]},
    ),
    "resnet-18": _residual("microsoft/resnet-18", "basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "resnet-50": _residual("microsoft/resnet-50", "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "resnet-152": _residual("microsoft/resnet-152", "bottleneck", [3, 8, 36, 3], [256, 512, 1024, 2048]),
    "vit-small": Known("WinKawaks/vit-small-patch16-224", "vit", PictureNumbers(224, *_HALF), _SMALL),
    "vit-base": Known("google/vit-base-patch16-224-in21k", "vit", PictureNumbers(224, *_HALF)),
    "dinov2-small": Known(
        "facebook/dinov2-small", "dinov2", PictureNumbers(224, *IMAGENET), {**_SMALL, "patch_size": 14}
    ),
    "mobilenet-v1": Known(
        "google/mobilenet_v1_0.75_192", "mobilenet_v1", PictureNumbers(224, *_HALF), {"depth_multiplier": 0.75}
    ),
}


NAMES = (
    *(known.hub for known in KNOWN.values() if known.hub is not None),
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
"""Models of the hub that are often asked for: what a misspelt name may have meant."""


# What its client raises when there is no answer: its name says nothing about which client that is.


Found = TypeVar("Found")

SECONDS = 5
"""How long the hub has to answer."""

_BROKEN = (OSError, ValueError, SafetensorError, StrictDataclassError)
"""What libraries raise for a model whose files are missing, cut off, or hold other values than theirs."""

_OWN = (*KNOWN, "gru", "bag", "features", "auto")


def opened(name: str, read: Callable[[str, bool], Found], *, files: Sequence[str], option: str = "name") -> Found:
    """What `read` makes of a model's folder or hub name.

    name    a short name of `encoders.known`, a folder, or a hub name
    read    gets the folder or hub name, and whether it may look at local files alone
    files   any of them in the hub's cache means that the cache is worth trying
    option  what the name was given as, for messages

    Raises RequirementError when there is no such model, it cannot be reached, or it cannot be read.
    """
    known = KNOWN.get(name)
    source = known.hub if known is not None and known.hub is not None else name
    local = bool(source) and Path(source).is_dir()
    if not local:
        _require_hub_name(source, name, option)
        if any(isinstance(try_to_load_from_cache(source, path), str) for path in files):
            # Where a part of it is not in the cache, the hub is asked after all.
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


def file(name: str, path: str, *, option: str = "name") -> Path | None:
    """One file of a model's folder or hub name; None when the model has no such file.

    Raises RequirementError when there is no such model, or it cannot be reached.
    """
    if name and Path(name).is_dir():
        found = Path(name) / path
        return found if found.is_file() else None
    _require_hub_name(name, name, option)
    kept = try_to_load_from_cache(name, path)
    if kept is not None:
        return Path(kept) if isinstance(kept, str) else None
    _ask(name, name, option)
    try:
        return Path(hf_hub_download(name, path))
    except EntryNotFoundError:
        return None
    except (NoAnswer, OSError) as error:
        raise RequirementError(f"{option}={name} needs its {path}; fetching it failed; try again") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Without the bar that counts the tensors of a file; that of a download stays."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _require_hub_name(source: str, name: str, option: str) -> None:
    """Raise RequirementError for a path that is not there, and for a misspelt name of Subtext's own."""
    if source.startswith((".", "/", "~", "\\")) or source.count("/") > 1 or not source.strip():
        raise _refusal(name, option, "there is no such folder")
    if "/" not in source and get_close_matches(source, _OWN, n=1, cutoff=0.85) and source not in NAMES:
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
    known = (*_OWN, *NAMES)
    near = [] if name in known else get_close_matches(name, known, n=2, cutoff=0.75)
    advice = "give a folder that holds config.json and model.safetensors"
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    elif name in KNOWN:
        advice += ", or weights=random"
    return RequirementError(f"{option}={name} needs a folder or a model of the hub; {got}; {advice}")


_BICUBIC = 3


def picture_numbers(name: str, *, option: str = "name") -> PictureNumbers:
    """What pictures the backbone of that name or folder wants.

    A short name is looked up; another model says it in its `preprocessor_config.json`, and where there is none, 224
    pixels and ImageNet's mean and deviation are taken.

    option  what the name was given as, for messages

    Raises RequirementError when that file does not hold the numbers, or there is no such model.
    """
    if name in KNOWN:
        return KNOWN[name].numbers
    preprocessor = file(name, "preprocessor_config.json", option=option)
    if preprocessor is None:
        return PictureNumbers(224, *IMAGENET)
    found = _object(preprocessor, f"{option}={name}")
    mean, std = (
        _triple(found.get(f"image_{kind}", plain)) for kind, plain in zip(("mean", "std"), IMAGENET, strict=True)
    )
    whole, cropped = _side(found.get("size", 224)), _side(found.get("crop_size"))
    size = cropped if cropped and found.get("do_center_crop") else whole
    share = found.get("crop_pct") or (size or 1) / max(whole or size or 1, 1)
    if size is None or mean is None or std is None or not isinstance(share, int | float):
        told = ", ".join(
            f"{key} {found.get(key)}" for key in ("size", "image_mean", "image_std", "crop_pct") if key in found
        )
        raise RequirementError(
            f"{option}={name} needs a {preprocessor.name} with a size and three channels' image_mean and image_std; it "
            f"has {told or 'none of them'}; give a model that reads colour pictures"
        )
    keeps_shape = bool(found.get("do_center_crop")) or "crop_pct" in found or "shortest_edge" in _mapping(found)
    return PictureNumbers(
        size,
        mean,
        std,
        resize="crop" if keeps_shape else "squash",
        crop_share=min(1.0, float(share)),
        filter="bicubic" if found.get("resample") == _BICUBIC else "bilinear",
    )


def _object(file: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RequirementError(f"{name} needs a {file.name} of JSON; {error}; fetch it again") from error
    if not isinstance(found, dict):
        raise RequirementError(f"{name} needs a JSON object in {file.name}; it has another value; fetch it again")
    return found


def _side(size: object) -> int | None:
    """The side that a preprocessor's size names: a number, or the height or short edge of a mapping."""
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) and size > 0 and size is not True else None


def _mapping(found: dict[str, Any]) -> dict[str, Any]:
    size = found.get("size")
    return size if isinstance(size, dict) else {}


def _triple(values: object) -> Triple | None:
    """Three numbers, or None for another thing."""
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(n, int | float) for n in values):
        return None
    first, second, third = map(float, values)
    return first, second, third
