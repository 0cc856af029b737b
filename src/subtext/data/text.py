"""Texts as the input of an encoder: words of a vocabulary, subwords of a transformers tokeniser, or open_clip's tokens.

The models of `open_clip` need the extra "encoders".
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.inputs import (
    Draw,
    Input,
    InputBatch,
    SeveralInputs,
    Tensors,
    read_json,
    read_settings,
    settings_hash,
    write_settings,
)
from subtext.data.words import tokenise
from subtext.errors import CheckpointError, DataError, RequirementError, Setting
from subtext.ops import draw as draws
from subtext.text_helpers import counted, install_hint

__all__ = [
    "OpenClipInput",
    "PieceTokeniser",
    "PlainTokeniser",
    "SubwordInput",
    "Vocabulary",
    "WordInput",
    "cut_note",
    "require_words",
    "tokenise",
    "too_long",
]

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Codes of the marks; words begin at 4."""
MARKS = ("<pad>", "<start>", "<end>", "<unknown>")
_VOCABULARY, _COUNTS = "vocabulary.json", "word_counts.json"
_WORDS = "words.json"
_SUBWORDS = "subwords.json"
_SUBWORD_SETTINGS = ("max_tokens", "token_mask", "full_length", "lower", "prompt")
_TOKENISER = "tokeniser"
_OPEN_CLIP = "open_clip.json"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Vocabulary:
    """The words with an embedding of their own, and their codes.

    Attributes:
        tokens: The four marks (pad, start, end, unknown), then words; a token's code is its index.
        counts: Of each word in the training texts.

    Raises:
        DataError: If the tokens do not begin with the marks, or are not unique.
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.tokens[: len(MARKS)] != MARKS:
            raise DataError(f"a vocabulary needs to begin with {', '.join(MARKS)}; it begins with {self.tokens[:4]}")
        if len(self._codes) != len(self.tokens):
            raise DataError(f"a vocabulary needs words that differ; {len(self.tokens) - len(self._codes)} come again")

    @staticmethod
    def build(texts: Iterable[str], *, min_count: int = 1) -> Vocabulary:
        """Collect the words of the training texts: most frequent first, equally frequent ones in alphabetical order.

        Args:
            texts: The training texts.
            min_count: Rarer words are unknown.

        Returns:
            The vocabulary.

        Raises:
            DataError: If no word is left.
        """
        counts = Counter(word for text in texts for word in tokenise(text))
        words = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise DataError(
                f"a vocabulary needs a word that is seen {min_count} times or more in the training texts; of "
                f"{len(counts)} words none is; give texts, or lower ",
                Setting("min_count"),
            )
        return Vocabulary((*MARKS, *words), tuple(counts[word] for word in words))

    def __len__(self) -> int:
        """The number of tokens, marks included."""
        return len(self.tokens)

    def encode(self, words: Sequence[str]) -> list[int]:
        """Encode words. No marks are added.

        Args:
            words: The words.

        Returns:
            A code per word; UNKNOWN for a word that is not in the vocabulary.
        """
        return [self._codes.get(word, UNKNOWN) for word in words]

    def count(self, word: str) -> int:
        """Count the occurrences of a word in the training texts.

        Args:
            word: A word of the vocabulary.

        Returns:
            The number.
        """
        return self.counts[self._codes[word] - len(MARKS)]

    def save(self, folder: Path) -> None:
        """Write vocabulary.json, a JSON list, and the counts beside it.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / _VOCABULARY, list(self.tokens))
        write_settings(folder / _COUNTS, list(self.counts))

    @staticmethod
    def load(folder: Path) -> Vocabulary:
        """Load the vocabulary that `save` wrote.

        Args:
            folder: As `save` wrote it.

        Returns:
            The vocabulary.

        Raises:
            CheckpointError: If it is missing or damaged.
        """
        tokens = read_json(folder / _VOCABULARY)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{folder / _VOCABULARY} needs a JSON list of words; it is damaged, or another file")
        counts = read_json(folder / _COUNTS)
        numbers = isinstance(counts, list) and all(isinstance(count, int) for count in counts)
        if not numbers or len(counts) != len(tokens) - len(MARKS):
            raise CheckpointError(f"{folder / _COUNTS} needs a number for each word; it is damaged, or another file")
        return Vocabulary(tuple(tokens), tuple(counts))

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {token: code for code, token in enumerate(self.tokens)}


