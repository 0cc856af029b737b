"""Frozen encoders run once: a branch of a model that reads outputs from the cache instead of running its encoder.

Outputs do not depend on what else was encoded with them, so that it does not matter which command filled the cache:
blocks have one shape, a text is computed beside texts of its own length, and a block that is not full is filled up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.batches import item_batch, read_ahead
from subtext.data.dataset import Items
from subtext.data.image_files import image_exists, read_bytes
from subtext.data.inputs import Draw, InputBatch, Tensors
from subtext.data.output_cache import CachedOutputs, OutputCache, OutputWriter, content_digest, key_of
from subtext.data.pixels import PixelInput, ReadImage
from subtext.data.text import OpenClipInput, SubwordInput, WordInput
from subtext.errors import DataError, OutputError, RequirementError
from subtext.models.checkpoint import fingerprint
from subtext.models.model import Branch

Precision = Literal["float32", "float16"]
Sources = Sequence[tuple[Items, Path]]
"""Items and the folder that their paths start from."""
_BLOCK, _BLOCK_OF_GPU = 16, 64
"""Items that are encoded together: always so many, see the module."""
_OF_TRAINING = ("training", "pretrained", "installed")
"""Attributes of an encoder that say how it is trained and saved, and change no output."""
_LANES = 2
"""Blocks that a processor computes side by side, sharing its threads: the operations of one block are too small for all
of them, and between two operations, and while images are read, they would wait."""


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
                return f"the id '{name}' stands for two items, and outputs are read by id"
    return None


def cached_branch(
    branch: Branch,
    sources: Sources,
    cache: OutputCache,
    *,
    device: torch.device,
    precision: Precision = "float32",
    progress: Callable[[int], None] | None = None,
) -> Branch:
    """Run a branch's encoder over the items whose outputs the cache does not have.

    Args:
        branch: Of the model.
        sources: Items and their folders.
        cache: Gets the new outputs.
        device: Device of the encoder.
        precision: Of the stored outputs.
        progress: Called with how many items are done.

    Returns:
        A branch with the same head that reads the outputs of these items instead of running the encoder.

    Raises:
        RequirementError: If the outputs do not stay the same.
        DataError: If an item cannot be read, or float16 cannot hold an output.
        OutputError: If the cache cannot be written, or has no room.
    """
    if (reason := why_not_cacheable(branch, sources)) is not None:
        raise RequirementError(f"caching an encoder needs outputs that stay the same; {reason}; run it at every step")
    about = _about(branch, precision)
    contents = [item_contents(branch, items, root) for items, root in sources]
    names = [name for items, _ in sources for name in items.ids]
    every = [content for each in contents for content in each]
    wanted = set(every)
    found = cache.find(about, wanted)
    done = len(wanted & found.rows.keys())
    if done < len(wanted):
        writer, known = OutputWriter(cache, about, np.dtype(precision)), set(found.rows)
        for (items, root), each in zip(sources, contents, strict=True):
            # Of items with equal content, one.
            rows = {content: row for row, content in enumerate(each) if content not in known}
            known |= rows.keys()
            if not rows:
                continue
            for encoded, sharing in _run(branch, items, root, sorted(rows.values()), device=device):
                _add(writer, encoded, [[each[row] for row in few] for few in sharing], left=len(wanted) - done)
                done += sum(map(len, sharing))
                if progress is not None:
                    progress(len(every) * done // len(wanted))
        writer.flush()
        found = cache.find(about, wanted)
    if missing := [name for name, content in zip(names, every, strict=True) if content not in found.rows]:
        raise OutputError(
            f"{cache.folder} needs the outputs that were just written to it; that of '{missing[0]}' is gone; another "
            "process removes them; do it again, or name another folder"
        )
    rows_of = {name: found.rows[content] for name, content in zip(names, every, strict=True)}
    reading = CachedInput(key_of(about), found, rows_of)
    return Branch(reading, CachedEncoder(branch.encoder), branch.head).train(branch.training)


def item_contents(branch: Branch, items: Items, root: Path) -> list[bytes]:
    """The digests by which the cache knows items, and an index as well.

    Args:
        branch: Reads them as images or as texts.
        items: N items.
        root: Folder of relative image paths.

    Returns:
        (N) digests.

    Raises:
        DataError: If an item has no value, or its image cannot be read.
    """
    spec, digests = branch.input_spec, []
    # An Input of an extension may read an item by its name as well.
    known = isinstance(spec, PixelInput | SubwordInput | OpenClipInput | WordInput)
    for name, value in zip(items.ids, items.values, strict=True):
        try:
            content = _content(value, root, pixels=isinstance(spec, PixelInput), named=not known)
            digests.append(content_digest(content if known else f"{name}\0".encode() + content))
        except DataError as error:
            raise DataError(f"item '{name}': {error}") from error
    return digests


def _content(value: Any, root: Path, *, pixels: bool, named: bool) -> bytes:
    if isinstance(value, str):
        is_file = pixels or (named and image_exists(value, root))
        return read_bytes(value, root) if is_file else value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, ReadImage):
        return value.fingerprint.encode() + value.pixels.tobytes()
    if isinstance(value, Image.Image):
        return repr((value.mode, value.size)).encode() + value.tobytes()
    if isinstance(value, np.ndarray):
        return repr((value.shape, str(value.dtype))).encode() + value.tobytes()
    if value is None and named:
        return b""
    raise DataError("it has a name alone; read it from features, or give its image or text")


class CachedInput:
    """Items -> the cached outputs of an encoder, by id: "parts" (N P E) with "mask" (N P), and "pooled" (N G).

    Args:
        key: Of the encoder in the cache.
        found: Where the outputs are.
        rows: Id -> segment, and output in it.
    """

    augments = False

    def __init__(self, key: str, found: CachedOutputs, rows: Mapping[str, tuple[int, int]]) -> None:
        self.fingerprint = key
        self._segments, self._rows = found.segments, rows

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """The encoder's outputs for a batch.

        Args:
            batch: N items.
            draw: Not read.

        Returns:
            "parts" (N P E) with "mask" (N P), and "pooled" (N G), float32; and "ids" (N).

        Raises:
            DataError: If an item is not among those that the cache was asked for.
        """
        missing = [name for name in batch.ids if name not in self._rows]
        if missing:
            raise DataError(f"cached outputs need every item; there is none of '{missing[0]}'; run the encoder on it")
        tensors = {"ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}
        places = np.array([self._rows[name] for name in batch.ids], dtype=np.int64).reshape(-1, 2)
        chosen = [(segment, np.flatnonzero(places[:, 0] == number)) for number, segment in enumerate(self._segments)]
        chosen = [(segment, rows) for segment, rows in chosen if len(rows)]
        first = self._segments[0]
        if first.pooled is not None:
            pooled = np.empty((len(places), first.pooled.shape[1]), dtype=np.float32)
            for segment, rows in chosen:
                assert segment.pooled is not None
                pooled[rows] = segment.pooled[places[rows, 1]]
            tensors["pooled"] = torch.from_numpy(pooled)
        if first.parts is not None:
            lengths = np.zeros(len(places), dtype=np.int64)
            for segment, rows in chosen:
                lengths[rows] = segment.lengths[places[rows, 1]]
            padded = np.zeros((len(places), int(lengths.max()), first.parts.shape[1]), dtype=np.float32)
            for segment, rows in chosen:
                for row in rows:
                    parts, _ = segment.output(int(places[row, 1]))
                    assert parts is not None
                    padded[row, : len(parts)] = parts
            tensors["parts"] = torch.from_numpy(padded)
            if first.masked:
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
    """Replaces an encoder: passes on what a CachedInput read, by what follows its network. It has no weights.

    Args:
        encoder: The encoder that it replaces.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.parts_width = getattr(encoder, "parts_width", None)
        self.pooled_width = getattr(encoder, "pooled_width", None)
        self._finish: Callable[[Encoded], Encoded] | None = getattr(encoder, "finish", None)

    def forward(self, inputs: Tensors) -> Encoded:
        """The cached outputs.

        Args:
            inputs: As CachedInput returns them.

        Returns:
            Encoded as the encoder gives it, with the fields that were cached.
        """
        encoded = Encoded(parts=inputs.get("parts"), mask=inputs.get("mask"), pooled=inputs.get("pooled"))
        return encoded if self._finish is None else self._finish(encoded)


