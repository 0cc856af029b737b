"""The description of an index, as JSON with a checksum.

The manifest names the format, the model whose vectors the index holds, and where its items came from.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from subtext.errors import SearchIndexError
from subtext.retrieval.stores.item import SIDES, SPACES, Space
from subtext.version import FORMAT, require_format

RECALL = 0.98
"""Share of the ten nearest items that searches find by default."""
NUMBERS = {"float32": 4, "float16": 2}
"""Type of the numbers of stored vectors -> bytes of one."""
STORE_NAME = re.compile(r"store-(\d+)")
_HEX = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True)
class Revision:
    """Which index it is, and as of which change: what two equal revisions name has the same content.

    A copy or a restored backup has the identity of its index, and may reach the same number of changes by other ones:
    the random number of the last change differs then.

    Attributes:
        identity: 32 hexadecimal digits, drawn when the index is built or moved to another model.
        generation: Number of changes since then.
        change: 14 hexadecimal digits, drawn at the last change.
    """

    identity: str
    generation: int
    change: str

    def next(self) -> Revision:
        """The revision after one more change.

        Returns:
            A revision of the same index, with a new random number.
        """
        return Revision(self.identity, self.generation + 1, secrets.token_hex(7))


@dataclass(frozen=True)
class EncoderRecord:
    """The sentence encoder of an index, which compares texts with texts.

    Attributes:
        name: "starter", or the absolute path of a folder.
        fingerprint: Of its weights, and of how it reads.
        width: E of its vectors.
        languages: That it reads, as two letters (ISO 639-1); empty where nobody says.
        of_model: Whether it is the text tower of the index's own model, so that nothing of it is kept twice.
        compared: How many of the first numbers of an image's vector two images are compared by; 0 for all. A model of
            distributions has others behind the mean.
    """

    name: str
    fingerprint: str
    width: int
    languages: tuple[str, ...] = ()
    of_model: bool = False
    compared: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether all fields are of their types and ranges, as they may not be in a file."""
        return (
            isinstance(self.name, str)
            and self.name != ""
            and isinstance(self.fingerprint, str)
            and type(self.width) is int
            and self.width > 0
            and all(isinstance(language, str) for language in self.languages)
            and isinstance(self.of_model, bool)
            and type(self.compared) is int
            and self.compared >= 0
        )


