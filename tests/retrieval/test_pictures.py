"""Images without a picture: why, how many, and what mends it; said by build, info, serve and the thumbnail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import served_index
from command import call

import subtext
from subtext.data.image_files import picture_gap
from subtext.retrieval.pictures import MissingPictures, missing_pictures
from subtext.retrieval.stores.registry import open_store
from subtext.server.serve import start
from subtext.server.state import pictures_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    served_index.made(tmp_path, "library")
    return tmp_path


def test_every_image_has_its_picture(place: Path) -> None:
    assert missing_pictures(open_store(place / "library")).sentence == ""
    assert "picture" not in call("index", "info", place / "library").stdout


def test_images_of_a_data_set_that_was_added_have_their_pictures(place: Path) -> None:
    more = place / "more"
    more.mkdir()
    shutil.copy(place / "data" / "red.png", more / "new.png")
    subtext.add_to_index(place / "library", more, quiet=True)
    (served,) = pictures_of(served_index.settings(place / "library")).values()
    assert served.sentence == ""
    with served_index.client(place / "library") as client:
        assert client.get("/thumbnail", params={"id": "new.png"}).status_code == 200


def test_sentence_on_a_sample_says_how_many_were_looked_at() -> None:
    said = MissingPictures(52_000, 20_000, {"no file": 20_000}).sentence
    assert said.startswith(
        "no picture of 20,000 of the 20,000 images looked at, of 52,000 in all: 20,000 images without"
    )


def test_reasons_are_counted_with_what_mends_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    shutil.move(place / "data" / "red.png", elsewhere / "red.png")
    (place / "data" / "red.png").symlink_to(elsewhere / "red.png")
    for name in ("green", "blue"):
        (place / "data" / f"{name}.png").unlink()
    (place / "data" / "pink.png").write_bytes(b"")
    said = call("index", "info", place / "library").stdout
    assert "no picture of 3 of 12: 2 images, whose file is not at its place" in said and "index update" in said
    assert "1 image, whose file this user cannot read, or which is cut off" in said
    (served,) = pictures_of(served_index.settings(place / "library")).values()
    assert served.counts == {"not there": 2, "unreadable": 1, "outside": 1}
    assert "1 image outside the folders that are served: `subtext serve` with --image-folder" in served.sentence
    (more,) = pictures_of(served_index.settings(place / "library", image_folders=(str(elsewhere),))).values()
    assert more.counts == {"not there": 2, "unreadable": 1}
    (visible,) = pictures_of(served_index.settings(place / "library", where=("place > 1",))).values()
    assert visible.counts == {"not there": 1, "unreadable": 1}, "what is hidden is not counted"
    with served_index.client(place / "library") as client:
        for name, option in (("red", "--image-folder"), ("green", "index update"), ("pink", "cut off")):
            answer = client.get("/thumbnail", params={"id": name})
            assert answer.status_code == 404 and answer.json()["error"].startswith("no picture: ")
            assert option in answer.json()["error"]


def test_a_kept_thumbnail_is_a_picture(place: Path) -> None:
    with served_index.client(place / "library") as client:
        assert client.get("/thumbnail", params={"id": "red"}).status_code == 200
        for name in ("red", "green"):
            (place / "data" / f"{name}.png").unlink()
        assert client.get("/thumbnail", params={"id": "red"}).status_code == 200
    assert missing_pictures(open_store(place / "library")).counts == {"not there": 1}


def test_vectors_alone_have_no_picture(tmp_path: Path) -> None:
    said = str(subtext.import_index(tmp_path / "index", (np.eye(3, dtype=np.float32), ["a", "b", "c"])))
    assert "no picture of 3 of 3: 3 images without a file" in said


def test_serve_says_how_many_pictures_there_are_not(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "data" / "red.png").unlink()
    monkeypatch.setattr("uvicorn.Server.run", lambda self: None)
    start(served_index.settings(place / "library", port=0, log="", where=("place < 5",)))
    said = capsys.readouterr().err
    assert "library: 5 images of 12, the others hidden" in said
    assert "library: no picture of 1 of 5: 1 image, whose file is not at its place" in said
    assert "#token=" in said and "http://localhost:0/" in said


@pytest.mark.skipif(os.name != "posix", reason="names of files")
def test_a_name_that_no_disk_can_have_is_no_picture(tmp_path: Path) -> None:
    assert picture_gap("a" * 5000, tmp_path) == "unreadable" and picture_gap(None, tmp_path) == "no file"
    assert picture_gap("a/b.png", tmp_path) == "not there"
