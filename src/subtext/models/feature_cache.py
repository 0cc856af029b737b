"""Frozen encoders run once: their outputs for every item are cached on disk and read from there at every step.

    FOLDER/KEY/items.npy    (N 16) uint8, a digest of each item
    FOLDER/KEY/outputs.npy  (N) int64, which of the M outputs is that of each item: texts of equal subwords share one
    FOLDER/KEY/parts.npy    (rows E) the parts of all outputs, one after the other, without masked ones; where the
                            branch's head reads them
    FOLDER/KEY/lengths.npy  (M) int64, the number of rows of each output
    FOLDER/KEY/pooled.npy   (M G), where the head reads it
    FOLDER/KEY/about.json   what the key is a hash of

KEY is a hash of the encoder's weights, structure and settings, of what the head reads, of its Input's fingerprint, of
the items (for image files, their size and time of change, but not their folder) and of the precision: a change of any
of them gives another folder. Arrays are memory-mapped, so a cache may be larger than memory. Several trainings may
share a FOLDER: each KEY is put in place in one step, and a second writer keeps what is there. Later commands read
from it what it has of their items (`find_cached_outputs`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.atomic import HIDDEN, write_folder
from subtext.data.batches import item_batch, read_ahead
from subtext.data.dataset import Items
from subtext.data.image_files import image_stamp
from subtext.data.inputs import Draw, InputBatch, Tensors
from subtext.data.text import SubwordInput
from subtext.errors import DataError, RequirementError
from subtext.models.model import Branch

Precision = Literal["float32", "float16"]
Sources = Sequence[tuple[Items, Path]]
"""Items and the folder that their paths start from."""
_BLOCK = 64
_LANES = 2
"""Blocks that a processor computes side by side, sharing its threads: the operations of one block are too small for all
of them, and between two operations, and while images are read, they would wait."""
_ABANDONED = 3600.0
"""Seconds without a write after which the writer of an unfinished folder counts as killed."""


def why_not_cacheable(branch: Branch, sources: Sources) -> str | None:
    """Why a branch's encoder cannot be cached.

    Args:
        branch: Of the model.
        sources: Items and their folders.

    Returns:
        The end of a sentence; None where it can be cached.
    """
    if branch.input_spec.augments:
        return "its input is augmented, so that its outputs change every time"
    values: dict[str, object] = {}
    for items, root in sources:
        for name, value in zip(items.ids, items.values, strict=True):
            if values.setdefault(name, (value, root)) != (value, root):
                return f"the id '{name}' stands for two items, and the cache is by id"
    return None


def write_cache(
    branch: Branch, sources: Sources, folder: Path, *, weights: str, precision: Precision, device: torch.device
) -> Path:
    """Run the encoder over the items, unless its outputs are cached already.

    Args:
        branch: Of the model.
        sources: Items and their folders.
        folder: Folder of all caches.
        weights: Fingerprint of the encoder's tensors.
        precision: Of the stored outputs.
        device: Device of the encoder.

    Returns:
        The folder of the cache.

    Raises:
        RequirementError: If the outputs do not stay the same.
        DataError: If float16 cannot hold an output.
        OutputError: If the cache cannot be written.
    """
    if (reason := why_not_cacheable(branch, sources)) is not None:
        raise RequirementError(f"caching an encoder needs outputs that stay the same; {reason}; run it at every step")
    digests = _digests(branch, sources)
    about = _about(branch, digests, weights, precision)
    path = _path(folder, about)
    if not path.is_dir():
        # Remove what killed writers have left. A writer at work has written a moment ago.
        for abandoned in folder.glob(f"{HIDDEN}*"):
            try:
                latest = max(file.stat().st_mtime for file in (abandoned, *abandoned.rglob("*")))
            except FileNotFoundError:
                continue  # Its writer has just finished.
            if time.time() - latest > _ABANDONED:
                shutil.rmtree(abandoned, ignore_errors=True)

        def write(new: Path) -> None:
            np.save(new / "items.npy", digests)
            _run(branch, sources, new, about=about, device=device)

        write_folder(path, write, existing="keep")
    return path


def open_cached_branch(branch: Branch, sources: Sources, folder: Path, *, weights: str, precision: Precision) -> Branch:
    """A branch with the same head that reads what `write_cache` wrote instead of running the encoder.

    Args:
        branch: Of the model.
        sources: Items and their folders, as for `write_cache`.
        folder: Folder of all caches.
        weights: Fingerprint of the encoder's tensors.
        precision: Of the stored outputs.

    Returns:
        The branch.

    Raises:
        DataError: If the cache is missing or damaged.
    """
    path = _path(folder, _about(branch, _digests(branch, sources), weights, precision))
    if not path.is_dir():
        raise DataError(f"cached outputs need {path}; it is not there; write it first")
    names = [name for items, _ in sources for name in items.ids]
    return _reading(branch, path, {name: row for row, name in enumerate(names)})


def find_cached_outputs(
    branch: Branch, items: Items, root: Path, folder: Path, *, weights: str
) -> tuple[Branch | None, NDArray[np.bool_]]:
    """Find what a training cached of some items.

    Of several caches, that of most items; none where no float32 cache of this encoder, with these weights, has any. An
    item is identified by its id and its text, or the path, size and time of change of its file.

    Args:
        branch: Of the model.
        items: N items.
        root: Folder that their paths start from.
        folder: Folder of all caches.
        weights: Fingerprint of the encoder's tensors.

    Returns:
        A branch that reads the cached outputs instead of running the encoder, or None; and (N) bool, which items are
        cached.
    """
    digests = _digests(branch, [(items, root)])
    about = _about(branch, digests, weights, "float32")
    rows: dict[str, int] = {}
    best = folder
    for path in sorted(file.parent for file in folder.glob("[!.]*/about.json")):
        if {**_read_about(path), "items": None, "masked": None} != {**about, "items": None, "masked": None}:
            continue
        cached = {row.tobytes(): index for index, row in enumerate(_load(path, "items.npy"))}
        cached_rows = [cached.get(row.tobytes()) for row in digests]
        rows_here = {name: row for name, row in zip(items.ids, cached_rows, strict=True) if row is not None}
        if len(rows_here) > len(rows):
            best, rows = path, rows_here
    is_cached = np.array([name in rows for name in items.ids], dtype=bool)
    return (_reading(branch, best, rows) if rows else None), is_cached


def _reading(branch: Branch, path: Path, rows: Mapping[str, int]) -> Branch:
    return Branch(CachedInput(path, rows), CachedEncoder(branch.encoder), branch.head).train(branch.training)


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((path / "about.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise _damaged(path, problem) from problem
    return about


def _load(path: Path, name: str, *, mapped: bool = False) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path / name, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise _damaged(path, problem) from problem
    return array


def _damaged(path: Path, problem: Exception) -> DataError:
    return DataError(f"the cache {path} is damaged: {problem}; remove that folder, it is made again")


class CachedInput:
    """Items -> the cached outputs of an encoder, by id: "parts" (N P E) with "mask" (N P), and "pooled" (N G).

    Args:
        folder: Folder of one cache, as `write_cache` made it.
        rows: Id -> the row of an item among those of the cache.
    """

    augments = False

    def __init__(self, folder: Path, rows: Mapping[str, int]) -> None:
        self.folder = folder
        about = _read_about(folder)
        if "masked" not in about:
            raise _damaged(folder, KeyError("masked"))
        self._masked = bool(about["masked"])
        self._parts, self._pooled = (
            _load(folder, name, mapped=True) if (folder / name).is_file() else None
            for name in ("parts.npy", "pooled.npy")
        )
        lengths, outputs = _load(folder, "lengths.npy"), _load(folder, "outputs.npy")
        self._rows = {name: int(outputs[row]) for name, row in rows.items()}
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._even = bool((lengths == lengths[0]).all())

    @property
    def fingerprint(self) -> str:
        """The key of the cache."""
        return self.folder.name

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """The encoder's outputs for a batch.

        Args:
            batch: N items.
            draw: Not read.

        Returns:
            "parts" (N P E) with "mask" (N P), and "pooled" (N G), float32; and "ids" (N).

        Raises:
            DataError: If an item is not in the cache.
        """
        missing = [name for name in batch.ids if name not in self._rows]
        if missing:
            raise DataError(
                f"the cache {self.folder} needs every item; it has no '{missing[0]}'; run the encoder on it"
            )
        rows = np.array([self._rows[name] for name in batch.ids], dtype=np.int64)
        tensors = {"ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}
        if self._pooled is not None:
            tensors["pooled"] = torch.from_numpy(self._pooled[rows].astype(np.float32))
        if self._parts is None:
            return tensors
        starts, width = self._starts, self._parts.shape[1]
        lengths = starts[rows + 1] - starts[rows]
        if self._even:
            padded = self._parts.reshape(len(starts) - 1, -1, width)[rows].astype(np.float32)
        else:
            padded = np.zeros((len(rows), int(lengths.max()), width), dtype=np.float32)
            for index, row in enumerate(rows):
                padded[index, : lengths[index]] = self._parts[starts[row] : starts[row + 1]]
        tensors["parts"] = torch.from_numpy(padded)
        if self._masked:
            tensors["mask"] = torch.from_numpy(np.arange(padded.shape[1]) < lengths[:, None])
        return tensors

    def save(self, folder: Path) -> None:
        """Refuse: a run keeps the Input of its recipe, not a cache.

        Args:
            folder: Not read.

        Raises:
            RequirementError: Always.
        """
        raise RequirementError("saving a model needs the Input of its recipe; it got a cache; save the recipe's model")


class CachedEncoder(nn.Module):
    """Replaces an encoder: passes on what a CachedInput read. It has no weights.

    Args:
        encoder: The encoder that it replaces.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.parts_width = getattr(encoder, "parts_width", None)
        self.pooled_width = getattr(encoder, "pooled_width", None)

    def forward(self, inputs: Tensors) -> Encoded:
        """The cached outputs.

        Args:
            inputs: As CachedInput returns them.

        Returns:
            Encoded with those fields.
        """
        return Encoded(parts=inputs.get("parts"), mask=inputs.get("mask"), pooled=inputs.get("pooled"))


