"""IIIF Presentation 2 and 3: manifests as JSON files on disk, with their images beside them. Nothing is downloaded.

A manifest, or a folder with some. A canvas is an image: the file in the manifest's folder, or in its sub-folders, whose
name is that of the canvas' image or its identifier in the Image API, with or without a suffix. The label of the
manifest is `headline`, its summary or that of the canvas `caption`. Labels of its metadata are fields.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.data.dataset import RowIssue
from subtext.data.dates import read_date
from subtext.data.embedded import TEXT_FIELDS
from subtext.data.readers.images import Addressed, ambiguous, files_at, files_with, images_of
from subtext.data.rows import RESERVED, Columns, Source, read_object

PRIORITY = 60
LOOKS_FOR = "manifests of IIIF Presentation 2 or 3"
_CONTEXT = "iiif.io/api/presentation/"
_TAG = re.compile(r"<[^>]*>")


def recognises(path: Path) -> bool:
    """Recognise a manifest, or a folder with some.

    Args:
        path: File or folder; it need not exist.

    Returns:
        Whether it is one of these.
    """
    return bool(files_with(path, ".json", _CONTEXT))


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """Read an item per canvas whose image is there; the canvases of a manifest are one group.

    Args:
        path: A manifest or a folder with some.
        images: Folder of the images; None for the folder of the manifests.
        columns: Role -> fields of the manifest; its texts are `headline` and `caption` where no others are named.

    Returns:
        The rows and the folder of the images.
    """
    return images_of(files_with(path, ".json", _CONTEXT), _records, path, images, columns)


def _records(file: Path, files: Mapping[str, list[str]]) -> Iterator[Addressed]:
    """Position of each canvas, address of its image, and its row."""
    manifest = read_object(file)
    about = _about(manifest)
    sequences = manifest.get("sequences")
    canvases = _list(_list(sequences)[0].get("canvases")) if _list(sequences) else _list(manifest.get("items"))
    if not canvases:
        yield (
            file.name,
            "",
            RowIssue(file.name, "has no canvas; a collection names manifests, which are read one by one"),
        )
    for number, canvas in enumerate(canvases, start=1):
        where = f"{file.name} canvas {number}"
        addresses = list(_addresses(canvas))
        found = [(address, files_at(address, files)) for address in addresses]
        address, image = next(((address, paths[0]) for address, paths in found if len(paths) == 1), ("", None))
        if image is None:
            named = addresses[0] if addresses else "an image"
            missing = RowIssue(where, f"'{named}' is not beside the manifest, and nothing is downloaded", name=named)
            yield where, "", next((ambiguous(where, *one) for one in found if one[1]), missing)
            continue
        own = _about(canvas)
        if (label := own.pop("headline", None)) and label != about.get("headline"):
            own["label"] = label
        group = {"group": str(manifest.get("id") or manifest.get("@id") or file.name)} if len(canvases) > 1 else {}
        yield where, address, {**about, **own, **group, "image": image}


def _addresses(canvas: Mapping[str, Any]) -> Iterator[str]:
    """The addresses of the images painted on a canvas, and of their Image API."""
    pages = [annotation for page in _list(canvas.get("items")) for annotation in _list(page.get("items"))]
    for annotation in [*pages, *_list(canvas.get("images"))]:
        for body in _list(annotation.get("body") or annotation.get("resource")):
            choices = [body, *_list(body.get("items")), *_list(body.get("default"))]
            for choice in choices:
                for named in (choice, *_list(choice.get("service"))):
                    address = named.get("id") or named.get("@id")
                    if isinstance(address, str):
                        yield address


def _about(part: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a manifest or a canvas."""
    statement = part.get("requiredStatement")
    credit = statement.get("value") if isinstance(statement, dict) else part.get("attribution")
    fields: dict[str, Any] = {}
    for entry in _list(part.get("metadata")):
        label, values = "; ".join(_texts(entry.get("label"))), _texts(entry.get("value"))
        if label and values:
            name = label.casefold()
            # A label such as "ID" is no column of ours.
            name = f"metadata {name}" if name in RESERVED or name in TEXT_FIELDS else name
            fields[name] = values if len(values) > 1 else values[0]
    date = part.get("navDate")
    fields |= {
        "headline": "; ".join(_texts(part.get("label"))),
        "caption": " ".join(_texts(part.get("summary") or part.get("description"))),
        "credit": "; ".join(_texts(credit)) or fields.get("credit"),
        "rights": part.get("rights") or part.get("license") or fields.get("rights"),
        "date": _dates(fields.get("date"), date.removesuffix("T00:00:00Z") if isinstance(date, str) else None),
    }
    return {name: value for name, value in fields.items() if value}


def _dates(written: Any, navigated: str | None) -> Any:
    """The date as it is written; that of the navigation as well where the other cannot be compared."""
    texts = written if isinstance(written, list) else [written] if written else []
    if navigated is None or any(read_date(text) for text in texts):
        return written
    return [*texts, navigated] if texts else navigated


def _texts(value: Any) -> list[str]:
    """The texts of a value in any of the notations: of several languages, those of none, of English, or the first."""
    if isinstance(value, dict) and "@value" not in value:
        value = next((value[language] for language in ("none", "en", *value) if value.get(language)), [])
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, dict) for one in values):
        languages = [one.get("@language") for one in values if isinstance(one, dict)]
        chosen = "en" if "en" in languages else languages[0]
        values = [one.get("@value") if isinstance(one, dict) else one for one in values
                  if not isinstance(one, dict) or one.get("@language") in (None, chosen)]  # fmt: skip
    texts = (" ".join(html.unescape(_TAG.sub(" ", str(one))).split()) for one in values if one is not None)
    return [text for text in texts if text]


def _list(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a value that is one or several; what is no object is left out."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, dict)]
