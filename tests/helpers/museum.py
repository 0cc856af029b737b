"""The first hour of a museum: 300 made photographs, an export of its database, and the commands of a technician.

`python tests/helpers/museum.py FOLDER` (make museum) writes the photographs, runs the commands, and prints each with
what it says: what was found, what was left out, and why. The model is the starter (extras `serve` and `starter`).
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from corpus import DATES, write_csv
from PIL import Image, ImageFilter

FILES, PRESS, ALBUM = 180, 90, 30
"""Photographs that the database knows, press pictures with IPTC or XMP inside, and an album with sidecars."""
SUBJECTS = (
    ("Hafen", "le port", "harbour"), ("Brücke", "le pont", "bridge"), ("Markt", "le marché", "market"),
    ("Straßenbahn", "le tramway", "tram"), ("Hochzeit", "le mariage", "wedding"), ("Ernte", "la moisson", "harvest"),
)  # fmt: skip
TOWNS = ("Zürich", "Genève", "Łódź", "Paris, Texas")
IPTC = {"headline": 105, "caption": 120, "keywords": 25, "city": 90, "date": 55, "byline": 80}


def picture(path: Path, number: int) -> None:
    """A photograph of something: light from above, a horizon, and grain that no other has."""
    draws = np.random.default_rng(number)
    sky, ground = draws.integers(90, 250, 3), draws.integers(20, 160, 3)
    horizon = int(draws.integers(30, 90))
    pixels = np.where(np.arange(120)[:, None, None] < horizon, sky, ground) + np.linspace(40, -40, 120)[:, None, None]
    pixels = pixels + draws.normal(0, 12, (120, 160, 1))
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(1))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **({"quality": 88} if path.suffix == ".jpg" else {}))


def with_iptc(path: Path, fields: dict[str, str | list[str]]) -> None:
    """Write IPTC into a JPEG, in Windows-1252 and without a name of it, as old desks did."""
    data = b""
    for name, values in fields.items():
        for value in [values] if isinstance(values, str) else values:
            text = value.encode("cp1252")
            data += struct.pack(">BBBH", 0x1C, 2, IPTC[name], len(text)) + text
    block = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + struct.pack(">I", len(data)) + data + b"\0" * (len(data) % 2)
    content = path.read_bytes()
    path.write_bytes(content[:2] + b"\xff\xed" + struct.pack(">H", len(block) + 2) + block + content[2:])


def packet(headline: str, language: str, city: str, date: str) -> str:
    """XMP with a title in one language."""
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<r:Description xmlns:p="http://ns.adobe.com/photoshop/1.0/" xmlns:d="http://purl.org/dc/elements/1.1/" '
        f'p:City="{city}" p:DateCreated="{date}"><d:title><r:Alt><r:li xml:lang="{language}">{headline}</r:li></r:Alt>'
        "</d:title></r:Description></r:RDF></x:xmpmeta>"
    )


class Museum:
    """Writes what the museum has.

    Args:
        folder: A new folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self) -> None:
        """Write all of it."""
        self.collection()
        self.press()
        self.album()
        self.what_gathers()

    def collection(self) -> None:
        """Photographs in boxes, and an export that knows them by inventory number."""
        rows = list[dict[str, Any]]()
        for number in range(FILES):
            german, french, english = SUBJECTS[number % 6]
            year, running = 1950 + number % 40, number // 2 + 100
            name, side = f"{year}-{running}", "av"[number % 2]
            suffix = "tif" if number % 10 == 0 else "jpg"
            path = self.folder / "Sammlung" / f"Kasten {number // 30 + 1}" / str(year) / f"{name}{side}.{suffix}"
            picture(path, number)
            if number % 20 == 1:
                with_iptc(path, {"byline": "Anna Müller", "city": "Genf"})
            rows.append({
                "Inventarnummer": f"{year}/{running}{side}",
                "Titel": f"{german} in {TOWNS[number % 2]}, Aufnahme {number}",
                "Titre": f"Vue {number} sur {french} de la ville" if number % 3 == 0 else "",
                "Title": f"The {english} seen from the roof, no. {number}" if number % 3 == 1 else "",
                "Datierung": DATES[number % 12], "Ort": TOWNS[number % 2], "Schlagworte": f"Alltag; {german}",
                "Breite cm": f"{9 + number % 4},5",
            })  # fmt: skip
        rows.append({**rows[0], "Inventarnummer": "1999/1", "Titel": "Verliehen"})
        rows.append({**rows[0], "Inventarnummer": "1999/2", "Titel": "Verschollen"})
        rows.append({**rows[0], "Inventarnummer": "", "Titel": "Ohne Nummer"})
        picture(self.folder / "Sammlung" / "Kasten 7" / "unbekannt.jpg", 1000)
        write_csv(";", "cp1252")(self.folder / "Export.csv", rows)

    def press(self) -> None:
        """Press pictures: IPTC, and XMP in French and English."""
        for number in range(PRESS):
            german, french, english = SUBJECTS[number % 6]
            path = self.folder / "Presse" / str(1990 + number // 30) / f"{number:04}.jpg"
            picture(path, 2000 + number)
            if number % 2:
                image = Image.open(path)
                language, headline = (("fr", f"Encore {french}"), ("en", f"Once more the {english}"))[number // 2 % 2]
                xmp = packet(
                    headline, language, TOWNS[number % 4], f"199{number // 30}-0{1 + number % 9}-12T08:30:00+09:00"
                )
                image.save(path, quality=88, xmp=xmp.encode())
            else:
                with_iptc(path, {
                    "headline": f"{german} wieder offen", "caption": f"{german}, gestern. Foto: Müller",
                    "keywords": ["Presse", german], "city": "Genève", "date": f"199{number // 30}0{1 + number % 9}12",
                })  # fmt: skip

    def album(self) -> None:
        """An album with a file beside each picture, with dates as they were written."""
        for number in range(ALBUM):
            path = self.folder / "Nachlass" / "Album 3" / f"Seite {number + 1}.jpg"
            picture(path, 3000 + number)
            text = packet(f"Familie, {SUBJECTS[number % 6][0]}", "de", TOWNS[number % 4], DATES[number % 12])
            path.with_suffix(".xmp").write_text(text, encoding="utf-8")

    def what_gathers(self) -> None:
        """What is in folders beside pictures."""
        for name in ("Presse/1990/0001.CR2", "Presse/Vertrag.pdf", "Nachlass/Film.mp4", "Nachlass/Thumbs.db"):
            (self.folder / name).write_bytes(b"x")
        picture(self.folder / "Presse" / "@eaDir" / "0001.jpg" / "SYNOPHOTO_THUMB_M.jpg", 1)
        picture(self.folder / "Presse" / "#recycle" / "alt.jpg", 2)
        whole = (self.folder / "Presse" / "1990" / "0000.jpg").read_bytes()
        (self.folder / "Presse" / "1991" / "defekt.jpg").write_bytes(whole[: len(whole) // 2])
        os.link(self.folder / "Presse" / "1990" / "0002.jpg", self.folder / "Presse" / "Auswahl.jpg")


def say(folder: Path, words: str) -> None:
    """Print a command and what it says."""
    print(f"\n$ subtext {words}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "subtext", *shlex.split(words)], cwd=folder, capture_output=True, text=True
    )
    print((done.stdout + done.stderr).rstrip() + (f"\n[exit {done.returncode}]" if done.returncode else ""), flush=True)


EXPORT = (
    "museum/Export.csv --images museum/Sammlung "
    "--columns image=Inventarnummer,text=Titel+Titre+Title,date=Datierung,city=Ort,keywords=Schlagworte"
)
COMMANDS = f"""
data check {EXPORT} --unmatched unmatched.csv
index build library {EXPORT} --model starter --on-error skip
index add library museum/Presse --on-error skip
index add library museum/Nachlass --on-error skip
index info library
index update library --on-error skip -q
search library '"Aufnahme 120"' --top 2
search library Ernte --where "date >= 1885" --where "date <= 1895" --top 2
search library Ernte --where "date >= 1885" --where "date <= 1895" --dates certain --top 2
search library "Encore le pont" --where "city = geneve" --order date --top 2
search library "1951/120v" --top 1
search library Straßenbahn --where "id = 1951/120V" --top 1
index verify library
"""


def main() -> None:
    """Write the museum, and spend an hour in it."""
    folder = Path(sys.argv[1]).resolve()
    (folder / "museum").mkdir(parents=True)
    Museum(folder / "museum").write()
    for words in COMMANDS.strip().splitlines():
        say(folder, words)
    print("\nunmatched.csv:\n" + (folder / "unmatched.csv").read_text(encoding="utf-8-sig"))


if __name__ == "__main__":
    main()
