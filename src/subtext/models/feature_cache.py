"""Frozen encoders are run once: what they make of every item is kept on disk and read from there at every step.

    FOLDER/KEY/parts.npy    (rows E) the parts of all items, one item after the other, without those that are masked
    FOLDER/KEY/lengths.npy  (N) int64, how many rows each item has
    FOLDER/KEY/pooled.npy   (N G)
    FOLDER/KEY/about.json   what the key was made of

KEY is a hash of the encoder's weights, structure and settings, of its Input's fingerprint, of the items (their images
by size and times of the files, wherever their folder is) and of the precision, so that a change of any of them is
another folder. Arrays are memory-mapped: a cache may be larger than memory. Several trainings may share a FOLDER: each
KEY is put in place whole, and who comes second keeps what is there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.atomic import HIDDEN, write_folder
from subtext.data.batches import item_blocks
from subtext.data.dataset import Items
from subtext.data.image_files import image_stamp
from subtext.data.inputs import Batch, Draw, Tensors
from subtext.errors import DataError, RequirementError
from subtext.models.model import Branch

Precision = Literal["float32", "float16"]
Sources = Sequence[tuple[Items, Path]]
"""Items and the folder that their paths start from."""
_BLOCK = 64
_ABANDONED = 3600.0
"""Seconds without a write after which an unfinished folder is taken for one whose writer was killed."""


def refusal(branch: Branch, sources: Sources) -> str | None:
    """Why the branch's encoder cannot be cached, as the end of a sentence; None where it can."""
    if branch.input_spec.augments:
        return "its input is augmented, so that it gives something else every time"
    values: dict[str, object] = {}
    for items, root in sources:
        for name, value in zip(items.ids, items.values, strict=True):
            if values.setdefault(name, (value, root)) != (value, root):
                return f"the id '{name}' stands for two items, and the cache is by id"
    return None


def write_cache(
    branch: Branch, sources: Sources, folder: Path, *, weights: str, precision: Precision, device: torch.device
) -> Path:
    """Run the encoder over the items, unless its outputs are there already; gives their folder.

    weights  fingerprint of the encoder's tensors

    Raises RequirementError where the Input augments; DataError when float16 cannot hold an output; OutputError when it
    cannot be written.
    """
    if (reason := refusal(branch, sources)) is not None:
        raise RequirementError(f"caching an encoder needs outputs that stay the same; {reason}; run it at every step")
    about = _about(branch, sources, weights, precision)
    path = _place(folder, about)
    if not path.is_dir():
        _sweep(folder)
        write_folder(path, lambda new: _run(branch, sources, new, about=about, device=device), replace=False)
    return path


def cached_branch(branch: Branch, sources: Sources, folder: Path, *, weights: str, precision: Precision) -> Branch:
    """A branch with the same head that reads what `write_cache` wrote in place of running the encoder.

    Raises DataError when it was not written, or is damaged.
    """
    path = _place(folder, _about(branch, sources, weights, precision))
    if not path.is_dir():
        raise DataError(f"cached outputs need {path}; it is not there; write it first")
    input_spec = CachedInput(path, _names(sources))
    if branch.training:
        return Branch(input_spec, CachedEncoder(branch.encoder), branch.head).train()
    return Branch(input_spec, CachedEncoder(branch.encoder), branch.head).eval()


