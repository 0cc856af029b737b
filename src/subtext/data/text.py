"""Texts as what an encoder reads: words of the project's own vocabulary, or a transformers tokeniser's subwords.

Texts as the models of `open_clip` read them (extra: encoders).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.inputs import Batch, Draw, Tensors
from subtext.data.settings import read_settings, settings_hash, write_settings
from subtext.data.vocabulary import END, START, UNKNOWN, Vocabulary
from subtext.data.words import tokenise
from subtext.errors import CheckpointError, DataError, RequirementError
from subtext.ops import draw as draws

__all__ = ["SubwordInput", "Vocabulary", "WordInput", "tokenise"]

_WORDS = "words.json"
_SUBWORDS = "subwords.json"
_TOKENISER = "tokeniser"


@dataclass(frozen=True)
class WordInput:
    """Texts -> "tokens" (N L) int64, "mask" (N L) bool, True where a token is, and "ids"; L is the batch's longest.

    vocabulary  which words have an embedding of their own
    max_tokens  longer texts are cut; counts the start and end marks, which every text has
    word_drop   while training: share of words left out, in [0, 1); a text that has words keeps one
    token_mask  while training: share of words replaced by the unknown word, in [0, 1)
    """

    vocabulary: Vocabulary
    max_tokens: int = 64
    word_drop: float = 0.0
    token_mask: float = 0.0

    def __post_init__(self) -> None:
        if self.max_tokens < 3:
            raise DataError(f"max_tokens needs room for the marks and a word, 3 or more; it got {self.max_tokens}")
        _share("word_drop", self.word_drop)
        _share("token_mask", self.token_mask)

    @property
    def augments(self) -> bool:
        """Whether words are dropped or masked while training."""
        return self.word_drop > 0 or self.token_mask > 0

    @property
    def fingerprint(self) -> str:
        """Changes with the vocabulary and the longest length."""
        return settings_hash({"kind": "words", "tokens": self.vocabulary.tokens, "max_tokens": self.max_tokens})

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The tokens of a batch. Raises DataError when an item has no text."""
        encoded = [self.vocabulary.encode(tokenise(text)) for text in _texts(batch)]
        if draw is not None and self.augments:
            encoded = self._changed(encoded, batch, draw)
        rows = [[START, *codes[: self.max_tokens - 2], END] for codes in encoded]
        tokens = np.zeros((len(rows), max(map(len, rows), default=2)), dtype=np.int64)
        mask = np.zeros(tokens.shape, dtype=bool)
        for index, row in enumerate(rows):
            tokens[index, : len(row)] = row
            mask[index, : len(row)] = True
        return _tensors(tokens, mask, batch)

    def save(self, folder: Path) -> None:
        """Write the vocabulary and the settings."""
        self.vocabulary.save(folder)
        names = ("max_tokens", "word_drop", "token_mask")
        write_settings(folder / _WORDS, {name: getattr(self, name) for name in names})

    @staticmethod
    def load(folder: Path) -> WordInput:
        """What `save` wrote."""
        values = read_settings(folder / _WORDS, ("max_tokens", "word_drop", "token_mask"))
        return WordInput(Vocabulary.load(folder), **values)

    def _changed(self, encoded: list[list[int]], batch: Batch, draw: Draw) -> list[list[int]]:
        longest = max(map(len, encoded), default=0)
        drops, masks = (
            draws.uniform(batch.keys, seed=draw.seed, epoch=draw.epoch, purpose=purpose, count=longest)
            for purpose in ("word drop", "token mask")
        )
        changed = []
        for index, codes in enumerate(encoded):
            length = len(codes)
            retained = drops[index, :length] >= self.word_drop
            if length and not retained.any():
                retained[drops[index, :length].argmax()] = True
            hidden = np.where(masks[index, :length] < self.token_mask, UNKNOWN, np.asarray(codes, dtype=np.int64))
            changed.append(hidden[retained].tolist())
        return changed


