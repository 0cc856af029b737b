"""Models by short name, folder or name of the Hugging Face hub, before torch is imported: where they are, their files.

Libraries spend a minute of retries per file on a hub that cannot be reached. Here the hub is queried once, without
retries, and only for what is not in the cache. An impossible name is refused without a query.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import get_session, hf_hub_download, hf_hub_url, hf_raise_for_status, try_to_load_from_cache
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is not in its __all__.
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    HTTPError as NoAnswer,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import get_token_to_send, validate_repo_id  # type: ignore[attr-defined]  # Not in __all__.

from subtext.data.starter import NAME as STARTER, STARTER as SIDES, is_installed, require_installed
from subtext.errors import RequirementError, Setting
from subtext.text_helpers import install_hint

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

INSTALL = install_hint("starter")
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of the images of a backbone.

    Attributes:
        size: Side in pixels.
        mean: Mean of each channel, on a scale of 0 to 1.
        std: Standard deviation of each channel, likewise.
        resize: "crop" and "edge": the centre square; "squash": the full image. See `PixelInput`.
        crop_share: Side of the centre square, as a share of the short side, in (0, 1].
        filter: Filter of resampling.
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

    Attributes:
        hub: Name of its pretrained weights; None where none are published.
        family: Its model type in `transformers`.
        preprocessing: Preprocessing of its images.
        settings: Values of its configuration that differ from the family's defaults.
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

SECONDS = 3
"""Time limit for an answer of the hub."""

_SHORT_NAMES = (*BACKBONES, "gru", "bag", "features", "auto", STARTER)


def source_of(name: str) -> str:
    """The hub name of a short name.

    Args:
        name: A short name, a hub name, or a folder.

    Returns:
        The hub name; any other name as it is.
    """
    backbone = BACKBONES.get(name)
    return name if backbone is None or backbone.hub is None else backbone.hub


def is_cached(source: str, files: Sequence[str]) -> bool:
    """Whether the cache has one of these files of a model of the hub.

    Args:
        source: A hub name.
        files: Paths inside the model.

    Returns:
        True if any of them is cached.
    """
    return any(isinstance(try_to_load_from_cache(source, file), str) for file in files)


def require_model(name: str, *, option: str = "model") -> None:
    """Check that a model is available: in a folder, in the cache, or on the hub, which is queried.

    Nothing is read or fetched. "tiny" and open_clip:ARCHITECTURE/WEIGHTS pass: they are not in the hub. "starter"
    passes where both of its packages are installed.

    Args:
        name: A short name, a hub name, or a folder.
        option: The option that the name came from, for messages.

    Raises:
        RequirementError: If the model is not available, which is found before torch and transformers are imported.
    """
    source = source_of(name)
    if source == STARTER:
        for side in SIDES:
            require_installed(side, option=option)
        return
    if source in BACKBONES or source.startswith("open_clip:") or (source and Path(source).is_dir()):
        return
    require_hub_name(source, name, option)
    if not is_cached(source, ("config.json", "model.safetensors")):
        require_answer(source, name, option)


def model_file(name: str, path: str, *, option: str = "name") -> Path | None:
    """The path of one file of a model, in its folder or from the hub.

    Args:
        name: A hub name, or a folder.
        path: Path of the file inside the model.
        option: The option that the name came from, for messages.

    Returns:
        The path; None where the model has no such file.

    Raises:
        RequirementError: If there is no such model, or the hub cannot be reached.
    """
    if name and Path(name).is_dir():
        local = Path(name) / path
        return local if local.is_file() else None
    require_hub_name(name, name, option)
    cached = try_to_load_from_cache(name, path)
    if cached is not None:
        return Path(cached) if isinstance(cached, str) else None
    require_answer(name, name, option)
    try:
        return Path(hf_hub_download(name, path))
    except EntryNotFoundError:
        return None
    except (NoAnswer, OSError) as error:
        raise RequirementError(Setting(option, name), f" needs its {path}; fetching it failed; try again") from error


def require_hub_name(source: str, name: str, option: str) -> None:
    """Check that a name can be one of the hub.

    Args:
        source: The hub name, or the name itself.
        name: As it was given, for the message.
        option: The option that it came from, for the message.

    Raises:
        RequirementError: If it is the path of a missing folder, a misspelt short name, or no name of the hub.
    """
    if source.startswith((".", "/", "~", "\\")) or source.count("/") > 1 or not source.strip():
        raise _refusal(name, option, "there is no such folder")
    if "/" not in source and get_close_matches(source, _SHORT_NAMES, n=1, cutoff=0.85) and source not in NAMES:
        raise _refusal(name, option, "there is no such folder or name")
    try:
        validate_repo_id(source)
    except HFValidationError:
        raise _refusal(name, option, "it is neither a folder nor a name that the hub could have") from None


def require_answer(source: str, name: str, option: str) -> None:
    """Check that the hub has a model; it is queried once.

    Args:
        source: The hub name.
        name: As it was given, for the message.
        option: The option that it came from, for the message.

    Raises:
        RequirementError: If it has no such model, does not show it, or cannot be reached.
    """
    refusals: dict[type[Exception], str] = {
        GatedRepoError: "the hub keeps it behind terms that you have not accepted",
        RepositoryNotFoundError: "it is no folder here, and the hub shows no such model",
        EntryNotFoundError: "what the hub has by that name holds no config.json",
        OfflineModeIsEnabled: "it is no folder here, not in the cache, and HF_HUB_OFFLINE is set",
        NoAnswer: "it is no folder here, not in the cache, and the hub cannot be reached",
        OSError: "it is no folder here, not in the cache, and the hub cannot be reached",
    }
    try:
        _ask(source)
    except tuple(refusals) as error:
        kind, reason = next((kind, reason) for kind, reason in refusals.items() if isinstance(error, kind))
        offline = kind in (OfflineModeIsEnabled, NoAnswer, OSError)
        raise _refusal(name, option, reason, offline=offline) from None


@cache  # An error is not cached: only a hub that answered is not queried again.
def _ask(source: str) -> None:
    # Not by `get_hf_file_metadata`: it first fetches a list for its user agent, with a time limit of its own.
    token = get_token_to_send(None)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = hf_hub_url(source, "config.json")
    hf_raise_for_status(get_session().head(url, headers=headers, timeout=SECONDS, follow_redirects=False))


def _refusal(name: str, option: str, got: str, *, offline: bool = False) -> RequirementError:
    candidates = (*_SHORT_NAMES, *NAMES)
    similar = [] if name in candidates else get_close_matches(name, candidates, n=2, cutoff=0.75)
    advice = "give a folder that holds config.json and model.safetensors"
    if similar:
        advice = f"did you mean {' or '.join(similar)}?"
    elif name in BACKBONES:
        advice += ", or weights=random"
    message: tuple[object, ...] = (Setting(option, name), f" needs a folder or a model of the hub; {got}; {advice}")
    if offline and option in ("model", "image", "text"):
        # The way on without a network.
        here = all(is_installed(side) for side in SIDES if option in ("model", side))
        install = "is installed and needs no network" if here else f"needs no network once it is installed ({INSTALL})"
        message = (*message, "; or ", Setting(option, STARTER), f", which {install}")
    return RequirementError(*message)


PROCESSORS = ("processor_config.json", "preprocessor_config.json")
"""Files of a model that hold its preprocessing: of transformers 5 (under "image_processor"), and of those before it."""
_FILTERS: dict[object, Literal["bilinear", "bicubic", "lanczos"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Resampling filters by their numbers in PIL."""


