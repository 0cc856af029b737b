"""What an index says about itself: its format, the model whose vectors it holds, and where its items came from.

What the scores of an index are worth, as it was measured: kept beside its vectors, and checked when it is read.

An index keeps a Calibration and its reliability plot as the documents `CALIBRATION` and `PLOT`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_text
from subtext.errors import IndexError_
from subtext.search.stores.item import Side

FORMAT = 2
"""Raised when an older Subtext could no longer read what a newer one writes."""

MANIFEST = "manifest.json"
SHARDS = "shards.json"
"""Names the shards of an index that consists of several folders; see `shards`."""


@dataclass(frozen=True)
class Manifest:
    """One index in words and numbers.

    fingerprint      of the model that made the vectors; another model's queries are refused
    run              folder or name of that model
    host             its recipe
    width            D of every vector
    scale, shift     the model's score is scale * cosine + shift
    views            "images" and "texts" -> K vectors an item
    root             folder that relative picture paths start from
    data             where the first items came from: path, split, and whatever names them again
    store            the folder inside the index that holds items and vectors
    generation       changes that had been acknowledged when this was written: fewer in the store are a loss
    exact_up_to      rows of a side that are all compared; beyond them the likeliest lists are
    created, version, format   UTC time; version of Subtext; version of this layout
    """

    fingerprint: str
    run: str
    host: str
    width: int
    scale: float = 1.0
    shift: float = 0.0
    views: Mapping[str, int] = field(default_factory=lambda: {"images": 1, "texts": 1})
    root: str = "."
    data: Mapping[str, Any] = field(default_factory=dict)
    store: str = "store-1"
    generation: int = 0
    exact_up_to: int = 200_000
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """The manifest as indented JSON, with a checksum of all the rest."""
        found = {"kind": "subtext index", **asdict(self)}
        return json.dumps({**found, "checksum": checksum(found)}, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Manifest:
        """The manifest again.

        Raises IndexError_, naming `where`, for other JSON, missing or wrong fields, a changed byte, and another format.
        """
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise IndexError_(f"{where} needs to be JSON; {problem}; restore a backup, or build again") from problem
        if not isinstance(found, dict) or found.get("kind") != "subtext index":
            raise IndexError_(
                f"{where} is not the manifest of a Subtext index; name a folder that `subtext index build` wrote"
            )
        _require_format(found, where)
        known = {f.name for f in fields(Manifest)}
        kept = {name: value for name, value in found.items() if name in known}
        lack = _wrong(kept)
        if lack:
            raise IndexError_(f"{where} {lack}; restore a backup, or build again")
        if found.pop("checksum", None) != checksum(found):
            raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; restore a backup")
        return Manifest(**kept)


def read_manifest(path: Path, *, name: str = MANIFEST) -> Manifest:
    """The manifest of an index folder.

    Raises IndexError_ when there is none.
    """
    file = path / name
    if not file.is_file() and (path / SHARDS).is_file():
        raise IndexError_(
            f"{path} is an index in shards, which this version of Subtext only copies; copy it into a folder, without "
            f"embedding again: subtext index migrate {shlex.quote(str(path))} NEW"
        )
    if not file.is_file():
        what = "is not there" if not path.exists() else f"has no {name}"
        raise IndexError_(f"{path} needs to be a folder that `subtext index build` wrote; it {what}")
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"), where=str(file))
    except UnicodeDecodeError as problem:
        raise IndexError_(f"{file} needs to be JSON; it is not text; restore a backup, or build again") from problem


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest in that file, whole or not at all. Raises OutputError when it cannot be written."""
    write_text(path, manifest.to_json())


def _require_format(found: Mapping[str, Any], where: str) -> None:
    written = found.get("format")
    if written == 1:
        data = found.get("data")
        source = data.get("data") if isinstance(data, dict) else None
        more = f" --data {shlex.quote(str(source))}" if source else ""
        raise IndexError_(
            f"{where} has format 1, of an earlier Subtext, whose indexes could not change; this one reads format "
            f"{FORMAT}; build it again:\n  subtext index build NEW --run {shlex.quote(str(found.get('run')))}{more}"
        )
    if not isinstance(written, int) or written != FORMAT:
        raise IndexError_(
            f"{where} has format {written}; this version of Subtext reads format {FORMAT}; use a newer Subtext, or "
            "build the index again"
        )


