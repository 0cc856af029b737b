"""Whatever a picture file turns out to be: an RGB picture of the right colours and the right way up, or a sentence."""

from __future__ import annotations

import base64
import io
import struct
import tarfile
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stored_items
from PIL import EpsImagePlugin, Image, ImageCms

from subtext.data import image_files
from subtext.data.dataset import Items
from subtext.data.image_files import difference_hash, inside, open_image, read_bytes, stored_size, thumbnail
from subtext.data.inputs import Draw, InputBatch
from subtext.data.pixels import PixelInput
from subtext.errors import DataError
from subtext.evaluation.checks.overlap import fingerprint_images
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.server.decoding import Decoder
from subtext.server.images import Thumbnails


def coded(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def pixel(data: bytes, at: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    image = open_image(data)
    assert image.mode == "RGB"
    value = image.getpixel(at)
    assert isinstance(value, tuple)
    return value


def test_modes_become_rgb() -> None:
    assert pixel(coded(Image.new("L", (2, 2), 77), "PNG")) == (77, 77, 77)
    assert pixel(coded(Image.new("1", (2, 2), 1), "PNG")) == (255, 255, 255)
    cmyk = pixel(coded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95))
    assert np.abs(np.array(cmyk) - (255, 0, 0)).max() < 8
    assert pixel(coded(Image.new("YCbCr", (2, 2), (128, 128, 128)), "TIFF")) == (128, 128, 128)


def test_transparency_becomes_white() -> None:
    assert pixel(coded(Image.new("RGBA", (2, 2), (255, 0, 0, 0)), "PNG")) == (255, 255, 255)
    half = pixel(coded(Image.new("RGBA", (2, 2), (255, 0, 0, 128)), "PNG"))
    assert np.abs(np.array(half) - (255, 127, 127)).max() <= 1
    assert pixel(coded(Image.new("LA", (2, 2), (0, 0)), "PNG")) == (255, 255, 255)
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([9, 9, 9, 0, 0, 255] + [0] * 762)
    assert pixel(coded(palette, "PNG")) == (0, 0, 255)
    assert pixel(coded(palette, "PNG", transparency=1)) == (255, 255, 255)
    assert pixel(coded(Image.new("RGB", (2, 2), (1, 2, 3)), "PNG", transparency=(1, 2, 3))) == (255, 255, 255)


@pytest.mark.parametrize(("value", "wanted"), [(0, 0), (257 * 100, 100), (65535, 255)])
def test_sixteen_bit_images_are_scaled(value: int, wanted: int) -> None:
    data = coded(Image.fromarray(np.full((3, 3), value, np.uint16)), "PNG")
    assert pixel(data) == (wanted,) * 3
    tiff = coded(Image.fromarray(np.full((3, 3), value, np.int32)), "TIFF")
    assert pixel(tiff) == (wanted,) * 3


def test_float_images_in_unit_range_are_stretched() -> None:
    assert pixel(coded(Image.fromarray(np.full((3, 3), 0.5, np.float32)), "TIFF")) == (128, 128, 128)


RAMP = np.tile(np.arange(256), (64, 1))


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ((RAMP / 255).astype(np.float32), "TIFF"),
        (RAMP.astype(np.float32), "TIFF"),
        ((RAMP * 257).astype(np.float32), "TIFF"),
        ((RAMP * 257).astype(np.uint16), "TIFF"),
        ((RAMP * 257).astype(np.uint16), "PNG"),
        ((RAMP * 257).astype(np.int32), "TIFF"),
        ((RAMP * 100_000).astype(np.int32), "TIFF"),
        ((RAMP * 1e6).astype(np.float32), "TIFF"),
        ((RAMP - 128).astype(np.float32), "TIFF"),
        ((RAMP - 128).astype(np.int32), "TIFF"),
    ],
)
def test_deep_scans_look_as_their_picture_of_8_bits(values: np.ndarray, form: str) -> None:
    grey = np.asarray(open_image(coded(Image.fromarray(values), form)))[:, :, 1]
    assert np.abs(grey.astype(int) - RAMP).max() <= 1