def preprocessing_of(name: str, *, option: str = "name") -> Preprocessing:
    """The preprocessing of a backbone, from its short name or from one of its `PROCESSORS`.

    Args:
        name: A short name, a hub name, or a folder.
        option: The option that the name came from, for messages.

    Returns:
        The preprocessing.

    Raises:
        RequirementError: If the model has none of these files, if they lack values or need steps that are not taken
            here, and if there is no such model.
    """
    if name in BACKBONES:
        return BACKBONES[name].preprocessing
    file, settings = _image_processor(name, option)
    keys = ("size", "crop_size", "image_mean", "image_std", "crop_pct", "resample", "rescale_factor")

    def refusal(needs: str, advice: str) -> RequirementError:
        present = ", ".join(f"{key} {settings[key]}" for key in keys if key in settings) or "none of them"
        return RequirementError(Setting(option, name), f" needs a {file.name} {needs}; it has {present}; {advice}")

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


@dataclass(frozen=True)
class Patching:
    """Preprocessing of the images of a model that reads them at their own aspect (NaFlex).

    Attributes:
        patches: Most patches of an image.
        patch: Side of a patch in pixels.
        mean: Mean of each channel, on a scale of 0 to 1.
        std: Standard deviation of each channel, likewise.
        filter: Filter of resampling.
    """

    patches: int
    patch: int
    mean: Triple
    std: Triple
    filter: Literal["bilinear", "bicubic", "lanczos"]


