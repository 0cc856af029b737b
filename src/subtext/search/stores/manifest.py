"""What an index says about itself, and what its scores are worth: JSON with a checksum.

The manifest names the format, the model whose vectors the index holds, and where its items came from. A calibration and
its reliability plot are the documents `CALIBRATION` and `PLOT` of an index.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_
from subtext.search.stores.item import SIDES, Side

FORMAT = 2
"""Format of a manifest; raised when an older Subtext could no longer read what a newer one writes."""
CALIBRATION_FORMAT = 1
"""Format of a calibration; raised likewise."""
CALIBRATION, PLOT = "calibration", "plot"
"""Names of the documents that an index keeps a calibration as."""
STORE_NAME = re.compile(r"store-(\d+)")
STALE = 0.1
"""Share of the items that may come and go before a calibration no longer speaks of the index as it is."""


@dataclass(frozen=True)
class Manifest:
    """One index in words and numbers.

    fingerprint      of the model that made the vectors; another model's queries are refused
    run              folder of that model's run; "" for a pretrained model
    host             its recipe, or the name of a pretrained model
    model            of a pretrained model: name (absolute for a folder), revision (commit of the hub) and text_prompt
    width            D of every vector
    scale, shift     the model's score is scale * cosine + shift
    views            "images" and "texts" -> K vectors an item
    root             folder that relative image paths start from
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
    model: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The manifest as indented JSON, with a checksum of all the rest."""
        return _with_checksum({"kind": "subtext index", **asdict(self)}, indent=2)

    @staticmethod
    def from_json(text: str, *, where: str) -> Manifest:
        """The manifest again.

        Raises IndexError_, naming `where`, for other JSON, missing or wrong fields, a changed byte, and another format.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise IndexError_(f"{where} needs to be JSON; {problem}; restore a backup, or build again") from problem
        if not isinstance(content, dict) or content.get("kind") != "subtext index":
            raise IndexError_(
                f"{where} is not the manifest of a Subtext index; name a folder that `subtext index build` wrote"
            )
        number, data = content.get("format"), content.get("data")
        if number == 1:
            source = data.get("data") if isinstance(data, dict) else None
            run = f" --run {shlex.quote(str(content.get('run')))}"
            more = f" --data {shlex.quote(str(source))}" if source else ""
            raise IndexError_(
                f"{where} has format 1, of an earlier Subtext, whose indexes could not change; this one reads format "
                f"{FORMAT}; build it again:\n  subtext index build NEW{run}{more}"
            )
        if number != FORMAT:
            raise IndexError_(
                f"{where} has format {number}; this version of Subtext reads format {FORMAT}; use a newer Subtext, or "
                "build the index again"
            )
        if missing := _missing(content):
            raise IndexError_(f"{where} {missing}; restore a backup, or build again")
        if content.pop("checksum", None) != checksum(content):
            raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; restore a backup")
        return Manifest(**{f.name: content[f.name] for f in fields(Manifest) if f.name in content})


@dataclass(frozen=True)
class Way:
    """The calibration of one direction of search, such as words for images.

    temperature  t of the posterior exp(s / t) / sum over the index, in units of the cosine
    weights      of s / t and of the level log sum exp(s / t); their bias
    steps        xs, ys: from those log odds to a probability
    signs        name -> (101) quantiles over queries that have a match here, rising
    quantiles    (101) of the lowest percentile of these queries among their signs
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
        return np.interp(log_odds, self.steps["xs"], self.steps["ys"])


@dataclass(frozen=True)
class Calibration:
    """What scores of an index are worth.

    ways      "images" and "texts", what is searched with the other -> Way
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
        return _with_checksum({"kind": "subtext calibration", **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str, *, where: str) -> Calibration:
        """The calibration again. Raises IndexError_, naming `where`, for anything else."""
        advice = "calibrate the index again (subtext index calibrate)"
        try:
            content = json.loads(text)
            if content.get("format") != CALIBRATION_FORMAT:
                raise IndexError_(
                    f"{where} needs format {CALIBRATION_FORMAT}; it has {content.get('format')}; {advice}"
                )
            if content.pop("checksum", None) != checksum(content) or content.pop("kind") != "subtext calibration":
                raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; {advice}")
            ways = {side: Way(**{**way, "weights": tuple(way["weights"])}) for side, way in content.pop("ways").items()}
            return Calibration(ways=ways, **content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise IndexError_(f"{where} needs to be a calibration; {problem!r}; {advice}") from problem

    def curve(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of the cosines of pairs."""
        return np.interp(cosines, self.pairs["xs"], self.pairs["ys"])


def _missing(content: Mapping[str, Any]) -> str:
    """What is missing or of another type; empty when nothing is."""
    types: dict[str, type | tuple[type, ...]] = {
        "fingerprint": str, "run": str, "host": str, "width": int, "scale": (int, float), "shift": (int, float),
        "views": dict, "root": str, "data": dict, "store": str, "generation": int, "exact_up_to": int,
    }  # fmt: skip
    for name, kind in types.items():
        if not isinstance(content.get(name), kind):
            return f"needs '{name}'; it has {content.get(name)!r}"
    if not all(type(views := content["views"].get(side)) is int and views > 0 for side in SIDES):
        return f"needs 'views' of images and texts; it has {content['views']!r}"
    for name, least in {"width": 1, "generation": 0, "exact_up_to": 0}.items():
        if content[name] < least:
            return f"needs '{name}' of {least} or more; it has {content[name]!r}"
    model = content.get("model", {})
    named = isinstance(model, dict) and all(isinstance(value, str) for value in model.values())
    if not named or (model and not model.get("name")):
        return f"needs 'model' to name a pretrained model; it has {model!r}"
    if not STORE_NAME.fullmatch(content["store"]):
        return f"needs 'store' to be a folder inside it, store-NUMBER; it has {content['store']!r}"
    return ""


def inside(folder: Path, name: object) -> Path:
    """The file or folder of a relative name in a folder; it may not exist yet.

    Raises IndexError_ for a name that leads elsewhere, or is a symbolic link: an index comes from anywhere, and nothing
    outside of it may be read, changed or removed in its name.
    """
    home = folder.resolve()
    try:
        found = folder.joinpath(str(name)).resolve()
    except (ValueError, RuntimeError):
        found = home  # A null byte, or a loop of links.
    if not isinstance(name, str) or home not in found.parents or found != home / name:
        raise IndexError_(
            f"{folder} needs files and folders of its own; '{name}' leads elsewhere, or is a symbolic link; put the "
            "folder itself there, or restore a backup"
        )
    return folder / name


def _with_checksum(content: Mapping[str, Any], *, indent: int) -> str:
    return json.dumps({**content, "checksum": checksum(content)}, indent=indent, ensure_ascii=False) + "\n"


def checksum(values: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of an object that JSON can hold, in whatever order its names stand.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
    True
    """
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