def test_strange_numbers_of_float_scans_are_black_and_white() -> None:
    values = np.array([[0.0, 0.5, 1.0, np.nan, np.inf, -np.inf]], np.float32)
    grey = np.asarray(open_image(coded(Image.fromarray(values), "TIFF")))[0, :, 0]
    assert grey.tolist() == [0, 128, 255, 0, 255, 0]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_negatives_are_turned(kind: type) -> None:
    """TIFF may say that 0 is white."""
    values = (RAMP * (257 if kind is np.uint16 else 1)).astype(kind)
    data = bytearray(coded(Image.fromarray(values), "TIFF"))
    with Image.open(io.BytesIO(data)) as image:
        assert image.tag_v2[262] == 1  # type: ignore[attr-defined]
    # The entry of the tag: its number, a short, one of them, and the value.
    entry = struct.pack("<HHI", 262, 3, 1)
    data[data.index(entry) + 8] = 0
    grey = np.asarray(open_image(bytes(data)))[:, :, 0]
    assert np.abs(grey.astype(int) - RAMP[:, ::-1]).max() <= 1


@pytest.mark.parametrize("kind", ["I;16", "L", "1", "RGB"])
def test_transparent_colour_of_png_becomes_white(kind: str) -> None:
    black, dark = (0, 0, 0) if kind == "RGB" else 0, (1, 1, 1) if kind == "RGB" else 1
    image = Image.new(kind, (20, 4), dark)
    image.paste(black, (0, 0, 10, 4))
    greys = np.asarray(open_image(coded(image, "PNG", transparency=black)))[0, :, 0]
    assert (greys[:10] == 255).all() and (greys[10:] < 2).sum() == (10 if kind != "1" else 0)
    assert np.asarray(open_image(coded(image, "PNG")))[0, 0, 0] == 0


def test_transparent_grey_of_few_bits_counts_in_its_own_depth() -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 4, 1, 2, 0, 0, 0, 0)  # Two bits per pixel: 0, 1, 2, 3.
    rows = chunk(b"IDAT", zlib.compress(b"\0\x1b"))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tRNS", b"\0\x01") + rows + chunk(b"IEND", b"")
    assert np.asarray(open_image(data))[0, :, 0].tolist() == [0, 255, 170, 255]


def test_transparent_colour_of_16_bits_becomes_white() -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    pixels = struct.pack(">6H", 0x0A0A, 0x0B0B, 0x0C0C, 0x1111, 0x1111, 0x1111)
    key = chunk(b"tRNS", struct.pack(">3H", 0x0A0A, 0x0B0B, 0x0C0C))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + key + chunk(b"IDAT", zlib.compress(b"\0" + pixels))
    assert np.asarray(open_image(data + chunk(b"IEND", b"")))[0].tolist() == [[255] * 3, [17] * 3]


def test_cmyk_is_converted_by_its_profile() -> None:
    image = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    plain = pixel(coded(image, "TIFF"))
    assert plain == (0, 255, 255)
    # A profile of greys, and a damaged one, are as none.
    grey = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for wrong in (grey, b"no profile"):
        assert pixel(coded(image, "TIFF", icc_profile=wrong)) == plain
    calls = []

    def convert(given: Image.Image, transform: object) -> Image.Image:
        calls.append(transform)
        return Image.new("RGB", given.size, (1, 2, 3))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(image_files, "_transform", lambda profile, mode: (profile, mode))
        patched.setattr(image_files.ImageCms, "applyTransform", convert)
        assert pixel(coded(image, "TIFF", icc_profile=b"of a press")) == (1, 2, 3)
    assert calls == [(b"of a press", "CMYK")]


def test_lab_is_converted() -> None:
    assert np.abs(np.array(pixel(coded(Image.new("LAB", (4, 4), (255, 128, 128)), "TIFF"))) - 255).max() <= 2