def patching_of(name: str, *, option: str = "name") -> Patching:
    """The preprocessing of a model of variable image size, from one of its `PROCESSORS`.

    Args:
        name: A hub name, or a folder.
        option: The option that the name came from, for messages.

    Returns:
        The preprocessing.

    Raises:
        RequirementError: If the model has none of these files, or they lack values.
    """
    file, settings = _image_processor(name, option)
    patches, patch = settings.get("max_num_patches", 256), settings.get("patch_size", 16)
    mean, std = (_triple(settings.get(f"image_{kind}", [0.5] * 3)) for kind in ("mean", "std"))
    resample = settings.get("resample", 2)
    numbers = all(isinstance(value, int) and value > 0 for value in (patches, patch))
    if not numbers or mean is None or std is None or resample not in _FILTERS:
        raise RequirementError(
            Setting(option, name),
            f" needs a {file.name} with max_num_patches, patch_size, three channels' image_mean and image_std, and a "
            f"bilinear, bicubic or Lanczos filter; it has {patches}, {patch}, {mean}, {std} and {resample}; fetch it "
            "again",
        )
    return Patching(patches, patch, mean, std, _FILTERS[resample])


def _image_processor(name: str, option: str) -> tuple[Path, dict[str, Any]]:
    """The file of a model that holds its image processor, and the settings in it.

    Raises:
        RequirementError: If there is none, or it is no JSON.
    """
    # What the cache has of a hub's model is enough: the hub is asked only where it has neither.
    cached: list[str] = []
    if not Path(name).is_dir():
        require_hub_name(name, name, option)
        cached = [wanted for wanted in PROCESSORS if is_cached(name, [wanted])]
    for wanted in cached or PROCESSORS:
        file = model_file(name, wanted, option=option)
        if file is None:
            continue
        try:
            settings = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise RequirementError(
                Setting(option, name), f" needs a {file.name} of JSON; {error}; fetch it again"
            ) from error
        if file.name == PROCESSORS[0] and isinstance(settings, dict):
            if "image_processor" not in settings:
                continue  # Of a version before 5, which wrote the other file beside it.
            settings = settings["image_processor"]
        if not isinstance(settings, dict):
            raise RequirementError(
                Setting(option, name), f" needs a JSON object in {file.name}; it has another value; fetch it again"
            )
        return file, settings
    raise RequirementError(
        Setting(option, name),
        f" needs {' or '.join(PROCESSORS)}, which say how images are read; it has neither; fetch them "
        "again, or write them with save_pretrained of the model's processor",
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


def revision_of(name: str) -> str:
    """The commit of a hub's model in the cache.

    Args:
        name: A hub name, or a folder.

    Returns:
        The commit; "" for a folder, and for a model of another library.
    """
    cached = None if Path(name).is_dir() or ":" in name else try_to_load_from_cache(name, "config.json")
    return Path(cached).parent.name if isinstance(cached, str) else ""


def cached_revision(name: str, revision: str) -> str:
    """The folder of one commit of a hub's model in the cache.

    Args:
        name: A hub name.
        revision: The commit.

    Returns:
        The folder; the name where that commit is not cached.
    """
    cached = try_to_load_from_cache(name, "config.json", revision=revision) if revision else None
    return str(Path(cached).parent) if isinstance(cached, str) else name
