"""An index of images in an object store: built, updated, watched, searched by an address, and served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any

import coloured_images
import command
import https_server
import numpy as np
import pytest
import s3_server
import served_index
from PIL import Image

import subtext
from subtext.api.index.build import build_index, update_index, watch_index
from subtext.data import object_store
from subtext.data.read import read
from subtext.errors import DataError, StoreError
from subtext.retrieval import build as build_module, image_stream
from subtext.retrieval.build import ChunkEmbedder
from subtext.retrieval.cluster import _decoded, require_seen
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.verification import verify

NAMES = list(coloured_images.COLOURS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run") / "run"


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with s3_server.served() as found:
        yield {**found, "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def bucket(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> s3_server.Bucket:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "LOOKED", 0.0)
    return s3_server.Bucket(environment["AWS_ENDPOINT_URL"])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[https_server.Host]:
    with https_server.served(tmp_path_factory.mktemp("host")) as found:
        yield found


def square(name: str, side: int = 40) -> bytes:
    out = BytesIO()
    Image.new("RGB", (side, side), coloured_images.COLOURS.get(name, (1, 2, 3))).save(out, "PNG")
    return out.getvalue()


def build(index: Path, data: Any, run: Path, **options: Any) -> Any:
    return build_index(index, data, run=run, quiet=True, text_encoder="none", **options)


def update(index: Path, **options: Any) -> tuple[int, int, int]:
    change = update_index(index, quiet=True, on_error="skip", **options)
    assert verify(index) == []
    return change.embedded, change.unchanged, change.deleted


def vectors(index: Path) -> dict[str, bytes]:
    with open_store(index).reading() as view:
        return {
            row.id: np.asarray(view.vectors_of("images", [row.id])).tobytes()
            for row in view.items("images", view.keys("images"))
        }


def put(bucket: s3_server.Bucket, place: str, names: list[str]) -> list[str]:
    found = [bucket.put(f"{place}/{name}.png", square(name)) for name in names]
    bucket.asked()
    return found


def of(place: str, *names: str) -> list[str]:
    return sorted(f"{method} {place}/{name}.png" for name in names for method in ("GET", "HEAD"))


def test_folder_of_a_store_is_indexed_as_one_of_a_disk(bucket: s3_server.Bucket, run: Path, tmp_path: Path) -> None:
    names, there, here = NAMES[:6], tmp_path / "there", tmp_path / "here"
    put(bucket, "photos", names)
    (tmp_path / "photos").mkdir()
    for name in names:
        (tmp_path / "photos" / f"{name}.png").write_bytes(square(name))
    build(there, "s3://archive/photos", run)
    # One listing, and one download of each image: what is inside, the check, the digest and the vector are of it.
    assert bucket.asked() == sorted(["LIST", *of("photos", *names)])
    build(here, tmp_path / "photos", run)
    assert vectors(there) == vectors(here) and len(vectors(there)) == 6
    assert update(there) == (0, 6, 0) and bucket.asked() == ["LIST"]
    bucket.put("photos/red.png", square("pink", 50))
    bucket.put("photos/new.png", square("cyan"))
    bucket.delete("photos/blue.png")
    bucket.asked()
    assert update(there) == (2, 4, 1)
    assert bucket.asked() == sorted(["LIST", *of("photos", "red", "new")])
    assert update(there, verify_files=True) == (0, 6, 0)
    every = [name for name in (*names, "new") if name != "blue"]
    assert bucket.asked() == sorted(["LIST", *of("photos", *every)])
    assert not any(f"s3://archive/photos/{name}.png" in object_store._kept for name in every)
    (hit, *_) = subtext.search(there, image="s3://archive/photos/new.png", top=1).hits
    assert (hit.id, hit.path) == ("new.png", "s3://archive/photos/new.png")


def test_table_with_addresses_is_indexed_by_one_request_an_image(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path
) -> None:
    addresses = put(bucket, "single", NAMES[:4])
    file, index = tmp_path / "table.csv", tmp_path / "index"
    file.write_text("image,caption\n" + "".join(f"{address},of {address}\n" for address in addresses))
    build(index, file, run)
    assert bucket.asked() == of("single", *NAMES[:4])
    assert update(index) == (0, 8, 0)
    assert bucket.asked() == sorted(f"HEAD single/{name}.png" for name in NAMES[:4])
    bucket.put("single/red.png", square("pink", 50))
    bucket.asked()
    assert update(index) == (1, 7, 0)
    assert [line for line in bucket.asked() if line.startswith("GET")] == ["GET single/red.png"]
    changes = tmp_path / "changes.jsonl"
    put(bucket, "single", ["white"])
    lines = [{"image": "s3://archive/single/white.png", "caption": "new"}, {"id": addresses[1], "deleted": True}]
    changes.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert update(index, changes=changes) == (2, 0, 2)
    assert [line for line in bucket.asked() if line.startswith("GET")] == ["GET single/white.png"]


def test_update_deletes_nothing_where_a_store_cannot_be_used(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(bucket, "away", NAMES[:3])
    index = tmp_path / "index"
    build(index, "s3://archive/away", run)
    bucket.post("gone")
    with pytest.raises(StoreError, match="s3://archive needs to exist"):
        update_index(index, quiet=True)
    waits = list[float]()

    def wait(_: float) -> None:
        waits.append(0)
        if len(waits) == 2:
            bucket.post("back")
            bucket.put("away/new.png", square("pink"))

    assert watch_index(index, max_checks=4, wait=wait) == 4
    said = capsys.readouterr().err
    assert said.count("not updated: s3://archive needs to exist") == 1 and "1 item embedded" in said.replace(
        "1 items", "1 item"
    )
    assert len(vectors(index)) == 4 and verify(index) == []
    bucket.asked()
    watch_index(index, max_checks=3, wait=lambda _: None, quiet=True)
    assert bucket.asked() == ["LIST"] * 4  # Three checks, and the update that the first one makes.


class Counted(object_store._Kept):
    """Counts the most images that are kept at once, and the most bytes of their files."""

    def __init__(self) -> None:
        super().__init__()
        self.images = self.bytes = 0

    def put(self, address: str, data: bytes) -> None:
        super().put(address, data)
        self.images, self.bytes = max(self.images, len(self._places)), max(self.bytes, self._used)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Few images ahead, small batches and small chunks, and a file for each image."""
    for place, name, value in (
        (object_store, "AHEAD", 3),
        (object_store, "PART", -1),
        (build_module, "CHUNK", 6),
        (image_stream, "CHUNK", 6),
        (image_stream, "PIECE", 1),
        (object_store, "_kept", Counted()),
    ):
        monkeypatch.setattr(place, name, value)
    return object_store._kept  # type: ignore[return-value]


