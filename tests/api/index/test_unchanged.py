"""Of a listing, what an index has as it is costs no reading, decoding or embedding; what differs is not passed over."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coloured_images
import pytest
from PIL import Image

from subtext.api.index.build import add_to_index, build_index, update_index
from subtext.data.dataset import KnownImage
from subtext.data.unchanged import Unchanged
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.verification import verify

NAMES = list(coloured_images.COLOURS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture
def place(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a table of twelve images, and the table."""
    address, file = address_of("library"), tmp_path / "data.jsonl"
    with coloured_images.index_of_table(address, file, [row(name) for name in NAMES], runs / "run"):
        yield address, file


def row(name: str, **more: Any) -> dict[str, Any]:
    return {"image": f"photos/{name}.png", "id": name, "captions": [f"a {name} square", f"Quadrat, {name}"], **more}


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return file


def texts(address: str) -> dict[str, list[str]]:
    with open_store(address).reading() as view:
        items = view.items("images", view.keys("images"))
    assert verify(address) == []
    return {item.id: sorted(item.captions) for item in items}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What was read, decoded, looked into and embedded."""
    made: dict[str, list[str]] = {}
    for module, name in (
        ("subtext.retrieval.build", "image_digest"),
        ("subtext.data.unchanged", "image_digest"),
        ("subtext.data.read", "open_image"),
        ("subtext.data.join", "embedded_fields"),
        ("subtext.data.readers.images", "embedded_fields"),
        ("subtext.retrieval.build", "embed_items"),
    ):
        plain, seen = getattr(__import__(module, fromlist=[name]), name), made.setdefault(name, [])

        def counted(*words: Any, plain: Any = plain, seen: list[str] = seen, **options: Any) -> Any:
            seen += getattr(words[2], "ids", [str(words[0])]) if len(words) > 2 else [str(words[0])]
            return plain(*words, **options)

        monkeypatch.setattr(f"{module}.{name}", counted)
    return made


def test_unchanged_items_are_not_read(place: tuple[str, Path], calls: dict[str, list[str]]) -> None:
    address, file = place
    change = update_index(address, quiet=True)
    assert (change.unchanged, change.embedded, change.amended) == (36, 0, 0) and not any(calls.values())
    assert add_to_index(address, file, quiet=True).unchanged == 36 and not any(calls.values())
    Image.new("RGB", (40, 40), (1, 2, 3)).save(file.parent / "photos" / "red.png")
    write(file, [row(name, **({"year": 7} if name == "blue" else {})) for name in NAMES])
    change = update_index(address, quiet=True)
    assert (change.unchanged, change.embedded, change.amended) == (32, 1, 3)
    assert calls["embed_items"] == ["red"] and len(calls["open_image"]) == 1 and len(calls["embedded_fields"]) == 2


def test_another_time_of_change_costs_reading_and_no_embedding(
    place: tuple[str, Path], calls: dict[str, list[str]]
) -> None:
    address, file = place
    for name in NAMES[:3]:
        (file.parent / "photos" / f"{name}.png").chmod(0o600)
    change = update_index(address, quiet=True)
    assert (change.unchanged, change.embedded, change.amended) == (36, 0, 0)
    assert len(calls.pop("image_digest")) == 3 and not any(calls.values())
    red = file.parent / "photos" / "red.png"
    Image.new("RGB", (40, 40), (220, 31, 30)).save(red, format="BMP")
    assert update_index(address, quiet=True).embedded == 1
    stamp = red.stat()
    Image.new("RGB", (40, 40), (20, 31, 30)).save(red, format="BMP")
    os.utime(red, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert red.stat().st_size == stamp.st_size
    assert update_index(address, quiet=True).embedded == 1, "overwritten with its old time of writing"
    assert update_index(address, quiet=True).unchanged == 36


def test_second_row_and_second_name_of_an_image_are_seen(place: tuple[str, Path]) -> None:
    address, file = place
    rows = [row(name) for name in NAMES]
    write(file, [*rows, row("red", captions=["one more text"])])
    assert update_index(address, quiet=True).embedded == 1
    assert texts(address)["red"] == ["Quadrat, red", "a red square", "one more text"]
    write(file, [*rows, {"image": "./photos/../photos/green.png", "id": "other", "captions": ["of a second name"]}])
    change = update_index(address, quiet=True)
    assert (change.embedded, change.deleted) == (1, 1) and len(texts(address)) == 12, "one file is one item"
    assert "of a second name" in texts(address)["green"]


def test_removed_rows_and_deleted_items_are_counted(place: tuple[str, Path]) -> None:
    address, file = place
    write(file, [row(name) for name in NAMES[1:]])
    change = update_index(address, quiet=True)
    assert (change.unchanged, change.deleted) == (33, 3) and set(texts(address)) == set(NAMES[1:])
    with open_store(address).writing("delete") as writer:
        writer.delete("texts", ["blue#1"])
    change = update_index(address, quiet=True)
    assert (change.unchanged, change.left_out) == (32, 1) and texts(address)["blue"] == ["a blue square"]


def test_sidecar_changes_a_passed_over_image(tmp_path: Path, runs: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in list(coloured_images.COLOURS.items())[:3]:
        Image.new("RGB", (40, 40), colour).save(folder / f"{name}.jpg")
    build_index(tmp_path / "index", folder, run=runs / "run", quiet=True)
    assert update_index(tmp_path / "index", quiet=True).unchanged == 3
    xmp = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    xmp += '<rdf:Description xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" photoshop:City="Wien"/></rdf:RDF>'
    (folder / "red.xmp").write_text(xmp + "</x:xmpmeta>")
    change = update_index(tmp_path / "index", quiet=True)
    assert (change.unchanged, change.amended, change.embedded) == (2, 1, 0)
    assert update_index(tmp_path / "index", quiet=True).unchanged == 3


def test_known_images_are_below_fifty_bytes_an_item() -> None:
    many = 20_000
    images = (KnownImage(n, f"image {n}", f"a/b/{n}.jpg", f"1 2 3 {n:016x}", b"0" * 16, (2 * n,)) for n in range(many))
    known = Unchanged(images, Path(), count=many, verify_files=False)
    held_bytes = sum(
        len(own) * getattr(own, "itemsize", 1) for own in vars(known).values() if isinstance(own, array | bytearray)
    )
    held_bytes += 8 * many  # Of the files that were passed over.
    assert held_bytes / (2 * many) < 50, "an image and its text are two items"
