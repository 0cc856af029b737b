"""Texts as the models of `open_clip` read them (extra: encoders)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from subtext.data.inputs import Batch, Draw, Tensors
from subtext.data.settings import read_settings, settings_hash, write_settings
from subtext.errors import DataError, RequirementError

_FILE = "open_clip.json"


@dataclass(frozen=True)
class OpenClipInput:
    """Texts -> "tokens" (N L) int64, "mask" (N L) bool and "ids", L the architecture's own length.

    architecture  "ViT-B-32", as open_clip.list_models() names them; it brings its own tokeniser
    """

    architecture: str

    @property
    def augments(self) -> bool:
        """Never."""
        return False

    @property
    def fingerprint(self) -> str:
        """Changes with the architecture."""
        return settings_hash({"kind": "open_clip", "architecture": self.architecture})

    @cached_property
    def max_tokens(self) -> int:
        """How many tokens the architecture takes, its marks with them; longer texts are cut. Raises as `tokens`."""
        return self.tokens(["a"]).shape[1]

    def tokens(self, texts: Sequence[str], *, room: int | None = None) -> Tensor:
        """(N L) int64, filled up behind each text's last token. Raises RequirementError without open_clip.

        room  L; the architecture's own by default
        """
        try:
            import open_clip
        except (ImportError, RuntimeError, OSError) as error:
            raise RequirementError(
                f"texts for {self.architecture} need the package open_clip_torch; importing it failed: {error}; "
                "install subtext[encoders], with the torchvision that belongs to this torch"
            ) from error
        read = open_clip.get_tokenizer(self.architecture)
        found: Tensor = read(list(texts)) if room is None else read(list(texts), context_length=room)
        return found.to(torch.int64)

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The tokens of a batch. Raises DataError when an item has no text, RequirementError without open_clip."""
        wrong = [name for name, value in zip(batch.ids, batch.values, strict=True) if not isinstance(value, str)]
        if wrong:
            raise DataError(f"item '{wrong[0]}' needs a text; it has none; give its words")
        tokens = self.tokens(batch.values)
        return {"tokens": tokens, "mask": tokens != 0, "ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}

    def save(self, folder: Path) -> None:
        """Write the architecture's name."""
        write_settings(folder / _FILE, {"architecture": self.architecture})

    @staticmethod
    def load(folder: Path) -> OpenClipInput:
        """What `save` wrote."""
        return OpenClipInput(**read_settings(folder / _FILE, ("architecture",)))