@dataclass(frozen=True)
class Manifest:
    """The description of one index.

    Attributes:
        fingerprint: Of the model that made the vectors; queries of another model are refused.
        run: Folder of the run of that model; "" for a pretrained model.
        model_name: Its recipe, or the name of a pretrained model.
        width: D of every vector.
        scale: The score of the model is scale * cosine + shift.
        shift: See `scale`.
        views: "images" and "texts" -> K vectors an item.
        root: Folder that relative image paths start from.
        data: Where the first items came from: path, split, and the options of reading it.
        store: The folder inside the index that holds items and vectors.
        generation: Changes that had been acknowledged when this was written: fewer in the store are a loss.
        change: Random number of the last of these changes; see `Revision`.
        identity: Random number of the index; see `Revision`.
        exact_up_to: Rows of a side up to which all are compared; larger sides are searched by lists or graphs.
        created: UTC time, ISO 8601.
        version: Version of Subtext that created the index.
        format: Format of the manifest.
        pretrained: Of a pretrained model: name (absolute for a folder), revision (commit of the hub) and text_prompt.
        encoder: The sentence encoder of the index; None for an index without one, which has no derived spaces.
        languages: Codes of the languages that the model reads, `data.languages.MANY` for many; none if not known.
        numbers: Type of the numbers of stored vectors, one of `NUMBERS`.
        recall: Share of the ten nearest items that searches by lists or graphs have to find, up to 1.
        by_hand: Numbers of lists and searches that are set, not chosen; see `Store.settable`.
        cache: Bytes of lists that a reader of an index in LanceDB keeps in memory.
    """

    fingerprint: str
    run: str
    model_name: str
    width: int
    scale: float = 1.0
    shift: float = 0.0
    views: Mapping[str, int] = field(default_factory=lambda: {"images": 1, "texts": 1})
    root: str = "."
    data: Mapping[str, Any] = field(default_factory=dict)
    store: str = "store-1"
    generation: int = 0
    change: str = "0" * 14
    identity: str = field(default_factory=lambda: secrets.token_hex(16))
    exact_up_to: int = 200_000
    created: str = ""
    version: str = ""
    format: int = FORMAT
    pretrained: Mapping[str, str] = field(default_factory=dict)
    encoder: EncoderRecord | None = None
    languages: Sequence[str] = ()
    numbers: str = "float32"
    recall: float = RECALL
    by_hand: Mapping[str, int] = field(default_factory=dict)
    cache: int = 2**28

    def with_settings_of(self, other: Manifest) -> Manifest:
        """The manifest of an index that is to take the place of another.

        Args:
            other: That of the other.

        Returns:
            This one with what was set for the other.
        """
        kept = ("root", "exact_up_to", "numbers", "recall", "by_hand", "cache")
        return replace(self, **{name: getattr(other, name) for name in kept})

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers of stored vectors."""
        return np.dtype(self.numbers)

    @property
    def wanted(self) -> dict[str, Any]:
        """What lists and graphs are chosen by: others are made where it changes."""
        return {"recall": self.recall, "by_hand": dict(self.by_hand), "cache": self.cache}

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The spaces that the index holds vectors of."""
        return SIDES if self.encoder is None else SPACES

    def width_of(self, space: Space) -> int:
        """Numbers per vector of a space.

        Args:
            space: One of `SPACES`.

        Returns:
            D of a side; E of a derived space, 0 where the index has none.
        """
        if space in SIDES:
            return self.width
        return 0 if self.encoder is None else self.encoder.width

    def views_of(self, space: Space) -> int:
        """Vectors per item of a space.

        Args:
            space: One of `SPACES`.

        Returns:
            K of a side; 1 of a derived space.
        """
        return self.views[space] if space in SIDES else 1

    @property
    def revision(self) -> Revision:
        """The index, and the last change that had been acknowledged when this was written."""
        return Revision(self.identity, self.generation, self.change)

    def at(self, revision: Revision) -> Manifest:
        """The manifest with another acknowledged change of the same index.

        Args:
            revision: The index as of that change.

        Returns:
            The manifest of that revision.
        """
        return replace(self, identity=revision.identity, generation=revision.generation, change=revision.change)

    def to_json(self) -> str:
        """The manifest as indented JSON, with a checksum of all the rest.

        Returns:
            JSON text.
        """
        return with_checksum({"kind": "subtext index", **asdict(self)}, indent=2)

    @staticmethod
    def from_json(text: str, *, where: str) -> Manifest:
        """Read a manifest.

        Args:
            text: JSON text.
            where: Place of the text, for messages.

        Returns:
            The manifest.

        Raises:
            SearchIndexError: For other JSON, missing or wrong fields, a changed byte, and another format.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise SearchIndexError(
                f"{where} needs to be JSON; {problem}; restore a backup, or build again"
            ) from problem
        if not isinstance(content, dict) or content.get("kind") != "subtext index":
            raise SearchIndexError(
                f"{where} is not the manifest of a Subtext index; name a folder that `subtext index build` wrote"
            )
        require_format(content.get("format"), where, "index build", SearchIndexError)
        if missing := _missing(content):
            raise SearchIndexError(f"{where} {missing}; restore a backup, or build again")
        if content.pop("checksum", None) != checksum(content):
            raise SearchIndexError(f"{where} needs its own checksum; it was changed or damaged; restore a backup")
        values = {f.name: content[f.name] for f in fields(Manifest) if f.name in content}
        languages = tuple(content.get("languages", ()))
        return Manifest(**{**values, "languages": languages, "encoder": _encoder(content.get("encoder"))})


def _encoder(content: object) -> EncoderRecord | None:
    """The record of a sentence encoder, of plain data; None for none, and for data of another form."""
    if not isinstance(content, dict) or set(content) != {f.name for f in fields(EncoderRecord)}:
        return None
    languages = content["languages"] if isinstance(content["languages"], list) else [0]
    record = EncoderRecord(**{**content, "languages": tuple(languages)})
    return record if record.is_sound else None


def _missing(content: Mapping[str, Any]) -> str:
    """The first field that is missing or of another type; empty if there is none."""
    types: dict[str, type | tuple[type, ...]] = {
        "fingerprint": str, "run": str, "model_name": str, "width": int, "scale": (int, float), "shift": (int, float),
        "views": dict, "root": str, "data": dict, "store": str, "generation": int, "exact_up_to": int,
        "identity": str, "change": str,
    }  # fmt: skip
    for name, kind in types.items():
        if not isinstance(content.get(name), kind):
            return f"needs '{name}'; it has {content.get(name)!r}"
    if not all(type(views := content["views"].get(side)) is int and views > 0 for side in SIDES):
        return f"needs 'views' of images and texts; it has {content['views']!r}"
    for name, least in {"width": 1, "generation": 0, "exact_up_to": 0}.items():
        if content[name] < least:
            return f"needs '{name}' of {least} or more; it has {content[name]!r}"
    for name, length in {"identity": 32, "change": 14}.items():
        if len(content[name]) != length or not _HEX.fullmatch(content[name]):
            return f"needs '{name}' of {length} hexadecimal digits; it has {content[name]!r:.60}"
    pretrained = content.get("pretrained", {})
    named = isinstance(pretrained, dict) and all(isinstance(value, str) for value in pretrained.values())
    if not named or (pretrained and not pretrained.get("name")):
        return f"needs 'pretrained' to name a pretrained model; it has {pretrained!r}"
    if content.get("encoder") is not None and _encoder(content["encoder"]) is None:
        return f"needs 'encoder' to describe a sentence encoder; it has {content['encoder']!r:.120}"
    languages = content.get("languages", [])
    if not isinstance(languages, list) or not all(isinstance(code, str) for code in languages):
        return f"needs 'languages' to be codes; it has {languages!r:.60}"
    if content.get("numbers", "float32") not in NUMBERS:
        return f"needs 'numbers' of {' or '.join(NUMBERS)}; it has {content['numbers']!r:.60}"
    recall, by_hand, cache = content.get("recall", RECALL), content.get("by_hand", {}), content.get("cache", 1)
    if type(recall) not in (int, float) or not 0 < recall <= 1:
        return f"needs 'recall' above 0 and up to 1; it has {recall!r:.60}"
    if not isinstance(by_hand, dict) or not all(type(own) is int and own > 0 for own in by_hand.values()):
        return f"needs 'by_hand' to be numbers of 1 or more; it has {by_hand!r:.60}"
    if type(cache) is not int or cache < 1:
        return f"needs 'cache' of 1 or more; it has {cache!r:.60}"
    if not STORE_NAME.fullmatch(content["store"]):
        return f"needs 'store' to be a folder inside it, store-NUMBER; it has {content['store']!r}"
    return ""


def with_checksum(content: Mapping[str, Any], *, indent: int) -> str:
    """An object as JSON with the checksum of all the rest.

    Args:
        content: Plain data.
        indent: Spaces per level.

    Returns:
        JSON text.
    """
    return json.dumps({**content, "checksum": checksum(content)}, indent=indent, ensure_ascii=False) + "\n"


def checksum(values: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of an object that JSON can hold, in whatever order its names stand.

    Args:
        values: Plain data.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
        True
    """
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
