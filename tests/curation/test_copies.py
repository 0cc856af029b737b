"""Copies among images: the same file, scaled, compressed again or turned, found alike by dedup, check and curate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import call
from PIL import Image, ImageDraw

import subtext as st
from subtext.curation.copies import find_copies
from subtext.data.read import read

TURNS = Image.Transpose


def photograph(seed: int) -> Image.Image:
    """Smooth light and some things in it, as a camera sees them."""
    rng = np.random.default_rng(seed)
    light = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize(
        (640, 480), Image.Resampling.BICUBIC
    )
    pen = ImageDraw.Draw(light)
    for left, top, wide, high in rng.integers((0, 0, 40, 40), (560, 400, 160, 160), (6, 4)).tolist():
        pen.ellipse((left, top, left + wide, top + high), fill=tuple(rng.integers(0, 255, 3).tolist()))
    return light


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies") / "photos"
    folder.mkdir()
    for seed in range(8):
        photograph(seed).save(folder / f"photo{seed}.jpg", quality=90)
    shutil.copyfile(folder / "photo0.jpg", folder / "z-exact.jpg")
    photograph(1).resize((320, 240)).save(folder / "z-half.jpg", quality=85)
    photograph(2).save(folder / "z-low.jpg", quality=25)
    photograph(3).save(folder / "z-other.png")
    photograph(4).transpose(TURNS.ROTATE_90).save(folder / "z-turned.jpg", quality=80)
    photograph(5).transpose(TURNS.ROTATE_180).resize((400, 300)).save(folder / "z-upside.jpg", quality=80)
    photograph(6).transpose(TURNS.ROTATE_270).resize((120, 160)).save(folder / "z-small.webp", quality=60)
    return folder


KINDS = {
    "z-exact.jpg": ("photo0.jpg", "exact"),
    "z-half.jpg": ("photo1.jpg", "resized"),
    "z-low.jpg": ("photo2.jpg", "recompressed"),
    "z-other.png": ("photo3.jpg", "recompressed"),
    "z-turned.jpg": ("photo4.jpg", "rotated"),
    "z-upside.jpg": ("photo5.jpg", "rotated"),
    "z-small.webp": ("photo6.jpg", "rotated"),
}


def test_copies_of_every_kind_are_found_without_captions(photos: Path) -> None:
    images = read(photos)
    found = find_copies(images.images, images.root, own_splits=images.own_splits)
    ids = images.images.ids
    assert {ids[copy.row]: (ids[copy.of], copy.kind) for copy in found.copies} == KINDS
    assert found.unread == 0 and found.groups[ids.index("photo7.jpg")] == -1


def test_dedup_shows_copies_and_writes_only_with_out(photos: Path, tmp_path: Path) -> None:
    shown = call("data", "dedup", photos, "-q").stdout
    assert "7 copies among 15 images: 3 rotated, 2 recompressed, 1 exact, 1 resized" in shown
    assert "z-turned.jpg = photo4.jpg (rotated, 640x480)" in shown and "nothing was written" in shown
    as_json = json.loads(call("data", "dedup", photos, "--json", "-q").stdout)
    assert {copy["id"]: (copy["of"], copy["kind"]) for copy in as_json["copies"]} == KINDS and as_json["path"] is None
    call("data", "dedup", photos, "--out", tmp_path / "rest.jsonl", "-q")
    rest = st.read(tmp_path / "rest.jsonl", images=photos)
    assert rest.images.ids == [f"photo{seed}.jpg" for seed in range(8)]


def test_check_and_curate_find_the_same_copies(photos: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in photos.iterdir())
    texts = ("a red hill", "two boats", "the old mill", "a blue door", "a wet street", "five birds", "one more")
    rows = [{"image": name, "caption": f"{texts[n % 7]} {n}", "split": "train"} for n, name in enumerate(names)]
    report = st.check_dataset(rows, images=photos, quiet=True)
    assert report.duplicate_images == 7 and "duplicates: 0 texts, 7 images" in str(report)
    assert ["photo4.jpg", "z-turned.jpg"] in report.duplicate_image_examples
    # Five of the copies have no caption, and are found all the same.
    for row in rows:
        if row["image"] in list(KINDS)[:5]:
            del row["caption"]
    curated = st.curate(rows, images=photos, model="starter", out=tmp_path / "curated", quiet=True)
    assert curated.report["copies"]["images"] == {"of": 15, "items": 14, "groups": 7}


def test_copies_in_a_held_out_split_stay(photos: Path) -> None:
    rows = [
        {"image": "photo0.jpg", "caption": "a hill in the morning light of may", "split": "train"},
        {"image": "z-exact.jpg", "caption": "an old boat lies on the dry grass", "split": "test"},
        {"image": "photo1.jpg", "caption": "two birds fly over a wide river", "split": "train"},
        {"image": "z-half.jpg", "caption": "one street without any people in it", "split": "train"},
    ]
    result = st.dedup(rows, images=photos, quiet=True)
    assert [(copy["id"], copy["of"]) for copy in result.copies] == [
        ("photo0.jpg", "z-exact.jpg"),
        ("z-half.jpg", "photo1.jpg"),
    ]
    assert result.dataset.images.ids == ["z-exact.jpg", "photo1.jpg"] and len(result.dataset.texts) == 2
    assert len(result.copies_frame()) == 2


def test_images_of_one_colour_are_no_copies_of_each_other(tmp_path: Path) -> None:
    for name, shade in (("a.png", 250), ("b.png", 251), ("c.png", 250)):
        Image.new("RGB", (200, 200), (shade, shade, shade)).save(tmp_path / name)
    found = st.dedup(tmp_path, quiet=True)
    assert [(copy["id"], copy["of"], copy["kind"]) for copy in found.copies] == [("c.png", "a.png", "exact")]


@pytest.fixture
def icons(tmp_path: Path) -> Path:
    """An arrow to the right, a copy of it, and arrows to the left and upwards; a face, and its mirror image."""
    folder = tmp_path / "icons"
    folder.mkdir()
    arrow = Image.new("RGB", (96, 96), "white")
    pen = ImageDraw.Draw(arrow)
    pen.rectangle((10, 40, 55, 56), fill="navy")
    pen.polygon([(55, 20), (88, 48), (55, 76)], fill="navy")
    arrow.save(folder / "a-right.png")
    arrow.resize((64, 64)).save(folder / "b-right-small.png")
    arrow.transpose(TURNS.FLIP_LEFT_RIGHT).save(folder / "c-left.png")
    arrow.transpose(TURNS.FLIP_LEFT_RIGHT).resize((64, 64)).save(folder / "d-left-small.png")
    arrow.transpose(TURNS.ROTATE_90).save(folder / "e-up.png")
    photograph(20).save(folder / "f-face.png")
    photograph(20).transpose(TURNS.FLIP_LEFT_RIGHT).save(folder / "g-mirror.png")
    return folder


def test_mirror_images_are_a_kind_of_their_own_and_stay(icons: Path, tmp_path: Path) -> None:
    images = read(icons)
    found = find_copies(images.images, images.root, own_splits=images.own_splits)
    ids = images.images.ids
    assert {ids[copy.row]: ids[copy.of] for copy in found.copies} == {
        "b-right-small.png": "a-right.png",
        "d-left-small.png": "c-left.png",
    }
    assert {(ids[copy.row], ids[copy.of], copy.kind) for copy in found.mirrored} == {
        ("c-left.png", "a-right.png", "mirrored"),
        ("e-up.png", "a-right.png", "mirrored"),
        ("g-mirror.png", "f-face.png", "mirrored"),
    }
    said = call("data", "dedup", icons, "--out", tmp_path / "rest.jsonl", "-q").stdout
    assert "3 mirror images, which are no copies and stay" in said and "c-left.png mirrors a-right.png" in said
    rest = st.read(tmp_path / "rest.jsonl", images=icons)
    assert rest.images.ids == ["a-right.png", "c-left.png", "e-up.png", "f-face.png", "g-mirror.png"]


def test_marks_decide_which_copies_go(icons: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks.csv"
    marks.write_text(
        '"image","of","mark"\r\n"b-right-small.png","a-right.png","keep"\r\n"g-mirror.png","f-face.png","drop"\r\n'
    )
    said = call("data", "dedup", icons, "--marks", marks, "--out", tmp_path / "rest.jsonl", "-q").stdout
    assert "1 image marked keep" in said and "1 mirror image marked drop" in said
    rest = st.read(tmp_path / "rest.jsonl", images=icons)
    assert rest.images.ids == ["a-right.png", "b-right-small.png", "c-left.png", "e-up.png", "f-face.png"]
    for text, sentence in (
        ("image,of,mark\nx.png,y.png,keep\n", "'x.png' as a copy of 'y.png'"),
        ("image,of,mark\na,b,fix\n", "keep or drop; line 2"),
        ("image,text,mark\na,b,keep\n", "columns image, of and mark"),
    ):
        marks.write_text(text)
        refused = call("data", "dedup", icons, "--marks", marks, "-q", code=1)
        assert sentence in refused.stderr, refused.stderr
