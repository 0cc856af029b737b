"""A folder of images, as people have it, is a data set: without a table, and without texts where there are none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import coloured_images
import numpy as np
import pytest
from command import call
from PIL import Image
from served_index import WRITES, client, item

import subtext as st
from subtext.api.train import flat_arguments
from subtext.data.dataset import Items
from subtext.data.image_files import open_image
from subtext.data.prepare import resplit_groups
from subtext.data.read import read
from subtext.errors import ArgumentError, DataError
from subtext.retrieval import build
from subtext.server.decoding import Decoder
from subtext.server.images import Thumbnails

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" dc:title="{title}"/></rdf:RDF></x:xmpmeta>'
)
FORMS = {
    "a.JPG": "JPEG",
    "b.png": "PNG",
    "c.webp": "WEBP",
    "2021/d.tif": "TIFF",
    "2021/may/e.gif": "GIF",
    "f.bmp": "BMP",
}


def photos(folder: Path) -> Path:
    """One image of each form, in folders; and files that are none."""
    for place, (name, form) in enumerate(FORMS.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        colour = list(coloured_images.COLOURS.values())[place]
        frames = [Image.new("RGB", (40, 30), other) for other in (colour, (0, 0, 0))]
        more = {"save_all": True, "append_images": frames[1:]} if form == "GIF" else {}
        frames[0].save(folder / name, form, **more)
    shutil.copy(folder / "b.png", folder / "2021" / "copy of b.png")
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden").mkdir()
    Image.new("RGB", (4, 4)).save(folder / ".hidden" / "x.png")
    (folder / "._a.JPG").write_bytes(b"what a Mac leaves behind")
    return folder


IDS = ["2021/copy of b.png", "2021/d.tif", "2021/may/e.gif", "a.JPG", "b.png", "c.webp", "f.bmp"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a folder of photos, and an index of them."""
    folder = coloured_images.runs(tmp_path_factory.mktemp("folder"), "run")
    photos(folder / "photos")
    call("index", "build", folder / "library", "--run", folder / "run", "--data", folder / "photos", "--quiet")
    return folder


def test_image_folder_is_a_dataset(tmp_path: Path) -> None:
    data = read(photos(tmp_path), verify=True)
    assert data.images.ids == IDS and list(data.images.values) == IDS
    assert len(data.texts) == len(data) == 0
    assert len(np.unique(data.images.groups)) == len(IDS)
    assert [str(note) for note in data.problems if not note.fatal] == [
        f"{tmp_path.name}: left out: 2 hidden images (._a.JPG)",
        f"{tmp_path.name}: 1 file of the folder left out, for it takes images only (1 .txt)",
    ]
    assert read(tmp_path / "2021").images.ids == ["copy of b.png", "d.tif", "may/e.gif"]


def test_check_reports_indexable_image_folder(tmp_path: Path) -> None:
    shown = call("data", "check", photos(tmp_path)).stdout
    assert "7 images, 0 texts, 0 pairs" in shown
    assert "duplicates: 0 texts, 1 image" in shown and "2021/copy of b.png = b.png" in shown
    assert "usable: for an index (subtext index build); not for training or evaluation: no image has a text" in shown
    report = st.check_dataset(tmp_path)
    assert report.usable and report.indexable and not report.trainable and not report.evaluable


