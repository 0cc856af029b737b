"""Texts that a machine wrote: searched and shown as such, and kept with their images, in every store."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import coloured_images
import matplotlib as mpl
import pytest
from command import call
from PIL import Image, ImageDraw, ImageFont

import subtext
from subtext.api.search import open_index
from subtext.data import ocr
from subtext.errors import DataError, RequirementError
from subtext.retrieval import machine_texts
from subtext.retrieval.stores.item import MACHINE
from subtext.retrieval.stores.registry import is_address, open_store


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other")


@pytest.fixture
def place(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a copy of the data, and that copy."""
    shutil.copytree(runs / "data", tmp_path / "data")
    subtext.build_index(address_of("library"), run=runs / "run", data=tmp_path / "data", quiet=True)
    yield address_of("library"), tmp_path / "data"
    open_store(address_of("library")).remove()


def signs(folder: Path, **texts: str) -> Path:
    """A table of image files and texts."""
    rows = [f'{name}.png,"{text}"' for name, text in texts.items()]
    (folder / "signs.csv").write_text("\n".join(["image,text", *rows]) + "\n")
    return folder / "signs.csv"


def machine_texts_of(address: str) -> dict[str, str]:
    """Id -> text of the rows that machines wrote."""
    with open_store(address).reading() as view:
        return {row.id: row.text or "" for row in machine_texts.machine_rows(view)}


def test_texts_of_machines_are_searched_shown_and_kept(place: tuple[str, Path], runs: Path, tmp_path: Path) -> None:
    address, data = place
    file = signs(tmp_path, red="Bakery Xanadu", blue="no entry", nothere="lost")
    told = call("index", "texts", address, file, "--as", "ocr", "-q").stdout
    assert "2 texts by ocr put in, of 2 images" in told and "1 image of signs.csv not in the index" in told
    index = open_index(address)
    (hit,) = index.search("Xanadu", top=1, signals=["machine_words"])
    assert hit.id == "red" and hit.captions == ["a red square", "ein Quadrat, red", "[ocr] Bakery Xanadu"]
    (text,) = index.search("Xanadu", target="texts", top=1, signals=["words"])
    assert text.captions == ["[ocr] Bakery Xanadu"] and text.metadata[MACHINE] == "ocr"
    found = index.search("square", target="texts", top=50, where=[f"{MACHINE} = ocr"])
    assert {hit.id for hit in found} == {"ocr:red", "ocr:blue"}
    # Given again, nothing is embedded; another text takes the place of the former one.
    assert call("index", "texts", address, file, "--as", "ocr", "-q").stdout.count("0 texts by ocr") == 1
    subtext.add_machine_texts(address, signs(tmp_path, blue="one way"), machine="ocr", quiet=True)
    subtext.add_machine_texts(address, signs(tmp_path, blue="a blue wall"), machine="captioner", quiet=True)
    expected = {"ocr:red": "Bakery Xanadu", "ocr:blue": "one way", "captioner:blue": "a blue wall"}
    assert machine_texts_of(address) == expected
    # Kept by update, move and compact; gone with their image.
    assert subtext.update_index(address, quiet=True).deleted == 0
    assert machine_texts_of(address) == expected
    subtext.move_index(address, run=runs / "other", even_if_worse=True, quiet=True)
    subtext.compact_index(address)
    assert machine_texts_of(address) == expected and not subtext.verify_index(address).problems
    moved = open_index(address)
    vector = moved._embed_texts(["one way"])[0]
    assert moved.vectors_of("texts", "ocr:blue") == pytest.approx(vector, abs=1e-5)
    assert [hit.id for hit in moved.search("Xanadu", top=1, signals=["machine_words"])] == ["red"]
    if not is_address(address):
        subtext.backup_index(address, tmp_path / "backup")
        subtext.restore_index(tmp_path / "backup", tmp_path / "restored")
        assert machine_texts_of(str(tmp_path / "restored")) == expected
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row["id"] != "blue"))
    (data / "blue.png").unlink()
    subtext.update_index(address, quiet=True)
    assert machine_texts_of(address) == {"ocr:red": "Bakery Xanadu"}
    # What somebody deletes stays deleted.
    subtext.delete_from_index(address, ["red"])
    assert machine_texts_of(address) == {}


def test_bad_tables_and_models_are_refused(place: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = place
    with pytest.raises(DataError, match="the index none of them"):
        subtext.add_machine_texts(address, signs(tmp_path, nothere="lost"), machine="ocr", quiet=True)
    with pytest.raises(DataError):
        subtext.add_machine_texts(address, tmp_path / "missing.csv", machine="ocr", quiet=True)
    assert "--as" in call("index", "texts", address, tmp_path / "signs.csv", code=2).stderr
    assert machine_texts_of(address) == {}


def test_reading_text_resumes_and_reads_new_images(
    place: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data = place
    read: list[tuple[int, int, int]] = []

    def by_colour(image: Image.Image) -> str:
        colour = image.getpixel((0, 0))
        assert isinstance(colour, tuple)
        if len(read) == 5:
            read.clear()
            raise KeyboardInterrupt
        read.append(colour)  # type: ignore[arg-type]
        return "" if colour == coloured_images.COLOURS["black"] else f"sign {colour[0]}"

    monkeypatch.setattr(ocr, "text_in", by_colour)
    monkeypatch.setattr(ocr, "reader", lambda: None)
    monkeypatch.setattr("subtext.api.index.machine._BLOCK", 2)
    with pytest.raises(KeyboardInterrupt):
        subtext.ocr_index(address, quiet=True)
    assert 3 <= len(machine_texts_of(address)) <= 4
    monkeypatch.setattr(ocr, "text_in", lambda image: read.append(image.getpixel((0, 0))) or "later")
    report = subtext.ocr_index(address, quiet=True)
    assert len(read) == report.numbers["images"] == 8 and "8 images read" in str(report)
    assert subtext.ocr_index(address, quiet=True).numbers["images"] == 0
    Image.new("RGB", (40, 40), (1, 2, 3)).save(data / "new.png")
    with (data / "metadata.jsonl").open("a") as stream:
        stream.write(json.dumps({"file_name": "new.png", "id": "new", "captions": ["new"], "split": "test"}) + "\n")
    subtext.update_index(address, quiet=True)
    (data / "new.png").write_bytes(b"no image")
    report = subtext.ocr_index(address, quiet=True)
    assert report.numbers["unread"] == 1 and "1 image not read, first: " in str(report)
    before = len(read)
    subtext.ocr_index(address, again=True, quiet=True)
    assert len(read) == before + 12 and set(machine_texts_of(address).values()) == {"later"}


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rapidocr", None)
    ocr.reader.cache_clear()
    with pytest.raises(RequirementError, match=r"needs the package rapidocr; .*\[ocr\]"):
        subtext.ocr_index(tmp_path / "index")
    ocr.reader.cache_clear()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("rapidocr") is None, reason="the extra ocr is not installed")
def test_signs_are_read_without_a_network() -> None:
    image = Image.new("RGB", (640, 160), "white")
    font = ImageFont.truetype(Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), 44)
    ImageDraw.Draw(image).text((20, 40), "BAKERY Müller", fill="black", font=font)
    assert ocr.text_in(image) == "BAKERY Müller" and ocr.text_in(Image.new("RGB", (64, 64))) == ""