def _run(branch: Branch, sources: Sources, path: Path, *, about: dict[str, object], device: torch.device) -> None:
    """Write the outputs of all items to a folder."""
    precision = np.dtype(str(about["precision"]))
    parts, pooled = _GrowingFile(path / "parts.npy", precision), _GrowingFile(path / "pooled.npy", precision)
    lengths: list[int] = []
    outputs: list[NDArray[np.int64]] = []
    masked, fields = False, _fields(branch)
    was_training = branch.encoder.training
    branch.encoder.eval()
    threads = torch.get_num_threads()
    lanes = min(_LANES, threads) if device.type == "cpu" else 0

    def encode(batch: InputBatch) -> Encoded:
        with torch.inference_mode():
            inputs = {name: value.to(device) for name, value in branch.input_spec(batch).items()}
            encoded: Encoded = branch.encoder(inputs)
        return encoded

    try:
        torch.set_num_threads(threads // max(lanes, 1))
        with parts, pooled:
            for items, root in sources:
                order = positions = np.arange(len(items), dtype=np.int64)
                if isinstance(branch.input_spec, SubwordInput):
                    order, positions = branch.input_spec.distinct(item_batch(items, order, root))
                outputs.append(len(lengths) + positions)
                blocks = [order[start : start + _BLOCK] for start in range(0, len(order), _BLOCK)]
                batches = [item_batch(items, block, root) for block in blocks]
                for block, encoded in zip(blocks, read_ahead(batches, encode, workers=lanes), strict=True):
                    if encoded.pooled is not None and "pooled" in fields:
                        pooled.add(encoded.pooled)
                    if encoded.parts is None or "parts" not in fields:
                        lengths += [0] * len(block)
                    elif encoded.mask is None:
                        parts.add(encoded.parts.flatten(0, 1))
                        lengths += [encoded.parts.shape[1]] * len(block)
                    else:
                        masked = True
                        parts.add(encoded.parts[encoded.mask])
                        lengths += encoded.mask.sum(dim=1).tolist()
    finally:
        torch.set_num_threads(threads)
        branch.encoder.train(was_training)
    np.save(path / "lengths.npy", np.array(lengths, dtype=np.int64))
    np.save(path / "outputs.npy", np.concatenate(outputs))
    (path / "about.json").write_text(json.dumps({**about, "masked": masked}, indent=2), encoding="utf-8")


class _GrowingFile:
    """An npy file whose first axis grows. Its header has room for the final number of rows, written at the end."""

    def __init__(self, path: Path, precision: np.dtype[np.floating]) -> None:
        self._path, self._precision = path, precision
        self._rows, self._width = 0, 0

    def __enter__(self) -> _GrowingFile:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *problem: object) -> None:
        if self._width:
            self._file.seek(0)
            self._write_header()
        self._file.close()
        if not self._width:
            self._path.unlink()

    def add(self, values: Tensor) -> None:
        """Append (n, width) values."""
        largest = float(np.finfo(self._precision).max)
        if self._precision != np.float32 and bool((values.abs() > largest).any()):
            raise DataError(
                f"caching as {self._precision} needs outputs within +-{largest:,.0f}; this encoder gives larger ones; "
                "cache as float32"
            )
        if not self._width:
            self._width = values.shape[1]
            self._write_header()
        self._file.write(values.float().cpu().numpy().astype(self._precision).tobytes())
        self._rows += len(values)

    def _write_header(self) -> None:
        described = {"descr": np.lib.format.dtype_to_descr(self._precision), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._file, {**described, "shape": (self._rows, self._width)})


