"""Images at addresses are read as those on a disk are: each is downloaded once, and what cannot be read is said."""

from __future__ import annotations

import copy
import json
import os
import time
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import https_server
import pytest
import s3_server
from PIL import Image
from pyarrow import fs

from subtext.data import object_store, web_images
from subtext.data.addresses import StoreFolder, address_error, as_path, is_address, joined_path
from subtext.data.config import DataConfig
from subtext.data.image_files import _is_within, image_digest, open_image, read_bytes
from subtext.data.read import UnusableData, read
from subtext.errors import ArgumentError, DataError, StoreError


def picture(*colour: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (40, 40), colour).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with s3_server.served() as found:
        yield {**found, "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def bucket(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> s3_server.Bucket:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = s3_server.Bucket(environment["AWS_ENDPOINT_URL"])
    found.asked()
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[https_server.Host]:
    with https_server.served(tmp_path_factory.mktemp("host")) as found:
        yield found


def table(folder: Path, *rows: dict[str, object]) -> Path:
    file = folder / "table.jsonl"
    file.write_text("".join(json.dumps({"captions": [f"text {n}"], **row}) + "\n" for n, row in enumerate(rows)))
    return file


def test_address_stays_one_as_a_path() -> None:
    for text in ("s3://archive/photos", "gs://a", "az://box/x", "https://host.org/a"):
        for value in (text, Path(text), as_path(text)):
            path = as_path(value)
            assert str(path) == os.fspath(path) == str(path.resolve()) == text and isinstance(path, StoreFolder)
    assert str(as_path("s3://archive/photos") / "a.jpg") == "s3://archive/photos/a.jpg"
    assert not any(
        map(is_address, ("photos/a.jpg", "/s3/a", "http://host.org/a", "file:///a", "s3:", b"s3://a/b", None))
    )
    kept = DataConfig("s3://archive/photos").to_json()
    assert kept["data"] == "s3://archive/photos" and str(DataConfig.from_json(kept).data) == "s3://archive/photos"


ODD = ["iiif/3/https://x/a.jpg/full/max/0/default.jpg", "proxy?src=https://x//b/./c.jpg", "a/./b//c.png/"]


@pytest.mark.parametrize("path", ODD)
def test_address_of_https_stays_as_it_was_typed(host: https_server.Host, path: str) -> None:
    address = host.at(path)
    host.put(path.partition("?")[0], picture(1, 2, 3))
    for place in (as_path(address), joined_path(Path("photos"), address), joined_path(as_path("s3://a/b"), address)):
        assert str(place) == os.fspath(place) == str(place.resolve()) == address and place == as_path(str(place))
        assert copy.deepcopy(place) == place
    assert as_path(address) != as_path(address + "/") and as_path(address) != Path(address)
    assert len({as_path(address), as_path(address + "/"), as_path(address)}) == 2
    assert str(as_path(f"{host.at('a')}//b/") / "c.png") == f"{host.at('a')}//b/c.png"
    assert str(joined_path(as_path("s3://a/b"), "/c.png")) == "/c.png"
    host.asked.clear()
    assert read_bytes(str(as_path(address)), Path()) == picture(1, 2, 3)
    assert host.asked and {line.partition(" ")[2] for line in host.asked} == {f"/{path}"}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://host.org/a.png", "begin with s3://"),
        ("ftp://host.org/a.png", "begin with s3://"),
        ("https://user:word@host.org/a.png", "a password does not belong into an address"),
        ("https://", "begin with"),
        ("s3://archive//a.png", "between two slashes"),
        ("s3://archive/photos/", "behind the last one"),
    ],
)
def test_address_that_cannot_be_read_is_refused(address: str, reason: str) -> None:
    assert reason in str(address_error(address))


