"""Names of models: a folder, what the hub's cache holds, or one short question to the hub before anything is fetched.

A hub that cannot be reached costs a minute of retries for each file that a library asks for. Here it is asked once,
without retries, and only for what is not in the cache; a name that it cannot have is not asked for at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)

# What its client raises when there is no answer: its name says nothing about which client that is.
from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from safetensors import SafetensorError
from transformers.utils import logging

from subtext.errors import RequirementError
from subtext.models.encoders.known import KNOWN, NAMES

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
