"""Whatever a picture file turns out to be: an RGB picture of the right colours and the right way up, or a sentence."""

from __future__ import annotations

import base64
import io
import struct
import tarfile
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stored_items
from PIL import EpsImagePlugin, Image

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


@pytest.mark.parametrize("side", [9_500, 12_000, 50_000])
def test_decompression_bombs_raise(side: int) -> None:
    with pytest.raises(DataError, match="89,478,485"):
        open_image(bomb(side))


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
    small = open_image(data, at_least=140)
    assert small.size == (200, 150)
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