def _digests(branch: Branch, sources: Sources) -> NDArray[np.uint8]:
    """(N 16) of each item: its id and its text, or its file with size and time of change."""
    digests, are_texts = bytearray(), isinstance(branch.input_spec, SubwordInput)
    for items, root in sources:
        for name, value in zip(items.ids, items.values, strict=True):
            stamp = image_stamp(value, root) if isinstance(value, str) and not are_texts else None
            digests += hashlib.blake2b(repr((name, value, stamp)).encode(), digest_size=16).digest()
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(-1, 16)


def _about(branch: Branch, digests: NDArray[np.uint8], weights: str, precision: Precision) -> dict[str, object]:
    """What the key of a cache is a hash of."""
    encoder = branch.encoder
    # Weights and modules do not show which vector is pooled, or how a backbone is configured.
    plain = (str, bool, int, float, tuple, type(None))
    settings = {
        name: repr(value)
        for name, value in vars(encoder).items()
        if isinstance(value, plain) and not name.startswith("_") and name != "training"
    }
    config = next((module.config for module in encoder.modules() if hasattr(module, "config")), None)
    return {
        "weights": weights,
        "encoder": f"{type(encoder).__qualname__} {encoder}",
        "settings": settings if config is None else {**settings, "config": str(config)},
        "input": branch.input_spec.fingerprint,
        "fields": _fields(branch),
        "items": hashlib.blake2b(digests.tobytes(), digest_size=16).hexdigest(),
        "precision": precision,
    }


def _fields(branch: Branch) -> list[str]:
    """The outputs of the encoder that the head reads; all for a head that does not say so."""
    return sorted(getattr(branch.head, "inputs", ("parts", "pooled")))


def _path(folder: Path, about: dict[str, object]) -> Path:
    return folder / hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
