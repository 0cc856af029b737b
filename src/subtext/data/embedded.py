"""Metadata inside image files: IPTC, XMP (also of a .xmp file beside it) and EXIF, under one set of names.

Pillow and defusedxml take the blocks apart. Where several blocks have a field, that of the file beside the image comes
first, then XMP, IPTC and EXIF: XMP names its encoding, and programs of today edit it first.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring
from PIL import Image
from PIL.IptcImagePlugin import getiptcinfo

from subtext.data.addresses import is_address
from subtext.data.dataset import RowIssue
from subtext.data.dates import read_date
from subtext.data.image_files import BROKEN, identify, pages_note, pages_of, read_bytes

FIELDS = (
    "headline", "caption", "keywords", "byline", "credit", "date", "city", "country", "rights", "camera", "orientation",
    "latitude", "longitude",
)  # fmt: skip
TEXT_FIELDS = ("headline", "caption")
"""The fields whose values are the texts of an image, unless others are named."""
SIDECAR = ".xmp"

_RDF, _XML = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}", "{http://www.w3.org/XML/1998/namespace}"
_DC, _PHOTOSHOP = "{http://purl.org/dc/elements/1.1/}", "{http://ns.adobe.com/photoshop/1.0/}"
_XMP = {
    "headline": (f"{_PHOTOSHOP}Headline", f"{_DC}title"),
    "caption": (f"{_DC}description",),
    "keywords": (f"{_DC}subject",),
    "byline": (f"{_DC}creator",),
    "credit": (f"{_PHOTOSHOP}Credit",),
    "date": (f"{_PHOTOSHOP}DateCreated", "{http://ns.adobe.com/xap/1.0/}CreateDate"),
    "city": (f"{_PHOTOSHOP}City",),
    "country": (f"{_PHOTOSHOP}Country",),
    "rights": (f"{_DC}rights",),
}
"""Field -> the properties of XMP that have it, the first one that is there counts."""
_IPTC = {
    "headline": (105, 5), "caption": (120,), "keywords": (25,), "byline": (80,), "credit": (110,), "date": (55,),
    "city": (90,), "country": (101,), "rights": (116,),
}  # fmt: skip
"""Field -> its data sets in record 2 of IPTC-IIM 4.2; 5 is the object name, which XMP calls dc:title."""
_IPTC_TIME = (2, 60)
_IPTC_CHARSET = (1, 90)
_UTF8_MARK = b"\x1b%G"
_LISTS = ("keywords",)
_MAKE, _MODEL, _ORIENTATION, _EXIF_IFD, _GPS_IFD = 271, 272, 274, 34665, 34853
_TAKEN = ((36867, 36881), (36868, 36882))
"""Tags of the date of taking and of digitising, each with that of its offset from UTC."""
_TIMED, _ZONED = re.compile(r".*\d\d:\d\d.*"), re.compile(r"(?:Z|[+-]\d\d:\d\d)$")
_DATE = re.compile(
    r"(\d{4})(?:[-:]?(\d\d)(?:[-:]?(\d\d)(?:[T ]?(\d\d):?(\d\d)(?::?(\d\d))?(?:\.\d*)?)?\s*(Z|[+-]\d\d:?\d\d)?)?)?",
    re.ASCII,
)


def embedded_fields(file: Path, sidecar: Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """Read the metadata in an image file and in the .xmp file beside it.

    keywords are a list; byline is one where there are several; date is ISO 8601, or as it is
    written, on the clock of the place; latitude and longitude are degrees,
    orientation is EXIF's number from 1 to 8. A file that is no image has no fields here: decoding says what is wrong.

    Args:
        file: The image file.
        sidecar: The .xmp file; None for none.

    Returns:
        The fields, a part of `FIELDS`; and what cannot be read, one sentence per block.

    Raises:
        OSError: If the file cannot be read.
    """
    blocks: list[Mapping[str, Any]] = []
    wrong: list[str] = []

    def take(block: str, read: Callable[[], Mapping[str, Any]]) -> None:
        reasons: list[object] = []
        counts = "what could be read of it counts"  # Pillow warns of damage, and goes on.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                blocks.append(read())
            except BROKEN as error:
                reasons.append(error)
                counts = "the image counts without it"
        reasons += [warning.message for warning in caught]
        if reasons:
            reason = " ".join(str(reasons[0]).split())[:160] or type(reasons[0]).__name__
            wrong.append(f"its {block} block is damaged, {reason}; {counts}")

    if sidecar is not None:
        take(SIDECAR, lambda: _xmp(_read(sidecar)))
    try:
        with BytesIO(_read(file)) if is_address(file) else file.open("rb") as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = identify(opened, file.name)
            if (pages := len(pages_of(image))) > 1:
                wrong.append(pages_note(pages))
            packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
            if packet:
                take("XMP", lambda: _xmp(packet))
            take("IPTC", lambda: _iptc(getiptcinfo(image) or {}))
            # Of other formats, Pillow would decode the image to look for EXIF that comes after it.
            if image.format in ("JPEG", "MPO", "TIFF") or "exif" in image.info:
                take("EXIF", lambda: _exif(image.getexif()))
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:  # Pillow's own errors have no number.
            raise
    fields: dict[str, Any] = {}
    for block in blocks:
        fields = {**{name: value for name, value in block.items() if value not in (None, "", [])}, **fields}
    zone = next((block["zone"] for block in blocks if block.get("zone")), None)
    if (date := fields.get("date")) is not None:
        fields["date"] = date = _on_the_clock(date, zone)
        if read_date(date) is None:
            wrong.append(f"its date '{date[:40]}' is no date that can be compared; it is shown as it is written")
        elif _TIMED.fullmatch(date) and not _ZONED.search(date):
            wrong.append("names no offset from UTC; its day is that of the camera's clock")
    return {name: fields[name] for name in FIELDS if name in fields}, wrong


def _on_the_clock(date: str, zone: str | None) -> str:
    """A date and time on the clock of the place, where the camera noted its offset from UTC."""
    if zone is None or not _TIMED.fullmatch(date):
        return date
    offset = "+00:00" if zone == "Z" else zone
    if not _ZONED.search(date):
        return date + offset
    if date.endswith("Z") or date.endswith("+00:00"):
        try:
            place = datetime.fromisoformat(f"2000-01-01T00:00{offset}").tzinfo
            return datetime.fromisoformat(date).astimezone(place).isoformat()
        except (ValueError, OverflowError):
            return date
    return date


def _read(file: Path) -> bytes:
    return read_bytes(str(file), Path()) if is_address(file) else file.read_bytes()


def note_of(image: str, what: str) -> RowIssue:
    """Make the note of one sentence of `embedded_fields`.

    Args:
        image: Path of the image.
        what: The sentence.

    Returns:
        The note; what differs from image to image is its name.
    """
    differs = next(iter(re.findall(r"'.*'|\d[\d,]* pages", what)), "")
    return RowIssue(f"image {image}", what, fatal=False, name=differs)


def sidecar_suffix(sidecar: Path) -> str | None:
    """Read which file an .xmp file belongs to, of several with one name: photoshop:SidecarForExtension.

    Args:
        sidecar: The .xmp file.

    Returns:
        A suffix in small letters, with its point; None where the file does not say so, or cannot be read.
    """
    try:
        said = _properties(_read(sidecar)).get(f"{_PHOTOSHOP}SidecarForExtension", [""])[0].strip().strip(".")
    except BROKEN:
        return None
    return f".{said.lower()}" if said else None


def _xmp(packet: bytes | str) -> dict[str, Any]:
    properties = _properties(packet)
    fields = {}
    for field, names in _XMP.items():
        values = next(filter(None, (_cleaned(properties.get(name, ())) for name in names)), [])
        fields[field] = _shaped(field, values)
    return {**fields, "date": _date_or_text(fields["date"])}


def _properties(packet: bytes | str) -> dict[str, list[str]]:
    """The values of each property of the file that a packet describes."""
    root = fromstring(packet.strip(b"\0 \r\n\t") if isinstance(packet, bytes) else packet.strip("\0 \r\n\t"))
    properties: dict[str, list[str]] = {}
    # Deeper descriptions are those of other files, such as the ingredients of a montage.
    for description in (one for rdf in root.iter(f"{_RDF}RDF") for one in rdf.findall(f"{_RDF}Description")):
        for name, text in description.attrib.items():
            properties.setdefault(name, [text])
        for child in description:
            properties.setdefault(child.tag, list(_values(child)))
    return properties


def _values(element: Element) -> Iterator[str]:
    """The values of a property: of a list all, of alternatives in several languages the default one."""
    items = list(element.iter(f"{_RDF}li"))
    if element.find(f"{_RDF}Alt") is not None:
        items = sorted(items, key=lambda item: item.get(f"{_XML}lang") != "x-default")[:1]
    yield from ("".join(item.itertext()) for item in items or [element])


def _iptc(sets: Mapping[tuple[int, int], Any]) -> dict[str, Any]:
    utf8 = sets.get(_IPTC_CHARSET) == _UTF8_MARK

    def values(number: int) -> list[str]:
        raw = sets.get((2, number)) or []
        return _cleaned(_decoded(value, utf8) for value in (raw if isinstance(raw, list) else [raw]) if value)

    fields = {field: _shaped(field, next(filter(None, map(values, numbers)), [])) for field, numbers in _IPTC.items()}
    time = sets.get(_IPTC_TIME)
    moment = f"{fields['date']}T{_decoded(time, utf8)}" if fields["date"] and isinstance(time, bytes) else None
    exact = moment and _date(moment)
    return {**fields, "date": exact or _date_or_text(fields["date"])}


def _century(text: str) -> str | None:
    """A date of six figures, of which the standards have eight: without its century, or without its day.

    They are of 1991 and later. 240101 is of 2024, and 991231 of 1999; 191205 may be May 1912 as well, and stays as it
    is.
    """
    year = datetime.now(UTC).year
    century = 2000 if int(text[:2]) <= year % 100 else 1900
    short, long = f"{century + int(text[:2])}-{text[2:4]}-{text[4:]}", f"{text[:4]}-{text[4:]}"
    is_month = 1800 <= int(text[:4]) <= year and read_date(long) is not None
    if read_date(short) is not None and "00" not in (text[2:4], text[4:]):
        return text if is_month else short
    return long if is_month else None


def _decoded(value: bytes, utf8: bool) -> str:
    """IPTC often does not name its encoding: then it is UTF-8 where it can be, and else that of Windows."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("utf-8" if utf8 else "cp1252", "replace")


