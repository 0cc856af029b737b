"""LIDO 1.0 and 1.1, in which museums deliver objects: XML files on disk, with the images beside them.

A file, or a folder with some. An object has the images of its resources: the files in the XML's folder, or in its
sub-folders, that have the name of a `linkResource`. The object's title is `headline`, its description `caption`, its
subjects `keywords`; who and when are those of its production, where it names one, else of its first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import parse

from subtext.data.dataset import RowIssue
from subtext.data.dates import read_date
from subtext.data.readers.images import Addressed, ambiguous, files_at, files_with, images_of
from subtext.data.rows import Columns, Source
from subtext.errors import DataError

PRIORITY = 61
LOOKS_FOR = "LIDO (.xml)"
_NAMESPACE = "http://www.lido-schema.org"
_FIELDS = {
    "headline": "titleWrap/titleSet/appellationValue",
    "caption": "objectDescriptionWrap/objectDescriptionSet/descriptiveNoteValue",
    "keywords": "subjectWrap/subjectSet/subject/subjectConcept/term",
    "rights": "rightsWorkWrap/rightsWorkSet/rightsType/term",
    "credit": "rightsWorkWrap/rightsWorkSet/creditLine",
    "collection": "repositoryWrap/repositorySet/repositoryName/legalBodyName/appellationValue",
}
_OF_EVENT = {
    "byline": ("displayActorInRole", "actor/nameActorSet/appellationValue"),
    "city": ("eventPlace/place/namePlaceSet/appellationValue", "eventPlace/displayPlace"),
}
_LISTS = ("keywords",)


def recognises(path: Path) -> bool:
    """Recognise a LIDO file, or a folder with some.

    Args:
        path: File or folder; it need not exist.

    Returns:
        Whether it is one of these.
    """
    return bool(files_with(path, ".xml", _NAMESPACE))


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """Read an item per image that is there; the images of an object are one group.

    Args:
        path: A file or a folder with some.
        images: Folder of the images; None for the folder of the files.
        columns: Role -> fields of the object; its texts are `headline` and `caption` where no others are named.

    Returns:
        The rows and the folder of the images.

    Raises:
        DataError: For a file that is no XML, or names entities.
    """
    return images_of(files_with(path, ".xml", _NAMESPACE), _records, path, images, columns)


def _records(file: Path, files: Mapping[str, list[str]]) -> Iterator[Addressed]:
    """Position, address and row of each image of an object."""
    try:
        tree = parse(file).getroot()
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{file} needs to be XML without entities; {str(error)[:200]}") from error
    for number, record in enumerate(tree.iter(f"{{{_NAMESPACE}}}lido"), start=1):
        name = next(iter(_values(record, "lidoRecID")), str(number))
        where = f"{file.name} object {name}"
        named = _values(record, "linkResource")
        candidates = {link: paths for link in named if (paths := files_at(link, files))}
        found: dict[str, str] = {}
        for link, paths in candidates.items():
            if len(paths) > 1:
                yield where, link, ambiguous(where, link, paths)
            else:
                found.setdefault(paths[0], link)
        if not candidates:
            missing = named[0] if named else "an image"
            yield (
                where,
                missing,
                RowIssue(where, f"'{missing}' is not beside the XML, and nothing is downloaded", name=missing),
            )
        fields = _about(record)
        group = {"group": f"{file.name} {name}"} if len(found) > 1 else {}
        for image, link in found.items():
            yield where, link, {**fields, **group, "object": name, "image": image}


def _about(record: Element) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, path in _FIELDS.items():
        values = _values(record, path)
        fields[field] = values if field in _LISTS else " ".join(values)
    events = list(record.iter(f"{{{_NAMESPACE}}}event"))
    kinds = [" ".join(_values(event, "eventType")).casefold() for event in events]
    produced = (event for event, kind in zip(events, kinds, strict=True) if "produ" in kind or "herst" in kind)
    for event in [*produced, *events][:1]:
        for field, paths in _OF_EVENT.items():
            fields[field] = next(filter(None, ("; ".join(_values(event, path)) for path in paths)), "")
        fields["date"] = _dates(event)
    return {field: value for field, value in fields.items() if value}


def _dates(event: Element) -> Any:
    """When an event was: as it is shown, and from the earliest to the latest date where these say something else."""
    shown = "; ".join(_values(event, "eventDate/displayDate"))
    earliest, latest = (_values(event, f"eventDate/date/{end}Date") for end in ("earliest", "latest"))
    ends = [" ".join((earliest or latest)[:1]), " ".join((latest or earliest)[:1])]
    span = ends[0] if ends[0] == ends[1] else "/".join(ends)
    own, exact = read_date(shown), read_date(span)
    if not shown or not span or (own and exact and (own.first, own.last) == (exact.first, exact.last)):
        return shown or span
    return [shown, span]


def _values(part: Element, path: str) -> list[str]:
    """The texts of the elements at the end of a path, which may begin at any depth; each once."""
    first, *inner = (f"{{{_NAMESPACE}}}{name}" for name in path.split("/"))
    found = list(part.iter(first))
    for name in inner:
        found = [child for element in found for child in element.findall(name)]
    texts = (" ".join("".join(element.itertext()).split()) for element in found)
    return list(dict.fromkeys(text for text in texts if text))