def test_first_page_that_is_no_copy_is_read() -> None:
    pages = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "lime")]
    data = coded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert pixel(data) == (255, 0, 0)
    assert image_files.pages_of(Image.open(io.BytesIO(data))) == [0, 1, 2]
    # The first page of some scanners is a thumbnail, and says so in its first entry.
    small = coded(Image.new("RGB", (4, 4), "red"), "TIFF", save_all=True, append_images=pages[1:], tiffinfo={254: 1})
    entry = struct.pack("<HHII", 254, 4, 1, 1)
    first, *others = small.split(entry)
    assert len(others) == 3
    small = first + entry + struct.pack("<HHII", 254, 4, 1, 0).join(others)
    with Image.open(io.BytesIO(small)) as image:
        assert image_files.pages_of(image) == [1, 2]
    assert open_image(small).size == (20, 20) and pixel(small) == (0, 0, 255)
    assert open_image(small).info[image_files.PAGES] == 2


@pytest.mark.parametrize("form", ["JPEG2000", "AVIF", "PPM", "MPO", "TGA"])
def test_further_formats_are_read(form: str) -> None:
    assert np.abs(np.array(pixel(coded(Image.new("RGB", (32, 32), (9, 200, 9)), form))) - (9, 200, 9)).max() <= 8


def test_formats_that_pillow_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {form: coded(Image.new("RGB", (32, 32)), form) for form in ("AVIF", "JPEG2000")}
    monkeypatch.setattr(image_files.features, "check", lambda name: False)
    for form, name in (("AVIF", "AVIF"), ("JPEG2000", "JPEG 2000")):
        with pytest.raises(DataError, match=f"is {name}, which this Pillow was built without"):
            open_image(data[form])


def picture(size: tuple[int, int]) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


MODES = {form: ["RGB", "L", "P", "1", "CMYK", "RGBA", "I;16"] for form in ("WEBP", "TIFF")}
MODES |= {"JPEG": ["RGB", "L", "1", "CMYK"], "PNG": ["RGB", "L", "P", "1", "RGBA", "I;16"]}
MODES |= {"GIF": ["RGB", "L", "P", "1", "RGBA", "I;16"], "BMP": ["RGB", "L", "P", "1", "RGBA"]}
"""Format -> kinds of pixels that Pillow writes in it."""


@pytest.mark.parametrize(("form", "mode"), [(form, mode) for form, modes in MODES.items() for mode in modes])
@pytest.mark.parametrize("resize", ["crop", "edge", "squash"])
def test_every_way_in_gives_the_same_pixels(form: str, mode: str, resize: Any, tmp_path: Path) -> None:
    whole = picture((640, 480))
    image = Image.fromarray(np.asarray(whole.convert("L")).astype(np.uint16) * 257) if mode == "I;16" else whole
    image = image if image.mode == mode else image.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = coded(image, form, **({} if form in ("GIF", "BMP") else {"exif": exif}))
    (tmp_path / "a").write_bytes(data)
    loaded = Image.open(io.BytesIO(data))
    loaded.load()
    spec, rows = PixelInput(size=64, resize=resize, crop_share=1.0, filter="bicubic"), np.arange(4)
    with Image.open(tmp_path / "a") as lazy:
        ways = ["a", data, lazy, loaded]
        found = spec(InputBatch(ways, list("abcd"), rows, rows, tmp_path))["pixels"].numpy()
    assert np.abs(found - found[:1]).max() == 0


def test_large_picture_in_memory_is_scaled_down_as_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "LARGE", 1000)
    for number, size in enumerate(((1600, 1600), (1000, 700))):
        data = coded(picture(size), "JPEG", quality=95, subsampling=0)
        from_file, in_memory = (open_image(way, at_least=64) for way in (data, Image.open(io.BytesIO(data))))
        assert from_file.size == in_memory.size == ((200, 200), (500, 350))[number]
        assert np.abs(np.asarray(from_file, float) - np.asarray(in_memory, float)).mean() < 1


def test_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = coded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixel(data) == (255, 0, 0)


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_orientation_is_applied(turn: int) -> None:
    upright = np.zeros((40, 24, 3), np.uint8)
    upright[:8, :8] = (255, 0, 0)
    # How a camera stores the upright picture under each orientation.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[turn]
    exif = Image.Exif()
    exif[0x0112] = turn
    data = coded(Image.fromarray(np.ascontiguousarray(stored)), "JPEG", quality=95, exif=exif)
    image = open_image(data)
    assert image.size == (24, 40)
    assert np.abs(np.array(image.getpixel((2, 2))) - (255, 0, 0)).max() < 12


