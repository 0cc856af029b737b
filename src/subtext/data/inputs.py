"""Inputs, which turn items into the tensors that an encoder reads, and the files of their settings.

An Input belongs to one modality and to one encoder. While training it gets the epoch's draw; without a draw it always
returns the same tensors. Implementations: pixels (`pixels.py`), words (`text.py`), features (`features.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_text
from subtext.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    Tensors: TypeAlias = dict[str, Tensor]
else:
    Tensors = dict  # A search by words does not import torch.
"""The input of a branch of a model. Always "ids" (N) int64, and by kind of input:
pixels (N 3 H W) float | tokens (N L) int64, mask (N L) bool | pooled (N G), grid (N P E) float, mask (N P) bool
"""


@dataclass(frozen=True)
class Draw:
    """The seed and the epoch of random augmentation.

    Attributes:
        seed: Seed of the training.
        epoch: Number of the epoch.
    """

    seed: int
    epoch: int


@dataclass(frozen=True)
class InputBatch:
    """Items to be read: values as in data.dataset.Items, and the keys of random numbers.

    Attributes:
        values: Str path (against root), bytes, PIL image or array (images); str or array (texts).
        ids: Names, by which features are joined.
        rows: (N) int64, becomes Embeddings.ids.
        keys: (N) int64.
        root: Folder of relative image paths.
    """

    values: Sequence[Any]
    ids: Sequence[str]
    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    root: Path


@runtime_checkable
class Input(Protocol):
    """Items -> tensors for one encoder."""

    @property
    def augments(self) -> bool:
        """True if a draw changes the tensors: then outputs of the encoder cannot be cached."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the tensors for the same items without a draw would."""

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Read the items of a batch.

        Args:
            batch: N items.
            draw: Seed and epoch of random augmentation; None outside of training.

        Returns:
            Name -> tensor of N rows, among them "ids".
        """

    def save(self, folder: Path) -> None:
        """Write what is needed to make this Input again (a vocabulary, a tokeniser, sizes), JSON or text only.

        Args:
            folder: Existing folder to write to.
        """


@dataclass(frozen=True)
class SeveralInputs:
    """Read what several encoders need of the same items.

    The tensors are "ids", and those of member m under names that begin "m.".

    Args:
        members: The Inputs.
    """

    members: tuple[Input, ...]

    @property
    def augments(self) -> bool:
        """True if the input of a member is augmented."""
        return any(member.augments for member in self.members)

    @property
    def fingerprint(self) -> str:
        """Changes with a member's, and with their order."""
        return settings_hash({"kind": "several", "members": [member.fingerprint for member in self.members]})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Read the items of a batch with all members, whose errors it raises.

        Args:
            batch: N items.
            draw: Seed and epoch of random augmentation; None outside of training.

        Returns:
            Name -> tensor of N rows.
        """
        read = [member(batch, draw) for member in self.members]
        named = {f"{number}.{name}": value for number, tensors in enumerate(read) for name, value in tensors.items()}
        return {"ids": read[0]["ids"], **named}

    def of(self, number: int, tensors: Tensors) -> Tensors:
        """Select the tensors of one member.

        Args:
            number: Index of the member.
            tensors: As a call returned them.

        Returns:
            Name -> tensor, as the member returned it.
        """
        start = f"{number}."
        return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}

    def save(self, folder: Path) -> None:
        """Write nothing: each member of an ensemble has a folder of its own.

        Args:
            folder: Not used.
        """


def write_settings(path: Path, values: object) -> None:
    """Write JSON, completely or not at all.

    Args:
        path: The file.
        values: Plain JSON values.

    Raises:
        OutputError: If there is no space, or no right to write.
    """
    write_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def read_settings(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Read the named settings of a JSON object, and those of `optional` that it has.

    Args:
        path: The file.
        names: Settings that it must have.
        optional: Settings that it may have.

    Returns:
        Name -> value.

    Raises:
        CheckpointError: If the file is missing, is no JSON object, or lacks one of them.
    """
    values = read_json(path)
    if not isinstance(values, dict) or any(name not in values for name in names):
        raise CheckpointError(f"{path} needs the settings {', '.join(names)}; it is another recipe's, or damaged")
    return {name: values[name] for name in (*names, *optional) if name in values}


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        CheckpointError: If it is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"a saved input needs {path.name}; {path} is not there") from error
    except (UnicodeDecodeError, json.JSONDecodeError, OSError) as error:
        raise CheckpointError(f"{path} needs to be JSON; reading it failed: {error}") from error


def settings_hash(values: Mapping[str, Any]) -> str:
    """Hash settings.

    Args:
        values: Name -> plain JSON value.

    Returns:
        16 hexadecimal digits that change with any of the settings.
    """
    coded = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str).encode()
    return hashlib.blake2b(coded, digest_size=8).hexdigest()
