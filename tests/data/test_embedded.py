"""What is written inside image files is read: IPTC, XMP, .xmp files and EXIF, under the same names."""

from __future__ import annotations

import json
import os
import time
from datetime import date, timedelta
from pathlib import Path

import coloured_images
import exiftool
import pytest
from command import call
from PIL import Image
from served_index import client

import subtext as st
from subtext.data.dataset import summarise
from subtext.data.embedded import embedded_fields
from subtext.data.read import read
from subtext.errors import DataError

pytestmark = exiftool.needed
CITIES = ("Paris", "Łódź", "Wien")


def jpegs(folder: Path, count: int) -> list[Path]:
    folder.mkdir(parents=True)
    files = [folder / f"{number:03}.jpg" for number in range(count)]
    for number, file in enumerate(files):
        Image.new("RGB", (32, 24), list(coloured_images.COLOURS.values())[number % 12]).save(file)
    return files


IPTC = {
    "IPTC:Headline": "The ruling stands", "IPTC:Caption-Abstract": "A gavel in Łódź, 1958.",
    "IPTC:Keywords": ["law", "court"], "IPTC:By-line": "Ann Example", "IPTC:Credit": "Desk",
    "IPTC:DateCreated": "2021:03:05",
    "IPTC:TimeCreated": "14:30:00+01:00", "IPTC:City": "Łódź", "IPTC:Country-PrimaryLocationName": "Poland",
    "IPTC:CopyrightNotice": "All rights reserved",
}  # fmt: skip
XMP = {
    "XMP-photoshop:Headline": "The ruling stands", "XMP-dc:Description": "A gavel in Łódź, 1958.",
    "XMP-dc:Subject": ["law", "court"], "XMP-dc:Creator": "Ann Example", "XMP-photoshop:Credit": "Desk",
    "XMP-photoshop:DateCreated": "2021:03:05 14:30:00+01:00", "XMP-photoshop:City": "Łódź",
    "XMP-photoshop:Country": "Poland", "XMP-dc:Rights": "All rights reserved",
}  # fmt: skip
READ = {
    "headline": "The ruling stands", "caption": "A gavel in Łódź, 1958.", "keywords": ["law", "court"],
    "byline": "Ann Example", "credit": "Desk", "date": "2021-03-05T14:30:00+01:00", "city": "Łódź",
    "country": "Poland", "rights": "All rights reserved",
}  # fmt: skip
EXIF = {
    "EXIF:DateTimeOriginal": "2019:07:14 09:05:00", "EXIF:Make": "Fuji", "EXIF:Model": "Fuji X100",
    "EXIF:Orientation#": 6,
    "EXIF:GPSLatitude": 51.7592, "EXIF:GPSLatitudeRef": "S", "EXIF:GPSLongitude": 19.456, "EXIF:GPSLongitudeRef": "W",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files whose names say which blocks they have, all written by one call."""
    folder = tmp_path_factory.mktemp("blocks") / "files"
    made = jpegs(folder, 1)[0]
    made.unlink()
    for name in (
        "iptc.jpg",
        "xmp.jpg",
        "exif.jpg",
        "title.jpg",
        "both.jpg",
        "plain.jpg",
        "xmp.png",
        "xmp.webp",
        "xmp.tif",
    ):
        Image.new("RGB", (32, 24), (200, 30, 30)).save(folder / name)
    both = {**IPTC, "XMP-dc:Description": "The caption of today", **EXIF}
    tags = {"iptc.jpg": IPTC, "exif.jpg": EXIF, "both.jpg": both, "title.jpg": {"XMP-dc:Title": "A title alone"}}
    tags |= {f"xmp.{suffix}": XMP for suffix in ("jpg", "png", "webp", "tif")}
    exiftool.write({folder / name: values for name, values in tags.items()}, "-codedcharacterset=UTF8")
    return folder


@pytest.mark.parametrize("name", ["iptc.jpg", "xmp.jpg", "xmp.png", "xmp.webp", "xmp.tif"])
def test_every_source_gives_the_same_field_names(files: Path, name: str) -> None:
    assert embedded_fields(files / name) == (READ, [])


def test_exif_gives_date_camera_orientation_and_position(files: Path) -> None:
    fields, wrong = embedded_fields(files / "exif.jpg")
    assert wrong == ["names no offset from UTC; its day is that of the camera's clock"] and fields == {
        "date": "2019-07-14T09:05:00", "camera": "Fuji X100", "orientation": 6,
        "latitude": -51.7592, "longitude": -19.456,
    }  # fmt: skip


def test_newer_blocks_take_precedence_and_older_fill_in(files: Path, tmp_path: Path) -> None:
    fields, _ = embedded_fields(files / "both.jpg")
    assert fields["caption"] == "The caption of today" and fields["date"] == READ["date"]
    assert fields["headline"] == READ["headline"] and fields["camera"] == "Fuji X100"
    assert embedded_fields(files / "title.jpg")[0] == {"headline": "A title alone"}
    assert embedded_fields(files / "plain.jpg") == ({}, [])


def test_windows_iptc_is_decoded(tmp_path: Path) -> None:
    file = jpegs(tmp_path / "old", 1)[0]
    exiftool.write({file: {"IPTC:Headline": "Café"}}, "-charset", "iptc=Latin")
    assert embedded_fields(file)[0]["headline"] == "Café"


def test_sidecar_file_takes_precedence(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes((files / "iptc.jpg").read_bytes())
    packet = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
      <r:Description xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:p="http://ns.adobe.com/photoshop/1.0/"
      p:City="Rom"><dc:description><r:Alt><r:li xml:lang="de">Heute</r:li>
      <r:li xml:lang="x-default">Today</r:li></r:Alt>
      </dc:description>
      </r:Description></r:RDF></x:xmpmeta>"""
    (folder / "a.xmp").write_text(packet)
    (folder / "b.jpg.xmp").write_text(packet)
    data = read(folder)
    assert data.texts.values == ["The ruling stands", "Today"] * 2
    assert data.images.metadata["city"] == ["Rom", "Rom"] and not data.problems


SIDE = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:p="http://ns.adobe.com/photoshop/1.0/">{}</r:RDF></x:xmpmeta>"""


def test_nested_montage_fields_are_ignored(tmp_path: Path) -> None:
    file = jpegs(tmp_path / "photos", 1)[0]
    part = '<r:Description p:City="Wien"><dc:subject>part</dc:subject></r:Description>'
    parts = f"<r:Description><p:Parts><r:Bag><r:li>{part}</r:li></r:Bag></p:Parts></r:Description>"
    side = tmp_path / "side.xmp"
    side.write_text(SIDE.format(f'{parts}<r:Description p:Credit="Desk"/>'))
    assert embedded_fields(file, side) == ({"credit": "Desk"}, [])


def test_date_keeps_its_precision(tmp_path: Path) -> None:
    files = jpegs(tmp_path / "photos", 3)
    exiftool.write({files[0]: {"IPTC:DateCreated": "1958:00:00"}})
    for file, written in zip(files[1:], ("1958-07", "1958-07-03"), strict=True):
        # The suffix in capitals, as some programs write it.
        file.with_suffix(".XMP").write_text(SIDE.format(f'<r:Description p:DateCreated="{written}"/>'))
    data = read(tmp_path / "photos")
    assert data.images.metadata["date"] == ["1958", "1958-07", "1958-07-03"]
    assert data.problems == ()


@pytest.mark.parametrize(
    "packet",
    ["<x:xmpmeta", '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><x>&c;</x>', '<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>'],
    ids=["cut off", "entities", "another file"],
)  # fmt: skip
def test_malformed_block_is_reported_and_image_kept(files: Path, tmp_path: Path, packet: str) -> None:
    (tmp_path / "a.jpg").write_bytes((files / "iptc.jpg").read_bytes())
    (tmp_path / "a.xmp").write_text(packet)
    data = read(tmp_path, verify=True)
    assert data.texts.values == ["The ruling stands", "A gavel in Łódź, 1958."]
    reported = [(problem.where, problem.fatal) for problem in data.problems]
    assert reported == ([] if "SYSTEM" in packet else [("image a.jpg", False)]), "what a file names is never opened"


def test_text_fields_option_selects_fields(files: Path) -> None:
    data = read(files, text_fields="keywords,credit")
    one = data.images.ids.index("iptc.jpg")
    texts = [data.texts.values[text] for image, text in data.links.tolist() if image == one]
    assert texts == ["law", "court", "Desk"]
    assert data.images.metadata["keywords"][one] == ["law", "court"], "keywords stay a facet"
    assert data.images.metadata["headline"][one] == "The ruling stands"
    with pytest.raises(DataError, match=r"has no 'keyword', .* the nearest names are 'keywords'"):
        read(files, text_fields="keyword")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 JPEGs with IPTC, of which 20 malformed in three ways; and a run."""
    place = coloured_images.runs(tmp_path_factory.mktemp("archive"), "run")
    files = jpegs(place / "photos", 300)
    names = list(coloured_images.COLOURS)
    exiftool.write(
        {
            file: {
                "IPTC:Headline": f"a {names[number % 12]} square", "IPTC:Caption-Abstract": f"Photo {number}",
                "IPTC:Keywords": [names[number % 12], "square"], "IPTC:City": CITIES[number % 3], "IPTC:Credit": "Desk",
                "IPTC:DateCreated": f"{date(2001, 1, 1) + timedelta(days=number):%Y:%m:%d}",
            }
            for number, file in enumerate(files)
        },
        "-codedcharacterset=UTF8",
    )  # fmt: skip
    for number, file in enumerate(files[:20]):
        data = file.read_bytes()
        start = data.index(b"8BIM\x04\x04") + 12
        # The mark of a data set; the length of one; and a block of XMP that is no XML.
        if number % 3 == 0:
            data = data[:start] + b"\x1d" + data[start + 1 :]
        elif number % 3 == 1:
            second = data.index(b"\x1c\x02", start + 5)
            data = data[: second + 3] + b"\xff" + data[second + 4 :]
        else:
            packet = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><unclosed>"
            data = data[:2] + b"\xff\xe1" + (len(packet) + 2).to_bytes(2, "big") + packet + data[2:]
        file.write_bytes(data)
    return place


def test_archive_folder_end_to_end(archive: Path) -> None:
    report = st.check_dataset(archive / "photos")
    damaged = [problem for problem in report.problems if "block is damaged" in problem.what]
    assert len(damaged) == 20 and report.images == 300 and not any(problem.fatal for problem in report.problems)
    call("index", "build", archive / "library", "--run", archive / "run", "--data", archive / "photos", "--quiet")
    found = call(
        "search",
        archive / "library",
        "a red square",
        "--where",
        "date >= 2001-10-01",
        "--where",
        "city = Wien",
        "--json",
        "--top",
        100,
    )
    hits = json.loads(found.stdout)["hits"]
    wanted = {f"{n:03}.jpg" for n in range(273, 300) if n % 3 == 2}
    assert {hit["id"] for hit in hits} == wanted
    with client(archive / "library") as server:
        fields = {field["name"]: field for field in server.get("/fields").json()["fields"]}
    assert fields["date"]["kind"] == "date" and fields["date"]["high"] == "2001-10-27"
    counts = dict(map(tuple, fields["city"]["values"]))
    assert set(counts) == set(CITIES) and 280 <= sum(counts.values()) <= 300
    assert dict(map(tuple, fields["keywords"]["values"]))["square"] == sum(counts.values())
    assert fields["credit"]["kind"] == "text"


def test_archive_folder_with_table_end_to_end(archive: Path, tmp_path: Path) -> None:
    rows = "".join(f"{n:03}.jpg;Überschrift {n};{1950 + n % 50};{1 + n % 28:02}.03.2001\n" for n in range(300))
    (tmp_path / "list.csv").write_bytes(("Dateiname;Titel;Jahr;Aufnahme\n" + rows).encode("cp1252"))
    words = ["index", "build", tmp_path / "index", "--run", archive / "run", "--data", tmp_path / "list.csv"]
    words += ["--images", archive / "photos", "--columns", "image=Dateiname,text=Titel,date=Aufnahme,year=Jahr"]
    call(*words, "--quiet")
    answer = st.search(tmp_path / "index", "red", where=("year >= 1995", "date < 2001-03-03"), top=300)
    assert {hit.id for hit in answer.hits} == {f"{n:03}.jpg" for n in range(300) if n % 50 >= 45 and n % 28 < 2}
    assert answer.hits[0].captions[0].startswith("Überschrift")
    assert "0 deleted" not in call("index", "update", tmp_path / "index", "--quiet").stdout


@pytest.mark.slow
def test_reads_1000_files_per_second(tmp_path: Path) -> None:
    files = jpegs(tmp_path / "photos", 2000)
    exiftool.write(dict.fromkeys(files, IPTC | EXIF))
    read(tmp_path / "photos")
    begun = time.process_time()
    assert len(read(tmp_path / "photos").images) == 2000
    # Twice over for slow machines, and twice where shapes and types are checked at every call.
    most = 4 if os.environ.get("CHECK_SHAPES") == "0" else 8
    assert time.process_time() - begun < most, "1,000 files a second"


@pytest.mark.parametrize("written", ["05.03.2021", "1950/1960", "ca. 1950", "-0043", "31.02.2021", "undated"])
def test_date_of_any_form_stays_as_it_is_written(tmp_path: Path, written: str) -> None:
    file = jpegs(tmp_path / "photos", 1)[0]
    exiftool.write({file: {"IPTC:DateCreated": "1999:01:02"}})
    assert embedded_fields(file) == ({"date": "1999-01-02"}, [])
    file.with_suffix(".xmp").write_text(SIDE.format(f'<r:Description p:DateCreated="{written}"/>'))
    data = read(tmp_path / "photos")
    assert data.images.metadata["date"] == [written], "the older date, of a scan perhaps, is not its date"
    note = f"image 000.jpg: its date '{written}' is no date that can be compared; it is shown as it is written"
    assert list(map(str, data.problems)) == ([note] if written in ("31.02.2021", "undated") else [])


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("2024:13:01 00:10:00", "2024:13:01 00:10:00"), ("    :  :     :  :  ", None), ("0000:00:00 00:00:00", None)],
)
def test_date_of_a_camera_that_is_none_stays_as_it_is_written(tmp_path: Path, written: str, wanted: str | None) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = written
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", exif=exif)
    fields, notes = embedded_fields(tmp_path / "a.jpg")
    assert fields.get("date") == wanted
    assert notes == (
        [f"its date '{wanted}' is no date that can be compared; it is shown as it is written"] * bool(wanted)
    )