def read_as_pixels(path: Path) -> np.ndarray:
    """As training, embedding and extraction read it."""
    rows = np.arange(1)
    return PixelInput(size=64)(InputBatch([path.name], [path.name], rows, rows, path.parent))["pixels"].numpy()


def read_as_a_crop(path: Path) -> np.ndarray:
    rows = np.arange(1)
    batch = InputBatch([path.name], [path.name], rows, rows, path.parent)
    return PixelInput(size=32, least_area=0.3)(batch, Draw(seed=1, epoch=0))["pixels"].numpy()


def read_as_a_query(path: Path) -> np.ndarray:
    """As the server reads what is sent, and Python an image in memory."""
    rows = np.arange(2)
    opened = Image.open(path)
    return PixelInput(size=64)(InputBatch([path.read_bytes(), opened], ["a", "b"], rows, rows, Path()))[
        "pixels"
    ].numpy()


def read_as_a_thumbnail(path: Path) -> np.ndarray:
    told = thumbnail(path.name, path.parent, size=48)
    assert told is not None
    return np.asarray(open_image(base64.b64decode(told.partition(",")[2])), dtype=np.float32) / 255


def read_as_a_served_thumbnail(path: Path) -> np.ndarray:
    store = Folder.create(path.parent / path.stem, replace(stored_items.manifest(), root=str(path.parent)))
    with store.writing("build") as writer:
        writer.put(
            Change(
                "images", [IndexEntry("a", b"c", path=path.name)], stored_items.vectors(range(1), stored_items.VIEWS)
            )
        )
    with closing(Decoder(10**6)) as decoder:
        data, _ = Thumbnails([path.parent], None, decoder).of(store, "a", 48)
    return np.asarray(open_image(data), dtype=np.float32) / 255


def read_as_a_copy(path: Path) -> np.ndarray:
    """As curation and audits compare pictures."""
    items = Items(["a"], [path.name], np.arange(1), np.array(["all"]))
    (look,) = fingerprint_images(items, path.parent, 0, None, 0)
    assert look is not None and look.greys is not None
    return look.greys * 16


@pytest.mark.parametrize("read", [read_as_pixels, read_as_a_crop, read_as_a_query, read_as_a_thumbnail,
                                  read_as_a_served_thumbnail, read_as_a_copy])  # fmt: skip
@pytest.mark.parametrize("turn", [3, 6, 8])
def test_exif_orientation_is_applied_by_every_image_reader(
    tmp_path: Path, read: Callable[..., np.ndarray], turn: int
) -> None:
    upright = np.zeros((240, 144, 3), np.uint8)
    upright[:120, :90], upright[120:, :50] = (255, 255, 255), (255, 255, 0)
    kept = np.ascontiguousarray({3: upright[::-1, ::-1], 6: np.rot90(upright, 1), 8: np.rot90(upright, -1)}[turn])
    exif = Image.Exif()
    exif[0x0112] = turn
    paths = {name: tmp_path / f"{name}.jpg" for name in ("upright", "turned", "kept")}
    for (name, path), pixels in zip(paths.items(), (upright, kept, kept), strict=True):
        more = {"exif": exif} if name == "turned" else {}
        path.write_bytes(coded(Image.fromarray(pixels), "JPEG", quality=95, subsampling=0, **more))
    wanted, found, ignored = (read(paths[name]) for name in ("upright", "turned", "kept"))
    assert found.shape == wanted.shape and np.abs(found - wanted).mean() < 0.02
    assert ignored.shape != wanted.shape or np.abs(ignored - wanted).mean() > 0.2


@pytest.mark.filterwarnings("ignore")
def test_damaged_exif_is_ignored() -> None:
    data = coded(Image.new("RGB", (8, 8), "red"), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert open_image(data).size == (8, 8)


def noise(form: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return coded(Image.fromarray(pixels), form)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_truncated_image_raises(form: str) -> None:
    data = noise(form)
    assert open_image(data).size == (64, 64)
    refused = 0
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9):
        try:
            open_image(data[: int(len(data) * share)])
        except DataError:
            refused += 1
    # Formats differ in how little they can be told from; a half of the pixels is never taken for a picture.
    assert refused >= 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "TIFF"])