@dataclass(frozen=True)
class SubwordInput:
    """Texts -> "tokens" and "mask" as WordInput gives them, through a tokeniser of transformers.

    tokeniser   a fast or slow tokeniser, already loaded; a folder of `save` holds a copy
    max_tokens  longer texts are cut; counts the tokeniser's own marks
    token_mask  while training: share of tokens replaced by the mask token (or the unknown token), in [0, 1); marks stay
    padding     "longest" of the batch, or "max": every text to max_tokens, which SigLIP was trained with
    """

    tokeniser: Any
    max_tokens: int = 64
    token_mask: float = 0.0
    padding: Literal["longest", "max"] = "longest"

    def __post_init__(self) -> None:
        if self.max_tokens < 3:
            raise DataError(f"max_tokens needs room for the marks and a word, 3 or more; it got {self.max_tokens}")
        _share("token_mask", self.token_mask)
        if self.token_mask and self._mask_code is None:
            raise DataError(
                "token_mask needs a tokeniser with a mask or unknown token; this one has neither; set it to 0"
            )

    @property
    def augments(self) -> bool:
        """Whether tokens are masked while training."""
        return self.token_mask > 0

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the tokeniser's vocabulary and normalisation, the longest length and the padding."""
        backend = getattr(self.tokeniser, "backend_tokenizer", None)
        rules = _rules(backend) if backend is not None else sorted(self.tokeniser.get_vocab().items())
        return settings_hash({"kind": "subwords", "rules": rules, "max": self.max_tokens, "padding": self.padding})

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The tokens of a batch. Raises DataError when an item has no text."""
        coded = self.tokeniser(
            _texts(batch), truncation=True, max_length=self.max_tokens, return_special_tokens_mask=True
        )
        rows, marks = coded["input_ids"], coded["special_tokens_mask"]
        length = self.max_tokens if self.padding == "max" else max(1, max(map(len, rows), default=1))
        fill = self.tokeniser.pad_token_id
        tokens = np.full((len(rows), length), 0 if fill is None else fill, dtype=np.int64)
        mask = np.zeros(tokens.shape, dtype=bool)
        special = np.ones(tokens.shape, dtype=bool)
        for index, row in enumerate(rows):
            tokens[index, : len(row)] = row
            mask[index, : max(1, len(row))] = True
            special[index, : len(row)] = np.asarray(marks[index], dtype=bool)
        if draw is not None and self.token_mask:
            uniforms = draws.uniform(
                batch.keys, seed=draw.seed, epoch=draw.epoch, purpose="token mask", count=tokens.shape[1]
            )
            tokens = np.where((uniforms < self.token_mask) & ~special, self._mask_code or 0, tokens)
        return _tensors(tokens, mask, batch)

    def save(self, folder: Path) -> None:
        """Write the tokeniser as transformers does, and the settings."""
        folder.mkdir(parents=True, exist_ok=True)
        self.tokeniser.save_pretrained(folder / _TOKENISER)
        names = ("max_tokens", "token_mask", "padding")
        write_settings(folder / _SUBWORDS, {name: getattr(self, name) for name in names})

    @staticmethod
    def load(folder: Path) -> SubwordInput:
        """What `save` wrote; nothing is fetched. Raises CheckpointError when the tokeniser cannot be read."""
        from transformers import AutoTokenizer

        values = read_settings(folder / _SUBWORDS, ("max_tokens", "token_mask", "padding"))
        try:
            tokeniser = AutoTokenizer.from_pretrained(folder / _TOKENISER, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{folder / _TOKENISER} needs a tokeniser that transformers reads; {error}"
            ) from error
        return SubwordInput(tokeniser, **values)

    @property
    def _mask_code(self) -> int | None:
        code: int | None = self.tokeniser.mask_token_id
        return self.tokeniser.unk_token_id if code is None else code


def _rules(backend: Any) -> dict[str, Any]:
    """What a fast tokeniser does to a text, without the cutting and padding that its last call left behind in it."""
    rules: dict[str, Any] = json.loads(backend.to_str())
    return {name: value for name, value in rules.items() if name not in ("truncation", "padding")}


def _texts(batch: Batch) -> list[str]:
    for name, value in zip(batch.ids, batch.values, strict=True):
        if not isinstance(value, str):
            type_name = "none" if value is None else type(value).__name__
            raise DataError(f"item '{name}' needs a text; it got {type_name}; read features, or give its words")
    return list(batch.values)


def _tensors(tokens: NDArray[np.int64], mask: NDArray[np.bool_], batch: Batch) -> Tensors:
    ids = torch.from_numpy(np.ascontiguousarray(batch.rows))
    return {"tokens": torch.from_numpy(tokens), "mask": torch.from_numpy(mask), "ids": ids}


def _share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise DataError(f"{name} is a share in [0, 1); it got {value}")


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
        token_ids: Tensor = read(list(texts)) if room is None else read(list(texts), context_length=room)
        return token_ids.to(torch.int64)

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