def test_heic_and_avif_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    colour = coloured_images.COLOURS["red"]
    pillow_heif.from_pillow(Image.new("RGB", (40, 30), colour)).save(tmp_path / "a.heic", quality=-1)
    Image.new("RGB", (40, 30), colour).save(tmp_path / "b.avif", quality=100)
    data = read(tmp_path, verify=True)
    assert data.images.ids == ["a.heic", "b.avif"]
    for name in data.images.ids:
        assert np.abs(np.subtract(open_image(name, tmp_path).getpixel((9, 9)), colour)).max() < 8, name
    # A server that has not read any HEIC before shows it, too.
    with closing(Decoder(10**6)) as decoder:
        assert Thumbnails([tmp_path], None, decoder)._encode(tmp_path, "a.heic", 96).startswith(b"RIFF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(DataError, match=r"a.heic is HEIC, which needs pillow-heif; pip install '\.\[heic\]'"):
        read(tmp_path, verify=True)


def test_all_suffixes_are_read_or_counted(tmp_path: Path) -> None:
    image = Image.new("RGB", (32, 32), (9, 200, 9))
    read_ones = {
        "a.jfif": "JPEG",
        "b.JP2": "JPEG2000",
        "c.j2k": "JPEG2000",
        "d.ppm": "PPM",
        "e.mpo": "MPO",
        "f.jpe": "JPEG",
    }
    for name, form in read_ones.items():
        image.save(tmp_path / name, form)
    others = {"svg": 1, "CR2": 3, "nef": 2, "dng": 1, "arw": 1, "pdf": 2, "mp4": 1, "mov": 1, "psd": 1}
    for suffix, count in others.items():
        for number in range(count):
            (tmp_path / f"{number}.{suffix}").write_bytes(b"x")
    (tmp_path / "noname").write_bytes(b"x")
    data = read(tmp_path, verify=True)
    assert data.images.ids == sorted(read_ones)
    counted = "3 .cr2, 2 .nef, 2 .pdf, 1 .arw, 1 .dng, 1 .mov, 1 .mp4, 1 .psd, 1 .svg, 1 no suffix"
    assert str(data.problems[0]).endswith(f"14 files of the folder left out, for it takes images only ({counted})")


XMP_TEXT = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:p="http://ns.adobe.com/photoshop/1.0/" p:Headline="{}" {}/></rdf:RDF></x:xmpmeta>'
)


@pytest.mark.parametrize(
    ("sidecars", "texts", "notes"),
    [
        ({"a.xmp": ""}, {"a.jpg": "a.xmp", "a.png": "a.xmp"}, 2),
        ({"a.xmp": "PNG"}, {"a.png": "a.xmp"}, 1),
        ({"a.xmp": "jpeg"}, {"a.jpg": "a.xmp"}, 1),
        ({"a.xmp": ".NEF"}, {}, 2),
        ({"a.xmp": "PNG", "a.jpg.xmp": ""}, {"a.png": "a.xmp", "a.jpg": "a.jpg.xmp"}, 1),
        ({"a.jpg.xmp": "", "a.png.XMP": ""}, {"a.png": "a.png.XMP", "a.jpg": "a.jpg.xmp"}, 0),
        ({"a.XMP": "png", "a.xmp": "png"}, {"a.png": "a.XMP"}, 3),
        ({"b.xmp": "", "c/a.xmp": ""}, {}, 1),
    ],
)
def test_sidecar_belongs_to_the_file_that_it_names(
    tmp_path: Path, sidecars: dict[str, str], texts: dict[str, str], notes: int
) -> None:
    for name in ("a.jpg", "a.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    for name, suffix in sidecars.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        said = f'p:SidecarForExtension="{suffix}"' if suffix else ""
        (tmp_path / name).write_text(XMP_TEXT.format(name, said))
    data = read(tmp_path)
    assert {data.images.ids[image]: data.texts.values[text] for image, text in data.links.tolist()} == texts
    about = [problem for problem in data.problems if "'" in problem.what or "sidecar" in problem.what]
    assert len(about) == notes, list(map(str, data.problems))


def test_of_two_sidecars_the_one_in_use_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    for name in ("a.xmp", "a.jpg.xmp"):
        (tmp_path / name).write_text(XMP_TEXT.format(name, ""))
    data = read(tmp_path)
    assert data.texts.values == ["a.jpg.xmp"]
    assert [str(problem) for problem in data.problems] == [
        "image a.jpg: has 2 sidecars; 'a.jpg.xmp' is read, and 'a.xmp' is not"
    ]


def test_first_page_of_several_is_read_with_a_note(tmp_path: Path) -> None:
    pages = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "lime")]
    (tmp_path / "p").mkdir()
    for name in "ab":
        pages[0].save(tmp_path / "p" / f"{name}.tif", save_all=True, append_images=pages[1:])
    sentence = "has 3 pages; the first is read"
    for verify in (False, True):
        assert [str(note) for note in read(tmp_path / "p", verify=verify).problems] == [
            f"image a.tif: {sentence}", f"image b.tif: {sentence}"
        ]  # fmt: skip
    (tmp_path / "t.csv").write_text("image,caption\np/a.tif,One\n")
    assert [str(note) for note in read(tmp_path / "t.csv", verify=True).problems] == [f"image p/a.tif: {sentence}"]