def _exif(exif: Image.Exif) -> dict[str, Any]:
    taken, position = exif.get_ifd(_EXIF_IFD), exif.get_ifd(_GPS_IFD)
    dates = (_date(f"{taken[tag]} {taken.get(offset) or ''}") for tag, offset in _TAKEN if taken.get(tag))
    # Cameras write zeros or spaces without a clock; what else is no date stays as a text.
    texts = map(_date_or_text, _cleaned(str(taken[tag]) for tag, _ in _TAKEN if taken.get(tag)))
    names = _cleaned(str(exif[tag]) for tag in (_MAKE, _MODEL) if exif.get(tag))
    # Models of most makers begin with the maker's name.
    camera = names[-1] if len(names) == 2 and names[1].casefold().startswith(names[0].casefold()) else " ".join(names)
    orientation = exif.get(_ORIENTATION)
    latitude, longitude = _degrees(position, 1, "S", 90), _degrees(position, 3, "W", 180)
    both = latitude is not None and longitude is not None
    return {
        "date": next(filter(None, (*dates, *texts)), None),
        "zone": next(filter(None, (_zone(taken.get(offset)) for _, offset in _TAKEN)), None),
        "camera": camera,
        "orientation": orientation if orientation in range(1, 9) else None,
        "latitude": latitude if both else None,
        "longitude": longitude if both else None,
    }