def test_damaged_image_opens_or_raises(form: str) -> None:
    whole = noise(form)
    rng = np.random.default_rng(1)
    for _ in range(40):
        data = bytearray(whole)
        for place in rng.integers(0, min(len(data), 400), 6):
            data[place] = rng.integers(0, 256)
        try:
            assert open_image(bytes(data)).mode == "RGB"
        except DataError as error:
            assert str(error)


def bomb(side: int) -> bytes:
    """A PNG of side x side black pixels: some kilobytes that would take gigabytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.fixture
def limit() -> Iterator[Callable[[float | None], None]]:
    """Sets the largest image, in million pixels, for the test."""
    yield image_files.limit_pixels
    image_files.limit_pixels(None)


@pytest.mark.parametrize("side", [9_500, 12_000, 50_000])
def test_decompression_bombs_raise(side: int, limit: Callable[[float], None]) -> None:
    limit(80)
    with pytest.raises(
        DataError, match=rf"above the limit of 80,000,000; .* \(--max-pixels {-(-side * side // 10**6)}\)"
    ):
        open_image(bomb(side))
    limit(None)
    assert image_files.most_pixels() <= image_files.MOST_PIXELS


def test_default_limit_follows_the_memory_at_hand(
    monkeypatch: pytest.MonkeyPatch, limit: Callable[[float | None], None]
) -> None:
    for memory, most in (
        (10**9, image_files.LEAST_PIXELS),
        (8 * 10**9, 500 * 10**6),
        (10**12, image_files.MOST_PIXELS),
    ):
        monkeypatch.setattr(image_files, "memory_at_hand", lambda memory=memory: memory)
        limit(None)
        assert image_files.most_pixels() == most


def test_large_scan_is_read_without_raw_warnings(limit: Callable[[float | None], None]) -> None:
    """A JPEG of 600 dpi and A2 is scaled down while it is decoded; Pillow's own limit and warnings stay out."""
    limit(150)
    data = coded(Image.new("L", (9921, 14031), 120), "JPEG", quality=30)
    before = Image.MAX_IMAGE_PIXELS
    tracemalloc.start()
    image = open_image(data, at_least=225)
    assert tracemalloc.get_traced_memory()[1] < 50 * 10**6
    tracemalloc.stop()
    assert image.size == (1241, 1754) and abs(np.asarray(image).astype(int) - 120).max() <= 1
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "GIF", "WEBP", "JPEG2000"])
def test_limit_of_pillow_does_not_count(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = coded(Image.new("RGB", (64, 64), "red"), form)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert open_image(data).size == (64, 64) and Image.MAX_IMAGE_PIXELS == 10


def test_large_images_wait_for_memory(limit: Callable[[float | None], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "_ALONE", 100)
    limit(0.002)
    data, most, running, changed = coded(Image.new("L", (40, 30)), "PNG"), [0], [0], threading.Lock()
    convert = image_files._upright_rgb

    def slow(*given: Any, **more: Any) -> Image.Image:
        with changed:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with changed:
            running[0] -= 1
        return convert(*given, **more)

    monkeypatch.setattr(image_files, "_upright_rgb", slow)
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(open_image, [data] * 8))) == 8
    assert most[0] == 1