def test_zeros_are_no_date(tmp_path: Path) -> None:
    file = jpegs(tmp_path / "photos", 1)[0]
    exiftool.write({file: {"IPTC:DateCreated": "1999:01:02"}})
    file.with_suffix(".xmp").write_text(SIDE.format('<r:Description p:DateCreated="0000-00-00"/>'))
    assert read(tmp_path / "photos").images.metadata["date"] == ["1999-01-02"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("240101", "2024-01-01"),
        ("991231", "1999-12-31"),
        ("195807", "1958-07"),
        ("191205", "191205"),
        ("249901", "249901"),
    ],
)
def test_date_of_six_digits_gets_its_century(tmp_path: Path, written: str, wanted: str) -> None:
    file = jpegs(tmp_path / "photos", 1)[0]
    file.with_suffix(".xmp").write_text(SIDE.format(f'<r:Description p:DateCreated="{written}"/>'))
    data = read(tmp_path / "photos")
    assert data.images.metadata["date"] == [wanted] and bool(data.problems) == (written == wanted)


def test_day_is_that_of_the_place(tmp_path: Path) -> None:
    file = jpegs(tmp_path / "photos", 1)[0]
    exif = {"EXIF:DateTimeOriginal": "2024:01:01 08:30:00", "EXIF:OffsetTimeOriginal": "+09:00"}
    exiftool.write({file: exif})
    assert embedded_fields(file) == ({"date": "2024-01-01T08:30:00+09:00"}, [])
    side = file.with_suffix(".xmp")
    for written in ("2023-12-31T23:30:00Z", "2024-01-01T08:30:00"):
        side.write_text(SIDE.format(f'<r:Description p:DateCreated="{written}"/>'))
        assert embedded_fields(file, side) == ({"date": "2024-01-01T08:30:00+09:00"}, []), "the camera knew its zone"


def test_date_notes_are_summarised(tmp_path: Path) -> None:
    for number, file in enumerate(jpegs(tmp_path / "photos", 3)):
        file.with_suffix(".xmp").write_text(SIDE.format(f'<r:Description p:DateCreated="in autumn {number}"/>'))
    assert len(summarise(read(tmp_path / "photos").problems)) == 1
