"""Tables and files are joined by path, name or inventory number; what is left on either side is named."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import coloured_images
import exiftool
import pytest
from command import call
from PIL import Image

import subtext as st
from subtext.data.config import DataConfig
from subtext.data.join import Finder
from subtext.data.read import read
from subtext.errors import DataError


def images(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        colour = list(coloured_images.COLOURS.values())[number % 12]
        Image.new("RGB", (24, 16), colour).save(folder / name)
    return folder


def table(folder: Path, *rows: str, header: str = "image,caption") -> Path:
    (folder / "list.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder / "list.csv"


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("a.jpg", "x/1987/a.jpg"),
        ("A.JPG", "x/1987/a.jpg"),
        ("a", "x/1987/a.jpg"),
        ("a.tif", "x/1987/a.jpg"),
        (r"1987\a.jpg", "x/1987/a.jpg"),
        (r"D:\archive\photos\a.jpg", "x/1987/a.jpg"),
        ("/mnt/archive/a.jpg", "x/1987/a.jpg"),
        ("1987-118", "y/1987-118.tif"),
        ("1987/118", "y/1987-118.tif"),
        ("1987.118", "y/1987-118.tif"),
        ("Inv. 12 b", "y/inv_12_b.png"),
        ("Zu\u0308rich.png", "z/Zürich.png"),
        ("other/a.jpg", None),
        ("b.jpg", None),
        ("word", None),
    ],
)
def test_names_and_numbers_find_one_file(tmp_path: Path, written: str, file: str | None) -> None:
    images(tmp_path, "x/1987/a.jpg", "y/1987-118.tif", "y/inv_12_b.png", "z/Zürich.png", "w o r d.png")
    assert Finder(tmp_path).find(written) == ([file] if file else [])


def test_bare_names_are_found_below_the_folder(tmp_path: Path) -> None:
    images(tmp_path, "x/a.jpg", "y/b.jpg", "y/same.jpg", "x/same.jpg", "c.jpg")
    path = table(tmp_path, "a.jpg,One", "b.jpg,Two", "same.jpg,Three", "y/same.jpg,Four")
    with pytest.raises(DataError, match=r"'same.jpg' may be any of x/same.jpg, y/same.jpg; write its folder, too"):
        read(path)
    data = read(tmp_path, on_error="skip", verify=True)
    assert data.images.ids == ["a.jpg", "b.jpg", "y/same.jpg"]
    assert list(data.images.values) == ["x/a.jpg", "y/b.jpg", "y/same.jpg"]
    notes = [str(problem) for problem in data.problems if not problem.fatal]
    assert notes == [
        "list.csv: 2 images found by name or number alone, first 'a.jpg': x/a.jpg",
        f"{tmp_path.name}: 2 images of the folder are in no usable row of list.csv and are left out, first c.jpg; "
        "`subtext data check --unmatched FILE` lists them",
    ]


def test_inventory_numbers_are_keys(tmp_path: Path) -> None:
    images(tmp_path / "photos", "1987-118.tif", "1987-119.jpg", "deep/1988-1.png")
    path = table(tmp_path, "1987-118,One", "1987/119,Two", "1988.1,Three", header="Inventarnummer,Titel")
    data = read(path, images=tmp_path / "photos")
    assert data.images.ids == ["1987-118", "1987/119", "1988.1"]
    assert list(data.images.values) == ["1987-118.tif", "1987-119.jpg", "deep/1988-1.png"]
    path = table(tmp_path, "1987-118,One", "1987-120,Two", header="id,caption")
    data = read(path, images=tmp_path / "photos", on_error="skip")
    assert list(data.images.values) == ["1987-118.tif"] and data.texts.values == ["One"]
    frame = [{"image": "1988-1", "caption": "Three"}]
    assert list(read(frame, images=tmp_path / "photos").images.values) == ["deep/1988-1.png"]


def test_file_under_two_ids_is_said(tmp_path: Path) -> None:
    images(tmp_path, "a.jpg", "b.jpg")
    path = table(tmp_path, "1,a.jpg,One", "2,a.jpg,Two", "3,b.jpg,Three", header="id,image,caption")
    data = read(path)
    assert data.images.ids == ["1", "3"] and len(data.texts) == 3
    assert [str(problem) for problem in data.problems] == [
        "line 3: the file 'a.jpg' has two ids, '1' and '2'; it is one item, and the first is kept"
    ]


def test_rows_and_files_that_match_nothing_are_a_table(tmp_path: Path) -> None:
    images(tmp_path, "a.jpg", "c.jpg", "x/d.jpg", "y/d.jpg")
    table(tmp_path, "a.jpg,One", "b.jpg,Two", "d.jpg,Three")
    call("data", "check", tmp_path, "--unmatched", tmp_path / "left.csv", "--on-error", "skip")
    content = (tmp_path / "left.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(content.decode("utf-8-sig").splitlines()))
    assert [(row["kind"], row["where"], row["id"], row["name"]) for row in rows] == [
        ("row without a file", "line 4", "d.jpg", "d.jpg"),
        ("file without a row", "", "", "c.jpg"),
        ("file without a row", "", "", "x/d.jpg"),
        ("file without a row", "", "", "y/d.jpg"),
        ("row without a file", "line 3", "b.jpg", "b.jpg"),
    ]
    assert "may be any of" in rows[0]["reason"]


@exiftool.needed
def test_fields_inside_files_fill_those_that_a_table_lacks(tmp_path: Path) -> None:
    images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    inside = {"IPTC:City": "Rom", "IPTC:Headline": "Inside", "IPTC:Keywords": ["law", "court"]}
    inside |= {"IPTC:DateCreated": "1951:05:12"}
    exiftool.write({tmp_path / f"{name}.jpg": inside for name in "abc"}, "-codedcharacterset=UTF8")
    rows = ("a.jpg,One,Paris,12.5.1951", "b.jpg,,ROM,13.5.1951", "c.jpg,inside,,")
    path = table(tmp_path, *rows, header="image,caption,City,date")
    data = read(path)
    assert {data.images.ids[i]: data.texts.values[t] for i, t in data.links.tolist()} == {
        "a.jpg": "One", "b.jpg": "Inside", "c.jpg": "inside",
    }  # fmt: skip
    assert (
        data.images.metadata["City"][:2] == ["Paris", "ROM"]
        and data.images.metadata["keywords"] == [["law", "court"]] * 3
    )
    assert [str(problem) for problem in data.problems] == [
        "list.csv: fields that the table lacks are those inside the files (IPTC, XMP, EXIF): keywords 3, headline 1, "
        "date 1, city 1",
        "list.csv: where table and file differ, the table counts: headline 1, city 1, date 1; first a.jpg: 'One', and "
        "'Inside' in the file",
    ]
    plain = read(path, embedded=False, on_error="skip")
    assert "keywords" not in plain.images.metadata and not plain.problems[0].what.startswith("fields")
    assert "keywords" not in DataConfig(path).read(need_images=True).images.metadata, "training needs no metadata"
    index = DataConfig(path).read(need_pairs=False, need_images=True)
    assert index.images.metadata["keywords"] == [["law", "court"]] * 3


def test_sidecars_fill_fields_of_a_table(tmp_path: Path) -> None:
    images(tmp_path, "x/a.jpg", "x/a.png")
    (tmp_path / "x" / "a.xmp").write_text(
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        'xmlns:p="http://ns.adobe.com/photoshop/1.0/"><r:Description p:City="Rom" p:SidecarForExtension="png"/>'
        "</r:RDF></x:xmpmeta>"
    )
    data = read(table(tmp_path, "a.jpg,One", "x/a.png,Two"))
    assert data.images.metadata == {"city": [None, "Rom"]}


def test_metadata_of_an_image_folder_are_joined(tmp_path: Path) -> None:
    images(tmp_path, "train/deep/a.jpg", "train/b.jpg")
    (tmp_path / "train" / "metadata.jsonl").write_text(json.dumps({"file_name": "b.jpg", "text": "One"}) + "\n")
    data = st.read(tmp_path)
    assert data.images.ids == ["train/b.jpg"]
    assert "1 image of the folder is in no row of train/metadata.jsonl" in str(data.problems[0])
