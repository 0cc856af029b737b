"""The first hour of a museum: each command says what it found, what it left out, and why."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "helpers" / "museum.py"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command of the script printed; the last one's is the list for a registrar."""
    place = tmp_path_factory.mktemp("museum") / "hour"
    done = subprocess.run([sys.executable, SCRIPT, place], capture_output=True, text=True, check=True)
    parts = re.split(r"^\$ subtext |^(?=unmatched\.csv)", done.stdout, flags=re.MULTILINE)
    return {words: text for words, _, text in (part.partition("\n") for part in parts if part.strip())}


def of(said: dict[str, str], start: str) -> str:
    """The words of the only command that begins so."""
    (found,) = (text for words, text in said.items() if words.startswith(start))
    return found


@pytest.mark.slow
def test_hour_says_what_was_found_and_left_out_and_why(said: dict[str, str]) -> None:
    checked = of(said, "data check")
    assert "180 images, 300 texts, 300 pairs" in checked
    assert "line 184: has no image" in checked and "line 182 and 1 like it (line 183): image '1999/1'" in checked
    assert "Windows-1252" in checked and "180 images found by name or number alone" in checked
    assert "fields that the table lacks are those inside the files (IPTC, XMP, EXIF): byline 9" in checked
    assert "where table and file differ, the table counts: city 9" in checked
    assert "first 'o. D.' (line 12)" in checked and "1 image of the folder is in no usable row" in checked

    built, press, album = (
        of(said, "index build"),
        of(said, "index add library museum/P"),
        of(said, "index add library museum/N"),
    )
    assert "180 images and 300 texts" in built and "3 rows or images that cannot be used left out" in built
    assert "225 items embedded, 0 unchanged, 1 row or image that cannot be used left out" in press
    for reason in (
        "1991/defekt.jpg cannot be decoded", "2 images in system folders (#recycle 1, @eaDir 1)",
        "Auswahl.jpg is 1990/0002.jpg", "(1 .cr2, 1 .pdf)",
    ):  # fmt: skip
        assert reason in press
    assert "60 items embedded" in album and "'o. D.' is no date that can be compared" in album

    info = of(said, "index info")
    assert re.search(r"images +300\n", info) and re.search(r"texts +465\n", info)
    assert info.count("further data") == 2
    assert "0 items embedded, 765 unchanged, 4 rows or images that cannot be used left out" in of(said, "index update")
    assert of(said, "index verify").strip() == "library: intact"
    assert "Traceback" not in "".join(said.values())


@pytest.mark.slow
def test_hour_finds_numbers_dates_and_towns(said: dict[str, str]) -> None:
    for dates in ("--top", "--dates certain"):
        told = of(said, f'search library Ernte --where "date >= 1885" --where "date <= 1895" {dates}')
        assert "90 possibly meet the conditions, 54 certainly; 17 without a date" in told
    assert "Hafen in Zürich, Aufnahme 120" in of(said, "search library '\"Aufnahme 120\"'")
    assert "Encore le pont" in of(said, 'search library "Encore le pont" --where "city = geneve"')
    assert "1951-120v.jpg" in of(said, 'search library "1951')
    assert "1951-120v.jpg" in of(said, "search library Straßenbahn --where")


@pytest.mark.slow
def test_registrar_gets_each_row_without_a_file_and_each_file_without_a_row(said: dict[str, str]) -> None:
    rows = of(said, "unmatched.csv").strip().splitlines()
    assert [row.split(",")[0] for row in rows] == [
        "kind", "row that cannot be used", "file without a row", "row without a file", "row without a file",
    ]  # fmt: skip
    assert "Kasten 7/unbekannt.jpg" in rows[2]