def test_folder_of_a_store_is_read_as_one_of_a_disk(bucket: s3_server.Bucket, tmp_path: Path) -> None:
    names = [
        "b.png",
        "a-1.png",
        "a.x/1.png",
        "a.JPG.png",
        "sub/ü 1.png",
        "a.png",
        ".hidden/x.png",
        "notes.txt",
        "@eaDir/t.png",
    ]
    for number, name in enumerate(names):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(picture(number, 2, 3))
        bucket.put(f"same/{name}", file.read_bytes())
    xmp = (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description><rdf:Alt><rdf:li>from the sidecar'
        "</rdf:li></rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
    )
    for folder, name in (("", "b.xmp"), ("", "alone.xmp")):
        (tmp_path / folder / name).write_text(xmp)
        bucket.put(f"same/{name}", xmp.encode())
    bucket.asked()
    there, here = read("s3://archive/same", verify=True), read(tmp_path, verify=True)
    assert there.images.ids == here.images.ids and list(there.images.splits) == list(here.images.splits)
    assert there.images.values == [f"s3://archive/same/{name}" for name in here.images.values]
    assert there.texts.values == here.texts.values == ["from the sidecar"] and there.texts.ids == here.texts.ids
    said = [[problem.what for problem in found.problems] for found in (there, here)]
    assert said[0] == said[1]
    images = [f"{method} same/{name}" for name in here.images.values for method in ("GET", "HEAD")]
    assert bucket.asked() == sorted(["LIST", "GET same/b.xmp", "HEAD same/b.xmp", *images])
    assert image_digest("s3://archive/same/b.png", Path()) == image_digest("b.png", tmp_path) and not bucket.asked()


def test_table_names_images_of_several_places(
    bucket: s3_server.Bucket, host: https_server.Host, tmp_path: Path
) -> None:
    bucket.put("mixed/a.png", picture(1))
    bucket.put("mixed/in/b.png", picture(2))
    elsewhere = bucket.put("elsewhere/c.png", picture(3))
    web = host.put("d.png", picture(4), Last_Modified="Wed, 21 Oct 2015 07:28:00 GMT")
    (tmp_path / "e.png").write_bytes(picture(5))
    local = str(tmp_path / "e.png")
    # A row for each text, as many tables have them.
    names = [name for name in ("a.png", "in\\b.png", elsewhere, web, local) for _ in range(3)]
    file = table(tmp_path, *({"image": name} for name in names))
    host.asked.clear()
    bucket.asked()
    found = read(file, images="s3://archive/mixed", verify=True)
    assert found.images.values == ["s3://archive/mixed/a.png", "s3://archive/mixed/in/b.png", elsewhere, web, local]
    assert found.images.ids == ["a.png", "in\\b.png", elsewhere, web, local]
    keys = ("mixed/a.png", "mixed/in/b.png", "elsewhere/c.png")
    assert bucket.asked() == sorted(["LIST", *(f"{method} {key}" for key in keys for method in ("GET", "HEAD"))])
    assert host.asked == ["GET /d.png"]
    assert [open_image(value).getpixel((0, 0))[0] for value in found.images.values] == [1, 2, 3, 4, 5]
    assert not bucket.asked() and host.asked == ["GET /d.png"]
    with pytest.raises(ArgumentError, match="leave images out"):
        read("s3://archive/mixed", images="s3://archive/mixed")


def test_what_cannot_be_read_is_said_and_counted(bucket: s3_server.Bucket, tmp_path: Path) -> None:
    good = bucket.put("some/good.png", picture(1))
    bad, none = bucket.put("some/bad.png", b"no image"), "s3://archive/some/none.png"
    secret = bucket.put("some/secret.png", picture(2))
    large = bucket.put("some/large.png", picture(3) + b"\0" * 9_000_000)
    rows = [{"image": name} for name in (good, bad, none, secret, large, "http://host.org/a.png")]
    found = read(table(tmp_path, *rows), verify=True, on_error="skip", max_pixels=2)
    assert found.images.values == [good]
    said = {problem.where: problem.what for problem in found.problems if problem.fatal}
    assert "no image that can be read" in said["line 2"] and "none.png' is not there" in said["line 3"]
    assert "may not be read with these credentials" in said["line 4"] and "AWS_ACCESS_KEY_ID" in said["line 4"]
    assert "above the limit of 8,000,000" in said["line 5"] and "begin with s3://" in said["line 6"]
    assert len(said) == 5
    assert {problem.item for problem in found.problems if problem.fatal} == {bad, none, secret, large, ""}
    bucket.put("tables/list.csv", b"image,text\n")
    for address, reason in (
        ("s3://archive/tables", "has list.csv; download that file"),
        ("s3://archive/some/rows.parquet", "has rows.parquet; download that file"),
        ("s3://archive/empty", "needs at least one image"),
        ("https://host.org/photos", "behind https there are no folders"),
    ):
        with pytest.raises(DataError, match=reason):
            read(address)


