"""Texts as what an encoder reads: words of the project's own vocabulary, or a transformers tokeniser's subwords.

Texts as the models of `open_clip` read them (extra: encoders).

The words that have an embedding of their own.

Texts longer than a model takes: how many there are, and a sentence that tells of them before their ends are cut.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.inputs import Batch, Draw, Input, Tensors, read_json, read_settings, settings_hash, write_settings
from subtext.data.words import tokenise
from subtext.errors import CheckpointError, DataError, RequirementError, counted
from subtext.ops import draw as draws

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Codes of the marks; words begin at 4."""

MARKS = ("<pad>", "<start>", "<end>", "<unknown>")

_VOCABULARY = "vocabulary.json"


@dataclass(frozen=True)
class Vocabulary:
    """Words and their codes.

    tokens  the four marks (pad, start, end, unknown), then words; a token's code is its place
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tokens[: len(MARKS)] != MARKS:
            raise DataError(f"a vocabulary needs to begin with {', '.join(MARKS)}; it begins with {self.tokens[:4]}")
        if len(self._codes) != len(self.tokens):
            raise DataError(f"a vocabulary needs words that differ; {len(self.tokens) - len(self._codes)} come again")

    @staticmethod
    def build(texts: Iterable[str], *, min_count: int = 1, largest: int | None = None) -> Vocabulary:
        """The words of the training texts, most frequent first, equally frequent ones in the order of their letters.

        min_count  words seen less often are unknown        largest  keep this many words at most

        Raises DataError when no word is left.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenise(text))
        words = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise DataError(
                f"a vocabulary needs a word that is seen {min_count} times or more in the training texts; of "
                f"{len(counts)} words none is; give texts, or lower min_count"
            )
        return Vocabulary((*MARKS, *words[:largest]))

    def __len__(self) -> int:
        """How many tokens, marks included."""
        return len(self.tokens)

    def encode(self, words: Sequence[str]) -> list[int]:
        """A code a word; UNKNOWN for a word that is not in the vocabulary. No marks are added."""
        codes = self._codes
        return [codes.get(word, UNKNOWN) for word in words]

    def save(self, folder: Path) -> None:
        """Write vocabulary.json, a JSON list."""
        write_settings(folder / _VOCABULARY, list(self.tokens))

    @staticmethod
    def load(folder: Path) -> Vocabulary:
        """What `save` wrote. Raises CheckpointError when it is missing or damaged."""
        tokens = read_json(folder / _VOCABULARY)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{folder / _VOCABULARY} needs a JSON list of words; it is damaged, or another file")
        return Vocabulary(tuple(tokens))

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {token: code for code, token in enumerate(self.tokens)}


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


_OPEN_CLIP = "open_clip.json"


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
        write_settings(folder / _OPEN_CLIP, {"architecture": self.architecture})

    @staticmethod
    def load(folder: Path) -> OpenClipInput:
        """What `save` wrote."""
        return OpenClipInput(**read_settings(folder / _OPEN_CLIP, ("architecture",)))


_MARKS = 2
"""Places that the start and end marks take."""


def too_long(input_spec: Input, texts: Iterable[object]) -> int:
    """How many texts lose their end when they are read; 0 for an input of which that is not known.

    Cost   splitting into words the texts that have more characters than the model takes tokens, and no others.
    """
    if isinstance(input_spec, WordInput):
        room = input_spec.max_tokens - _MARKS
        return sum(len(tokenise(text)) > room for text in texts if isinstance(text, str) and len(text) > room)
    if isinstance(input_spec, SubwordInput):
        # A subword has a byte or more.
        long = _longer(texts, than=input_spec.max_tokens - _MARKS)
        encoded = input_spec.tokeniser(long, truncation=False, verbose=False)["input_ids"] if long else []
        return sum(len(codes) > input_spec.max_tokens for codes in encoded)
    if isinstance(input_spec, OpenClipInput):
        # Half of the room, since cleaning may add to a text.
        return _too_long(input_spec, _longer(texts, than=input_spec.max_tokens // 2))
    return 0


def word_counts(texts: Iterable[object]) -> NDArray[np.int64]:
    """(T) words of each text; 0 of what is no text.

    >>> word_counts(["two dogs run", None]).tolist()
    [3, 0]
    """
    return np.array([len(tokenise(text)) if isinstance(text, str) else 0 for text in texts], dtype=np.int64)


def _longer(texts: Iterable[object], *, than: int) -> list[str]:
    """The texts of more than so many bytes."""
    return [text for text in texts if isinstance(text, str) and len(text.encode("utf-8", "replace")) > than]


def _too_long(input_spec: OpenClipInput, texts: list[str]) -> int:
    """How many texts have another token where there is room for one more: what reads them only says what is left."""
    if not texts:
        return 0
    tokens, wider = (
        input_spec.tokens(["", *texts], room=room) for room in (input_spec.max_tokens, input_spec.max_tokens + 1)
    )
    # What nothing is filled up with, behind its marks; of some tokenisers the last place is a mark, too.
    filled = (tokens != tokens[0, -2]).sum(dim=1), (wider != wider[0, -2]).sum(dim=1)
    return int((filled[1] > filled[0]).sum())


def cut_note(input_spec: Input, texts: Iterable[object], *, of: str = "text") -> str | None:
    """A sentence on texts that are cut; None where all are read to their end.

    of  what one of them is called
    """
    every = list(texts)
    cut = too_long(input_spec, every)
    if not cut:
        return None
    assert isinstance(input_spec, WordInput | SubwordInput | OpenClipInput)
    option = "" if isinstance(input_spec, OpenClipInput) else " (--max-tokens when it is trained)"
    return (
        f"{counted(cut, of)} of {len(every):,} {'is' if cut == 1 else 'are'} longer than the {input_spec.max_tokens} "
        f"tokens that the model takes{option}: what is beyond is not read"
    )