SIDECAR = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description><rdf:Alt><rdf:li>a text of %s'
    "</rdf:li></rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
)


def put_in_both(bucket: s3_server.Bucket, folder: Path, place: str, count: int) -> list[str]:
    """Images of different colours, every fourth with a text, in a store and on a disk."""
    names = [f"{number:02}.png" for number in range(count)]
    (folder / place).mkdir()
    for number, name in enumerate(names):
        out = BytesIO()
        Image.new("RGB", (40, 40), (number * 11 % 256, number * 29 % 256, number * 47 % 256)).save(out, "PNG")
        files = {name: out.getvalue()}
        if number % 4 == 0:
            files[f"{number:02}.xmp"] = (SIDECAR % name).encode()
        for own, content in files.items():
            (folder / place / own).write_bytes(content)
            bucket.put(f"{place}/{own}", content)
    bucket.asked()
    return names


def contents(index: Path) -> list[tuple[Any, ...]]:
    """What an index has, in the order of its keys, with the bytes of its vectors."""
    with open_store(index).reading() as view:
        return [
            (side, row.key, row.id, row.content, row.text, row.metadata, view.vectors_of(side, [row.id]).tobytes())
            for side in ("images", "texts")
            for row in sorted(view.rows(side, keys=view.keys(side).tolist()), key=lambda row: row.key)
        ]