@dataclass(frozen=True)
class WordInput:
    """Texts -> "tokens" (N L) int64, "mask" (N L) bool, True where a token is, and "ids"; L is the batch's longest.

    Args:
        vocabulary: The words with an embedding of their own.
        max_tokens: Longer texts are cut; it counts the start and end marks, which every text has.
        word_drop: While training: share of words left out, in [0, 1); a text that has words keeps one.
        token_mask: While training: share of words replaced by the unknown word, in [0, 1).
    """

    vocabulary: Vocabulary
    max_tokens: int = 64
    word_drop: float = 0.0
    token_mask: float = 0.0

    def __post_init__(self) -> None:
        _require_settings(self.max_tokens, {"word_drop": self.word_drop, "token_mask": self.token_mask})

    @property
    def augments(self) -> bool:
        """Whether words are dropped or masked while training."""
        return self.word_drop > 0 or self.token_mask > 0

    @property
    def fingerprint(self) -> str:
        """Changes with the vocabulary and the longest length."""
        return settings_hash({"kind": "words", "tokens": self.vocabulary.tokens, "max_tokens": self.max_tokens})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Tokenise the texts of a batch.

        Args:
            batch: N texts.
            draw: Seed and epoch of masked tokens; None outside of training.

        Returns:
            "tokens" (N L) int64, "mask" (N L) bool and "ids" (N).

        Raises:
            DataError: If an item has no text.
        """
        encoded = [self.vocabulary.encode(tokenise(text)) for text in _texts(batch)]
        if draw is not None and self.augments:
            longest = max([1, *map(len, encoded)])
            drops, masks = (
                draws.uniform(batch.keys, seed=draw.seed, epoch=draw.epoch, purpose=purpose, count=longest)
                for purpose in ("token dropout", "token mask")
            )
            codes, present = _table(encoded, longest, empty=0)
            retained = present & (drops >= self.word_drop)
            bare = np.flatnonzero(present.any(axis=1) & ~retained.any(axis=1))
            retained[bare, np.where(present[bare], drops[bare], -1).argmax(axis=1)] = True
            codes[masks < self.token_mask] = UNKNOWN
            encoded = [row[kept].tolist() for row, kept in zip(codes, retained, strict=True)]
        return _tensors(*self._table(encoded), batch)

    def codes(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokenise texts.

        Args:
            texts: (N) texts.

        Returns:
            (N L) int64 tokens and (N L) bool mask.
        """
        return self._table([self.vocabulary.encode(tokenise(text)) for text in texts])

    def _table(self, encoded: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        rows = [[START, *codes[: self.max_tokens - 2], END] for codes in encoded]
        return _table(rows, max(map(len, rows), default=2))

    def save(self, folder: Path) -> None:
        """Write the vocabulary and the settings.

        Args:
            folder: Existing folder to write to.
        """
        self.vocabulary.save(folder)
        settings = {"max_tokens": self.max_tokens, "word_drop": self.word_drop, "token_mask": self.token_mask}
        write_settings(folder / _WORDS, settings)

    @staticmethod
    def load(folder: Path) -> WordInput:
        """Load the Input that `save` wrote.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.
        """
        settings = read_settings(folder / _WORDS, ("max_tokens", "word_drop", "token_mask"))
        return WordInput(Vocabulary.load(folder), **settings)


@dataclass(frozen=True)
class SubwordInput:
    """Texts -> "tokens" and "mask" as from WordInput, by a tokeniser of transformers.

    Args:
        tokeniser: A fast or slow tokeniser, already loaded; a folder of `save` holds a copy.
        max_tokens: Longer texts are cut; it counts the tokeniser's own marks.
        token_mask: While training: share of tokens replaced by the mask token (or the unknown token), in [0, 1); marks
            stay.
        full_length: L of every batch, max_tokens or more, where a model learnt with texts of one length (SigLIP); 0
            for the batch's longest text.
        lower: Whether capitals become small letters first, for a model that learnt without capitals (SigLIP 2).
        prompt: Words around every text, with {} in its place, such as "a photo of {}"; "" for none.
        note: What the model's files do not say, for people who use it; it is not saved.

    Raises:
        DataError: If `token_mask` needs a token that the tokeniser lacks.
    """

    tokeniser: Any
    max_tokens: int = 64
    token_mask: float = 0.0
    full_length: int = 0
    lower: bool = False
    prompt: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _require_settings(self.max_tokens, {"token_mask": self.token_mask})
        if self.token_mask and self._mask_code is None:
            raise DataError(
                "token_mask needs a tokeniser with a mask or unknown token; this one has neither; set it to 0",
                field="token_mask",
            )

    @property
    def augments(self) -> bool:
        """Whether tokens are masked while training."""
        return self.token_mask > 0

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the tokeniser's vocabulary and normalisation, its padding token, lengths, case and prompt."""
        backend = getattr(self.tokeniser, "backend_tokenizer", None)
        if backend is None:
            rules: Any = sorted(self.tokeniser.get_vocab().items())
        else:
            # Truncation and padding are settings of the tokeniser's last call.
            content = json.loads(backend.to_str())
            rules = {name: value for name, value in content.items() if name not in ("truncation", "padding")}
        form = {"max": self.max_tokens, "full": self.full_length, "lower": self.lower, "prompt": self.prompt}
        return settings_hash({"kind": "subwords", "rules": rules, "padding": self._pad_code, **form})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Tokenise the texts of a batch.

        Args:
            batch: N texts.
            draw: Seed and epoch of masked tokens; None outside of training.

        Returns:
            "tokens" (N L) int64, "mask" (N L) bool and "ids" (N).

        Raises:
            DataError: If an item has no text.
        """
        encoded, tokens, mask = self._encoded(_texts(batch))
        if draw is not None and self.token_mask:
            special, _ = _table(encoded["special_tokens_mask"], tokens.shape[1], fill=1)
            uniforms = draws.uniform(
                batch.keys, seed=draw.seed, epoch=draw.epoch, purpose="token mask", count=tokens.shape[1]
            )
            tokens = np.where((uniforms < self.token_mask) & (special == 0), self._mask_code or 0, tokens)
        return _tensors(tokens, mask, batch)

    def codes(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokenise texts.

        Args:
            texts: (N) texts.

        Returns:
            (N L) int64 tokens and (N L) bool mask.
        """
        return self._encoded(texts)[1:]

    def _encoded(self, texts: Sequence[str]) -> tuple[Mapping[str, Any], NDArray[np.int64], NDArray[np.bool_]]:
        encoded = self.tokeniser(
            self.prepared(texts), truncation=True, max_length=self.max_tokens, return_special_tokens_mask=True
        )
        rows = encoded["input_ids"]
        length = self.full_length or max(1, max(map(len, rows), default=1))
        return encoded, *_table(rows, length, fill=self._pad_code)

    def prepared(self, texts: Sequence[str]) -> list[str]:
        """Put the prompt around texts, and make their letters small where the model learnt such texts.

        Args:
            texts: (N) texts.

        Returns:
            (N) texts as the tokeniser gets them.
        """
        # Letter by letter, as tokenisers do it: Python alone makes another sigma at the end of a word.
        words = prompted(self.prompt, texts)
        return ["".join(map(str.lower, text)) for text in words] if self.lower else words

    def distinct(self, batch: InputBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the texts with different sequences of tokens.

        A transformer computes padding as well, so it is fastest with texts of one length together. Run on these alone,
        it gives texts of equal tokens equal vectors, whatever the batches.

        Args:
            batch: N texts.

        Returns:
            (M) the first text of each sequence, short ones first; and (N) the position of each text's sequence among
            them.

        Raises:
            DataError: If an item has no text.
        """
        firsts: dict[tuple[int, ...], int] = {}
        same = [
            firsts.setdefault(tuple(codes), row)
            for row, codes in enumerate(self._encoded(_texts(batch))[0]["input_ids"])
        ]
        rows = np.array([firsts[codes] for codes in sorted(firsts, key=len)], dtype=np.int64)
        order = np.argsort(rows)
        return rows, order[np.searchsorted(rows, same, sorter=order)]

    def save(self, folder: Path) -> None:
        """Write the tokeniser as transformers does, and the settings.

        Args:
            folder: Existing folder to write to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.tokeniser.save_pretrained(folder / _TOKENISER)
        write_settings(folder / _SUBWORDS, self.settings)

    @staticmethod
    def load(folder: Path) -> SubwordInput:
        """Load the Input that `save` wrote, without downloads.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.

        Raises:
            CheckpointError: If the tokeniser cannot be read.
        """
        from transformers import AutoTokenizer

        settings = read_settings(folder / _SUBWORDS, _SUBWORD_SETTINGS)
        try:
            tokeniser = AutoTokenizer.from_pretrained(
                folder / _TOKENISER, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as error:
            own = "it brings code of its own (auto_map), which is never run" * ("trust_remote_code" in str(error))
            raise CheckpointError(
                f"{folder / _TOKENISER} needs a tokeniser that transformers reads; {own or error}"
            ) from error
        return SubwordInput(tokeniser, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        """What is saved beside the tokeniser: name -> plain value."""
        return {name: getattr(self, name) for name in _SUBWORD_SETTINGS}

    @property
    def _pad_code(self) -> int:
        return self.tokeniser.pad_token_id or 0

    @property
    def _mask_code(self) -> int | None:
        code: int | None = self.tokeniser.mask_token_id
        return self.tokeniser.unk_token_id if code is None else code


@dataclass(frozen=True)
class PlainTokeniser:
    """The part of a fast tokeniser of transformers that `SubwordInput` needs, by the package tokenizers alone.

    Args:
        rules: Its tokenizer.json.
        pad_token_id: Code of the padding.
    """

    rules: str
    pad_token_id: int
    mask_token_id = unk_token_id = None

    @cached_property
    def backend_tokenizer(self) -> Any:
        """The tokeniser of that package."""
        from tokenizers import Tokenizer

        tokeniser = Tokenizer.from_str(self.rules)
        tokeniser.no_padding()
        return tokeniser

    def __call__(
        self,
        texts: Sequence[str],
        *,
        truncation: bool,
        max_length: int | None = None,
        return_special_tokens_mask: bool = False,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """Tokenise texts.

        Args:
            texts: (N) texts.
            truncation: Whether longer texts are cut.
            max_length: Largest number of tokens; None for no limit.
            return_special_tokens_mask: Whether the mask of the tokeniser's own marks is returned.
            verbose: Not used; callers of `transformers` pass it.

        Returns:
            "input_ids", and "special_tokens_mask" if requested: a list per text.
        """
        if truncation and max_length is not None:
            self.backend_tokenizer.enable_truncation(max_length)
        else:
            self.backend_tokenizer.no_truncation()
        encoded = self.backend_tokenizer.encode_batch(list(texts))
        masks = {"special_tokens_mask": [text.special_tokens_mask for text in encoded]}
        return {"input_ids": [text.ids for text in encoded], **(masks if return_special_tokens_mask else {})}


@dataclass(frozen=True)
class PieceTokeniser:
    """The part of SigLIP's tokeniser that `SubwordInput` needs, by the package sentencepiece alone.

    Capitals become small letters, and punctuation goes, as its authors have it.

    Args:
        model: Its spiece.model.
        unk_token: The token of what is unknown.
        eos_token: The token behind every text.
        pad_token_id: Code of the padding.
        do_lower_case: Whether capitals become small letters.
        marks: Tokens that a text may hold as they are -> code.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("unk_token", "eos_token", "pad_token_id", "do_lower_case", "marks")

    model: bytes
    unk_token: str
    eos_token: str
    pad_token_id: int
    do_lower_case: bool
    marks: Mapping[str, int]
    mask_token_id = unk_token_id = None

    @property
    def settings(self) -> dict[str, Any]:
        """All but the model: name -> plain value."""
        return {name: getattr(self, name) for name in self.SETTINGS}

    @cached_property
    def _pieces(self) -> Any:
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_proto=self.model)

    @cached_property
    def _mark(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self.marks, key=len, reverse=True)))
        return re.compile(rf"\s*({names})\s*")  # Space beside a mark belongs to it.

    def _codes(self, text: str) -> list[int]:
        codes: list[int] = []
        lead = len(self._pieces.encode(self.unk_token))
        for number, part in enumerate(self._mark.split("\u2581" + text.replace("\u2581", " "))):
            if number % 2:
                codes.append(self.marks[part])
                continue
            plain = (part.lower() if self.do_lower_case else part).translate(_NO_PUNCTUATION)
            plain = re.sub(r"\s+", " ", plain).strip()
            # Before a text alone, sentencepiece drops the space that begins a word.
            codes += self._pieces.encode(self.unk_token + plain)[lead:] if plain else []
        end = self.marks[self.eos_token]
        return codes if codes and codes[-1] == end else [*codes, end]

    def __call__(
        self,
        texts: Sequence[str],
        *,
        truncation: bool,
        max_length: int | None = None,
        return_special_tokens_mask: bool = False,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """Tokenise texts; the options are those of `PlainTokeniser`.

        Args:
            texts: (N) texts.
            truncation: Whether longer texts are cut.
            max_length: Largest number of tokens; None for no limit.
            return_special_tokens_mask: Whether the mask of the tokeniser's own marks is returned.
            verbose: Not used; callers of `transformers` pass it.

        Returns:
            "input_ids", and "special_tokens_mask" if requested: a list per text.
        """
        rows = list(map(self._codes, texts))
        if truncation and max_length is not None:
            rows = [codes if len(codes) <= max_length else [*codes[: max_length - 1], codes[-1]] for codes in rows]
        masks = {"special_tokens_mask": [[*[0] * (len(codes) - 1), 1] for codes in rows]}
        return {"input_ids": rows, **(masks if return_special_tokens_mask else {})}


@dataclass(frozen=True)
class OpenClipInput:
    """Texts -> "tokens" (N L) int64, "mask" (N L) bool and "ids", L the architecture's own length.

    Args:
        architecture: "ViT-B-32", as open_clip.list_models() names them; it has its own tokeniser.
        prompt: As of SubwordInput.
    """

    architecture: str
    prompt: str = ""

    @property
    def augments(self) -> bool:
        """Never."""
        return False

    @property
    def fingerprint(self) -> str:
        """Changes with the architecture and the prompt."""
        prompt = {"prompt": self.prompt} if self.prompt else {}
        return settings_hash({"kind": "open_clip", "architecture": self.architecture, **prompt})

    @cached_property
    def max_tokens(self) -> int:
        """The largest number of tokens, marks included; longer texts are cut. Raises as `tokens`."""
        return self.tokens(["a"]).shape[1]

    def tokens(self, texts: Sequence[str], *, length: int | None = None) -> NDArray[np.int64]:
        """Tokenise texts.

        Args:
            texts: (N) texts.
            length: L; the architecture's own by default.

        Returns:
            (N L) int64, padded at the end.

        Raises:
            RequirementError: If open_clip is not installed.
        """
        try:
            import open_clip
        except (ImportError, RuntimeError, OSError) as error:
            raise RequirementError(
                f"texts for {self.architecture} need the package open_clip_torch; importing it failed: {error}; "
                f"{install_hint('encoders')}, with the torchvision that belongs to this torch"
            ) from error
        encode = open_clip.get_tokenizer(self.architecture)
        tokens = encode(list(texts)) if length is None else encode(list(texts), context_length=length)
        return tokens.numpy().astype(np.int64)

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Tokenise the texts of a batch.

        Args:
            batch: N texts.
            draw: Not used: nothing is augmented.

        Returns:
            "tokens" (N L) int64, "mask" (N L) bool and "ids" (N).

        Raises:
            DataError: If an item has no text.
            RequirementError: If open_clip is not installed.
        """
        tokens = self.tokens(prompted(self.prompt, _texts(batch)))
        return _tensors(tokens, tokens != 0, batch)

    def save(self, folder: Path) -> None:
        """Write the architecture's name and the prompt.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / _OPEN_CLIP, {"architecture": self.architecture, "prompt": self.prompt})

    @staticmethod
    def load(folder: Path) -> OpenClipInput:
        """Load the Input that `save` wrote.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.
        """
        return OpenClipInput(**read_settings(folder / _OPEN_CLIP, ("architecture",), optional=("prompt",)))


def _require_settings(max_tokens: int, shares: Mapping[str, float]) -> None:
    if max_tokens < 3:
        raise DataError(
            f"max_tokens needs room for the marks and a word, 3 or more; it got {max_tokens}", field="max_tokens"
        )
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise DataError(f"{name} is a share in [0, 1); it got {value}")


def prompted(prompt: str, texts: Sequence[str]) -> list[str]:
    """Put texts in the place of {} in a prompt.

    Args:
        prompt: The prompt; "" for none.
        texts: The texts.

    Returns:
        The texts with the prompt around them.

    Example:
        >>> prompted("a photo of {}", ["two dogs"])
        ['a photo of two dogs']
    """
    return [prompt.replace("{}", text) for text in texts] if prompt else list(texts)


def _texts(batch: InputBatch) -> list[str]:
    for name, value in zip(batch.ids, batch.values, strict=True):
        if not isinstance(value, str):
            type_name = "none" if value is None else type(value).__name__
            raise DataError(f"item '{name}' needs a text; it got {type_name}; read features, or give its words")
    return list(batch.values)


def _table(
    rows: Sequence[Sequence[int]], length: int, *, fill: int = 0, empty: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(N L) codes of texts with padding, and a mask of the codes; an empty text counts as so many tokens."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    table = np.full((len(rows), length), fill, dtype=np.int64)
    places = np.arange(length)
    table[places < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return table, places < np.maximum(lengths, empty)[:, None]


def _tensors(tokens: NDArray[np.int64], mask: NDArray[np.bool_], batch: InputBatch) -> Tensors:
    import torch

    arrays = {"tokens": tokens, "mask": mask, "ids": np.ascontiguousarray(batch.rows)}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def too_long(input_spec: Input, texts: Iterable[object]) -> int:
    """Count the texts that an Input cuts.

    Args:
        input_spec: The Input.
        texts: The texts.

    Returns:
        Their number; 0 for an Input whose limit is unknown.

    Complexity:
        Tokenising the texts whose number of characters exceeds the limit of tokens, and no others.
    """
    strings = [text for text in texts if isinstance(text, str)]
    if isinstance(input_spec, SeveralInputs):
        return max(too_long(member, strings) for member in input_spec.members)
    if isinstance(input_spec, WordInput):
        limit = input_spec.max_tokens - 2  # Both marks are tokens.
        return sum(len(text) > limit and len(tokenise(text)) > limit for text in strings)
    if isinstance(input_spec, SubwordInput):
        strings = input_spec.prepared(strings)
    else:
        strings = prompted(getattr(input_spec, "prompt", ""), strings)
    sizes = [len(text.encode("utf-8", "replace")) for text in strings]
    if isinstance(input_spec, SubwordInput):
        # A subword has a byte or more.
        long = [text for text, size in zip(strings, sizes, strict=True) if size > input_spec.max_tokens - 2]
        encoded = input_spec.tokeniser(long, truncation=False, verbose=False)["input_ids"] if long else []
        return sum(len(codes) > input_spec.max_tokens for codes in encoded)
    if isinstance(input_spec, OpenClipInput):
        # Half of the limit, since cleaning may add to a text.
        long = [text for text, size in zip(strings, sizes, strict=True) if size > input_spec.max_tokens // 2]
        if not long:
            return 0
        # A text is cut if it has another token where there is room for one more. The empty text shows the padding; the
        # last token of some tokenisers is a mark.
        tables = [input_spec.tokens(["", *long], length=input_spec.max_tokens + extra) for extra in (0, 1)]
        narrow, wide = ((table != table[0, -2]).sum(axis=1) for table in tables)
        return int((wide > narrow).sum())
    return 0


def word_counts(texts: Iterable[object]) -> NDArray[np.int64]:
    """Count the words of each text.

    Args:
        texts: (T) texts; other values stand for an item without a text.

    Returns:
        (T) numbers; 0 for an item without a text.

    Example:
        >>> word_counts(["two dogs run", None]).tolist()
        [3, 0]
    """
    return np.array([len(tokenise(text)) if isinstance(text, str) else 0 for text in texts], dtype=np.int64)


def cut_note(input_spec: Input, texts: Iterable[object], *, of: str = "text") -> str | None:
    """Describe the texts that an Input cuts.

    Args:
        input_spec: The Input.
        texts: The texts.
        of: The noun for one of them.

    Returns:
        A sentence; None if no text is cut.
    """
    members = input_spec.members if isinstance(input_spec, SeveralInputs) else [input_spec]
    remaining, number, counts = iter(texts), 0, [0] * len(members)
    while some := list(islice(remaining, _COUNTED)):
        number += len(some)
        counts = [count + too_long(member, some) for count, member in zip(counts, members, strict=True)]
    cut = max(counts)
    if not cut:
        return None
    input_spec = members[counts.index(cut)]
    assert isinstance(input_spec, WordInput | SubwordInput | OpenClipInput)
    option = "" if isinstance(input_spec, OpenClipInput) else " (--max-tokens when it is trained)"
    return (
        f"{counted(cut, of)} of {number:,} {'is' if cut == 1 else 'are'} longer than the {input_spec.max_tokens} "
        f"tokens that the model takes{option}: what is beyond is not read"
    )


_COUNTED = 8192
"""Texts that are counted at a time."""


def require_words(texts: Sequence[object], need: str) -> None:
    """Refuse texts that are known by features alone.

    Args:
        texts: Values of the texts of a data set.
        need: What needs words, as the beginning of the message.

    Raises:
        DataError: If a text has no words.
    """
    missing = sum(not isinstance(value, str) for value in texts)
    if missing:
        raise DataError(
            f"{need}; {counted(missing, 'text')} of {len(texts):,} {'is' if missing == 1 else 'are'} known by features "
            "alone; give data with texts"
        )
