"""IIIF Presentation 2 and 3: manifests as JSON files on disk, with their images beside them. Nothing is downloaded.

A manifest, or a folder with some. A canvas is an image: the file in the manifest's folder, or in its sub-folders, whose
name is that of the canvas' image or its identifier in the Image API, with or without a suffix. The label of the
manifest is `headline`, its summary or that of the canvas `caption`, in each of its languages a text of its own, with
its `language`. Labels of its metadata are fields, which have the values of all languages.
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
from subtext.data.readers.images import Addressed, FilesByName, ambiguous, files_at, files_with, images_of
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


def _records(file: Path, files: FilesByName) -> Iterator[Addressed]:
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
            own["label"] = label if len(label) > 1 else label[0]
        languages = {**about.get("language", {}), **own.get("language", {})}
        group = {"group": str(manifest.get("id") or manifest.get("@id") or file.name)} if len(canvases) > 1 else {}
        row = {**about, **own, **group, "image": image}
        yield where, address, {**row, **({"language": languages} if languages else {})}


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
    """The fields of a manifest or a canvas; headline and caption are lists, `language` those of their texts."""
    statement = part.get("requiredStatement")
    credit = statement.get("value") if isinstance(statement, dict) else part.get("attribution")
    fields: dict[str, Any] = {}
    for entry in _list(part.get("metadata")):
        label = next(("; ".join(texts) for texts in _by_language(entry.get("label")).values()), "")
        values = list(dict.fromkeys(text for texts in _by_language(entry.get("value")).values() for text in texts))
        if label and values:
            name = label.casefold()
            # A label such as "ID" is no column of ours.
            name = f"metadata {name}" if name in RESERVED or name in TEXT_FIELDS else name
            fields[name] = values if len(values) > 1 else values[0]
    date = part.get("navDate")
    headlines, captions = _by_language(part.get("label")), _by_language(part.get("summary") or part.get("description"))
    headline = {"; ".join(texts): language for language, texts in headlines.items()}
    caption = {" ".join(texts): language for language, texts in captions.items()}
    credits_ = [text for texts in _by_language(credit).values() for text in texts]
    fields |= {
        "headline": list(headline),
        "caption": list(caption),
        "language": {text: language for text, language in {**caption, **headline}.items() if language != _ANY},
        "credit": "; ".join(credits_) or fields.get("credit"),
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


_ANY = "none"
"""Presentation 3's key of texts in no language."""


def _by_language(value: Any) -> dict[str, list[str]]:
    """The texts of a value in any of the notations, by their language: those of none and of English first."""
    found: dict[str, list[str]] = {}
    if isinstance(value, dict) and "@value" not in value:
        pairs = [(str(language), one) for language, ones in value.items() for one in _several(ones)]
    else:
        values = [one for one in _several(value) if one is not None]
        pairs = [
            (str(one.get("@language") or _ANY), one.get("@value")) if isinstance(one, dict) else (_ANY, one)
            for one in values
        ]
    for language, one in pairs:
        text = " ".join(html.unescape(_TAG.sub(" ", str(one))).split()) if one is not None else ""
        if text:
            found.setdefault(language, []).append(text)
    return {name: found[name] for name in dict.fromkeys([*(n for n in (_ANY, "en") if n in found), *found])}


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _list(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a value that is one or several; what is no object is left out."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, dict)]