def test_images_are_embedded_while_others_are_downloaded_and_few_are_kept(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = put_in_both(bucket, tmp_path, "many", 32)
    for place in (bucket.put("many/07.png", b"no image"), str(tmp_path / "many" / "07.png")):
        if not place.startswith("s3"):
            Path(place).write_bytes(b"no image")
    bucket.asked()
    events = list[str]()
    downloads, embeds = object_store._download_of_object, ChunkEmbedder.__call__
    monkeypatch.setattr(
        object_store, "_download_of_object", lambda *a, **o: (events.append("download"), downloads(*a, **o))[1]
    )
    monkeypatch.setattr(ChunkEmbedder, "__call__", lambda *a: (events.append("embed"), embeds(*a))[1])
    there, here = tmp_path / "there", tmp_path / "here"
    made = build(there, "s3://archive/many", run, batch_size=2, on_error="skip")
    assert made.embedded == 39 and made.unchanged == made.amended == 0 and made.unusable == 1
    last = len(events) - events[::-1].index("download")
    assert events.index("embed") < 12 and events[:last].count("embed") > 10
    # Each is downloaded once: three are ahead, a batch waits, and one is left of the batch before.
    gets = [line for line in bucket.asked() if line.startswith("GET") and line.endswith(".png")]
    assert gets == [f"GET many/{name}" for name in names]
    size = max((tmp_path / "many" / name).stat().st_size for name in names)
    assert narrow.images <= 3 + 2 + 2 + 1 and narrow.bytes <= 8 * max(size, len(SIDECAR) + 10)
    assert not narrow._places and not narrow._used
    assert build(here, tmp_path / "many", run, batch_size=2, on_error="skip").embedded == 39
    assert contents(there) == contents(here) and verify(there) == []
    assert update(there) == (0, 39, 0)
    assert [line for line in bucket.asked() if ".png" in line] == [
        f"{method} many/07.png" for method in ("GET", "HEAD")
    ]


def test_images_stay_put_in_where_one_is_broken(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted, capsys: pytest.CaptureFixture[str]
) -> None:
    names = put_in_both(bucket, tmp_path, "broken", 9)
    bucket.put("broken/08.png", b"no image")
    index = tmp_path / "index"
    with pytest.raises(DataError, match=r"08\.png is no image that can be read"):
        build_index(index, "s3://archive/broken", run=run, text_encoder="none", batch_size=2)
    assert "keeps what was embedded" in capsys.readouterr().err and len(vectors(index)) == 8
    assert build(index, "s3://archive/broken", run, batch_size=2, on_error="skip").embedded == 2  # The texts.
    assert len(vectors(index)) == 8 and verify(index) == []
    # What is done about broken images is what the last command said, and not the one that failed.
    change = update_index(index, quiet=True)
    assert (change.embedded, change.unchanged, change.unusable) == (0, 10, 1)
    bucket.put("broken/08.png", square("red"))
    bucket.asked()
    assert update(index) == (2, 10, 0)
    assert "GET broken/08.png" in bucket.asked() and set(vectors(index)) == set(names)


def test_build_that_loses_its_store_goes_on_later(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted
) -> None:
    put_in_both(bucket, tmp_path, "lost", 24)
    index, here = tmp_path / "index", tmp_path / "here"
    bucket.post("gone-after/lost/17.png")
    with pytest.raises(StoreError, match="needs to exist"):
        build(index, "s3://archive/lost", run, batch_size=2)
    stored = len(vectors(index))
    assert 12 <= stored <= 17
    bucket.post("back")
    assert build(index, "s3://archive/lost", run, batch_size=2).embedded == 30 - stored
    build(here, tmp_path / "lost", run, batch_size=2)
    assert contents(index) == contents(here) and verify(index) == []


def test_texts_inside_images_come_after_a_store_that_went_away(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted
) -> None:
    index = tmp_path / "index"
    put_in_both(bucket, tmp_path, "texts", 12)
    bucket.post("gone-after/texts/10.png")
    with pytest.raises(StoreError, match="needs to exist"):
        build(index, "s3://archive/texts", run, batch_size=2)
    assert 4 <= len(vectors(index)) < 12
    bucket.post("back")
    update(index)  # Not the same command: it finds what that one has begun.
    assert [row[4] for row in contents(index) if row[0] == "texts"] == [
        f"a text of {number:02}.png" for number in (0, 4, 8)
    ]
    bucket.asked()
    assert update(index) == (0, 15, 0) and bucket.asked() == ["LIST"]


def test_rows_of_a_table_that_stand_apart_are_of_one_download(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted
) -> None:
    names = put_in_both(bucket, tmp_path, "apart", 20)
    file, there, here = tmp_path / "table.jsonl", tmp_path / "there", tmp_path / "here"
    rows = [{"image": name, "caption": f"{word} of {name}", word: name} for word in ("one", "two") for name in names]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = build(there, file, run, images="s3://archive/apart", batch_size=2)
    assert (made.embedded, made.unchanged, made.amended) == (60, 0, 0)
    assert [line for line in bucket.asked() if line.startswith("GET")] == [f"GET apart/{name}" for name in names]
    build(here, file, run, images=tmp_path / "apart", batch_size=2)
    assert contents(there) == contents(here)


def test_image_of_a_store_that_the_whole_table_leaves_out_is_not_kept(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, narrow: Counted
) -> None:
    names = put_in_both(bucket, tmp_path, "stray", 8)
    file, index = tmp_path / "table.jsonl", tmp_path / "index"
    rows = [{"image": name, "caption": name, **({"split": "train"} if name > "04" else {})} for name in names]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = build(index, file, run, images="s3://archive/stray", batch_size=2, on_error="skip")
    assert sorted(vectors(index)) == names[4:] and made.embedded == 8 and made.unchanged == 0
    assert verify(index) == []


def test_command_line_searches_by_an_address(
    bucket: s3_server.Bucket, host: https_server.Host, run: Path, tmp_path: Path
) -> None:
    put(bucket, "line", NAMES[:3])
    index = tmp_path / "index"
    words = ["--run", run, "--text-encoder", "none", "--quiet"]
    assert command.call("index", "build", index, "s3://archive/line", *words)
    web = host.put("red.png", square("red"))
    for address in ("s3://archive/line/red.png", f"{web}?width=40&path=a//b"):
        found = json.loads(command.call("search", index, "--image", address, "--top", "1", "--json").output)
        assert found["hits"][0]["id"] == "red.png" and found["hits"][0]["path"] == "s3://archive/line/red.png"
    assert host.asked[-1] == "GET /red.png?width=40&path=a//b"
    with pytest.raises(DataError, match=r"none\.png is not there"):
        subtext.search(index, image="s3://archive/line/none.png")


def test_server_shows_thumbnails_of_a_store(
    bucket: s3_server.Bucket, host: https_server.Host, run: Path, tmp_path: Path
) -> None:
    (address,) = put(bucket, "shown", ["red"])
    web, absent = host.put("blue.png", square("blue")), put(bucket, "shown", ["grey"])[0]
    file, index = tmp_path / "table.jsonl", tmp_path / "index"
    rows = [{"id": name, "image": image, "captions": [name]} for name, image in
            (("store", address), ("web", f"{web}?key=word"), ("absent", absent))]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build(index, file, run)
    bucket.delete("shown/grey.png")
    bucket.asked()
    host.asked.clear()
    with served_index.client(index) as client:
        shown = client.get("/thumbnail", params={"id": "store", "size": 96})
        assert shown.status_code == HTTPStatus.OK
        with Image.open(BytesIO(shown.content)) as picture:
            assert np.abs(np.array(picture.convert("RGB"))[5, 5].astype(int) - coloured_images.COLOURS["red"]).max() < 9
        assert client.get("/thumbnail", params={"id": "store", "size": 96}).content == shown.content
        assert bucket.asked() == of("shown", "red")  # It is kept beside the index.
        assert client.get("/thumbnail", params={"id": "absent"}).status_code == HTTPStatus.NOT_FOUND
        # A host of this network is not asked, whatever an index says.
        assert client.get("/thumbnail", params={"id": "web"}).status_code == HTTPStatus.NOT_FOUND and not host.asked
        item = client.get("/item", params={"id": "web"}).json()
        assert item["item"]["file"] == web and "word" not in json.dumps(item)
        bucket.asked()
        for name in (address, web, "s3://archive/shown/red.png"):
            for question in ({"q": name}, {"like": name, "q": "a"}, {"image": name, "q": "a"}):
                client.get("/search", params=question)
            client.post("/search", json={"text": "a", "image": name})
            client.post("/items", json={"image": name, "captions": ["a"]}, headers=served_index.WRITES)
            client.get("/thumbnail", params={"id": name, "size": 96})
        assert not bucket.asked() and not host.asked
        bucket.post("gone")
        assert (
            client.get("/thumbnail", params={"id": "store", "size": 320}).status_code == HTTPStatus.SERVICE_UNAVAILABLE
        )
        bucket.post("back")


def test_worker_of_a_cluster_opens_addresses_by_itself(bucket: s3_server.Bucket, tmp_path: Path) -> None:
    put(bucket, "worker", NAMES[:3])
    images = read("s3://archive/worker", verify=True).images
    object_store.release(images.values)
    bucket.delete("worker/blue.png")
    object_store.look(images.values)
    found = _decoded((0, images, tmp_path))
    # A machine that does not see an image on a disk is named; an image that is gone from a store is only that image.
    assert list(found["reasons"]) == [0] and "blue.png is not there" in found["reasons"][0] and not found["absent"]
    require_seen(DataError("gone"), images.values, tmp_path)
    assert not any(value in object_store._kept for value in images.values)


@pytest.mark.parametrize("named", [True, False], ids=["--images", "recorded"])
@pytest.mark.parametrize("data", ["table", "folder"])
def test_changes_start_in_the_store_of_the_images(
    bucket: s3_server.Bucket, run: Path, tmp_path: Path, data: str, *, named: bool
) -> None:
    place = f"changed-{data}-{named}"
    folder, index, file = f"s3://archive/{place}", tmp_path / "index", tmp_path / "list.csv"
    put(bucket, place, NAMES[:3])
    if data == "table":
        file.write_text("image,caption\n" + "".join(f"{name}.png,of {name}\n" for name in NAMES[:3]))
        build(index, file, run, images=folder)
    else:
        build(index, folder, run)
    before = vectors(index)
    put(bucket, place, ["new", "other"])
    first, second, third = (f"{name}.png" for name in NAMES[:3])
    lines = [
        {"image": "new.png", "caption": "of new"},
        {"id": first, "image": "other.png", "caption": "another"},
        {"id": second, "image": "absent.png", "caption": "lost"},
        {"id": third, "image": third, "caption": "of the third"},
    ]
    options = {"images": f"{folder}/"} if named else {}
    change = update_index(index, changes=lines, quiet=True, on_error="skip", **options)
    assert verify(index) == []
    assert change.unusable == 1 and f"image '{folder}/absent.png' is not there" in change.problems[0]
    now = vectors(index)
    assert set(now) == {*before, "new.png"} and now[first] != before[first]
    assert (now[second], now[third]) == (before[second], before[third])
    with open_store(index).reading() as view:
        paths = {row.id: row.path for row in view.items("images", view.keys("images"))}
    assert paths == {
        "new.png": f"{folder}/new.png",
        first: f"{folder}/other.png",
        second: f"{folder}/{second}",
        third: f"{folder}/{third}",
    }
