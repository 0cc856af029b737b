"""LIDO 1.0 and 1.1, in which museums deliver objects: XML files on disk, with the images beside them.

A file, or a folder with some. An object has the images of its resources: the files in the XML's folder, or in its
sub-folders, that have the name of a `linkResource`. The object's title is `headline`, its description `caption`, in
each of its languages a text of its own with its `language`; its subjects are `keywords`. `byline` are all who made it,
in its production, design and the like; when and where are those of its production, where it names one, else of its
first event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import iterparse

from subtext.data.dataset import RowIssue
from subtext.data.dates import read_date
from subtext.data.readers.images import Addressed, FilesByName, ambiguous, files_at, files_with, images_of
from subtext.data.rows import Columns, Source
from subtext.errors import DataError

PRIORITY = 61
LOOKS_FOR = "LIDO (.xml)"
_NAMESPACE = "http://www.lido-schema.org"
_TEXTS = {
    "headline": ("titleWrap/titleSet/appellationValue", "; "),
    "caption": ("objectDescriptionWrap/objectDescriptionSet/descriptiveNoteValue", " "),
}
"""Field of texts -> path of its values, and what stands between several of one language."""
_FIELDS = {
    "keywords": "subjectWrap/subjectSet/subject/subjectConcept/term",
    "rights": "rightsWorkWrap/rightsWorkSet/rightsType/term",
    "credit": "rightsWorkWrap/rightsWorkSet/creditLine",
    "collection": "repositoryWrap/repositorySet/repositoryName/legalBodyName/appellationValue",
}
_OF_EVENT = {
    "city": ("eventPlace/place/namePlaceSet/appellationValue", "eventPlace/displayPlace"),
}
_LISTS = ("keywords",)
_PRODUCED = re.compile("produ|herst|fabri|lido00007")
_MADE = re.compile(
    "produ|herst|fabri|creat|cr[eé]a|entw|design|conce|execut|ausf[uü]h|druck|print|impr|publi|ver[oö]ff|aufnahm|photog|fotog"
    "|prise de vue|gravure|guss|lido000(07|12)|lido00224|lido00228"
)
"""Kinds of events by which an object came to be, in English, German and French, and by LIDO's own numbers."""
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_PREFERRED = "preferred"


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


def _records(file: Path, files: FilesByName) -> Iterator[Addressed]:
    """Position, address and row of each image of an object."""
    for number, record in enumerate(_objects(file), start=1):
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


def _objects(file: Path) -> Iterator[Element]:
    """The objects of a file, one after the other; what was given is forgotten."""
    root: Element | None = None
    try:
        for event, element in iterparse(file, events=("start", "end")):
            root = element if root is None else root
            if event == "end" and element.tag == f"{{{_NAMESPACE}}}lido":
                yield element
                root.clear()
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{file} needs to be XML without entities; {str(error)[:200]}") from error


def _about(record: Element) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    languages: dict[str, str] = {}
    for field, (path, between) in _TEXTS.items():
        texts: dict[str, list[str]] = {}
        for element, language in _elements(record, path):
            texts.setdefault(language, []).extend(_text_of([element]))
        joined = {between.join(dict.fromkeys(ones)): language for language, ones in texts.items() if ones}
        fields[field] = list(joined)
        languages |= joined
    # Of one language, as most files are, nobody needs to be told.
    if len(set(languages.values()) - {""}) > 1:
        fields["language"] = {text: language for text, language in languages.items() if language}
    for field, path in _FIELDS.items():
        values = _values(record, path)
        fields[field] = values if field in _LISTS else " ".join(values)
    events = list(record.iter(f"{{{_NAMESPACE}}}event"))
    kinds = [" ".join(_values(event, "eventType")).casefold() for event in events]
    produced = [event for event, kind in zip(events, kinds, strict=True) if _PRODUCED.search(kind)]
    made = [event for event, kind in zip(events, kinds, strict=True) if _MADE.search(kind)]
    first = [*produced, *made, *events][:1]
    makers = list(dict.fromkeys(name for event in [*produced, *made] or first for name in _makers(event)))
    fields["byline"] = makers if len(makers) > 1 else "".join(makers)
    for event in first:
        for field, paths in _OF_EVENT.items():
            fields[field] = next(filter(None, ("; ".join(_values(event, path)) for path in paths)), "")
        fields["date"] = _dates(event)
    return {field: value for field, value in fields.items() if value}


def _makers(event: Element) -> Iterator[str]:
    """Those who took part in an event: as they are shown, else by their preferred name and role."""
    for actor in event.iter(f"{{{_NAMESPACE}}}eventActor"):
        if shown := "; ".join(_values(actor, "displayActorInRole")):
            yield shown
            continue
        for part in actor.iter(f"{{{_NAMESPACE}}}actorInRole"):
            names = [element for element, _ in _elements(part, "actor/nameActorSet/appellationValue")]
            preferred = [e for e in names if e.get(f"{{{_NAMESPACE}}}pref", e.get("pref")) == _PREFERRED] or names[:1]
            roles = ", ".join(_values(part, "roleActor/term"))
            for name in _text_of(preferred)[:1]:
                yield f"{name} ({roles})" if roles else name


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
    return list(dict.fromkeys(_text_of(element for element, _ in _elements(part, path))))


def _elements(part: Element, path: str) -> list[tuple[Element, str]]:
    """The elements at the end of a path, which may begin at any depth, with their language; "" for none."""
    first, *inner = (f"{{{_NAMESPACE}}}{name}" for name in path.split("/"))
    found = [(element, language) for element, language in _with_language(part, "") if element.tag == first]
    for name in inner:
        found = [
            (child, child.get(_LANGUAGE, language)) for element, language in found for child in element.findall(name)
        ]
    return found


def _with_language(part: Element, language: str) -> Iterator[tuple[Element, str]]:
    """An element and all inside it, in their order, each with the language that it or one around it names."""
    language = part.get(_LANGUAGE, language)
    yield part, language
    for child in part:
        yield from _with_language(child, language)


def _text_of(elements: Iterable[Element]) -> list[str]:
    texts = (" ".join("".join(element.itertext()).split()) for element in elements)
    return [text for text in texts if text]