def test_store_that_cannot_be_used_is_no_empty_one(
    bucket: s3_server.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = table(tmp_path, {"image": bucket.put("usable/a.png", picture(1))}, {"image": "s3://archive/usable/b.png"})

    def refused(reason: str, *, single: bool = True) -> None:
        monkeypatch.setattr(object_store, "_seen", {})
        for data in ("s3://archive/usable", *([file] if single else [])):
            with pytest.raises(StoreError, match=reason):
                read(data, on_error="skip", verify=True)

    with pytest.raises(StoreError, match="s3://nowhere needs to exist"):
        read("s3://nowhere/photos")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    refused("needs credentials with the right to list and read it: There is no such key")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    refused("needs credentials .*AWS_ACCESS_KEY_ID", single=False)
    with pytest.raises(UnusableData, match="may not be read with these credentials"):
        read(file, on_error="skip", verify=True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    bucket.post("gone")
    try:
        refused("s3://archive needs to exist")
    finally:
        bucket.post("back")
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    refused("cannot be used now: .*what was written is kept")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "")
    with pytest.raises(StoreError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        read("az://box/photos")


def test_images_are_asked_for_again_by_each_reading(bucket: s3_server.Bucket, tmp_path: Path) -> None:
    address = bucket.put("again/a.png", picture(1))
    absent = "s3://archive/again/b.png"
    file = table(tmp_path, {"image": address}, {"image": absent})
    assert read(file, on_error="skip", verify=True).images.values == [address]
    first = image_digest(address, Path())
    bucket.put("again/a.png", picture(2) + b" ")
    bucket.put("again/b.png", picture(3))
    assert read(file, on_error="skip", verify=True).images.values == [address, absent]
    assert image_digest(address, Path()) != first
    assert len(read(file, images="s3://archive/again", verify=True).images) == 2
    bucket.delete("again/a.png")
    assert read(file, images="s3://archive/again", on_error="skip", verify=True).images.values == [absent]
    assert read(file, on_error="skip", verify=True).images.values == [absent]


def test_without_room_images_are_downloaded_again_and_that_is_said(
    bucket: s3_server.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = bucket.put("room/a.png", picture(1))
    monkeypatch.setattr(object_store, "_kept", object_store._Kept())
    object_store._kept.limit = 10
    found = read(table(tmp_path, {"image": address}), verify=True)
    assert any("had no room for 1 downloaded image" in problem.what for problem in found.problems)
    object_store.release(found.images.values)
    bucket.asked()
    assert open_image(address).getpixel((0, 0)) == (1, 0, 0) and "GET room/a.png" in bucket.asked()


def test_kept_images_give_their_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART", 100)
    kept = object_store._Kept()
    for number in range(10):
        kept.put(f"s3://a/{number}", bytes([number]) * 60)
    assert [kept.get(f"s3://a/{number}") for number in range(10)] == [bytes([number]) * 60 for number in range(10)]
    assert kept._used == 600
    kept.drop([f"s3://a/{number}" for number in range(9)])
    assert kept.get("s3://a/3") is None and kept.get("s3://a/9") == b"\x09" * 60 and kept._used <= 120
    kept.drop(["s3://a/9", "s3://a/9"])
    kept.put("s3://a/1", b"new")
    assert kept.get("s3://a/1") == b"new" and kept._used <= 123


def test_items_keep_their_order_while_threads_download(monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[int]()

    def slow(address: str, most: int | None) -> None:
        held.append(1)
        time.sleep(0.02 if address.endswith("0") else 0.0)

    monkeypatch.setattr(object_store, "_keep", slow)
    given = [f"s3://a/{number}" if number % 3 else number for number in range(300)]
    taken = object_store.fetched(given, lambda item: item if isinstance(item, str) else None)
    assert next(taken) == 0 and len(held) < 10  # What needs no download does not wait.
    assert [0, *taken] == given and len(held) == 200


@pytest.mark.parametrize(("images", "size"), [(5, 1), (50, 300)])
def test_downloads_run_ahead_by_few_images_and_bytes(monkeypatch: pytest.MonkeyPatch, images: int, size: int) -> None:
    monkeypatch.setattr(object_store, "AHEAD", images)
    monkeypatch.setattr(object_store, "AHEAD_BYTES", 1000)
    monkeypatch.setattr(object_store, "_states", object_store._States())
    begun, addresses = list[str](), [f"s3://a/{number}" for number in range(60)]
    for address in addresses:
        object_store._states[address] = web_images.State(size, 1)
    monkeypatch.setattr(object_store, "_keep", lambda address, most: begun.append(address))
    most = 0
    for done, address in enumerate(object_store.fetched(addresses, lambda address: address)):
        assert address in begun
        most = max(most, len(begun) - done)
    assert 2 <= most <= min(images, 1000 // size) + 1 and begun == addresses


def test_listing_holds_few_bytes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20_000

    class Listed:
        def get_file_info(self, _: object) -> list[Any]:
            names = (f"archive/listed/{number // 1000:03}/image-{number:07}.jpg" for number in range(count))
            return [fs.FileInfo(name, fs.FileType.File, mtime_ns=10**18, size=9) for name in names]

    monkeypatch.setattr(object_store, "_states", object_store._States())
    monkeypatch.setattr(object_store, "_opened", lambda address: (Listed(), address.partition("://")[2]))
    tracemalloc.start()
    try:
        names = object_store.list_store(as_path("s3://archive/listed"))
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The names have 79 of them with the list; what Arrow itself allocates is not counted.
    assert len(names) == count and held < 140 * count and most < 155 * count


def test_host_says_what_changed(host: https_server.Host) -> None:
    dated = host.put("dated.png", picture(1), Last_Modified="Wed, 21 Oct 2015 07:28:00 GMT")
    tagged, silent = host.put("tagged.png", picture(2), ETag='"a"'), host.put("silent.png", picture(3))
    unheaded = host.put("unheaded.png", picture(4), No_Head="1", ETag='"b"', Content_Range="bytes 0-0/70")
    first = [web_images.head(address) for address in (dated, tagged, silent, unheaded)]
    assert first[0] == (len(picture(1)), 1445412480 * 10**9, 0) and first[1].tag and first[3].size == 70
    host.put("tagged.png", picture(2), ETag='"other"')
    again = [web_images.head(address) for address in (dated, tagged, silent, unheaded)]
    assert again[0] == first[0] and again[3] == first[3]
    # Where only the tag differs, the content is compared; where a host tells nothing, it always is.
    assert all(
        now[:2] == before[:2] and now.tag != before.tag for now, before in zip(again[1:3], first[1:3], strict=True)
    )


def test_host_that_gives_no_image_is_named(host: https_server.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_images, "ANSWER", 0.5)
    monkeypatch.setattr(web_images, "_silent", {})
    host.put("page", b"<html>", Content_Type="text/html; charset=utf-8")
    host.put("denied", b"", status=403)
    host.put("huge", b"x", Content_Length="999999999")
    host.put("to-http", b"", status=302, Location="http://127.0.0.1/a.png")
    host.put("circle", b"", status=302, Location=host.at("circle"))
    for path, reason in (
        ("gone?signature=word", "gone is not there"),
        ("page", "is a page (text/html), and no image"),
        ("denied", "refused by its host: 403"),
        ("huge", "above the limit of 1,000"),
        ("to-http", "leads to an address that is not https"),
        ("circle", "refused by its host: 302"),
    ):
        with pytest.raises(DataError) as caught:
            object_store.content(host.at(path), most=1000)
        assert reason in str(caught.value) and "word" not in str(caught.value)
    for _ in range(web_images.SILENT):
        with pytest.raises(DataError, match=r"cannot be read: .*refused"):
            object_store.content("https://127.0.0.1:9/a.png")
    with pytest.raises(DataError, match="did not answer 3 times, and is not asked now"):
        object_store.content("https://127.0.0.1:9/b.png")


def test_public_host_leads_to_no_private_one(host: https_server.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_images, "_is_public", lambda place: place == "127.0.0.2")
    private = host.put("inside.png", picture(1))
    host.put("lead", b"", status=302, Location=private)
    assert object_store.content(host.at("lead"), keep=False) == picture(1)  # Both are private: the data names them.
    for address, public in ((host.at("lead", "127.0.0.2"), False), (private, True), (host.at("lead"), True)):
        host.asked.clear()
        with pytest.raises(DataError, match="a host of a private network"):
            object_store.content(address, keep=False, public=public)
        assert host.asked in ([], ["GET /lead"])
    assert object_store.content(host.at("inside.png", "127.0.0.2"), keep=False, public=True) == picture(1)


def test_host_with_public_and_private_places_counts_as_the_stricter_of_both(
    host: https_server.Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = web_images.socket.getaddrinfo

    def mixed(name: str, *rest: Any, **options: Any) -> list[Any]:
        names = ("127.0.0.2", "127.0.0.1") if name == "127.0.0.2" else (name,)
        return [place for one in names for place in resolve(one, *rest, **options)]

    monkeypatch.setattr(web_images, "_is_public", lambda place: place == "127.0.0.2")
    monkeypatch.setattr(web_images.socket, "getaddrinfo", mixed)
    image = host.put("mixed.png", picture(1))
    host.put("lead-in", b"", status=302, Location=image)
    assert object_store.content(host.at("mixed.png", "127.0.0.2"), keep=False) == picture(1)
    for path, public in (("lead-in", False), ("mixed.png", True)):
        with pytest.raises(DataError, match="a host of a private network"):
            object_store.content(host.at(path, "127.0.0.2"), keep=False, public=public)


def test_redirection_names_the_host_that_it_leads_to(host: https_server.Host) -> None:
    host.put("named.png", picture(1))
    host.put("other", b"", status=302, Location=host.at("named.png", "127.0.0.2"))
    host.named.clear()
    assert object_store.content(host.at("other"), keep=False) == picture(1)
    assert host.named == [f"127.0.0.1:{host.port}", f"127.0.0.2:{host.port}"]


def test_proxy_hides_no_private_host(host: https_server.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_images, "_is_public", lambda place: place == "127.0.0.2")
    monkeypatch.setattr(web_images, "_silent", {})
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    web_images._opener.cache_clear()
    try:
        image = host.put("proxied.png", picture(1))
        with pytest.raises(DataError, match="a host of a private network"):
            object_store.content(image, keep=False, public=True)
        assert object_store.content(host.at("proxied.png", "127.0.0.2"), keep=False, public=True) == picture(1)
        with pytest.raises(DataError, match="refused"):  # The data names it: the proxy is asked, and is not there.
            object_store.content(image, keep=False)
    finally:
        web_images._opener.cache_clear()
    about = web_images._Request(image)
    about.public = True  # As where a public host leads.
    connection = web_images._Connection("127.0.0.1", port=9, about=about)
    connection.set_tunnel("127.0.0.1", 443)
    with pytest.raises(web_images._PrivateError):
        connection.connect()


def test_host_that_sends_little_at_a_time_holds_no_room(
    host: https_server.Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_images, "_silent", {})
    monkeypatch.setattr(web_images, "WHOLE", 0.3)
    slow = host.put("slow.png", picture(1), Drip="0.05")
    begun = time.monotonic()
    with pytest.raises(DataError, match=r"its host took more than 0\.3 seconds"):
        object_store.content(slow, keep=False)
    assert time.monotonic() - begun < 0.05 * len(picture(1)) / 2 and not object_store._room._taken
    assert object_store.content(host.put("fast.png", picture(2)), keep=False) == picture(2)


def test_answer_ends_the_silence_of_a_host(host: https_server.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"127.0.0.1:{host.port}"
    monkeypatch.setattr(web_images, "_silent", {name: (web_images.SILENT - 1, time.monotonic())})
    with pytest.raises(DataError, match="is not there"):
        object_store.content(host.at("nothing.png"), keep=False)
    assert name not in web_images._silent


def test_error_of_a_store_shows_no_signature() -> None:
    problem = OSError("GET 'https://box.blob.core.windows.net/a?sv=2024&sig=word%3D' failed: 500 Server busy?sig=word")
    said = str(object_store._unusable("az://box/a.png", problem))
    assert "sig" not in said and "word" not in said and "failed: 500 Server busy" in said


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("a.png", True),
        ("in/..a.png?name=/../b", True),
        ("../b.png", False),
        ("./a.png", False),
        ("%2e%2E/b.png", False),
        (".%2e%2fb.png", False),
        ("%252e%252e/b.png", False),
        ("..;x/b.png", False),
        ("..\\b.png", False),
        ("..?a", False),
    ],
)
def test_address_with_dots_lies_below_no_named_folder(path: str, inside: bool) -> None:
    for folder in ("https://host.org/photos", "https://host.org/photos/"):
        assert _is_within(f"https://host.org/photos/{path}", [as_path(folder)]) == inside


def test_server_asks_a_private_host_only_where_its_operator_names_it(host: https_server.Host) -> None:
    private = host.put("photos/a.png", picture(1))
    host.put("photos-2/a.png", picture(1))
    named = [Path("/srv"), as_path(host.at("photos"))]
    assert read_bytes(private, Path(), within=named) == picture(1)
    host.asked.clear()
    for address, within in ((private, [Path("/srv")]), (host.at("photos-2/a.png"), named)):
        with pytest.raises(DataError, match="a host of a private network"):
            read_bytes(address, Path(), within=within)
    assert not host.asked


@pytest.mark.parametrize(
    ("place", "public"),
    [
        ("8.8.8.8", True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::808:808", True),
        ("2002:a00:1::", False),
        ("2606:4700::1111", True),
    ],
)
def test_private_networks_are_told_apart(place: str, public: bool) -> None:
    assert web_images._is_public(place) == public


def test_signed_address_is_no_id(host: https_server.Host, tmp_path: Path) -> None:
    signed = [
        host.put(f"{name}.png", picture(number, 7, 7)) + "?X-Amz-Signature=word" for number, name in enumerate("abc")
    ]
    rows = [{"image": signed[0]}, {"image": signed[1], "id": "b"}, {"image": signed[2]}, {"image": host.at("a.png")}]
    host.asked.clear()
    found = read(table(tmp_path, *rows), on_error="skip", verify=True)
    assert found.images.ids == ["b", host.at("a.png")] and found.images.values[0] == signed[1]
    refused = [problem for problem in found.problems if problem.fatal]
    assert [problem.where.split()[-1] for problem in refused] == ["1", "3"]
    assert all("needs a column `id`" in problem.what for problem in refused)
    assert "word" not in str([(str(problem), problem.item, problem.kind) for problem in refused])
    assert not any("c.png" in line for line in host.asked)
    with pytest.raises(UnusableData, match=r"2 problems.*needs a column `id`"):
        read(table(tmp_path, *rows))


def test_note_on_what_is_inside_an_image_shows_no_signature(host: https_server.Host, tmp_path: Path) -> None:
    xmp = (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description><rdf:Alt><rdf:li>written inside'
        "</rdf:li></rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
    )
    one, pages = BytesIO(), BytesIO()
    Image.new("RGB", (40, 40)).save(one, "JPEG", xmp=xmp.encode())
    Image.new("RGB", (40, 40)).save(pages, "TIFF", save_all=True, append_images=[Image.new("RGB", (40, 40))])
    files = {"inside.jpg": one.getvalue(), "pages.tif": pages.getvalue()}
    signed = [f"{host.put(name, body)}?signature=word" for name, body in files.items()]
    source = table(tmp_path, *({"image": address, "id": address} for address in signed))
    said = [str(problem) for problem in read(source).problems]
    assert any("where table and file differ" in note and "first https://" in note for note in said), said
    assert any("pages.tif" in note for note in said) and "word" not in "".join(said), said
