"""A reader from outside of the package: one file, and at most one line that names it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from PIL import Image

from subtext.data import readers
from subtext.data.read import read
from subtext.data.rows import Row, Source
from subtext.errors import DataError


class Album:
    """A folder with album.ini, a line per image: NAME = CAPTION."""

    PRIORITY = 100
    LOOKS_FOR = "album.ini (Album)"

    def recognises(self, path: Path) -> bool:
        return (path / "album.ini").is_file()

    def read(self, path: Path, images: Path | None) -> Source:
        lines = (path / "album.ini").read_text().splitlines()
        entries = [line.partition(" = ") for line in lines]
        rows = [Row(f"line {n}", name, name, [text]) for n, (name, _, text) in enumerate(entries, 1)]
        return Source(rows, images or path)


@pytest.fixture
def album(tmp_path: Path) -> Path:
    for number in range(3):
        Image.new("RGB", (4, 4), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "album.ini").write_text("".join(f"{n}.png = a photo of {n}\n" for n in range(3)))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_registered", [])
    readers._installed.cache_clear()


def test_registered_reader_reads(album: Path) -> None:
    assert not len(read(album).texts), "without its reader, it is a folder of images"
    readers.register(Album)
    dataset = read(album, verify=True)
    assert dataset.images.ids == ["0.png", "1.png", "2.png"] and dataset.texts.values[2] == "a photo of 2"
    assert len(dataset) == 3 and "3 images, 3 texts, 3 pairs" in repr(dataset)
    with pytest.raises(DataError, match=r"looked for album\.ini \(Album\); metadata\.csv"):
        read(_empty(album))


def _empty(album: Path) -> Path:
    folder = album / "empty"
    folder.mkdir()
    return folder


def test_entry_point_registers_reader(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> Album:
            return Album()

    monkeypatch.setattr(readers, "entry_points", lambda group: [Entry()] if group == "subtext.readers" else [])
    assert len(read(album)) == 3
    monkeypatch.undo()
    readers._installed.cache_clear()
    assert importlib.metadata.entry_points(group="subtext.readers") is not None


def test_dataset_of_own_reader_displays_rows(album: Path) -> None:
    readers.register(Album())
    dataset = read(album)
    html = dataset._repr_html_()
    assert "a photo of 1" in html and html.count("data:image/") == 3
    pandas = pytest.importorskip("pandas")
    frame = dataset.to_frame()
    assert isinstance(frame, pandas.DataFrame) and list(frame["text"]) == dataset.texts.values
