"""A corpus of what archives bring: some 400 files and tables of every kind, with what each must become.

`python tests/helpers/corpus.py FOLDER` (make corpus) writes it. Each data set is a folder of its own; `expected.json`
lists every file or row: an item with its colour, texts and fields, left out, or a problem.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ITEM, LEFT_OUT, PROBLEM = "item", "left out", "problem"
DATES = (
    "circa 1890", "1890-1895", "1890/1895", "189X", "um 1900", "vor 1914", "[1923?]", "1954/55", "-0043", "12.5.1951",
    "o. D.", "2019-07-14",
)  # fmt: skip
"""Twelve notations of dates."""
LABELS = ({"de": "Hafen", "fr": "port", "en": "harbour"}, {"de": "Brücke", "fr": "pont", "en": "bridge"})
PRESENTATION = "http://iiif.io/api/presentation/3/context.json"


@dataclass
class Expected:
    """What a file, or a row, must become.

    Attributes:
        data: Name of the data set: a folder.
        file: The file, from that folder, or the name that a row has.
        becomes: "item", "left out" or "problem".
        id: Of the item.
        colour: Its red, green and blue; None where it has several.
        texts: Its texts -> their language; None where none is named.
        fields: Some of its metadata.
    """

    data: str
    file: str
    becomes: str = ITEM
    id: str = ""
    colour: tuple[int, int, int] | None = None
    texts: dict[str, str | None] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)


class Corpus:
    """Writes the corpus.

    Args:
        folder: A new folder.
        variants: Files of each kind.
    """

    def __init__(self, folder: Path, variants: int) -> None:
        self.folder, self.variants, self.made = folder, variants, list[Expected]()
        self.tags: dict[Path, dict[str, object]] = {}

    def write(self) -> list[Expected]:
        """Write all data sets.

        Returns:
            What each file and row must become.
        """
        for part in (self.photographs, self.left_out, self.damaged, self.inside, self.sidecars, self.tables,
                     self.manifests, self.lido):  # fmt: skip
            part()
        self._write_tags()
        rows = [asdict(one) for one in self.made]
        (self.folder / "expected.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
        return self.made

    def colour(self) -> tuple[int, int, int]:
        """Another colour for each file."""
        number = len(self.made)
        return (40 + number * 37 % 180, 40 + number * 101 % 180, 40 + number * 59 % 180)

    def place(self, data: str, name: str) -> Path:
        """The path of a file, whose folder is made."""
        path = self.folder / data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, data: str, file: str, **more: Any) -> Expected:
        """Note what a file must become."""
        made = Expected(data, file, **({"id": file} if more.get("becomes", ITEM) == ITEM else {}) | more)
        self.made.append(made)
        return made

    def photographs(self) -> None:
        """Formats, depths, orientations, pages and names."""
        suffixes = {
            "jpg": "JPEG",
            "JPG": "JPEG",
            "jfif": "JPEG",
            "mpo": "MPO",
            "png": "PNG",
            "webp": "WEBP",
            "tif": "TIFF",
        }
        suffixes |= {"gif": "GIF", "bmp": "BMP", "jp2": "JPEG2000", "ppm": "PPM", "tga": "TGA", "avif": "AVIF"}
        for number in range(self.variants):
            for suffix, form in suffixes.items():
                self.photograph(f"formats/{number}/{suffix}.{suffix}", form)
            for name, make in self.depths().items():
                self.deep(f"depths/{number}/{name}", make)
            for turn in range(1, 9):
                exif, colour = Image.Exif(), self.colour()
                exif[0x0112] = turn
                path = self.place("photos", f"turned/{number}/{turn}.jpg")
                Image.new("RGB", (40, 24), colour).save(path, quality=95, exif=exif)
                self.add("photos", f"turned/{number}/{turn}.jpg", colour=colour, fields={"orientation": turn})
            pages = [Image.new("RGB", (20, 20), colour) for colour in (self.colour(), (1, 2, 3), (4, 5, 6))]
            pages[0].save(self.place("photos", f"pages/{number}.tif"), save_all=True, append_images=pages[1:])
            self.add("photos", f"pages/{number}.tif", colour=self.colour())
        names = [
            "Paris, Texas.jpg",
            'say "hi" [a].jpg',
            "O'Brien.jpg",
            "犬 dog.jpg",
            "ﬁne œuvre.jpg",
            "x" * 200 + ".jpg",
        ]
        names += ["a/b/c/d/e/f/deep.jpg", unicodedata.normalize("NFD", "Zürich.jpg"), "🚣.jpg", "#1 100%.jpg", " .jpg"]
        for name in names:
            self.photograph(f"names/{name}", "JPEG")

    def photograph(self, name: str, form: str) -> None:
        """One image of one colour."""
        colour = self.colour()
        more = {"JPEG": {"quality": 95}, "MPO": {"quality": 95}, "WEBP": {"lossless": True}, "AVIF": {"quality": 100}}
        Image.new("RGB", (40, 30), colour).save(self.place("photos", name), form, **more.get(form, {}))
        self.add("photos", name, colour=colour)

    def depths(self) -> Mapping[str, Callable[[Path, int], None]]:
        """Kinds of pixels: functions of a path and a grey."""

        def plain(kind: type, factor: float) -> Callable[[Path, int], None]:
            return lambda path, grey: Image.fromarray((np.full((24, 32), grey) * factor).astype(kind)).save(path)

        def keyed(path: Path, grey: int) -> None:
            image = Image.new("L", (32, 24), grey)
            image.paste(3, (0, 0, 32, 2))
            image.save(path, transparency=3)

        def palette(path: Path, grey: int) -> None:
            image = Image.new("P", (32, 24), 1)
            image.putpalette([0, 0, 0, grey, grey, grey])
            image.save(path)

        return {
            "grey.png": plain(np.uint8, 1), "16.png": plain(np.uint16, 257), "16.tif": plain(np.uint16, 257),
            "float.tif": plain(np.float32, 1 / 255), "float255.tif": plain(np.float32, 1),
            "int.tif": plain(np.int32, 257), "keyed.png": keyed, "palette.png": palette,
            "alpha.png": lambda path, grey: Image.new("LA", (32, 24), (grey, 255)).save(path),
            "cmyk.tif": lambda path, grey: Image.new("CMYK", (32, 24), (255 - grey,) * 3 + (0,)).save(path),
        }  # fmt: skip

    def deep(self, name: str, make: Callable[[Path, int], None]) -> None:
        """One image of one grey."""
        grey = 60 + len(self.made) * 7 % 150
        make(self.place("photos", name), grey)
        self.add("photos", name, colour=(grey,) * 3)

    def left_out(self) -> None:
        """Files that are no images, and what systems write."""
        for number in range(self.variants):
            for suffix in ("cr2", "nef", "dng", "svg", "pdf", "mp4", "psd", "txt", "xcf"):
                self.place("photos", f"others/{number}.{suffix}").write_bytes(b"x")
                self.add("photos", f"others/{number}.{suffix}", becomes=LEFT_OUT)
        for name in (
            "@eaDir/a.jpg",
            "#recycle/b.jpg",
            "__MACOSX/c.jpg",
            ".hidden/d.jpg",
            "formats/._e.jpg",
            "Thumbs.db",
        ):
            Image.new("RGB", (8, 8)).save(self.place("photos", name), "JPEG")
            self.add("photos", name, becomes=LEFT_OUT)
        if hasattr(os, "mkfifo"):
            os.mkfifo(self.place("photos", "others/pipe.jpg"))
            self.add("photos", "others/pipe.jpg", becomes=LEFT_OUT)
        self.place("photos", "others/again.jpg").symlink_to(self.folder / "photos" / "formats" / "0" / "jpg.jpg")
        self.add("photos", "others/again.jpg", becomes=LEFT_OUT)

    def damaged(self) -> None:
        """Files that are said to be images, and are none."""
        whole = self.place("photos", "damaged/whole.png")
        Image.effect_noise((64, 64), 90).save(whole)
        data = whole.read_bytes()
        whole.unlink()
        contents = {
            "empty.jpg": b"",
            "page.jpg": b"<html></html>",
            "cut.png": data[: len(data) // 2],
            "zeros.tif": bytes(99),
        }
        for name, content in contents.items():
            self.place("photos", f"damaged/{name}").write_bytes(content)
            self.add("photos", f"damaged/{name}", becomes=PROBLEM)

    def inside(self) -> None:
        """Headlines, keywords, places and dates in XMP and IPTC."""
        if shutil.which("exiftool") is None:
            return
        for number in range(self.variants):
            for place, date in enumerate(DATES):
                name, colour = f"inside/{number}/{place}.jpg", self.colour()
                path = self.place("photos", name)
                Image.new("RGB", (32, 24), colour).save(path, quality=95)
                text = f"Inside {number} of {date} Łódź"
                self.tags[path] = {"XMP-photoshop:Headline": text, "XMP-photoshop:City": f"City {place}",
                                   "XMP-dc:Subject": ["law", f"tag {place}"]}  # fmt: skip
                packet = f'<r:Description p:DateCreated="{date}"/>'
                self.sidecar(path.with_suffix(".xmp"), packet)
                fields = {"city": f"City {place}", "keywords": ["law", f"tag {place}"], "date": date}
                self.add("photos", name, colour=colour, texts={text: None}, fields=fields)

    @staticmethod
    def sidecar(path: Path, description: str) -> None:
        """An .xmp file."""
        path.write_text(
            '<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            f'xmlns:p="http://ns.adobe.com/photoshop/1.0/">{description}</r:RDF></x:xmpmeta>',
            encoding="utf-8",
        )

    def sidecars(self) -> None:
        """Sidecars of one image, of another, and two of one."""
        for number in range(self.variants):
            for stem, said, texts in (("own", "", True), ("raw", "CR2", False), ("jpeg", "jpg", True)):
                name, colour = f"sidecars/{number}/{stem}.jpeg", self.colour()
                path = self.place("photos", name)
                Image.new("RGB", (32, 24), colour).save(path, quality=95)
                text = f"Beside {number} {stem}"
                belongs = f'p:SidecarForExtension="{said}"' if said else ""
                self.sidecar(path.with_suffix(".xmp"), f'<r:Description p:Headline="{text}" {belongs}/>')
                self.add("photos", name, colour=colour, texts={text: None} if texts else {})

    def _write_tags(self) -> None:
        if self.tags:
            rows = [{"SourceFile": str(path), **values} for path, values in self.tags.items()]
            (self.folder / "tags.json").write_text(json.dumps(rows), encoding="utf-8")
            words = ["exiftool", "-q", "-q", "-m", "-overwrite_original", f"-json={self.folder / 'tags.json'}"]
            subprocess.run([*words, *map(str, self.tags)], check=True)
            (self.folder / "tags.json").unlink()

    def tables(self) -> None:
        """The same rows in every format, with names that find files otherwise."""
        forms: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
            "csv": write_csv(",", "utf-8"), "semicolons": write_csv(";", "cp1252"), "tsv": write_csv("\t", "utf-8-sig"),
            "jsonl": _jsonl, "parquet": _parquet, "xlsx": _excel,
        }  # fmt: skip
        for form, write in forms.items():
            rows = list(self.rows(form))
            suffix = {"semicolons": "csv"}.get(form, form)
            self.place(form, f"list.{suffix}")
            write(self.folder / form / f"list.{suffix}", rows)

    def rows(self, form: str) -> Iterator[dict[str, Any]]:
        """Rows of a table, whose files are written."""
        for number in range(3 * self.variants):
            names = {
                f"{form} {number} a.jpg": f"scans/{number}/{form} {number} a.jpg",
                f"{form}-{number}.118": f"scans/{form}-{number}-118.png",
                f"scans\\{number}\\{form.upper()} B{number}.JPG": f"scans/{number}/{form} b{number}.jpg",
            }
            for name, file in names.items():
                colour = self.colour()
                Image.new("RGB", (32, 24), colour).save(self.place(form, file), quality=95)
                place, text = "Paris, Texas" if number % 2 else "Zürich", f"Row {number} of {form}: {name[-6:]}"
                fields = {"place": place, "size": 10 + number, "date": DATES[number % 12]}
                self.add(form, name, colour=colour, texts={text: None}, fields=fields, id=name.replace("\\", "/"))
                if "\\" in name:
                    self.made[-1].id = name
                yield {"image": name, "caption": text, **fields}
        self.add(form, "gone.jpg", becomes=PROBLEM)
        yield {"image": "gone.jpg", "caption": "Not there", "place": "", "size": 1, "date": ""}
        Image.new("RGB", (8, 8)).save(self.place(form, "scans/left over.png"))
        self.add(form, "scans/left over.png", becomes=LEFT_OUT)

    def manifests(self) -> None:
        """Manifests in three languages, and one that is cut off."""
        for number in range(4 * self.variants):
            label, colour = LABELS[number % 2], self.colour()
            texts = {f"{text} {number}": language for language, text in label.items()}
            Image.new("RGB", (32, 24), colour).save(self.place("iiif", f"page-{number}.jpg"), quality=95)
            canvas = {
                "type": "Canvas",
                "items": [{"items": [{"body": {"id": f"https://x.example/page-{number}.jpg"}}]}],
            }
            content = {"@context": PRESENTATION, "id": f"m{number}", "type": "Manifest", "items": [canvas],
                       "label": {language: [text] for text, language in texts.items()},
                       "metadata": [{"label": {"en": ["Shelf"]}, "value": {"none": [f"MS {number}"]}}]}  # fmt: skip
            self.place("iiif", f"m{number}.json").write_text(json.dumps(content), encoding="utf-8")
            self.add("iiif", f"page-{number}.jpg", colour=colour, texts=texts, fields={"shelf": f"MS {number}"})
        self.place("iiif", "cut.json").write_text(f'{{"@context": "{PRESENTATION}", "label": ', encoding="utf-8")
        self.add("iiif", "cut.json", becomes=PROBLEM)

    def lido(self) -> None:
        """Objects with makers and ranges of dates, and a file that is cut off."""
        start, end = '<lido:lidoWrap xmlns:lido="http://www.lido-schema.org">', "</lido:lidoWrap>"
        record = (
            "<lido:lido><lido:lidoRecID>{n}</lido:lidoRecID><lido:titleWrap><lido:titleSet><lido:appellationValue>{t}"
            "</lido:appellationValue></lido:titleSet></lido:titleWrap><lido:event><lido:eventType><lido:term>Herstellung"
            "</lido:term></lido:eventType><lido:eventActor><lido:displayActorInRole>Maker {n}</lido:displayActorInRole>"
            "</lido:eventActor><lido:eventDate><lido:date><lido:earliestDate>1885</lido:earliestDate><lido:latestDate>1895"
            "</lido:latestDate></lido:date></lido:eventDate></lido:event><lido:linkResource>o{n}.jpg</lido:linkResource>"
            "</lido:lido>"
        )
        for number in range(4 * self.variants):
            colour, text = self.colour(), f"Object {number}"
            Image.new("RGB", (32, 24), colour).save(self.place("lido", f"o{number}.jpg"), quality=95)
            content = start + record.format(n=number, t=text) + end
            self.place("lido", f"{number}.xml").write_text(content, encoding="utf-8")
            fields = {"byline": f"Maker {number}", "date": "1885/1895"}
            self.add("lido", f"o{number}.jpg", colour=colour, texts={text: None}, fields=fields)
        self.place("lido", "cut.xml").write_text(start + record.format(n="x", t="y")[:-9], encoding="utf-8")
        self.add("lido", "cut.xml", becomes=PROBLEM)


def write_csv(separator: str, encoding: str) -> Callable[[Path, list[dict[str, Any]]], None]:
    def write(path: Path, rows: list[dict[str, Any]]) -> None:
        with path.open("w", encoding=encoding, newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
            writer.writeheader()
            writer.writerows(rows)

    return write


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _excel(path: Path, rows: list[dict[str, Any]]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for cells in (list(rows[0]), *(list(row.values()) for row in rows)):
        sheet.append(cells)
    book.save(path)


if __name__ == "__main__":
    made = Corpus(Path(sys.argv[1]), 4).write()
    counts = {kind: sum(one.becomes == kind for one in made) for kind in (ITEM, LEFT_OUT, PROBLEM)}
    print(f"{sys.argv[1]}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