def _wrong(found: Mapping[str, Any]) -> str:
    """What is missing or of another type; empty when nothing is."""
    wanted: dict[str, type | tuple[type, ...]] = {
        "fingerprint": str, "run": str, "host": str, "width": int, "scale": (int, float), "shift": (int, float),
        "views": dict, "root": str, "data": dict, "store": str, "generation": int, "exact_up_to": int,
    }  # fmt: skip
    for name, kind in wanted.items():
        if not isinstance(found.get(name), kind):
            return f"needs '{name}'; it has {found.get(name)!r}"
    if not all(isinstance(found["views"].get(side), int) for side in ("images", "texts")):
        return f"needs 'views' of images and texts; it has {found['views']!r}"
    if "/" in found["store"] or found["store"].startswith("."):
        return f"needs 'store' to be a folder inside it; it has {found['store']!r}"
    return ""


def checksum(values: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of an object that JSON can hold, in whatever order its names stand.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
    True
    """
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


CALIBRATION, PLOT = "calibration", "plot"
"""Names of the documents that an index keeps them as."""
CALIBRATION_FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""
STALE = 0.1
"""Share of the items that may come and go before a calibration no longer speaks of the index as it is."""


@dataclass(frozen=True)
class Way:
    """One way of asking, such as words for pictures.

    temperature  t of the posterior exp(s / t) / sum over the index, in units of the cosine
    weights      of s / t and of the level log sum exp(s / t); their bias
    steps        xs, ys: from those log odds to a probability
    signs        name -> (101) quantiles over questions that have an answer here, rising
    quantiles    (101) of the weakest standing of these questions among their signs
    refused      share of them below which nothing is said to fit
    measured     figures on the third part; see `search.confidence`
    bins         of its reliability plot: predicted, came_true, counts
    """

    temperature: float
    weights: tuple[float, float]
    bias: float
    steps: Mapping[str, list[float]]
    signs: Mapping[str, list[float]]
    quantiles: list[float]
    refused: float
    measured: Mapping[str, float]
    bins: Mapping[str, list[float]] = field(default_factory=dict)

    def curve(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of log odds."""
        values: NDArray[np.float64] = np.interp(log_odds, self.steps["xs"], self.steps["ys"])
        return values


@dataclass(frozen=True)
class Calibration:
    """What scores of an index are worth.

    ways      "images" and "texts", what is looked for with the other -> Way
    pairs     a pair's cosine to the probability that it is right, where right and chance pairs are equally many: steps
              and what was measured
    data      where the pairs came from, split, how many
    counts    items of each side at that time      last  greatest key of each side at that time
    created, version   UTC time; version of Subtext
    """

    ways: Mapping[Side, Way]
    pairs: Mapping[str, Any]
    data: Mapping[str, Any]
    counts: Mapping[Side, int]
    last: Mapping[Side, int]
    created: str = ""
    version: str = ""
    format: int = CALIBRATION_FORMAT

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest."""
        found = {"kind": "subtext calibration", **asdict(self)}
        return json.dumps({**found, "checksum": checksum(found)}, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Calibration:
        """The calibration again. Raises IndexError_, naming `where`, for anything else."""
        advice = "calibrate the index again (subtext index calibrate)"
        try:
            found = json.loads(text)
            written = found.pop("checksum", None)
            if found.get("format") != CALIBRATION_FORMAT:
                raise IndexError_(f"{where} needs format {CALIBRATION_FORMAT}; it has {found.get('format')}; {advice}")
            if found.pop("kind", None) != "subtext calibration" or written != checksum(
                {"kind": "subtext calibration", **found}
            ):
                raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; {advice}")
            ways = {name: Way(**{**own, "weights": tuple(own["weights"])}) for name, own in found.pop("ways").items()}
            return Calibration(ways=ways, **found)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise IndexError_(f"{where} needs to be a calibration; {problem!r}; {advice}") from problem

    def curve(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of the cosines of pairs."""
        values: NDArray[np.float64] = np.interp(cosines, self.pairs["xs"], self.pairs["ys"])
        return values
