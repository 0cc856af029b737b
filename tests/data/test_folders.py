"""What of a folder is read: no thumbnails of systems, no pipes, nothing twice, and what is left out is said."""

from __future__ import annotations

import json
import os
import shutil
import socket
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from subtext.data.folders import survey
from subtext.data.read import read
from subtext.errors import DataError


def picture(file: Path, colour: tuple[int, int, int] = (200, 40, 40)) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), colour).save(file)
    return file


def notes(folder: Path) -> str:
    return "; ".join(str(problem) for problem in read(folder).problems if "has no text" not in str(problem))


def rows(file: Path, *found: dict[str, object]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in found))
    return file


SYSTEM = [
    "@eaDir/a.jpg", "#recycle", "$RECYCLE.BIN/S-1-5", "@Recycle", "__MACOSX", "#snapshot", ".Trash-1000/files",
    ".Trashes", "lost+found", "System Volume Information", "@Recently-Snapshot", "~snapshot", "FOUND.000", "recycled",
    "@sharebin", "@Transcode", "Network Trash Folder", "Temporary Items",
]  # fmt: skip


def test_system_folders_are_left_out_and_counted(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    for name in SYSTEM:
        picture(tmp_path / "album" / name / "b.jpg")
    picture(tmp_path / "album" / "._c.jpg")
    picture(tmp_path / "album" / "snapshot of 1900" / "d.jpg")
    assert read(tmp_path).images.ids == ["a.jpg", "album/snapshot of 1900/d.jpg"]
    assert f"{len(SYSTEM)} images in system folders (" in notes(tmp_path)
    assert "1 hidden image (album/._c.jpg)" in notes(tmp_path)


def test_special_files_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket.png")
        assert read(tmp_path).images.ids == ["a.jpg"]
        assert "2 special files (pipe, socket or device: pipe.jpg)" in notes(tmp_path)
    (tmp_path / "device.jpg").symlink_to("/dev/zero")
    assert read(tmp_path).images.ids == ["a.jpg"]
    table = rows(tmp_path / "rows.jsonl", {"image": "a.jpg", "text": "one"}, {"image": "pipe.jpg", "text": "two"})
    problems = read(table, verify=True, on_error="skip").problems
    assert "image pipe.jpg is no ordinary file" in "; ".join(map(str, problems))


def test_links_to_folders_inside_are_followed_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    picture(folder / "album" / "a.jpg")
    picture(folder / ".store" / "b.jpg")
    picture(tmp_path / "elsewhere" / "c.jpg")
    for name, target in {"again": "album", "circle": ".", "kept": ".store", "out": "../elsewhere"}.items():
        (folder / name).symlink_to(target)
    (folder / "album" / "up").symlink_to("..")
    (folder / "kept.jpg").symlink_to("../elsewhere/c.jpg")
    assert read(folder).images.ids == ["album/a.jpg", "kept.jpg", "kept/b.jpg"]
    said = notes(folder)
    assert f"link 'out' leads out of the folder, to {tmp_path / 'elsewhere'}, and is not followed; add that" in said
    assert said.count("leads out") == 1
    shutil.rmtree(tmp_path / "elsewhere")
    assert "out" not in survey(folder).outside, "a link that leads nowhere is no folder"


def test_one_file_is_one_item(tmp_path: Path) -> None:
    first = picture(tmp_path / "b.jpg")
    os.link(first, tmp_path / "c.jpg")
    (tmp_path / "a.jpg").symlink_to("b.jpg")
    shutil.copy(first, tmp_path / "d.jpg")
    assert read(tmp_path).images.ids == ["b.jpg", "d.jpg"], "a copy is another file"
    assert "2 further names of the same file left out, for one file is one item" in notes(tmp_path)
    (tmp_path / "album").symlink_to(".")
    spelt = ["b.jpg", "./b.jpg", str(first), "a.jpg", "c.jpg", "album/b.jpg", "B.JPG", "x/../b.jpg"]
    found = [{"image": name, "caption": f"text {n}", "split": "train"} for n, name in enumerate(spelt)]
    data = read(rows(tmp_path / "rows.jsonl", *found, {"image": "d.jpg", "caption": "other", "split": "test"}))
    assert data.images.ids == ["b.jpg", "d.jpg"] and len(data.texts) == len(spelt) + 1
    for name in spelt[1:]:
        found = [{"image": image, "caption": "one", "split": split} for image, split in (("b.jpg", "a"), (name, "b"))]
        with pytest.raises(DataError, match="is in split 'b' here and in 'a'"):
            read(rows(tmp_path / "two.jsonl", *found))


def test_names_alike_are_two_items_and_named(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Zürich.png") for form in ("NFC", "NFD"))
    for number, name in enumerate(("a.png", "A.png", composed, decomposed, "b.png")):
        picture(tmp_path / "p" / name, (number, 9, 9))
    if len(list((tmp_path / "p").iterdir())) < 5:
        pytest.skip("this disk keeps one file of such names")
    data = read(tmp_path / "p")
    assert len(data.images) == 5
    said = notes(tmp_path / "p")
    assert said.count("they are two files, and two items") == 2 and "'A.png' and 'a.png' differ in case" in said
    table = rows(tmp_path / "r.jsonl", *({"image": f"p/{name}", "text": f"is {name}"} for name in ("a.png", "A.png")))
    assert read(table).images.ids == ["p/a.png", "p/A.png"]