def _zone(offset: Any) -> str | None:
    """An offset from UTC, such as +09:00."""
    text = offset.strip("\0 ") if isinstance(offset, str) else ""
    return text if _ZONED.fullmatch(text) else None


def _degrees(position: Mapping[int, Any], reference: int, negative: str, most: int) -> float | None:
    """Degrees, minutes and seconds, three rationals, as degrees."""
    parts = position.get(reference + 1)
    if not isinstance(parts, tuple) or len(parts) != 3:
        return None
    degrees = sum(float(part) / 60**power for power, part in enumerate(parts))
    if not math.isfinite(degrees) or degrees > most:
        return None
    return round(-degrees if str(position.get(reference)).strip("\0 ") == negative else degrees, 6)


def _cleaned(values: Any) -> list[str]:
    texts = (" ".join(value.replace("\0", " ").split()) for value in values)
    return [text for text in texts if text]


def _shaped(field: str, values: list[str]) -> Any:
    if field in _LISTS or len(values) > 1:
        return list(dict.fromkeys(values))
    return values[0] if values else None


def _date_or_text(values: Any) -> str | None:
    """A date as `_date` has it, or its text where it is in another form; None for zeros, which stand for no date."""
    text = str(values[0] if isinstance(values, list) else values or "").strip()
    return None if re.fullmatch(r"[0:/.\-T Z+]*", text) else _date(text) or text


def _date(text: Any) -> str | None:
    """A date of any block in ISO 8601; None for one that is in another form, or none.

    A year or a month alone stays one: IPTC writes zeros for the month and the day that are not known.

    Example:
        >>> dates = ("1958", "19580700", "2019:07:14 09:05:00", "0000:00:00 00:00:00", "-0043", "um 1900")
        >>> tuple(map(_date, dates))
        ('1958', '1958-07', '2019-07-14T09:05:00', None, None, None)
    """
    match = _DATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    if len(match[0]) == 6:
        known = _century(match[0])
        return known if known != match[0] else None
    year, month, day, hour, minute, second, offset = match.groups()
    if year == "0000":
        return None
    if hour is None or "00" in (month, day):
        written = "-".join([year, *takewhile(lambda part: part not in (None, "00"), (month, day))])
    else:
        zone = "" if not offset else "+00:00" if offset == "Z" else f"{offset[:3]}:{offset[-2:]}"
        written = f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}{zone}"
    return None if read_date(written) is None else written