def test_files_without_image_raise(tmp_path: Path) -> None:
    (tmp_path / "zero.jpg").write_bytes(b"")
    (tmp_path / "page.jpg").write_bytes(b"<html></html>")
    (tmp_path / "inner").mkdir()
    for name, message in (
        ("gone.jpg", "is not in"),
        ("zero.jpg", r"is empty \(0 bytes\)"),
        ("page.jpg", "is no image that can be read"),
        ("inner", "is a folder"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(DataError, match=message):
            open_image(name, tmp_path)
    with pytest.raises(DataError, match="is empty"):
        open_image(b"")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device file")
def test_device_file_raises() -> None:
    with pytest.raises(DataError, match="is no ordinary file"):
        open_image("/dev/zero")


def test_arrays_and_images_in_memory_are_accepted() -> None:
    array = np.full((3, 5, 3), 9, np.uint8)
    assert open_image(array).size == (5, 3)
    assert open_image(array[:, :, 0]).mode == "RGB"
    assert open_image(Image.new("RGBA", (2, 2), (0, 0, 0, 0))).getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(DataError, match=r"needs uint8 \(height, width, 3\); it got float64"):
        open_image(array / 255)


def test_image_inside_tar_is_read(tmp_path: Path) -> None:
    data = coded(Image.new("RGB", (4, 4), "lime"), "PNG")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("x.png")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    with tarfile.open(tmp_path / "a.tar") as tar:
        place = inside("a.tar", tar.getmembers()[0].offset_data, len(data))
    assert read_bytes(place, tmp_path) == data
    assert stored_size(place, tmp_path) == len(data)
    assert open_image(place, tmp_path).getpixel((0, 0)) == (0, 255, 0)
    with pytest.raises(DataError, match="is cut off"):
        open_image(inside("a.tar", 10_000, 99_999), tmp_path)


def test_jpeg_is_decoded_at_reduced_scale() -> None:
    ramp = np.linspace(0, 255, 800).astype(np.uint8)
    data = coded(Image.fromarray(np.stack([np.tile(ramp, (600, 1))] * 3, axis=-1)), "JPEG", quality=95)
    small = open_image(data, at_least=140, thumbnail=True)
    assert small.size == (200, 150)
    assert open_image(data, at_least=140).size == (800, 600), "a model gets all pixels"
    whole = open_image(data).resize((200, 150), Image.Resampling.BOX)
    assert np.abs(np.asarray(small, np.int16) - np.asarray(whole, np.int16)).max() <= 4


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "L", "1", "I;16", "F"])
def test_large_image_is_scaled_as_a_small_one(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Converted in strips and scaled down, it has the pixels of the whole one scaled down, and is upright."""
    ramp = np.linspace(0, 255, 97 * 61 * 4).reshape(61, 97, 4)
    image = Image.fromarray(ramp.astype(np.uint8), "RGBA")
    if mode in ("I;16", "F"):
        image = Image.fromarray((ramp[..., 0] * 200).astype(np.uint16 if mode == "I;16" else np.float32))
    image = image if image.mode == mode else image.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = coded(image, "TIFF" if mode == "F" else "PNG", **({} if mode == "F" else {"exif": exif}))
    whole = open_image(data)
    monkeypatch.setattr(image_files, "_STRIP", 500)
    assert np.array_equal(open_image(data), whole)
    monkeypatch.setattr(image_files, "LARGE", 1000)
    small = open_image(data, at_least=10)
    assert small.size == (-(-whole.width // 2), -(-whole.height // 2))
    if mode == "F":
        assert np.array_equal(small, whole.reduce(2))
    else:
        # The image was turned after it was scaled.
        turned = whole.transpose(Image.Transpose.ROTATE_90).reduce(2).transpose(Image.Transpose.ROTATE_270)
        assert np.array_equal(small, turned)


def test_difference_hash_detects_copy() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 9), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((180, 160), Image.Resampling.BICUBIC).convert("RGB")
    again = open_image(coded(image.resize((90, 80)), "JPEG", quality=60))
    other = Image.fromarray(pixels[::-1]).resize((180, 160), Image.Resampling.BICUBIC)
    assert (difference_hash(image) ^ difference_hash(again)).bit_count() <= 3
    assert (difference_hash(image) ^ difference_hash(other)).bit_count() > 16


@pytest.mark.parametrize("size", [10**12, 10**30])
def test_tar_member_beyond_its_file_raises(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(100))
    for offset in (0, 90, 10**30):
        left = max(0, 100 - offset)
        with pytest.raises(DataError, match=f"is cut off: {left} bytes of it are left"):
            read_bytes(inside("a.tar", offset, size), tmp_path)


def test_eps_program_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: object, **options: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg", "EPS")
    with pytest.raises(DataError, match=r"a\.jpg is EPS, a program that is not run; save it again as PNG"):
        open_image("a.jpg", tmp_path)
