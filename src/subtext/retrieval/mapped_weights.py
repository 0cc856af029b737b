"""Weights that an index names and does not copy: tensors of safetensors files, mapped without torch.

The files lie in the folder of a pretrained model, or in an installed package (`data.starter`). The index keeps where,
and a checksum of what it uses of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.index_files import LONGEST

_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Types of numbers that are read. numpy has no bfloat16: it is the upper half of a float32 (see `widened`)."""
_HEAD = 8
"""Bytes of the length of a header."""


class MissingWeightsError(SearchIndexError):
    """Weights that an index names are not there, or are others: a search opens the model."""


@dataclass(frozen=True)
class WeightFile:
    """Tensors of one safetensors file.

    Args:
        path: The file.
        package: The installed package that it comes from; "" for a file of the user.
        size: Bytes of the file.
        modified: Time of its last change in nanoseconds: as long as it and the size stay, the content is not read
            again.
        checksum: Of the bytes of the tensors.
        tensors: Name of a parameter -> name in the file.
    """

    path: str
    package: str
    size: int
    modified: int
    checksum: str
    tensors: Mapping[str, str] = field(repr=False)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> WeightFile:
        """Read what `to_json` gave.

        Args:
            content: Plain data.

        Returns:
            The description.
        """
        return WeightFile(**content)

    def to_json(self) -> dict[str, Any]:
        """The description as plain data.

        Returns:
            Its fields by name.
        """
        return asdict(self)

    def arrays(self, *, all_bytes: bool = False) -> dict[str, NDArray[Any]]:
        """Map the tensors.

        Args:
            all_bytes: Whether to compare the checksum in any case.

        Returns:
            Name of a parameter -> read-only array of float32, float16 or bfloat16 as uint16; see `widened`.

        Raises:
            MissingWeightsError: If the file is not there, or is another.
        """
        path = self._place()
        try:
            state, found = path.stat(), map_tensors(path)
        except OSError as problem:
            raise MissingWeightsError(
                f"the weights in {path} are not there ({problem.strerror}); put the model's folder back"
            ) from problem
        changed = state.st_size != self.size or not set(self.tensors.values()) <= found.keys()
        if not changed and (all_bytes or state.st_mtime_ns != self.modified):
            changed = _sum(found, self.tensors) != self.checksum
        if changed:
            raise MissingWeightsError(
                f"{path} holds other weights than when they were indexed; put the former ones back, or build again"
            )
        return {name: found[own] for name, own in self.tensors.items()}

    def _place(self) -> Path:
        """The file; that of a package is looked up on this machine."""
        if not self.package:
            return Path(self.path)
        from subtext.data.starter import starter_weights

        try:
            found = starter_weights()
        except RequirementError as problem:
            raise MissingWeightsError(f"the weights of {self.package} are not here: {problem}") from problem
        if found is None:
            raise MissingWeightsError(
                f"the weights of {self.package} need a cache to be unpacked to, and there is none"
            )
        return found


def find_weights(
    parameters: Mapping[str, NDArray[np.float32]], files: Iterable[tuple[Path, str]]
) -> tuple[WeightFile, ...]:
    """Find parameters of a model in files: tensors of the same numbers, whatever their names.

    Args:
        parameters: Name -> numbers, widened.
        files: Files of safetensors, each with the package that it comes from, or "".

    Returns:
        The files that hold some of them, with these; a parameter that no file holds is in none.
    """
    found, left = list[WeightFile](), dict(parameters)
    for path, package in files:
        state, arrays = path.stat(), map_tensors(path)  # Mapped once: each time, the pages that are read count again.
        named = dict(_equal(left, arrays))
        if named:
            checksum = _sum(arrays, named)
            found.append(WeightFile(str(path), package, state.st_size, state.st_mtime_ns, checksum, named))
        left = {name: numbers for name, numbers in left.items() if name not in named}
    return tuple(found)


def _equal(
    parameters: Mapping[str, NDArray[np.float32]], arrays: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[str, str]]:
    shapes: dict[tuple[int, ...], list[str]] = {}
    for own, array in arrays.items():
        shapes.setdefault(array.shape, []).append(own)
    for name, numbers in parameters.items():
        # Most alike at their ends first: what is equal is then found at the first comparison.
        for own in sorted(shapes.get(numbers.shape, ()), key=lambda own: -_common(own, name)):
            if np.array_equal(widened(arrays[own]), numbers):
                yield name, own
                break


def _common(first: str, second: str) -> int:
    """Letters in which two names end alike."""
    pairs = enumerate(zip(reversed(first), reversed(second), strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(first), len(second)))


def map_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file that are floating point, mapped.

    Args:
        path: The file.

    Returns:
        Name -> read-only array: float32, float16, or bfloat16 as uint16.

    Raises:
        OSError: If it cannot be read.
        MissingWeightsError: If it is no whole safetensors file.
    """
    try:
        if not path.is_file():
            raise FileNotFoundError(2, "no such file", str(path))
        content = np.memmap(path, dtype=np.uint8, mode="r")
        length = int(content[:_HEAD].view("<u8")[0])
        start = _HEAD + length
        if not 0 < length <= min(LONGEST, len(content) - _HEAD):
            raise ValueError("its header is cut off")
        header = json.loads(content[_HEAD:start].tobytes())
        arrays = {}
        for name, about in header.items():
            if name == "__metadata__" or about["dtype"] not in _TYPES:
                continue
            kind, shape, (first, last) = _TYPES[about["dtype"]], tuple(about["shape"]), about["data_offsets"]
            if last - first != kind.itemsize * prod(shape) or not 0 <= first <= last <= len(content) - start:
                raise ValueError(f"tensor {name} lies outside of it")
            arrays[name] = np.ndarray(shape, kind, buffer=content, offset=start + first)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise MissingWeightsError(f"{path} needs to be a whole safetensors file; {problem}; copy it again") from problem
    return arrays


def widened(array: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers of a mapped tensor as float32, exactly.

    Args:
        array: float32, float16, or bfloat16 as uint16.

    Returns:
        The same numbers; float32 is not copied.
    """
    if array.dtype == _TYPES["BF16"]:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def _sum(arrays: Mapping[str, NDArray[Any]], tensors: Mapping[str, str]) -> str:
    """32 hexadecimal digits of the bytes of tensors."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors.values()):
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()