def test_folder_without_images_raises(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"needs images, one table or a known data set; .*images \(JPEG, PNG"):
        read(tmp_path)
    assert not st.check_dataset(tmp_path).usable


def test_broken_image_raises_or_is_skipped(place: Path, tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    words = ["index", "build", tmp_path / "index", "--run", place / "run", "--data", tmp_path / "photos", "--quiet"]
    assert "broken.jpg" in call(*words, code=1).output
    assert "7 images" in call(*words, "--on-error", "skip").stdout


def test_commands_that_need_texts_raise(place: Path) -> None:
    told = "this needs images with texts; .* has 7 images and no text; an index takes images alone"
    for verb in (
        lambda: st.evaluate(place / "run", data=place / "photos"),
        lambda: st.prepare(place / "photos", resplit=True),
    ):
        with pytest.raises(DataError, match=told):
            verb()
    with pytest.raises(DataError, match="needs images with texts"):
        st.train("dual", data=place / "photos", out=place / "never")


def test_images_alone_are_embedded_and_searched(place: Path) -> None:
    embedded = st.embed(place / "run", data=place / "photos")
    assert len(embedded.image_vectors) == 7 and len(embedded.text_vectors) == 0
    assert embedded.text_vectors.width == embedded.image_vectors.width
    found = json.loads(call("search", place / "library", "a red square", "--json", "--top", 10).stdout)
    assert {hit["id"] for hit in found["hits"]} == set(IDS)
    best = st.search(place / "library", image=place / "photos" / "b.png", top=2).hits
    assert {hit.id for hit in best} == {"b.png", "2021/copy of b.png"}
    like = st.search(place / "library", like="c.webp", top=3).hits
    assert len(like) == 3 and "c.webp" not in {hit.id for hit in like}
    assert st.index_info(place / "library").counts == {"images": 7, "texts": 0}


def test_vectors_of_images_alone_are_imported(place: Path, tmp_path: Path) -> None:
    call("embed", place / "run", "--data", place / "photos", "--out", tmp_path / "v.npz", "--quiet")
    words = ["import", tmp_path / "index", tmp_path / "v.npz", "--data", place / "photos", "--run", place / "run"]
    assert "7 images" in call("index", *words).stdout


def test_update_follows_folder(place: Path, tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    build = ["index", "build", tmp_path / "index", "--run", place / "run", "--data", tmp_path / "photos", "--quiet"]
    call(*build)
    (tmp_path / "photos" / "a.JPG").unlink()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(tmp_path / "photos" / "new.png")
    told = call("index", "update", tmp_path / "index", "--quiet").stdout
    assert "1 item embedded" in told and "1 deleted" in told


def test_update_decodes_only_new_images(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, index = photos(tmp_path / "photos"), tmp_path / "index"
    st.build_index(index, data, run=place / "run", quiet=True)
    Image.new("RGB", (9, 9), (1, 2, 3)).save(data / "new.png")
    Image.new("RGB", (9, 9), (1, 2, 3)).save(data / "b.png")
    decoded: list[object] = []

    def counted(value: Any, *more: Any, **options: Any) -> Image.Image:
        decoded.append(value)
        return open_image(value, *more, **options)

    monkeypatch.setattr("subtext.data.read.open_image", counted)
    st.update_index(index, quiet=True)
    assert sorted(map(str, decoded)) == ["b.png", "new.png"]
    (data / "c.webp").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"c\.webp is no image"):
        st.update_index(index, quiet=True)
    decoded.clear()
    st.add_to_index(index, data, on_error="skip", quiet=True)
    assert decoded == ["c.webp"]
    shutil.copytree(data, tmp_path / "copy")
    st.add_to_index(index, tmp_path / "copy", on_error="skip", quiet=True)
    assert len(decoded) == 1 + 8, "another folder has other files"


def test_renamed_images_keep_vectors(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, index = photos(tmp_path / "photos"), tmp_path / "index"
    shutil.copy(data / "2021" / "d.tif", data / "2021" / "e.tif")
    (data / "f.bmp.xmp").write_text(XMP.format(title="A flag"))
    st.build_index(index, data, run=place / "run", quiet=True)
    # The names of files are evidence too, and change; pixels do not.
    before = {hit.id: hit.score for hit in st.search(index, "a red square", top=9, signals=("pixels",))}
    assert len(before) == 8
    (data / "2021").rename(data / "2022")
    (data / "f.bmp").rename(data / "g.bmp")
    (data / "f.bmp.xmp").rename(data / "g.bmp.xmp")
    Image.new("RGB", (9, 9), (1, 2, 3)).save(data / "new.png")
    embedded: list[str] = []
    embed = build.embed_items

    def counted(model: Any, part: Any, items: Items, *more: Any, **options: Any) -> Any:
        embedded.extend(items.ids)
        return embed(model, part, items, *more, **options)

    monkeypatch.setattr(build, "embed_items", counted)
    change = st.update_index(index, quiet=True)
    assert embedded == ["new.png"]
    assert str(change).splitlines()[0] == f"{index}: 1 item embedded, 3 unchanged, 6 renamed"
    after = {
        hit.id.replace("2022", "2021").replace("g.b", "f.b"): hit.score
        for hit in st.search(index, "a red square", signals=("pixels",))
    }
    assert {name: after[name] for name in before} == before and set(after) - set(before) == {"new.png"}
    assert st.search(index, "a red square", where=["text contains flag"])[0].id == "g.bmp"
    assert st.verify_index(index).intact
    # A copy is one more item, and no renamed one.
    shutil.copy(data / "new.png", data / "newer.png")
    assert "1 item embedded, 10 unchanged" in str(st.update_index(index, quiet=True))


def test_random_splits_are_no_metadata_field(place: Path, tmp_path: Path) -> None:
    assert not read(place / "photos").own_splits and "split" not in st.index_info(place / "library").fields["images"]
    with client(place / "library") as server:
        assert "split" not in server.get("/fields").text
    assert "split" not in st.search(place / "library", "red")[0].metadata
    rows = [{"image": "a.JPG", "split": "train"}, {"image": "b.png", "split": "archive"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="images without texts are items of an index: --columns image=image"):
        read(tmp_path / "rows.jsonl")
    st.build_index(
        tmp_path / "index",
        tmp_path / "rows.jsonl",
        images=place / "photos",
        columns="image=image",
        run=place / "run",
        quiet=True,
    )
    assert [hit.id for hit in st.search(tmp_path / "index", "red", where=["split = archive"])] == ["b.png"]
    assert resplit_groups(read(place / "photos"), seed=0).own_splits


def test_server_shows_images_without_captions(place: Path) -> None:
    with client(place / "library") as server:
        found = server.get("/search", params={"q": "a red square"}).json()["hits"]
        assert {hit["id"] for hit in found} == set(IDS) and not any(hit["captions"] for hit in found)
        assert server.get("/item", params={"id": "2021/copy of b.png"}).status_code == 200


def test_rows_without_text_are_items(tmp_path: Path) -> None:
    photos(tmp_path)
    rows = [
        {"image": "a.JPG", "captions": ["a black square"], "year": 2001},
        {"image": "b.png", "captions": []},
        {"image": "c.webp", "captions": [""], "year": 2003},
        {"image": "2021/d.tif"},
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read(tmp_path / "list.jsonl")
    assert data.images.ids == ["a.JPG", "b.png", "c.webp", "2021/d.tif"]
    assert data.images.metadata["year"] == [2001, None, 2003, None]
    assert data.texts.values == ["a black square"] and data.links.tolist() == [[0, 0]]


def test_image_without_captions_is_added_over_http(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "library", tmp_path / "library")
    with client(tmp_path / "library") as server:
        bare = {name: value for name, value in item("new").items() if name != "captions"}
        assert server.post("/add", json={"items": [bare]}, headers=WRITES).status_code == 201
        assert server.get("/item", params={"id": "new"}).json()["texts"] == []


def test_bad_requests_return_plain_messages(place: Path) -> None:
    with client(place / "library") as server:
        for given, told in (
            ({"q": "x", "top": "x"}, "'top' needs a whole number"),
            ({"q": "x", "top": 500}, "'top' needs 200 or less"),
            ({"q": "x" * 2000}, "'q' needs 1000 characters or fewer"),
            ({"q": "x", "hubness": "y"}, "'hubness' needs 'csls' or 'softmax'"),
            ({}, "words (q) are needed, or an example item (like); there is neither"),
            ({"q": "x", "where": "name == 3"}, "a condition tests equality by one ="),
        ):
            answer = server.get("/search", params=given)
            assert answer.status_code == 422 and answer.json()["error"].startswith(told)
        for body, told in (
            ({"items": [{"id": "x"}]}, "'items.0.image' is missing"),
            ({"itms": []}, "'items' is missing; 'itms' is not accepted here"),
        ):
            assert server.post("/add", json=body, headers=WRITES).json()["error"] == told


def test_missing_query_image_raises(place: Path) -> None:
    told = call("search", place / "library", "--image", place / "gone.jpg", code=1).stderr
    assert f"a query image needs a file; {place / 'gone.jpg'} does not exist" in told


def test_features_run_reports_needed_features_and_restore_command(place: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", names=np.array(sorted(coloured_images.COLOURS)), pooled=np.ones((12, 8), np.float32))
    options = {"image": "features", "min_count": 1, "epochs": 1, "quiet": True}
    run = st.train(
        "dual",
        **flat_arguments(
            "dual", {"data": place / "data", "features": tmp_path / "f.npz", "out": tmp_path / "run", **options}
        ),
    )
    with pytest.raises(DataError, match=r"needs an array \(8\) for each item, or its name in a file; .* names 'black'"):
        run.model.embed_images([str(place / "data" / "red.jpg")])
    shutil.copytree(place / "library", tmp_path / "library")
    call("index", "delete", tmp_path / "library", place / "photos" / "a.JPG")
    told = call("index", "update", tmp_path / "library", "--quiet").stdout
    assert "1 left out" in told and "`subtext index add --data DATA --restore-deleted` brings them back" in told


def test_unreadable_subfolder_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    scan = os.scandir

    def failing(path: str | Path) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "may":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(DataError, match=rf"readable to its last sub-folder; {tmp_path}/2021/may: Permission denied"):
        read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"@context": "http://iiif.io/api/presentation/3/context.json"}')
    with pytest.raises(DataError, match="readable to its last sub-folder"):
        read(tmp_path)


@pytest.mark.parametrize("role", ["id", "group", "split", "image", "file_name"])
def test_only_texts_and_metadata_accept_several_columns(tmp_path: Path, role: str) -> None:
    with pytest.raises(ArgumentError, match=r"several columns can be texts or metadata, and '\w+' is one column"):
        read(photos(tmp_path), columns=f"{role}=caption+credit")


def test_column_may_first_appear_in_last_json_line(tmp_path: Path) -> None:
    photos(tmp_path)
    rows = [{"image": "a.JPG", "title": f"A {number}"} for number in range(30)] + [
        {"image": "b.png", "keyword": "last"}
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read(tmp_path / "list.jsonl", columns="text=title+keyword")
    assert len(data.texts) == 31 and data.texts.values[-1] == "last"
    assert read(rows, images=tmp_path, columns="text=title+keyword").texts.values == data.texts.values
    with pytest.raises(
        DataError, match=r"has no 'keywort', which is named for 'text'; the nearest names are 'keyword'"
    ):
        read(tmp_path / "list.jsonl", columns="text=title+keywort")


def test_problem_location_is_reported_once(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "b.png").touch()
    with pytest.raises(DataError, match=r"1 problem: image b.png is empty \(0 bytes\)"):
        read(tmp_path, verify=True)


def test_unreadable_images_are_reported_first(place: Path, tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    (folder / "b.png.xmp").write_text(XMP.format(title="A flag"))
    (folder / "dead.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("no image")
    (folder / "cut.bmp").write_bytes((folder / "f.bmp").read_bytes()[:200])
    assert [str(problem) for problem in read(folder, on_error="skip").problems if problem.fatal] == [
        "image dead.jpg: cannot be read: No such file or directory"
    ]
    words = ["--run", place / "run", "--data", folder, "--on-error", "skip"]
    told = call("index", "build", tmp_path / "index", *words).stderr.splitlines()
    assert told[0].startswith("note: 4 images cannot be read and are left out: image dead.jpg: cannot be read: No such")
    assert all(name in told[0] for name in ("empty.jpg", "text.jpg", "cut.bmp"))
    assert not any(f"{name}.jpg has no text" in "".join(told[1:]) for name in ("dead", "empty", "text"))
    assert "image 2021/copy of b.png and 5 like it" in told[3], told
    assert [line.partition(":")[2].split()[0] for line in told[4:]] == ["sentence", "evidence"], told


def test_image_without_read_permission_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = photos(tmp_path / "photos")
    opened = Path.open

    def failing(path: Path, *more: Any, **options: Any) -> Any:
        if path.name == "b.png":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *more, **options)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(DataError, match=r"1 problem: image b.png: cannot be read: Permission denied"):
        read(folder)
    assert "image b.png: cannot be read: Permission denied" in call("data", "check", folder, code=1).stdout
    assert "b.png" not in read(folder, on_error="skip").images.ids


def test_images_missing_from_table_are_counted(tmp_path: Path) -> None:
    table = photos(tmp_path / "photos") / "2021" / "metadata.csv"
    table.write_text("file_name,text\nD.tif,a flag\nmay\\e.gif,another\n")
    folder = tmp_path / "photos"
    told = "5 images of the folder are in no row of 2021/metadata.csv and are left out, first a.JPG"
    assert f"note: photos: {told}" in call("data", "check", folder).stdout
    assert len(read(folder).images) == 2 and not read(folder).problems[0].fatal
    table.rename(folder / "list.csv")
    (folder / "list.csv").write_text(
        "image,text\n./2021/d.tif,a flag\nimages/a.JPG,b\n" + str(folder / "c.webp") + ",c\n"
    )
    (folder / "images").mkdir()
    (folder / "a.JPG").rename(folder / "images" / "a.JPG")
    assert [str(problem) for problem in read(folder).problems] == [
        "photos: 4 images of the folder are in no row of list.csv and are left out, first b.png; `subtext data check "
        "--unmatched FILE` lists them"
    ]
    (folder / "list.csv").write_text("image,text\na.JPG,b\n")
    assert "photos: 6 images" in str(read(folder).problems[0]), "paths may start in the folder `images`"
    (folder / "list.csv").write_text("image,text\nb.png,b\nc.webp,\ngone.png,d\n,c\n")
    problems = read(folder, on_error="skip").problems
    assert "are in no usable row of list.csv" in str(problems[1])
    # Who names a table, or another folder, means these rows.
    for data, images in ((folder / "list.csv", folder), (folder / "list.csv", None), (folder, folder)):
        assert "of the folder" not in "".join(map(str, read(data, images=images, on_error="skip").problems))