def _run(
    branch: Branch, items: Items, root: Path, rows: Sequence[int], *, device: torch.device
) -> Iterator[tuple[Encoded, list[list[int]]]]:
    """Outputs of M items at a time, on the CPU, and the rows that share each."""
    run: Callable[[Tensors], Encoded] = getattr(branch.encoder, "run_body", branch.encoder)
    size = _BLOCK if device.type == "cpu" else _BLOCK_OF_GPU
    chosen = np.array(rows, dtype=np.int64)
    blocks = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    sharing = {row: [row] for row in rows}
    if isinstance(branch.input_spec, SubwordInput):
        order, positions = branch.input_spec.distinct(item_batch(items, chosen, root))
        sharing = {int(chosen[row]): [] for row in order}
        for row, position in zip(rows, positions, strict=True):
            sharing[int(chosen[order[position]])].append(row)
        lengths = branch.input_spec.codes([str(items.values[row]) for row in chosen[order]])[1].sum(axis=1)
        blocks = []
        for length in np.unique(lengths):
            alike = chosen[order[lengths == length]]
            blocks += [alike[start : start + size] for start in range(0, len(alike), size)]

    # An encoder that computes large images one by one needs no others beside them.
    alone = getattr(branch.encoder, "alone_from", None)
    fills = device.type == "cpu" and (alone is None or getattr(branch.input_spec, "size", 0) < alone)

    def encode(block: NDArray[np.int64]) -> Encoded:
        full = np.concatenate([block, np.repeat(block[-1:], size - len(block))]) if fills else block
        batch = item_batch(items, full, root)
        with torch.inference_mode():
            encoded = run({name: value.to(device) for name, value in branch.input_spec(batch).items()})
        return _first(encoded, len(block))

    was_training, threads = branch.encoder.training, torch.get_num_threads()
    lanes = min(_LANES, threads) if device.type == "cpu" else 0
    branch.encoder.eval()
    try:
        torch.set_num_threads(max(1, threads // max(lanes, 1)))
        for block, encoded in zip(blocks, read_ahead(blocks, encode, workers=lanes), strict=True):
            yield encoded, [sharing[int(row)] for row in block]
    finally:
        torch.set_num_threads(threads)
        branch.encoder.train(was_training)


def _first(encoded: Encoded, count: int) -> Encoded:
    parts, mask, pooled = (
        None if value is None else value[:count].cpu() for value in (encoded.parts, encoded.mask, encoded.pooled)
    )
    return Encoded(parts=parts, mask=mask, pooled=pooled)


def _add(writer: OutputWriter, encoded: Encoded, contents: Sequence[Sequence[bytes]], *, left: int) -> None:
    """Hand the outputs that are kept to the writer."""
    fields, largest = writer.about["fields"], float(np.finfo(writer.dtype).max)
    kept = {name: getattr(encoded, name) for name in ("parts", "pooled") if name in fields}
    for values in kept.values():
        if values is not None and writer.dtype != np.float32 and bool((values.abs() > largest).any()):
            raise DataError(
                f"caching as {writer.dtype} needs outputs within +-{largest:,.0f}; this encoder gives larger ones; "
                "cache as float32"
            )
    parts, pooled = kept.get("parts"), kept.get("pooled")
    rows = None
    if parts is not None:
        masks: Sequence[Tensor | None] = [None] * len(parts) if encoded.mask is None else list(encoded.mask)
        rows = [(each if mask is None else each[mask]).float().numpy() for each, mask in zip(parts, masks, strict=True)]
    vectors = None if pooled is None else pooled.float().numpy()
    writer.add(contents, rows, vectors, left=left, masked=encoded.mask is not None)


def _about(branch: Branch, precision: Precision) -> dict[str, Any]:
    """What the key of an encoder is a hash of."""
    encoder: Any = branch.encoder
    plain = (str, bool, int, float, tuple, type(None))
    if hasattr(encoder, "run_body"):
        # What follows the body is not cached: encoders that share a body share its outputs.
        encoder, settings = encoder.body, {}
    else:
        # Weights and modules do not show which vector is pooled, or how a backbone is configured.
        settings = {
            name: repr(value)
            for name, value in vars(encoder).items()
            if isinstance(value, plain) and not name.startswith("_") and name not in _OF_TRAINING
        }
    config = next((module.config for module in encoder.modules() if hasattr(module, "config")), None)
    return {
        "weights": fingerprint(encoder.state_dict()),
        "encoder": f"{type(encoder).__qualname__} {encoder}",
        "settings": settings if config is None else {**settings, "config": str(config)},
        "input": branch.input_spec.fingerprint,
        "fields": sorted(getattr(branch.head, "inputs", ("parts", "pooled"))),
        "precision": precision,
    }
