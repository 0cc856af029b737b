"""Inputs of towers that are given as objects: a function's own vectors, the tokens of any tokeniser, or plain texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.inputs import Draw, InputBatch, Tensors, read_settings, settings_hash, write_settings
from subtext.data.pixels import PixelInput
from subtext.errors import OF_OBJECTS, DataError, RequirementError

FILE = "object.json"
TOKENS, STRINGS = "given.", "strings"
"""Begins the names of what a tokeniser returns; the name of texts as bytes."""


def name_of(given: object) -> str:
    """A name for an object, for records and messages.

    Args:
        given: A module or a function.

    Returns:
        The name of its class, or its own.
    """
    return str(getattr(given, "__qualname__", type(given).__qualname__)).replace("<locals>.", "")


def required_objects(folder: Path) -> dict[str, str]:
    """The objects that the saved assets of a modality need.

    Args:
        folder: Of the assets.

    Returns:
        Option -> name of the object; empty where a run needs none.
    """
    if not (folder / FILE).is_file():
        return {}
    return dict(read_settings(folder / FILE, ("objects",))["objects"])


@dataclass(frozen=True)
class CallableInput:
    """Items -> "pooled" (N D), or "grid" (N P D) with "mask", by a function: it has no weights and never learns.

    Args:
        modality: "image" or "text", for messages.
        function: Gets a list of PIL images, or of texts; returns an array or a tensor. It is called by one thread at a
            time.

    Attributes:
        augments: False: the function returns the same for the same items.
    """

    modality: Literal["image", "text"]
    function: Callable[[list[Any]], Any]
    _turn: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    augments = False

    @property
    def fingerprint(self) -> str:
        """Changes with the name of the function alone: what it does is not known."""
        return settings_hash({"kind": "function", "name": name_of(self.function)})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Call the function on the items of a batch.

        Args:
            batch: N items.
            draw: Not used.

        Returns:
            "ids" (N), and "pooled" (N D) or "grid" (N P D) with "mask" (N P).

        Raises:
            DataError: If it returns something else, or numbers that are not finite.
        """
        import torch

        array = self.vectors(batch.values, batch.root)
        name = "pooled" if array.ndim == 2 else "grid"
        tensors = {"ids": torch.from_numpy(np.ascontiguousarray(batch.rows)), name: torch.from_numpy(array)}
        if name == "grid":
            tensors["mask"] = torch.ones(array.shape[:2], dtype=torch.bool)
        return tensors

    def vectors(self, values: Sequence[Any], root: Path) -> NDArray[np.float32]:
        """The vectors of items.

        Args:
            values: N images or texts.
            root: Folder of relative image paths.

        Returns:
            (N D) or (N P D).

        Raises:
            DataError: If the function returns something else, or numbers that are not finite.
        """
        from subtext.data.image_files import open_image
        from subtext.data.objects import to_array

        items = [open_image(value, root) for value in values] if self.modality == "image" else _strings(values)
        try:
            with self._turn:
                returned = self.function(items)
        except OF_OBJECTS as error:
            kind = "PIL images" if self.modality == "image" else "texts"
            raise DataError(
                f"{self.modality}={name_of(self.function)} needs to map a list of {len(items)} {kind} to vectors; it "
                f"raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]:.160}"
            ) from error
        array = np.asarray(to_array(returned, f"what {name_of(self.function)} returns"))
        if array.ndim not in (2, 3) or len(array) != len(items) or array.dtype.kind not in "fiu":
            raise DataError(
                f"{self.modality}={name_of(self.function)} needs to return (N, D) or (N, P, D) numbers for a list of N "
                f"{self.modality}s; for {len(items)} it returned {array.dtype} of shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise DataError(f"{self.modality}={name_of(self.function)} needs to return finite numbers; some are not")
        return np.ascontiguousarray(array, dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write the name of the function; the function itself is given again when the run is opened.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / FILE, {"objects": {self.modality: name_of(self.function)}})


@dataclass(frozen=True)
class GivenPixels(PixelInput):
    """Images -> "pixels" for a module that is given as an object.

    Args:
        name: Of the module.
    """

    name: str = ""

    def save(self, folder: Path) -> None:
        """Write the settings, and the name of the module, which is given again when the run is opened.

        Args:
            folder: Existing folder to write to.
        """
        super().save(folder)
        write_settings(folder / FILE, {"objects": {"image": self.name}})


@dataclass(frozen=True)
class TokenInput:
    """Texts -> what a tokeniser makes of them, or the texts themselves, for a module that is given as an object.

    Args:
        name: Of the module.
        tokeniser: Gets a list of texts; returns an array or tensor (N L), lists of numbers, or a mapping of these, as
            tokenisers of transformers do. None for a module that reads texts.
        max_tokens: Longer texts are cut.

    Attributes:
        augments: False.
    """

    name: str
    tokeniser: Callable[..., Any] | None = None
    max_tokens: int = 64
    augments = False

    @property
    def fingerprint(self) -> str:
        """Changes with the names of the objects and the length."""
        tokeniser = None if self.tokeniser is None else name_of(self.tokeniser)
        return settings_hash({"kind": "given tokens", "tokeniser": tokeniser, "max": self.max_tokens})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Tokenise the texts of a batch.

        Args:
            batch: N texts.
            draw: Not used.

        Returns:
            "ids" (N); and "given." + name (N L) of what the tokeniser returned, "strings" (N B) bytes without one.

        Raises:
            DataError: If an item has no text, or the tokeniser returns something else.
        """
        import torch

        texts = _strings(batch.values)
        tensors = {"ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}
        if self.tokeniser is None:
            coded = [text.encode("utf-8") for text in texts]
            table = np.zeros((len(coded), max(map(len, coded)) + 1), dtype=np.uint8)
            for row, text in enumerate(coded):
                table[row, : len(text)] = np.frombuffer(text, np.uint8)
            return {**tensors, STRINGS: torch.from_numpy(table)}
        more = {"truncation": True, "max_length": self.max_tokens} if hasattr(self.tokeniser, "pad_token_id") else {}
        result = self.tokeniser(texts, **more)
        parts = dict(result) if isinstance(result, Mapping) else {"": result}
        pad = getattr(self.tokeniser, "pad_token_id", None) or 0
        for name, rows in parts.items():
            tensors[f"{TOKENS}{name}"] = torch.from_numpy(self._table(rows, len(texts), pad if "input" in name else 0))
        return tensors

    def _table(self, rows: Any, count: int, pad: int) -> NDArray[np.int64]:
        rows = rows.tolist() if hasattr(rows, "tolist") else rows
        try:
            lists = [[int(code) for code in row][: self.max_tokens] for row in rows]
        except (TypeError, ValueError) as error:
            raise DataError(
                f"tokeniser={name_of(self.tokeniser)} needs to return numbers, (N, L) for a list of N texts; {error}"
            ) from error
        if len(lists) != count:
            raise DataError(
                f"tokeniser={name_of(self.tokeniser)} needs to return a row for each text; for {count} it returned "
                f"{len(lists)}"
            )
        table = np.full((count, max(1, *map(len, lists))), pad, dtype=np.int64)
        for row, codes in enumerate(lists):
            table[row, : len(codes)] = codes
        return table

    def save(self, folder: Path) -> None:
        """Write the names of the objects, which are given again when the run is opened, and the length.

        Args:
            folder: Existing folder to write to.
        """
        objects = {"text": self.name}
        if self.tokeniser is not None:
            objects["tokeniser"] = name_of(self.tokeniser)
        write_settings(folder / FILE, {"objects": objects, "max_tokens": self.max_tokens})


def is_given(input_spec: object) -> bool:
    """Whether an Input belongs to a tower that was given as an object.

    Args:
        input_spec: The Input.

    Returns:
        Whether it does.
    """
    return isinstance(input_spec, CallableInput | TokenInput | GivenPixels)


def saved_length(folder: Path) -> int:
    """The `max_tokens` of a saved `TokenInput`.

    Args:
        folder: Of the assets.

    Returns:
        Number of tokens.
    """
    return int(read_settings(folder / FILE, ("max_tokens",))["max_tokens"])


def _strings(values: Sequence[Any]) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise DataError(f"a text tower needs texts; it got {value!r:.60}")
    return list(values)


def require_callable(option: str, given: object) -> None:
    """Require that an object can be called.

    Args:
        option: "image", "text" or "tokeniser".
        given: The object.

    Raises:
        RequirementError: If it cannot.
    """
    if isinstance(given, type) and option != "tokeniser":
        raise RequirementError(
            f"{option} needs an object; it got the class {given.__name__}; give {given.__name__}(...)"
        )
    if not callable(given):
        kinds = "a tokeniser" if option == "tokeniser" else "a name, a torch module"
        raise RequirementError(f"{option} needs {kinds} or a function; it got {given!r:.60}", field=option)
