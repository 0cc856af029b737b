"""What an index in shards says about itself: the folders that it consists of, and what they have in common.

INDEX/shards.json        this
INDEX/shards/0000/       the first shard, an index itself
INDEX/shards/0000.json   while the index is built: that this shard is done, and what is in it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from subtext.data.atomic import write_text
from subtext.errors import IndexError_
from subtext.search.stores.checksum import checksum
from subtext.search.stores.manifest import SHARDS, Manifest
from subtext.search.stores.shards.numbering import Numbering, numberings

FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""
FOLDER = "shards"
"""The folder of the shards inside the index."""
KIND = "subtext index in shards"


@dataclass(frozen=True)
class Shard:
    """One shard: its folder inside the index, and the pictures and texts that it was made with."""

    folder: str
    images: int
    texts: int

    @property
    def record(self) -> str:
        """The file that says that it is done, while the index is built."""
        return f"{self.folder}.json"


@dataclass(frozen=True)
class Shards:
    """The shards of an index.

    manifest  what each of them says as well: the model, the width of vectors, where items came from
    shards    in the order of their items
    cut       digest of what was to come into which shard
    whole     whether all of them are there; else the index is being built, or its building was cut off
    """

    manifest: Manifest
    shards: tuple[Shard, ...]
    cut: str
    whole: bool

    @property
    def numberings(self) -> list[Numbering]:
        """The keys of each shard."""
        return numberings([(shard.images, shard.texts) for shard in self.shards])

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest."""
        own = {"cut": self.cut, "whole": self.whole, "shards": [asdict(shard) for shard in self.shards]}
        found = {"kind": KIND, "format": FORMAT, **own, "manifest": json.loads(self.manifest.to_json())}
        return json.dumps({**found, "checksum": checksum(found)}, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Shards:
        """The same again. Raises IndexError_, naming `where`, for anything else, a changed byte, and another format."""
        try:
            found = json.loads(text)
            if found["kind"] != KIND or found["format"] != FORMAT:
                raise IndexError_(
                    f"{where} needs to be of '{KIND}', format {FORMAT}; it has {found['kind']!r}, {found['format']!r}; "
                    "use a newer Subtext, or build again"
                )
            if found.pop("checksum", None) != checksum(found):
                raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; build again")
            manifest = Manifest.from_json(json.dumps(found["manifest"]), where=where)
            return Shards(manifest, tuple(Shard(**own) for own in found["shards"]), found["cut"], found["whole"])
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise IndexError_(f"{where} needs to name the shards of an index; {problem!r}; build again") from problem


def is_sharded(index: Path | str) -> bool:
    """Whether an index is one in shards, whole or not."""
    return not isinstance(index, str) and (index / SHARDS).is_file()


def read_shards(path: Path, *, whole: bool = True) -> Shards:
    """The shards of an index.

    whole  refuses one whose building was cut off

    Raises IndexError_ when there are none, or shards.json cannot be read.
    """
    file = path / SHARDS
    try:
        found = Shards.from_json(file.read_text(encoding="utf-8"), where=str(file))
    except (OSError, UnicodeDecodeError) as problem:
        raise IndexError_(f"{path} needs to be an index in shards; {file} cannot be read: {problem}") from problem
    if whole and not found.whole:
        raise IndexError_(
            f"{path} needs all its shards; its building was cut off, or goes on elsewhere; give `subtext index build` "
            "with the same options again: it goes on where it was"
        )
    return found


def write_shards(path: Path, shards: Shards) -> None:
    """Replace shards.json, whole or not at all. Raises OutputError when it cannot be written."""
    write_text(path / SHARDS, shards.to_json())


def read_record(path: Path, shard: Shard) -> tuple[int, int] | None:
    """The pictures and texts of a shard that is done; None for one that is not."""
    file = path / shard.record
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return int(found["images"]), int(found["texts"])


def write_record(path: Path, shard: Shard, counts: Mapping[str, int]) -> None:
    """Say that a shard is done. Raises OutputError when that cannot be written."""
    write_text(path / shard.record, json.dumps(dict(counts)))
