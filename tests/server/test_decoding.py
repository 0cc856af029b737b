"""The process that decodes images: what it refuses before, what ends it, and that another one takes its place."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import served_index

from benchmarks import attacks
from subtext.data.image_files import read_square
from subtext.data.pixels import PixelInput
from subtext.server import decoding
from subtext.server.decoding import Decoder, require_image
from subtext.server.refusal import Refusal

SQUARE = PixelInput(size=32).square


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    made = Decoder(50_000_000)
    yield made
    made.close()


def test_work_of_a_jpeg_is_bounded_by_pixels_times_scans() -> None:
    assert require_image(attacks.scans(800, 800, 100), pixels=50_000_000) == (".jpg", 640_000)
    for data in (attacks.scans(), attacks.scans(800, 800, 10_000), attacks.markers()):
        with pytest.raises(Refusal, match="too many scans, or other parts") as refused:
            require_image(data, pixels=50_000_000)
        assert refused.value.status == 413


def test_scans_are_counted_in_sequential_jpegs_and_behind_fill_bytes() -> None:
    data = attacks.scans()
    for other in (
        data.replace(b"\xff\xc2\x00", b"\xff\xc0\x00"),
        data.replace(b"\xff\xda\x00", b"\xff\xff\xff\xda\x00"),
    ):
        with pytest.raises(Refusal, match="too many scans"):
            require_image(other, pixels=50_000_000)


def test_usual_progressive_jpegs_are_accepted() -> None:
    from io import BytesIO

    from PIL import Image

    buffer = BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    # With a thumbnail in a part of its own, and another picture behind its end.
    Image.fromarray(noise).save(buffer, "JPEG", progressive=True, exif=b"Exif\x00\x00" + attacks.scans(64, 64, 300))
    assert require_image(buffer.getvalue() + attacks.scans(64, 64, 3000), pixels=60_000) == (".jpg", 60_000)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "AVIF", "GIF", "BMP", "TIFF"])
def test_child_decodes_what_the_library_decodes(decoder: Decoder, form: str) -> None:
    data = served_index.picture((200, 40, 60), (90, 70), form)
    side, pixels = decoder.square(data, SQUARE)
    assert np.array_equal(np.frombuffer(pixels, np.uint8).reshape(side, side, 3), read_square(data, **SQUARE))
    assert decoder.image(data).size == (90, 70) and decoder.check(data).startswith(".")
    assert decoder.thumbnail(data, 40)[8:12] == b"WEBP"


def test_decoding_that_takes_too_long_is_ended(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of an hour, by a file of 4 MB."""
    fine = served_index.picture()
    assert decoder.check(fine) == ".png"
    first = decoder._child
    with monkeypatch.context() as patched:
        patched.setattr(decoding, "PATIENCE", 0.05)
        with pytest.raises(Refusal, match="more time or memory to decode") as refused:
            decoder.square(attacks.strips(), SQUARE)
    assert refused.value.status == 413
    assert first is not None and first.returncode is not None, "it is ended"
    assert decoder.check(fine) == ".png", "another one took its place"


def test_child_that_was_killed_is_replaced(decoder: Decoder) -> None:
    assert decoder.check(served_index.picture()) == ".png"
    assert decoder._child is not None
    decoder._child.kill()
    decoder._child.wait()
    assert decoder.check(served_index.picture()) == ".png"


def test_images_wait_for_one_another_only_so_long() -> None:
    decoder = Decoder(1000, turn_seconds=0.01)
    with decoder._turn, pytest.raises(Refusal, match="busy with other images") as refused:
        decoder.check(served_index.picture())
    assert refused.value.status == 503 and refused.value.headers["Retry-After"]


def test_child_that_does_not_start_is_told(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Refusal, match="does not start") as refused:
        decoder.check(served_index.picture())
    assert refused.value.status == 503


@pytest.mark.slow
@pytest.mark.parametrize("name", attacks.PICTURES)
def test_attack_by_a_picture_ends(decoder: Decoder, name: str) -> None:
    """Each is decoded, or refused; the limits are those of the child's processor and memory, not of the clock."""
    data = attacks.PICTURES[name]()
    try:
        decoder.square(data, SQUARE)
    except Refusal as refused:
        assert refused.status == 413, str(refused)
    assert decoder.check(served_index.picture()) == ".png"