class CachedInput:
    """Items -> what a frozen encoder made of them: "parts" (N P E) with "mask" (N P), "pooled" (N G), by id.

    folder  as `write_cache` made it        names  ids of its items, in order
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self._rows = {name: row for row, name in enumerate(names)}
        try:
            self._masked = bool(json.loads((folder / "about.json").read_text(encoding="utf-8"))["masked"])
            self._parts, self._pooled = _mapped(folder / "parts.npy"), _mapped(folder / "pooled.npy")
            lengths = np.load(folder / "lengths.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError, KeyError) as problem:
            raise DataError(
                f"the cache {folder} is damaged: {problem}; remove that folder, it is made again"
            ) from problem
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._even = bool((lengths == lengths[0]).all())

    @property
    def augments(self) -> bool:
        """Never: the outputs are fixed."""
        return False

    @property
    def fingerprint(self) -> str:
        """The key of the cache."""
        return self.folder.name

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The encoder's outputs for a batch, float32.

        Raises DataError for an item that was not there when the cache was written.
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
        if self._parts is not None:
            tensors |= self._gathered(self._parts, rows)
        return tensors

    def save(self, folder: Path) -> None:
        """Refused: a run keeps the Input of its recipe, not a cache."""
        raise RequirementError("saving a model needs the Input of its recipe; it got a cache; save the recipe's model")

    def _gathered(self, parts: NDArray[np.floating], rows: NDArray[np.int64]) -> Tensors:
        starts = self._starts
        if self._even:
            padded = parts.reshape(len(starts) - 1, -1, parts.shape[1])[rows].astype(np.float32)
            mask = np.ones(padded.shape[:2], dtype=bool)
        else:
            lengths = starts[rows + 1] - starts[rows]
            padded = np.zeros((len(rows), int(lengths.max()), parts.shape[1]), dtype=np.float32)
            for index, row in enumerate(rows):
                padded[index, : lengths[index]] = parts[starts[row] : starts[row + 1]]
            mask = np.arange(padded.shape[1])[None, :] < lengths[:, None]
        tensors = {"parts": torch.from_numpy(padded)}
        if self._masked:
            tensors["mask"] = torch.from_numpy(mask)
        return tensors


class CachedEncoder(nn.Module):
    """In the place of an encoder: hands on what a CachedInput read. It has no weights."""

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        self.parts_width = getattr(like, "parts_width", None)
        self.pooled_width = getattr(like, "pooled_width", None)

    def forward(self, inputs: Tensors) -> Encoded:
        """The outputs as they were."""
        return Encoded(parts=inputs.get("parts"), mask=inputs.get("mask"), pooled=inputs.get("pooled"))


def _run(branch: Branch, sources: Sources, path: Path, *, about: dict[str, object], device: torch.device) -> None:
    kind = np.dtype(str(about["precision"]))
    parts, pooled = _Growing(path / "parts.npy", kind), _Growing(path / "pooled.npy", kind)
    lengths: list[int] = []
    masked = False
    was_training = branch.encoder.training
    branch.encoder.eval()
    try:
        with torch.inference_mode(), parts, pooled:
            for items, root in sources:
                for batch in item_blocks(items, root, batch_size=_BLOCK):
                    inputs = {name: value.to(device) for name, value in branch.input_spec(batch).items()}
                    encoded: Encoded = branch.encoder(inputs)
                    if encoded.pooled is not None:
                        pooled.add(encoded.pooled)
                    if encoded.parts is not None:
                        masked = masked or encoded.mask is not None
                        lengths += _add_parts(parts, encoded.parts, encoded.mask)
                    else:
                        lengths += [0] * len(batch.rows)
    finally:
        branch.encoder.train(was_training)
    np.save(path / "lengths.npy", np.array(lengths, dtype=np.int64))
    (path / "about.json").write_text(json.dumps({**about, "masked": masked}, indent=2), encoding="utf-8")


def _add_parts(file: _Growing, parts: Tensor, mask: Tensor | None) -> list[int]:
    if mask is None:
        file.add(parts.flatten(0, 1))
        return [int(parts.shape[1])] * len(parts)
    file.add(parts[mask])
    return [int(count) for count in mask.sum(dim=1).tolist()]


class _Growing:
    """An npy file whose first axis grows; its header is written again at the end, and has room for that."""

    def __init__(self, path: Path, kind: np.dtype[np.floating]) -> None:
        self._path, self._kind = path, kind
        self._rows = 0
        self._width: int | None = None

    def __enter__(self) -> _Growing:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *problem: object) -> None:
        if self._width is not None:
            self._file.seek(0)
            self._header()
        self._file.close()
        if self._width is None:
            self._path.unlink()

    def add(self, values: Tensor) -> None:
        """Append (n, width) values."""
        largest = float(np.finfo(self._kind).max)
        if self._kind != np.float32 and bool((values.abs() > largest).any()):
            raise DataError(
                f"caching as {self._kind} needs outputs within +-{largest:,.0f}; this encoder gives larger ones; cache "
                "as float32"
            )
        block = values.float().cpu().numpy().astype(self._kind)
        if self._width is None:
            self._width = block.shape[1]
            self._header()
        self._file.write(block.tobytes())
        self._rows += len(block)

    def _header(self) -> None:
        described = {"descr": np.lib.format.dtype_to_descr(self._kind), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._file, {**described, "shape": (self._rows, self._width)})


def _about(branch: Branch, sources: Sources, weights: str, precision: Precision) -> dict[str, object]:
    digest = hashlib.blake2b(digest_size=16)
    for items, root in sources:
        for name, value in zip(items.ids, items.values, strict=True):
            stamp = image_stamp(value, root) if isinstance(value, str) else None
            digest.update(repr((name, value, stamp)).encode())
    return {
        "weights": weights,
        "encoder": f"{type(branch.encoder).__qualname__} {branch.encoder}",
        "settings": _settings(branch.encoder),
        "input": branch.input_spec.fingerprint,
        "items": digest.hexdigest(),
        "precision": precision,
    }


def _settings(encoder: nn.Module) -> dict[str, str]:
    """What weights and modules do not show of an encoder: which vector is pooled, how a backbone is configured."""
    plain = (str, bool, int, float, tuple, type(None))
    settings = {
        name: repr(value)
        for name, value in vars(encoder).items()
        if isinstance(value, plain) and not name.startswith("_") and name != "training"
    }
    config = next((module.config for module in encoder.modules() if hasattr(module, "config")), None)
    return settings if config is None else {**settings, "config": str(config)}


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed have left; who is still at work has written a moment ago."""
    for abandoned in folder.glob(f"{HIDDEN}*"):
        try:
            latest = max(file.stat().st_mtime for file in (abandoned, *abandoned.rglob("*")))
        except FileNotFoundError:
            continue  # Its writer has just finished.
        if time.time() - latest > _ABANDONED:
            shutil.rmtree(abandoned, ignore_errors=True)


def _place(folder: Path, about: dict[str, object]) -> Path:
    return folder / hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _mapped(file: Path) -> NDArray[np.floating] | None:
    return np.load(file, mmap_mode="r", allow_pickle=False) if file.is_file() else None


def _names(sources: Sources) -> tuple[str, ...]:
    return tuple(name for items, _ in sources for name in items.ids)
