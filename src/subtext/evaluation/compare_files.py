"""Figures on disk, as `subtext evaluate` wrote them, and whether two of them were measured alike."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS
from subtext.errors import DataError, RequirementError

APART = ("id", "picture")
"""What the file of values holds beside values: names."""
_FREE = ("versions", "bootstrap", "intervals")
"""What two protocols may differ in: it changes no value of a query."""


@dataclass(frozen=True)
class Measured:
    """One evaluation.

    path      of its JSON file
    figures   name -> number                protocol  how it was measured
    about     model, data, split and its role, as far as the file says
    queries   "<direction>/<figure>" -> (Q) one value a query, and names under "/id" and "/picture"
    """

    path: Path
    figures: Mapping[str, float]
    protocol: Mapping[str, Any]
    about: Mapping[str, Any]
    queries: Mapping[str, NDArray[Any]]

    @property
    def seed(self) -> int | None:
        """Of its training; None for a model that says none."""
        found = self._model.get("seed")
        return found if isinstance(found, int) else None

    @property
    def fingerprint(self) -> str:
        """Of the model's weights; empty where the file names none."""
        return str(self._model.get("fingerprint", ""))

    @property
    def training(self) -> dict[str, Any]:
        """What was trained, its seed apart."""
        return {name: self._model.get(name) for name in ("host", "pretrained", "arguments", "methods")}

    @property
    def _model(self) -> Mapping[str, Any]:
        found = self.about.get("model")
        return found if isinstance(found, Mapping) else {}


def read_measured(path: Path) -> Measured:
    """A JSON file of `subtext evaluate --json`, and the values a query that lie beside it as NAME.npz.

    Raises DataError when one of them cannot be read or is another file, and RequirementError when the values a query
    are missing, or belong to other figures.
    """
    figures, protocol, about = _figures(path)
    values = path.with_suffix(".npz")
    if not values.is_file():
        raise RequirementError(
            f"{path} needs its values a query beside it, as {values.name}; they are not there; write both at once: "
            f"subtext evaluate RUN --json {path} --per-query {values}"
        )
    found = Measured(path, figures, protocol, about, _values(values))
    _require_fit(found, values)
    return found


def differences(one: Measured, other: Measured) -> list[str]:
    """In what two evaluations were not measured alike, each with both its sides; empty when they can be compared."""
    mine, theirs = _flat(one.protocol), _flat(other.protocol)
    free = (*_FREE, *(() if one.protocol.get("sampled") or other.protocol.get("sampled") else ("seed",)))
    found = [
        f"{name} ({_told(mine.get(name))} and {_told(theirs.get(name))})"
        for name in dict.fromkeys([*mine, *theirs])
        if name.split(".")[0] not in free and mine.get(name) != theirs.get(name)
    ]
    for name in (f"{direction}/{part}" for direction in DIRECTIONS for part in APART):
        if name in one.queries and name in other.queries:
            found += _unlike(name, one.queries[name], other.queries[name])
    return found


def _unlike(name: str, mine: NDArray[Any], theirs: NDArray[Any]) -> list[str]:
    """Names of queries that are not the same, in the same order."""
    label = name.replace("/", " ").replace("_", " ")
    if len(mine) != len(theirs):
        return [f"{label} ({len(mine):,} and {len(theirs):,} queries)"]
    unequal = np.flatnonzero(mine != theirs)
    if not len(unequal):
        return []
    row = int(unequal[0])
    return [f"{label} ({len(unequal):,} of {len(mine):,} names, first '{mine[row]}' and '{theirs[row]}')"]


def _figures(path: Path) -> tuple[dict[str, float], dict[str, Any], dict[str, Any]]:
    advice = "name a file that `subtext evaluate --json FILE` wrote"
    if not path.is_file():
        raise DataError(
            f"compare needs files of figures; {path} is {'a folder' if path.is_dir() else 'not there'}; {advice}"
        )
    try:
        whole = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be JSON; {str(error).splitlines()[0]}; {advice}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("protocol"), dict):
        raise DataError(f"{path} needs figures with the protocol that they were measured under; it has none; {advice}")
    figures = {
        name: float(value)
        for name, value in whole.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and ("/" in name or name == "rsum")
    }
    if not figures:
        raise DataError(f"{path} needs figures such as image_to_text/recall@1; it has none; {advice}")
    about = {name: value for name, value in whole.items() if name not in figures and name != "protocol"}
    return figures, whole["protocol"], about


def _values(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise DataError(f"{path} needs to be an npz of plain arrays; reading it failed: {error}") from error


def _require_fit(found: Measured, values: Path) -> None:
    """Raise unless the values are those behind the figures."""
    lacking = [f"{d}/id" for d in DIRECTIONS if f"{d}/id" not in found.queries]
    if "text_to_image/picture" not in found.queries:
        lacking.append("text_to_image/picture")
    if lacking:
        raise RequirementError(
            f"{values} needs the names of queries and of their pictures; {', '.join(lacking)} is not there; an older "
            "version wrote it, or another program; evaluate again with --json and --per-query"
        )
    gallery = found.protocol.get("gallery", {})
    counts = {d: len(found.queries[f"{d}/id"]) for d in DIRECTIONS}
    if isinstance(gallery, Mapping) and [*counts.values()] != [gallery.get("pictures"), gallery.get("texts")]:
        raise _strangers(
            found.path, values, f"{counts['image_to_text']:,} pictures and {counts['text_to_image']:,} texts"
        )
    if found.protocol.get("folds") != 1:
        return
    for name, value in found.figures.items():
        column = found.queries.get(name)
        if column is None or np.isnan(column).all():
            continue
        mean = float(np.nanmean(column))
        if min(abs(mean - value), abs(100 * mean - value)) > 1e-6 * max(1.0, abs(value)):
            raise _strangers(found.path, values, f"a mean {name} of {mean:.6g}")


def _strangers(path: Path, values: Path, has: str) -> RequirementError:
    return RequirementError(
        f"{path} needs the values a query that its figures are means of; {values.name} has {has}, which is of another "
        "evaluation; write both files at once, with --json and --per-query"
    )


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested names joined by points."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def _told(value: Any) -> str:
    return "-" if value in (None, "") else str(value)[:40]
